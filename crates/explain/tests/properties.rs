//! What holds for every trace, sensible or not: shares add up, times are conserved, the order of equal stamps does not matter.

#![allow(clippy::unwrap_used)]

use explain::{Engine, Explanation, Root, RootKind, Scope, explain, summary};
use proptest::prelude::*;
use trace::*;

const CPUS: u16 = 3;
const TASKS: u32 = 6;

/// A machine that does random but possible things: the events are what a capture would see of it.
struct Machine {
    builder: Builder,
    now: u64,
    tasks: Vec<TaskId>,
    /// What runs on each CPU.
    running: Vec<Option<usize>>,
    /// What each task does.
    doing: Vec<Doing>,
    /// Who has each lock.
    owners: Vec<Option<usize>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    Running(usize),
    Runnable,
    /// Waits for a lock, or for something else.
    Blocked(Option<usize>),
    /// Woken out of a lock wait.
    Woken(usize),
}

impl Machine {
    fn new() -> Machine {
        let cpus: Vec<Cpu> = (0..CPUS).map(Cpu).collect();
        let mut b = Builder::new(Meta { online: cpus.clone(), allowed: cpus, ..Meta::default() });
        let idle: Vec<_> = (0..CPUS).map(|c| b.idle_task(Cpu(c))).collect();
        assert_eq!(idle.len(), usize::from(CPUS));
        let tasks = (0..TASKS)
            .map(|i| {
                let name = b.str(&format!("t{i}"));
                let names = vec![Name { from: TimeNs(0), name }];
                b.add_task(Task { tid: 10 + i, tgid: 10 + i, in_scope: i < 4, names, ..Task::default() })
            })
            .collect();
        for (kind, class) in [
            (LockKind::Mutex, "mutex"),
            (LockKind::Semaphore, "semaphore"),
            (LockKind::Futex, "futex"),
            (LockKind::Futex, "condition"),
            (LockKind::Io, "writes"),
        ] {
            let class = b.str(class);
            b.add_lock(Lock { kind, class: Some(class), ..Lock::default() });
        }
        b.event(TimeNs(0), Cpu(0), Kind::WindowStart);
        let mut machine = Machine {
            builder: b,
            now: 0,
            tasks,
            running: vec![None; usize::from(CPUS)],
            doing: vec![Doing::Runnable; TASKS as usize],
            owners: vec![None; 2],
        };
        for i in 0..TASKS as usize {
            let (cpu, state) = if i < 2 { (i, SeedState::Running) } else { (0, SeedState::Runnable) };
            if i < 2 {
                machine.running[i] = Some(i);
                machine.doing[i] = Doing::Running(i);
            }
            let task = machine.tasks[i];
            machine.event(cpu, Kind::Seed { task, state, lock: None });
        }
        machine
    }

    fn event(&mut self, cpu: usize, kind: Kind) {
        self.builder.event(TimeNs(self.now), Cpu(cpu as u16), kind);
    }

    fn lock(&self, lock: usize) -> LockId {
        LockId::from_index(lock as u32)
    }

    /// Takes the task off a CPU and puts a runnable one there.
    fn switch(&mut self, cpu: usize, state: TaskState, syscall: i64) {
        let next = (0..TASKS as usize).find(|t| matches!(self.doing[*t], Doing::Runnable | Doing::Woken(_)));
        let idle = self.builder.idle_task(Cpu(cpu as u16));
        let prev = self.running[cpu].map_or(idle, |t| self.tasks[t]);
        let to = next.map_or(idle, |t| self.tasks[t]);
        if prev == to {
            if let Some(task) = next {
                self.doing[task] = Doing::Running(cpu);
            }
            return;
        }
        let syscall = Syscall::new(syscall);
        let kind = Kind::Switch { prev, next: to, prev_state: state, preempt: false, iowait: false, syscall };
        self.event(cpu, kind);
        self.running[cpu] = next;
        if let Some(next) = next {
            let before = self.doing[next];
            self.doing[next] = Doing::Running(cpu);
            if let Doing::Woken(lock) = before {
                self.now += 1;
                let (task, lock) = (self.tasks[next], self.lock(lock));
                self.event(cpu, Kind::ContentionEnd { task, lock, ret: 0 });
            }
        }
    }

