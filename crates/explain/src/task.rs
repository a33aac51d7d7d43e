//! What each task does, and what it did lately.

use std::collections::VecDeque;

use trace::{CgroupId, Cpu, LockId, StackId, SymbolId, TaskId, TimeNs};

use crate::account::{Cause, End};
use crate::classify::Class;
use crate::clock::{Counted, Stamp};

/// How many pieces of its past a task keeps. Waits that go further back are unknown there.
const HISTORY: usize = 256;
/// How many samples a task keeps.
const SAMPLES: usize = 8;
/// How many phases of one wait are kept; a wait with more of them is explained piece by piece.
const PHASES: usize = 64;

/// What a task did from a moment on, until its next piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub from: Stamp,
    pub what: Doing,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Doing {
    /// It was on a CPU; a kernel worker with that work item.
    Running(Option<SymbolId>),
    /// It waited for a CPU.
    Runnable,
    /// It waited, for that reason.
    Waited(Cause),
    /// It waits, and nobody knows yet why.
    Open,
    /// Not known, or not there.
    Unknown,
}

/// What a task does now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum State {
    /// Not known (yet).
    #[default]
    Unknown,
    /// On that CPU.
    Running(Cpu),
    /// Waiting for a CPU.
    Runnable,
    /// Waiting for something else.
    Blocked,
    /// Gone.
    Dead,
}

/// What a task did during a part of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// On the CPU: it spins, or is on its way to sleep or out.
    OnCpu,
    /// Off the CPU, until somebody wakes it.
    Asleep,
    /// Woken, not yet running.
    Woken,
    /// Runnable because others took its CPU.
    Preempted,
}

/// Who woke a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WokenBy {
    Task(TaskId),
    Interrupt,
    Unknown,
}

/// A request to a device, whose completion ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub device: LockId,
    /// Since when the device's queue has had it, if that is known.
    pub issued: Option<TimeNs>,
    /// When the device had done it.
    pub done: TimeNs,
}

/// A wait that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    /// The lock, or another object.
    pub lock: Option<LockId>,
    /// It ends with `contention_end`; otherwise with the switch-in.
    pub contention: bool,
    pub class: Class,
    /// How the task counts meanwhile. What the wait turns out to be at its end changes it no more.
    pub counted: Counted,
    /// The request that ended it.
    pub request: Option<Request>,
    pub begin: Stamp,
    pub phases: Vec<(Stamp, Phase)>,
    /// Whether the CPU on which it ran next after its wake-up was idle.
    pub ran_on_idle: Option<bool>,
    pub woken: bool,
    /// It waits to read.
    pub reads: bool,
    /// What came before was explained already.
    pub goes_on: bool,
}

impl Wait {
    pub fn new(begin: Stamp, phase: Phase, class: Class) -> Wait {
        // asleep, woken, on the CPU: few have more phases
        let mut phases = Vec::with_capacity(4);
        phases.push((begin, phase));
        Wait {
            lock: None,
            contention: false,
            class,
            counted: class.counted(),
            request: None,
            begin,
            phases,
            ran_on_idle: None,
            woken: false,
            reads: false,
            goes_on: false,
        }
    }

    /// Whether it should be explained up to now, before it grows further.
    pub fn is_long(&self) -> bool {
        self.phases.len() >= PHASES
    }

    /// Goes on from `now`.
    pub fn go_on(&mut self, now: Stamp) {
        let phase = self.phases.last().map_or(Phase::Asleep, |p| p.1);
        self.begin = now;
        self.phases.clear();
        self.phases.push((now, phase));
        self.goes_on = true;
    }

    /// What a task was charged for it up to `now`, if it is a loss for certain: while it was off the CPU.
    pub fn charged(&self, now: Stamp) -> f64 {
        let ends = self.phases.iter().skip(1).map(|p| p.0).chain([now]);
        let phases = self.phases.iter().zip(ends);
        phases
            .filter(|((_, phase), _)| *phase != Phase::OnCpu)
            .map(|((from, _), to)| to.sure - from.sure)
            .sum()
    }

