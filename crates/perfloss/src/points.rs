//! From rounds as the harness measured them to points as the result shows them.

use harness::budget::Parts;
use harness::cpus::Cpus;
use harness::plan::{Done, Taint as PlanTaint};
use harness::stats::{self, Verdict as StatsVerdict};
use harness::{Measured, RoundSpec};
use result::{
    Budget, Comparison, CpuSeconds, Estimate, Mode, Noise, PartSource, PerTask, Point, PointRef, Pressure,
    Round, RunResult, Taint, Target, Verdict, Warning,
};
use workload::Mode as TaskMode;

/// Rounds that differ by more than this (range over median) are warned about.
const ROUNDS_DIFFER: f64 = 0.10;

/// A budget whose sources disagree by more than this share of the total is warned about.
const UNACCOUNTED: f64 = 0.02;

/// The scheduler's tick, by which user and system time are told apart, comes this often (`CONFIG_HZ` of most kernels; 1000 at the most).
const TICKS_PER_S: f64 = 250.0;

/// A point before its first round, on the allowed `cpus`.
pub fn begin(spec: &RoundSpec, target_name: &str, cpus: &Cpus) -> Point {
    Point {
        workload: spec.workload.name().to_owned(),
        target: target_name.to_owned(),
        mode: mode(spec.mode),
        tasks: spec.tasks,
        valid: true,
        smt_shared: shared_cores(spec.tasks, spec.bind, cpus),
        cpus: if spec.bind {
            (0..spec.tasks as usize).map(|i| spec.cpus[i % spec.cpus.len()]).collect()
        } else {
            Vec::new()
        },
        ..Point::default()
    }
}

/// Whether some of the tasks share a core. Bound ones have cores of their own as long as there are any; where others go is the
/// scheduler's affair, but more of them than cores have to share.
fn shared_cores(tasks: u32, bound: bool, cpus: &Cpus) -> Option<bool> {
    if cpus.in_order().iter().any(|c| c.core.is_none()) {
        return None;
    }
    let share = tasks as usize > cpus.cores();
    (bound || share).then_some(share)
}

/// Adds a round and recomputes what follows from all rounds.
pub fn add(point: &mut Point, done: &Done, parts: &mut Vec<(Parts, f64)>, seed: u64) {
    point.rounds.push(round(done));
    if done.kept {
        parts.push((done.measured.parts, done.measured.total()));
    }
    let rates: Vec<f64> = point.rounds.iter().filter(|r| r.kept).map(|r| r.ops_per_s).collect();
    let Some(summary) = stats::summarize(&rates, seed).filter(|_| point.valid) else { return };
    point.ops_per_s = Some(Estimate {
        median: summary.median,
        mad: summary.mad,
        low: summary.interval.low,
        high: summary.interval.high,
        rounds: rates,
    });
    point.per_task_ops_per_s = per_task(point);
    point.budget_us_per_op = budget(parts);
    point.warnings = warnings(point);
}

/// Makes a point void: nothing of it may be used, but its rounds stay readable.
pub fn void(point: &mut Point, why: &harness::Void) {
    void_because(point, why.to_string());
}

/// The same, for a reason in words.
pub fn void_because(point: &mut Point, why: String) {
    point.valid = false;
    point.invalid_because = Some(why);
    point.ops_per_s = None;
    point.per_task_ops_per_s = None;
    point.budget_us_per_op = None;
}

fn mode(mode: TaskMode) -> Mode {
    match mode {
        TaskMode::Processes => Mode::Processes,
        TaskMode::Threads => Mode::Threads,
    }
}

