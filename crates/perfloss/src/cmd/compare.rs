//! `perfloss compare`: what changed between two results, or between two targets or workloads of one.

mod judge;

use super::choose::Choice;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgGroup, Args as ClapArgs};
use report::select::Selection;
use result::{ComparisonReport, RunResult, Verdict};

use crate::exit::{Failure, Status};
use crate::terminal;
use judge::{Rules, Side};

/// Compare two results point by point: what changed, whether it is significant, and where each CPU microsecond went.
#[derive(ClapArgs, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("format"))]
pub struct Args {
    /// The result to compare with
    #[arg(value_name = "BASE")]
    base: PathBuf,
    /// The result to judge [default: BASE, where two of its targets or workloads are compared]
    #[arg(value_name = "NEW")]
    new: Option<PathBuf>,
    /// A further run of the base; several say how much two runs of the same differ on this machine
    #[arg(long, value_name = "RESULT")]
    also_base: Vec<PathBuf>,
    /// A further run of the new side
    #[arg(long, value_name = "RESULT")]
    also_new: Vec<PathBuf>,
    /// Fail only on losses above this: 3% or 0.03
    #[arg(long, value_name = "LOSS", default_value = "0%", value_parser = share)]
    fail_above: f64,
    #[command(flatten)]
    choice: Choice,
    /// Take the points of this target in BASE …
    #[arg(long, value_name = "TARGET", requires = "new_target", conflicts_with = "target")]
    base_target: Option<String>,
    /// … and compare those of this target in NEW with them
    #[arg(long, value_name = "TARGET", requires = "base_target")]
    new_target: Option<String>,
    /// Take the points of this workload in BASE …
    #[arg(long, value_name = "WORKLOAD", requires = "new_workload", conflicts_with = "workload")]
    base_workload: Option<String>,
    /// … and compare those of this workload in NEW with them
    #[arg(long, value_name = "WORKLOAD", requires = "base_workload")]
    new_workload: Option<String>,
    /// Compare even what should not be compared: other CPUs, other versions of a workload
    #[arg(long)]
    anyway: bool,
    /// As JSON (schema: docs/comparison.schema.json)
    #[arg(long, group = "format")]
    json: bool,
    /// As Markdown, for an issue or a mailing list
    #[arg(long, group = "format")]
    markdown: bool,
}

const EXAMPLES: &str = "\
Examples:
  perfloss compare base/ new/ --fail-above 3%                  a gate: exit status 1 on a loss
  perfloss compare base1/ new1/ --also-base base2/ --also-base base3/ --also-new new2/ --also-new new3/
  perfloss compare RESULT --base-target ext4 --new-target xfs  two targets of one result
  perfloss compare RESULT --base-workload create_unlink --new-workload create_unlink:own-dir
  perfloss compare base/ new/ --markdown

A difference counts as significant when a permutation test over the rounds says so at the 5 % level, corrected for \
the number of points compared together, and when it is larger than the A/A noise of the results (name a target twice \
in a run, as in --on xfs,xfs, to have it measured). A machine drifts between two runs: a difference also has to be \
larger than runs of the same differ by. Several runs a side show it (--also-base, --also-new); where they were made in \
turn (base, new, base, new, …), three or more of each are compared pair by pair, which a slow drift does not disturb. With one run a side two runs are taken to differ as much as two rounds do, and by 5 % at least: where \
rounds differ by 2 %, a loss of a tenth is found; where they differ by more, it takes more runs, or both in one run.

Exit status: 0 no significant loss, 1 a significant loss above --fail-above, 2 bad usage or not comparable, \
3 nothing can be said: points are void or disturbed, or there are too few rounds.";

