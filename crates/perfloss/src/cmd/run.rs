//! `perfloss run`: measures every point and writes a result.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use clap::{Args as ClapArgs, ValueEnum};
use harness::RoundSpec;
use harness::cpus::Cpus;
use harness::plan::{End, Plan, RunError};
use result::{Folder, MadeBy, Options, RunResult, Warning};
use target::{Caps, Settings};
use workload::{MAX_TASKS, Mode, Spec as WorkloadSpec};

use crate::exit::{Failure, Status};
use crate::measuring::Measuring;
use crate::progress::Progress;
use crate::remedies::Trial;
use crate::{machine, points, terminal};

/// Where a whole target list is missing, these are taken, as far as they are possible here.
pub(super) const USUAL_TARGETS: [&str; 4] = ["ext4", "xfs", "btrfs", "tmpfs"];

/// The longest warm-up, unless told otherwise: as long as the window, but within these bounds, seconds.
const WARM_UP_S: (f64, f64) = (0.3, 2.0);

/// Measure a parallel workload on several file systems and say what it loses.
#[derive(ClapArgs, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Workloads, separated by commas: built-in names (see `perfloss list`), or will-it-scale C files
    #[arg(value_name = "WORKLOAD", required_unless_present = "each")]
    workloads: Vec<String>,
    /// Run this command over and over in every task; {task}, {tasks}, {dir}, {own} and {src} are filled in
    #[arg(long, value_name = "COMMAND")]
    each: Option<String>,
    /// Run this command once before the tasks start, in the place where they run (with --each)
    #[arg(long, value_name = "COMMAND", requires = "each")]
    setup: Option<String>,
    /// Let a shell run --each and --setup
    #[arg(long, requires = "each")]
    shell: bool,
    /// Task counts, separated by commas [default: 1 and the number of allowed CPUs]
    #[arg(short, long, value_name = "N,N", value_delimiter = ',')]
    tasks: Vec<String>,
    /// Targets, separated by commas: file systems made for the run, with options, or directories
    /// [default: ext4,xfs,btrfs,tmpfs; without root a directory has to be named]
    #[arg(long = "on", value_name = "TARGET,TARGET")]
    targets: Vec<String>,
    /// Length of a round's window, seconds
    #[arg(short, long, value_name = "S", default_value = "2")]
    seconds: String,
    /// Rounds of every point; they are interleaved over all points
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Whether tasks are processes or threads
    #[arg(long, value_enum, default_value_t = ModeArg::Processes)]
    mode: ModeArg,
    /// Bind each task to a CPU: `auto` does where there are no more tasks than CPUs
    #[arg(long, value_enum, default_value_t = Pin::Auto)]
    pin: Pin,
    /// The result folder [default: a new one under ./perfloss-results/]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Decides the order of the rounds and every other random choice [default: from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the result as JSON instead of the table
    #[arg(long)]
    json: bool,
    /// No progress, and no text but the table
    #[arg(short, long)]
    quiet: bool,
    /// Measure throughput and CPU budget only, not the causes
    #[arg(long)]
    no_capture: bool,
    /// Then try what may win a loss back (own directories, more allocation groups, another file system) and measure it
    #[arg(long = "try")]
    try_remedies: bool,
    /// Put the images of file systems into this directory instead of memory
    #[arg(long, value_name = "DIR")]
    medium: Option<PathBuf>,
    /// Size of images for targets that name none, e.g. 8G
    #[arg(long, value_name = "SIZE")]
    image_size: Option<String>,
    /// A block device that a target names (device=/dev/…) may be formatted
    #[arg(long)]
    allow_format: bool,
    /// …even if it holds something
    #[arg(long, requires = "allow_format")]
    force_format: bool,
    /// Longest warm-up of a round, seconds [default: as long as the window, 0.3 to 2]
    #[arg(long, value_name = "S")]
    warm_up: Option<String>,
    /// How long a task may take to get ready, or to end its operation after the window, seconds
    #[arg(long, value_name = "S", default_value = "10")]
    deadline: String,
    /// How often a point's disturbed rounds (steal, other load) may be repeated
    #[arg(long, value_name = "N", default_value_t = 2)]
    retries: u32,
}

const EXAMPLES: &str = "\
Examples:
  perfloss run create_unlink -t 1,2,4 --on xfs,ext4,btrfs,tmpfs
  perfloss run create_unlink -t 2 --on xfs --try        measures remedies, too
  perfloss run create_unlink,create_unlink:own-dir --on xfs,xfs:agcount=32
  perfloss run cc -t 24 --on ext4,xfs -s 3
  perfloss run ./cc.c -t 24 --on xfs                    a will-it-scale test case, unmodified
  perfloss run --each 'cc -c -o {dir}/out.{task}.o {src}/src{task}.c' -t 24 --on xfs,overlay:xfs
  perfloss run create_unlink --on /some/dir             works without root