fn round(done: &Done) -> Round {
    let m = &done.measured;
    let seconds = |us: f64| Some(us / 1e6);
    let known = m.pressure.iter().any(Option::is_some);
    Round {
        round: done.round,
        order: done.order,
        kept: done.kept,
        retries: done.retries,
        warm_up_s: m.warm_up_s,
        warm_up_steady: m.steady,
        window_s: m.window_s,
        operations: m.total(),
        ops_per_s: m.ops_per_s(),
        per_task_ops_per_s: m.operations.iter().map(|ops| ops / m.window_s).collect(),
        cpu: CpuSeconds {
            capacity: seconds(m.parts.capacity_us),
            user: seconds(m.parts.user_us + m.parts.other_us.unwrap_or(0.0)),
            system: seconds(m.parts.system_us + m.parts.system_elsewhere_us.unwrap_or(0.0)),
            irq: m.parts.irq_us.map(|us| us / 1e6),
            steal: seconds(m.parts.steal_us),
            idle: seconds(m.parts.idle_us + m.parts.unused_us - m.parts.iowait_us),
            iowait: seconds(m.parts.iowait_us),
            tasks_user: None,
            tasks_system: None,
        },
        other_load_s: m.other_load_s,
        throttled_s: m.throttled_s,
        pressure: known.then(|| Pressure {
            cpu_some: m.pressure[0],
            io_some: m.pressure[1],
            memory_some: m.pressure[2],
        }),
        procs_running: m.procs_running,
        frequency_mhz: m.frequency_mhz,
        taints: taints(done),
    }
}

fn taints(done: &Done) -> Vec<Taint> {
    let mut taints: Vec<Taint> = done
        .taints
        .iter()
        .map(|taint| match *taint {
            PlanTaint::Steal(share) => Taint::Steal { share },
            PlanTaint::OtherLoad(share) => Taint::OtherLoad { share },
            PlanTaint::Throttled(seconds) => Taint::Throttled { seconds },
        })
        .collect();
    if !done.measured.steady {
        taints.push(Taint::NotSteady);
    }
    taints
}

fn per_task(point: &Point) -> Option<PerTask> {
    let kept: Vec<&Round> = point.rounds.iter().filter(|r| r.kept).collect();
    let rates: Vec<f64> = (0..point.tasks as usize)
        .filter_map(|task| {
            let of_task: Vec<f64> =
                kept.iter().filter_map(|r| r.per_task_ops_per_s.get(task).copied()).collect();
            stats::median(&of_task)
        })
        .collect();
    let min = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let max = rates.iter().copied().fold(0.0, f64::max);
    Some(PerTask { min, median: stats::median(&rates)?, max, rates })
}

/// Time of all kept rounds over operations of all kept rounds: that way the parts add up to the total, and the kernel's 10 ms steps
/// are spread over all windows.
fn budget(rounds: &[(Parts, f64)]) -> Option<Budget> {
    let operations: f64 = rounds.iter().map(|(_, operations)| operations).sum();
    let all = rounds.iter().map(|(parts, _)| *parts).reduce(|a, b| a.plus(&b))?;
    if operations <= 0.0 {
        return None;
    }
    let p = all.per(operations);
    let mut budget = Budget {
        user: Some(p.user_us),
        system: Some(p.system_us),
        spin: None,
        irq: p.irq_us,
        steal: Some(p.steal_us),
        idle: Some(p.idle_us),
        iowait: Some(p.iowait_us),
        unused: Some(p.unused_us),
        system_elsewhere: p.system_elsewhere_us,
        other: p.other_us,
        total: Some(p.capacity_us),
        unaccounted: Some(p.unaccounted_us),
        ..Budget::default()
    };
    for (part, source) in [
        ("user", PartSource::Ticks),
        ("system", PartSource::Ticks),
        ("irq", PartSource::Ticks),
        ("steal", PartSource::Exact),
        ("idle", PartSource::Exact),
        ("unused", PartSource::Exact),
        ("system_elsewhere", PartSource::Ticks),
        ("other", PartSource::Ticks),
    ] {
        budget.sources.insert(part.to_owned(), source);
    }
    Some(budget)
}

