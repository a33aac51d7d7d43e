//! What each lock promises, one promise a test, on real threads.

#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex as StdMutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use locks::{AdaptiveSemaphore, Counting, Mutex, RwSemaphore, Semaphore};
use proptest::prelude::*;

const A_MOMENT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

trait New: Counting + Send + Sync + 'static {
    fn with(permits: u32) -> Self;
}

impl New for Semaphore {
    fn with(permits: u32) -> Self {
        Self::new(permits)
    }
}

impl New for AdaptiveSemaphore {
    fn with(permits: u32) -> Self {
        Self::new(permits)
    }
}

/// Waits until `what` holds. Tests that need a thread to be asleep wait for signs of it, never for a fixed time.
fn eventually(what: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !what() {
        assert!(Instant::now() < end, "it never came about");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a thread of this process sleeps.
#[cfg(not(miri))]
fn is_asleep(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
}

#[cfg(not(miri))]
fn my_thread_id() -> i32 {
    // SAFETY: has no preconditions.
    unsafe { libc::gettid() }
}

/// Starts a thread and waits until it has gone to sleep.
#[cfg(not(miri))]
fn spawn_asleep<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    body: impl FnOnce() + Send + 'scope,
) -> thread::ScopedJoinHandle<'scope, ()> {
    let (tell, told) = mpsc::channel();
    let handle = scope.spawn(move || {
        tell.send(my_thread_id()).unwrap();
        body();
    });
    let id = told.recv().unwrap();
    // Asleep for several looks: a thread may sleep for a moment on the way.
    eventually(|| (0..5).all(|_| is_asleep(id)));
    handle
}

#[cfg(not(miri))]
fn sleepers_are_served_in_their_order<S: New>() {
    let semaphore = S::with(0);
    let order = StdMutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..6 {
            let (semaphore, order) = (&semaphore, &order);
            spawn_asleep(scope, move || {
                semaphore.acquire();
                order.lock().unwrap().push(number);
            });
        }
        for served in 1..=6 {
            semaphore.release();
            eventually(|| order.lock().unwrap().len() == served);
        }
    });
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

fn a_permit_may_be_released_by_a_thread_that_never_had_it<S: New>() {
    let semaphore = S::with(1);
    semaphore.acquire();
    thread::scope(|scope| {
        scope.spawn(|| semaphore.release());
        semaphore.acquire();
    });
    assert_eq!(semaphore.available(), 0);
}

fn a_timed_acquire_gives_up_after_its_time_and_not_before<S: New>() {
    let semaphore = S::with(0);
    let start = Instant::now();
    assert!(!semaphore.acquire_timeout(A_MOMENT));
    assert!(start.elapsed() >= A_MOMENT);
    assert!(!semaphore.acquire_timeout(Duration::ZERO));
    semaphore.release();
    assert!(semaphore.acquire_timeout(Duration::ZERO));
    semaphore.release();
    // Too long for the clock: no time-out at all.
    assert!(semaphore.acquire_timeout(Duration::MAX));
}

fn a_timed_acquire_gets_a_permit_that_comes_in_time<S: New>() {
    let semaphore = S::with(0);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire_timeout(LONG));
        thread::sleep(Duration::from_millis(5));
        semaphore.release();
        assert!(waiter.join().unwrap());
    });
    assert_eq!(semaphore.available(), 0);
}

fn a_sleeper_that_gives_up_does_not_keep_the_next_from_its_permit<S: New>() {
    let semaphore = S::with(0);
    thread::scope(|scope| {
        let first = scope.spawn(|| semaphore.acquire_timeout(A_MOMENT));
        thread::sleep(Duration::from_millis(2));
        let second = scope.spawn(|| semaphore.acquire_timeout(LONG));
        assert!(!first.join().unwrap());
        semaphore.release();
        assert!(second.join().unwrap());
    });
}

fn a_refused_guard_releases_nothing<S: New>() {
    let semaphore = S::with(1);
    let guard = semaphore.permit();
    assert!(semaphore.try_permit().is_none());
    assert!(semaphore.permit_timeout(Duration::from_millis(1)).is_none());
    assert_eq!(semaphore.available(), 0);
    drop(guard);
    assert_eq!(semaphore.available(), 1);
    semaphore.permit().forget();
    assert_eq!(semaphore.available(), 0);
}

