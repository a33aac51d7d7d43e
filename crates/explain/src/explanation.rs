//! The explanation: plain facts, times in nanoseconds over all windows of the trace.

use trace::{LockKind, TimeNs};

/// Where the time of the CPUs went, and what the tasks of the workload waited for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// Length of the windows together.
    pub window_ns: u64,
    /// How many windows.
    pub windows: u32,
    /// How many CPUs were allowed.
    pub allowed_cpus: u32,
    /// What the allowed CPUs did.
    pub budget: Budget,
    /// What the tasks of the workload did.
    pub times: TaskTimes,
    /// Ends of chains with what they cost, worst first: those that idle time is charged to, by that; then latent ones, by wait and spinning.
    pub roots: Vec<Root>,
    /// Idle time behind tasks that ran, when nothing else could run, most first.
    pub serial: Vec<Serial>,
    /// Idle time when no task of the workload ran or waited for anything but its own choice, CPU-ns.
    pub nothing_to_run_ns: f64,
    /// Who waits for whom.
    pub chain: Chain,
    /// Stacks of waits with the time that they stand for.
    pub off_cpu: Vec<WeightedStack>,
    /// Stacks of samples with the time that they stand for.
    pub on_cpu: Vec<WeightedStack>,
    /// How much of it can be trusted.
    pub facts: Facts,
}

impl Explanation {
    /// All CPU time there was: allowed CPUs x window.
    pub fn capacity_ns(&self) -> f64 {
        self.window_ns as f64 * f64::from(self.allowed_cpus)
    }

    /// The part of the capacity that was idle, 0 to 1.
    pub fn idle_share(&self) -> f64 {
        let capacity = self.capacity_ns();
        if capacity > 0.0 { self.budget.idle_ns / capacity } else { 0.0 }
    }

    /// Idle time behind running tasks, CPU-ns.
    pub fn serial_ns(&self) -> f64 {
        self.serial.iter().map(|s| s.idle_ns).sum()
    }

    /// The part of the idle time that `idle_ns` is, 0 to 1; `None` when nothing was idle.
    pub fn share_of_idle(&self, idle_ns: f64) -> Option<f64> {
        (self.budget.idle_ns > 0.0).then(|| idle_ns / self.budget.idle_ns)
    }
}

/// What the allowed CPUs did, CPU-ns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budget {
    /// Idle: exact, from switches.
    pub idle_ns: f64,
    /// Tasks of the workload ran: exact.
    pub scope_ns: u64,
    /// Others ran: exact.
    pub others_ns: u64,
    /// What a CPU did was not known (events lost).
    pub unknown_ns: f64,
    /// Tasks of the workload ran on CPUs that are not allowed.
    pub elsewhere_ns: u64,
    /// User code of the workload, from samples; `None` without samples. So are the next ones.
    pub user: Option<SampledTime>,
    /// Kernel code of the workload, without spinning.
    pub system: Option<SampledTime>,
    /// Spinning for locks.
    pub spin: Option<SampledTime>,
    /// Interrupt handlers on top of tasks of the workload.
    pub irq: Option<SampledTime>,
    /// Interrupt handlers on allowed CPUs, from their own events; `None` if these were not captured.
    pub irq_exact_ns: Option<u64>,
    /// The kernel code by system call (or exception), most first.
    pub system_by_call: Vec<NamedTime>,
    /// The kernel code by the part of the kernel that works, most first.
    pub system_by_group: Vec<NamedTime>,
    /// Spinning by who wants the lock: the innermost function outside the locking code, most first.
    pub spin_by: Vec<NamedTime>,
}

/// A time that was sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampledTime {
    /// The estimate.
    pub ns: f64,
    /// Half of the 95 % interval around it.
    pub margin_ns: f64,
    /// Samples behind it.
    pub samples: u64,
}

/// A time with a name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedTime {
    /// Of what.
    pub name: String,
    /// How long.
    pub ns: f64,
}

