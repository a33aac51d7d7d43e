//! `perfloss record`: watches a workload that perfloss does not drive, and says why its CPUs were idle.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use capture::{Capture, Captured, Sink};
use clap::Args as ClapArgs;
use explain::Explanation;
use harness::cpus::Cpus;
use result::{MadeBy, Mode, Options, Point, Recorded, RunResult, Warning};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use trace::TimeNs;

use crate::child::{self, Child, End};
use crate::convert::{self, Basis};
use crate::exit::{Failure, Status};
use crate::{machine, stretch, terminal};

/// The file of the trace in a result folder.
const TRACE: &str = "record.trace";
/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Signals are looked at so often at least.
const LOOK: Duration = Duration::from_millis(100);
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
    /// For so long, seconds [default: until the command or the processes end, or Ctrl-C]
    #[arg(short, long, value_name = "SECS")]
    duration: Option<String>,
    /// Write the trace to this file instead of the result folder
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Stop watching when the trace is that large
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    max_size: String,
    /// The result folder [default: a new one under ./perfloss-results/]
    #[arg(long, value_name = "DIR")]
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
    let watched = open_all(&args.pids)?;
    let group = args.cgroup.as_deref().map(group_path).transpose()?;
    let folder = super::run::result_folder(args.output.as_deref())?;
    let path = args.trace.clone().unwrap_or_else(|| folder.file(TRACE));
    let file = File::create(&path)
        .map_err(|e| Failure::not_allowed(format!("cannot write the trace to {}: {e}", path.display())))?;
    let signals = Signals::catch()?;

    // before there is any other thread: the command is a fork of this process
    let mut child = match &args.command[..] {
        [] => None,
        command => Some(Child::hold(command).context("cannot make a process for the command")?),
    };
    let scope = scope(args, child.as_ref(), group);
    let allowed = allowed(args)?;
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

/// Handles on the processes to watch, which say when they end.
fn open_all(pids: &[u32]) -> Result<Vec<OwnedFd>, Failure> {
    let open = |pid: &u32| {
        let number = i32::try_from(*pid).ok().and_then(Pid::from_raw);
        let number =
            number.ok_or_else(|| Failure::usage(format!("-p {pid}: there is no such process id")))?;
        pidfd_open(number, PidfdFlags::empty())
            .map_err(|e| Failure::usage(format!("-p {pid}: no process that can be watched: {e}")))
    };
    pids.iter().map(open).collect()
}

fn scope(args: &Args, child: Option<&Child>, group: Option<String>) -> capture::Scope {
    if args.all {
        return capture::Scope::Everything;
    }
    match (child, group) {
        (Some(child), _) => capture::Scope::Processes(vec![child.pid()]),
        (None, Some(group)) => capture::Scope::Cgroup(group),
        (None, None) => capture::Scope::Processes(args.pids.clone()),
    }
}

/// The path of a control group below its mount, from either that or the directory itself.
fn group_path(group: &Path) -> Result<String, Failure> {
    let text = group.display().to_string();
    let none = || Failure::usage(format!("--cgroup {text}: there is no such control group"));
    let Some(below) = text.strip_prefix(CGROUPS) else {
        let path = text.trim_start_matches('/');
        return if below_a_mount(path) { Ok(format!("/{path}")) } else { Err(none()) };
    };
    if !group.is_dir() {
        return Err(none());
    }
    // with version 1 there is a directory for each controller, which is a mount of its own
    let controllers = |name: &str| {
        ["cpu", "cpuacct", "cpuset", "memory", "blkio", "pids", "freezer", "devices", "systemd", "unified"]
            .iter()
            .any(|c| name.split(',').any(|part| part == *c))
    };
    let below = below.trim_start_matches('/');
    let (first, rest) = below.split_once('/').unwrap_or((below, ""));
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    Ok(if !unified && controllers(first) { format!("/{rest}") } else { format!("/{below}") })
}

/// Whether there is a control group of this path, in version 2 or in a controller of version 1.
fn below_a_mount(path: &str) -> bool {
    let mut mounts = vec![PathBuf::from(CGROUPS)];
    if let Ok(entries) = std::fs::read_dir(CGROUPS) {
        mounts.extend(entries.flatten().map(|entry| entry.path()));
    }
    mounts.iter().any(|mount| mount.join(path).is_dir())
}

