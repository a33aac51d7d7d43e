//! Comparisons: of points within a result, and of two results.

use crate::{Budget, Lock, Mode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How large a difference must be before it can be told from noise here, derived from A/A pairs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Noise {
    /// Relative difference below which two points are not told apart, 0 to 1.
    pub threshold: f64,
    /// Pairs of the same with the same that it was derived from.
    pub pairs: u32,
    /// How it was derived, in words.
    pub how: String,
}

/// A point, named, for a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PointRef {
    /// Workload.
    pub workload: String,
    /// Target.
    pub target: String,
    /// Processes or threads.
    pub mode: Mode,
    /// Number of tasks.
    pub tasks: u32,
}

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// `b` does significantly more operations a second.
    Faster,
    /// `b` does significantly fewer operations a second.
    Slower,
    /// Any difference is within the noise.
    NoDifference,
    /// Too few rounds, or too unsteady ones, to say either.
    #[default]
    #[serde(other)]
    CannotSay,
}

impl Verdict {
    /// The words that reports use.
    pub fn words(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NoDifference => "no difference",
            Self::CannotSay => "cannot say",
        }
    }

    /// Whether a difference was found.
    pub fn is_significant(self) -> bool {
        matches!(self, Self::Faster | Self::Slower)
    }
}

/// Two points and what differs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Comparison {
    /// The base.
    pub a: PointRef,
    /// What is compared with it.
    pub b: PointRef,
    /// Throughput of `a`, operations a second (median).
    pub a_ops_per_s: Option<f64>,
    /// Throughput of `b`, operations a second (median).
    pub b_ops_per_s: Option<f64>,
    /// Throughput of `b` over throughput of `a`; null when either is void.
    pub ratio: Option<f64>,
    /// Lower end of the 95 % interval of the ratio; between separate runs it has room for what runs of the same differ by.
    pub low: Option<f64>,
    /// Upper end of the 95 % interval of the ratio.
    pub high: Option<f64>,
    /// Two-sided p-value of a permutation test over the rounds; null when there are too few, or when several runs a side decide.
    pub p_value: Option<f64>,
    /// Two-sided p-value of the same difference against what runs of the same differ by; null within one run.
    pub p_between: Option<f64>,
    /// The larger of both corrected for the number of points that are compared together (Holm); null when it is one of its own.
    pub p_adjusted: Option<f64>,
    /// What follows from these.
    pub verdict: Verdict,
    /// Budget of `b` less budget of `a`, CPU-us per operation.
    pub difference_us_per_op: Option<Budget>,
    /// Roots that grew, shrank, came or went, largest change first.
    pub roots: Vec<RootChange>,
    /// In words: where the difference goes back to, or why nothing can be said.
    pub because: Vec<String>,
}

impl Comparison {
    /// The p-value that decides, not yet corrected for the number of points: a difference has to pass both tests.
    pub fn p(&self) -> Option<f64> {
        [self.p_value, self.p_between].into_iter().flatten().reduce(f64::max)
    }
}

/// How a root differs between two points. A side that does not have it is null.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RootChange {
    /// The root.
    pub lock: Lock,
    /// Idle and spinning charged to it in `a`, CPU-us per operation.
    pub a_us_per_op: Option<f64>,
    /// Idle and spinning charged to it in `b`, CPU-us per operation.
    pub b_us_per_op: Option<f64>,
}

/// One side of `perfloss compare`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ResultRef {
    /// Where the result was read from, with the target when one was chosen.
    pub path: String,
    /// When the run began.
    pub started: String,
    /// Kernel release.
    pub kernel: String,
    /// Whether everything asked for had been measured.
    pub complete: bool,
}

/// Something that was not compared, and why.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Refusal {
    /// The point, or null when it concerns the results as wholes.
    pub point: Option<PointRef>,
    /// Why, and the way out.
    pub why: String,
}

/// What `perfloss compare` found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ComparisonReport {
    /// Name and version of the format: `perfloss.comparison/1`.
    pub schema: String,
    /// The base.
    pub base: ResultRef,
    /// What is compared with it.
    pub new: ResultRef,
    /// Noise threshold in force; null when neither result has one.
    pub noise: Option<Noise>,
    /// Loss that fails the comparison, 0 to 1: any significant one when 0.
    pub fail_above: f64,
    /// Whether a significant loss above it was found: exit status 1.
    pub loss_found: bool,
    /// The points that both have.
    pub comparisons: Vec<Comparison>,
    /// What was not compared.
    pub refused: Vec<Refusal>,
    /// Differences between the results that were allowed by the user or do not forbid comparing, in words.
    pub notes: Vec<String>,
}
