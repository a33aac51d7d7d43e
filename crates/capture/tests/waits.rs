//! Programs whose waits are known, against their own clocks.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use common::*;
use trace::{Kind, LockKind, OwnerQuality, SeedState, TaskState, Waker};

const MS: Duration = Duration::from_millis(1);

#[test]
fn sleeps_are_as_long_as_the_sleeper_says() {
    undisturbed(|| {
        let (trace, stamps) = captured(options(), || {
            let sleeper =
                thread::spawn(|| (1..=10u32).map(|i| stamped(|| thread::sleep(MS * i))).collect::<Vec<_>>());
            sleeper.join().expect("sleeps")
        });
        for stamp in &stamps {
            check_time(&trace, stamp, "a sleep")?;
            let task = task_at(&trace, stamp.tid, stamp.from);
            let (off, waker) = waker_of_longest(&trace, task, stamp.from, stamp.until);
            assert_eq!(off.state, TaskState::Interruptible);
            assert_eq!(waker, Waker::Interrupt, "a timer wakes the sleeper, no task");
        }
        Ok(())
    });
}

#[test]
fn a_reader_of_a_pipe_is_woken_by_the_writer() {
    undisturbed(|| {
        let (trace, (stamp, writer)) = captured(options(), || {
            let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
            let writing = thread::spawn(move || {
                thread::sleep(MS * 15);
                writer.write_all(b"x").expect("somebody reads");
                // closing would wake, too
                thread::sleep(MS * 5);
                tid()
            });
            let reading =
                thread::spawn(move || stamped(|| assert_eq!(reader.read(&mut [0]).expect("a byte"), 1)));
            (reading.join().expect("reads"), writing.join().expect("writes"))
        });
        check_time(&trace, &stamp, "a read")?;
        let task = task_at(&trace, stamp.tid, stamp.from);
        let (off, waker) = waker_of_longest(&trace, task, stamp.from, stamp.until);
        assert_eq!(waker, Waker::Task(task_at(&trace, writer, off.until)));
        let stack = wait_stack(&trace, task, off.until);
        assert!(stack.iter().any(|f| f.contains("pipe_read")), "{stack:?}");
        Ok(())
    });
}

/// A chain: the first thread waits with mutex 0; each further one takes its own and then waits for the one before.
#[test]
fn a_chain_of_three_locks_is_seen_link_by_link() {
    undisturbed(|| {
        let (trace, (stamps, addresses)) = captured(options(), || {
            let locks: Arc<Vec<Mutex<()>>> = Arc::new((0..3).map(|_| Mutex::new(())).collect());
            let addresses: Vec<u64> = locks.iter().map(|l| std::ptr::from_ref(l) as u64).collect();
            let (release, released) = mpsc::channel::<()>();
            let mut released = Some(released);
            let mut threads = Vec::new();
            for i in 0..4usize {
                let locks = locks.clone();
                let (ready, waits) = mpsc::channel();
                let released = released.take();
                threads.push(thread::spawn(move || {
                    let _own = locks.get(i).map(|l| l.lock().expect("nobody panics"));
                    ready.send(tid()).expect("the test waits");
                    match (i.checked_sub(1), released) {
                        (Some(before), _) => stamped(|| drop(locks[before].lock().expect("nobody panics"))),
                        (None, Some(released)) => stamped(|| released.recv().expect("the test releases")),
                        (None, None) => unreachable!("the first one gets it"),
                    }
                }));
                let tid = waits.recv().expect("the thread lives");
                // the next link only when this one sleeps
                while !std::fs::read_to_string(format!("/proc/self/task/{tid}/stat"))
                    .expect("it lives")
                    .contains(") S ")
                {
                    thread::sleep(MS);
                }
            }
            thread::sleep(MS * 30);
            release.send(()).expect("the first one waits");
            (threads.into_iter().map(|t| t.join().expect("ends")).collect::<Vec<_>>(), addresses)
        });
        let mut ends = Vec::new();
        for (i, stamp) in stamps.iter().enumerate().skip(1) {
            check_time(&trace, stamp, "a wait for a mutex")?;
            let task = task_at(&trace, stamp.tid, stamp.from);
            let (off, waker) = waker_of_longest(&trace, task, stamp.from, stamp.until);
            let before = task_at(&trace, stamps[i - 1].tid, stamp.from);
            assert_eq!(waker, Waker::Task(before), "link {i}");
            let lock = between(&trace, off.from, off.until).find_map(|e| match e.kind {
                Kind::BlockedOn { task: t, lock } if t == task => trace.tables().lock(lock),
                _ => None,
            });
            let lock = lock.expect("what it waits for is known");
            assert_eq!(lock.kind, LockKind::Futex);
            // the futex word is the first in a mutex
            assert!((addresses[i - 1]..addresses[i - 1] + 8).contains(&lock.address), "link {i}: {lock:x?}");
            assert_eq!(lock.process, Some(task_at(&trace, std::process::id(), stamp.from)));
            ends.push(off.until);
        }
        assert!(ends.is_sorted(), "each link gives way to the next: {ends:?}");
        Ok(())
    });
}

