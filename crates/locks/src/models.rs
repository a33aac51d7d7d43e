//! Models: each algorithm under a checker that chooses the schedule.
//!
//! `cargo test` runs them on shuttle (random and priority-based schedules); a thread that is never woken is reported as a deadlock. With
//! `RUSTFLAGS="--cfg loom" cargo test --release --lib` they run on loom, which tries all schedules up to a number of preemptions, and the
//! reorderings that C11 allows. What differs between the two is in `check` and `checker`.

#[cfg(loom)]
mod checker {
    use super::reset_clock;
    pub(super) use loom::sync::Arc;
    pub(super) use loom::thread::{spawn, yield_now};

    pub(super) fn check(model: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.max_branches = 100_000;
        builder.max_duration = Some(core::time::Duration::from_secs(60));
        builder.check(move || {
            reset_clock();
            model();
        });
    }
}

#[cfg(not(loom))]
mod checker {
    use super::reset_clock;
    /// Schedules tried of each kind.
    const SCHEDULES: usize = 600;

    pub(super) use shuttle::sync::Arc;
    pub(super) use shuttle::thread::{spawn, yield_now};

    pub(super) fn check(model: impl Fn() + Send + Sync + 'static) {
        let model = std::sync::Arc::new(move || {
            reset_clock();
            model();
        });
        let random = std::sync::Arc::clone(&model);
        shuttle::check_random(move || random(), SCHEDULES);
        shuttle::check_pct(move || model(), SCHEDULES, 3);
    }
}

use core::time::Duration;

use checker::{Arc, check, spawn, yield_now};

use crate::spin_queue::SpinQueue;
use crate::sys::{AtomicU32, Ordering, Plain, reset_clock};
use crate::wait_list::{WaitList, Waiter};
use crate::{AdaptiveSemaphore, Counting, Mutex, RwSemaphore, Semaphore};

const SOON: Duration = Duration::from_millis(1);
/// Loom has to try everything, so that it gets fewer threads.
const THREADS: usize = if cfg!(loom) { 2 } else { 3 };

/// A number that two threads must not change at the same time. Loom sees it if they do; on shuttle an increment gets lost.
struct Guarded(Plain<u32>);

// SAFETY: that accesses never overlap is what the models check.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new() -> Self {
        Self(Plain::new(0))
    }

    fn add_one(&self) {
        // SAFETY: exclusive, if the lock under test works; that is what the test is about.
        let before = unsafe { self.0.get() };
        yield_now();
        // SAFETY: as above.
        unsafe { self.0.set(before + 1) };
    }

    fn get(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.0.get() }
    }
}

