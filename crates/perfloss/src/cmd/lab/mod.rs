//! `perfloss lab`: the kernel's sleeping locks and their adaptive variants, raced in user space.
//!
//! The points, their rounds, the statistics and the table are those of `run`: a policy stands where `run` has a target. What a lock alone can
//! tell (waits, hand-offs, bypasses) comes in a second table.

mod times;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::Args as ClapArgs;
use harness::Measured;
use harness::budget::{Parts, Spread};
use harness::cpus::{Cpus, Quota};
use harness::order::interleave;
use harness::plan::{Done, TAINT_SHARE, Taint};
use harness::readings::{CpuTimes, Reading, interrupts_apart};
use harness::stats;
use locks::pattern::{self, Counts, Edge, Pattern, Policy};
use result::{Folder, MadeBy, Mode, Options, Point, RunResult};
use serde::Serialize;

use crate::exit::{Failure, Status};
use crate::{machine, points, terminal};

/// Most threads of a race.
const MOST_THREADS: u32 = 4096;

/// Race lock policies on the pattern of a shared directory and its allocation group
#[derive(ClapArgs, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Policies of the group's lock, separated by commas: semaphore, adaptive, rwsem, mutex, futex, std, parking_lot [default: all]
    #[arg(value_name = "POLICY", value_delimiter = ',')]
    policies: Vec<String>,
    /// Task counts, separated by commas [default: 1, the number of allowed CPUs, and four times that]
    #[arg(short, long, value_name = "N,N", value_delimiter = ',')]
    tasks: Vec<u32>,
    /// Into how many directories, each in a group of its own, the tasks are spread
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1")]
    split: Vec<u32>,
    /// Threads that take the group's lock alone [default: 1]
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
    /// No directories and no workers: the tasks take one lock, hold it, and think
    #[arg(long)]
    plain: bool,
    /// Take all times that are not given from this result: from how long a captured round saw XFS's group held
    #[arg(long, value_name = "RESULT")]
    from: Option<PathBuf>,
    /// How long the group's lock is held, us of work [default: 1]
    #[arg(long, value_name = "US")]
    hold: Option<f64>,
    /// What a task does without a lock, us of work [default: 1]
    #[arg(long, value_name = "US")]
    think: Option<f64>,
    /// What a task does with the directory's lock alone, us of work [default: 2]
    #[arg(long, value_name = "US")]
    directory: Option<f64>,
    /// As --hold, for the workers [default: as --hold]
    #[arg(long, value_name = "US")]
    worker_hold: Option<f64>,
    /// As --think, for the workers [default: as --think]
    #[arg(long, value_name = "US")]
    worker_think: Option<f64>,
    /// Policy of the directories' locks
    #[arg(long, value_name = "POLICY", default_value = "rwsem")]
    directory_policy: String,
    /// Length of a round's window, seconds
    #[arg(short, long, value_name = "S", default_value_t = 0.5)]
    seconds: f64,
    /// Rounds of every point; they are interleaved over all points
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Write a result folder, for `perfloss show` and `perfloss compare`
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Decides the order of the rounds and every other random choice [default: from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print as JSON: the result, and what the locks did
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  perfloss lab                                          every policy on the pattern of the reported case
  perfloss lab semaphore,adaptive -t 2,8,64 --plain     plain contention for one lock
  perfloss lab -t 8 --split 1,2,8                       would own directories help?
  perfloss lab --hold 1000 --think 1                    does spinning lose when holds are long?
  perfloss lab --from perfloss-results/xfs -t 2,24      the times that a captured run of XFS had

Exit status: 0 done, 2 bad usage, 3 a race failed, 130 interrupted.";

/// One point of the race.
struct Spec {
    policy: Policy,
    pattern: Pattern,
    workload: String,
    tasks: u32,
}

/// What the lock of a point did, over all its rounds.
#[derive(Debug, Default, Serialize)]
struct LockLine {
    workload: String,
    policy: &'static str,
    tasks: u32,
    /// Taking and releasing it when nobody else wants it, ns: median of the rounds.
    uncontended_ns: f64,
    /// Against the first policy at the same workload and tasks: ratio of the medians, and its interval.
    against_first: Option<[f64; 3]>,
    /// Shares, medians of the rounds.
    hand_off_share: f64,
    idle_share: f64,
    /// CPU time, us, median of the rounds.
    cpu_us_per_op: f64,
    /// Waits, us, over all rounds.
    wait_p50_us: f64,
    wait_p999_us: f64,
    wait_longest_us: f64,
    /// Most acquisitions by others during one wait: the median of the rounds' maxima, and the largest.
    longest_bypass: f64,
    longest_bypass_ever: u64,
    /// Operations of the slowest over those of the fastest thread, median of the rounds.
    evenness: f64,
    #[serde(skip)]
    rounds: Vec<Counts>,
    #[serde(skip)]
    uncontended: Vec<f64>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Status, Failure> {
    let unit = unit(args)?;
    let specs = check(args, &unit)?;
    let directory = policy(&args.directory_policy)?;
    let cpus = Cpus::allowed().context("cannot read the allowed CPUs")?;
    let folder = args.output.as_ref().map(|path| Folder::create(path).map_err(not_written)).transpose()?;
    let seed = args.seed.unwrap_or_else(super::run::seed_from_clock);
    let mut result = first_result(args, &unit, &specs, &cpus, seed);
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupted))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)))
            .context("cannot handle signals")?;
    }
    let mut lines: Vec<LockLine> = specs
        .iter()
        .map(|spec| LockLine {
            workload: spec.workload.clone(),
            policy: spec.policy.name(),
            tasks: spec.tasks,
            ..LockLine::default()
        })
        .collect();
    let mut parts = vec![Vec::new(); specs.len()];
    let turns = interleave(specs.len(), args.rounds, seed);
    let begun = std::time::Instant::now();
    let bar = progress(args, turns.len());
    for (order, turn) in turns.iter().enumerate() {
        if interrupted.load(Ordering::Relaxed) {
            result.interrupted = true;
            break;
        }
        let spec = &specs[turn.point];
        bar.set_message(format!(
            "{} · {} · {}",
            spec.workload,
            spec.policy.name(),
            report::text::tasks(spec.tasks)
        ));
        let (counts, measured) = race(spec, directory, args, &cpus)?;
        let taints = taints(&measured);
        let done = Done {
            captured: false,
            point: turn.point,
            round: turn.round,
            order: order as u32,
            retries: 0,
            kept: true,
            taints,
            measured,
        };
        points::add(&mut result.points[turn.point], &done, &mut parts[turn.point], seed);
        let line = &mut lines[turn.point];
        line.uncontended.push(pattern::uncontended_ns(&spec.policy.lock()));
        line.rounds.push(counts);
        result.elapsed_s = begun.elapsed().as_secs_f64();
        if let Some(folder) = &folder {
            folder.update(&result).map_err(not_written)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    result.complete = !result.interrupted;
    summarize(&mut lines, seed);
    if let Some(folder) = &folder {
        folder
            .update(&result)
            .and_then(|()| folder.write("report.html", report::html::page(&result).as_bytes()))
            .map_err(not_written)?;
    }
    print(args, &result, &lines, folder.as_ref().map(Folder::path))?;
    Ok(if result.interrupted { Status::Interrupted } else { Status::Done })
}

/// The policy of a name on the command line.
fn policy(name: &str) -> Result<Policy, Failure> {
    Policy::ALL.iter().find(|p| p.name() == name.trim()).copied().ok_or_else(|| {
        let names: Vec<_> = Policy::ALL.iter().map(|p| p.name()).collect();
        Failure::usage(format!("no policy {name:?}: there are {}", names.join(", ")))
    })
}

/// Microseconds as they are given on the command line.
fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

fn not_written(error: result::WriteError) -> Failure {
    Failure::new(Status::NotAllowed, error)
}

/// The pattern for one task in one directory, from what was given and what a result says.
fn unit(args: &Args) -> Result<Pattern, Failure> {
    let ns = |flag: &str, us: f64| match us {
        us if (0.0..=1e6).contains(&us) => Ok((us * 1000.0).round() as u64),
        us => Err(Failure::usage(format!("{flag} {us}: give microseconds from 0 to 1000000"))),
    };
    let given = |flag: &str, us: Option<f64>| us.map(|us| ns(flag, us)).transpose();
    let seen = match &args.from {
        Some(folder) => Some(times::of_result(folder).map_err(Failure::usage)?),
        None => None,
    };
    if let Some((point, seen)) = &seen
        && !args.quiet
    {
        eprintln!("{}", seen.told(point));
    }
    let seen = seen.map(|(_, seen)| seen);
    let seen = seen.as_ref();
    let hold = given("--hold", args.hold)?.or(seen.map(|t| t.hold_ns)).unwrap_or(1000);
    let think = given("--think", args.think)?.or(seen.map(|t| t.think_ns)).unwrap_or(1000);
    Ok(Pattern {
        tasks: 1,
        workers: args.workers.or(seen.map(|t| t.workers)).unwrap_or(1),
        directories: 1,
        groups: 1,
        think_ns: think,
        directory_ns: given("--directory", args.directory)?.or(seen.map(|t| t.directory_ns)).unwrap_or(2000),
        hold_ns: hold,
        worker_think_ns: given("--worker-think", args.worker_think)?
            .or(seen.map(|t| t.worker_think_ns))
            .unwrap_or(think),
        worker_hold_ns: given("--worker-hold", args.worker_hold)?
            .or(seen.map(|t| t.worker_hold_ns))
            .unwrap_or(hold),
    })
}

fn check(args: &Args, unit: &Pattern) -> Result<Vec<Spec>, Failure> {
    let policies = match args.policies.as_slice() {
        [] => Policy::ALL.to_vec(),
        given => given.iter().map(|text| policy(text)).collect::<Result<Vec<_>, _>>()?,
    };
    if !(0.01..=3600.0).contains(&args.seconds) {
        return Err(Failure::usage(format!("--seconds {}: give seconds from 0.01 to 3600", args.seconds)));
    }
    let cpus = Cpus::allowed().context("cannot read the allowed CPUs")?.count() as u32;
    let mut counts = if args.tasks.is_empty() { vec![1, cpus, 4 * cpus] } else { args.tasks.clone() };
    counts.sort_unstable();
    counts.dedup();
    let mut splits = args.split.clone();
    splits.sort_unstable();
    splits.dedup();
    for &n in counts.iter().chain(&splits).chain([&(unit.workers.max(1))]) {
        if !(1..=MOST_THREADS).contains(&n) {
            return Err(Failure::usage(format!(
                "{n}: give task, split and worker counts from 1 to {MOST_THREADS}"
            )));
        }
    }
    let mut specs = Vec::new();
    for &split in if args.plain { &[1][..] } else { &splits } {
        for &policy in &policies {
            for &tasks in &counts {
                let (pattern, name) = if args.plain {
                    (Pattern::plain(tasks, unit.hold_ns, unit.think_ns), "one lock".to_owned())
                } else {
                    let pattern = Pattern { tasks, directories: split, groups: split, ..unit.clone() };
                    let name = match split {
                        1 => "one directory and its group".to_owned(),
                        n => format!("{n} directories, a group each"),
                    };
                    (pattern, name)
                };
                let workload =
                    format!("{name}, hold {} us, think {} us", micros(unit.hold_ns), micros(unit.think_ns));
                specs.push(Spec { policy, pattern, workload, tasks });
            }
        }
    }
    Ok(specs)
}

fn first_result(args: &Args, unit: &Pattern, specs: &[Spec], cpus: &Cpus, seed: u64) -> RunResult {
    let mut result = RunResult::new(MadeBy::Run, seed);
    result.perfloss_version = env!("CARGO_PKG_VERSION").to_owned();
    result.started = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    result.machine = machine::describe(cpus);
    result.command = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    let mut tasks: Vec<u32> = specs.iter().map(|spec| spec.tasks).collect();
    tasks.sort_unstable();
    tasks.dedup();
    result.options = Options {
        tasks,
        rounds: args.rounds,
        seconds: args.seconds,
        warm_up_limit_s: Some(args.seconds / 10.0),
        pinned: false,
        capture: false,
        other: BTreeMap::from([
            ("directory".to_owned(), format!("{} us", micros(unit.directory_ns))),
            ("directory policy".to_owned(), args.directory_policy.clone()),
            ("workers".to_owned(), if args.plain { "0".to_owned() } else { unit.workers.to_string() }),
            ("worker hold".to_owned(), format!("{} us", micros(unit.worker_hold_ns))),
            ("worker think".to_owned(), format!("{} us", micros(unit.worker_think_ns))),
        ]),
    };
    for spec in specs {
        result.points.push(Point {
            workload: spec.workload.clone(),
            target: spec.policy.name().to_owned(),
            mode: Mode::Threads,
            tasks: spec.tasks,
            valid: true,
            ..Point::default()
        });
        if result.target(spec.policy.name()).is_none() {
            result.targets.push(result::Target {
                name: spec.policy.name().to_owned(),
                kind: "lock".to_owned(),
                ..result::Target::default()
            });
        }
        if result.workload(&spec.workload).is_none() {
            result.workloads.push(result::Workload {
                name: spec.workload.clone(),
                version: "1".to_owned(),
                description: "a race of lock policies in user space".to_owned(),
                ..result::Workload::default()
            });
        }
    }
    result
}

/// One round of one point.
fn race(spec: &Spec, directory: Policy, args: &Args, cpus: &Cpus) -> Result<(Counts, Measured), Failure> {
    let numbers: Vec<u32> = cpus.in_order().iter().map(|c| c.cpu).collect();
    let quota = Quota::here();
    let mut edges = Vec::new();
    let window = Duration::from_secs_f64(args.seconds);
    let counts = pattern::run(
        &spec.pattern,
        window,
        || directory.lock(),
        || spec.policy.lock(),
        |edge| edges.push(Reading::take(&numbers, quota.as_ref(), edge == Edge::Opens, |_| ())),
    )
    .map_err(|error| Failure::new(Status::Untrusted, error))?;
    let mut edges = edges.into_iter().map(|edge| edge.context("cannot read the CPUs' times"));
    let (Some(start), Some(end)) = (edges.next().transpose()?, edges.next().transpose()?) else {
        return Err(Failure::new(Status::Untrusted, anyhow::anyhow!("the window has no edges")));
    };
    let window_us = (end.at_ns - start.at_ns) as f64 / 1000.0;
    let deltas: Vec<CpuTimes> = end.cpus.iter().zip(&start.cpus).map(|(e, s)| e.since(*s)).collect();
    let spread = Spread::Free(spec.pattern.threads());
    let pressure =
        |i: usize| Some(end.pressure_us[i]?.checked_sub(start.pressure_us[i]?)? as f64 / window_us);
    let both = |a: Option<f64>, b: Option<f64>| Some((a? + b?) / 2.0);
    let shown = if spec.pattern.tasks == 0 { counts.per_thread.len() } else { spec.pattern.tasks as usize };
    let measured = Measured {
        trail: Vec::new(),
        warm_up_s: args.seconds / 10.0,
        steady: true,
        window_s: counts.window.as_secs_f64(),
        operations: counts.per_thread[..shown].iter().map(|&n| n as f64).collect(),
        parts: Parts::new(&deltas, window_us, &spread, quota.as_ref().map(|q| q.cpus), interrupts_apart()),
        procs_running: both(start.procs_running.map(|n| n as f64), end.procs_running.map(|n| n as f64)),
        pressure: [pressure(0), pressure(1), pressure(2)],
        throttled_s: end.throttled_s.zip(start.throttled_s).map(|(e, s)| (e - s).max(0.0)),
        frequency_mhz: both(start.frequency_mhz, end.frequency_mhz),
        facts: target::Facts::default(),
        stderr: None,
        // All that the CPUs did, less what our threads did.
        other_load_s: Some(
            (deltas.iter().map(|d| d.user_us + d.system_us).sum::<f64>() / 1e6 - counts.cpu.as_secs_f64())
                .max(0.0),
        ),
    };
    Ok((counts, measured))
}

fn taints(measured: &Measured) -> Vec<Taint> {
    let share = |us: f64| us / measured.parts.capacity_us;
    let steal = Some(share(measured.parts.steal_us)).filter(|&s| s > TAINT_SHARE).map(Taint::Steal);
    let other =
        measured.other_load_s.map(|s| share(s * 1e6)).filter(|&s| s > TAINT_SHARE).map(Taint::OtherLoad);
    let throttled = measured.throttled_s.filter(|&s| s > 0.0).map(Taint::Throttled);
    [steal, other, throttled].into_iter().flatten().collect()
}

fn progress(args: &Args, turns: usize) -> indicatif::ProgressBar {
    if args.quiet {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::new(turns as u64);
    if let Ok(style) = indicatif::ProgressStyle::with_template("{pos}/{len} {msg} · {eta} left") {
        bar.set_style(style);
    }
    bar
}

fn summarize(lines: &mut [LockLine], seed: u64) {
    for line in lines.iter_mut() {
        let of = |f: &dyn Fn(&Counts) -> f64| {
            stats::median(&line.rounds.iter().map(f).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        line.hand_off_share = of(&Counts::hand_off_share);
        line.idle_share = of(&Counts::idle_share);
        line.cpu_us_per_op = of(&Counts::cpu_us_per_operation);
        line.evenness = of(&Counts::evenness);
        line.longest_bypass = of(&|c| c.longest_bypass as f64);
        line.longest_bypass_ever = line.rounds.iter().map(|c| c.longest_bypass).max().unwrap_or(0);
        line.uncontended_ns = stats::median(&line.uncontended).unwrap_or(0.0);
        let mut waits = pattern::Histogram::default();
        line.rounds.iter().for_each(|c| waits.merge(&c.waits));
        let us = |ns: u64| ns as f64 / 1000.0;
        line.wait_p50_us = us(waits.quantile(0.5));
        line.wait_p999_us = us(waits.quantile(0.999));
        line.wait_longest_us = us(waits.largest());
    }
    let rates = |line: &LockLine| line.rounds.iter().map(Counts::operations_per_s).collect::<Vec<f64>>();
    for index in 1..lines.len() {
        let first = lines
            .iter()
            .position(|l| l.workload == lines[index].workload && l.tasks == lines[index].tasks)
            .filter(|&first| first != index);
        let ratio =
            first.and_then(|first| stats::compare(&rates(&lines[first]), &rates(&lines[index]), seed));
        lines[index].against_first = ratio.map(|r| [r.ratio, r.interval.low, r.interval.high]);
    }
}

#[derive(Serialize)]
struct Printed<'a> {
    result: &'a RunResult,
    locks: &'a [LockLine],
}

fn print(args: &Args, result: &RunResult, lines: &[LockLine], folder: Option<&Path>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let printed = if args.json {
        serde_json::to_string_pretty(&Printed { result, locks: lines })
            .map_err(std::io::Error::from)
            .and_then(|text| writeln!(out, "{text}"))
    } else {
        let text = report::terminal::render(result, terminal::width(), terminal::color());
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(table(lines).as_bytes())).and_then(|()| {
            match folder {
                Some(folder) => writeln!(out, " {}", folder.join("report.html").display()),
                None => Ok(()),
            }
        })
    };
    printed.and_then(|()| out.flush()).context("cannot print the result").map_err(Failure::from)
}

/// What the locks did, one table a workload.
fn table(lines: &[LockLine]) -> String {
    use report::text;
    const HEADS: [&str; 10] = [
        "policy",
        "tasks",
        "against first",
        "hand-off",
        "wait p50",
        "p99.9",
        "longest",
        "bypass",
        "evenness",
        "alone",
    ];
    let mut out = String::new();
    let mut workloads: Vec<&str> = lines.iter().map(|l| l.workload.as_str()).collect();
    workloads.dedup();
    for workload in workloads {
        let rows: Vec<[String; 10]> = lines
            .iter()
            .filter(|l| l.workload == workload && !l.rounds.is_empty())
            .map(|l| {
                [
                    l.policy.to_owned(),
                    l.tasks.to_string(),
                    l.against_first.map_or_else(
                        || text::NONE.to_owned(),
                        |[ratio, low, high]| format!("×{ratio:.2} ({low:.2}–{high:.2})"),
                    ),
                    text::percent(l.hand_off_share),
                    text::micros(l.wait_p50_us),
                    text::micros(l.wait_p999_us),
                    text::micros(l.wait_longest_us),
                    text::rate(l.longest_bypass),
                    text::ratio(l.evenness),
                    format!("{:.1}", l.uncontended_ns),
                ]
            })
            .collect();
        let widths: Vec<usize> = (0..HEADS.len())
            .map(|i| {
                rows.iter().map(|r| text::width(&r[i])).chain([text::width(HEADS[i])]).max().unwrap_or(0)
            })
            .collect();
        out.push_str(&format!("\nThe lock: {workload}\n\n"));
        let mut line = |cells: &[String]| {
            let cells: Vec<String> = cells
                .iter()
                .zip(&widths)
                .enumerate()
                .map(
                    |(i, (cell, &width))| {
                        if i == 0 { text::left(cell, width) } else { text::right(cell, width) }
                    },
                )
                .collect();
            out.push_str(&format!(" {}\n", cells.join("  ")));
        };
        line(&HEADS.map(str::to_owned));
        rows.iter().for_each(|row| line(row));
    }
    out.push_str(
        "\n hand-off: share of the waiting after the release · waits and p99.9 in us · bypass: acquisitions by others during one wait\n \
         evenness: slowest over fastest thread · alone: ns to take and release it when nobody else wants it\n",
    );
    out
}