fn warnings(point: &Point) -> Vec<Warning> {
    let kept: Vec<&Round> = point.rounds.iter().filter(|r| r.kept).collect();
    let mut warnings = Vec::new();
    let rates = || kept.iter().map(|r| r.ops_per_s);
    let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    let middle = point.ops_per_s.as_ref().map_or(0.0, |e| e.median);
    if kept.len() > 1 && middle > 0.0 && (most - least) / middle > ROUNDS_DIFFER {
        warnings.push(Warning::RoundsDiffer { spread: (most - least) / middle, because: None });
    }
    let fewest = kept
        .iter()
        .flat_map(|r| r.per_task_ops_per_s.iter().map(|rate| rate * r.window_s))
        .fold(f64::INFINITY, f64::min);
    if fewest < 2.0 {
        warnings.push(Warning::FewOperations { operations: fewest });
    }
    let not_steady = kept.iter().filter(|r| !r.warm_up_steady).count() as u32;
    if not_steady > 0 {
        let limit_s = kept.iter().map(|r| r.warm_up_s).fold(0.0, f64::max);
        warnings.push(Warning::WarmUpNotSteady { rounds: not_steady, limit_s });
    }
    let worst = |of: &dyn Fn(&Taint) -> Option<f64>| {
        kept.iter().flat_map(|r| r.taints.iter().filter_map(of)).reduce(f64::max)
    };
    if let Some(share) = worst(&|t| if let Taint::Steal { share } = t { Some(*share) } else { None }) {
        warnings.push(Warning::Steal { share });
    }
    if let Some(share) = worst(&|t| if let Taint::OtherLoad { share } = t { Some(*share) } else { None }) {
        warnings.push(Warning::OtherLoad { share });
    }
    let throttled: f64 = kept.iter().filter_map(|r| r.throttled_s).sum();
    if throttled > 0.0 {
        warnings.push(Warning::Throttled { seconds: throttled });
    }
    let repeated = point.rounds.iter().filter(|r| !r.kept).count() as u32;
    if repeated > 0 {
        let disturbed = |r: &&&Round| r.taints.iter().any(|t| !matches!(t, Taint::NotSteady));
        let still_tainted = kept.iter().filter(disturbed).count() as u32;
        warnings.push(Warning::RoundsRepeated { rounds: repeated, still_tainted });
    }
    let frequencies = || kept.iter().filter_map(|r| r.frequency_mhz);
    let (low_mhz, high_mhz) =
        (frequencies().fold(f64::INFINITY, f64::min), frequencies().fold(0.0, f64::max));
    if high_mhz > low_mhz * 1.05 {
        warnings.push(Warning::FrequencyVaries { low_mhz, high_mhz });
    }
    if let Some(Budget { total: Some(total), unaccounted: Some(unaccounted), .. }) = point.budget_us_per_op
        && (unaccounted / total).abs() > UNACCOUNTED
    {
        warnings.push(Warning::Unaccounted { share: unaccounted / total });
    }
    warnings
}

/// How well the tick tells user from system time over `cpu_s` CPU-seconds: half a 95 % interval, percentage points.
pub fn tick_points(cpu_s: f64) -> f64 {
    100.0 * 1.96 * 0.5 / (cpu_s * TICKS_PER_S).max(1.0).sqrt()
}

/// What the result records about the place of a point, from the round's own facts.
pub fn target(name: &str, spec: &target::Spec, measured: &Measured) -> Target {
    let f = &measured.facts;
    let mut target = Target { name: name.to_owned(), kind: kind(spec), ..Target::default() };
    let mut fact = |key: &str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            target.facts.insert(key.to_owned(), value);
        }
    };
    fact("file system", Some(f.fs_type.clone()));
    fact("mount options", Some(f.mount_options.clone()));
    fact("device", Some(f.device.clone()));
    fact("mkfs", f.mkfs.clone());
    fact("mkfs version", f.mkfs_version.clone());
    fact("medium", f.medium.clone());
    fact("size in bytes", f.image_size.map(|n| n.to_string()));
    fact("direct I/O", f.direct_io.map(|yes| if yes { "yes" } else { "no" }.to_owned()));
    for (key, value) in &f.geometry {
        fact(key, Some(value.clone()));
    }
    if let Some(below) = &f.below {
        fact("below", Some(below.fs_type.clone()));
        fact("mount options below", Some(below.mount_options.clone()));
        fact("mkfs below", below.mkfs.clone());
    }
    fact("notes", (!f.notes.is_empty()).then(|| f.notes.join("; ")));
    target
}

/// The same before any round has seen it.
pub fn target_named(name: &str, spec: &target::Spec) -> Target {
    Target { name: name.to_owned(), kind: kind(spec), ..Target::default() }
}

fn kind(spec: &target::Spec) -> String {
    let below = spec.file_system().unwrap_or("directory");
    if spec.is_overlay() { format!("overlay on {below}") } else { below.to_owned() }
}