    fn step(&mut self, what: u8, who: usize, cpu: usize, pause: u64) {
        self.now += 1 + pause;
        let running = self.running[cpu];
        match (what, running) {
            // go to sleep: a timer, a pipe, the disk, wait4, a futex
            (0, Some(task)) => {
                let call = [35, 0, 74, 61, 202, 202][who % 6];
                let state = if call == 74 { TaskState::Uninterruptible } else { TaskState::Interruptible };
                self.doing[task] = Doing::Blocked(None);
                if call == 202 && !pause.is_multiple_of(3) {
                    let object = Kind::BlockedOn { task: self.tasks[task], lock: self.lock(who % 6 - 2) };
                    self.event(cpu, object);
                }
                self.switch(cpu, state, call);
            }
            // be preempted, perhaps because a quota is used up
            (1, Some(task)) => {
                self.doing[task] = Doing::Runnable;
                self.switch(cpu, TaskState::Running, -1);
                if who.is_multiple_of(3) {
                    let task = self.tasks[task];
                    self.event(cpu, Kind::HeldBack { task, cgroup: None });
                }
            }
            // take a lock, or wait for it
            (2, Some(task)) => {
                let lock = who % 2;
                match self.owners[lock] {
                    None => self.owners[lock] = Some(task),
                    Some(owner) if owner != task => {
                        let (waiter, id) = (self.tasks[task], self.lock(lock));
                        let (owner, quality) = match lock {
                            0 => (Some(self.tasks[owner]), OwnerQuality::Owner),
                            _ => (None, OwnerQuality::None),
                        };
                        let flags = ContentionFlags::default();
                        let kind = Kind::ContentionBegin { task: waiter, lock: id, flags, owner, quality };
                        self.event(cpu, kind);
                        self.now += 1;
                        self.doing[task] = Doing::Blocked(Some(lock));
                        self.switch(cpu, TaskState::Uninterruptible, 1);
                    }
                    Some(_) => {}
                }
            }
            // release what one has
            (3, Some(task)) => {
                for lock in 0..2 {
                    if self.owners[lock] == Some(task) {
                        let next = (0..TASKS as usize).find(|t| self.doing[*t] == Doing::Blocked(Some(lock)));
                        self.owners[lock] = next;
                        if let Some(next) = next {
                            self.wake(cpu, Waker::Task(self.tasks[task]), next);
                            self.doing[next] = Doing::Woken(lock);
                        }
                    }
                }
            }
            // wake somebody, as a task or as an interrupt
            (4, _) if self.doing[who] == Doing::Blocked(None) => {
                if !pause.is_multiple_of(3) {
                    // the completion of a request, of which is known since when the device had it
                    let (device, done) = (self.lock(4), TimeNs(self.now - pause / 4));
                    let issued = Some(TimeNs(done.0.saturating_sub(pause)));
                    self.event(cpu, Kind::IoDone { task: self.tasks[who], device, issued, done });
                }
                let waker = running.map_or(Waker::Interrupt, |t| Waker::Task(self.tasks[t]));
                self.wake(cpu, waker, who);
                self.doing[who] = Doing::Runnable;
            }
            (4, _) => {}
            // an idle CPU takes what is runnable
            (_, None) => self.switch(cpu, TaskState::Running, -1),
            _ => {}
        }
    }

    fn wake(&mut self, cpu: usize, waker: Waker, wakee: usize) {
        let (wakee, target) = (self.tasks[wakee], Cpu(cpu as u16));
        self.event(cpu, Kind::Waking { waker, wakee, target, stack: None });
    }

    fn finish(mut self) -> Trace {
        self.now += 5;
        self.event(0, Kind::WindowEnd);
        self.builder.into_trace()
    }
}

fn machine() -> impl Strategy<Value = Trace> {
    let step = (0u8..6, 0usize..TASKS as usize, 0usize..usize::from(CPUS), 0u64..50_000);
    proptest::collection::vec(step, 0..300).prop_map(|steps| {
        let mut machine = Machine::new();
        for (what, who, cpu, pause) in steps {
            machine.step(what, who, cpu, pause);
        }
        machine.finish()
    })
}

fn explained(trace: &Trace) -> Explanation {
    explain(&mut trace.source(), &Scope::default()).unwrap()
}

/// Whether somebody has it: nobody has a condition, for which tasks wait until others give the word.
fn is_held(root: &Root) -> bool {
    matches!(root.kind, RootKind::Lock(_)) && root.class != "condition"
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1.0 + 1e-6 * a.abs().max(b.abs())
}