/// What the tasks of the workload did, added over tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskTimes {
    /// On a CPU, outside the slow paths of locks.
    pub running_ns: u64,
    /// On a CPU, in the slow path of a lock.
    pub in_lock_on_cpu_ns: u64,
    /// Waiting for a CPU (after the wake-up from a lock wait, too).
    pub runnable_ns: u64,
    /// Asleep for a lock (kernel locks, and user-space locks with a known address).
    pub lock_ns: u64,
    /// Asleep for input or output.
    pub io_ns: u64,
    /// Asleep for something else in the kernel, uninterruptibly.
    pub kernel_ns: u64,
    /// Asleep for a user-space lock or condition at an unknown address.
    pub futex_ns: u64,
    /// Asleep for the other end of a pipe, socket or the like.
    pub peer_ns: u64,
    /// Asleep of their own choice: timers, children, events, stopped.
    pub idle_ns: u64,
}

/// What a root is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RootKind {
    /// A lock, or an object that stands for one.
    Lock(LockKind),
    /// Input or output.
    Io,
    /// Something in the kernel without a lock that is known (another kind of wait that cannot be interrupted).
    Kernel,
    /// The clock: kernel code that sleeps for a time, mostly to look again.
    Timed,
    /// A user-space lock or condition whose address is not known.
    Futex,
    /// The other end of a pipe, socket or the like, outside the workload.
    Pipe,
    /// A child.
    Child,
    /// Time.
    Sleep,
    /// Tasks that were woken or preempted, and did not run yet although CPUs were idle.
    WakeUp,
    /// Tasks that were held back by a quota.
    Throttled,
    /// Not known.
    Other,
}

/// An end of chains.
#[derive(Clone, Debug, PartialEq)]
pub struct Root {
    /// What it is.
    pub kind: RootKind,
    /// Class of the lock (`xfs_buf.b_sema`), or what is waited for; empty if not known.
    pub class: String,
    /// The object, in words.
    pub object: Option<String>,
    /// Idle time charged to it, CPU-ns.
    pub idle_ns: f64,
    /// Waits of the workload directly on it.
    pub waits: u64,
    /// Their time, runnable time after the wake-up included.
    pub wait_ns: u64,
    /// The part of `wait_ns` that was on the CPU: spinning, mostly.
    pub spin_ns: u64,
    /// CPU time sampled in it while it was waited for.
    pub spin_sampled_ns: u64,
    /// Waits of others (kernel workers, …) on it.
    pub elsewhere_ns: u64,
    /// Some of the waits wanted to read.
    pub reads: u64,
    /// Some of the waits wanted to write.
    pub writes: u64,
    /// `wait_ns` by what the holder did meanwhile.
    pub split: Split,
    /// It costs no idle time now, or next to none: other tasks had work.
    pub latent: bool,
    /// Where it is waited for, most first.
    pub paths: Vec<Path>,
    /// Who had it meanwhile, most first.
    pub holders: Vec<Holder>,
    /// Waits of the workload on other locks, whose holders waited for this one, most first.
    pub through: Vec<Through>,
    /// From the first to the last moment at which idle time was charged to it.
    pub when: Option<(TimeNs, TimeNs)>,
}

/// Time of waits by what the holder did meanwhile. The parts add up to the wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// It ran.
    pub holder_running_ns: u64,
    /// It waited for something else.
    pub holder_blocked_ns: u64,
    /// It waited for a CPU.
    pub holder_runnable_ns: u64,
    /// The next holder was woken, and ran next on a CPU that was idle.
    pub hand_off_cpu_idle_ns: u64,
    /// … on a CPU that was busy.
    pub hand_off_cpu_busy_ns: u64,
    /// … and it is not known on which.
    pub hand_off_other_ns: u64,
    /// Not known who had it, or what the holder did.
    pub unknown_ns: u64,
}

impl Split {
    /// From release to run.
    pub fn hand_off_ns(&self) -> u64 {
        self.hand_off_cpu_idle_ns + self.hand_off_cpu_busy_ns + self.hand_off_other_ns
    }

