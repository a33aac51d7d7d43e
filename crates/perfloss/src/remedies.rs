//! Remedies that can be tried: the same workload with own directories, with more allocation groups, on another file system.

use harness::RoundSpec;
use harness::plan::Plan;
use harness::stats::{self, Verdict};
use result::{Point, Remedy, RemedyHow};
use workload::Spec as WorkloadSpec;

/// Idle share of the usable capacity above which a point loses something.
const LOSS_IDLE: f64 = 0.05;

/// A point that does less than this part of the best target's, or of what its tasks could do alone, loses something.
const LOSS_RATE: f64 = 0.8;

/// Variants that are tried for a point, at most.
const MOST: usize = 4;

/// A variant to try.
struct Variant {
    /// Index of the point in the result that it may help.
    of: usize,
    what: String,
    note: Option<String>,
    /// Index in the trial's plan of the point as it was, and of the variant.
    base: usize,
    tried: usize,
}

/// Points with a loss, and variants that may win it back: a plan of its own, in which each is measured beside the point as it was.
pub struct Trial {
    /// What to run.
    pub plan: Plan,
    /// Name of each of its points' targets.
    pub names: Vec<String>,
    variants: Vec<Variant>,
}

impl Trial {
    /// The variants for the points that lose something; `None` if there is nothing to try.
    pub fn of(plan: &Plan, names: &[String], points: &[Point]) -> Option<Trial> {
        let mut trial = Trial {
            plan: Plan { points: Vec::new(), captures: 0, ..plan.clone() },
            names: Vec::new(),
            variants: Vec::new(),
        };
        for (of, (spec, name)) in plan.points.iter().zip(names).enumerate() {
            if loses(of, points) {
                trial.add(of, spec, name);
            }
        }
        (!trial.variants.is_empty()).then_some(trial)
    }

    fn add(&mut self, of: usize, spec: &RoundSpec, name: &str) {
        let mut variants: Vec<(RoundSpec, String, String, Option<String>)> = Vec::new();
        let own = format!("{}:own-dir", spec.workload.name());
        if let Ok(workload) = own.parse::<WorkloadSpec>() {
            let what = "own directory per task".to_owned();
            variants.push((RoundSpec { workload, ..spec.clone() }, name.to_owned(), what, None));
        }
        let size = spec.settings.size.unwrap_or(target::DEFAULT_SIZE);
        for remedy in spec.target.remedies(spec.tasks, size) {
            let variant = RoundSpec { target: remedy.spec.clone(), ..spec.clone() };
            if remedy.spec.check(target::Caps::here(), &spec.settings).is_ok() {
                let what = remedy.spec.to_string();
                variants.push((variant, remedy.spec.to_string(), what, Some(remedy.why)));
            }
        }
        if variants.is_empty() {
            return;
        }
        let base = self.push(spec.clone(), name);
        for (variant, name, what, note) in variants.into_iter().take(MOST) {
            let tried = self.push(variant, &name);
            self.variants.push(Variant { of, what, note, base, tried });
        }
    }

    fn push(&mut self, spec: RoundSpec, name: &str) -> usize {
        self.plan.points.push(spec);
        self.names.push(name.to_owned());
        self.plan.points.len() - 1
    }

    /// The point of the result that a point of the trial is for.
    pub fn for_point(&self, trial_point: usize) -> usize {
        let of = self.variants.iter().find(|v| v.base == trial_point || v.tried == trial_point);
        of.map_or(0, |v| v.of)
    }

    /// Puts what the trial measured into the points that it was for, the best first.
    pub fn put_into(&self, points: &mut [Point], tried: &[Point]) {
        for variant in &self.variants {
            let remedy = measured(&tried[variant.base], &tried[variant.tried], self.plan.seed, variant);
            points[variant.of].remedies.push(remedy);
        }
        for point in points {
            point.remedies.sort_by(|a, b| b.gain.unwrap_or(0.0).total_cmp(&a.gain.unwrap_or(0.0)));
        }
    }
}

fn measured(base: &Point, tried: &Point, seed: u64, variant: &Variant) -> Remedy {
    let mut remedy = Remedy { what: variant.what.clone(), note: variant.note.clone(), ..Remedy::default() };
    let (Some(before), Some(after)) = (&base.ops_per_s, &tried.ops_per_s) else {
        remedy.how = RemedyHow::NotKnown;
        let why = tried.invalid_because.as_deref().or(base.invalid_because.as_deref());
        remedy.note = Some(format!("tried, but void: {}", why.unwrap_or("it has no rounds")));
        return remedy;
    };
    remedy.how = RemedyHow::Measured;
    remedy.ops_per_s = Some(after.median);
    if let Some(ratio) = stats::compare(&before.rounds, &after.rounds, seed) {
        remedy.gain = Some(ratio.ratio);
        remedy.low = Some(ratio.interval.low);
        remedy.high = Some(ratio.interval.high);
        let verdict = match ratio.verdict {
            Verdict::Different if ratio.ratio < 1.0 => Some("makes it worse"),
            Verdict::Different => None,
            Verdict::NoDifference => Some("no significant help"),
            Verdict::CannotSay => Some("too few rounds to say"),
        };
        remedy.note = match (verdict, remedy.note) {
            (Some(verdict), Some(note)) => Some(format!("{verdict}; {note}")),
            (verdict, note) => verdict.map(str::to_owned).or(note),
        };
    }
    remedy
}

/// Whether a point at the largest task count leaves CPUs idle, does much less than another target, or scales badly.
fn loses(index: usize, points: &[Point]) -> bool {
    let point = &points[index];
    let Some(rate) = point.rate() else { return false };
    let alike = |p: &&Point| p.workload == point.workload && p.mode == point.mode;
    let most = points.iter().filter(alike).map(|p| p.tasks).max().unwrap_or(0);
    if point.tasks != most {
        return false;
    }
    let idle = point.budget_us_per_op.as_ref().and_then(|b| Some(b.idle? / b.usable_total()?));
    let best =
        points.iter().filter(alike).filter(|p| p.tasks == most).filter_map(Point::rate).fold(0.0, f64::max);
    let alone =
        points.iter().filter(alike).find(|p| p.tasks == 1 && p.target == point.target).and_then(Point::rate);
    let scales_badly = alone.is_some_and(|one| most > 1 && rate < LOSS_RATE * one);
    idle.is_some_and(|share| share > LOSS_IDLE)
        || scales_badly
        || rate < LOSS_RATE * best && idle.is_some_and(|s| s > 0.01)
}
