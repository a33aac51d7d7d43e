//! How long to spin: what user space can know in place of "is the owner running?".
//!
//! The kernel's locks spin as long as the owner is on a CPU and the spinner is not asked to give way. User space sees neither. What
//! can be had instead, from best to worst, and what this crate does with it:
//!
//! 1. **The owner's CPU, published and compared** (certain, but one-sided). Whoever takes a lock leaves the number of its CPU in the
//!    lock's word, in the same atomic operation; the kernel keeps that number in the thread's restartable-sequence area, so that reading
//!    it is one load. A spinner on *that* CPU knows that the owner is off it: it stops at once and sleeps, which gives the CPU back. With more
//!    threads than CPUs that is the common way for a spin to go wrong: the spinner has displaced the very thread that it waits for.
//! 2. **About as many spinners as CPUs that would otherwise idle.** A lock lets in few more spinners than could run to some purpose ([`spinners_allowed`]);
//!    everybody else sleeps.
//! 3. **Bounded spins learnt from past waits** ([`SpinBudget`]). An owner that sleeps, or is displaced by a third party, cannot be seen at all. The
//!    spin is bounded by the price of the alternative, so that the worst case is about twice the price of sleeping at once (the classic
//!    competitive bound: Karlin, Li, Manasse, Owicki, 1991), and by a small multiple of what has paid lately, so that the usual case is far better.
//!
//! Restartable sequences could do more only for the *owner* (learn that it was preempted), which it can learn when it is too late; asking the kernel for
//! the state of another thread is a system call that costs more than a sleep.

use crate::sys::{AtomicU32, Deadline, Ordering, const_constructor, now_ns, relax, usable_cpus, yield_now};

/// The longest spin, in ns: about what it costs to put a thread to sleep and get it running again.
const LONGEST_NS: u32 = 30_000;
/// The shortest spin, in ns: less than any sleep costs, so that it is never a loss worth mentioning.
const SHORTEST_NS: u32 = 2_000;
/// What a spin in vain counts as, in ns. Larger than [`LONGEST_NS`], so that failures weigh.
const IN_VAIN_NS: u32 = 100_000;
/// A wait this many times the average still counts as usual.
const PATIENCE: u32 = 4;
/// One waiter in this many spins even if that has not paid lately: holds may have become shorter.
const PROBE_EVERY: u64 = 16;

/// How long waiters of one lock should spin, learnt from how their spins ended.
pub(crate) struct SpinBudget {
    /// Moving average of how long it took, in ns. A hint: concurrent updates may overwrite each other.
    average_ns: AtomicU32,
}

impl SpinBudget {
    const_constructor! {
        pub(crate) fn new() -> Self {
            Self { average_ns: AtomicU32::new(SHORTEST_NS) }
        }
    }

    /// How long a spin may last, in ns.
    fn allowance_ns(&self) -> u32 {
        self.average_ns.load(Ordering::Relaxed).saturating_mul(PATIENCE).clamp(SHORTEST_NS, LONGEST_NS)
    }

    fn pays_not(&self) -> bool {
        self.average_ns.load(Ordering::Relaxed) > LONGEST_NS
    }

    /// Whether to spin at all: if spins have paid lately, and now and then anyway.
    #[inline]
    pub(crate) fn is_worth_it(&self) -> bool {
        // The clock's low digits serve as a die, so that no counter has to be shared.
        !self.pays_not() || (now_ns() >> 5).is_multiple_of(PROBE_EVERY)
    }

    fn learn(&self, took_ns: u64) {
        let took = took_ns.min(u64::from(IN_VAIN_NS)) as u32;
        let average = self.average_ns.load(Ordering::Relaxed);
        // The winner of a spin holds the lock by now: it writes to the shared line only if there is news.
        if took > average.saturating_mul(2) || (took < average / 2 && average > SHORTEST_NS / 2) {
            self.average_ns.store(average - average / 8 + took / 8, Ordering::Relaxed);
        }
    }

    /// Spins until `done` says how it ended; `None` if the budget is used up or the deadline passes.
    ///
    /// `done` is told the time of the last look at the clock. `pointless` is asked at each such look, and ends a round
    /// without anything being learnt from it. If spins have paid lately, there are more rounds, and between them the CPU is
    /// offered to whoever is ready to run on it, which may be the owner. Where holds are long that would be wrong: the
    /// spinner could find itself behind somebody's time slice while the lock is free.
    pub(crate) fn spin<T>(
        &self,
        deadline: Deadline,
        mut done: impl FnMut(u64) -> Option<T>,
        mut pointless: impl FnMut() -> bool,
        rounds: u32,
    ) -> Option<T> {
        for round in 1.. {
            let start = now_ns();
            let budget_end = start.saturating_add(u64::from(self.allowance_ns()));
            let end = deadline.map_or(budget_end, |at| at.min(budget_end));
            let mut now = start;
            while now < end {
                for _ in 0..LOOKS_PER_CLOCK {
                    if let Some(result) = done(now) {
                        self.learn(now - start);
                        return Some(result);
                    }
                    relax();
                }
                if pointless() {
                    break;
                }
                now = now_ns();
            }
            if now >= budget_end {
                self.learn(u64::from(IN_VAIN_NS));
            }
            if round == rounds || self.pays_not() || now >= end && end < budget_end {
                break;
            }
            yield_now();
        }
        None
    }
}

/// Spins, with an offer of the CPU between each and the next, before a waiter sleeps.
pub(crate) const ROUNDS: u32 = if cfg!(any(test, loom)) { 1 } else { 3 };
/// Looks at the lock between two looks at the clock: a pause takes 10 to 50 ns, the clock about 25.
const LOOKS_PER_CLOCK: u32 = if cfg!(any(test, loom)) { 1 } else { 8 };

/// How many threads may count as spinners of one lock at a time. None on one CPU.
///
/// One less than there are CPUs could spin to some purpose. Two more are let in because a spinner that the scheduler has
/// displaced does not give its place back: without the spare places a newcomer would go to sleep, and its CPU idle,
/// while the place is held by a thread that waits for the other CPU. Measured: 8 threads on 2 CPUs then use 1.85 CPUs instead of 1.93.
#[inline]
pub(crate) fn spinners_allowed() -> u32 {
    match usable_cpus() {
        1 => 0,
        cpus => cpus + 1,
    }
}
