//! The kernel's mutex.
//!
//! # Algorithm
//!
//! Source: `kernel/locking/mutex.c`. One word says whether the mutex is locked, on which CPU it was taken, and carries three flags:
//!
//! 1. **Fast path:** unlocked -> locked, and back, in one compare-and-exchange each.
//! 2. **Optimistic spinning:** a thread that finds it locked joins a [queue of spinners](crate::spin_queue), whose first competes for the mutex as long as its owner
//!    can be thought to run. In the kernel that is known; here it is [the next best guess](crate::spin).
//! 3. **Sleeping:** who does not spin, or gave up, joins a first-in-first-out list. Unlocking makes the mutex free *and* wakes the head of the list, without giving
//!    it the mutex: spinners and newcomers may take it first.
//! 4. **Hand-off:** a woken head that finds the mutex taken sets `HANDOFF`. The next unlock then does not free the mutex but
//!    leaves it locked with `PICKUP` set: only the head may have it.
//!
//! # Guarantees
//!
//! - **Fairness:** not first-in-first-out, but bounded: the head of the list, once woken, loses at most once more. Whoever sleeps at place *n* therefore waits for its *n* predecessors
//!   and the owners that slipped in between: those that came between an unlock and the moment that its sleeper ran, and one more. Spinners are served in their order.
//! - **Release:** by the thread that locked it (the guard cannot be sent).
//! - **Poisoning:** none. A panic with the guard alive unlocks; the data are as the panic left them, as in `parking_lot`. Who needs to know keeps a flag in the data.
//! - **Recursion:** locking twice on one thread waits for ever, or times out.
//!
//! # Memory orderings
//!
//! Locking is an `Acquire`, unlocking a `Release` operation on the word; all others are read-modify-writes, which continue the release sequence. The flags change with the list locked,
//! except that the owner's bits come and go around them. Unlocking that sees `WAITERS` goes to the list; that does not see it frees the mutex by a compare-and-exchange from a value
//! without `WAITERS`, and the sleeper tries once more *after* setting `WAITERS`, on the same word: one of the two sees the other. So no wake-up is lost.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use crate::spin::{ROUNDS, SpinBudget};
use crate::spin_queue::SpinQueue;
use crate::sys::{
    AtomicU32, Deadline, Ordering, const_constructor, cpu_plus_one, deadline_after, has_passed,
};
use crate::wait_list::{LockedList, WaitList, Waiter};

const LOCKED: u32 = 1;
/// Somebody is on the list.
const WAITERS: u32 = 1 << 1;
/// The head of the list wants the next unlock to be a hand-off.
const HANDOFF: u32 = 1 << 2;
/// Locked, but for the head of the list to pick up.
const PICKUP: u32 = 1 << 3;
const FLAGS: u32 = WAITERS | HANDOFF | PICKUP;
/// The owner's CPU, plus one.
const CPU_SHIFT: u32 = 16;

/// A mutual exclusion lock that spins while its owner seems to run, and sleeps otherwise, as the kernel's does.
///
/// ```
/// static COUNT: locks::Mutex<u64> = locks::Mutex::new(0);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| *COUNT.lock() += 1);
///     }
/// });
/// assert_eq!(*COUNT.lock(), 4);
/// ```
pub struct Mutex<T: ?Sized> {
    raw: RawMutex,
    data: UnsafeCell<T>,
}

// SAFETY: the lock gives one thread at a time access to the data, which may therefore be sent but need not be shareable.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

struct RawMutex {
    word: AtomicU32,
    spinners: SpinQueue,
    budget: SpinBudget,
    waiters: WaitList,
}

#[inline]
fn owned_here() -> u32 {
    LOCKED | cpu_plus_one() << CPU_SHIFT
}

/// Whether the owner cannot be running, because this thread is, on its CPU.
fn owner_is_displaced(word: u32) -> bool {
    let here = cpu_plus_one() & 0xffff;
    here != 0 && word >> CPU_SHIFT == here
}

impl RawMutex {
    const_constructor! {
        fn new() -> Self {
            Self { word: AtomicU32::new(0), spinners: SpinQueue::new(), budget: SpinBudget::new(), waiters: WaitList::new() }
        }
    }

