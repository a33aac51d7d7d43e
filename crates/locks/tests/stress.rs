//! Many threads on few CPUs, with signals, yields and time-outs at bad moments: nothing may get lost.

#![allow(clippy::unwrap_used)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use locks::pattern::{FutexSemaphore, Pattern, Policy, run};
use locks::{AdaptiveSemaphore, Counting, Mutex, RwSemaphore, Semaphore};

const THREADS: [usize; 3] = if cfg!(miri) { [2, 3, 3] } else { [2, 4, 24] };
const TURNS: u64 = if cfg!(miri) { 8 } else { 24_000 };

/// A number that loses increments if two threads make them at once.
struct Number(UnsafeCell<u64>);

// SAFETY: that accesses do not overlap is what the tests are about.
unsafe impl Sync for Number {}

impl Number {
    fn add_one(&self) {
        // SAFETY: exclusive, if the lock under test works.
        unsafe { *self.0.get() += 1 };
    }
}

/// A cheap source of bad moments.
struct Dice(u64);

impl Dice {
    fn one_in(&mut self, n: u64) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.is_multiple_of(n)
    }
}

/// Interrupts threads' system calls and spins.
#[cfg(not(miri))]
fn disturb(threads: &Mutex<Vec<i32>>, done: &AtomicBool) {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the action is valid, without SA_RESTART so that system calls are interrupted; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut());
    }
    while !done.load(Ordering::Relaxed) {
        for &thread in &*threads.lock() {
            // SAFETY: a thread that has ended makes the call fail.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1) };
        }
        thread::sleep(Duration::from_micros(300));
    }
}

/// Lets threads take turns; `turn` says whether it got the lock, and has to add one then.
fn counts_right(turn: impl Fn(&Number, &mut Dice) -> bool + Sync) {
    for count in THREADS {
        let number = Number(UnsafeCell::new(0));
        let (taken, running, done) =
            (AtomicU64::new(0), AtomicU64::new(count as u64), AtomicBool::new(false));
        let ids = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for nr in 0..count {
                let (number, taken, running, done, turn, ids) =
                    (&number, &taken, &running, &done, &turn, &ids);
                scope.spawn(move || {
                    // SAFETY: has no preconditions.
                    ids.lock().push(unsafe { libc::gettid() });
                    let mut dice = Dice(nr as u64 * 7919 + 1);
                    let got = (0..TURNS / count as u64).filter(|_| turn(number, &mut dice)).count();
                    taken.fetch_add(got as u64, Ordering::Relaxed);
                    if running.fetch_sub(1, Ordering::Relaxed) == 1 {
                        done.store(true, Ordering::Relaxed);
                    }
                });
            }
            #[cfg(not(miri))]
            disturb(&ids, &done);
        });
        assert_eq!(number.0.into_inner(), taken.into_inner());
    }
}

fn inside(number: &Number, dice: &mut Dice) {
    number.add_one();
    if dice.one_in(50) {
        thread::yield_now();
    }
    if dice.one_in(2000) {
        thread::sleep(Duration::from_micros(200));
    }
}

fn semaphore_counts_right(semaphore: &impl SyncCounting) {
    counts_right(|number, dice| {
        if dice.one_in(3) {
            let time = Duration::from_micros(if dice.one_in(2) { 0 } else { 60 });
            if !semaphore.acquire_timeout(time) {
                return false;
            }
        } else {
            semaphore.acquire();
        }
        inside(number, dice);
        semaphore.release();
        true
    });
    assert_eq!(semaphore.available(), 1);
}

trait SyncCounting: Counting + Sync {}
impl<S: Counting + Sync> SyncCounting for S {}

#[test]
fn the_semaphore_loses_nothing() {
    semaphore_counts_right(&Semaphore::new(1));
}

#[test]
fn the_adaptive_semaphore_loses_nothing() {
    semaphore_counts_right(&AdaptiveSemaphore::new(1));
}

#[test]
fn the_plain_futex_semaphore_loses_nothing() {
    semaphore_counts_right(&FutexSemaphore::new(1));
}

#[test]
fn the_mutex_loses_nothing() {
    let mutex = Mutex::new(());
    counts_right(|number, dice| {
        let guard = if dice.one_in(3) {
            let Some(guard) = mutex.lock_timeout(Duration::from_micros(60)) else { return false };
            guard
        } else {
            mutex.lock()
        };
        inside(number, dice);
        drop(guard);
        true
    });
    assert!(mutex.try_lock().is_some());
}

#[test]
fn the_read_write_semaphore_loses_nothing() {
    let lock = RwSemaphore::new((0u64, 0u64));
    counts_right(|number, dice| {
        let long = Duration::from_micros(60);
        if dice.one_in(2) {
            let guard = if dice.one_in(3) {
                let Some(guard) = lock.read_timeout(long) else { return false };
                guard
            } else {
                lock.read()
            };
            assert_eq!(guard.0, guard.1);
            return false;
        }
        let mut guard = if dice.one_in(3) {
            let Some(guard) = lock.write_timeout(long) else { return false };
            guard
        } else {
            lock.write()
        };
        guard.0 += 1;
        inside(number, dice);
        guard.1 += 1;
        if dice.one_in(4) {
            let reader = guard.downgrade();
            assert_eq!(reader.0, reader.1);
        }
        true
    });
    assert!(lock.try_write().is_some());
}

/// Permits travel round a ring of threads, each released by a thread that did not acquire it.
#[test]
fn permits_travel_from_thread_to_thread() {
    fn ring<S: Counting + Sync>(stations: &[S]) {
        let turns = TURNS / 8;
        thread::scope(|scope| {
            for nr in 0..stations.len() {
                let next = &stations[(nr + 1) % stations.len()];
                let own = &stations[nr];
                scope.spawn(move || {
                    for _ in 0..turns {
                        own.acquire();
                        next.release();
                    }
                });
            }
            stations[0].release();
        });
        assert_eq!(stations.iter().map(Counting::available).sum::<u32>(), 1);
    }
    ring(&[const { Semaphore::new(0) }; 4]);
    ring(&[const { AdaptiveSemaphore::new(0) }; 4]);
}

#[cfg(not(miri))]
#[test]
fn the_pattern_counts_what_its_threads_do() {
    for &policy in Policy::ALL {
        let pattern = Pattern {
            tasks: 3,
            workers: 2,
            directories: 2,
            groups: 2,
            think_ns: 500,
            directory_ns: 500,
            hold_ns: 500,
            worker_think_ns: 500,
            worker_hold_ns: 500,
        };
        let mut edges = 0;
        let begun = std::time::Instant::now();
        let counts = run(
            &pattern,
            Duration::from_millis(60),
            || Policy::Rwsem.lock(),
            || policy.lock(),
            |_| edges += 1,
        )
        .unwrap();
        assert_eq!(edges, 2);
        assert_eq!(counts.per_thread.len(), 5);
        assert!(counts.operations() > 0 && counts.operations() <= counts.per_thread.iter().sum());
        assert!(counts.waits.count() >= counts.per_thread.iter().sum());
        assert!(counts.hand_off <= counts.wait && counts.wait <= begun.elapsed() * 5);
        assert!(counts.cpu > Duration::ZERO && counts.idle_share() <= 1.0);
        assert!(counts.window >= Duration::from_millis(60));
    }
}

#[test]
fn a_pattern_without_threads_is_refused() {
    let empty = Pattern::plain(0, 1, 1);
    let refused = run(&empty, Duration::ZERO, || Policy::Std.lock(), || Policy::Std.lock(), |_| ());
    assert!(refused.unwrap_err().to_string().contains("at least one thread"));
}