/// A loss as a share of one: `3%`, `0.03`.
fn share(text: &str) -> Result<f64, String> {
    let trimmed = text.trim();
    let value = match trimmed.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok().map(|p| p / 100.0),
        None => trimmed.parse::<f64>().ok(),
    };
    match value {
        Some(v) if (0.0..1.0).contains(&v) => Ok(v),
        _ => Err("give a share from 0 to below 1, as in 3% or 0.03".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Status, Failure> {
    let within = args.base_target.is_some() || args.base_workload.is_some();
    let new = match &args.new {
        Some(new) => new,
        None if within => &args.base,
        None => {
            return Err(Failure::usage(
                "what to compare? name a second result, or two targets (--base-target, --new-target) \
                 or workloads (--base-workload, --new-workload) of this one",
            ));
        }
    };
    let read = |path: &Path| result::read(path).map_err(|e| Failure::new(Status::Usage, e));
    let base_result = read(&args.base)?;
    let new_result = if *new == args.base { base_result.clone() } else { read(new)? };
    let selection = |workload: &Option<String>, target: &Option<String>| {
        let mut selection = args.choice.selection();
        selection.workload = workload.clone().or(selection.workload);
        selection.target = target.clone().or(selection.target);
        selection
    };
    let base = Side {
        result: &base_result,
        path: args.base.display().to_string(),
        selection: selection(&args.base_workload, &args.base_target),
    };
    let new = Side {
        result: &new_result,
        path: new.display().to_string(),
        selection: selection(&args.new_workload, &args.new_target),
    };
    for side in [&base, &new] {
        nothing_meant(side.result, &side.selection, &side.path)?;
    }
    let read_all = |paths: &[PathBuf]| paths.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>();
    let (more_base, more_new) = (read_all(&args.also_base)?, read_all(&args.also_new)?);
    let rules = Rules {
        fail_above: args.fail_above,
        anyway: args.anyway,
        more_base: &more_base,
        more_new: &more_new,
    };
    let report = judge::compare(&base, &new, &rules);
    if report.comparisons.is_empty()
        && let Some(refusal) = report.refused.iter().find(|r| r.point.is_none())
    {
        return Err(Failure::usage(format!("not comparable: {}", refusal.why)));
    }
    print(args, &report)?;
    Ok(status(&report))
}

fn nothing_meant(result: &RunResult, selection: &Selection, path: &str) -> Result<(), Failure> {
    if !selection.of(result).is_empty() {
        return Ok(());
    }
    let list = |names: Vec<&str>| {
        let mut names: Vec<String> = names.into_iter().map(|n| report::text::plain(n, 60)).collect();
        names.sort();
        names.dedup();
        names.truncate(12);
        names.join(", ")
    };
    Err(Failure::usage(format!(
        "{path}: no point is meant; it has the workloads {} on {}",
        list(result.points.iter().map(|p| p.workload.as_str()).collect()),
        list(result.points.iter().map(|p| p.target.as_str()).collect())
    )))
}

fn print(args: &Args, report: &ComparisonReport) -> Result<(), Failure> {
    let bytes = if args.json {
        result::write_json(report).map_err(|e| Failure::new(Status::Untrusted, e))?
    } else if args.markdown {
        report::comparison::markdown(report).into_bytes()
    } else {
        report::comparison::terminal(report, terminal::width(), terminal::color()).into_bytes()
    };
    let mut out = std::io::stdout().lock();
    let written = out.write_all(&bytes).and_then(|()| out.flush());
    match written {
        // Who stops reading has seen enough; the exit status is still the answer.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot print the comparison").map_err(Failure::from),
    }
}

/// A loss is a loss whatever else could not be judged; without one, what could not be judged is no success.
fn status(report: &ComparisonReport) -> Status {
    let unsure = report.comparisons.iter().all(|c| c.verdict == Verdict::CannotSay);
    if report.loss_found {
        Status::Loss
    } else if unsure || !report.refused.is_empty() {
        Status::Untrusted
    } else {
        Status::Done
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn a_loss_is_given_in_percent_or_as_a_share() {
        assert_eq!(share("3%"), Ok(0.03));
        assert_eq!(share(" 0.5 %"), Ok(0.005));
        assert_eq!(share("0.03"), Ok(0.03));
        for wrong in ["3", "-1%", "100%", "x", "", "nan", "inf%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