#[test]
fn a_file_lock_is_waited_for_and_its_holder_wakes() {
    undisturbed(|| {
        let (trace, (stamp, holder)) = captured(options(), || {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("lock");
            let lock = |path: &std::path::Path| File::create(path).expect("a file");
            let gate = Arc::new(Barrier::new(2));
            let holding = thread::spawn({
                let (file, gate) = (lock(&path), gate.clone());
                move || {
                    file.lock().expect("free");
                    gate.wait();
                    thread::sleep(MS * 20);
                    file.unlock().expect("held");
                    thread::sleep(MS * 5);
                    tid()
                }
            });
            let file = lock(&path);
            gate.wait();
            let stamp = stamped(|| file.lock().expect("freed in the end"));
            (stamp, holding.join().expect("holds"))
        });
        check_time(&trace, &stamp, "a file lock")?;
        let task = task_at(&trace, stamp.tid, stamp.from);
        let (off, waker) = waker_of_longest(&trace, task, stamp.from, stamp.until);
        assert_eq!(waker, Waker::Task(task_at(&trace, holder, off.until)));
        let stack = wait_stack(&trace, task, off.until);
        assert!(
            stack.iter().any(|f| f.contains("flock_lock_inode_wait") || f.contains("flock")),
            "{stack:?}"
        );
        Ok(())
    });
}

#[test]
fn syncing_a_file_waits_for_the_device() {
    undisturbed(|| {
        let (trace, stamps) = captured(options(), || {
            // on a real file system: memory has nothing to sync
            let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
            let mut file = File::create(dir.path().join("file")).expect("a file");
            let mut sync = || {
                file.write_all(&vec![7; 1 << 20]).expect("room");
                stamped(|| file.sync_all().expect("synced"))
            };
            (0..5).map(|_| sync()).collect::<Vec<_>>()
        });
        for stamp in &stamps {
            check_time(&trace, stamp, "fsync")?;
            let task = task_at(&trace, stamp.tid, stamp.from);
            let waits = offs(&trace, task);
            let mut waits = waits.iter().filter(|o| o.from >= stamp.from && o.until <= stamp.until);
            assert!(waits.any(|o| o.state == TaskState::Uninterruptible && !o.preempt), "{stamp:?}");
            let (off, waker) = waker_of_longest(&trace, task, stamp.from, stamp.until);
            assert_ne!(waker, Waker::Task(task));
            let stack = wait_stack(&trace, task, off.until);
            assert!(stack.iter().any(|f| f.contains("fsync")), "{stack:?}");
        }
        Ok(())
    });
}

