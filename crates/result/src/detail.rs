//! What the pictures are drawn from: who waits for whom, stacks with weights, a stretch of time in full.

use crate::RootKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who waits for whom, summed over the captured windows: a graph from waiters over locks to roots.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Chains {
    /// Waiters, locks and roots.
    pub nodes: Vec<ChainNode>,
    /// `from` waits for, or is held by, `to`; indices into `nodes`.
    pub edges: Vec<ChainEdge>,
}

/// What a node of the graph is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChainNodeKind {
    /// Tasks with the same name.
    Tasks,
    /// A lock that is waited for.
    Lock,
    /// The end of chains.
    Root,
    /// Anything else.
    #[default]
    #[serde(other)]
    Other,
}

/// A node of the graph.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChainNode {
    /// What it is.
    pub kind: ChainNodeKind,
    /// Command of the tasks, or class of the lock.
    pub label: String,
    /// Lock object, or a count of tasks; null when there is none.
    pub detail: Option<String>,
    /// Kind of the lock or root; null for tasks.
    pub lock_kind: Option<RootKind>,
}

/// An edge of the graph.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChainEdge {
    /// Index of the node that waits (or of the lock).
    pub from: u32,
    /// Index of the node waited for (or of the holder).
    pub to: u32,
    /// Time along this edge in the captured windows, seconds.
    pub wait_s: f64,
    /// Time along this edge, us per operation; null without operations.
    pub us_per_op: Option<f64>,
    /// Number of waits.
    pub waits: u64,
}

/// Stacks of the captured windows with their weights.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Stacks {
    /// Names of frames; stacks hold indices into it.
    pub frames: Vec<String>,
    /// Time off the CPU.
    pub off_cpu: Vec<Stack>,
    /// Time on the CPU.
    pub on_cpu: Vec<Stack>,
    /// Operations in the captured windows, to get costs per operation; null when there are none to count.
    pub operations: Option<f64>,
}

/// One stack and its weight.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Stack {
    /// Command of the task.
    pub comm: String,
    /// Whether it is a task of the workload; null when not known.
    pub of_workload: Option<bool>,
    /// Kernel frames, innermost first.
    pub kernel: Vec<u32>,
    /// User frames, innermost first.
    pub user: Vec<u32>,
    /// Weight, microseconds in the captured windows.
    pub us: f64,
    /// Number of waits or samples behind the weight.
    pub count: u64,
}

/// A short stretch of a captured window in full.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Timeline {
    /// Where the stretch begins, seconds after the start of the captured window.
    pub start_s: f64,
    /// Length of the stretch, microseconds.
    pub length_us: f64,
    /// One row a task, in the order to show them.
    pub rows: Vec<TimelineRow>,
    /// Locks that intervals and hand-offs name by index: `class`, with `object` after a comma where it is known.
    pub locks: Vec<String>,
    /// Hand-offs from a task that releases to the one that runs next.
    pub hand_offs: Vec<HandOff>,
}

/// One task of a timeline.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TimelineRow {
    /// Thread id.
    pub tid: i32,
    /// Command.
    pub comm: String,
    /// Whether it is a task of the workload; null when not known.
    pub of_workload: Option<bool>,
    /// What it did, in order of time, without overlaps.
    pub intervals: Vec<Interval>,
}

/// What a task did during an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// On a CPU.
    Running,
    /// On a CPU, spinning for a lock.
    Spinning,
    /// Waiting for a CPU.
    Runnable,
    /// Off the CPU, waiting for a lock.
    BlockedLock,
    /// Off the CPU, waiting for I/O.
    BlockedIo,
    /// Off the CPU, waiting for something else.
    Blocked,
    /// Not known.
    #[default]
    #[serde(other)]
    Unknown,
}

impl TaskState {
    /// The words that reports use.
    pub fn words(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Spinning => "spinning",
            Self::Runnable => "runnable",
            Self::BlockedLock => "waiting for a lock",
            Self::BlockedIo => "waiting for I/O",
            Self::Blocked => "blocked",
            Self::Unknown => "unknown",
        }
    }
}

/// One interval of a timeline.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Interval {
    /// Start, microseconds after the start of the stretch.
    pub at_us: f64,
    /// Length, microseconds.
    pub us: f64,
    /// What the task did.
    pub state: TaskState,
    /// CPU, while running; null otherwise.
    pub cpu: Option<u32>,
    /// Lock waited for, index into [`Timeline::locks`]; null when none.
    pub lock: Option<u32>,
}

/// From the release of a lock to the moment its next holder runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HandOff {
    /// Lock, index into [`Timeline::locks`]; null when not known.
    pub lock: Option<u32>,
    /// Row of the task that releases, index into [`Timeline::rows`]; null when it is none of them.
    pub from: Option<u32>,
    /// Row of the next holder.
    pub to: u32,
    /// Release, microseconds after the start of the stretch.
    pub released_us: f64,
    /// The next holder runs, microseconds after the start of the stretch.
    pub runs_us: f64,
    /// Whether the CPU on which it then runs was idle; null when not known.
    pub cpu_idle: Option<bool>,
}
