//! The queue of sleepers that every lock here has: first in, first out, intrusive, behind a small lock of its own.
//!
//! It stands for the kernel's `wait_lock` and `wait_list`. A waiter lives on the stack of the thread that waits, and
//! every way out of the waiting code takes it off the list first.
//!
//! The kernel's `wait_lock` is a spin lock whose holder cannot be preempted. A user-space holder can, so the lock
//! around this list spins for a moment only and then sleeps: a preempted holder costs its waiters a sleep, not a time slice.

use core::ptr;

use crate::sys::{Deadline, Futex, Ordering, Plain, Waited, Waker, const_constructor, relax, usable_cpus};

/// The lock around the list: 0 free, 1 held, 2 held and somebody may sleep on it.
struct ListLock(Futex);

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Looks before sleeping. The list is held for tens of nanoseconds, so that a longer spin means a preempted holder.
const LOOKS: u32 = if cfg!(any(test, loom)) { 1 } else { 60 };

impl ListLock {
    const_constructor! {
        fn new() -> Self {
            Self(Futex::new(FREE))
        }
    }

    #[inline]
    fn lock(&self) {
        if self.0.word().compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_contended();
        }
    }

    #[cold]
    fn lock_contended(&self) {
        let word = self.0.word();
        if usable_cpus() > 1 {
            for _ in 0..LOOKS {
                if word.load(Ordering::Relaxed) == FREE
                    && word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    return;
                }
                relax();
            }
        }
        // From here on the lock is taken as CONTENDED, so that whoever releases it wakes the next sleeper, if any.
        while word.swap(CONTENDED, Ordering::Acquire) != FREE {
            self.0.wait(CONTENDED, None);
        }
    }

    #[inline]
    fn unlock(&self) {
        if self.0.word().swap(FREE, Ordering::Release) == CONTENDED {
            self.0.wake_one();
        }
    }
}

/// What [`Waiter::signal`] says while there is no news.
pub(crate) const WAITING: u32 = 0;
/// What it says when the waiter has been woken to compete, or been given what it waits for: each lock says which.
pub(crate) const SIGNALLED: u32 = 1;

/// One thread that waits.
pub(crate) struct Waiter {
    next: Plain<*const Waiter>,
    previous: Plain<*const Waiter>,
    signal: Futex,
    kind: u32,
}

impl Waiter {
    /// A waiter that is on no list. What `kind` means is the lock's business.
    pub(crate) fn new(kind: u32) -> Self {
        Self {
            next: Plain::new(ptr::null()),
            previous: Plain::new(ptr::null()),
            signal: Futex::new(WAITING),
            kind,
        }
    }

    /// What the lock said this waiter wants.
    pub(crate) fn kind(&self) -> u32 {
        self.kind
    }

    /// Whether there is news. Acquires what the thread that signalled had released.
    pub(crate) fn is_signalled(&self) -> bool {
        self.signal.word().load(Ordering::Acquire) == SIGNALLED
    }

    /// Sleeps until there is news or the deadline passes; false for the latter.
    pub(crate) fn sleep(&self, deadline: Deadline) -> bool {
        while !self.is_signalled() {
            if self.signal.wait(WAITING, deadline) == Waited::TimedOut {
                return self.is_signalled();
            }
        }
        true
    }

    /// Forgets the news, to sleep again. Only with the list locked, and only by the waiter's own thread.
    pub(crate) fn reset(&self) {
        self.signal.word().store(WAITING, Ordering::Relaxed);
    }

    /// Gives the news. The sleeper has to be woken through what this returns, best after the list is unlocked; the
    /// waiter itself may be gone by then.
    #[must_use]
    pub(crate) fn signal(&self) -> Waker {
        // The order matters: as soon as the word says so the waiter may leave and take its memory along.
        let waker = self.signal.waker();
        self.signal.word().store(SIGNALLED, Ordering::Release);
        waker
    }
}

/// A first-in-first-out list of waiters.
pub(crate) struct WaitList {
    lock: ListLock,
    first: Plain<*const Waiter>,
    last: Plain<*const Waiter>,
}

// SAFETY: the pointers are read and written with `lock` held only, and point to waiters whose threads are inside a
// method of the lock that owns the list, so that neither can go away.
unsafe impl Send for WaitList {}
// SAFETY: as above.
unsafe impl Sync for WaitList {}

impl WaitList {
    const_constructor! {
        pub(crate) fn new() -> Self {
            Self { lock: ListLock::new(), first: Plain::new(ptr::null()), last: Plain::new(ptr::null()) }
        }
    }

    /// Locks the list.
    #[inline]
    pub(crate) fn lock(&self) -> LockedList<'_> {
        self.lock.lock();
        LockedList(self)
    }
}

/// The list, locked until this is dropped.
pub(crate) struct LockedList<'a>(&'a WaitList);

impl Drop for LockedList<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.lock.unlock();
    }
}

impl LockedList<'_> {
    /// The waiter that has waited longest.
    #[inline]
    pub(crate) fn first(&self) -> Option<&Waiter> {
        // SAFETY: the list is locked, and what is on it is alive: its thread cannot leave without this lock.
        unsafe { self.0.first.get().as_ref() }
    }

    /// The one behind `waiter`, which has to be on the list.
    pub(crate) fn after(&self, waiter: &Waiter) -> Option<&Waiter> {
        // SAFETY: as in `first`.
        unsafe { waiter.next.get().as_ref() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// Whether `waiter` has waited longest.
    #[inline]
    pub(crate) fn is_first(&self, waiter: &Waiter) -> bool {
        self.first().is_some_and(|first| ptr::eq(first, waiter))
    }

    /// Puts a waiter at the end.
    ///
    /// # Safety
    /// The waiter is on no list, and stays where it is until [`LockedList::remove`] took it off this one.
    pub(crate) unsafe fn push(&self, waiter: &Waiter) {
        // SAFETY: the list is locked, so nobody else touches the links of what is on it; the new waiter is ours.
        unsafe {
            let last = self.0.last.get();
            waiter.previous.set(last);
            waiter.next.set(ptr::null());
            match last.as_ref() {
                Some(last) => last.next.set(waiter),
                None => self.0.first.set(waiter),
            }
            self.0.last.set(waiter);
        }
    }

    /// Takes a waiter off.
    ///
    /// # Safety
    /// The waiter is on this list.
    pub(crate) unsafe fn remove(&self, waiter: &Waiter) {
        // SAFETY: the list is locked, and the neighbours are on it, hence alive.
        unsafe {
            let (previous, next) = (waiter.previous.get(), waiter.next.get());
            match previous.as_ref() {
                Some(previous) => previous.next.set(next),
                None => self.0.first.set(next),
            }
            match next.as_ref() {
                Some(next) => next.previous.set(previous),
                None => self.0.last.set(previous),
            }
        }
    }
}
