//! The schedule of a run, with an executor that only pretends: order, retries, void points, interruption, broken rounds.

#![allow(clippy::unwrap_used, reason = "a test helper fails by panicking")]

use std::collections::VecDeque;

use harness::budget::Parts;
use harness::plan::{self, Done, End, Event, Plan, Taint};
use harness::round::{Executor, Outcome, Phase};
use harness::{Broken, Measured, RoundSpec, Void};
use serde_json::json;

/// A point of a workload that nobody runs, told from the others by its tasks.
fn spec(tasks: u32) -> RoundSpec {
    serde_json::from_value(json!({
        "workload": "getppid".parse::<workload::Spec>().unwrap(),
        "target": "tmpfs".parse::<target::Spec>().unwrap(),
        "settings": target::Settings::default(),
        "cleanup": target::Cleanup::default(),
        "mode": workload::Mode::Processes,
        "tasks": tasks,
        "cpus": [0, 1],
        "bind": true,
        "window_ns": 1_000_000_000u64,
        "warm_up_limit_ns": 1,
        "deadline_ns": 1,
        "seed": 0,
        "keep_visible": [],
        "nice": 0,
        "isolated": false,
        "captured": false,
    }))
    .unwrap()
}

/// A second on two CPUs.
fn measured(steal: f64, other_load_s: Option<f64>, throttled_s: Option<f64>) -> Measured {
    let parts = Parts { capacity_us: 2e6, steal_us: steal * 2e6, ..Parts::default() };
    let mut measured: Measured = serde_json::from_value(json!({
        "warm_up_s": 0.1, "steady": true, "window_s": 1.0, "operations": [100.5], "parts": parts,
        "procs_running": null, "pressure": [null, null, null], "throttled_s": null, "frequency_mhz": null,
        "facts": target::Facts::default(), "stderr": null, "other_load_s": null, "trail": [],
    }))
    .unwrap();
    (measured.other_load_s, measured.throttled_s) = (other_load_s, throttled_s);
    measured
}

fn good() -> Outcome {
    Outcome::Measured(Box::new(measured(0.0, Some(0.0), None)))
}

fn stolen() -> Outcome {
    Outcome::Measured(Box::new(measured(0.2, None, None)))
}

fn void() -> Outcome {
    Outcome::Void(Void { task: Some(1), why: "exit status 1".to_owned(), stderr: None })
}

/// Gives what it was told to, then good rounds; remembers what it was asked for.
#[derive(Default)]
struct Pretended {
    outcomes: VecDeque<Outcome>,
    /// What a point always gives, by its tasks.
    always: Option<(u32, fn() -> Outcome)>,
    asked: Vec<RoundSpec>,
}

impl Pretended {
    fn first(outcomes: impl IntoIterator<Item = Outcome>) -> Pretended {
        Pretended { outcomes: outcomes.into_iter().collect(), ..Pretended::default() }
    }
}

impl Executor for Pretended {
    fn run(&mut self, spec: &RoundSpec, phase: &mut dyn FnMut(Phase)) -> Outcome {
        self.asked.push(spec.clone());
        phase(Phase::Started(1));
        phase(Phase::WindowOpen);
        if let Some((tasks, outcome)) = self.always
            && tasks == spec.tasks
        {
            return outcome();
        }
        self.outcomes.pop_front().unwrap_or_else(good)
    }
}

fn plan(points: u32, rounds: u32, retries: u32) -> Plan {
    Plan { points: (1..=points).map(spec).collect(), rounds, seed: 7, retries, captures: 0 }
}

/// What was told, in short words, and the measurements.
#[derive(Default)]
struct Told {
    words: Vec<String>,
    done: Vec<Done>,
}