/// Runs `body` on several threads and waits for them.
fn on_threads(count: usize, body: impl Fn(usize) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let threads: Vec<_> = (0..count)
        .map(|nr| {
            let body = Arc::clone(&body);
            spawn(move || body(nr))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

trait Semaphores: Counting + Send + Sync + 'static {
    fn with(permits: u32) -> Self;
}

impl Semaphores for Semaphore {
    fn with(permits: u32) -> Self {
        Self::new(permits)
    }
}

impl Semaphores for AdaptiveSemaphore {
    fn with(permits: u32) -> Self {
        Self::new(permits)
    }
}

fn one_permit_excludes<S: Semaphores>() {
    check(|| {
        let shared = Arc::new((S::with(1), Guarded::new()));
        let inner = Arc::clone(&shared);
        on_threads(THREADS, move |_| {
            for _ in 0..2 {
                let _permit = inner.0.permit();
                inner.1.add_one();
            }
        });
        assert_eq!(shared.1.get(), 2 * THREADS as u32);
        assert_eq!(shared.0.available(), 1);
    });
}

fn time_outs_lose_no_permit<S: Semaphores>() {
    check(|| {
        let shared = Arc::new((S::with(1), Guarded::new()));
        let inner = Arc::clone(&shared);
        on_threads(THREADS, move |nr| {
            for _ in 0..2 {
                // The first thread insists, so that somebody sleeps without a time-out behind those that give up.
                if nr == 0 {
                    inner.0.acquire();
                } else if !inner.0.acquire_timeout(SOON) {
                    continue;
                }
                inner.1.add_one();
                inner.0.release();
            }
        });
        assert_eq!(shared.0.available(), 1);
        assert!(shared.1.get() >= 2);
    });
}

fn permits_come_from_other_threads<S: Semaphores>() {
    check(|| {
        // Nobody who acquires releases, and the other way round.
        let shared = Arc::new((S::with(0), S::with(0)));
        let inner = Arc::clone(&shared);
        on_threads(THREADS, move |nr| {
            if nr == 0 {
                for _ in 1..THREADS {
                    inner.0.release();
                    inner.1.acquire();
                }
            } else {
                inner.0.acquire();
                inner.1.release();
            }
        });
        assert_eq!((shared.0.available(), shared.1.available()), (0, 0));
    });
}

fn several_permits_wake_several_sleepers<S: Semaphores>() {
    check(|| {
        let shared = Arc::new(S::with(0));
        let inner = Arc::clone(&shared);
        let releaser = spawn({
            let shared = Arc::clone(&shared);
            move || (0..THREADS).for_each(|_| shared.release())
        });
        on_threads(THREADS, move |_| inner.acquire());
        releaser.join().unwrap();
        assert_eq!(shared.available(), 0);
    });
}

/// Permits that are used up: no later release makes up for a wake-up that got lost.
fn every_permit_finds_a_sleeper<S: Semaphores>() {
    check(|| {
        let shared = Arc::new(S::with(1));
        let inner = Arc::clone(&shared);
        on_threads(2 * THREADS - 1, move |nr| {
            if nr < THREADS {
                inner.acquire();
                inner.acquire();
            } else if nr == THREADS {
                (0..2 * THREADS - 1).for_each(|_| inner.release());
            } else if inner.acquire_timeout(SOON) {
                inner.release();
            }
        });
        assert_eq!(shared.available(), 0);
    });
}

fn two_permits_let_two_in<S: Semaphores>() {
    check(|| {
        let shared = Arc::new((S::with(2), AtomicU32::new(0)));
        let inner = Arc::clone(&shared);
        on_threads(THREADS + 1, move |_| {
            let _permit = inner.0.permit();
            assert!(inner.1.fetch_add(1, Ordering::Relaxed) < 2);
            yield_now();
            inner.1.fetch_sub(1, Ordering::Relaxed);
        });
        assert_eq!(shared.0.available(), 2);
    });
}

macro_rules! for_both_semaphores {
    ($($name:ident)*) => {
        mod semaphore {
            $(#[test] fn $name() { super::$name::<super::Semaphore>(); })*
        }
        mod adaptive_semaphore {
            $(#[test] fn $name() { super::$name::<super::AdaptiveSemaphore>(); })*
        }
    };
}

for_both_semaphores! {
    one_permit_excludes
    time_outs_lose_no_permit
    permits_come_from_other_threads
    several_permits_wake_several_sleepers
    two_permits_let_two_in
    every_permit_finds_a_sleeper
}

#[test]
fn a_mutex_excludes() {
    check(|| {
        let shared = Arc::new(Mutex::new(Guarded::new()));
        let inner = Arc::clone(&shared);
        on_threads(THREADS, move |_| {
            for _ in 0..2 {
                inner.lock().add_one();
            }
        });
        assert_eq!(shared.lock().get(), 2 * THREADS as u32);
    });
}

#[test]
fn a_mutex_survives_time_outs() {
    check(|| {
        let shared = Arc::new(Mutex::new(Guarded::new()));
        let inner = Arc::clone(&shared);
        on_threads(THREADS, move |nr| {
            for _ in 0..2 {
                if nr == 0 {
                    inner.lock().add_one();
                } else if let Some(guard) = inner.lock_timeout(SOON) {
                    guard.add_one();
                }
            }
        });
        assert!(shared.try_lock().expect("nobody has it").get() >= 2);
    });
}

#[test]
fn writers_exclude_each_other_and_readers() {
    check(|| {
        let shared = Arc::new(RwSemaphore::new((Guarded::new(), Guarded::new())));
        let inner = Arc::clone(&shared);
        on_threads(THREADS, move |nr| {
            for turn in 0..2 {
                if (nr + turn) % 2 == 0 {
                    let guard = inner.write();
                    guard.0.add_one();
                    guard.1.add_one();
                } else {
                    let guard = inner.read();
                    let first = guard.0.get();
                    yield_now();
                    assert_eq!(first, guard.1.get());
                }
            }
        });
        assert_eq!(shared.read().0.get(), THREADS as u32);
    });
}

#[test]
fn readers_and_writers_survive_time_outs() {
    check(|| {
        let shared = Arc::new(RwSemaphore::new(Guarded::new()));
        let inner = Arc::clone(&shared);
        on_threads(THREADS + usize::from(!cfg!(loom)), move |nr| {
            for _ in 0..2 {
                match nr {
                    0 => inner.write().add_one(),
                    1 => drop(inner.read_timeout(SOON)),
                    2 => drop(inner.read()),
                    _ => drop(inner.write_timeout(SOON).map(|guard| guard.add_one())),
                }
            }
        });
        assert!(shared.try_write().expect("nobody has it").get() >= 2);
    });
}

#[test]
fn a_downgraded_writer_lets_readers_in_but_no_writer() {
    check(|| {
        let shared = Arc::new(RwSemaphore::new(Guarded::new()));
        let inner = Arc::clone(&shared);
        on_threads(THREADS, move |nr| {
            if nr == 0 {
                let writer = inner.write();
                writer.add_one();
                let wrote = writer.get();
                let reader = writer.downgrade();
                yield_now();
                assert_eq!(reader.get(), wrote);
            } else if nr == 1 {
                inner.write().add_one();
            } else {
                drop(inner.read());
            }
        });
        assert_eq!(shared.read().get(), 2);
    });
}

#[test]
fn one_spinner_at_a_time_has_the_turn() {
    check(|| {
        let shared = Arc::new((SpinQueue::new(), Guarded::new(), AtomicU32::new(0)));
        let inner = Arc::clone(&shared);
        on_threads(THREADS, move |_| {
            for _ in 0..2 {
                if let Some(turn) = inner.0.turn() {
                    inner.1.add_one();
                    inner.2.fetch_add(1, Ordering::Relaxed);
                    inner.0.leave(turn);
                }
            }
        });
        assert_eq!(shared.1.get(), shared.2.load(Ordering::Relaxed));
        let turn = shared.0.turn().expect("nobody else is there");
        shared.0.leave(turn);
    });
}

#[test]
fn the_list_of_sleepers_has_one_owner_at_a_time() {
    check(|| {
        let shared = Arc::new((WaitList::new(), Guarded::new()));
        let inner = Arc::clone(&shared);
        on_threads(THREADS, move |_| {
            let waiter = Waiter::new(0);
            let list = inner.0.lock();
            inner.1.add_one();
            // SAFETY: the waiter is new, and taken off below.
            unsafe { list.push(&waiter) };
            drop(list);
            let list = inner.0.lock();
            // SAFETY: it was put on above, and nobody else takes it off.
            unsafe { list.remove(&waiter) };
        });
        assert!(shared.0.lock().is_empty());
        assert_eq!(shared.1.get(), THREADS as u32);
    });
}
