use super::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use result::{Budget, Capture, Estimate, Lock, RootKind, Workload};

/// Rounds of a machine whose noise has a long tail: mostly a few percent, now and then a slow round.
fn rounds(rng: &mut ChaCha8Rng, rate: f64, count: usize) -> Vec<f64> {
    (0..count)
        .map(|_| {
            let wobble: f64 = (0..4).map(|_| rng.random_range(-1.0..1.0)).sum::<f64>() * 0.02;
            let slow = if rng.random_range(0.0..1.0) < 0.1 { 0.7 } else { 1.0 };
            rate * (1.0 + wobble) * slow
        })
        .collect()
}

fn point(tasks: u32, rounds: Vec<f64>) -> Point {
    let mut sorted = rounds.clone();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    Point {
        workload: "create_unlink".into(),
        target: "xfs".into(),
        tasks,
        valid: true,
        ops_per_s: Some(Estimate {
            median,
            low: sorted[0],
            high: sorted[sorted.len() - 1],
            rounds,
            ..Default::default()
        }),
        budget_us_per_op: Some(Budget { total: Some(2e6 / median), ..Default::default() }),
        ..Default::default()
    }
}

fn result_of(points: Vec<Point>) -> RunResult {
    let mut r = RunResult::new(MadeBy::Run, 7);
    r.complete = true;
    r.started = format!("run of {} points, {:?}", points.len(), points.first().and_then(Point::rate));
    r.machine.allowed_cpus = vec![0, 1];
    r.workloads = vec![Workload { name: "create_unlink".into(), version: "1".into(), ..Default::default() }];
    r.points = points;
    r
}

const RULES: Rules<'_> = Rules { fail_above: 0.0, anyway: false, more_base: &[], more_new: &[] };

fn judge(base: &RunResult, new: &RunResult) -> ComparisonReport {
    judge_with(base, new, &RULES)
}

fn judge_with(base: &RunResult, new: &RunResult, rules: &Rules<'_>) -> ComparisonReport {
    let side = |result| Side { result, path: "r".into(), selection: Selection::default() };
    compare(&side(base), &side(new), rules)
}

#[test]
fn the_same_compared_with_itself_differs_in_at_most_one_run_of_twenty() {
    const RUNS: u64 = 120;
    let mut wrong = 0;
    for run in 0..RUNS {
        let mut rng = ChaCha8Rng::seed_from_u64(run);
        let mut measure = || result_of([1, 2, 4].map(|t| point(t, rounds(&mut rng, 23_000.0, 8))).to_vec());
        let (base, new) = (measure(), measure());
        let report = judge(&base, &new);
        assert_eq!(report.comparisons.len(), 3);
        wrong += u64::from(report.comparisons.iter().any(|c| c.verdict.is_significant()));
    }
    // 5 % of 120 are 6; a true rate of 5 % gives more than 13 in one of 500 series. The seeds are fixed.
    assert!(wrong <= 13, "{wrong} of {RUNS} runs found a difference where there is none");
}

#[test]
fn a_real_loss_is_found_and_fails_only_above_the_limit() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let base = result_of([1, 2, 4].map(|t| point(t, rounds(&mut rng, 23_000.0, 8))).to_vec());
    let mut new = base.clone();
    new.points[1] =
        point(2, base.points[1].ops_per_s.as_ref().unwrap().rounds.iter().map(|r| r * 0.5).collect());
    let report = judge(&base, &new);
    assert!(report.loss_found);
    assert_eq!(report.comparisons[1].verdict, Verdict::Slower);
    assert!((report.comparisons[1].ratio.unwrap() - 0.5).abs() < 1e-9);
    assert_eq!(report.comparisons[0].verdict, Verdict::NoDifference);
    assert!(!judge_with(&base, &new, &Rules { fail_above: 0.6, ..RULES }).loss_found);
    // The other way round it is a gain.
    assert!(!judge(&new, &base).loss_found);
}

#[test]
fn three_rounds_cannot_say() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let base = result_of(vec![point(2, rounds(&mut rng, 23_000.0, 3))]);
    let new = result_of(vec![point(2, rounds(&mut rng, 1000.0, 3))]);
    let report = judge(&base, &new);
    assert_eq!(report.comparisons[0].verdict, Verdict::CannotSay);
    assert!(!report.loss_found);
    assert_eq!(super::super::status(&report), crate::exit::Status::Untrusted);
}

