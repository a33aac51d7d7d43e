//! The kernel's counting semaphore: waiters sleep at once, a release hands over to the one that has waited longest.
//!
//! # Algorithm
//!
//! Source: `kernel/locking/semaphore.c` (`down`, `up`, `__down_common`). A count of free permits and a first-in-first-out
//! list of sleepers. To acquire is to take one off the count, or to join the list and sleep. To release is to add one to the
//! count if nobody waits; otherwise the permit goes *directly* to the head of the list: it is taken off the list and
//! woken, and **the count stays 0**, so that nobody can overtake it.
//!
//! That last point is what costs so much under contention. From the release until the sleeper runs, nobody holds the
//! lock and nobody can have it. With a queue a cycle therefore is hold time *plus* the time to wake a thread and get it onto a
//! CPU, microseconds to milliseconds; see [`AdaptiveSemaphore`](crate::AdaptiveSemaphore) for the remedy.
//!
//! One difference from the kernel: there, every operation takes the spin lock inside. Here the count and the mark "somebody waits" share
//! one atomic word, so that an uncontended operation is one atomic read-modify-write. Nothing else can be told apart.
//!
//! # Guarantees
//!
//! - **Fairness:** strictly first in, first out among those that had to wait. No permit is ever free while somebody waits, so
//!   a waiter is bypassed by nobody who came later.
//! - **Release:** by any thread, whether it acquired or not.
//! - **Poisoning:** none. A semaphore guards no data of its own; a guard that is dropped by a panic releases its permit.
//! - **Memory:** what a thread did before it released a permit is visible to the thread that gets that permit.
//!
//! # Memory orderings
//!
//! Acquiring on the fast path is an `Acquire` read-modify-write of the word, releasing a `Release` one. Relaxed operations on
//! the word in between are read-modify-writes too, and so continue the release sequence. A permit that is handed over travels
//! through the waiter's signal (`Release` store, `Acquire` load). The mark "somebody waits" changes only with the list
//! locked. A release that sees the mark goes to the list; one that does not see it succeeds in a compare-and-exchange *from the
//! value without the mark*, so that the waiter, who sets the mark by a compare-and-exchange from count 0, sees the new count
//! instead. No wake-up can be lost between the two: they are ordered by the modification order of one word.

use crate::counting::{Counting, acquire_by_taking_or_waiting};
use crate::sys::{AtomicU32, Deadline, Ordering, const_constructor};
use crate::wait_list::{WaitList, Waiter};

/// Somebody is on the list. The count is 0 then.
const QUEUED: u32 = 1;
/// One permit.
const ONE: u32 = 2;

/// A counting semaphore that sleeps at once and hands over directly, as the kernel's does.
///
/// ```
/// use locks::{Counting, Semaphore};
///
/// static BUFFER: Semaphore = Semaphore::new(1);
/// {
///     let _permit = BUFFER.permit();
///     assert!(!BUFFER.try_acquire());
/// }
/// assert!(BUFFER.try_acquire());
/// std::thread::scope(|scope| scope.spawn(|| BUFFER.release()).join().unwrap());
/// assert_eq!(BUFFER.available(), 1);
/// ```
pub struct Semaphore {
    /// Free permits, shifted by one, and [`QUEUED`].
    state: AtomicU32,
    waiters: WaitList,
}

impl Semaphore {
    /// The most permits that can be free at a time. Releases beyond it have no effect.
    pub const MAX_PERMITS: u32 = u32::MAX >> 1;

    const_constructor! {
        /// A semaphore with this many free permits, at most [`Semaphore::MAX_PERMITS`].
        pub fn new(permits: u32) -> Self {
            let permits = if permits > Self::MAX_PERMITS { Self::MAX_PERMITS } else { permits };
            Self { state: AtomicU32::new(permits * ONE), waiters: WaitList::new() }
        }
    }

    #[inline]
    fn take_if_free(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state >= ONE {
            match self.state.compare_exchange_weak(state, state - ONE, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    #[cold]
    fn wait(&self, deadline: Deadline) -> bool {
        let waiter = Waiter::new(0);
        {
            let list = self.waiters.lock();
            let mut state = self.state.load(Ordering::Relaxed);
            loop {
                let next = if state >= ONE { state - ONE } else { QUEUED };
                match self.state.compare_exchange_weak(state, next, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) if state >= ONE => return true,
                    Ok(_) => break,
                    Err(now) => state = now,
                }
            }
            // SAFETY: the waiter is new, and this function does not return before it is off the list: a release takes it
            // off before it signals, and the time-out below takes it off itself.
            unsafe { list.push(&waiter) };
        }
        if waiter.sleep(deadline) {
            return true;
        }
        let list = self.waiters.lock();
        if waiter.is_signalled() {
            return true;
        }
        // SAFETY: not signalled, with the list locked, means still on it.
        unsafe { list.remove(&waiter) };
        if list.is_empty() {
            self.state.fetch_and(!QUEUED, Ordering::Relaxed);
        }
        false
    }

    /// Gives the permit to the head of the list; false if the list has become empty.
    #[cold]
    fn hand_over(&self) -> bool {
        let list = self.waiters.lock();
        let Some(first) = list.first() else { return false };
        // SAFETY: it is the first of this list.
        unsafe { list.remove(first) };
        if list.is_empty() {
            self.state.fetch_and(!QUEUED, Ordering::Relaxed);
        }
        let waker = first.signal();
        drop(list);
        waker.wake();
        true
    }
}

impl Counting for Semaphore {
    acquire_by_taking_or_waiting!();

    #[inline]
    fn release(&self) {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & QUEUED != 0 {
                if self.hand_over() {
                    return;
                }
                state = self.state.load(Ordering::Relaxed);
                continue;
            }
            let next = state.saturating_add(ONE) & !QUEUED;
            match self.state.compare_exchange_weak(state, next, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }

    fn available(&self) -> u32 {
        self.state.load(Ordering::Relaxed) / ONE
    }
}

impl core::fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Semaphore").field("available", &self.available()).finish_non_exhaustive()
    }
}