#[test]
fn the_mmap_lock_has_a_name_a_process_and_an_owner() {
    undisturbed(|| {
        const SIZE: usize = 512 << 20;
        let (trace, (holder, calls)) = captured(options(), || {
            use rustix::mm;
            // SAFETY: a new anonymous mapping.
            let memory = unsafe {
                mm::mmap_anonymous(
                    std::ptr::null_mut(),
                    SIZE,
                    mm::ProtFlags::READ | mm::ProtFlags::WRITE,
                    mm::MapFlags::PRIVATE | mm::MapFlags::POPULATE,
                )
            }
            .expect("memory") as usize;
            let gate = Arc::new(Barrier::new(2));
            let holding = thread::spawn({
                let gate = gate.clone();
                move || {
                    gate.wait();
                    for i in 0..8 {
                        let flags =
                            if i % 2 == 0 { mm::MprotectFlags::READ } else { mm::MprotectFlags::WRITE };
                        // SAFETY: the mapping above, which nobody uses.
                        unsafe { mm::mprotect(memory as *mut _, SIZE, flags) }.expect("our mapping");
                    }
                    tid()
                }
            });
            let waiting = thread::spawn(move || {
                gate.wait();
                let end = now() + 100_000_000;
                let mut calls = Vec::new();
                while now() < end {
                    let map = || {
                        // SAFETY: a new mapping that is removed at once.
                        unsafe {
                            let page = mm::mmap_anonymous(
                                std::ptr::null_mut(),
                                4096,
                                mm::ProtFlags::READ,
                                mm::MapFlags::PRIVATE,
                            )
                            .expect("a page");
                            mm::munmap(page, 4096).expect("our page");
                        }
                    };
                    calls.push(stamped(map));
                }
                calls
            });
            let ids = (holding.join().expect("holds"), waiting.join().expect("waits"));
            // SAFETY: nobody uses it any more.
            unsafe { mm::munmap(memory as *mut _, SIZE) }.expect("our mapping");
            ids
        });
        let process = std::process::id();
        let waiter = calls[0].tid;
        let mut owned = 0;
        let mut seen = 0;
        for event in trace.events() {
            let Kind::ContentionBegin { task, lock, owner, quality, .. } = event.kind else { continue };
            let Some(lock) = trace.tables().lock(lock) else { continue };
            let of_process = |t| trace.tables().task(t).is_some_and(|t| t.tgid == process);
            if !of_process(task) || lock.class.is_none_or(|c| trace.tables().str(c) != "mm_struct.mmap_lock")
            {
                continue;
            }
            seen += 1;
            assert_eq!(lock.kind, LockKind::Rwsem);
            assert!(lock.process.is_some_and(of_process), "{lock:?}");
            let by = owner.and_then(|o| trace.tables().task(o)).map(|t| t.tid);
            if quality == OwnerQuality::Owner && [Some(holder), Some(waiter)].contains(&by) {
                owned += 1;
            }
        }
        assert!(seen > 0, "nobody waited for the mmap_lock");
        assert!(owned > 0, "its owner was never seen ({seen} waits)");
        // the waits of the thread that maps are in its calls, and as long as it says
        let task = task_at(&trace, waiter, calls[0].from);
        let begins = trace.events().iter().filter_map(|e| match e.kind {
            Kind::ContentionBegin { task: t, lock, .. } if t == task => {
                let class = trace.tables().lock(lock).and_then(|l| l.class);
                class.is_some_and(|c| trace.tables().str(c) == "mm_struct.mmap_lock").then_some(e.time.0)
            }
            _ => None,
        });
        let mut waited = 0;
        for begin in begins {
            // it maps memory for the list of its calls, too
            let Some(call) = calls.iter().find(|c| c.from <= begin && begin <= c.until) else { continue };
            if off_within(&trace, task, call.from, call.until).0 > 0 {
                check_time(&trace, call, "a call that waits for the mmap_lock")?;
                waited += 1;
            }
        }
        println!("{waited} calls of {} slept for it", calls.len());
        assert!(waited > 0, "none of {} calls slept for it", calls.len());
        Ok(())
    });
}

