//! One point: a workload on a target in a mode with a number of tasks, measured in rounds.

use crate::{Budget, Chains, Remedy, Root, Stacks, Timeline, Warning};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether tasks are processes or threads of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Each task is a process.
    #[default]
    Processes,
    /// The tasks are threads of one process.
    Threads,
    /// A workload that perfloss only watched.
    Recorded,
}

impl Mode {
    /// The word that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::Threads => "threads",
            Self::Recorded => "recorded",
        }
    }
}

/// What was measured at one point.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Point {
    /// Workload, with its variant: `create_unlink:own-dir`.
    pub workload: String,
    /// Target, as the user named it.
    pub target: String,
    /// Processes or threads.
    pub mode: Mode,
    /// Number of tasks.
    pub tasks: u32,
    /// False when a task died, failed or hung: then nothing of this point may be used.
    pub valid: bool,
    /// Why the point is void: which task, what happened, its last words; null when valid.
    pub invalid_because: Option<String>,
    /// What to keep in mind about this point.
    pub warnings: Vec<Warning>,
    /// Throughput over the kept rounds; null when void, or when there are no operations to count (`record`).
    pub ops_per_s: Option<Estimate>,
    /// How unequal the tasks were (medians over the rounds); null as above.
    pub per_task_ops_per_s: Option<PerTask>,
    /// Where the CPU time of an operation went; null as above.
    pub budget_us_per_op: Option<Budget>,
    /// Whether some of these tasks shared a core with another task; null when the topology is not known, or when the tasks
    /// were not bound and the scheduler could have put them either way.
    pub smt_shared: Option<bool>,
    /// CPUs of the tasks in order, when they were bound.
    pub cpus: Vec<u32>,
    /// The rounds as they were measured, in the order in which they ran, retries included.
    pub rounds: Vec<Round>,
    /// What a recording of somebody else's workload saw; null for `run`.
    pub recorded: Option<Recorded>,
    /// The captured window; null without capture.
    pub capture: Option<Capture>,
    /// What the idle, spinning and waiting time goes back to, worst first; empty without capture.
    pub roots: Vec<Root>,
    /// What would win it back.
    pub remedies: Vec<Remedy>,
    /// Who waits for whom; null without capture.
    pub chains: Option<Chains>,
    /// Stacks of the captured window with their weights; null without capture.
    pub stacks: Option<Stacks>,
    /// A short stretch of the captured window in full; null without capture.
    pub timeline: Option<Timeline>,
}

impl Point {
    /// Median of the operations a second; none when void.
    pub fn rate(&self) -> Option<f64> {
        if !self.valid {
            return None;
        }
        self.ops_per_s.as_ref().map(|e| e.median)
    }
}

/// A median over rounds with what is known of its uncertainty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Estimate {
    /// Median over the rounds.
    pub median: f64,
    /// Median absolute deviation over the rounds.
    pub mad: f64,
    /// Lower end of the 95 % bootstrap interval of the median.
    pub low: f64,
    /// Upper end of the 95 % bootstrap interval of the median.
    pub high: f64,
    /// The value of each kept round, in the order in which they ran.
    pub rounds: Vec<f64>,
}

impl Estimate {
    /// Half the width of the interval over the median, as a fraction; 0 for a median of 0.
    pub fn relative_half_width(&self) -> f64 {
        if self.median > 0.0 { (self.high - self.low) / 2.0 / self.median } else { 0.0 }
    }
}

/// How unequal the tasks were, operations a second of one task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PerTask {
    /// Slowest task.
    pub min: f64,
    /// Median task.
    pub median: f64,
    /// Fastest task.
    pub max: f64,
    /// Each task, in order: the median over the kept rounds.
    pub rates: Vec<f64>,
}

/// One round, raw.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Round {
    /// Number of the round among those of this point, from 0.
    pub round: u32,
    /// Position in the seeded order of the whole run, from 0.
    pub order: u32,
    /// Whether this round counts: a tainted round that was repeated does not.
    pub kept: bool,
    /// How often this round had been tried before.
    pub retries: u32,
    /// Length of the warm-up, seconds.
    pub warm_up_s: f64,
    /// Whether the rate was steady when the warm-up ended.
    pub warm_up_steady: bool,
    /// Length of the window by the monotonic clock, seconds.
    pub window_s: f64,
    /// Operations in the window; fractional, because work in flight at its edges counts in part.
    pub operations: f64,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Operations a second of each task, in order.
    pub per_task_ops_per_s: Vec<f64>,
    /// What the allowed CPUs did during the window.
    pub cpu: CpuSeconds,
    /// CPU time of strangers on the allowed CPUs, seconds; null when not known.
    pub other_load_s: Option<f64>,
    /// Time for which a quota held the tasks back, seconds; null when not counted.
    pub throttled_s: Option<f64>,
    /// Pressure-stall shares during the window; null when the kernel has none.
    pub pressure: Option<Pressure>,
    /// Mean of `procs_running` over the window; null when not sampled.
    pub procs_running: Option<f64>,
    /// Mean frequency of the allowed CPUs, MHz; null when the machine does not show it.
    pub frequency_mhz: Option<f64>,
    /// What makes this round doubtful.
    pub taints: Vec<Taint>,
}