#[test]
fn noise_between_measurements_of_the_same_hides_a_smaller_difference() {
    let base = result_of(vec![point(2, (0..8).map(|i| 1000.0 + f64::from(i)).collect())]);
    let mut new = result_of(vec![point(2, (0..8).map(|i| 900.0 + f64::from(i)).collect())]);
    assert!(judge(&base, &new).loss_found);
    new.noise = Some(Noise { threshold: 0.12, pairs: 1, how: "A/A".into() });
    let report = judge(&base, &new);
    assert_eq!(report.comparisons[0].verdict, Verdict::NoDifference);
    assert!(!report.loss_found);
    assert!(report.comparisons[0].because[0].contains("noise"));
}

#[test]
fn what_cannot_be_compared_is_refused_unless_told() {
    let base = result_of(vec![point(2, vec![1.0; 8])]);
    let mut new = base.clone();
    new.machine.allowed_cpus.push(2);
    let report = judge(&base, &new);
    assert!(report.comparisons.is_empty());
    assert!(
        report.refused[0].why.contains("2 allowed against 3") && report.refused[0].why.contains("--anyway")
    );
    let anyway = Rules { anyway: true, ..RULES };
    let report = judge_with(&base, &new, &anyway);
    assert_eq!(report.comparisons.len(), 1);
    assert!(report.notes.iter().any(|n| n.contains("other CPUs")));

    let mut new = base.clone();
    new.workloads[0].version = "2".into();
    let report = judge(&base, &new);
    assert!(report.refused[0].point.is_some() && report.refused[0].why.contains("1 against 2"));
    assert_eq!(judge_with(&base, &new, &anyway).comparisons.len(), 1);

    let mut new = base.clone();
    new.points[0].valid = false;
    new.points[0].invalid_because = Some("task 1 died".into());
    let report = judge(&base, &new);
    assert!(report.refused[0].why.contains("task 1 died"));
    assert_eq!(super::super::status(&report), crate::exit::Status::Untrusted);
}

#[test]
fn points_of_one_side_only_are_named_not_compared() {
    let base = result_of(vec![point(1, vec![1.0; 8]), point(2, vec![1.0; 8])]);
    let new = result_of(vec![point(2, vec![1.0; 8]), point(4, vec![1.0; 8])]);
    let report = judge(&base, &new);
    assert_eq!(report.comparisons.len(), 1);
    assert!(report.notes.iter().any(|n| n == "only in base: create_unlink on xfs, 1 task"));
    assert!(report.notes.iter().any(|n| n == "only in new: create_unlink on xfs, 4 tasks"));
}

#[test]
fn two_targets_of_one_result_are_compared_task_count_by_task_count() {
    let mut r = result_of(vec![point(1, vec![10.0; 8]), point(2, vec![20.0; 8])]);
    for (tasks, rate) in [(1, 9.0), (2, 5.0)] {
        let mut p = point(tasks, vec![rate; 8]);
        p.target = "ext4".into();
        r.points.push(p);
    }
    let side = |target: &str| Side {
        result: &r,
        path: "r".into(),
        selection: Selection { target: Some(target.into()), ..Default::default() },
    };
    let report = compare(&side("xfs"), &side("ext4"), &RULES);
    let ratios: Vec<f64> = report.comparisons.iter().filter_map(|c| c.ratio).collect();
    assert_eq!(ratios, [0.9, 0.25]);
}

#[test]
fn roots_that_grew_or_went_are_named_by_their_cost() {
    let root = |class: &str, idle: f64| Root {
        lock: Lock { kind: RootKind::Semaphore, class: class.into(), object: None },
        idle_us_per_op: Some(idle),
        ..Default::default()
    };
    let mut base = result_of(vec![point(2, vec![10.0; 8])]);
    base.points[0].capture = Some(Capture::default());
    base.points[0].roots = vec![root("grew", 1.0), root("gone", 3.0), root("same", 7.0)];
    let mut new = base.clone();
    new.points[0].roots = vec![root("grew", 9.0), root("same", 7.0), root("came", 2.0)];
    let report = judge(&base, &new);
    let seen: Vec<(&str, Option<f64>, Option<f64>)> = report.comparisons[0]
        .roots
        .iter()
        .map(|c| (c.lock.class.as_str(), c.a_us_per_op, c.b_us_per_op))
        .collect();
    assert_eq!(seen, [("grew", Some(1.0), Some(9.0)), ("gone", Some(3.0), None), ("came", None, Some(2.0))]);
    // Without capture on one side nothing came or went: nobody looked.
    new.points[0].capture = None;
    assert!(judge(&base, &new).comparisons[0].roots.is_empty());
}