Exit status: 0 done, 2 bad usage, 3 a point is void or the run failed, 4 not possible here, 130 interrupted.";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    Processes,
    Threads,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Pin {
    Auto,
    Always,
    Never,
}

/// A run that was checked and is ready to start.
struct Ready {
    plan: Plan,
    /// Name of each point's target; unlike the specification, unique (`xfs`, `xfs#2`).
    target_names: Vec<String>,
    cpus: Cpus,
    isolated: bool,
    warm_up_limit_s: f64,
    /// Why causes cannot be looked for although they were wanted.
    no_capture: Option<String>,
    /// Open as long as rounds may need them: the compiled test cases.
    _objects: Vec<OwnedFd>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Status, Failure> {
    let mut ready = check(args)?;
    let nice = harness::round::raise_priority();
    ready.plan.points.iter_mut().for_each(|point| point.nice = nice);
    let folder = result_folder(args.output.as_deref())?;
    let mut result = first_result(args, &ready);
    folder.update(&result).map_err(not_written)?;

    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        // The second one does not wait: what a round made vanishes with us.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupted))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)))
            .context("cannot handle signals")?;
    }
    let begun = std::time::Instant::now();
    let mut measuring = Measuring::new(&ready.plan, &ready.target_names, &ready.cpus);
    let progress = Progress::new(!args.quiet, &ready.plan, "");
    let mut end = measuring.run(folder.path(), &interrupted, progress, &mut |points, targets| {
        result.points = points.to_vec();
        result.targets = targets.to_vec();
        result.elapsed_s = begun.elapsed().as_secs_f64();
        // Written as it goes; if that fails for now (disk full), the last write says so.
        let _ = folder.update(&result);
    });
    let missing = measuring.missing().to_vec();
    if args.try_remedies
        && matches!(end, Ok(End::Complete))
        && let Some(trial) = Trial::of(&ready.plan, &ready.target_names, &result.points)
    {
        let mut tried = Measuring::new(&trial.plan, &trial.names, &ready.cpus);
        let progress = Progress::new(!args.quiet, &trial.plan, "remedies: ");
        end = tried.run(folder.path(), &interrupted, progress, &mut |_, _| ()).map_err(|e| RunError {
            // Told by the name of the point that the remedy is for.
            point: trial.for_point(e.point),
            broken: e.broken,
        });
        trial.put_into(&mut result.points, &tried.points);
    }
    result.elapsed_s = begun.elapsed().as_secs_f64();
    let named: BTreeMap<&str, &target::Spec> = ready
        .target_names
        .iter()
        .map(String::as_str)
        .zip(ready.plan.points.iter().map(|p| &p.target))
        .collect();
    points::compare_all(&mut result, &|a, b| named.get(a) == named.get(b));
    finish_warnings(&mut result, &ready, &missing);
    let status = match &end {
        Ok(End::Complete) => {
            result.complete = true;
            let lost = |p: &result::Point| p.capture.as_ref().is_some_and(|c| c.lost_events > 0);
            let trusted = result.points.iter().all(|p| p.valid && !lost(p));
            if trusted { Status::Done } else { Status::Untrusted }
        }
        Ok(End::Interrupted) => {
            result.interrupted = true;
            Status::Interrupted
        }
        Err(_) => Status::Untrusted,
    };
    let saved = folder
        .update(&result)
        .and_then(|()| folder.write("report.html", report::html::page(&result).as_bytes()));
    // What was measured is shown even if it could not be saved, or the run could not go on.
    if end.is_ok() || result.points.iter().any(|p| !p.rounds.is_empty()) {
        print(args, &result, folder.path())?;
    }
    if let Err(error) = end {
        let point = &ready.plan.points[error.point];
        let status = if error.broken.not_allowed { Status::NotAllowed } else { Status::Untrusted };
        let what =
            format!("{} on {}: {}", point.workload.name(), ready.target_names[error.point], error.broken);
        return Err(Failure::new(status, anyhow::anyhow!(what)));
    }
    saved.map_err(not_written)?;
    Ok(status)
}

fn print(args: &Args, result: &RunResult, folder: &Path) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = if args.json {
        result::write_json(result).map_err(not_written).map(|bytes| out.write_all(&bytes))?
    } else {
        let text = report::terminal::render(result, terminal::width(), terminal::color());
        out.write_all(text.as_bytes())
            .and_then(|()| writeln!(out, " {}", folder.join("report.html").display()))
    };
    written.and_then(|()| out.flush()).context("cannot print the result").map_err(Failure::from)
}