/// What the allowed CPUs did during a window, CPU-seconds. What was not measured is null.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuSeconds {
    /// Capacity: allowed CPUs times window.
    pub capacity: Option<f64>,
    /// User code (`user` + `nice`).
    pub user: Option<f64>,
    /// Kernel code.
    pub system: Option<f64>,
    /// Hard and soft interrupts.
    pub irq: Option<f64>,
    /// Taken by the hypervisor.
    pub steal: Option<f64>,
    /// Idle, without iowait.
    pub idle: Option<f64>,
    /// Idle while a task waited for block I/O.
    pub iowait: Option<f64>,
    /// CPU time of the tasks and their children, user part, from their own accounts.
    pub tasks_user: Option<f64>,
    /// CPU time of the tasks and their children, system part, from their own accounts.
    pub tasks_system: Option<f64>,
}

/// Pressure-stall shares during a window, 0 to 1: the part of it in which somebody was held up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Pressure {
    /// For want of a CPU.
    pub cpu_some: Option<f64>,
    /// For want of I/O.
    pub io_some: Option<f64>,
    /// For want of memory.
    pub memory_some: Option<f64>,
}

/// What makes a round doubtful.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Taint {
    /// The hypervisor took away this share of the CPU time.
    Steal {
        /// 0 to 1.
        share: f64,
    },
    /// Strangers used this share of the allowed CPUs.
    OtherLoad {
        /// 0 to 1.
        share: f64,
    },
    /// A quota held the tasks back for so long.
    Throttled {
        /// Seconds.
        seconds: f64,
    },
    /// The warm-up reached its limit before the rate was steady.
    NotSteady,
    /// Memory pressure held somebody up.
    MemoryPressure {
        /// 0 to 1.
        share: f64,
    },
    /// Anything else, in words.
    Other {
        /// One line.
        text: String,
    },
    /// A taint that this version does not know.
    #[serde(other)]
    Unknown,
}

/// What a recording of somebody else's workload saw.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Recorded {
    /// Length of the recording, seconds.
    pub wall_s: f64,
    /// Capacity: allowed CPUs times wall time, CPU-seconds.
    pub capacity_s: f64,
    /// CPU time of the workload, CPU-seconds; null when not known.
    pub busy_s: Option<f64>,
    /// Idle time of the allowed CPUs, CPU-seconds; null when not known.
    pub idle_s: Option<f64>,
    /// Share of the capacity that was busy, 0 to 1; null when not known.
    pub busy_share: Option<f64>,
    /// User code of the workload, from samples, CPU-seconds; null when not sampled. So are the next three.
    pub user_s: Option<f64>,
    /// Kernel code of the workload, without spinning.
    pub system_s: Option<f64>,
    /// Spinning of the workload for locks.
    pub spin_s: Option<f64>,
    /// Interrupt handlers on top of the workload.
    pub irq_s: Option<f64>,
    /// What others used of the allowed CPUs, exact, CPU-seconds; null when not known.
    pub other_s: Option<f64>,
    /// How long tasks of the workload waited for a CPU, added over tasks, seconds; null when not known.
    pub runnable_s: Option<f64>,
    /// Time of the CPUs of which it is not known what they did, CPU-seconds (negative: known twice); null when not known.
    pub unaccounted_s: Option<f64>,
    /// Exit status of the command; null when none was started or a signal ended it.
    pub exit_status: Option<i32>,
}

/// What is known about the captured window of a point.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Capture {
    /// Events kept.
    pub events: u64,
    /// Events lost.
    pub lost_events: u64,
    /// Stacks lost.
    pub lost_stacks: u64,
    /// Throughput with capture over throughput without; null when there was no uncaptured round beside it.
    pub throughput_ratio: Option<f64>,
    /// Length of the captured windows, seconds.
    pub window_s: f64,
    /// Operations in the captured windows; null when there are none to count.
    pub operations: Option<f64>,
    /// Share of the time that was captured in full, 0 to 1.
    pub coverage: Option<f64>,
    /// Idle share of the allowed CPUs in the captured windows, 0 to 1.
    pub idle_share: Option<f64>,
    /// File of the trace within the result folder.
    pub trace: Option<String>,
}
