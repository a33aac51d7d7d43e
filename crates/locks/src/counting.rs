//! What the two semaphores have in common: the interface of a counting semaphore, and its guard.

use core::time::Duration;

/// A counting semaphore. A permit belongs to no thread: any thread may release it.
pub trait Counting {
    /// Takes a permit; waits for one as long as it takes.
    fn acquire(&self);

    /// Takes a permit if that is possible at once.
    fn try_acquire(&self) -> bool;

    /// Takes a permit; gives up after `timeout` and says false then. A time-out too long for the clock is none.
    fn acquire_timeout(&self, timeout: Duration) -> bool;

    /// Gives a permit back, or a new one: the caller need not have acquired it.
    fn release(&self);

    /// How many permits are free at this moment. By the time it is looked at, it may be wrong.
    fn available(&self) -> u32;

    /// Takes a permit and releases it when the guard is dropped.
    fn permit(&self) -> Permit<'_, Self> {
        self.acquire();
        Permit(self)
    }

    /// As [`Counting::permit`], if that is possible at once.
    fn try_permit(&self) -> Option<Permit<'_, Self>> {
        self.try_acquire().then(|| Permit(self))
    }

    /// As [`Counting::permit`], but gives up after `timeout`.
    fn permit_timeout(&self, timeout: Duration) -> Option<Permit<'_, Self>> {
        self.acquire_timeout(timeout).then(|| Permit(self))
    }
}

/// The ways to acquire of a semaphore that has `take_if_free()` and `wait(deadline)`.
macro_rules! acquire_by_taking_or_waiting {
    () => {
        #[inline]
        fn acquire(&self) {
            if !self.take_if_free() {
                self.wait(None);
            }
        }

        #[inline]
        fn try_acquire(&self) -> bool {
            self.take_if_free()
        }

        #[inline]
        fn acquire_timeout(&self, timeout: core::time::Duration) -> bool {
            self.take_if_free() || self.wait(crate::sys::deadline_after(timeout))
        }
    };
}
pub(crate) use acquire_by_taking_or_waiting;

/// A permit that is released when this is dropped, by whichever thread drops it.
#[must_use = "the permit is released at once if the guard is not kept"]
pub struct Permit<'a, S: Counting + ?Sized>(&'a S);

impl<S: Counting + ?Sized> Permit<'_, S> {
    /// Keeps the permit taken. Somebody else has to call [`Counting::release`] for it.
    pub fn forget(self) {
        core::mem::forget(self);
    }
}

impl<S: Counting + ?Sized> Drop for Permit<'_, S> {
    #[inline]
    fn drop(&mut self) {
        self.0.release();
    }
}

impl<S: Counting + ?Sized> core::fmt::Debug for Permit<'_, S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Permit")
    }
}