/// The CPUs that what is watched may use; empty: those that this process may use.
fn allowed(args: &Args) -> Result<Vec<u16>, Failure> {
    if args.all || args.cgroup.is_some() {
        let cpus =
            std::fs::read_to_string("/sys/devices/system/cpu/online").context("cannot read the CPUs")?;
        return Ok(machine::parse_list(&cpus).into_iter().filter_map(|c| u16::try_from(c).ok()).collect());
    }
    let mut cpus = Vec::new();
    for pid in &args.pids {
        let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
        if let Ok(set) = rustix::thread::sched_getaffinity(pid) {
            cpus.extend(
                (0..=u16::MAX).take(rustix::thread::CpuSet::MAX_CPU).filter(|c| set.is_set(usize::from(*c))),
            );
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// The trace file, and how large it is.
struct Counting {
    file: File,
    size: Arc<AtomicU64>,
}

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.size.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// The signals that end a recording, or are passed on to the command.
struct Signals {
    interrupt: Arc<AtomicBool>,
    terminate: Arc<AtomicBool>,
    hang_up: Arc<AtomicBool>,
}

impl Signals {
    fn catch() -> Result<Signals, Failure> {
        let catch = |signal| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot handle signals")?;
            Ok::<_, anyhow::Error>(flag)
        };
        Ok(Signals { interrupt: catch(SIGINT)?, terminate: catch(SIGTERM)?, hang_up: catch(SIGHUP)? })
    }

    /// Whether one came since the last look.
    fn any(&self) -> bool {
        [&self.interrupt, &self.terminate, &self.hang_up].iter().any(|f| f.swap(false, Ordering::SeqCst))
    }

    /// Passes on what came. Ctrl-C at a terminal reaches the command by itself.
    fn pass_to(&self, child: &Child) {
        for (flag, signal) in [(&self.interrupt, SIGINT), (&self.terminate, SIGTERM), (&self.hang_up, SIGHUP)]
        {
            if flag.swap(false, Ordering::SeqCst) && (signal == SIGTERM || !in_foreground()) {
                child.signal(signal);
            }
        }
    }
}

/// Whether this process belongs to the foreground of its terminal, so that the terminal's signals reach the command, too.
fn in_foreground() -> bool {
    let Ok(tty) = File::open("/dev/tty") else { return false };
    rustix::termios::tcgetpgrp(&tty).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// When to stop.
struct Watch {
    begun: Instant,
    duration: Option<Duration>,
    max_size: u64,
    size: Arc<AtomicU64>,
    signals: Signals,
}

/// What was watched.
struct Seen {
    captured: Captured,
    /// The recording ended because the trace was as large as allowed.
    full: bool,
    wall: Duration,
}

impl Watch {
    /// Waits for what ends the recording.
    fn watch(
        &self,
        child: Option<Child>,
        watched: &[OwnedFd],
        capture: Capture,
    ) -> Result<(Seen, Option<Child>), Failure> {
        let mut handles: Vec<&OwnedFd> = watched.iter().collect();
        let own;
        if let Some(child) = &child {
            let pid = Pid::from_raw(child.pid() as i32).context("the command has no process id")?;
            own = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch the command")?;
            handles.push(&own);
        }
        let mut full = false;
        loop {
            let left = self.duration.map(|d| d.saturating_sub(self.begun.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let ended = wait_for_any(&mut handles, left.unwrap_or(LOOK).min(LOOK))?;
            if ended && handles.is_empty() {
                break;
            }
            match &child {
                Some(child) => self.signals.pass_to(child),
                None if self.signals.any() => break,
                None => {}
            }
            if self.size.load(Ordering::Relaxed) >= self.max_size {
                full = true;
                break;
            }
        }
        // without the time that it takes to end the capture
        let wall = self.begun.elapsed();
        let captured = capture.stop().map_err(not_captured)?;
        Ok((Seen { captured, full, wall }, child))
    }

    /// Waits for the end of the command.
    fn wait(&self, child: &mut Child) -> Result<End, Failure> {
        let pid = Pid::from_raw(child.pid() as i32).context("the command has no process id")?;
        loop {
            if let Some(end) = child.try_wait().context("cannot wait for the command")? {
                return Ok(end);
            }
            self.signals.pass_to(child);
            let own = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch the command")?;
            wait_for_any(&mut vec![&own], LOOK)?;
        }
    }
}

/// Waits until one of the processes ends, a signal comes or the time is up; takes away those that have ended.
fn wait_for_any(handles: &mut Vec<&OwnedFd>, most: Duration) -> Result<bool, Failure> {
    let mut fds: Vec<PollFd<'_>> = handles.iter().map(|fd| PollFd::new(*fd, PollFlags::IN)).collect();
    let most = Timespec::try_from(most).context("cannot wait")?;
    match poll(&mut fds, Some(&most)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(anyhow::Error::from(e).context("cannot wait").into()),
    }
    let ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
    let mut i = 0;
    handles.retain(|_| {
        i += 1;
        !ended[i - 1]
    });
    Ok(ended.contains(&true))
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
