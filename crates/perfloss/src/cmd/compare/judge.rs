//! Which points may be compared, and what their rounds say. Pure.

mod between;

use report::select::Selection;
use result::{
    COMPARISON_SCHEMA, Comparison, ComparisonReport, MadeBy, Noise, Point, PointRef, Refusal, ResultRef,
    Root, RootChange, RunResult, Verdict,
};

use crate::points;
use between::Between;

/// The level at which a difference counts.
const LEVEL: f64 = 0.05;

/// Smallest change of a root that is worth a line, CPU-us an operation.
const ROOT_CHANGE_US: f64 = 0.05;

/// One side of a comparison.
pub struct Side<'a> {
    /// The result.
    pub result: &'a RunResult,
    /// Where it was read from.
    pub path: String,
    /// Which of its points are meant.
    pub selection: Selection,
}

/// What the user allows, and what else is known.
pub struct Rules<'a> {
    /// Smallest loss that fails, 0 to 1.
    pub fail_above: f64,
    /// Compare what should not be compared, too.
    pub anyway: bool,
    /// Further runs of the base.
    pub more_base: &'a [RunResult],
    /// Further runs of the new side.
    pub more_new: &'a [RunResult],
}

/// Difference between two separate runs that is never called one with one run a side: machines drift that much.
const DRIFT: f64 = 0.05;

/// Difference of the shares of the CPUs that others used on the two sides, above which nothing can be said.
const UNEQUAL_LOAD: f64 = 0.10;

/// Compares the points that both sides have.
pub fn compare(base: &Side<'_>, new: &Side<'_>, rules: &Rules<'_>) -> ComparisonReport {
    let mut report = ComparisonReport {
        schema: COMPARISON_SCHEMA.to_owned(),
        base: reference(base),
        new: reference(new),
        noise: noise(base.result, new.result),
        fail_above: rules.fail_above,
        ..ComparisonReport::default()
    };
    for why in incomparable(base.result, new.result) {
        if rules.anyway {
            report.notes.push(why);
        } else {
            let why = format!("{why}; --anyway compares all the same");
            report.refused.push(Refusal { point: None, why });
        }
    }
    if !report.refused.is_empty() {
        return report;
    }
    report.notes.extend(differences(base.result, new.result));
    let other_workload = base.selection.workload != new.selection.workload;
    let other_target = base.selection.target != new.selection.target;
    let mut used = vec![false; new.result.points.len()];
    let mut known: Vec<Known> = Vec::new();
    // The rounds of one run are interleaved: what drifts hits both sides.
    let one_run = base.result.started == new.result.started && base.result.seed == new.result.seed;
    for a in base.selection.of(base.result) {
        let partner = new.result.points.iter().enumerate().find(|(i, b)| {
            !used[*i]
                && new.selection.matches(b)
                && a.mode == b.mode
                && a.tasks == b.tasks
                && (a.workload == b.workload || other_workload)
                && (a.target == b.target || other_target)
        });
        let Some((i, b)) = partner else {
            report.notes.push(format!("only in base: {}", name(a)));
            continue;
        };
        used[i] = true;
        match pair(base.result, new.result, a, b, rules) {
            Ok((mut comparison, note)) => {
                report.notes.extend(note);
                let (between, runs) = if one_run {
                    (None, [1, 1])
                } else {
                    between(&mut comparison, (base.result, a), (new.result, b), rules)
                };
                let disturbed = [disturbance(a), disturbance(b)];
                known.push(Known { fewest: smallest_p(a, b), between, runs, disturbed });
                report.comparisons.push(comparison);
            }
            Err(why) => report.refused.push(Refusal { point: Some(point_ref(b)), why }),
        }
    }
    for (i, b) in new.result.points.iter().enumerate() {
        if !used[i] && new.selection.matches(b) {
            report.notes.push(format!("only in new: {}", name(b)));
        }
    }
    correct(&mut report.comparisons, &known);
    for (c, known) in report.comparisons.iter_mut().zip(&known) {
        quiet(c, report.noise.as_ref());
        undisturbed(c, known.disturbed);
        undrifted(c, known);
    }
    if known.iter().any(|k| k.between.is_some() && k.runs == [1, 1]) {
        report.notes.push(
            "one run a side: that two runs of the same differ no more than two rounds of a run is assumed, not known \
             (name more runs with --also-base and --also-new)"
                .to_owned(),
        );
    }
    report.loss_found = report
        .comparisons
        .iter()
        .any(|c| c.verdict == Verdict::Slower && c.ratio.is_some_and(|ratio| 1.0 - ratio > rules.fail_above));
    report
}

fn reference(side: &Side<'_>) -> ResultRef {
    let mut path = side.path.clone();
    for chosen in [&side.selection.workload, &side.selection.target].into_iter().flatten() {
        path.push_str(&format!(" · {chosen}"));
    }
    ResultRef {
        path,
        started: side.result.started.clone(),
        kernel: side.result.machine.kernel.clone(),
        complete: side.result.complete,
    }
}

