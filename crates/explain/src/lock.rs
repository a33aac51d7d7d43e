//! Who had a lock, between two pieces of evidence.
//!
//! What is seen of a lock are points in time: an owner at the begin of a wait, a release (which wakes somebody), a grant or an
//! acquisition (the end of a wait). What held between two of them follows from both, and from whether the lock can be
//! taken without being seen (mutexes and rw-semaphores can, semaphores with a queue cannot). Where it does not follow, the holder is not known.

use std::collections::VecDeque;

use trace::{LockId, LockKind, OwnerQuality, TaskId};

use crate::clock::Stamp;
use crate::task::WokenBy;

/// How many intervals are kept while a lock has waiters.
const INTERVALS: usize = 1024;

/// Who had the lock during an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Who {
    Held(TaskId),
    /// It was on its way to this task, which ran next on a CPU that was idle (if that is known).
    HandOff(TaskId, Option<bool>),
    /// That task had it at that moment, and for as long as it has slept since; then it is not known.
    WhileAsleep(TaskId, Stamp),
    /// It was released from an interrupt: a device had it, so to speak; which one is known if a request's completion released it.
    Device(Option<LockId>),
    Unknown,
}

/// The last thing that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Nothing.
    Nothing,
    /// That task has it for certain.
    Has(TaskId),
    /// Readers have it, that task being one of them.
    Reader(TaskId),
    /// That task took it last.
    Hint(TaskId),
    /// The second released it and woke the first.
    HandOff(TaskId, WokenBy),
}

/// A lock that is, or was, contended.
#[derive(Debug)]
pub(crate) struct LockState {
    pub kind: LockKind,
    /// Nobody has it: tasks wait for a word of others.
    pub condition: bool,
    pub waiters: u32,
    last: Evidence,
    last_at: Stamp,
    /// Intervals in order of time, each up to the beginning of the next, the last up to `last_at`.
    intervals: VecDeque<(Stamp, Who)>,
    /// What was known before the last release, in case that it turns out to have been none.
    before: Option<(usize, Evidence, Stamp)>,
}

impl LockState {
    pub fn new(kind: LockKind, condition: bool) -> LockState {
        LockState {
            kind,
            condition,
            waiters: 0,
            last: Evidence::Nothing,
            last_at: Stamp::default(),
            intervals: VecDeque::new(),
            before: None,
        }
    }

    /// Whether it can change hands without being seen although tasks wait for it.
    fn can_be_stolen(&self) -> bool {
        matches!(self.kind, LockKind::Mutex | LockKind::Rwsem | LockKind::PercpuRwsem | LockKind::RtMutex)
    }

    pub fn holder(&self) -> Option<TaskId> {
        match self.last {
            Evidence::Has(task) | Evidence::Reader(task) => Some(task),
            _ => None,
        }
    }

    fn close(&mut self, now: Stamp, who: Who, next: Evidence) {
        if now.t > self.last_at.t {
            if self.intervals.len() >= INTERVALS {
                self.intervals.pop_front();
            }
            self.before = None;
            match self.intervals.back() {
                Some((_, last)) if *last == who => {}
                _ => self.intervals.push_back((self.last_at, who)),
            }
        }
        self.last = next;
        self.last_at = now;
    }

    /// A task begins to wait.
    pub fn begin(&mut self, now: Stamp) {
        if self.waiters == 0 {
            // whatever was before is over: without waiters it could change hands unseen
            self.intervals.clear();
            self.before = None;
            self.last = Evidence::Nothing;
            self.last_at = now;
        }
        self.waiters += 1;
    }

    /// Somebody saw that owner, which has slept since `since` (or now): who sleeps takes no lock, so it has had it since then.
    pub fn observe(&mut self, now: Stamp, owner: Option<TaskId>, quality: OwnerQuality, since: Stamp) {
        let Some(owner) = owner.filter(|_| self.waiters > 0) else { return };
        let seen = match quality {
            OwnerQuality::None => return,
            OwnerQuality::Owner => Evidence::Has(owner),
            OwnerQuality::Reader => Evidence::Reader(owner),
            OwnerQuality::LastHolder => Evidence::Hint(owner),
        };
        let at = if since.t < now.t && since.t >= self.last_at.t { since } else { now };
        match (self.last, seen) {
            // a hint is worth less than anything else
            (Evidence::Nothing, Evidence::Hint(_)) => self.last = seen,
            (_, Evidence::Hint(_)) => {}
            (Evidence::Has(a), Evidence::Has(b)) if a == b => {}
            (Evidence::Reader(_), Evidence::Reader(_)) => {}
            // the owner field of a semaphore-like lock is not there; so this is a mutex or rw-semaphore
            (Evidence::Has(a), _) => self.close(at, Who::WhileAsleep(a, self.last_at), seen),
            (Evidence::Reader(_), _) => self.close(at, Who::Unknown, seen),
            (Evidence::HandOff(to, _), Evidence::Has(who)) if to != who => {
                // a thief is seen
                self.close(at, Who::HandOff(to, None), seen);
            }
            (Evidence::HandOff(..), _) => {}
            (Evidence::Nothing | Evidence::Hint(_), _) => {
                let who = if self.last_at.t == now.t { Who::Unknown } else { self.who_before(seen) };
                self.close(at, who, seen);
            }
        }
    }