    /// All parts.
    pub fn total_ns(&self) -> u64 {
        self.holder_running_ns
            + self.holder_blocked_ns
            + self.holder_runnable_ns
            + self.hand_off_ns()
            + self.unknown_ns
    }
}

/// A stack on which something is waited for, or that a holder ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    /// Functions, innermost first, without the scheduler's.
    pub stack: Vec<String>,
    /// The time that it stands for.
    pub ns: u64,
    /// The system call, or kind of kernel thread, by which it was entered.
    pub entry: Option<String>,
    /// Whether it is of a task of the workload.
    pub in_scope: bool,
}

/// Who had a lock while the workload waited for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holder {
    /// The task's name; for kernel workers with their work item.
    pub name: String,
    /// How long of the waits.
    pub ns: u64,
    /// Whether it is a task of the workload.
    pub in_scope: bool,
    /// What it ran meanwhile, sampled.
    pub stacks: Vec<Path>,
}

/// A lock that is waited for because of another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Through {
    /// What it is.
    pub kind: RootKind,
    /// Its class.
    pub class: String,
    /// Its object.
    pub object: Option<String>,
    /// How long the workload waited there for holders who waited in the root.
    pub wait_ns: u64,
}

/// Idle time behind a task that ran alone, or with too few others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Serial {
    /// The command line, or the name if there is none.
    pub command: String,
    /// CPU-ns that idled meanwhile.
    pub idle_ns: f64,
    /// How many tasks with that command.
    pub tasks: u32,
    /// From the first to the last such moment.
    pub when: Option<(TimeNs, TimeNs)>,
}

/// Who waits for whom, as a graph from waiters over locks to what they end at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    /// Tasks and locks.
    pub nodes: Vec<ChainNode>,
    /// Who waits for whom.
    pub edges: Vec<ChainEdge>,
}

/// A node of the graph.
#[derive(Clone, Debug, PartialEq)]
pub enum ChainNode {
    /// Tasks of one name.
    Tasks {
        /// The name.
        name: String,
        /// How many.
        count: u32,
    },
    /// A lock, or another end.
    End {
        /// What it is.
        kind: RootKind,
        /// Its class.
        class: String,
        /// Its object.
        object: Option<String>,
    },
}

/// An edge of the graph: indices into the nodes, and the time of waits along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainEdge {
    /// Who waits, or the lock.
    pub from: u32,
    /// What is waited for, or who has the lock.
    pub to: u32,
    /// How long.
    pub wait_ns: u64,
}

/// A stack with the time that it stands for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WeightedStack {
    /// The task's name.
    pub name: String,
    /// Whether it is a task of the workload.
    pub in_scope: bool,
    /// Kernel functions, innermost first.
    pub kernel: Vec<String>,
    /// User functions, innermost first.
    pub user: Vec<String>,
    /// How long.
    pub ns: u64,
    /// Waits or samples behind it.
    pub count: u64,
}

/// How much can be trusted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Events looked at.
    pub events: u64,
    /// Events that were lost.
    pub lost_events: u64,
    /// Time of the gaps that they left, added over CPUs.
    pub lost_ns: u64,
    /// Stacks that were lost.
    pub lost_stacks: u64,
    /// Names that were cut.
    pub truncated_names: u64,
    /// Observations of holders that were dropped because they contradicted what is certain.
    pub cycles_dropped: u64,
    /// Ends of waits without a beginning, and the reverse: the edges of the window, mostly.
    pub unpaired: u64,
    /// Tasks of the workload that ended.
    pub exits: u64,
    /// Those that ended otherwise than with 0: their names and statuses as `wait4` gives them (at most 100).
    pub failed: Vec<(String, i32)>,
    /// How long the control groups that held tasks of the workload back were throttled meanwhile, as their counters (`cpu.stat`)
    /// say, added over groups and CPUs.
    pub throttled_ns: u64,
    /// The time of the first event.
    pub start: TimeNs,
}