    /// Takes the mutex if it is unlocked, whatever its flags say.
    #[inline]
    fn try_lock(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & LOCKED == 0 {
            let next = word & FLAGS | owned_here();
            match self.word.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    #[inline]
    fn lock(&self, deadline: impl FnOnce() -> Deadline) -> bool {
        match self.word.compare_exchange(0, owned_here(), Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            Err(_) => self.lock_contended(deadline()),
        }
    }

    #[cold]
    fn lock_contended(&self, deadline: Deadline) -> bool {
        if self.budget.is_worth_it() && !owner_is_displaced(self.word.load(Ordering::Relaxed)) {
            if let Some(turn) = self.spinners.turn() {
                let displaced = || owner_is_displaced(self.word.load(Ordering::Relaxed));
                let taken = self.budget.spin(deadline, |_| self.try_lock().then_some(()), displaced, ROUNDS);
                self.spinners.leave(turn);
                if taken.is_some() {
                    return true;
                }
            }
            if has_passed(deadline) {
                return false;
            }
        }
        self.sleep(deadline)
    }

    fn sleep(&self, deadline: Deadline) -> bool {
        let waiter = Waiter::new(0);
        let mut list = self.waiters.lock();
        // SAFETY: the waiter is new, and every way out of this function goes through `leave`.
        unsafe { list.push(&waiter) };
        self.word.fetch_or(WAITERS, Ordering::Relaxed);
        let mut is_first = false;
        loop {
            if if is_first { self.try_lock_as_first() } else { self.try_lock() } {
                self.leave(&list, &waiter);
                return true;
            }
            drop(list);
            let woken = waiter.sleep(deadline);
            // Only the head of the list is ever woken, and it stays the head until it leaves.
            if woken && (self.try_lock_as_first() || self.spin_as_first(deadline)) {
                self.leave(&self.waiters.lock(), &waiter);
                return true;
            }
            list = self.waiters.lock();
            if !woken {
                return self.give_up(&list, &waiter);
            }
            is_first = true;
            waiter.reset();
        }
    }

    /// Takes the mutex if it is unlocked or there to be picked up; else asks for a hand-off.
    fn try_lock_as_first(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let free = word & LOCKED == 0 || word & PICKUP != 0;
            let next = if free { word & WAITERS | owned_here() } else { word | HANDOFF };
            match self.word.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return free,
                Err(now) => word = now,
            }
        }
    }

    /// The head of the list need not queue for its turn to spin.
    fn spin_as_first(&self, deadline: Deadline) -> bool {
        let displaced = || owner_is_displaced(self.word.load(Ordering::Relaxed));
        let look = |_| {
            let word = self.word.load(Ordering::Relaxed);
            (word & LOCKED == 0 || word & PICKUP != 0)
                .then(|| self.try_lock_as_first())
                .filter(|&taken| taken)
        };
        self.budget.spin(deadline, look, displaced, 1).is_some()
    }

    /// Takes the waiter, whose thread has the mutex or gives up, off the list.
    fn leave(&self, list: &LockedList<'_>, waiter: &Waiter) {
        // SAFETY: `sleep` put it on this list, and leaves once.
        unsafe { list.remove(waiter) };
        if list.is_empty() {
            self.word.fetch_and(!FLAGS, Ordering::Relaxed);
        }
    }

    /// The deadline has passed. True if the mutex was given to this thread at the last moment.
    fn give_up(&self, list: &LockedList<'_>, waiter: &Waiter) -> bool {
        let was_first = list.is_first(waiter);
        // Asking for the hand-off again, for a moment, does no harm: nobody can unlock into it without the list.
        let taken = was_first && waiter.is_signalled() && self.try_lock_as_first() || self.try_lock();
        if was_first {
            self.word.fetch_and(!HANDOFF, Ordering::Relaxed);
        }
        self.leave(list, waiter);
        taken
    }

    #[inline]
    fn unlock(&self) {
        let word = self.word.load(Ordering::Relaxed);
        if word & FLAGS != 0
            || self.word.compare_exchange(word, 0, Ordering::Release, Ordering::Relaxed).is_err()
        {
            self.unlock_contended();
        }
    }

    #[cold]
    fn unlock_contended(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & HANDOFF == 0 {
            match self.word.compare_exchange_weak(word, word & FLAGS, Ordering::Release, Ordering::Relaxed) {
                Ok(_) if word & WAITERS == 0 => return,
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        let list = self.waiters.lock();
        let first = list.first();
        if word & HANDOFF != 0 {
            // Still locked by us, so that only flags can change meanwhile, and they do with the list locked.
            let next = if first.is_some() { LOCKED | PICKUP | WAITERS } else { 0 };
            self.word.store(next, Ordering::Release);
        }
        let waker = first.filter(|first| !first.is_signalled()).map(Waiter::signal);
        drop(list);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Mutex<T> {
    const_constructor! {
        /// An unlocked mutex.
        pub fn new(value: T) -> Self {
            Self { raw: RawMutex::new(), data: UnsafeCell::new(value) }
        }
    }

    /// The data, as nobody else can have the mutex any more.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks; waits as long as it takes.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.raw.lock(|| None);
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    /// Locks if that is possible at once.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.raw.try_lock().then(|| MutexGuard { mutex: self, not_send: PhantomData })
    }

    /// Locks; gives up after `timeout`. A time-out too long for the clock is none.
    pub fn lock_timeout(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        self.raw.lock(|| deadline_after(timeout)).then(|| MutexGuard { mutex: self, not_send: PhantomData })
    }

    /// The data, without locking: nobody else can have the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Mutex");
        match self.try_lock() {
            Some(guard) => out.field("data", &&*guard),
            None => out.field("data", &format_args!("<locked>")),
        };
        out.finish_non_exhaustive()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Access to the data of a [`Mutex`], which is unlocked when this is dropped.
#[must_use = "the mutex is unlocked at once if the guard is not kept"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the data only.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the mutex is locked by this guard.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the mutex is locked by this guard, which is borrowed exclusively.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.raw.unlock();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