/// The larger noise of the two: what either cannot tell apart, both cannot.
fn noise(base: &RunResult, new: &RunResult) -> Option<Noise> {
    let both = [base.noise.as_ref(), new.noise.as_ref()];
    both.into_iter().flatten().max_by(|a, b| a.threshold.total_cmp(&b.threshold)).cloned()
}

/// Why two results may not be compared as wholes.
fn incomparable(base: &RunResult, new: &RunResult) -> Vec<String> {
    let mut why = Vec::new();
    if base.made_by == MadeBy::Record || new.made_by == MadeBy::Record {
        why.push("a recording has no operations to compare by".to_owned());
    }
    let (a, b) = (&base.machine, &new.machine);
    if a.capacity_cpus() != b.capacity_cpus() {
        why.push(format!("other CPUs: {} allowed against {}", a.capacity_cpus(), b.capacity_cpus()));
    }
    if a.arch != b.arch || a.cpu_model != b.cpu_model {
        why.push(format!(
            "other CPUs: {} against {}",
            report::text::plain(&format!("{} {}", a.cpu_model, a.arch), 80),
            report::text::plain(&format!("{} {}", b.cpu_model, b.arch), 80)
        ));
    }
    why
}

/// Differences that do not forbid comparing, but that a reader has to know.
fn differences(base: &RunResult, new: &RunResult) -> Vec<String> {
    let mut notes = Vec::new();
    for (label, result) in [("base", base), ("new", new)] {
        if !result.complete {
            notes.push(format!("{label} is not complete"));
        }
    }
    if base.machine.host != new.machine.host {
        notes.push("other hosts".to_owned());
    }
    if base.options.seconds != new.options.seconds {
        notes.push(format!("other windows: {} s against {} s", base.options.seconds, new.options.seconds));
    }
    if base.options.pinned != new.options.pinned {
        notes.push("tasks were bound to CPUs in one of them only".to_owned());
    }
    if base.machine.governor != new.machine.governor {
        notes.push("other frequency governors".to_owned());
    }
    notes
}

/// One pair, or why it cannot be compared.
fn pair(
    base: &RunResult,
    new: &RunResult,
    a: &Point,
    b: &Point,
    rules: &Rules<'_>,
) -> Result<(Comparison, Option<String>), String> {
    for (label, point) in [("base", a), ("new", b)] {
        if !point.valid {
            let because = point.invalid_because.as_deref().unwrap_or("no reason given");
            return Err(format!("void in {label}: {because}"));
        }
    }
    let mut note = None;
    if a.workload == b.workload
        && let (Some(wa), Some(wb)) = (base.workload(&a.workload), new.workload(&b.workload))
        && wa.version != wb.version
    {
        let why = format!("other versions of {}: {} against {}", a.workload, wa.version, wb.version);
        if !rules.anyway {
            return Err(format!("{why}; --anyway compares all the same"));
        }
        note = Some(why);
    }
    let mut comparison =
        points::compare(a, b, new.seed).ok_or_else(|| "no rounds to compare by".to_owned())?;
    comparison.roots = root_changes(a, b);
    Ok((comparison, note))
}

/// Idle and spinning time that a root costs, CPU-us an operation.
fn cost(root: &Root) -> Option<f64> {
    match (root.idle_us_per_op, root.spin_us_per_op) {
        (None, None) => None,
        (idle, spin) => Some(idle.unwrap_or(0.0) + spin.unwrap_or(0.0)),
    }
}

/// Roots that grew, shrank, came or went; nothing unless causes were looked for on both sides.
fn root_changes(a: &Point, b: &Point) -> Vec<RootChange> {
    if a.capture.is_none() || b.capture.is_none() {
        return Vec::new();
    }
    let mut changes: Vec<RootChange> = Vec::new();
    // Other targets have other objects (another loop device): there the class is what can be compared.
    let same_place = a.target == b.target;
    for (root, new) in a.roots.iter().map(|r| (r, false)).chain(b.roots.iter().map(|r| (r, true))) {
        let Some(us) = cost(root) else { continue };
        let found = changes.iter_mut().find(|c| {
            c.lock.kind == root.lock.kind
                && c.lock.class == root.lock.class
                && (!same_place || c.lock.object == root.lock.object)
        });
        let change = match found {
            Some(change) => change,
            None => {
                changes.push(RootChange { lock: root.lock.clone(), a_us_per_op: None, b_us_per_op: None });
                let last = changes.len() - 1;
                &mut changes[last]
            }
        };
        let side = if new { &mut change.b_us_per_op } else { &mut change.a_us_per_op };
        *side = Some(side.unwrap_or(0.0) + us);
    }
    let size = |c: &RootChange| (c.b_us_per_op.unwrap_or(0.0) - c.a_us_per_op.unwrap_or(0.0)).abs();
    changes.retain(|c| size(c) >= ROOT_CHANGE_US);
    changes.sort_by(|x, y| size(y).total_cmp(&size(x)));
    changes
}

