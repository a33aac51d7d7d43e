//! A counting semaphore whose waiters spin while that pays, and sleep when it does not.
//!
//! It is meant where the kernel's `struct semaphore` is used as a lock without an owner: a buffer that one thread locks and
//! another one, the one that completes its I/O, unlocks. A mutex cannot be used there, so such locks have never spun.
//!
//! # Algorithm
//!
//! One atomic word holds the free permits, marks, the number of spinners, how often the first sleeper was bypassed, and the CPU on which a permit was last taken. Beside it
//! is a first-in-first-out list of sleepers.
//!
//! - **A release makes the permit free**, in one atomic addition. It wakes the first sleeper only if nobody awake would see the permit: no spinner is there
//!   and no woken sleeper is under way. So under steady contention for short holds nobody makes a system call; a few threads pass the permits among
//!   themselves, and the rest sleeps (Dice, "Malthusian Locks", EuroSys 2017, describes why that is best for throughput).
//! - **A waiter spins** if spins have paid lately, there are not too many spinners, and the last owner cannot be ruled out to be running ([how that is
//!   judged](crate::spin)). Then it joins the list and sleeps.
//! - **A woken sleeper competes.** If it finds no permit, it reserves the next one (`HANDOFF`, as the kernel's mutex does): it loses once at most.
//! - **Short holds: turns by time.** A first sleeper of 1.5 ms is woken although spinners would be faster, and reserves its permit as soon as it runs. The thread that woke it offers
//!   it the CPU: the sleeper often finds itself behind that very thread, and would wait for the end of its time slice.
//! - **Long holds: a plain semaphore.** Where a permit is held 0.2 ms and more at a time, waking a thread costs little next to that. Then a release is a hand-over (wake and reserve at
//!   once), newcomers do not spin while somebody sleeps, and the order is first in, first out: what [`Semaphore`](crate::Semaphore) does.
//!
//! # Guarantees
//!
//! - **Fairness:** bounded bypass. Sleepers are served in order. The first one is bypassed [`AdaptiveSemaphore::BYPASS_LIMIT`] times at most, in the usual case for 2 ms or so, and where
//!   holds are long not at all; then permits are reserved for it. A thread spins for microseconds (a scheduler's time slice if it is displaced) before it joins the list.
//! - **Release:** by any thread, whether it acquired or not.
//! - **Poisoning:** none. A semaphore guards no data of its own; a guard that is dropped by a panic releases its permit.
//! - **Memory:** what a thread did before it released a permit is visible to the thread that gets that permit.
//! - **Timed and immediate acquisition** give up without losing a permit or a wake-up that was meant for somebody else.
//!
//! # More threads than CPUs
//!
//! Spinning usually loses there: spinners take the CPU from the very thread that they wait for. Here a spinner that runs on the CPU on which the owner took the permit knows that the owner is off it, and yields;
//! on one CPU nobody spins; and a spin is bounded by what a sleep costs. Two things that were found by measuring: waking a sleeper while all CPUs are busy puts it behind a running
//! thread, whose CPU mate then goes idle for want of a permit or a place to spin, until the next tick (so spinners get two places more than CPUs, and sleepers are not woken needlessly); and a spinner that yields where holds are
//! long finds itself behind somebody's time slice while the permit is free (so it does not yield there).
//!
//! # Memory orderings
//!
//! All that matters is in one word, and every change of it is an atomic read-modify-write: taking a permit with `Acquire`, releasing one with `Release`, everything else relaxed, which
//! continues the release sequence. No wake-up is lost: a waiter that ceases to be awake (joins the list, or goes back to sleep) does so by a compare-and-exchange from a state
//! without a permit that it may take; a release before that is seen by it, a release after that sees it asleep and nobody else awake. Who
//! was awake and leaves with or without a permit looks at the state that it left, and wakes the first sleeper if a permit is
//! free and nobody is awake any more. `QUEUED`, `WOKEN`, and the list itself change with the list locked.

use crate::counting::{Counting, acquire_by_taking_or_waiting};
use crate::spin::{ROUNDS, SpinBudget, spinners_allowed};
use crate::sys::{
    AtomicU64, Deadline, Ordering, const_constructor, cpu_plus_one, has_passed, now_ns, yield_now,
};
use crate::wait_list::{LockedList, WaitList, Waiter};