#[test]
fn a_clear_difference_with_too_few_rounds_for_the_number_of_points_is_not_called_none() {
    let points = |rate: f64| [1, 2].map(|t| point(t, (0..4).map(|i| rate + f64::from(i)).collect())).to_vec();
    // 4 rounds a side: the smallest p is 2/70, twice that is above 5 %.
    let report = judge(&result_of(points(1000.0)), &result_of(points(500.0)));
    for c in &report.comparisons {
        assert_eq!(c.verdict, Verdict::CannotSay);
        assert!(c.because[0].contains("too few rounds"), "{:?}", c.because);
    }
    assert!(!report.loss_found);
    // One of them alone can be judged.
    let report = judge(&result_of(points(1000.0)[..1].to_vec()), &result_of(points(500.0)[..1].to_vec()));
    assert_eq!(report.comparisons[0].verdict, Verdict::Slower);
}

#[test]
fn a_difference_that_other_load_alone_can_make_says_nothing() {
    let with_load = |rate: f64, share: f64| {
        let mut p = point(2, (0..8).map(|i| rate + f64::from(i)).collect());
        p.rounds = (0..8)
            .map(|_| result::Round {
                kept: true,
                other_load_s: Some(2.0 * share),
                cpu: result::CpuSeconds { capacity: Some(2.0), ..Default::default() },
                ..Default::default()
            })
            .collect();
        result_of(vec![p])
    };
    let report = judge(&with_load(1000.0, 0.0), &with_load(800.0, 0.3));
    assert_eq!(report.comparisons[0].verdict, Verdict::CannotSay);
    assert!(report.comparisons[0].because[0].contains("30 %"));
    assert!(!report.loss_found);
    // A larger one neither: what waits for a lock can lose any amount to a preempted holder. On a quiet machine it is one.
    assert!(!judge(&with_load(1000.0, 0.0), &with_load(500.0, 0.3)).loss_found);
    assert!(judge(&with_load(1000.0, 0.3), &with_load(500.0, 0.3)).loss_found, "the same load on both sides");
    assert!(judge(&with_load(1000.0, 0.01), &with_load(800.0, 0.01)).loss_found);
}

/// A run of a machine that drifts: a factor of its own on top of the noise of its rounds, and one that creeps while it goes on.
fn drifting_run(rng: &mut ChaCha8Rng, rate: f64, between: f64, within: f64, points: u32) -> RunResult {
    let normal = |rng: &mut ChaCha8Rng| (0..12).map(|_| rng.random_range(0.0..1.0)).sum::<f64>() - 6.0;
    let mut creep = 0.0;
    let points = (1..=points)
        .map(|tasks| {
            let run = between * normal(rng);
            let rounds = (0..8)
                .map(|_| {
                    creep = 0.7 * creep + 0.7 * normal(rng);
                    rate * (run + within * (0.5f64.sqrt() * normal(rng) + 0.5f64.sqrt() * creep)).exp()
                })
                .collect();
            point(tasks, rounds)
        })
        .collect();
    result_of(points)
}

/// In how many of `series` comparisons a difference was found.
fn found(series: u64, mut compared: impl FnMut(&mut ChaCha8Rng) -> ComparisonReport) -> u64 {
    (0..series)
        .filter(|seed| {
            let report = compared(&mut ChaCha8Rng::seed_from_u64(*seed));
            report.comparisons.iter().any(|c| c.verdict.is_significant())
        })
        .count() as u64
}

#[test]
fn two_runs_of_the_same_that_differ_as_two_rounds_do_are_no_difference() {
    for within in [0.03, 0.1] {
        let wrong = found(60, |rng| {
            let mut run = || drifting_run(rng, 1000.0, within, within, 3);
            judge(&run(), &run())
        });
        // 5 % of 60 are 3; more than 8 come in one of 250 series. The seeds are fixed.
        assert!(wrong <= 8, "{wrong} of 60 with rounds that differ by {within}");
    }
}

#[test]
fn a_drift_that_the_rounds_do_not_show_is_shown_by_further_runs() {
    // Hardly any noise within a run, a lot between runs: the rounds of any two runs differ "significantly".
    for (base, new) in [(4, 1), (3, 3)] {
        let wrong = found(60, |rng| {
            let mut runs = |n| (0..n).map(|_| drifting_run(rng, 1000.0, 0.08, 1e-4, 3)).collect::<Vec<_>>();
            let (a, b) = (runs(base), runs(new));
            judge_with(&a[0], &b[0], &Rules { more_base: &a[1..], more_new: &b[1..], ..RULES })
        });
        assert!(wrong <= 8, "{wrong} of 60 with {base} and {new} runs");
    }
}

