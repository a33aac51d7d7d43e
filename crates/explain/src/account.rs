//! The sums.

use rustc_hash::FxHashMap as HashMap;
use trace::{CgroupId, LockId, StackId, SymbolId, TaskId, TimeNs};

use crate::classify::Class;

/// Where a chain ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum End {
    /// At a lock (or another object) that waits for no other.
    Lock(LockId),
    /// At a wait without an object.
    Wait(Class),
    /// At a task that was woken or preempted and did not run although CPUs were idle.
    WakeUp,
    /// At a task that the quota of its control group held back: it was seen, or it took so long that the group's counters decide.
    HeldBack { group: Option<CgroupId>, seen: bool },
    /// Not known.
    Unknown,
}

/// What the end of a chain was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Cut {
    HolderRunning,
    HolderBlocked,
    HolderRunnable,
    HandOff(Option<bool>),
    Unknown,
}

/// Why a task waited: the end of its chain, and who was there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cause {
    pub end: End,
    pub cut: Cut,
    pub holder: Option<TaskId>,
    pub work: Option<SymbolId>,
}

impl Cause {
    pub fn unknown(end: End) -> Cause {
        Cause { end, cut: Cut::Unknown, holder: None, work: None }
    }

    /// Whether the chain ends at a task that waits of its own choice, so that there is no loss.
    pub fn is_idle(&self) -> bool {
        matches!(self.end, End::Wait(class) if class.is_idle())
    }
}

/// Nanoseconds of waits, by what the holder did meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Parts {
    pub running: u64,
    pub blocked: u64,
    pub runnable: u64,
    pub hand_off_idle: u64,
    pub hand_off_busy: u64,
    pub hand_off_other: u64,
    pub unknown: u64,
}

impl Parts {
    pub fn add(&mut self, cut: Cut, ns: u64) {
        *match cut {
            Cut::HolderRunning => &mut self.running,
            Cut::HolderBlocked => &mut self.blocked,
            Cut::HolderRunnable => &mut self.runnable,
            Cut::HandOff(Some(true)) => &mut self.hand_off_idle,
            Cut::HandOff(Some(false)) => &mut self.hand_off_busy,
            Cut::HandOff(None) => &mut self.hand_off_other,
            Cut::Unknown => &mut self.unknown,
        } += ns;
    }

    pub fn merge(&mut self, other: &Parts) {
        self.running += other.running;
        self.blocked += other.blocked;
        self.runnable += other.runnable;
        self.hand_off_idle += other.hand_off_idle;
        self.hand_off_busy += other.hand_off_busy;
        self.hand_off_other += other.hand_off_other;
        self.unknown += other.unknown;
    }
}

/// What waits for one end cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndSums {
    /// Idle CPU time charged to it, CPU-ns.
    pub idle: f64,
    /// Waits of the workload directly on it.
    pub waits: u64,
    pub wait_ns: u64,
    pub parts: Parts,
    /// The part of its waits that was on the CPU.
    pub spin_ns: u64,
    /// Waits of others on it.
    pub elsewhere_ns: u64,
    /// CPU time sampled while spinning on it.
    pub spin_samples_ns: u64,
    /// The first and last moment at which idle time was charged to it.
    pub first: Option<TimeNs>,
    pub last: TimeNs,
    /// How the waits were entered: as readers.
    pub reads: u64,
    pub writes: u64,
}

/// What ran alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SerialSums {
    pub idle: f64,
    pub first: Option<TimeNs>,
    pub last: TimeNs,
}

/// Time of the tasks of the workload, by what they did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub running: u64,
    pub runnable: u64,
    pub lock: u64,
    pub io: u64,
    pub kernel: u64,
    pub futex: u64,
    pub peer: u64,
    pub idle: u64,
    /// Running in a lock's slow path.
    pub lock_on_cpu: u64,
}

/// Samples of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SampleSums {
    pub ns: u64,
    pub count: u64,
    /// Sum of the squares of the weights, for the interval.
    pub squares: f64,
}

impl SampleSums {
    pub fn add(&mut self, ns: u64) {
        self.ns = self.ns.saturating_add(ns);
        self.count += 1;
        self.squares += (ns as f64) * (ns as f64);
    }