/// Compares point `b` with point `a`; `None` if either is void.
pub fn compare(a: &Point, b: &Point, seed: u64) -> Option<Comparison> {
    let (ra, rb) = (a.ops_per_s.as_ref()?, b.ops_per_s.as_ref()?);
    let ratio = stats::compare(&ra.rounds, &rb.rounds, seed)?;
    let verdict = match ratio.verdict {
        StatsVerdict::CannotSay => Verdict::CannotSay,
        StatsVerdict::NoDifference => Verdict::NoDifference,
        StatsVerdict::Different if ratio.ratio >= 1.0 => Verdict::Faster,
        StatsVerdict::Different => Verdict::Slower,
    };
    let difference = match (&a.budget_us_per_op, &b.budget_us_per_op) {
        (Some(base), Some(new)) => Some(new.minus(base, a.tasks != b.tasks)),
        _ => None,
    };
    Some(Comparison {
        a: reference(a),
        b: reference(b),
        a_ops_per_s: Some(ra.median),
        b_ops_per_s: Some(rb.median),
        ratio: Some(ratio.ratio),
        low: Some(ratio.interval.low),
        high: Some(ratio.interval.high),
        p_value: Some(ratio.p),
        p_between: None,
        p_adjusted: None,
        verdict,
        difference_us_per_op: difference,
        roots: Vec::new(),
        because: Vec::new(),
    })
}

fn reference(point: &Point) -> PointRef {
    PointRef {
        workload: point.workload.clone(),
        target: point.target.clone(),
        mode: point.mode,
        tasks: point.tasks,
    }
}

/// Everything that is said of points of one result together: each target against the best one at the largest task
/// count, and the same target against itself (A/A) wherever it was named twice.
pub fn compare_all(result: &mut RunResult, same: &dyn Fn(&str, &str) -> bool) {
    let most = result.points.iter().map(|p| p.tasks).max().unwrap_or(0);
    let rated: Vec<&Point> = result.points.iter().filter(|p| p.rate().is_some()).collect();
    let mut comparisons = Vec::new();
    let (mut threshold, mut pairs) = (0.0f64, 0);
    for (i, a) in rated.iter().enumerate() {
        for b in &rated[i + 1..] {
            let alike = a.workload == b.workload && a.mode == b.mode && a.tasks == b.tasks;
            if !alike || !same(&a.target, &b.target) {
                continue;
            }
            if let Some(comparison) = compare(a, b, result.seed) {
                pairs += 1;
                threshold = threshold.max(comparison.ratio.map_or(0.0, |r| (r - 1.0).abs()));
                comparisons.push(comparison);
            }
        }
    }
    if pairs > 0 {
        let how = "largest difference between the same target measured twice".to_owned();
        result.noise = Some(Noise { threshold, pairs, how });
    }
    for a in &rated {
        let rivals =
            || rated.iter().filter(|b| b.workload == a.workload && b.mode == a.mode && b.tasks == most);
        let best = rivals().max_by(|x, y| x.rate().unwrap_or(0.0).total_cmp(&y.rate().unwrap_or(0.0)));
        let Some(best) = best else { continue };
        let itself = std::ptr::eq(*best, *a) || same(&a.target, &best.target);
        if a.tasks == most && !itself {
            comparisons.extend(compare(best, a, result.seed));
        }
    }
    result.comparisons = comparisons;
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness::cpus::Cpu;

    #[test]
    fn tasks_share_cores_once_there_are_more_of_them_than_cores() {
        // Two cores with two threads each, siblings 0 and 2, 1 and 3.
        let threads = (0..4).map(|cpu| Cpu { cpu, core: Some(cpu % 2), package: Some(0) });
        let cpus = Cpus::new(threads.collect());
        let shared = |bound| [1, 2, 3, 4, 8].map(|tasks| shared_cores(tasks, bound, &cpus));
        assert_eq!(shared(true), [Some(false), Some(false), Some(true), Some(true), Some(true)]);
        // Two tasks that nobody bound may or may not sit on one core.
        assert_eq!(shared(false), [None, None, Some(true), Some(true), Some(true)]);
        let unknown = Cpus::new(vec![Cpu { cpu: 0, core: None, package: None }]);
        assert_eq!(shared_cores(8, true, &unknown), None);
    }
}