/// Somebody is on the list of sleepers. Changes with the list locked only.
const QUEUED: u64 = 1;
/// Free permits belong to the first sleeper; nobody else may take one.
const HANDOFF: u64 = 1 << 1;
/// The first sleeper has been woken and has neither got a permit nor gone back to sleep yet.
const WOKEN: u64 = 1 << 2;
/// One spinner; three bits.
const SPINNER: u64 = 1 << 3;
const SPINNERS: u64 = 0b111 << 3;
const MOST_SPINNERS: u32 = 7;
/// The first sleeper has waited long enough: it is to be woken even though a spinner is there.
const DUE: u64 = 1 << 6;
/// One permit that was taken past the first sleeper; twelve bits.
const BYPASS: u64 = 1 << 7;
const BYPASSES: u64 = 0xfff << 7;
/// The CPU on which a permit was last taken, plus one; 0 if unknown; 13 bits.
const CPU_SHIFT: u32 = 19;
const CPU: u64 = 0x1fff << CPU_SHIFT;
/// What belongs to the first sleeper, and goes when it goes.
const OF_FIRST: u64 = HANDOFF | WOKEN | DUE | BYPASSES;
/// One free permit.
const ONE: u64 = 1 << 32;

/// After this many bypasses the first sleeper is the only one who may take a permit. Few in a model, which has few steps.
const RESERVE_AFTER: u64 = if cfg!(any(test, loom)) { 2 } else { 2000 };
/// After this time as the first one, a sleeper is woken and gets its turn even though spinners would be faster, in ns.
const DUE_AFTER_NS: u64 = 1_500_000;
/// Where permits are held this long at a time, a release is a direct hand-over, in ns: waking a thread costs little next to it.
const LONG_HOLD_NS: u64 = 200_000;
/// The first bypasses of each first sleeper, at which it is asked whether holds are long.
const JUDGED_BYPASSES: u64 = 16;

/// A counting semaphore whose waiters spin while that pays, and sleep when it does not.
///
/// The interface is that of [`Semaphore`](crate::Semaphore): see [`Counting`].
///
/// ```
/// use locks::{AdaptiveSemaphore, Counting};
/// use std::time::Duration;
///
/// static BUFFER: AdaptiveSemaphore = AdaptiveSemaphore::new(1);
/// BUFFER.acquire();
/// assert!(!BUFFER.acquire_timeout(Duration::from_millis(1)));
/// // The permit belongs to no thread: another one may release it.
/// std::thread::scope(|scope| scope.spawn(|| BUFFER.release()).join().unwrap());
/// assert!(BUFFER.try_permit().is_some());
/// ```
pub struct AdaptiveSemaphore {
    state: AtomicU64,
    budget: SpinBudget,
    waiters: WaitList,
    /// Since when the first sleeper is the first, ns.
    first_since: AtomicU64,
}

/// The state with the number of this CPU in it.
#[inline]
fn stamped(state: u64) -> u64 {
    state & !CPU | (u64::from(cpu_plus_one()) << CPU_SHIFT) & CPU
}

#[inline]
fn is_free(state: u64) -> bool {
    state >= ONE && state & HANDOFF == 0
}

/// Whether free permits could be overlooked: there is a sleeper and nobody is awake to take them.
#[inline]
fn needs_wake(state: u64) -> bool {
    state & QUEUED != 0 && state & WOKEN == 0 && (state & SPINNERS == 0 || state & (HANDOFF | DUE) != 0)
}

/// Whether the last owner cannot be running, because this thread is, on its CPU.
#[inline]
fn owner_is_displaced(state: u64) -> bool {
    let here = u64::from(cpu_plus_one());
    here != 0 && (state & CPU) >> CPU_SHIFT == here
}

impl AdaptiveSemaphore {
    /// The most permits that [`AdaptiveSemaphore::new`] gives. Releases may exceed it; beyond `u32::MAX` free permits the count starts again at 0.
    pub const MAX_PERMITS: u32 = u32::MAX >> 1;

    /// How often the first sleeper can be bypassed.
    pub const BYPASS_LIMIT: u64 = RESERVE_AFTER;

    const_constructor! {
        /// A semaphore with this many free permits, at most [`AdaptiveSemaphore::MAX_PERMITS`].
        pub fn new(permits: u32) -> Self {
            let permits = if permits > Self::MAX_PERMITS { Self::MAX_PERMITS } else { permits };
            Self { state: AtomicU64::new(permits as u64 * ONE), budget: SpinBudget::new(), waiters: WaitList::new(), first_since: AtomicU64::new(0) }
        }
    }

