//! Arbitrary traces.

#![allow(dead_code)] // each test file uses its part

use proptest::prelude::*;
use trace::*;

pub const TASKS: u32 = 6;
const LOCKS: u32 = 3;
const STACKS: u32 = 4;

/// A builder with some rows in each table; strings with signs that are awkward to write.
pub fn tables() -> Builder {
    let mut b = Builder::new(Meta {
        machine: "a machine".into(),
        kernel: "6.18".into(),
        arch: "x86_64".into(),
        hz: 250,
        realtime_offset_ns: -5,
        online: vec![Cpu(0), Cpu(1)],
        allowed: vec![Cpu(1)],
        options: vec![("command line".into(), "make \"x\" a=b".into()), ("".into(), "#".into())],
    });
    let names = ["cc", "name with blanks", "irq", "#hash", "q\"uote\\", "ünï", "a=b"];
    let idle = b.idle_task(Cpu(0));
    assert_eq!(idle.index(), 0);
    for tid in 1..TASKS {
        let name = b.str(names[tid as usize % names.len()]);
        let cgroup = b.cgroup("/a group");
        let task = b.add_task(Task {
            tid: 100 + tid / 2,
            tgid: 100,
            parent: (tid > 1).then(|| TaskId::from_index(1)),
            in_scope: tid % 2 == 0,
            kind: if tid == 3 { TaskKind::Kernel } else { TaskKind::User },
            start: TimeNs(u64::from(tid)),
            names: vec![Name { from: TimeNs(0), name }],
            cgroup: Some(cgroup),
            ..Task::default()
        });
        b.set_command(task, "cc -c \"a file\".c\n");
        b.rename_task(task, TimeNs(77_001), "as");
    }
    for i in 0..LOCKS {
        let class = b.str("xfs_buf.b_sema");
        let object = b.str("AGI of AG 0 on loop0");
        b.add_lock(Lock {
            kind: LockKind::ALL[i as usize * 3],
            address: u64::MAX - u64::from(i),
            class: (i > 0).then_some(class),
            object: (i > 1).then_some(object),
            process: (i > 1).then(|| TaskId::from_index(2)),
        });
    }
    let mut frames = Vec::new();
    for i in 0..STACKS {
        frames.push(b.symbol(&format!("fn {i}(int, char)"), (i == 2).then_some("libc.so.6")));
        b.stack(&frames);
    }
    b
}

fn task() -> impl Strategy<Value = TaskId> {
    (0..TASKS).prop_map(TaskId::from_index)
}

fn lock() -> impl Strategy<Value = LockId> {
    (0..LOCKS).prop_map(LockId::from_index)
}

fn stack() -> impl Strategy<Value = Option<StackId>> {
    proptest::option::of((0..STACKS).prop_map(StackId::from_index))
}

fn state() -> impl Strategy<Value = TaskState> {
    (0..TaskState::ALL.len()).prop_map(|i| TaskState::ALL[i])
}

fn syscall() -> impl Strategy<Value = Option<Syscall>> {
    (-1i64..500).prop_map(Syscall::new)
}

fn owner() -> impl Strategy<Value = (Option<TaskId>, OwnerQuality)> {
    (task(), 0..4).prop_map(|(task, quality)| match quality {
        0 => (None, OwnerQuality::None),
        1 => (Some(task), OwnerQuality::Owner),
        2 => (Some(task), OwnerQuality::Reader),
        _ => (Some(task), OwnerQuality::LastHolder),
    })
}

fn waker() -> impl Strategy<Value = Waker> {
    prop_oneof![task().prop_map(Waker::Task), Just(Waker::Interrupt), Just(Waker::Unknown)]
}