    pub fn merge(&mut self, other: &SampleSums) {
        self.ns = self.ns.saturating_add(other.ns);
        self.count += other.count;
        self.squares += other.squares;
    }
}

/// A task with its kernel and user stack.
pub(crate) type Stacks = (TaskId, Option<StackId>, Option<StackId>);
/// Nanoseconds, and how many waits or samples are behind them.
pub(crate) type Weight = (u64, u64);

/// The sums by end; those of locks, which are asked for most, by number.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    locks: Vec<Option<Box<EndSums>>>,
    others: HashMap<End, EndSums>,
}

impl Ends {
    #[inline]
    fn at(&mut self, end: End) -> &mut EndSums {
        let End::Lock(lock) = end else { return self.others.entry(end).or_default() };
        let index = lock.index();
        if index >= self.locks.len() {
            self.locks.resize_with(index + 1, || None);
        }
        self.locks[index].get_or_insert_with(Box::default)
    }

    pub fn iter(&self) -> impl Iterator<Item = (End, &EndSums)> {
        let locks = self
            .locks
            .iter()
            .enumerate()
            .filter_map(|(i, sums)| Some((End::Lock(LockId::from_index(i as u32)), &**sums.as_ref()?)));
        locks.chain(self.others.iter().map(|(end, sums)| (*end, sums)))
    }
}

/// All sums.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub ends: Ends,
    /// Waits of the workload on the second that ended in the first.
    pub through: HashMap<(End, End), u64>,
    /// Who had the lock while the workload waited for it.
    pub holders: HashMap<(End, TaskId, Option<SymbolId>), u64>,
    /// Waits of the workload's tasks, by task, for the graph.
    pub waiters: HashMap<(TaskId, End), u64>,
    /// Weights of the stacks of waits: of the workload, and of others.
    pub paths: HashMap<(End, StackId, bool), u64>,
    /// Stacks sampled under a contended lock.
    pub under: HashMap<(LockId, TaskId, StackId), u64>,
    pub serial: HashMap<TaskId, SerialSums>,
    /// Idle time beyond everything that explains it.
    pub nothing: f64,
    /// Idle time that tasks which waited for others were charged for, while others ran.
    pub beside: f64,
    pub times: Times,
    /// Running time of the workload on allowed CPUs, and elsewhere; of others on allowed CPUs.
    pub scope_ns: u64,
    pub scope_elsewhere_ns: u64,
    pub others_ns: u64,
    pub user: SampleSums,
    pub kernel: HashMap<Option<StackId>, SampleSums>,
    pub interrupt: SampleSums,
    /// Time in interrupt handlers on allowed CPUs, if their events were captured.
    pub irq_ns: u64,
    pub irq_events: bool,
    /// Stacks for pictures: of waits and of samples, with the task.
    pub off_cpu: HashMap<Stacks, Weight>,
    pub on_cpu: HashMap<Stacks, Weight>,
    pub sampled: bool,
    pub throttled_ns: HashMap<trace::CgroupId, (u64, u64)>,
    pub events: u64,
    pub lost: u64,
    pub lost_ns: u64,
    pub cycles: u64,
    pub unpaired: u64,
    pub failed: Vec<(TaskId, i32)>,
    pub exits: u64,
    pub window_ns: u64,
    pub windows: u32,
    pub first: Option<TimeNs>,
}

impl Account {
    pub fn end(&mut self, end: End) -> &mut EndSums {
        self.ends.at(end)
    }

    /// Charges idle time to the end of a chain.
    pub fn charge(&mut self, end: End, from: TimeNs, to: TimeNs, idle: f64) {
        if idle <= 0.0 {
            return;
        }
        let sums = self.end(end);
        sums.idle += idle;
        sums.first = Some(sums.first.map_or(from, |f| f.min(from)));
        sums.last = sums.last.max(to);
    }

    pub fn charge_serial(&mut self, task: TaskId, from: TimeNs, to: TimeNs, idle: f64) {
        if idle <= 0.0 {
            return;
        }
        let sums = self.serial.entry(task).or_default();
        sums.idle += idle;
        sums.first = Some(sums.first.map_or(from, |f| f.min(from)));
        sums.last = sums.last.max(to);
    }
}
