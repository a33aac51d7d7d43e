//! The backend of the models: shuttle (random schedules) or loom (all schedules, C11 reorderings).
//!
//! A futex is a word with a mutex and a condition variable around it, which is what the kernel's hash bucket is. A
//! lost wake-up shows as a deadlock, which both checkers report. Time is not modelled: a timed wait may time out at any moment.

#[cfg(loom)]
use loom::sync as base;
#[cfg(not(loom))]
use shuttle::sync as base;

pub(crate) use base::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use base::{Arc, Condvar, Mutex};

use super::{Deadline, Waited};

struct Inner {
    word: AtomicU32,
    bucket: Mutex<()>,
    sleepers: Condvar,
}

pub(crate) struct Futex(Arc<Inner>);

impl Futex {
    pub(crate) fn new(value: u32) -> Self {
        let inner = Inner { word: AtomicU32::new(value), bucket: Mutex::new(()), sleepers: Condvar::new() };
        Self(Arc::new(inner))
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0.word
    }

    pub(crate) fn wait(&self, expected: u32, deadline: Deadline) -> Waited {
        if deadline.is_some() {
            // The schedule decides whether a wake-up comes before the end: give the others one chance.
            let changed = || self.0.word.load(Ordering::Relaxed) != expected;
            if !changed() {
                yield_now();
            }
            return if changed() { Waited::LookAgain } else { Waited::TimedOut };
        }
        let bucket = self.0.bucket.lock().unwrap();
        if self.0.word.load(Ordering::Relaxed) == expected {
            drop(self.0.sleepers.wait(bucket).unwrap());
        }
        Waited::LookAgain
    }

    pub(crate) fn wake_one(&self) {
        self.waker().wake();
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.0))
    }
}

pub(crate) struct Waker(Arc<Inner>);

impl Waker {
    pub(crate) fn wake(self) {
        let _bucket = self.0.bucket.lock().unwrap();
        self.0.sleepers.notify_one();
    }
}

#[cfg(loom)]
pub(crate) struct Plain<T>(loom::cell::UnsafeCell<T>);

#[cfg(loom)]
impl<T: Copy> Plain<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::cell::UnsafeCell::new(value))
    }

    /// # Safety
    /// No other thread may write at the same time; loom reports it if one does.
    pub(crate) unsafe fn get(&self) -> T {
        // SAFETY: no writer, by the caller's promise.
        self.0.with(|value| unsafe { *value })
    }

    /// # Safety
    /// No other thread may read or write at the same time; loom reports it if one does.
    pub(crate) unsafe fn set(&self, value: T) {
        // SAFETY: no other access, by the caller's promise.
        self.0.with_mut(|place| unsafe { *place = value });
    }
}

#[cfg(not(loom))]
pub(crate) struct Plain<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T: Copy> Plain<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// # Safety
    /// No other thread may write at the same time.
    pub(crate) unsafe fn get(&self) -> T {
        // SAFETY: no writer, by the caller's promise.
        unsafe { *self.0.get() }
    }

    /// # Safety
    /// No other thread may read or write at the same time.
    pub(crate) unsafe fn set(&self, value: T) {
        // SAFETY: no other access, by the caller's promise.
        unsafe { *self.0.get() = value }
    }
}

pub(crate) fn yield_now() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    shuttle::thread::yield_now();
}

pub(crate) fn relax() {
    yield_now();
}

/// A clock that ticks each time it is read, so that every bounded spin ends: sometimes by little, sometimes by so much that
/// everything that depends on time is due. Under loom it ticks evenly, as a model must do the same each time.
pub(crate) fn now_ns() -> u64 {
    #[cfg(loom)]
    let tick = 50_000;
    #[cfg(not(loom))]
    let tick = {
        use shuttle::rand::Rng;
        if shuttle::rand::thread_rng().gen_bool(0.8) { 1_000 } else { 5_000_000 }
    };
    CLOCK.with(|clock| {
        clock.set(clock.get() + tick);
        clock.get()
    })
}

std::thread_local! {
    /// Both checkers run all threads of a model on one real thread.
    static CLOCK: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

/// To be called when a model starts: it has to do the same each time it follows the same schedule.
pub(crate) fn reset_clock() {
    CLOCK.set(0);
}

/// Two, so that waiters do spin.
pub(crate) fn usable_cpus() -> u32 {
    2
}

/// Unknown: where a thread runs is not modelled.
pub(crate) fn cpu_plus_one() -> u32 {
    0
}