#[test]
fn a_preempted_holder_is_runnable_and_not_blocked() {
    undisturbed(|| {
        let (trace, (holder, hog, waiter, address, stolen)) = captured(options(), || {
            let before = stolen();
            let lock = Arc::new(Mutex::new(()));
            let gate = Arc::new(Barrier::new(3));
            let pin = || {
                let mut set = rustix::thread::CpuSet::new();
                set.set(0);
                rustix::thread::sched_setaffinity(None, &set).expect("CPU 0 is there");
            };
            let spin = |ms: u64| {
                let end = cpu() + ms * 1_000_000;
                while cpu() < end {
                    std::hint::spin_loop();
                }
            };
            let holding = thread::spawn({
                let (lock, gate) = (lock.clone(), gate.clone());
                move || {
                    pin();
                    let held = lock.lock().expect("nobody panics");
                    gate.wait();
                    let stamp = stamped(|| spin(40));
                    drop(held);
                    stamp
                }
            });
            let hog = thread::spawn({
                let gate = gate.clone();
                move || {
                    pin();
                    gate.wait();
                    spin(40);
                    tid()
                }
            });
            gate.wait();
            let waiter = stamped(|| drop(lock.lock().expect("nobody panics")));
            let hog = hog.join().expect("ends");
            let holder = holding.join().expect("ends");
            let address = std::ptr::from_ref(&*lock) as u64;
            (holder, hog, waiter, address, stolen() - before + 10_000_000)
        });
        check_time_less(&trace, &holder, stolen, "a preempted holder")?;
        check_time(&trace, &waiter, "a waiter for a preempted holder")?;
        let task = task_at(&trace, holder.tid, holder.from);
        let preempted: Vec<Off> = offs(&trace, task)
            .into_iter()
            .filter(|o| o.from >= holder.from && o.until <= holder.until)
            .filter(|o| !o.blocked())
            .collect();
        assert!(!preempted.is_empty(), "two spinners on one CPU take turns");
        // the hog runs meanwhile
        let hog = task_at(&trace, hog, holder.from);
        let taken = preempted.iter().any(|o| {
            between(&trace, o.from, o.until)
                .any(|e| matches!(e.kind, Kind::Switch { next, .. } if next == hog))
        });
        assert!(taken, "{preempted:?}");
        // who waits sleeps for the holder's lock through all of it, and is woken by the holder once that is done
        let waiting = task_at(&trace, waiter.tid, waiter.from);
        let (off, waker) = waker_of_longest(&trace, waiting, waiter.from, waiter.until);
        assert_eq!(waker, Waker::Task(task));
        assert!(off.until >= holder.until, "{off:?} {holder:?}");
        let lock = between(&trace, off.from, off.until).find_map(|e| match e.kind {
            Kind::BlockedOn { task: t, lock } if t == waiting => trace.tables().lock(lock),
            _ => None,
        });
        let lock = lock.expect("what it waits for is known");
        assert_eq!(lock.kind, LockKind::Futex);
        assert!((address..address + 8).contains(&lock.address), "{lock:x?} {address:x}");
        Ok(())
    });
}

#[test]
fn a_stopped_process_is_stopped_for_as_long_as_it_was() {
    undisturbed(|| {
        use rustix::process::{Pid, Signal, kill_process};
        let (trace, (pid, from, until)) = captured(options(), || {
            let mut child = Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .expect("a shell");
            let pid = Pid::from_child(&child);
            thread::sleep(MS * 20);
            kill_process(pid, Signal::STOP).expect("our child");
            let stopped = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED);
            assert!(stopped.expect("our child").is_some_and(|(_, s)| s.stopped()));
            let from = now();
            thread::sleep(MS * 30);
            let until = now();
            kill_process(pid, Signal::CONT).expect("our child");
            thread::sleep(MS * 20);
            child.kill().expect("our child");
            let status = child.wait().expect("our child");
            assert_eq!(status.signal(), Some(9));
            (child.id(), from, until)
        });
        let task = task_at(&trace, pid, from);
        let stops: Vec<Off> =
            offs(&trace, task).into_iter().filter(|o| o.state == TaskState::Stopped && !o.preempt).collect();
        assert_eq!(stops.len(), 1, "{stops:?}");
        // it tells its parent a moment before it leaves its CPU
        let stop = stops[0];
        assert!(stop.from <= from + 1_000_000 && stop.until >= until, "{stop:?} {from} {until}");
        assert!(stop.ns() < (until - from) + 200_000_000, "it goes on soon after the signal");
        let row = trace.tables().task(task).expect("just found");
        assert_eq!(row.exit.map(|e| e.status), Some(9), "killed by signal 9");
        Ok(())
    });
}