#[test]
fn a_loss_of_a_tenth_is_found_by_one_quiet_run_or_by_many_that_drift() {
    let quiet = found(50, |rng| {
        let base = drifting_run(rng, 1000.0, 0.01, 0.01, 4);
        judge(&base, &drifting_run(rng, 900.0, 0.01, 0.01, 4))
    });
    assert!(quiet >= 49, "{quiet} of 50");
    let many = found(50, |rng| {
        let mut runs = |rate| (0..8).map(|_| drifting_run(rng, rate, 0.05, 0.1, 1)).collect::<Vec<_>>();
        let (a, b) = (runs(1000.0), runs(900.0));
        judge_with(&a[0], &b[0], &Rules { more_base: &a[1..], more_new: &b[1..], ..RULES })
    });
    assert!(many >= 25, "{many} of 50");
}

#[test]
fn runs_made_in_turn_are_compared_pair_by_pair() {
    // A machine that creeps from run to run, by far more than a run's rounds differ.
    let series = |rng: &mut ChaCha8Rng, loss: f64| {
        let mut speed = 1000.0;
        let mut runs: [Vec<RunResult>; 2] = Default::default();
        for n in 0..16 {
            speed *= 1.0 + 0.06 * rng.random_range(-1.0..1.0);
            let rate = if n % 2 == 1 { speed * (1.0 - loss) } else { speed };
            let mut run = drifting_run(rng, rate, 0.02, 0.05, 1);
            run.started = format!("2026-11-30T20:{n:02}:00Z");
            runs[n % 2].push(run);
        }
        let [a, b] = runs;
        judge_with(&a[0], &b[0], &Rules { more_base: &a[1..], more_new: &b[1..], ..RULES })
    };
    let wrong = found(120, |rng| series(rng, 0.0));
    assert!(wrong <= 13, "{wrong} of 120");
    let right = found(50, |rng| series(rng, 0.1));
    assert!(right >= 40, "{right} of 50");
}

#[test]
fn runs_are_in_turn_when_each_stands_beside_its_partner() {
    let side = |starts: &[&'static str]| starts.iter().map(|s| (*s, 1.0)).collect::<Vec<_>>();
    assert!(in_turn(&side(&["1", "3", "5"]), &side(&["2", "4", "6"])));
    assert!(in_turn(&side(&["1", "4", "5"]), &side(&["2", "3", "6"])), "whichever of a pair comes first");
    assert!(!in_turn(&side(&["1", "2", "3"]), &side(&["4", "5", "6"])));
    assert!(!in_turn(&side(&["1", "3"]), &side(&["2", "4", "6"])));
    assert!(!in_turn(&side(&["1", "1"]), &side(&["1", "1"])), "nothing is known of their order");
}

#[test]
fn with_one_run_a_side_small_differences_are_none() {
    let base = result_of(vec![point(2, (0..8).map(|i| 1000.0 + f64::from(i)).collect())]);
    let new = result_of(vec![point(2, (0..8).map(|i| 960.0 + f64::from(i)).collect())]);
    let report = judge(&base, &new);
    assert_eq!(report.comparisons[0].verdict, Verdict::NoDifference);
    assert!(report.comparisons[0].because[0].contains("5 %"), "{:?}", report.comparisons[0].because);
    assert!(report.notes.iter().any(|n| n.contains("--also-base")));
    let more = [base.clone(), base.clone(), base.clone()];
    let report = judge_with(&base, &new, &Rules { more_base: &more, ..RULES });
    assert_eq!(report.comparisons[0].verdict, Verdict::Slower, "runs of the base that agree tell more");
}

#[test]
fn the_interval_of_separate_runs_has_room_for_what_runs_differ_by() {
    let rounds = |rate: f64| (0..8).map(|i| rate * (1.0 + 0.02 * (i % 4) as f64)).collect::<Vec<_>>();
    let (base, new) = (result_of(vec![point(2, rounds(1000.0))]), result_of(vec![point(2, rounds(800.0))]));
    let c = &judge(&base, &new).comparisons[0];
    let (low, high) = (c.low.unwrap(), c.high.unwrap());
    assert!(low < 0.75 && high > 0.85 && high < 1.0, "{low} {high}");
    assert_eq!(c.verdict, Verdict::Slower);
    assert!(c.p_between.unwrap() < 0.05 && c.p_adjusted.unwrap() >= c.p_between.unwrap());
    // Within one run it is that of the rounds.
    let mut both = base.clone();
    both.points.push(Point { target: "ext4".into(), ..new.points[0].clone() });
    let side = |target: &str| Side {
        result: &both,
        path: "r".into(),
        selection: Selection { target: Some(target.into()), ..Default::default() },
    };
    let c = &compare(&side("xfs"), &side("ext4"), &RULES).comparisons[0];
    assert!(c.high.unwrap() - c.low.unwrap() < high - low && c.p_between.is_none());
}