    /// What the state is after a permit has been taken from it by somebody who is not the first sleeper.
    #[inline]
    fn taken(&self, state: u64) -> u64 {
        let state = stamped(state) - ONE;
        if state & QUEUED == 0 { state } else { self.bypassed(state) }
    }

    #[cold]
    fn bypassed(&self, state: u64) -> u64 {
        let state = state + BYPASS;
        let last = (state & BYPASSES) / BYPASS >= RESERVE_AFTER || self.holds_are_long(state);
        if last { state | HANDOFF } else { state }
    }

    /// Whether a permit is held so long at a time that handing it over to a sleeper costs little next to that.
    ///
    /// How often the first sleeper was bypassed and how long that took tell, at the price of a look at the clock; only the first
    /// few bypasses have to pay it, since a large number of them says enough.
    fn holds_are_long(&self, state: u64) -> bool {
        let bypasses = (state & BYPASSES) / BYPASS;
        bypasses < JUDGED_BYPASSES && self.first_has_waited(now_ns(), (bypasses + 1) * LONG_HOLD_NS)
    }

    #[inline]
    fn take_if_free(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while is_free(state) {
            match self.state.compare_exchange_weak(
                state,
                self.taken(state),
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Waits for a permit; false if the deadline came first.
    #[cold]
    fn wait(&self, deadline: Deadline) -> bool {
        let spinners = if self.budget.is_worth_it() { spinners_allowed().min(MOST_SPINNERS) } else { 0 };
        let most = u64::from(spinners) * SPINNER;
        let mut state = self.state.load(Ordering::Relaxed);
        let spins = loop {
            let free = is_free(state);
            let next = if free {
                self.taken(state)
            } else if state & SPINNERS < most
                && !owner_is_displaced(state)
                && (state & QUEUED == 0 || !self.holds_are_long(state))
            {
                state + SPINNER
            } else {
                break false;
            };
            match self.state.compare_exchange_weak(state, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) if free => return true,
                Ok(_) => break true,
                Err(now) => state = now,
            }
        };
        if spins && self.spin(deadline) {
            return true;
        }
        if has_passed(deadline) {
            if spins {
                let state = self.state.fetch_sub(SPINNER, Ordering::Relaxed) - SPINNER;
                self.wake_if_overlooked(state);
            }
            return false;
        }
        self.queue(spins, deadline)
    }

    /// Spins for a permit; if it does not get one, the caller still counts as a spinner.
    fn spin(&self, deadline: Deadline) -> bool {
        let try_take = |now| {
            let mut state = self.state.load(Ordering::Relaxed);
            while is_free(state) {
                let mut next = self.taken(state) - SPINNER;
                if state & QUEUED != 0 && self.first_has_waited(now, DUE_AFTER_NS) {
                    next |= DUE;
                }
                match self.state.compare_exchange_weak(state, next, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Some(next),
                    Err(now) => state = now,
                }
            }
            None
        };
        let displaced = || owner_is_displaced(self.state.load(Ordering::Relaxed));
        match self.budget.spin(deadline, try_take, displaced, ROUNDS) {
            Some(state) => {
                self.wake_if_overlooked(state);
                true
            }
            None => false,
        }
    }

    #[inline]
    fn first_has_waited(&self, now: u64, ns: u64) -> bool {
        now.saturating_sub(self.first_since.load(Ordering::Relaxed)) >= ns
    }

    /// Joins the list of sleepers, unless a permit is free, and waits there.
    fn queue(&self, was_spinner: bool, deadline: Deadline) -> bool {
        let waiter = Waiter::new(0);
        let left = {
            let list = self.waiters.lock();
            if list.is_empty() {
                self.first_since.store(now_ns(), Ordering::Relaxed);
            }
            let spinner = if was_spinner { SPINNER } else { 0 };
            let mut state = self.state.load(Ordering::Relaxed);
            let (free, next) = loop {
                let free = is_free(state);
                let next = if free { self.taken(state) } else { state | QUEUED } - spinner;
                match self.state.compare_exchange_weak(state, next, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => break (free, next),
                    Err(now) => state = now,
                }
            };
            if free {
                drop(list);
                self.wake_if_overlooked(next);
                return true;
            }
            // SAFETY: the waiter is new, and every way out of the loop below takes it off the list.
            unsafe { list.push(&waiter) };
            next
        };
        // There may be a permit that was reserved for the first sleeper while this thread was the only one awake.
        self.wake_if_overlooked(left);
        loop {
            if !waiter.sleep(deadline) {
                return self.give_up(&waiter);
            }
            // Woken: this is the first of the list. Compete.
            if self.spin_as_first(&waiter, deadline) {
                return true;
            }
        }
    }

    /// Tries to get a permit as the first sleeper, who has been woken; if that fails, is ready to sleep again.
    fn spin_as_first(&self, waiter: &Waiter, deadline: Deadline) -> bool {
        let look = |_| {
            let state = self.state.load(Ordering::Relaxed);
            if state >= ONE {
                return Some(());
            }
            if state & HANDOFF == 0 {
                // Lost once: the next permit is ours.
                self.state.fetch_or(HANDOFF, Ordering::Relaxed);
            }
            None
        };
        let displaced = || owner_is_displaced(self.state.load(Ordering::Relaxed));
        loop {
            let seen = self.budget.spin(deadline, look, displaced, 1).is_some();
            let list = self.waiters.lock();
            let mut state = self.state.load(Ordering::Relaxed);
            while state >= ONE {
                let next = stamped(state & !OF_FIRST) - ONE;
                match self.state.compare_exchange_weak(state, next, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        let state = self.leave(&list, waiter);
                        drop(list);
                        self.wake_if_overlooked(state);
                        return true;
                    }
                    Err(now) => state = now,
                }
            }
            if !seen {
                // No permit is free. Once WOKEN is off, whoever releases one signals again.
                waiter.reset();
                if self
                    .state
                    .compare_exchange(state, state & !WOKEN, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
                {
                    return false;
                }
                // Something changed: put the news back, and look again.
                let _ = waiter.signal();
            }
        }
    }

    /// Takes a waiter off the list; returns the state after that.
    fn leave(&self, list: &LockedList<'_>, waiter: &Waiter) -> u64 {
        let was_first = list.is_first(waiter);
        // SAFETY: the caller is the waiter's thread, which put it on this list and has not taken it off yet.
        unsafe { list.remove(waiter) };
        if list.is_empty() {
            // What belongs to a first sleeper goes, too: somebody may have taken a permit past this one since it got its own.
            let gone = QUEUED | OF_FIRST;
            return self.state.fetch_and(!gone, Ordering::Relaxed) & !gone;
        }
        if was_first {
            self.first_since.store(now_ns(), Ordering::Relaxed);
        }
        self.state.load(Ordering::Relaxed)
    }

    /// The deadline has passed: leaves the list, without what belongs to its first sleeper.
    fn give_up(&self, waiter: &Waiter) -> bool {
        let list = self.waiters.lock();
        if list.is_first(waiter) {
            self.state.fetch_and(!OF_FIRST, Ordering::Relaxed);
        }
        let state = self.leave(&list, waiter);
        drop(list);
        self.wake_if_overlooked(state);
        false
    }

    /// To be called by everybody who ceases to be awake on behalf of the sleepers, with the state that it left.
    #[inline]
    fn wake_if_overlooked(&self, state: u64) {
        if state >= ONE && needs_wake(state) {
            self.wake_first();
        }
    }

    /// Wakes the first sleeper, to compete for a permit, if that is still needed. True if it has waited so long that the caller should make room for it.
    #[cold]
    fn wake_first(&self) -> bool {
        let list = self.waiters.lock();
        let Some(first) = list.first() else { return false };
        let state = self.state.load(Ordering::Relaxed);
        if !needs_wake(state) || state < ONE && state & DUE == 0 {
            // Somebody took the permit: its release will look again.
            return false;
        }
        let is_due = self.first_has_waited(now_ns(), DUE_AFTER_NS);
        let marks = if self.holds_are_long(state) { WOKEN | HANDOFF } else { WOKEN };
        self.state.fetch_or(marks, Ordering::Relaxed);
        let waker = first.signal();
        drop(list);
        waker.wake();
        is_due
    }
}

impl Counting for AdaptiveSemaphore {
    acquire_by_taking_or_waiting!();

    #[inline]
    fn release(&self) {
        let state = self.state.fetch_add(ONE, Ordering::Release) + ONE;
        if needs_wake(state) && self.wake_first() {
            yield_now();
        }
    }

    fn available(&self) -> u32 {
        (self.state.load(Ordering::Relaxed) / ONE) as u32
    }
}

impl core::fmt::Debug for AdaptiveSemaphore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AdaptiveSemaphore").field("available", &self.available()).finish_non_exhaustive()
    }
}