#[test]
fn a_sleep_longer_than_the_window_is_cut_at_both_ends() {
    undisturbed(|| {
        let mut child = Command::new("sleep").arg("30").spawn().expect("a sleeper");
        thread::sleep(MS * 100);
        let scope = capture::Scope::Processes(vec![child.id()]);
        let (trace, report, ()) =
            captured_with_report(capture::Options { scope, ..options() }, || thread::sleep(MS * 80));
        child.kill().expect("our child");
        child.wait().expect("our child");
        let task = task_at(&trace, child.id(), now());
        assert!(trace.tables().task(task).is_some_and(|t| t.in_scope));
        let seeds: Vec<_> = trace
            .events()
            .iter()
            .filter_map(|e| match e.kind {
                Kind::Seed { task: t, state, .. } if t == task => Some((e.time.0, state)),
                _ => None,
            })
            .collect();
        assert!(
            matches!(
                seeds[..],
                [(_, SeedState::Blocked { state: TaskState::Interruptible, syscall: Some(_), .. })]
            ),
            "{seeds:?}"
        );
        assert!(seeds[0].0 >= report.from.0 && seeds[0].0 < report.from.0 + 50_000_000);
        // it did nothing, and nothing is made up
        assert!(offs(&trace, task).is_empty());
        let first = trace.events().first().expect("a window");
        let last = trace.events().last().expect("a window");
        assert_eq!((first.kind, first.time), (Kind::WindowStart, report.from));
        assert_eq!((last.kind, last.time), (Kind::WindowEnd, report.until));
        Ok(())
    });
}

#[test]
fn nothing_is_made_up_of_a_scope_that_does_nothing() {
    undisturbed(|| {
        let mut child = Command::new("sleep").arg("30").spawn().expect("a sleeper");
        thread::sleep(MS * 100);
        let scope = capture::Scope::Processes(vec![child.id()]);
        let (trace, ()) = captured(capture::Options { scope, ..options() }, || thread::sleep(MS * 100));
        child.kill().expect("our child");
        child.wait().expect("our child");
        let in_scope = |t| trace.tables().task(t).is_some_and(|t| t.in_scope);
        for event in trace.events() {
            let task = match event.kind {
                Kind::Switch { prev, next, .. } => [Some(prev), Some(next)],
                Kind::WaitStack { task, .. }
                | Kind::Sample { task, .. }
                | Kind::ContentionBegin { task, .. } => [Some(task), None],
                _ => [None, None],
            };
            for task in task.into_iter().flatten() {
                assert!(!in_scope(task), "{event:?}");
            }
        }
        Ok(())
    });
}

/// Only some of many short waits have stacks; what these stand for has to be what all of them waited.
#[test]
fn sampled_stacks_stand_for_all_waits_without_bias() {
    undisturbed(|| {
        let exact = capture::Options { stack_shift: 18, ..options() };
        let (trace, stamp) = captured(exact, || {
            let sleeper = || stamped(|| (0..4000).for_each(|_| thread::sleep(Duration::from_micros(1))));
            thread::spawn(sleeper).join().expect("sleeps")
        });
        let task = task_at(&trace, stamp.tid, stamp.from);
        let offs = offs(&trace, task);
        let all: u64 = offs.iter().map(Off::ns).sum();
        let (mut stacks, mut stood_for) = (0u64, 0u64);
        for event in trace.events() {
            if let Kind::WaitStack { task: t, weight_ns, lock: None, .. } = event.kind
                && t == task
            {
                stacks += 1;
                stood_for += weight_ns;
            }
        }
        println!(
            "{} waits, {stacks} stacks, {all} ns, {stood_for} ns, {} ns by its clocks",
            offs.len(),
            stamp.off
        );
        assert!(stacks > 50 && stacks < offs.len() as u64 * 3 / 4, "{stacks} of {}", offs.len());
        // each stack stands for at most 2^18 ns, or for a longer wait of its own: five standard deviations of that sampling
        let allowed = (5.0 * (stacks as f64).sqrt() * f64::from(1 << 18)) as u64;
        assert!(stood_for.abs_diff(all) <= allowed, "{stood_for} of {all} ns; {allowed} are allowed");
        Ok(())
    });
}

/// A page that is not there: who touches it waits until this is dropped (userfaultfd(2)).
struct MissingPage {
    page: *mut libc::c_void,
    _handler: OwnedFd,
}

// SAFETY: the page is only passed to system calls; nobody here dereferences it.
unsafe impl Send for MissingPage {}
// SAFETY: as above.
unsafe impl Sync for MissingPage {}