/// What is known of a pair beside its comparison.
struct Known {
    /// Smallest p that the rounds can give.
    fewest: f64,
    /// What two runs of the same differ by; none within one run, whose rounds are interleaved: what drifts hits both sides.
    between: Option<Between>,
    /// Runs of the base and of the new side.
    runs: [usize; 2],
    /// Share of the CPUs that others used, on either side.
    disturbed: [f64; 2],
}

impl Known {
    /// Why a difference is none, where the rounds alone would make it one.
    fn why_none(&self, b: &Between, level: f64) -> String {
        let reach = 100.0 * b.reach(level).exp_m1();
        match self.runs {
            [1, 1] => format!(
                "not more than two runs of the same may differ by (here {reach:.0} %, by their rounds): more runs tell more \
                 (--also-base, --also-new)"
            ),
            [base, new] => {
                format!(
                    "not more than runs of the same differ by (here {reach:.0} %, by {base} and {new} runs)"
                )
            }
        }
    }
}

/// Many points compared together find a "significant" difference by chance more often than one: Holm's correction keeps
/// the chance of any false one at the level.
fn correct(comparisons: &mut [Comparison], known: &[Known]) {
    let mut order: Vec<(usize, f64)> = comparisons
        .iter()
        .enumerate()
        .filter(|(_, c)| c.verdict != Verdict::CannotSay)
        .filter_map(|(i, c)| Some((i, c.p()?)))
        .collect();
    order.sort_by(|(_, p), (_, q)| p.total_cmp(q));
    let count = order.len();
    let mut least = 0.0f64;
    for (rank, (i, p)) in order.into_iter().enumerate() {
        let (c, known) = (&mut comparisons[i], &known[i]);
        let times = (count - rank) as f64;
        least = least.max((p * times).min(1.0));
        c.p_adjusted = Some(least);
        if !c.verdict.is_significant() || least <= LEVEL {
            continue;
        }
        if known.runs == [1, 1] && known.fewest * count as f64 > LEVEL {
            // not even the clearest difference could pass
            c.verdict = Verdict::CannotSay;
            c.because.push(format!(
                "too few rounds for {count} points compared together: more of them (--rounds 8), or choose points (--target, -t)"
            ));
            continue;
        }
        c.verdict = Verdict::NoDifference;
        c.because.push(match &known.between {
            Some(b) if b.p() * times > LEVEL => known.why_none(b, LEVEL / times),
            _ => format!("p = {p:.3} alone, but {least:.3} corrected for {count} points compared together"),
        });
    }
}

/// The p of the clearest difference that so many rounds can show: all of one side above all of the other.
fn smallest_p(a: &Point, b: &Point) -> f64 {
    let rounds = |p: &Point| p.ops_per_s.as_ref().map_or(0, |e| e.rounds.len());
    let (a, b) = (rounds(a), rounds(b));
    let splits = (1..=a.min(b)).fold(1.0, |n, i| n * (a + b + 1 - i) as f64 / i as f64);
    (2.0 / splits).min(1.0)
}

/// Share of the CPUs that others (processes, the hypervisor) used while a point was measured: the median over its rounds.
fn disturbance(point: &Point) -> f64 {
    let mut shares: Vec<f64> = point
        .rounds
        .iter()
        .filter(|r| r.kept)
        .filter_map(|r| {
            let capacity = r.cpu.capacity.filter(|c| *c > 0.0)?;
            Some((r.other_load_s.unwrap_or(0.0) + r.cpu.steal.unwrap_or(0.0)) / capacity)
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len() / 2).map_or(0.0, |share| share.clamp(0.0, 1.0))
}

/// The rate of a point in all runs of a side, with the start of each, in their order.
fn rates<'a>(run: &'a RunResult, point: &Point, more: &'a [RunResult]) -> Vec<(&'a str, f64)> {
    let same = |p: &&Point| {
        p.workload == point.workload
            && p.target == point.target
            && p.mode == point.mode
            && p.tasks == point.tasks
    };
    let others = more.iter().filter_map(|r| Some((r.started.as_str(), r.points.iter().find(same)?.rate()?)));
    let mut all: Vec<(&str, f64)> =
        point.rate().map(|rate| (run.started.as_str(), rate)).into_iter().chain(others).collect();
    all.sort_by_key(|(started, _)| *started);
    all
}