/// What each CPU did, counted in the plainest way.
fn plain_idle(trace: &Trace) -> f64 {
    let mut idle = 0u64;
    for cpu in 0..CPUS {
        let mut busy = false;
        let mut last = TimeNs(0);
        for event in trace.events() {
            let time = event.time;
            match event.kind {
                Kind::Seed { state: SeedState::Running, .. } if event.cpu == Cpu(cpu) => busy = true,
                Kind::Switch { next, .. } if event.cpu == Cpu(cpu) => {
                    idle += if busy { 0 } else { time.since(last) };
                    last = time;
                    busy = !matches!(trace.tables().task(next).unwrap().kind, TaskKind::Idle(_));
                }
                Kind::WindowEnd => idle += if busy { 0 } else { time.since(last) },
                _ => {}
            }
        }
    }
    idle as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_shares_of_the_idle_time_add_up(trace in machine()) {
        let e = explained(&trace);
        let charged: f64 = e.roots.iter().map(|r| r.idle_ns).sum();
        let sum = charged + e.serial_ns() + e.nothing_to_run_ns;
        // a nanosecond a root is not shown
        prop_assert!((sum - e.budget.idle_ns).abs() < 20.0, "{sum} of {}\n{}", e.budget.idle_ns, summary(&e));
        prop_assert!(close(e.budget.idle_ns, plain_idle(&trace)), "{} {}", e.budget.idle_ns, plain_idle(&trace));
        for root in &e.roots {
            prop_assert!(root.idle_ns >= 0.0);
        }
        for serial in &e.serial {
            prop_assert!(serial.idle_ns >= 0.0);
        }
    }

    #[test]
    fn the_time_of_the_cpus_is_conserved(trace in machine()) {
        let e = explained(&trace);
        let b = &e.budget;
        let sum = b.idle_ns + b.scope_ns as f64 + b.others_ns as f64;
        prop_assert!(close(sum, e.capacity_ns()), "{sum} of {}\n{}", e.capacity_ns(), summary(&e));
        prop_assert!(close(b.unknown_ns, 0.0));
    }

    #[test]
    fn the_time_of_the_tasks_is_conserved(trace in machine()) {
        let e = explained(&trace);
        let t = e.times;
        let sum = t.running_ns + t.in_lock_on_cpu_ns + t.runnable_ns + t.lock_ns + t.io_ns + t.kernel_ns
            + t.futex_ns + t.peer_ns + t.idle_ns;
        // four tasks of the workload, from the beginning to the end
        prop_assert_eq!(sum, 4 * e.window_ns, "{}", summary(&e));
        prop_assert_eq!(t.running_ns + t.in_lock_on_cpu_ns, e.budget.scope_ns);
    }

    #[test]
    fn what_was_before_the_beginning_does_not_count(trace in machine(), part in 0.0f64..1.0) {
        let whole = explained(&trace);
        let from = TimeNs((whole.window_ns as f64 * part) as u64);
        let e = explain(&mut trace.source(), &Scope { from: Some(from), ..Scope::default() }).unwrap();
        prop_assert_eq!(e.window_ns, whole.window_ns - from.0);
        let (b, t) = (&e.budget, e.times);
        prop_assert!(close(b.idle_ns + (b.scope_ns + b.others_ns) as f64, e.capacity_ns()), "{}", summary(&e));
        let sum = t.running_ns + t.in_lock_on_cpu_ns + t.runnable_ns + t.lock_ns + t.io_ns + t.kernel_ns
            + t.futex_ns + t.peer_ns + t.idle_ns;
        prop_assert_eq!(sum, 4 * e.window_ns, "{}", summary(&e));
        let charged: f64 = e.roots.iter().map(|r| r.idle_ns).sum();
        let sum = charged + e.serial_ns() + e.nothing_to_run_ns;
        prop_assert!((sum - b.idle_ns).abs() < 20.0, "{sum} of {}\n{}", b.idle_ns, summary(&e));
        for root in e.roots.iter().filter(|r| is_held(r)) {
            prop_assert_eq!(root.split.total_ns(), root.wait_ns, "{:?}", root);
        }
    }

    #[test]
    fn what_is_left_out_is_shown_nowhere(trace in machine()) {
        // t4 is no task of the workload, but may hold what it waits for
        let scope = Scope { without: vec![14], ..Scope::default() };
        let e = explain(&mut trace.source(), &scope).unwrap();
        prop_assert!(e.roots.iter().flat_map(|r| &r.holders).all(|h| h.name != "t4"), "{}", summary(&e));
        let own = |node: &explain::ChainNode| matches!(node, explain::ChainNode::Tasks { name, .. } if name == "t4");
        prop_assert!(!e.chain.nodes.iter().any(own));
        // the times of waits stay what they are
        let whole = explained(&trace);
        prop_assert_eq!(e.times, whole.times);
        for (a, b) in e.roots.iter().zip(&whole.roots) {
            prop_assert_eq!((a.wait_ns, a.split), (b.wait_ns, b.split));
        }
    }

    #[test]
    fn the_parts_of_a_wait_are_the_wait(trace in machine()) {
        for root in explained(&trace).roots {
            if is_held(&root) {
                prop_assert_eq!(root.split.total_ns(), root.wait_ns, "{:?}", root);
            }
        }
    }

    #[test]
    fn the_order_of_equal_stamps_does_not_matter(trace in machine(), seed in any::<u64>()) {
        let expected = summary(&explained(&trace));
        // round the times so that many are equal, in the same way for both
        let coarse = |time: TimeNs| TimeNs(time.0 / 20_000 * 20_000);
        let mut events: Vec<Event> = trace.events().to_vec();
        for e in &mut events {
            e.time = coarse(e.time);
        }
        let mut shuffled = events.clone();
        let mut x = seed | 1;
        for chunk in shuffled.chunk_by_mut(|a, b| a.time == b.time) {
            for i in (1..chunk.len()).rev() {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                chunk.swap(i, (x >> 33) as usize % (i + 1));
            }
        }
        let run = |events: &[Event]| {
            let mut engine = Engine::new(Scope::default());
            engine.feed(trace.tables(), events);
            summary(&engine.finish(trace.tables()))
        };
        prop_assert_eq!(run(&events), run(&shuffled));
        // the pieces in which a trace comes do not matter either
        let mut engine = Engine::new(Scope::default());
        trace.events().chunks(7).for_each(|chunk| engine.feed(trace.tables(), chunk));
        prop_assert_eq!(summary(&engine.finish(trace.tables())), expected);
    }

    #[test]
    fn nonsense_does_not_panic(
        events in proptest::collection::vec((0u64..3, 0u16..4, 0u8..12, 0u32..12, 0u32..12, 0u32..4), 0..200)
    ) {
        let tables = Machine::new().builder;
        let mut now = 0;
        let events: Vec<Event> = events.into_iter().map(|(dt, cpu, what, a, b, lock)| {
            now += dt * 1000;
            let (task, other) = (TaskId::from_index(a), TaskId::from_index(b));
            let lock = LockId::from_index(lock);
            let kind = match what {
                0 => Kind::WindowStart,
                1 => Kind::WindowEnd,
                2 | 3 => Kind::Switch {
                    prev: task, next: other, prev_state: TaskState::ALL[b as usize % 9],
                    preempt: b == 1, iowait: b == 2, syscall: Syscall::new(i64::from(b) * 20),
                },
                4 => Kind::Waking { waker: Waker::Task(other), wakee: task, target: Cpu(cpu), stack: None },
                5 => Kind::ContentionBegin {
                    task, lock, flags: ContentionFlags(b as u8), owner: Some(other),
                    quality: OwnerQuality::Owner,
                },
                6 => Kind::ContentionEnd { task, lock, ret: -i32::from(b == 1) },
                7 => Kind::BlockedOn { task, lock },
                8 => Kind::Seed { task, state: SeedState::Running, lock: None },
                9 => Kind::Lost { count: 1, from: TimeNs(now / 2) },
                10 => Kind::Released { task, lock },
                _ => Kind::Exit { task, status: 1 },
            };
            Event { time: TimeNs(now), cpu: Cpu(cpu), kind }
        }).collect();
        let mut engine = Engine::new(Scope::default());
        engine.feed(tables.tables(), &events);
        let e = engine.finish(tables.tables());
        let charged: f64 = e.roots.iter().map(|r| r.idle_ns).sum();
        prop_assert!(charged + e.serial_ns() + e.nothing_to_run_ns <= e.budget.idle_ns + 20.0, "{}", summary(&e));
    }
}
