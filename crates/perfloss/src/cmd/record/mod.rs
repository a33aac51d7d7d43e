//! `perfloss record`: watches a workload that perfloss does not drive, and says why its CPUs were idle.

mod watch;
mod whom;

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::Context;
use capture::{Capture, Sink};
use clap::Args as ClapArgs;
use explain::Explanation;
use harness::cpus::Cpus;
use result::{MadeBy, Mode, Options, Point, Recorded, RunResult, Warning};
use trace::TimeNs;

use crate::child::{self, Child, End};
use crate::convert::{self, Basis};
use crate::exit::{Failure, Status};
use crate::{machine, stretch, terminal};
use watch::{Counting, Seen, Signals, Watch};

/// The file of the trace in a result folder.
const TRACE: &str = "record.trace";
/// Of the command line, the report shows so much.
const TITLE: usize = 200;

/// Watch any program, or the whole machine, and say what it waits for and why its CPUs were idle.
#[derive(ClapArgs, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Watch these processes and their children, separated by commas
    #[arg(short, long = "pid", value_name = "PID,PID", value_delimiter = ',', conflicts_with_all = ["cgroup", "all", "command"])]
    pids: Vec<u32>,
    /// Watch all tasks of this control group and of those below it (a path under its mount, or the directory)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["all", "command"])]
    cgroup: Option<PathBuf>,
    /// Watch all tasks; with a command, for as long as it runs
    #[arg(short, long)]
    all: bool,
    /// For so long, seconds [default: until the command or the processes end, or Ctrl-C]. A command runs on to its own end
    #[arg(short, long, value_name = "SECS")]
    duration: Option<String>,
    /// Write the trace to this file instead of the result folder
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Stop watching when the trace is that large
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    max_size: String,
    /// The result folder [default: a new one under ./perfloss-results/]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print the result as JSON on standard output instead of the verdict
    #[arg(long)]
    json: bool,
    /// Print nothing; the result folder has everything
    #[arg(short, long)]
    quiet: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  perfloss record -- make -j24
  perfloss record -p 1234 -d 10
  perfloss record --cgroup /sys/fs/cgroup/system.slice/db.service -d 10
  perfloss record -a -d 5 --trace all.trace

The verdict on a command goes to standard error, since standard output is the command's.
Exit status: that of the command (a signal, too); without one 0 done, 3 events were lost; 2 bad usage, 4 not possible here.";

/// Runs the command.
pub fn run(args: &Args) -> Result<Status, Failure> {
    let duration = args.duration.as_deref().map(seconds).transpose()?;
    let max_size = target::parse_size(&args.max_size).ok_or_else(|| {
        Failure::usage(format!("--max-size {:?}: give a size like 512M or 4G", args.max_size))
    })?;
    if args.pids.is_empty() && args.cgroup.is_none() && !args.all && args.command.is_empty() {
        return Err(Failure::usage("say what to record: -- COMMAND, -p PID, --cgroup DIR or -a"));
    }
    let watched = whom::open_all(&args.pids)?;
    let group = args.cgroup.as_deref().map(whom::group_path).transpose()?;
    let folder = super::run::result_folder(args.output.as_deref())?;
    let path = args.trace.clone().unwrap_or_else(|| folder.file(TRACE));
    let mut open = File::options();
    open.write(true).create(true).truncate(true).mode(0o600);
    let file = open
        .open(&path)
        .map_err(|e| Failure::not_allowed(format!("cannot write the trace to {}: {e}", path.display())))?;
    let signals = Signals::catch()?;

    // before there is any other thread: the command is a fork of this process
    let mut child = match &args.command[..] {
        [] => None,
        command => Some(Child::hold(command).context("cannot make a process for the command")?),
    };
    let scope = whom::scope(args, child.as_ref(), group);
    let allowed = whom::allowed(args)?;
    let size = Arc::new(AtomicU64::new(0));
    let notes = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
    let options = capture::Options {
        scope,
        notes: vec![("command".to_owned(), notes)],
        allowed,
        ..capture::Options::default()
    };
    let sink = Sink::File(Box::new(Counting { file, size: Arc::clone(&size) }));
    let capture = Capture::start_to(options, sink).map_err(not_captured)?;
    let begun = Instant::now();
    // what the command did before is waiting for us
    let from = child.as_ref().map(|_| monotonic());
    if let Some(Err(e)) = child.as_mut().map(Child::release) {
        // nothing was recorded: leave nothing behind
        drop(capture);
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_dir(folder.path());
        return Err(Failure::usage(format!("cannot run the command: {e}")));
    }
    let watch = Watch { begun, duration, max_size, size, signals };
    let (seen, mut child) = watch.watch(child, &watched, capture)?;
    let mut explanation = explain_file(&path, from, &[std::process::id()])?;
    explanation.facts.lost_events = explanation.facts.lost_events.max(seen.captured.report.lost_events);
    explanation.facts.lost_stacks = explanation.facts.lost_stacks.max(seen.captured.report.lost_stacks);
    // the recording may be shorter than the command
    let end = child.as_mut().map(|child| watch.wait(child)).transpose()?;

    let mut result = result(args, duration, begun);
    let mut point = point(args, &explanation, &seen, end);
    point.timeline =
        stretch::of_file(&path).with_context(|| format!("cannot read the trace {}", path.display()))?;
    result.points.push(point);
    result.complete = true;
    folder.update(&result).map_err(not_written)?;
    let page = report::html::page(&result);
    folder.write("report.html", page.as_bytes()).map_err(not_written)?;
    print(args, &result, folder.path())?;
    match end {
        Some(end) if end != End::Exit(0) => child::end_as(end),
        Some(_) => Ok(Status::Done),
        None if explanation.facts.lost_events > 0 => Ok(Status::Untrusted),
        None => Ok(Status::Done),
    }
}