fn not_written(error: result::WriteError) -> Failure {
    Failure::new(Status::NotAllowed, error)
}

fn check(args: &Args) -> Result<Ready, Failure> {
    let seconds = positive("--seconds", &args.seconds, 0.01, 3600.0)?;
    let deadline = positive("--deadline", &args.deadline, 0.1, 3600.0)?;
    let warm_up_limit_s = match &args.warm_up {
        Some(text) => positive("--warm-up", text, 0.01, 3600.0)?,
        None => seconds.clamp(WARM_UP_S.0, WARM_UP_S.1),
    };
    let cpus = Cpus::allowed().context("cannot read the allowed CPUs")?;
    let tasks = task_counts(&args.tasks, cpus.count() as u32)?;
    let mode = match args.mode {
        ModeArg::Processes => Mode::Processes,
        ModeArg::Threads => Mode::Threads,
    };
    let caps = Caps::here();
    let settings = Settings {
        medium: args.medium.clone(),
        size: args.image_size.as_deref().map(size).transpose()?,
        allow_format: args.allow_format,
        force_format: args.force_format,
    };
    let targets = targets(&args.targets, caps, &settings)?;
    let (workloads, objects) = workloads(args)?;
    let isolated = caps.sys_admin;
    for (spec, _) in &workloads {
        let workload = spec.open().map_err(|e| Failure::new(workload_status(&e), e))?;
        if !workload.modes().has(mode) {
            let other = if mode == Mode::Threads { "processes" } else { "threads" };
            return Err(Failure::usage(format!("{} works with --mode {other} only", spec.name())));
        }
        if workload.needs().tmp && !isolated {
            return Err(Failure::not_allowed(format!(
                "{} names /tmp, so /tmp has to be the target: that needs root (CAP_SYS_ADMIN)",
                spec.name()
            )));
        }
    }
    let mut points = Vec::new();
    let mut target_names = Vec::new();
    for (workload, keep_visible) in &workloads {
        for (name, target) in &targets {
            for &count in &tasks {
                target_names.push(name.clone());
                points.push(RoundSpec {
                    workload: workload.clone(),
                    target: target.clone(),
                    settings: settings.clone(),
                    cleanup: target::Cleanup::default(),
                    mode,
                    tasks: count,
                    cpus: cpus.in_order().iter().map(|c| c.cpu).collect(),
                    bind: args.pin == Pin::Always || args.pin == Pin::Auto && count as usize <= cpus.count(),
                    window_ns: ns(seconds),
                    warm_up_limit_ns: ns(warm_up_limit_s),
                    deadline_ns: ns(deadline),
                    seed: 0,
                    keep_visible: keep_visible.clone(),
                    nice: 0,
                    isolated,
                    captured: false,
                });
            }
        }
    }
    let seed = args.seed.unwrap_or_else(seed_from_clock);
    let no_capture = if args.no_capture { None } else { why_no_capture() };
    let captures = u32::from(!args.no_capture && no_capture.is_none());
    let plan = Plan { points, rounds: args.rounds, seed, retries: args.retries, captures };
    Ok(Ready { plan, no_capture, target_names, cpus, isolated, warm_up_limit_s, _objects: objects })
}

/// Why capture is not possible here and how to get it; `None` if it is.
fn why_no_capture() -> Option<String> {
    let findings = capture::doctor();
    let missing = findings.iter().find(|f| f.status == capture::Status::Missing)?;
    Some(format!("{}: {}; {}", missing.name, missing.what, missing.remedy))
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

pub(super) fn seed_from_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // Six digits are enough to be different, and short enough to be typed.
    now.map_or(1, |d| d.as_micros() as u64 % 1_000_000)
}

fn positive(flag: &str, text: &str, least: f64, most: f64) -> Result<f64, Failure> {
    match text.parse::<f64>() {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(Failure::usage(format!("{flag} {text:?}: give seconds from {least} to {most}"))),
    }
}

fn size(text: &str) -> Result<u64, Failure> {
    target::parse_size(text)
        .ok_or_else(|| Failure::usage(format!("--image-size {text:?}: give a size like 512M or 8G")))
}