fn run(plan: &Plan, executor: &mut Pretended) -> (Result<End, plan::RunError>, Told) {
    let mut told = Told::default();
    let end = plan::run(plan, executor, &mut |event| {
        let words = match event {
            Event::Begins { point, round, done, of } => format!("{point}.{round} {done}/{of}"),
            Event::Phase(_) => return,
            Event::Done(done) => {
                told.done.push(done.clone());
                format!("{}.{} {}", done.point, done.round, if done.kept { "kept" } else { "again" })
            }
            Event::NotCaptured { point, why } => format!("{point} not captured: {why}"),
            Event::Void { point, void } => format!("{point} void: {void}"),
        };
        told.words.push(words);
    });
    (end, told)
}

#[test]
fn every_round_of_every_point_is_run_in_the_order_of_the_seed() {
    let plan = plan(3, 4, 0);
    let mut executor = Pretended::default();
    let (end, told) = run(&plan, &mut executor);
    assert_eq!(end.unwrap(), End::Complete);
    let turns = harness::order::interleave(3, 4, 7);
    let wanted: Vec<(usize, u32)> = turns.iter().map(|t| (t.point, t.round)).collect();
    assert_eq!(told.done.iter().map(|d| (d.point, d.round)).collect::<Vec<_>>(), wanted);
    assert_eq!(told.done.iter().map(|d| d.order).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
    assert!(told.done.iter().all(|d| d.kept && d.retries == 0 && d.taints.is_empty()));
    let asked: Vec<u32> = executor.asked.iter().map(|s| s.tasks).collect();
    assert_eq!(asked, wanted.iter().map(|(point, _)| *point as u32 + 1).collect::<Vec<_>>());
}

#[test]
fn each_round_has_a_seed_of_its_own() {
    let mut executor = Pretended::default();
    run(&plan(2, 3, 0), &mut executor).0.unwrap();
    let mut seeds: Vec<u64> = executor.asked.iter().map(|s| s.seed).collect();
    seeds.dedup();
    assert_eq!(seeds.len(), 6);
}

#[test]
fn a_tainted_round_is_repeated_at_once_and_only_the_last_try_counts() {
    let (end, told) = run(&plan(1, 2, 2), &mut Pretended::first([stolen(), good(), good()]));
    assert_eq!(end.unwrap(), End::Complete);
    assert_eq!(told.words, ["0.0 0/2", "0.0 again", "0.0 kept", "0.1 1/2", "0.1 kept"]);
    assert_eq!(told.done[0].taints, [Taint::Steal(0.2)]);
    assert_eq!((told.done[0].retries, told.done[1].retries), (0, 1));
    assert_eq!(told.done.iter().map(|d| d.order).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn retries_are_counted_per_point_over_the_whole_run_and_then_tainted_rounds_count() {
    let mut executor = Pretended { always: Some((1, stolen)), ..Pretended::default() };
    let (end, told) = run(&plan(2, 3, 2), &mut executor);
    assert_eq!(end.unwrap(), End::Complete);
    let of = |point: usize| told.done.iter().filter(move |d| d.point == point);
    assert_eq!(of(0).count(), 3 + 2);
    assert_eq!(of(0).filter(|d| d.kept).count(), 3);
    assert!(of(0).all(|d| !d.taints.is_empty()), "what stays tainted says so");
    assert_eq!(of(1).count(), 3);
}

#[test]
fn nothing_is_repeated_without_retries() {
    let (_, told) = run(&plan(1, 1, 0), &mut Pretended::first([stolen()]));
    assert_eq!(told.words, ["0.0 0/1", "0.0 kept"]);
}

#[test]
fn steal_strangers_and_throttling_taint_a_round_and_little_of_it_does_not() {
    let taints = |measured: Measured| {
        let outcome = Outcome::Measured(Box::new(measured));
        run(&plan(1, 1, 0), &mut Pretended::first([outcome])).1.done[0].taints.clone()
    };
    assert_eq!(taints(measured(0.04, Some(0.08), Some(0.0))), []);
    assert_eq!(taints(measured(0.06, None, None)), [Taint::Steal(0.06)]);
    assert_eq!(taints(measured(0.0, Some(0.2), None)), [Taint::OtherLoad(0.1)]);
    assert_eq!(taints(measured(0.0, None, Some(0.3))), [Taint::Throttled(0.3)]);
}

#[test]
fn a_void_point_is_told_once_and_its_other_rounds_are_skipped() {
    let mut executor = Pretended { always: Some((2, void)), ..Pretended::default() };
    let (end, told) = run(&plan(3, 4, 2), &mut executor);
    assert_eq!(end.unwrap(), End::Complete);
    let voids: Vec<&String> = told.words.iter().filter(|w| w.contains("void")).collect();
    assert_eq!(voids, ["1 void: task 1: exit status 1"]);
    assert_eq!(executor.asked.iter().filter(|s| s.tasks == 2).count(), 1);
    assert_eq!(told.done.len(), 8, "the other points have all of their rounds");
}

#[test]
fn a_point_may_become_void_after_good_rounds() {
    let (end, told) = run(&plan(1, 3, 0), &mut Pretended::first([good(), void()]));
    assert_eq!(end.unwrap(), End::Complete);
    assert_eq!(told.words, ["0.0 0/3", "0.0 kept", "0.1 1/3", "0 void: task 1: exit status 1"]);
}

#[test]
fn an_interruption_ends_the_run_and_keeps_what_was_told() {
    let mut executor = Pretended::first([good(), good(), Outcome::Interrupted, good()]);
    let (end, told) = run(&plan(2, 4, 0), &mut executor);
    assert_eq!(end.unwrap(), End::Interrupted);
    assert_eq!(told.done.len(), 2);
    assert_eq!(executor.asked.len(), 3);
}

#[test]
fn a_broken_round_ends_the_run_with_its_point_and_reason() {
    let broken = Outcome::Broken(Broken { text: "mkfs is missing".to_owned(), not_allowed: true });
    let mut executor = Pretended::first([good(), broken, good()]);
    let plan = plan(2, 4, 2);
    let (end, told) = run(&plan, &mut executor);
    let error = end.unwrap_err();
    assert_eq!(error.to_string(), "mkfs is missing");
    assert!(error.broken.not_allowed);
    assert_eq!(error.point, harness::order::interleave(2, 4, 7)[1].point);
    assert_eq!((told.done.len(), executor.asked.len()), (1, 2));
}

#[test]
fn a_directory_that_vanishes_during_the_run_breaks_it() {
    let home = tempfile::tempdir().unwrap();
    let mut plan = plan(1, 2, 0);
    plan.points[0].target = format!("{}/", home.path().display()).parse().unwrap();
    assert_eq!(run(&plan, &mut Pretended::default()).0.unwrap(), End::Complete);
    drop(home);
    let mut executor = Pretended::default();
    let error = run(&plan, &mut executor).0.unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    assert!(executor.asked.is_empty());
}

#[test]
fn a_plan_without_points_is_complete() {
    assert_eq!(run(&plan(0, 8, 2), &mut Pretended::default()).0.unwrap(), End::Complete);
}

#[test]
fn captured_rounds_stand_in_the_middle_are_counted_by_themselves_and_never_repeated() {
    let plan = Plan { captures: 1, ..plan(1, 4, 2) };
    let (end, told) = run(&plan, &mut Pretended::first([good(), good(), stolen()]));
    assert_eq!(end.unwrap(), End::Complete);
    let rounds: Vec<(u32, bool)> = told.done.iter().map(|d| (d.round, d.captured)).collect();
    assert_eq!(rounds, [(0, false), (1, false), (0, true), (2, false), (3, false)]);
    assert!(told.done.iter().all(|d| d.kept));
}

#[test]
fn a_captured_round_that_breaks_costs_the_causes_and_nothing_else() {
    let mut plan = plan(1, 2, 0);
    plan.captures = 1;
    let broken = Outcome::Broken(Broken::new("capture did not begin"));
    let (end, told) = run(&plan, &mut Pretended::first([good(), broken]));
    assert_eq!(end.unwrap(), End::Complete);
    assert_eq!(told.done.len(), 2);
    assert!(told.words.contains(&"0 not captured: capture did not begin".to_owned()), "{:?}", told.words);
}