fn a_panic_releases_the_permit<S: New>() {
    let semaphore = S::with(1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _permit = semaphore.permit();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err());
    assert_eq!(semaphore.available(), 1);
}

fn as_many_hold_permits_as_there_are<S: New>() {
    const PERMITS: u32 = 3;
    let semaphore = S::with(PERMITS);
    let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let turns = if cfg!(miri) { 5 } else { 200 };
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..turns {
                    let _permit = semaphore.permit();
                    most.fetch_max(inside.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(most.into_inner() <= PERMITS);
    assert_eq!(semaphore.available(), PERMITS);
}

macro_rules! for_both_semaphores {
    ($($(#[$meta:meta])* $name:ident)*) => {
        mod semaphore {
            $(#[test] $(#[$meta])* fn $name() { super::$name::<locks::Semaphore>(); })*
        }
        mod adaptive_semaphore {
            $(#[test] $(#[$meta])* fn $name() { super::$name::<locks::AdaptiveSemaphore>(); })*
        }
    };
}

for_both_semaphores! {
    #[cfg(not(miri))] sleepers_are_served_in_their_order
    a_permit_may_be_released_by_a_thread_that_never_had_it
    a_timed_acquire_gives_up_after_its_time_and_not_before
    a_timed_acquire_gets_a_permit_that_comes_in_time
    a_sleeper_that_gives_up_does_not_keep_the_next_from_its_permit
    a_refused_guard_releases_nothing
    a_panic_releases_the_permit
    as_many_hold_permits_as_there_are
}

/// The kernel's semaphore does not let anybody overtake a sleeper, even one that has been granted its permit and does not run yet.
#[cfg(not(miri))]
#[test]
fn nobody_overtakes_a_sleeper_of_the_plain_semaphore() {
    let semaphore = Semaphore::new(0);
    thread::scope(|scope| {
        for _ in 0..50 {
            let sleeper = spawn_asleep(scope, || semaphore.acquire());
            semaphore.release();
            assert!(!semaphore.try_acquire(), "the permit was the sleeper's");
            sleeper.join().unwrap();
        }
    });
}

/// One thread that takes the only permit again and again, without any pause, against one that sleeps.
#[cfg(not(miri))]
#[test]
fn a_first_sleeper_is_bypassed_no_more_often_than_is_said() {
    let semaphore = AdaptiveSemaphore::new(0);
    thread::scope(|scope| {
        for _ in 0..50 {
            let got_it = AtomicBool::new(false);
            thread::scope(|inner| {
                spawn_asleep(inner, || {
                    semaphore.acquire();
                    got_it.store(true, Ordering::Release);
                    semaphore.release();
                });
                semaphore.release();
                let mut bypasses = 0;
                while !got_it.load(Ordering::Acquire) {
                    if semaphore.try_acquire() {
                        // After it was done, taking the permit is no bypass.
                        bypasses += u64::from(!got_it.load(Ordering::Acquire));
                        semaphore.release();
                    }
                }
                assert!(bypasses <= AdaptiveSemaphore::BYPASS_LIMIT + 1, "{bypasses}");
            });
            semaphore.acquire();
        }
        // Nobody is left behind.
        scope.spawn(|| assert!(!semaphore.try_acquire()));
    });
}

#[test]
fn nobody_starves_beside_a_thread_that_never_pauses() {
    let locks = (AdaptiveSemaphore::new(1), Mutex::new(()), RwSemaphore::new(()));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                drop(locks.0.permit());
                drop(locks.1.lock());
                drop(locks.2.write());
            }
        });
        for _ in 0..if cfg!(miri) { 2 } else { 100 } {
            drop(locks.0.permit());
            drop(locks.1.lock());
            drop(locks.2.write());
            drop(locks.2.read());
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_mutex_gives_exclusive_access_and_back() {
    let mut mutex = Mutex::new(1);
    *mutex.get_mut() += 1;
    {
        let mut guard = mutex.lock();
        *guard += 1;
        assert!(mutex.try_lock().is_none());
        assert!(format!("{mutex:?}").contains("<locked>"));
        thread::scope(|scope| {
            scope.spawn(|| assert!(mutex.lock_timeout(Duration::from_millis(5)).is_none()));
        });
    }
    assert!(mutex.lock_timeout(Duration::ZERO).is_some());
    assert_eq!(mutex.into_inner(), 3);
}

#[test]
fn a_panic_unlocks_and_does_not_poison() {
    let (mutex, lock) = (Mutex::new(0), RwSemaphore::new(0));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let (mut one, mut other) = (mutex.lock(), lock.write());
        (*one, *other) = (1, 1);
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(panicked.is_err());
    assert_eq!((*mutex.lock(), *lock.read()), (1, 1));
}

#[test]
fn readers_share_and_writers_do_not() {
    let lock = RwSemaphore::new(7);
    let (first, second) = (lock.read(), lock.read());
    assert_eq!(*first + *second, 14);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lock.try_write().is_none());
            assert!(lock.write_timeout(Duration::from_millis(5)).is_none());
            assert!(lock.try_read().is_some());
        });
    });
    drop((first, second));
    let writer = lock.write();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(lock.try_read().is_none());
            assert!(lock.read_timeout(Duration::from_millis(5)).is_none());
            assert!(lock.try_write().is_none());
        });
    });
    let reader = writer.downgrade();
    assert!(lock.try_read().is_some());
    assert!(lock.try_write().is_none());
    drop(reader);
    assert!(lock.try_write().is_some());
}