fn task_counts(given: &[String], cpus: u32) -> Result<Vec<u32>, Failure> {
    let mut counts = Vec::new();
    for text in given {
        match text.trim().parse::<u32>() {
            Ok(n) if (1..=MAX_TASKS).contains(&n) => counts.push(n),
            _ => {
                return Err(Failure::usage(format!(
                    "-t {text:?}: give numbers of tasks from 1 to {MAX_TASKS}, as in -t 1,2,24"
                )));
            }
        }
    }
    if counts.is_empty() {
        counts = vec![1, cpus];
    }
    counts.sort_unstable();
    counts.dedup();
    Ok(counts)
}

fn target_status(error: &target::Error) -> Status {
    match error.kind() {
        target::ErrorKind::Usage => Status::Usage,
        target::ErrorKind::NotAllowed => Status::NotAllowed,
        target::ErrorKind::Failed => Status::Untrusted,
    }
}

fn targets(
    given: &[String],
    caps: Caps,
    settings: &Settings,
) -> Result<Vec<(String, target::Spec)>, Failure> {
    let failed = |e: target::Error| Failure::new(target_status(&e), e);
    let mut specs = Vec::new();
    for text in given {
        specs.extend(target::parse_list(text).map_err(failed)?);
    }
    if specs.is_empty() {
        if !caps.sys_admin {
            return Err(Failure::not_allowed(
                "making file systems needs root (CAP_SYS_ADMIN): name a directory instead, as in --on /some/dir",
            ));
        }
        let usual = USUAL_TARGETS.iter().filter_map(|name| name.parse::<target::Spec>().ok());
        specs = usual.filter(|spec| spec.check(caps, settings).is_ok()).collect();
    }
    let mut named: Vec<(String, target::Spec)> = Vec::new();
    for spec in specs {
        spec.check(caps, settings).map_err(failed)?;
        let before = named.iter().filter(|(_, s)| *s == spec).count();
        let name = if before == 0 { spec.to_string() } else { format!("{spec}#{}", before + 1) };
        named.push((name, spec));
    }
    Ok(named)
}

fn workload_status(error: &workload::SpecError) -> Status {
    match error {
        workload::SpecError::Program(_) => Status::NotAllowed,
        _ => Status::Usage,
    }
}

/// The workloads with the paths that have to stay visible for them, and what has to stay open.
type Workloads = (Vec<(WorkloadSpec, Vec<PathBuf>)>, Vec<OwnedFd>);

fn workloads(args: &Args) -> Result<Workloads, Failure> {
    let (mut specs, mut objects) = (Vec::new(), Vec::new());
    let names = args.workloads.iter().flat_map(|given| {
        // A file's name may have commas in it.
        if WorkloadSpec::is_source(given) { vec![given.as_str()] } else { given.split(',').collect() }
    });
    for name in names {
        if WorkloadSpec::is_source(name) {
            let (spec, object) = compile(Path::new(name))?;
            specs.push((spec, Vec::new()));
            objects.push(object);
        } else {
            let spec = name.trim().parse::<WorkloadSpec>().map_err(|e| Failure::new(Status::Usage, e))?;
            if !specs.iter().any(|(known, _)| *known == spec) {
                specs.push((spec, Vec::new()));
            }
        }
    }
    if let Some(each) = &args.each {
        let command =
            workload::command::Command { each: each.clone(), setup: args.setup.clone(), shell: args.shell };
        let visible = command.paths_named();
        specs.push((WorkloadSpec::Command(command), visible));
    }
    Ok((specs, objects))
}

/// Compiles a test case into memory that the processes of every round inherit.
fn compile(source: &Path) -> Result<(WorkloadSpec, OwnedFd), Failure> {
    let scratch = target::Scratch::new().map_err(|e| Failure::new(target_status(&e), e))?;
    let compiled =
        workload::ccase::compile(source, scratch.path()).map_err(|e| Failure::new(Status::Usage, e))?;
    let object = compiled.to_memfd().map_err(|e| Failure::new(Status::NotAllowed, e))?;
    rustix::io::fcntl_setfd(&object, rustix::io::FdFlags::empty()).context("cannot pass the test case on")?;
    let spec = WorkloadSpec::of_case(&compiled, format!("/proc/self/fd/{}", object.as_raw_fd()).into());
    Ok((spec, object))
}

/// The folder that the user named, or a new one.
pub(super) fn result_folder(output: Option<&Path>) -> Result<Folder, Failure> {
    if let Some(path) = output {
        return Folder::create(path).map_err(not_written);
    }
    let base = Path::new("perfloss-results");
    let name = jiff::Zoned::now().strftime("%Y-%m-%d-%H%M%S").to_string();
    // Two runs may begin in the same second.
    for suffix in 1.. {
        let path = base.join(if suffix == 1 { name.clone() } else { format!("{name}-{suffix}") });
        match Folder::create(&path) {
            Err(result::WriteError::NotEmpty { .. }) if suffix < 100 => {}
            made => return made.map_err(not_written),
        }
    }
    Err(Failure::not_allowed("no free name for the result folder: give one with --output"))
}

