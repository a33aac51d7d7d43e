//! The locks that are raced, behind one interface.

use crate::sys::{Futex, Ordering, const_constructor};
use crate::{AdaptiveSemaphore, Counting, Mutex, RwSemaphore, Semaphore};

/// A lock as the race needs it.
pub trait Lock: Send + Sync {
    /// Does something with the lock held.
    fn hold<R>(&self, inside: impl FnOnce() -> R) -> R;
}

impl Lock for Semaphore {
    #[inline]
    fn hold<R>(&self, inside: impl FnOnce() -> R) -> R {
        let _permit = self.permit();
        inside()
    }
}

impl Lock for AdaptiveSemaphore {
    #[inline]
    fn hold<R>(&self, inside: impl FnOnce() -> R) -> R {
        let _permit = self.permit();
        inside()
    }
}

impl Lock for RwSemaphore<()> {
    #[inline]
    fn hold<R>(&self, inside: impl FnOnce() -> R) -> R {
        let _guard = self.write();
        inside()
    }
}

impl Lock for Mutex<()> {
    #[inline]
    fn hold<R>(&self, inside: impl FnOnce() -> R) -> R {
        let _guard = self.lock();
        inside()
    }
}

impl Lock for std::sync::Mutex<()> {
    #[inline]
    fn hold<R>(&self, inside: impl FnOnce() -> R) -> R {
        let _guard = self.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        inside()
    }
}

#[cfg(feature = "parking_lot")]
impl Lock for parking_lot::Mutex<()> {
    #[inline]
    fn hold<R>(&self, inside: impl FnOnce() -> R) -> R {
        let _guard = self.lock();
        inside()
    }
}

impl Lock for FutexSemaphore {
    #[inline]
    fn hold<R>(&self, inside: impl FnOnce() -> R) -> R {
        let _permit = self.permit();
        inside()
    }
}

/// A plain futex semaphore, for comparison: a count, a number of sleepers, no order, no hand-over, no spinning.
///
/// What a C library's `sem_wait` and `sem_post` do: a release makes the permit free and wakes somebody; whoever comes first has it.
pub struct FutexSemaphore {
    permits: Futex,
    sleepers: crate::sys::AtomicU32,
}

impl FutexSemaphore {
    const_constructor! {
        /// A semaphore with this many free permits.
        pub fn new(permits: u32) -> Self {
            Self { permits: Futex::new(permits), sleepers: crate::sys::AtomicU32::new(0) }
        }
    }
}

impl Counting for FutexSemaphore {
    #[inline]
    fn acquire(&self) {
        while !self.try_acquire() {
            // Sequentially consistent against `release`: either it sees the sleeper, or the sleeper sees its permit.
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            self.permits.wait(0, None);
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[inline]
    fn try_acquire(&self) -> bool {
        let word = self.permits.word();
        let mut permits = word.load(Ordering::Relaxed);
        while permits > 0 {
            match word.compare_exchange_weak(permits, permits - 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => permits = now,
            }
        }
        false
    }

    fn acquire_timeout(&self, timeout: core::time::Duration) -> bool {
        let deadline = crate::sys::deadline_after(timeout);
        while !self.try_acquire() {
            if crate::sys::has_passed(deadline) {
                return false;
            }
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            self.permits.wait(0, deadline);
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
        true
    }

    #[inline]
    fn release(&self) {
        self.permits.word().fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.permits.wake_one();
        }
    }

    fn available(&self) -> u32 {
        self.permits.word().load(Ordering::Relaxed)
    }
}

/// How a lock waits and hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// [`Semaphore`]: sleeps at once, hands over directly.
    Semaphore,
    /// [`AdaptiveSemaphore`]: spins while that pays.
    Adaptive,
    /// [`RwSemaphore`], write-locked only.
    Rwsem,
    /// [`Mutex`].
    Mutex,
    /// [`FutexSemaphore`].
    Futex,
    /// [`std::sync::Mutex`].
    Std,
    /// `parking_lot::Mutex`; with this crate's feature of the same name.
    #[cfg(feature = "parking_lot")]
    ParkingLot,
}

impl Policy {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::Semaphore,
        Self::Adaptive,
        Self::Rwsem,
        Self::Mutex,
        Self::Futex,
        Self::Std,
        #[cfg(feature = "parking_lot")]
        Self::ParkingLot,
    ];

    /// Its name, as on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Semaphore => "semaphore",
            Self::Adaptive => "adaptive",
            Self::Rwsem => "rwsem",
            Self::Mutex => "mutex",
            Self::Futex => "futex",
            Self::Std => "std",
            #[cfg(feature = "parking_lot")]
            Self::ParkingLot => "parking_lot",
        }
    }

    /// A lock that does it.
    pub fn lock(self) -> AnyLock {
        match self {
            Self::Semaphore => AnyLock::Semaphore(Semaphore::new(1)),
            Self::Adaptive => AnyLock::Adaptive(AdaptiveSemaphore::new(1)),
            Self::Rwsem => AnyLock::Rwsem(RwSemaphore::new(())),
            Self::Mutex => AnyLock::Mutex(Mutex::new(())),
            Self::Futex => AnyLock::Futex(FutexSemaphore::new(1)),
            Self::Std => AnyLock::Std(std::sync::Mutex::new(())),
            #[cfg(feature = "parking_lot")]
            Self::ParkingLot => AnyLock::ParkingLot(parking_lot::Mutex::new(())),
        }
    }
}

/// A lock whose policy is chosen at run time, at the price of a branch.
pub enum AnyLock {
    /// See [`Policy::Semaphore`].
    Semaphore(Semaphore),
    /// See [`Policy::Adaptive`].
    Adaptive(AdaptiveSemaphore),
    /// See [`Policy::Rwsem`].
    Rwsem(RwSemaphore<()>),
    /// See [`Policy::Mutex`].
    Mutex(Mutex<()>),
    /// See [`Policy::Futex`].
    Futex(FutexSemaphore),
    /// See [`Policy::Std`].
    Std(std::sync::Mutex<()>),
    /// See [`Policy::ParkingLot`].
    #[cfg(feature = "parking_lot")]
    ParkingLot(parking_lot::Mutex<()>),
}

impl Lock for AnyLock {
    #[inline]
    fn hold<R>(&self, inside: impl FnOnce() -> R) -> R {
        match self {
            Self::Semaphore(lock) => lock.hold(inside),
            Self::Adaptive(lock) => lock.hold(inside),
            Self::Rwsem(lock) => lock.hold(inside),
            Self::Mutex(lock) => lock.hold(inside),
            Self::Futex(lock) => lock.hold(inside),
            Self::Std(lock) => lock.hold(inside),
            #[cfg(feature = "parking_lot")]
            Self::ParkingLot(lock) => lock.hold(inside),
        }
    }
}
