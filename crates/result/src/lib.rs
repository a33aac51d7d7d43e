//! The result of a run: the types of `result.json`, their schema, reading and writing them.
//!
//! A result is a folder ([`Folder`]) whose `result.json` holds everything that a report shows. The names of the
//! fields are a contract with scripts: fields may be added within `perfloss.result/1`, never renamed or removed.
//!
//! Two rules hold for every number here. What was not measured is `None` (`null` in the file), never 0. And every
//! number is finite: JSON has no other, and [`write_json`] refuses what could not be read back.
//!
//! This crate knows nothing about how anything was measured, and it prints nothing. Files are read as if a stranger
//! had sent them ([`read`]): bounded in size and depth, with one clear line when they are not what they should be.

mod budget;
mod compare;
mod detail;
mod folder;
mod machine;
mod point;
mod read;
mod roots;
mod schema;
mod warning;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use budget::{Budget, BudgetPart, NamedCost, PartSource};
pub use compare::{Comparison, ComparisonReport, Noise, PointRef, Refusal, ResultRef, RootChange, Verdict};
pub use detail::{
    ChainEdge, ChainNode, ChainNodeKind, Chains, HandOff, Interval, Stack, Stacks, TaskState, Timeline,
    TimelineRow,
};
pub use folder::{Folder, WriteError, write_json};
pub use machine::{Cpu, Machine, NumaNode};
pub use point::{Capture, CpuSeconds, Estimate, Mode, PerTask, Point, Pressure, Recorded, Round, Taint};
pub use read::{MAX_FILE_BYTES, ReadError, parse, read, result_file};
pub use roots::{Holder, Lock, Path, Remedy, RemedyHow, Root, RootKind, Split, WaitThrough};
pub use schema::{comparison_schema, result_schema};
pub use warning::Warning;

/// The name and version that a `result.json` of this build carries in `schema`.
pub const SCHEMA: &str = "perfloss.result/1";

/// The name and version that the JSON of `compare` carries in `schema`.
pub const COMPARISON_SCHEMA: &str = "perfloss.comparison/1";

/// Everything that a report shows about one run or recording: the content of `result.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// Name and version of the format: `perfloss.result/1`.
    pub schema: String,
    /// Whether everything that was asked for was measured; false while the run goes on and after an interruption.
    pub complete: bool,
    /// Whether the user or a signal ended the run early.
    #[serde(default)]
    pub interrupted: bool,
    /// What made this result.
    #[serde(default)]
    pub made_by: MadeBy,
    /// Version of the perfloss that wrote this.
    #[serde(default)]
    pub perfloss_version: String,
    /// When the run began, RFC 3339 in UTC.
    #[serde(default)]
    pub started: String,
    /// Wall time from start to the last update of this file, seconds.
    #[serde(default)]
    pub elapsed_s: f64,
    /// Seed of the order of the rounds and of every other random choice.
    pub seed: u64,
    /// Where it ran.
    #[serde(default)]
    pub machine: Machine,
    /// The command line, argument by argument.
    #[serde(default)]
    pub command: Vec<String>,
    /// The options in force, defaults included.
    #[serde(default)]
    pub options: Options,
    /// Noise threshold of this machine and run, when there were A/A rounds to derive it from.
    #[serde(default)]
    pub noise: Option<Noise>,
    /// The workloads that were run, each once.
    #[serde(default)]
    pub workloads: Vec<Workload>,
    /// The targets that were used, each once, in the order in which the user named them.
    #[serde(default)]
    pub targets: Vec<Target>,
    /// Warnings that hold for the whole run.
    #[serde(default)]
    pub warnings: Vec<Warning>,
    /// What was measured.
    pub points: Vec<Point>,
    /// Scaling laws, one per workload, target and mode for which one was tried.
    #[serde(default)]
    pub scaling: Vec<Scaling>,
    /// Comparisons between points of this result.
    #[serde(default)]
    pub comparisons: Vec<Comparison>,
}

impl RunResult {
    /// An empty, incomplete result to fill as the run goes.
    pub fn new(made_by: MadeBy, seed: u64) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            complete: false,
            interrupted: false,
            made_by,
            perfloss_version: String::new(),
            started: String::new(),
            elapsed_s: 0.0,
            seed,
            machine: Machine::default(),
            command: Vec::new(),
            options: Options::default(),
            noise: None,
            workloads: Vec::new(),
            targets: Vec::new(),
            warnings: Vec::new(),
            points: Vec::new(),
            scaling: Vec::new(),
            comparisons: Vec::new(),
        }
    }

    /// The workload of that name, if the result describes it.
    pub fn workload(&self, name: &str) -> Option<&Workload> {
        self.workloads.iter().find(|w| w.name == name)
    }

    /// The target of that name, if the result describes it.
    pub fn target(&self, name: &str) -> Option<&Target> {
        self.targets.iter().find(|t| t.name == name)
    }
}

/// The command that made a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MadeBy {
    /// `perfloss run`: tasks, targets and rounds were perfloss's own.
    #[default]
    Run,
    /// `perfloss record`: somebody else's workload was watched; there are no operations to count.
    Record,
}

/// The options in force, defaults included.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Options {
    /// Task counts asked for.
    pub tasks: Vec<u32>,
    /// Rounds asked for per point.
    pub rounds: u32,
    /// Window asked for per round, seconds.
    pub seconds: f64,
    /// Longest warm-up per round, seconds.
    pub warm_up_limit_s: Option<f64>,
    /// Whether each task was bound to a CPU of its own.
    pub pinned: bool,
    /// Whether causes were asked for.
    pub capture: bool,
    /// Any other option in force, as the command line spells it.
    pub other: BTreeMap<String, String>,
}

/// What one task does over and over.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Workload {
    /// Name, as in the points.
    pub name: String,
    /// Version of what it does: results of different versions are not compared.
    pub version: String,
    /// One line about what it does.
    pub description: String,
    /// What one operation is, in the singular: `compile`, `create + close + unlink`.
    pub operation: String,
    /// Anything else needed to run it again: source path, compiler and its version, hash of the source.
    pub facts: BTreeMap<String, String>,
}

/// Where a workload ran.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Target {
    /// Name, as in the points.
    pub name: String,
    /// What it is: `xfs`, `ext4`, `directory`, …
    pub kind: String,
    /// Facts by name: `mkfs` (the command line), `mount options`, `medium`, `size`, `version of mkfs`, …
    pub facts: BTreeMap<String, String>,
}

/// A scaling law fitted to the points of one workload on one target, X(N) = X1·N / (1 + σ(N−1) + κN(N−1)).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Scaling {
    /// Workload of the points.
    pub workload: String,
    /// Target of the points.
    pub target: String,
    /// Whether the tasks were processes or threads.
    pub mode: Mode,
    /// Contention coefficient; null when refused.
    pub sigma: Option<f64>,
    /// Coherency coefficient; null when refused.
    pub kappa: Option<f64>,
    /// Throughput of one task that the law gives, operations a second; null when refused.
    pub x1: Option<f64>,
    /// 95 % intervals of the coefficients by name, `[low, high]`.
    pub intervals: BTreeMap<String, [f64; 2]>,
    /// Coefficient of determination of the fit, 0 to 1; null when refused.
    pub fit: Option<f64>,
    /// Why no law was fitted (too few task counts, bad fit); null when one was.
    pub refused: Option<String>,
}
