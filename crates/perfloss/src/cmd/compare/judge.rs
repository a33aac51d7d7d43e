//! Which points may be compared, and what their rounds say. Pure.

use report::select::Selection;
use result::{
    COMPARISON_SCHEMA, Comparison, ComparisonReport, MadeBy, Noise, Point, PointRef, Refusal, ResultRef,
    Root, RootChange, RunResult, Verdict,
};

use crate::points;

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
}

/// Difference between two separate runs up to which one run a side cannot say anything: machines drift that much.
const DRIFT: f64 = 0.05;

/// Two-sided 95 % quantiles of Student's t for 1, 2, … degrees of freedom; for more the last is close enough.
const STUDENT: [f64; 12] =
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179];

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
    let (mut fewest, mut disturbed) = (Vec::new(), Vec::new());
    let mut rates: Vec<Vec<f64>> = Vec::new();
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
            Ok((comparison, note)) => {
                report.notes.extend(note);
                report.comparisons.push(comparison);
                fewest.push(smallest_p(a, b));
                rates.push(base_rates(a, rules.more_base));
                disturbed.push(disturbance(a).max(disturbance(b)));
            }
            Err(why) => report.refused.push(Refusal { point: Some(point_ref(b)), why }),
        }
    }
    for (i, b) in new.result.points.iter().enumerate() {
        if !used[i] && new.selection.matches(b) {
            report.notes.push(format!("only in new: {}", name(b)));
        }
    }
    correct(&mut report.comparisons, &fewest);
    // The rounds of one run are interleaved: what drifts hits both sides.
    let one_run = base.result.started == new.result.started && base.result.seed == new.result.seed;
    for ((c, share), rates) in report.comparisons.iter_mut().zip(disturbed).zip(&rates) {
        quiet(c, report.noise.as_ref());
        undisturbed(c, share);
        if !one_run {
            undrifted(c, rates);
        }
    }
    if !one_run && rules.more_base.is_empty() && !report.comparisons.is_empty() {
        report.notes.push(
            "one run of the base: how much two runs of the same differ here is not known \
             (name more of them with --also-base)"
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

/// Many points compared together find a "significant" difference by chance more often than one: Holm's correction keeps
/// the chance of any false one at the level. `fewest` holds the smallest p that the rounds of each pair can give.
fn correct(comparisons: &mut [Comparison], fewest: &[f64]) {
    let mut order: Vec<usize> = (0..comparisons.len())
        .filter(|i| comparisons[*i].verdict != Verdict::CannotSay && comparisons[*i].p_value.is_some())
        .collect();
    let p = |c: &Comparison| c.p_value.unwrap_or(1.0);
    order.sort_by(|i, j| p(&comparisons[*i]).total_cmp(&p(&comparisons[*j])));
    let count = order.len();
    let mut least = 0.0f64;
    for (rank, i) in order.into_iter().enumerate() {
        let c = &mut comparisons[i];
        least = least.max((p(c) * (count - rank) as f64).min(1.0));
        c.p_adjusted = Some(least);
        if !c.verdict.is_significant() || least <= LEVEL {
            continue;
        }
        if fewest.get(i).is_some_and(|p| p * count as f64 > LEVEL) {
            // not even the clearest difference could pass
            c.verdict = Verdict::CannotSay;
            c.because.push(format!(
                "too few rounds for {count} points compared together: more of them (--rounds 8), or choose points (--target, -t)"
            ));
        } else {
            c.verdict = Verdict::NoDifference;
            c.because.push(format!(
                "p = {:.3} alone, but {:.3} corrected for {count} points compared together",
                p(c),
                least
            ));
        }
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

/// The rate of a point in all runs of the base.
fn base_rates(a: &Point, more: &[RunResult]) -> Vec<f64> {
    let same = |p: &&Point| {
        p.workload == a.workload && p.target == a.target && p.mode == a.mode && p.tasks == a.tasks
    };
    let others = more.iter().filter_map(|r| r.points.iter().find(same)).filter_map(Point::rate);
    a.rate().into_iter().chain(others).filter(|r| *r > 0.0).collect()
}

/// Between two runs a machine drifts as a whole, which rounds of one run cannot show. Runs of the base can: a difference counts when the
/// new rate lies outside the 95 % prediction interval of one more run of the base (of the logarithms, so that factors count).
fn undrifted(c: &mut Comparison, base: &[f64]) {
    let (Some(ratio), Some(new)) = (c.ratio, c.b_ops_per_s.filter(|r| *r > 0.0)) else { return };
    if !c.verdict.is_significant() {
        return;
    }
    let n = base.len() as f64;
    if base.len() < 2 {
        if (ratio - 1.0).abs() <= DRIFT {
            c.verdict = Verdict::CannotSay;
            c.because.push(
                "one run a side cannot tell so small a difference from a drift of the machine (--also-base)"
                    .to_owned(),
            );
        }
        return;
    }
    let logs: Vec<f64> = base.iter().map(|r| r.ln()).collect();
    let mean = logs.iter().sum::<f64>() / n;
    let deviation = (logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let quantile = STUDENT[(base.len() - 2).min(STUDENT.len() - 1)];
    let reach = quantile * deviation * (1.0 + 1.0 / n).sqrt();
    if (new.ln() - mean).abs() <= reach {
        c.verdict = Verdict::NoDifference;
        let (low, high) =
            (100.0 * ((mean - reach).exp() / base[0]), 100.0 * ((mean + reach).exp() / base[0]));
        c.because.push(format!(
            "{} runs of the base predict {low:.0} to {high:.0} % of its rate for one more run of the same",
            base.len()
        ));
    }
}

/// Where others took a share of the CPUs, a difference that this share alone can make says nothing.
fn undisturbed(c: &mut Comparison, share: f64) {
    let Some(ratio) = c.ratio else { return };
    if c.verdict.is_significant() && ratio >= 1.0 - share && ratio * (1.0 - share) <= 1.0 {
        c.verdict = Verdict::CannotSay;
        c.because.push(format!(
            "other processes and the hypervisor used {:.0} % of the CPUs meanwhile, which alone can make such a difference",
            share * 100.0
        ));
    }
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