#[cfg(not(miri))]
#[test]
fn a_stream_of_readers_does_not_starve_a_writer() {
    let lock = RwSemaphore::new(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let guard = lock.read();
                    thread::yield_now();
                    drop(guard);
                }
            });
        }
        for _ in 0..20 {
            *lock.write() += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(lock.into_inner(), 20);
}

#[cfg(not(miri))]
#[test]
fn readers_that_wait_are_let_in_together() {
    let lock = RwSemaphore::new(());
    let inside = AtomicU32::new(0);
    let writer = lock.write();
    thread::scope(|scope| {
        for _ in 0..4 {
            spawn_asleep(scope, || {
                let _guard = lock.read();
                inside.fetch_add(1, Ordering::Relaxed);
                // Nobody leaves before all are in.
                eventually(|| inside.load(Ordering::Relaxed) == 4);
            });
        }
        drop(writer);
    });
}

#[derive(Clone, Debug)]
enum Step {
    Try,
    Timed,
    Release,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(prop_oneof![Just(Step::Try), Just(Step::Timed), Just(Step::Release)], 0..60)
}

fn follows_the_count<S: New>(permits: u32, steps: &[Step]) -> Result<(), TestCaseError> {
    let semaphore = S::with(permits);
    let mut free = permits;
    for step in steps {
        match step {
            Step::Release => {
                semaphore.release();
                free += 1;
            }
            Step::Try | Step::Timed => {
                let taken = match step {
                    Step::Try => semaphore.try_acquire(),
                    _ => semaphore.acquire_timeout(Duration::ZERO),
                };
                prop_assert_eq!(taken, free > 0);
                free -= u32::from(taken);
            }
        }
        prop_assert_eq!(semaphore.available(), free);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn on_one_thread_a_semaphore_is_a_counter(permits in 0u32..5, steps in steps()) {
        follows_the_count::<Semaphore>(permits, &steps)?;
        follows_the_count::<AdaptiveSemaphore>(permits, &steps)?;
    }
}

#[test]
fn more_permits_than_fit_are_cut_off() {
    assert_eq!(Semaphore::new(u32::MAX).available(), Semaphore::MAX_PERMITS);
    assert_eq!(AdaptiveSemaphore::new(u32::MAX).available(), AdaptiveSemaphore::MAX_PERMITS);
    let full = Semaphore::new(Semaphore::MAX_PERMITS);
    full.release();
    assert_eq!(full.available(), Semaphore::MAX_PERMITS);
}
