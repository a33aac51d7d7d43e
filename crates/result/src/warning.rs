//! Warnings: what to keep in mind about a point or a run. Each names the option that helps, where there is one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something to keep in mind; its text (`Display`) is one line that names the option that helps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Warning {
    /// The rounds differ much.
    RoundsDiffer {
        /// (Largest - smallest) / median of the rounds' rates.
        spread: f64,
        /// What is known about the reason; null when nothing is.
        because: Option<String>,
    },
    /// Too few rounds for a comparison to find anything.
    FewRounds {
        /// Rounds kept.
        rounds: u32,
    },
    /// The window holds too few operations per task.
    FewOperations {
        /// Fewest operations of a task in a window.
        operations: f64,
    },
    /// The tasks were very unequal.
    UnequalTasks {
        /// Fastest task over slowest.
        ratio: f64,
    },
    /// The hypervisor took CPU time away.
    Steal {
        /// Share of the CPU time, 0 to 1.
        share: f64,
    },
    /// Strangers used the allowed CPUs.
    OtherLoad {
        /// Share of the CPU time, 0 to 1.
        share: f64,
    },
    /// A quota held the tasks back.
    Throttled {
        /// Seconds over all rounds.
        seconds: f64,
    },
    /// The CPU frequency was not the same in all rounds.
    FrequencyVaries {
        /// Lowest mean of a round, MHz.
        low_mhz: f64,
        /// Highest mean of a round, MHz.
        high_mhz: f64,
    },
    /// The frequency governor is not `performance`.
    Governor {
        /// The governor.
        governor: String,
    },
    /// The rate was not steady when the warm-up reached its limit.
    WarmUpNotSteady {
        /// Rounds concerned.
        rounds: u32,
        /// The limit, seconds.
        limit_s: f64,
    },
    /// Rounds were tainted and repeated.
    RoundsRepeated {
        /// How many.
        rounds: u32,
        /// Rounds that stayed tainted after the last try.
        still_tainted: u32,
    },
    /// User and system time come from the scheduler's tick.
    TickSamples {
        /// Half the interval of user and system shares, percentage points.
        points: f64,
    },
    /// The kernel does not count interrupts apart.
    InterruptsNotApart,
    /// Independent sources of the budget disagree.
    Unaccounted {
        /// Share of the total, -1 to 1.
        share: f64,
    },
    /// Exit statuses of descendants were not checked.
    ExitStatusNotChecked,
    /// Causes could not be looked for.
    NoCapture {
        /// Why, and how to grant it.
        because: String,
    },
    /// Events were lost in capture.
    LostEvents {
        /// How many.
        lost: u64,
        /// Share of all events, 0 to 1.
        share: f64,
    },
    /// Stacks were lost in capture.
    LostStacks {
        /// How many.
        lost: u64,
    },
    /// Capture changed what it watched.
    Disturbed {
        /// Throughput with capture over throughput without.
        throughput_ratio: Option<f64>,
        /// Idle share with capture less idle share without, percentage points.
        idle_points: Option<f64>,
    },
    /// It is not guaranteed that nothing outlives the run.
    EndNotGuaranteed {
        /// Why.
        because: String,
    },
    /// Anything else, in words.
    Other {
        /// One line, with the option that helps.
        text: String,
    },
    /// A warning that this version does not know.
    #[serde(other)]
    Unknown,
}

