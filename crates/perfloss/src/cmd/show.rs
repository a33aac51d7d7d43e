//! `perfloss show`: prints a result again, or converts it.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{ArgGroup, Args as ClapArgs};
use report::flamegraph::{self, Which};
use report::select::{Selection, with_most_waiting};
use result::{Point, RunResult};

use super::choose::Choice;
use crate::exit::{Failure, Status};
use crate::terminal;

/// Print a result again, or convert it.
#[derive(ClapArgs, Debug)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("format"), group = ArgGroup::new("stacks"), group = ArgGroup::new("one_side"))]
pub struct Args {
    /// The result: its folder, or its result.json
    #[arg(value_name = "RESULT")]
    result: PathBuf,
    /// As JSON (schema: docs/result.schema.json)
    #[arg(long, group = "format")]
    json: bool,
    /// As a page for a browser, one file without network
    #[arg(long, group = "format")]
    html: bool,
    /// As Markdown, for an issue or a mailing list
    #[arg(long, group = "format")]
    markdown: bool,
    /// The stacks of a captured point, folded: one stack a line with its microseconds
    #[arg(long, groups = ["format", "stacks", "one_side"])]
    folded: bool,
    /// The stacks of a captured point as a flame graph (SVG)
    #[arg(long, groups = ["format", "stacks", "one_side"])]
    flame_graph: bool,
    /// The stacks of a captured point as a pprof profile
    #[arg(long, groups = ["format", "stacks"])]
    pprof: bool,
    /// The timeline of a captured point for ui.perfetto.dev
    #[arg(long, group = "format")]
    perfetto: bool,
    /// points.parquet, roots.parquet and waits.parquet, into the directory of --output
    #[arg(long, group = "format", requires = "output")]
    parquet: bool,
    /// Write here instead of to standard output (--parquet: the directory)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
    /// Time on the CPU instead of off it (--folded, --flame-graph)
    #[arg(long, requires = "one_side")]
    on_cpu: bool,
    /// Stacks of all tasks, not only of the workload's (--folded, --flame-graph, --pprof)
    #[arg(long, requires = "stacks")]
    all_tasks: bool,
    /// The difference an operation to this target, in the same workload and tasks (--flame-graph)
    #[arg(long, value_name = "TARGET", requires = "flame_graph")]
    against: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  perfloss show perfloss-results/2026-11-30-0912
  perfloss show RESULT --json | jq '.points[] | [.target, .tasks, .ops_per_s.median]'
  perfloss show RESULT --html -o report.html
  perfloss show RESULT --folded --target xfs -t 2 | flamegraph.pl > off.svg
  perfloss show RESULT --flame-graph --target xfs --against ext4 -o difference.svg
  perfloss show RESULT --pprof -o off.pb.gz && go tool pprof -http : off.pb.gz
  perfloss show RESULT --perfetto -o xfs.pftrace               to be opened in ui.perfetto.dev
  perfloss show RESULT --parquet -o tables/

Where a format holds one captured point, it is the one whose tasks waited most, unless \
--workload, --target and --tasks choose another. Stacks are those of the workload's tasks; \
what kernel threads and others did is there with --all-tasks.

Exit status: 0 done, 2 bad usage, or RESULT is none or cannot be read.";

/// Runs the command.
pub fn run(args: &Args) -> Result<Status, Failure> {
    let mut result = result::read(&args.result).map_err(|e| Failure::new(Status::Usage, e))?;
    let selection = args.choice.selection();
    if selection.of(&result).is_empty() && !result.points.is_empty() {
        return Err(Failure::usage(format!("no point of this result is meant; it has {}", names(&result))));
    }
    let bytes = if args.html {
        keep(&mut result, &selection);
        report::html::page(&result).into_bytes()
    } else if args.json {
        keep(&mut result, &selection);
        result::write_json(&result).map_err(|e| Failure::new(Status::Usage, e))?
    } else if args.markdown {
        keep(&mut result, &selection);
        report::markdown::render(&result).into_bytes()
    } else if args.parquet {
        keep(&mut result, &selection);
        return parquet(args, &result);
    } else if args.folded || args.flame_graph || args.pprof || args.perfetto {
        captured(args, &result, &selection)?
    } else {
        keep(&mut result, &selection);
        let (width, color) = match args.output {
            Some(_) => (report::terminal::WIDEST, false),
            None => (terminal::width(), terminal::color()),
        };
        report::terminal::render(&result, width, color).into_bytes()
    };
    write(args, &bytes, args.pprof || args.perfetto)?;
    Ok(Status::Done)
}

/// Leaves only the points that are meant, and what is said about them.
fn keep(result: &mut RunResult, selection: &Selection) {
    if *selection == Selection::default() {
        return;
    }
    result.points.retain(|p| selection.matches(p));
    let points = &result.points;
    let there = |r: &result::PointRef| {
        points.iter().any(|p| {
            p.workload == r.workload && p.target == r.target && p.mode == r.mode && p.tasks == r.tasks
        })
    };
    result.comparisons.retain(|c| there(&c.a) && there(&c.b));
    result.scaling.retain(|s| points.iter().any(|p| p.workload == s.workload && p.target == s.target));
    result.targets.retain(|t| points.iter().any(|p| p.target == t.name));
    result.workloads.retain(|w| points.iter().any(|p| p.workload == w.name));
}

/// The points in words, for messages.
fn names(result: &RunResult) -> String {
    const SHOWN: usize = 8;
    let mut names: Vec<String> = result.points.iter().take(SHOWN).map(name).collect();
    if result.points.len() > SHOWN {
        names.push(format!("{} more", result.points.len() - SHOWN));
    }
    names.join("; ")
}

fn name(point: &Point) -> String {
    report::verdict::point_name(point, 60)
}

/// Formats of one captured point.
fn captured(args: &Args, result: &RunResult, selection: &Selection) -> Result<Vec<u8>, Failure> {
    let usage = |e: report::FormatError| Failure::new(Status::Usage, e);
    let meant = selection.of(result);
    let point = if args.perfetto {
        let drawn: Vec<&Point> = meant.iter().copied().filter(|p| p.timeline.is_some()).collect();
        with_most_waiting(&drawn).or_else(|| drawn.first().copied())
    } else {
        with_most_waiting(&meant)
    };
    if args.perfetto {
        return report::perfetto::trace(point.ok_or_else(|| usage(report::FormatError::NoTimeline))?)
            .map_err(usage);
    }
    let mut point = point.cloned().ok_or_else(|| usage(report::FormatError::NoStacks))?;
    if !args.all_tasks {
        only_workload(&mut point);
    }
    let point = &point;
    if args.pprof {
        return report::pprof::profile(point).map_err(usage);
    }
    let stacks = point.stacks.as_ref().ok_or_else(|| usage(report::FormatError::NoStacks))?;
    let which = if args.on_cpu { Which::OnCpu } else { Which::OffCpu };
    if args.folded {
        return Ok(report::stacks::folded(stacks, which.of(stacks)).into_bytes());
    }
    let Some(against) = &args.against else {
        return flamegraph::svg(stacks, which, &name(point)).map_err(usage);
    };
    let base = result
        .points
        .iter()
        .find(|p| {
            p.target == *against
                && p.workload == point.workload
                && p.mode == point.mode
                && p.tasks == point.tasks
        })
        .ok_or_else(|| {
            Failure::usage(format!("--against {against:?}: no such point; this result has {}", names(result)))
        })?;
    let mut base = base.clone();
    if !args.all_tasks {
        only_workload(&mut base);
    }
    let base_stacks = base.stacks.as_ref().ok_or_else(|| usage(report::FormatError::NoStacks))?;
    flamegraph::difference_svg(base_stacks, stacks, which, &name(&base), &name(point)).map_err(usage)
}

/// Only the stacks of the workload's tasks: capture sees everybody on the machine.
fn only_workload(point: &mut Point) {
    if let Some(stacks) = &mut point.stacks {
        for list in [&mut stacks.off_cpu, &mut stacks.on_cpu] {
            *list = report::stacks::of_workload(list);
        }
    }
}

fn parquet(args: &Args, result: &RunResult) -> Result<Status, Failure> {
    let Some(dir) = &args.output else {
        return Err(Failure::usage("--parquet writes several files: name their directory with --output"));
    };
    let files = report::columns::tables(result).map_err(|e| Failure::new(Status::Usage, e))?;
    std::fs::create_dir_all(dir)
        .with_context(|| format!("cannot make {}", dir.display()))
        .map_err(|e| Failure::new(Status::NotAllowed, e))?;
    for file in files {
        let path = dir.join(file.name);
        std::fs::write(&path, file.bytes)
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(|e| Failure::new(Status::NotAllowed, e))?;
    }
    Ok(Status::Done)
}

/// To the file that was named, or to standard output.
fn write(args: &Args, bytes: &[u8], binary: bool) -> Result<(), Failure> {
    match &args.output {
        Some(path) => std::fs::write(path, bytes)
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(|e| Failure::new(Status::NotAllowed, e)),
        None if binary && std::io::stdout().is_terminal() => {
            Err(Failure::usage("this format is not for a terminal: name a file with --output"))
        }
        None => {
            let mut out = std::io::stdout().lock();
            out.write_all(bytes)
                .and_then(|()| out.flush())
                .context("cannot print the result")
                .map_err(Failure::from)
        }
    }
}