/// Whether the runs of both sides were made in turn: by their start each is next to the one of the other side in its place.
fn in_turn(base: &[(&str, f64)], new: &[(&str, f64)]) -> bool {
    let pairs = || base.iter().zip(new).map(|((a, _), (b, _))| (a.min(b), a.max(b)));
    base.len() == new.len()
        && pairs().all(|(first, second)| first < second)
        && pairs().zip(pairs().skip(1)).all(|((_, last), (next, _))| last < next)
}

/// Puts what the runs of both sides say into a comparison of one run each: rates over all of them, and an interval that
/// has room for what runs of the same differ by.
fn between(
    c: &mut Comparison,
    (base, a): (&RunResult, &Point),
    (new, b): (&RunResult, &Point),
    rules: &Rules<'_>,
) -> (Option<Between>, [usize; 2]) {
    let (base, new) = (rates(base, a, rules.more_base), rates(new, b, rules.more_new));
    let runs = [base.len(), new.len()];
    let turns = in_turn(&base, &new);
    let [base, new] = [base, new].map(|side| side.into_iter().map(|(_, rate)| rate).collect::<Vec<f64>>());
    let between = if runs == [1, 1] {
        let rounds = |p: &Point| p.ops_per_s.as_ref().map(|e| e.rounds.clone()).unwrap_or_default();
        Between::of_rounds(&rounds(a), &rounds(b))
    } else {
        let pairs = turns.then(|| Between::of_pairs(&base, &new)).flatten();
        pairs.or_else(|| Between::of_runs(&base, &new))
    };
    if let Some(found) = &between {
        let reach = found.reach(LEVEL);
        let (low, high) = ((found.difference - reach).exp(), (found.difference + reach).exp());
        c.p_between = Some(found.p());
        if runs == [1, 1] {
            c.low = c.low.map(|l| l.min(low));
            c.high = c.high.map(|h| h.max(high));
        } else {
            let mean = |rates: &[f64]| (rates.iter().map(|r| r.ln()).sum::<f64>() / rates.len() as f64).exp();
            (c.a_ops_per_s, c.b_ops_per_s) = (Some(mean(&base)), Some(mean(&new)));
            (c.ratio, c.low, c.high) = (Some(found.difference.exp()), Some(low), Some(high));
            c.p_value = None;
            c.verdict = if found.difference < 0.0 { Verdict::Slower } else { Verdict::Faster };
        }
        c.high = c.high.filter(|h| h.is_finite());
    }
    (between, runs)
}

/// What a machine drifts by between two runs cannot be known from one run a side: a smaller difference is not called one.
fn undrifted(c: &mut Comparison, known: &Known) {
    let Some(ratio) = c.ratio.filter(|_| known.between.is_some() && known.runs == [1, 1]) else { return };
    if c.verdict.is_significant() && (ratio - 1.0).abs() <= DRIFT {
        c.verdict = Verdict::NoDifference;
        c.because.push(format!(
            "not more than the {:.0} % that machines may drift by between two runs: more runs tell more (--also-base, --also-new)",
            100.0 * DRIFT
        ));
    }
}

/// Where others took much more of the CPUs on one side, nothing can be said: what waits for a lock can lose any amount to a preempted
/// holder. Where they took a share of them on both, a difference that this share alone can make says nothing.
fn undisturbed(c: &mut Comparison, [a, b]: [f64; 2]) {
    let share = a.max(b);
    let can_make =
        |ratio: f64| c.verdict.is_significant() && ratio >= 1.0 - share && ratio * (1.0 - share) <= 1.0;
    let because = if (a - b).abs() > UNEQUAL_LOAD {
        format!(
            "other processes and the hypervisor used {:.0} % of the CPUs in one run and {:.0} % in the other: measure again on a quiet machine",
            100.0 * a,
            100.0 * b
        )
    } else if c.ratio.is_some_and(can_make) {
        format!(
            "other processes and the hypervisor used {:.0} % of the CPUs meanwhile, which alone can make such a difference",
            share * 100.0
        )
    } else {
        return;
    };
    c.verdict = Verdict::CannotSay;
    c.because = vec![because];
}

/// A difference that is not larger than what the same differs from itself is none.
fn quiet(c: &mut Comparison, noise: Option<&Noise>) {
    let (Some(noise), Some(ratio)) = (noise, c.ratio) else { return };
    if c.verdict.is_significant() && (ratio - 1.0).abs() <= noise.threshold {
        c.verdict = Verdict::NoDifference;
        c.because.push(format!(
            "not larger than the noise of {:.1} % between two measurements of the same",
            noise.threshold * 100.0
        ));
    }
}

fn point_ref(p: &Point) -> PointRef {
    PointRef { workload: p.workload.clone(), target: p.target.clone(), mode: p.mode, tasks: p.tasks }
}

fn name(p: &Point) -> String {
    format!("{} on {}, {}", p.workload, p.target, report::text::tasks(p.tasks))
}

#[cfg(test)]
mod tests;