    /// Who had it from an unseen beginning to a sight of an owner.
    fn who_before(&self, seen: Evidence) -> Who {
        match seen {
            Evidence::Has(task) if !self.can_be_stolen() => Who::Held(task),
            _ => Who::Unknown,
        }
    }

    /// `by` wakes a waiter, which is how a lock is released when somebody waits for it; perhaps since `device` completed a request.
    pub fn release(&mut self, now: Stamp, by: WokenBy, device: Option<LockId>, to: TaskId) {
        let next = Evidence::HandOff(to, by);
        let who = match (self.last, by) {
            // several readers are woken one after the other
            (Evidence::HandOff(_, before), _) if before == by && by != WokenBy::Unknown => return,
            (Evidence::HandOff(..), _) => Who::Unknown,
            (Evidence::Has(a), WokenBy::Task(b)) if a == b => Who::Held(a),
            // who has a user-space lock is only seen when it is released
            (Evidence::Has(_), WokenBy::Task(b)) if self.kind == LockKind::Futex => Who::Held(b),
            (Evidence::Has(_), WokenBy::Interrupt) if !self.can_be_stolen() => Who::Device(device),
            (Evidence::Has(a), _) => Who::WhileAsleep(a, self.last_at),
            // the last reader is the one that everybody waited for
            (Evidence::Reader(_), WokenBy::Task(b)) => Who::Held(b),
            (Evidence::Reader(_), _) => Who::Unknown,
            (Evidence::Nothing | Evidence::Hint(_), WokenBy::Task(b)) if !self.can_be_stolen() => {
                Who::Held(b)
            }
            (Evidence::Nothing | Evidence::Hint(_), WokenBy::Interrupt) if !self.can_be_stolen() => {
                Who::Device(device)
            }
            (Evidence::Nothing | Evidence::Hint(_), _) => Who::Unknown,
        };
        let before = (self.intervals.len(), self.last, self.last_at);
        self.close(now, who, next);
        self.before = Some(before);
    }

    /// Who was found to have had it, from when on, by its release: not seen before.
    pub fn found_by_release(&self) -> Option<(TaskId, Stamp)> {
        match (self.before?, self.intervals.back()?) {
            ((_, Evidence::Nothing | Evidence::Hint(_), from), (_, Who::Held(task))) => Some((*task, from)),
            _ => None,
        }
    }

    /// A waiter gave up: what woke it was no release.
    pub fn gave_up(&mut self, now: Stamp, task: TaskId) {
        let woken = matches!(self.last, Evidence::HandOff(to, _) if to == task);
        match self.before.take() {
            Some((intervals, last, last_at)) if woken => {
                self.intervals.truncate(intervals);
                (self.last, self.last_at) = (last, last_at);
            }
            _ => self.missed(now, task),
        }
    }

    /// A waiter has it now; after its wake-up it ran on a CPU that was idle, or not.
    pub fn acquired(&mut self, now: Stamp, task: TaskId, reads: bool, on_idle: Option<bool>) {
        let next = if reads { Evidence::Reader(task) } else { Evidence::Has(task) };
        let who = match self.last {
            Evidence::HandOff(to, _) if to == task => Who::HandOff(task, on_idle),
            Evidence::HandOff(to, _) => Who::HandOff(to, None),
            // it was taken without sleeping: the one before had it up to now
            Evidence::Has(before) => Who::Held(before),
            Evidence::Reader(_) if reads => return,
            Evidence::Reader(before) => Who::Held(before),
            Evidence::Nothing | Evidence::Hint(_) => Who::Unknown,
        };
        self.close(now, who, next);
    }

    /// A buffer-lock tracepoint saw that `task` released it: what comes next is open.
    pub fn freed(&mut self, now: Stamp, task: TaskId) {
        if self.waiters == 0 {
            return;
        }
        let who = match self.last {
            Evidence::Has(a) | Evidence::Hint(a) | Evidence::Reader(a) if a == task => Who::Held(a),
            Evidence::Nothing if !self.can_be_stolen() => Who::Held(task),
            // already on its way, or another than the one that took it
            Evidence::HandOff(..) => return,
            _ => Who::Unknown,
        };
        self.close(now, who, Evidence::Nothing);
    }

    /// A woken waiter did not get it, and sleeps again.
    pub fn missed(&mut self, now: Stamp, task: TaskId) {
        if let Evidence::HandOff(to, _) = self.last
            && to == task
        {
            self.close(now, Who::Unknown, Evidence::Nothing);
        }
    }

    /// A waiter is gone.
    pub fn leave(&mut self) {
        self.waiters = self.waiters.saturating_sub(1);
    }

    /// Who had it from `from` to `to`, in order of time.
    pub fn past(&self, from: Stamp, to: Stamp, mut take: impl FnMut(Stamp, Stamp, Who)) {
        if to.t <= from.t {
            return;
        }
        // what is open still: only an owner that was seen says anything
        let open = match self.last {
            Evidence::Has(task) => Who::Held(task),
            Evidence::HandOff(task, _) => Who::HandOff(task, None),
            _ => Who::Unknown,
        };
        // most waits are short: look from the end
        let first = self.intervals.iter().rposition(|(at, _)| at.t <= from.t).unwrap_or(0);
        let (mut at, mut who) = (from, Who::Unknown);
        for &(since, next) in self.intervals.range(first..).chain([&(self.last_at, open)]) {
            if since.t >= to.t {
                break;
            }
            if since.t > at.t {
                take(at, since, who);
                at = since;
            }
            who = next;
        }
        take(at, to, who);
    }
}