fn kind() -> impl Strategy<Value = Kind> {
    let id = |i: u32| StrId::from_index(i);
    prop_oneof![
        Just(Kind::WindowStart),
        Just(Kind::WindowEnd),
        (task(), 0..3, state(), any::<bool>(), syscall(), proptest::option::of(lock())).prop_map(
            |(task, which, state, iowait, syscall, lock)| Kind::Seed {
                task,
                lock,
                state: match which {
                    0 => SeedState::Running,
                    1 => SeedState::Runnable,
                    _ => SeedState::Blocked { state, iowait, syscall },
                },
            }
        ),
        (task(), task(), state(), any::<bool>(), any::<bool>(), syscall()).prop_map(
            |(prev, next, prev_state, preempt, iowait, syscall)| Kind::Switch {
                prev,
                next,
                prev_state,
                preempt,
                iowait,
                syscall
            }
        ),
        (waker(), task(), any::<u16>(), stack()).prop_map(|(waker, wakee, target, stack)| {
            Kind::Waking { waker, wakee, target: Cpu(target), stack }
        }),
        (task(), lock(), 0u8..64, owner()).prop_map(|(task, lock, flags, (owner, quality))| {
            Kind::ContentionBegin { task, lock, flags: ContentionFlags(flags), owner, quality }
        }),
        (task(), lock(), any::<i32>()).prop_map(|(task, lock, ret)| Kind::ContentionEnd { task, lock, ret }),
        (task(), lock()).prop_map(|(task, lock)| Kind::BlockedOn { task, lock }),
        (task(), lock(), proptest::option::of(any::<u64>()), any::<u64>()).prop_map(
            |(task, device, issued, done)| Kind::IoDone {
                task,
                device,
                issued: issued.map(TimeNs),
                done: TimeNs(done)
            }
        ),
        (lock(), owner()).prop_map(|(lock, (owner, quality))| Kind::Owner { lock, owner, quality }),
        (task(), lock()).prop_map(|(task, lock)| Kind::Acquired { task, lock }),
        (task(), lock()).prop_map(|(task, lock)| Kind::Released { task, lock }),
        (task(), proptest::option::of(lock()), stack(), stack(), any::<u64>()).prop_map(
            |(task, lock, kernel, user, weight_ns)| Kind::WaitStack { task, lock, kernel, user, weight_ns }
        ),
        (task(), 0..3, stack(), stack(), any::<u64>()).prop_map(|(task, mode, kernel, user, weight_ns)| {
            let mode = match mode {
                0 => SampleMode::User,
                1 => SampleMode::Kernel,
                _ => SampleMode::Interrupt,
            };
            Kind::Sample { task, mode, kernel, user, weight_ns }
        }),
        (task(), task()).prop_map(|(parent, child)| Kind::Fork { parent, child }),
        (task(), proptest::option::of((0u32..4).prop_map(id)))
            .prop_map(|(task, name)| Kind::Exec { task, name }),
        (task(), any::<i32>()).prop_map(|(task, status)| Kind::Exit { task, status }),
        (task(), 0u32..4).prop_map(|(task, f)| Kind::WorkStart { task, function: SymbolId::from_index(f) }),
        task().prop_map(|task| Kind::WorkEnd { task }),
        any::<u16>().prop_map(|number| Kind::IrqEnter { irq: IrqKind::Soft, number }),
        any::<u16>().prop_map(|number| Kind::IrqExit { irq: IrqKind::Vector, number }),
        (any::<u32>(), any::<u64>()).prop_map(|(count, throttled_ns)| Kind::Throttle {
            cgroup: CgroupId::from_index(0),
            count,
            throttled_ns
        }),
        (task(), any::<bool>()).prop_map(|(task, known)| Kind::HeldBack {
            task,
            cgroup: known.then(|| CgroupId::from_index(0))
        }),
        (any::<u32>(), any::<u64>()).prop_map(|(count, from)| Kind::Lost { count, from: TimeNs(from) }),
    ]
}

/// Steps in time and what happens then.
pub fn steps() -> impl Strategy<Value = Vec<(u64, u16, Kind)>> {
    proptest::collection::vec((0u64..1 << 40, 0u16..300, kind()), 0..200)
}

/// A builder with those events pending.
pub fn builder(steps: &[(u64, u16, Kind)]) -> Builder {
    let mut b = tables();
    add(&mut b, steps, 0);
    b
}

/// Adds events, beginning at a time; gives the time of the last one.
pub fn add(b: &mut Builder, steps: &[(u64, u16, Kind)], mut now: u64) -> u64 {
    for (delta, cpu, kind) in steps {
        now += delta;
        b.event(TimeNs(now), Cpu(*cpu), *kind);
    }
    now
}
