//! What perfloss and the processes of a round say to each other, as lines of JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use target::{Cleanup, Facts, Settings};
use workload::{Failure, Mode};

use crate::budget::Parts;

/// Everything that the processes of one round have to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoundSpec {
    /// What to run.
    pub workload: workload::Spec,
    /// Where.
    pub target: target::Spec,
    /// How targets are made.
    pub settings: Settings,
    /// What would be left in directories of the machine.
    pub cleanup: Cleanup,
    /// Processes or threads.
    pub mode: Mode,
    /// How many.
    pub tasks: u32,
    /// The allowed CPUs, in placing order.
    pub cpus: Vec<u32>,
    /// Whether each task is bound to a CPU.
    pub bind: bool,
    /// Length of the window, ns.
    pub window_ns: u64,
    /// Longest warm-up, ns.
    pub warm_up_limit_ns: u64,
    /// How long a task may take to become ready, or to end its operation when told to stop, ns.
    pub deadline_ns: u64,
    /// For everything random.
    pub seed: u64,
    /// What the user named and has to stay visible.
    pub keep_visible: Vec<PathBuf>,
    /// The niceness of the tasks: that of the user's shell, whatever ours is.
    pub nice: i32,
    /// In namespaces of its own, so that nothing can outlive the round.
    pub isolated: bool,
    /// Somebody captures this round: its window waits until that has begun, its tasks go on until it has ended, and it
    /// keeps a trail of its counts. Its rate is not to be mixed with those of other rounds.
    pub captured: bool,
}

/// What the round's processes tell perfloss.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The target is made, the tasks are ready; the gate opens.
    Started,
    /// The window is open.
    WindowOpen,
    /// The window is closed; the tasks still run.
    WindowClosed,
    /// This is what was seen.
    Measured(Box<Measured>),
    /// A task died, failed or hung.
    Void(Void),
    /// The target could not be made, or the harness itself failed.
    Broken(Broken),
}

/// Why the harness could not run a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Broken {
    /// One line: what, where, the way out.
    pub text: String,
    /// It is this machine or user that does not allow it.
    pub not_allowed: bool,
}

impl Broken {
    /// Something that should have worked.
    pub fn new(text: impl Into<String>) -> Broken {
        Broken { text: text.into(), not_allowed: false }
    }
}

impl From<target::Error> for Broken {
    fn from(error: target::Error) -> Broken {
        Broken { text: error.to_string(), not_allowed: error.kind() == target::ErrorKind::NotAllowed }
    }
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Broken {
        Broken::new(error.to_string())
    }
}

/// Why a round does not count: a task died, failed or hung.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}{why}", task.map(|t| format!("task {t}: ")).unwrap_or_default())]
pub struct Void {
    /// Which task, where it is known.
    pub task: Option<u32>,
    /// What happened, one line.
    pub why: String,
    /// The last words of the tasks, or of the command that failed.
    pub stderr: Option<String>,
}

impl Void {
    pub(crate) fn failed(task: Option<u32>, failure: Failure) -> Void {
        Void { task, why: failure.to_string(), stderr: failure.stderr }
    }

    pub(crate) fn because(task: Option<u32>, why: impl Into<String>) -> Void {
        Void { task, why: why.into(), stderr: None }
    }
}

/// What one round gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Length of the warm-up, seconds.
    pub warm_up_s: f64,
    /// Whether the rate was steady when it ended.
    pub steady: bool,
    /// Length of the window by the monotonic clock, seconds.
    pub window_s: f64,
    /// Operations of each task in the window; fractional.
    pub operations: Vec<f64>,
    /// Where the capacity of the allowed CPUs went.
    pub parts: Parts,
    /// Mean of `procs_running` at the window's edges; `None` where the kernel does not say.
    pub procs_running: Option<f64>,
    /// Share of the window with pressure (some): CPU, I/O, memory.
    pub pressure: [Option<f64>; 3],
    /// For how long a quota held the cgroup back, seconds.
    pub throttled_s: Option<f64>,
    /// Mean frequency of the allowed CPUs, MHz.
    pub frequency_mhz: Option<f64>,
    /// About the place.
    pub facts: Facts,
    /// What the tasks wrote to stderr although they went on.
    pub stderr: Option<String>,
    /// CPU time of strangers during the round, seconds; added by the side that can see them.
    pub other_load_s: Option<f64>,
    /// Of a captured round: the total of completed operations now and then (`CLOCK_MONOTONIC` ns, total).
    pub trail: Vec<(u64, u64)>,
}

impl Measured {
    /// Operations of all tasks.
    pub fn total(&self) -> f64 {
        self.operations.iter().sum()
    }

    /// Operations a second of all tasks.
    pub fn ops_per_s(&self) -> f64 {
        self.total() / self.window_s
    }

    /// Operations between two moments (`CLOCK_MONOTONIC` ns) of a captured round, interpolated on its trail. `None` if the trail
    /// does not reach that far.
    pub fn operations_between(&self, from_ns: u64, until_ns: u64) -> Option<f64> {
        let at = |ns: u64| -> Option<f64> {
            let after = self.trail.iter().position(|&(t, _)| t >= ns)?;
            let (t1, c1) = self.trail[after];
            let (t0, c0) = self.trail[after.checked_sub(1)?];
            let part = if t1 > t0 { (ns - t0) as f64 / (t1 - t0) as f64 } else { 0.0 };
            Some(c0 as f64 + part * c1.saturating_sub(c0) as f64)
        };
        Some(at(until_ns)? - at(from_ns)?)
    }
}

/// What the process that holds the tasks tells the supervisor of the round.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// All tasks were started: their process (or thread) ids, in order.
    Tasks(Vec<i32>),
    /// The workload could not be prepared, or a task failed.
    Failed {
        /// Which task; `None` for the preparation.
        task: Option<u32>,
        /// Why.
        failure: Failure,
    },
    /// A task ended that had not been told to.
    Died {
        /// Which.
        task: u32,
        /// Its wait status in words.
        how: String,
    },
    /// The last words of a clean end.
    CleanedUp {
        /// What could not be cleaned up.
        trouble: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_between_two_moments_are_interpolated_on_the_trail() {
        let mut measured: Measured = serde_json::from_value(serde_json::json!({
            "warm_up_s": 0.1, "steady": true, "window_s": 1.0, "operations": [1.0], "parts": Parts::default(),
            "procs_running": null, "pressure": [null, null, null], "throttled_s": null, "frequency_mhz": null,
            "facts": Facts::default(), "stderr": null, "other_load_s": null, "trail": []
        }))
        .unwrap();
        measured.trail = vec![(100, 0), (200, 10), (300, 30)];
        assert_eq!(measured.operations_between(150, 250), Some(15.0));
        assert_eq!(measured.operations_between(200, 300), Some(20.0));
        assert_eq!(measured.operations_between(50, 250), None);
        assert_eq!(measured.operations_between(150, 301), None);
    }
}