/// Now, by the clock of the trace.
fn monotonic() -> TimeNs {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    TimeNs(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
}

fn seconds(text: &str) -> Result<Duration, Failure> {
    match text.parse::<f64>() {
        Ok(value) if (0.01..=1e6).contains(&value) => Ok(Duration::from_secs_f64(value)),
        _ => Err(Failure::usage(format!("-d {text:?}: give seconds, 0.01 or more"))),
    }
}

fn not_written(error: result::WriteError) -> Failure {
    Failure::new(Status::NotAllowed, error)
}

fn not_captured(error: capture::Error) -> Failure {
    let status = if error.is_not_allowed() { Status::NotAllowed } else { Status::Untrusted };
    Failure::new(status, error)
}

/// Reads a trace file and explains it.
///
/// Nothing before `from` counts, and the processes `without` are not of the workload.
pub(crate) fn explain_file(
    path: &Path,
    from: Option<TimeNs>,
    without: &[u32],
) -> anyhow::Result<Explanation> {
    let what = || format!("cannot read the trace {}", path.display());
    let file = File::open(path).with_context(what)?;
    let mut reader = trace::Reader::new(BufReader::new(file)).with_context(what)?;
    let scope = explain::Scope { from, without: without.to_vec(), ..explain::Scope::default() };
    explain::explain(&mut reader, &scope).with_context(what)
}

fn result(args: &Args, duration: Option<Duration>, begun: Instant) -> RunResult {
    let mut result = RunResult::new(MadeBy::Record, 0);
    result.perfloss_version = env!("CARGO_PKG_VERSION").to_owned();
    result.started = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    if let Ok(cpus) = Cpus::allowed() {
        result.machine = machine::describe(&cpus);
    }
    result.command = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    result.elapsed_s = begun.elapsed().as_secs_f64();
    result.options = Options {
        rounds: 1,
        seconds: duration.map_or(0.0, |d| d.as_secs_f64()),
        capture: true,
        other: [("max-size".to_owned(), args.max_size.clone())].into(),
        ..Options::default()
    };
    result
}

fn title(args: &Args) -> String {
    let words: Vec<String> = args.command.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    let title = match (&words[..], &args.cgroup) {
        ([], None) if args.all => "all tasks".to_owned(),
        ([], Some(group)) => format!("control group {}", group.display()),
        ([], None) => {
            format!("process {}", args.pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
        }
        (words, _) => words.join(" "),
    };
    title.chars().take(TITLE).collect()
}

fn point(args: &Args, e: &Explanation, seen: &Seen, end: Option<End>) -> Point {
    let basis = Basis::default();
    let capacity = e.capacity_ns() / 1e9;
    let idle = e.budget.idle_ns / 1e9;
    let wall = seen.wall.as_secs_f64();
    let sampled = |time: explain::SampledTime| time.ns / 1e9;
    // who is held back by a quota waits for no CPU
    let held_back =
        e.roots.iter().filter(|r| r.kind == explain::RootKind::Throttled).map(|r| r.wait_ns).sum();
    let coverage = (wall > 0.0).then(|| (e.window_ns as f64 / 1e9 / wall).min(1.0));
    let trace = args.trace.as_ref().map_or_else(|| TRACE.to_owned(), |path| path.display().to_string());
    let mut point = Point {
        workload: title(args),
        mode: Mode::Recorded,
        valid: true,
        recorded: Some(Recorded {
            wall_s: wall,
            capacity_s: capacity,
            busy_s: Some((e.budget.scope_ns + e.budget.elsewhere_ns) as f64 / 1e9),
            idle_s: Some(idle),
            busy_share: (capacity > 0.0).then(|| (1.0 - e.idle_share()).clamp(0.0, 1.0)),
            user_s: e.budget.user.map(sampled),
            system_s: e.budget.system.map(sampled),
            spin_s: e.budget.spin.map(sampled),
            irq_s: e.budget.irq.map(sampled),
            other_s: Some(e.budget.others_ns as f64 / 1e9),
            runnable_s: Some(e.times.runnable_ns.saturating_sub(held_back) as f64 / 1e9),
            unaccounted_s: Some(capacity - idle - (e.budget.scope_ns + e.budget.others_ns) as f64 / 1e9),
            exit_status: match end {
                Some(End::Exit(status)) => Some(status),
                _ => None,
            },
        }),
        capture: Some(convert::capture(e, &basis, coverage, Some(trace))),
        roots: convert::roots(e, &basis),
        chains: Some(convert::chains(e, &basis)),
        stacks: Some(convert::stacks(e, &basis)),
        ..Point::default()
    };
    warn(&mut point, e, seen);
    point
}

fn warn(point: &mut Point, e: &Explanation, seen: &Seen) {
    let mut other = |text: String| point.warnings.push(Warning::Other { text });
    if seen.full {
        other("the trace was as large as --max-size allows: the rest was not watched".to_owned());
    }
    if e.facts.throttled_ns > 0 {
        other(format!(
            "the CPU quota of the control group was used up for {:.2} s (cpu.stat, added over CPUs): raise it, or use fewer tasks",
            e.facts.throttled_ns as f64 / 1e9
        ));
    }
    for missing in &seen.captured.report.missing {
        other(format!("not captured here: {missing}"));
    }
    let (f, b) = (&e.facts, &e.budget);
    if f.lost_events > 0 {
        let share = f.lost_events as f64 / (f.events + f.lost_events) as f64;
        point.warnings.push(Warning::LostEvents { lost: f.lost_events, share });
    }
    if f.lost_stacks > 0 {
        point.warnings.push(Warning::LostStacks { lost: f.lost_stacks });
    }
    let share = b.others_ns as f64 / e.capacity_ns().max(1.0);
    if share > 0.1 {
        point.warnings.push(Warning::OtherLoad { share });
    }
}

fn print(args: &Args, result: &RunResult, folder: &Path) -> Result<(), Failure> {
    if args.json {
        let bytes = result::write_json(result).map_err(not_written)?;
        let mut out = std::io::stdout().lock();
        return out
            .write_all(&bytes)
            .and_then(|()| out.flush())
            .context("cannot print the result")
            .map_err(Failure::from);
    }
    if args.quiet {
        return Ok(());
    }
    let mut text = report::terminal::render(result, terminal::width(), terminal::color());
    text.push_str(&format!(" {}\n", folder.join("report.html").display()));
    // standard output belongs to the command
    let written = if args.command.is_empty() {
        std::io::stdout().lock().write_all(text.as_bytes())
    } else {
        std::io::stderr().lock().write_all(text.as_bytes())
    };
    Ok(written.context("cannot print the verdict")?)
}