impl MissingPage {
    fn new() -> MissingPage {
        // linux/userfaultfd.h
        const API: u64 = 0xAA;
        const MISSING: u64 = 1;
        #[repr(C)]
        struct Hello {
            api: u64,
            features: u64,
            ioctls: u64,
        }
        #[repr(C)]
        struct Register {
            start: u64,
            bytes: u64,
            mode: u64,
            ioctls: u64,
        }
        let (api_request, register_request) = (0xC018_AA3F, 0xC020_AA00);
        // SAFETY: a new descriptor and a new mapping; both structures are as the two requests want them.
        unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            assert!(fd >= 0, "userfaultfd: {}", std::io::Error::last_os_error());
            let handler = OwnedFd::from_raw_fd(fd as i32);
            let mut hello = Hello { api: API, features: 0, ioctls: 0 };
            assert_eq!(libc::ioctl(fd as i32, api_request, &raw mut hello), 0, "UFFDIO_API");
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page =
                libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            let mut register = Register { start: page as u64, bytes: 4096, mode: MISSING, ioctls: 0 };
            assert_eq!(libc::ioctl(fd as i32, register_request, &raw mut register), 0, "UFFDIO_REGISTER");
            MissingPage { page, _handler: handler }
        }
    }
}

/// Waits until one of this process's threads sleeps in that system call.
fn sleeps_in(tid: u32, number: libc::c_long) {
    let start = format!("{number} ");
    let path = format!("/proc/self/task/{tid}/syscall");
    while !std::fs::read_to_string(&path).expect("the thread lives").starts_with(&start) {
        thread::sleep(MS);
    }
    // let it get where it sleeps
    thread::sleep(MS * 20);
}

/// One thread holds a file's lock while it waits for a page; another waits for the lock: both before the capture begins.
#[test]
fn a_lock_waited_for_before_the_capture_begins_is_named_and_its_wait_has_a_stack() {
    undisturbed(|| {
        // on a file system over a disk: tmpfs writes without the lock in some kernels
        let dir = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let file = Arc::new(File::create(dir.path().join("file")).expect("a file"));
        let missing = Arc::new(MissingPage::new());
        let (send, tids) = mpsc::channel();
        let holding = thread::spawn({
            let (file, missing, send) = (file.clone(), missing.clone(), send.clone());
            move || {
                send.send(tid()).expect("the test waits");
                let page = missing.page;
                drop(missing);
                // SAFETY: a mapped page; it is zero when it comes.
                let wrote = unsafe { libc::pwrite(file.as_raw_fd(), page, 4096, 0) };
                assert_eq!(wrote, 4096, "{}", std::io::Error::last_os_error());
            }
        });
        let holder = tids.recv().expect("it starts");
        sleeps_in(holder, libc::SYS_pwrite64);
        let waiting = thread::spawn({
            let file = file.clone();
            move || {
                send.send(tid()).expect("the test waits");
                // the kernel tells of uninterruptible waits only: set_len, say, can be killed while it waits
                assert_eq!(file.write_at(b"x", 0).expect("room"), 1);
                now()
            }
        });
        let waiter = tids.recv().expect("it starts");
        sleeps_in(waiter, libc::SYS_pwrite64);
        let mut missing = Some(missing);
        let (trace, (released, got)) = captured(options(), || {
            thread::sleep(MS * 30);
            let released = now();
            // the last one: the handler closes, and the page comes
            drop(missing.take());
            holding.join().expect("writes");
            (released, waiting.join().expect("writes"))
        });
        let task = task_at(&trace, waiter, released);
        let lock = trace.events().iter().find_map(|e| match e.kind {
            Kind::Seed { task: t, state: SeedState::Blocked { .. }, lock } if t == task => lock,
            _ => None,
        });
        let Some(lock) = lock else {
            let blocker = std::fs::read("/sys/kernel/btf/vmlinux")
                .expect("BTF")
                .windows(9)
                .any(|w| w == b"\0blocker\0".as_slice());
            assert!(!blocker, "what it waits for is not known although this kernel tells");
            return Ok(());
        };
        let lock = trace.tables().lock(lock).expect("a lock of the trace");
        assert_eq!(lock.kind, LockKind::Rwsem);
        assert_eq!(lock.class.map(|c| trace.tables().str(c)), Some("inode.i_rwsem"));
        let waker = between(&trace, released, got).find_map(|e| match e.kind {
            Kind::Waking { waker, wakee, .. } if wakee == task => Some(waker),
            _ => None,
        });
        assert_eq!(waker, Some(Waker::Task(task_at(&trace, holder, released))), "who held it wakes");
        let stack = wait_stack(&trace, task, got);
        assert!(stack.iter().any(|f| f.contains("write")), "{stack:?}");
        Ok(())
    });
}