fn first_result(args: &Args, ready: &Ready) -> RunResult {
    let mut result = RunResult::new(MadeBy::Run, ready.plan.seed);
    result.perfloss_version = env!("CARGO_PKG_VERSION").to_owned();
    result.started = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    result.machine = machine::describe(&ready.cpus);
    result.command = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    let points = &ready.plan.points;
    let mut tasks: Vec<u32> = points.iter().map(|p| p.tasks).collect();
    tasks.sort_unstable();
    tasks.dedup();
    result.options = Options {
        tasks,
        rounds: args.rounds,
        seconds: points.first().map_or(0.0, |p| p.window_ns as f64 / 1e9),
        warm_up_limit_s: Some(ready.warm_up_limit_s),
        pinned: points.iter().all(|p| p.bind),
        capture: ready.plan.captures > 0,
        other: BTreeMap::from([
            ("pin".to_owned(), format!("{:?}", args.pin).to_lowercase()),
            ("mode".to_owned(), format!("{:?}", args.mode).to_lowercase()),
            ("retries".to_owned(), args.retries.to_string()),
            ("deadline".to_owned(), args.deadline.clone()),
        ]),
    };
    for point in points {
        if result.workload(point.workload.name()).is_none()
            && let Ok(workload) = point.workload.open()
        {
            result.workloads.push(result::Workload {
                name: workload.name().to_owned(),
                version: workload.version().to_string(),
                description: workload.about().to_owned(),
                ..result::Workload::default()
            });
        }
    }
    result
}

/// Warnings that hold for the whole run.
fn finish_warnings(result: &mut RunResult, ready: &Ready, missing: &[String]) {
    let mut warnings = Vec::new();
    let kept = result.points.iter().filter(|p| p.valid).filter_map(|p| p.ops_per_s.as_ref());
    if let Some(rounds) = kept.map(|e| e.rounds.len() as u32).min().filter(|&n| n < 4) {
        warnings.push(Warning::FewRounds { rounds });
    }
    let cpu_s =
        |p: &result::Point| p.rounds.iter().filter(|r| r.kept).filter_map(|r| r.cpu.capacity).sum::<f64>();
    if let Some(least) = result.points.iter().map(cpu_s).filter(|&s| s > 0.0).reduce(f64::min) {
        warnings.push(Warning::TickSamples { points: points::tick_points(least) });
    }
    if !harness::readings::interrupts_apart() {
        warnings.push(Warning::InterruptsNotApart);
    }
    if let Some(governor) = result.machine.governor.clone().filter(|g| g != "performance") {
        warnings.push(Warning::Governor { governor });
    }
    if !ready.isolated {
        let because = "namespaces need root (CAP_SYS_ADMIN)".to_owned();
        warnings.push(Warning::EndNotGuaranteed { because });
    }
    if let Some(because) = ready.no_capture.clone() {
        warnings.push(Warning::NoCapture { because });
    }
    warnings.extend(missing.iter().map(|what| Warning::Other { text: format!("not captured here: {what}") }));
    let cases = ready.plan.points.iter().any(|p| matches!(p.workload, WorkloadSpec::CCase { .. }));
    if cases && ready.plan.captures == 0 {
        warnings.push(Warning::ExitStatusNotChecked);
    }
    let capacity: f64 = result.points.iter().map(cpu_s).sum();
    let steal: f64 = result.points.iter().flat_map(|p| p.rounds.iter().filter_map(|r| r.cpu.steal)).sum();
    result.machine.steal_share = (capacity > 0.0).then(|| steal / capacity);
    result.warnings = warnings;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_counts_are_sorted_once_each_and_bounded() {
        let counts = |list: &[&str]| {
            task_counts(&list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>(), 2).map_err(|_| ())
        };
        assert_eq!(counts(&["24", "1", "2", "2"]), Ok(vec![1, 2, 24]));
        assert_eq!(counts(&[]), Ok(vec![1, 2]));
        for wrong in ["0", "abc", "5000", "-1", "1.5", ""] {
            assert_eq!(counts(&[wrong]), Err(()), "{wrong}");
        }
    }

    #[test]
    fn seconds_are_checked() {
        assert!(positive("-s", "0.25", 0.01, 10.0).is_ok());
        for wrong in ["0", "-1", "nan", "inf", "abc", "1e9"] {
            assert!(positive("-s", wrong, 0.01, 10.0).is_err(), "{wrong}");
        }
    }
}