/// Percent with as many digits as matter.
fn percent(share: f64) -> String {
    let p = share * 100.0;
    if p.abs() >= 1e9 {
        // Only a stranger's file says such things.
        "an absurd share".to_owned()
    } else if p.abs() >= 10.0 || p == 0.0 {
        format!("{p:.0} %")
    } else {
        format!("{p:.1} %")
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RoundsDiffer { spread, because } => {
                write!(f, "the rounds differ by {}", percent(*spread))?;
                match because {
                    Some(because) => write!(f, ": {because}"),
                    None => write!(f, ": more rounds narrow the interval (--rounds)"),
                }
            }
            Self::FewRounds { rounds } => write!(
                f,
                "{rounds} {} cannot show a significant difference; 8 can (--rounds 8)",
                if *rounds == 1 { "round" } else { "rounds" }
            ),
            Self::FewOperations { operations } => write!(
                f,
                "a task did only {operations:.1} operations in a window: make it longer (--seconds)"
            ),
            Self::UnequalTasks { ratio } => {
                write!(f, "the fastest task did {ratio:.1} times as much as the slowest")
            }
            Self::Steal { share } => write!(
                f,
                "the hypervisor took {} of the CPU time: repeat on a quiet host, or with more rounds (--rounds)",
                percent(*share)
            ),
            Self::OtherLoad { share } => write!(
                f,
                "other processes used {} of the allowed CPUs: stop them, or run on CPUs of your own (taskset, cpuset)",
                percent(*share)
            ),
            Self::Throttled { seconds } => write!(
                f,
                "a CPU quota held the tasks back for {seconds:.2} s: raise it (cpu.max) or use fewer tasks (-t)"
            ),
            Self::FrequencyVaries { low_mhz, high_mhz } => write!(
                f,
                "the CPU frequency was between {low_mhz:.0} and {high_mhz:.0} MHz: fix it (cpupower frequency-set) or use more rounds (--rounds)"
            ),
            Self::Governor { governor } => write!(
                f,
                "the frequency governor is {governor}: `cpupower frequency-set -g performance` steadies the figures"
            ),
            Self::WarmUpNotSteady { rounds, limit_s } => write!(
                f,
                "{rounds} {} not steady after {limit_s:.1} s of warm-up: longer windows help (--seconds)",
                if *rounds == 1 { "round was" } else { "rounds were" }
            ),
            Self::RoundsRepeated { rounds, still_tainted } => {
                write!(
                    f,
                    "{rounds} disturbed {} repeated",
                    if *rounds == 1 { "round was" } else { "rounds were" }
                )?;
                if *still_tainted > 0 {
                    write!(f, ", {still_tainted} stayed disturbed: repeat on a quiet machine")?;
                }
                Ok(())
            }
            Self::TickSamples { points } => write!(
                f,
                "user and system time are tick samples, good to ±{points:.0} points: longer windows narrow it (--seconds)"
            ),
            Self::InterruptsNotApart => write!(
                f,
                "interrupts are part of user and system time: this kernel has no CONFIG_IRQ_TIME_ACCOUNTING, or does not say"
            ),
            Self::Unaccounted { share } => write!(
                f,
                "the sources of the budget disagree by {} of the total: longer windows help (--seconds)",
                percent(*share)
            ),
            Self::ExitStatusNotChecked => write!(
                f,
                "the exit statuses of commands that the tasks started were not checked: that needs capture (root, without --no-capture)"
            ),
            Self::NoCapture { because } => write!(f, "no causes: {because}"),
            Self::LostEvents { lost, share } => {
                write!(f, "{lost} events were lost ({}): shorter windows help (--seconds)", percent(*share))
            }
            Self::LostStacks { lost } => {
                write!(f, "{lost} stacks were lost: their time is shown without a path")
            }
            Self::Disturbed { throughput_ratio, idle_points } => {
                write!(f, "capture changed what it watched")?;
                if let Some(ratio) = throughput_ratio {
                    write!(f, ": it kept {} of the throughput", percent(*ratio))?;
                }
                if let Some(points) = idle_points {
                    write!(f, ", idle moved by {points:+.1} points")?;
                }
                write!(f, "; take the shares of the roots as a hint only")
            }
            Self::EndNotGuaranteed { because } => {
                write!(f, "it is not guaranteed that nothing outlives a kill of perfloss: {because}")
            }
            Self::Other { text } => f.write_str(text),
            Self::Unknown => f.write_str("a warning that this version of perfloss does not know"),
        }
    }
}