    /// The wait goes on in another way.
    pub fn enter(&mut self, at: Stamp, phase: Phase) {
        match self.phases.last() {
            Some((_, last)) if *last == phase => {}
            _ => self.phases.push((at, phase)),
        }
    }
}

/// One task.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The table's row was looked at.
    pub known: bool,
    pub in_scope: bool,
    pub kernel: bool,
    pub idle: bool,
    pub state: State,
    pub since: Stamp,
    pub counted: Counted,
    /// The sum of `serial` when it began to run.
    pub serial_from: f64,
    pub wait: Option<Wait>,
    /// The spinlock that it spins on, inside whatever else it does.
    pub spin: Option<(LockId, Stamp)>,
    /// Somebody woke it before it was seen to sleep.
    pub early_wake: Option<WokenBy>,
    /// The object that it is about to sleep for.
    pub object: Option<LockId>,
    /// The request to whose completion its next wake-up is due.
    pub request: Option<Request>,
    pub work: Option<SymbolId>,
    /// Contended locks that it was seen to have.
    pub holding: Vec<LockId>,
    /// It was woken, rather than preempted, before it became runnable.
    pub woken: bool,
    /// Its control group, as far as it matters for quotas.
    pub group: Option<CgroupId>,
    /// It is runnable, and was seen to be held back by a quota.
    pub held_back: bool,
    /// An event has shown its state in this window, so that a seed is late.
    pub seen: bool,
    /// What its last wait was for, for the stack that comes after it.
    pub last_wait: Option<End>,
    pub history: VecDeque<Piece>,
    /// Its last samples in the kernel.
    pub samples: VecDeque<(TimeNs, StackId, u64)>,
}

impl Slot {
    pub fn note_sample(&mut self, at: TimeNs, stack: StackId, weight_ns: u64) {
        if self.samples.len() >= SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((at, stack, weight_ns));
    }

    pub fn note(&mut self, from: Stamp, what: Doing) {
        if let Some(last) = self.history.back_mut() {
            if last.what == what && what != Doing::Open {
                return;
            }
            // nothing happened between: the later word wins
            if last.from.t == from.t {
                last.what = what;
                return;
            }
        }
        if self.history.len() >= HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(Piece { from, what });
    }

    /// Replaces the open piece at the end of the history by what it turned out to be.
    pub fn resolve(&mut self, pieces: &[Piece]) {
        if self.history.back().is_some_and(|p| p.what == Doing::Open) {
            self.history.pop_back();
        }
        for piece in pieces {
            self.note(piece.from, piece.what);
        }
    }

    /// Hands over what it did from `from` to `to`, piece by piece in order of time, `Unknown` where it is forgotten.
    pub fn past(&self, from: Stamp, to: Stamp, mut take: impl FnMut(Stamp, Stamp, Doing)) {
        if to.t <= from.t {
            return;
        }
        // most waits are short: look from the end
        let first = self.history.iter().rposition(|p| p.from.t <= from.t).unwrap_or(0);
        let (mut at, mut what) = (from, Doing::Unknown);
        for piece in self.history.range(first..) {
            if piece.from.t >= to.t {
                break;
            }
            let until = piece.from.within(&at, &to);
            if until.t > at.t {
                take(at, until, what);
                at = until;
            }
            what = piece.what;
        }
        take(at, to, what);
    }

    /// The moment up to which it has slept without a break since `since`, at most `until`.
    pub fn awake_after(&self, since: Stamp, until: Stamp) -> Stamp {
        let mut awake = since;
        self.past(since, until, |from, to, doing| {
            let asleep = matches!(doing, Doing::Waited(_) | Doing::Open);
            if asleep && from.t <= awake.t {
                awake = to;
            }
        });
        awake
    }

    pub fn forget(&mut self) {
        self.history = VecDeque::new();
        self.samples = VecDeque::new();
        self.wait = None;
        self.holding = Vec::new();
        self.spin = None;
    }
}
