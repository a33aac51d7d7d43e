//! Ctrl-C and SIGTERM: what was measured is kept, printed and marked; nothing is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::home::{Home, Running, perfloss};

/// A run of many rounds, and its result folder.
fn long_run(home: &Home, more: &[&str]) -> (Running, PathBuf) {
    let output = home.work().join("result");
    let mut all = vec!["run", "create_unlink", "-t", "1,2", "--on", "tmpfs", "-s", "0.2", "--rounds", "500"];
    all.extend(["--no-capture", "--retries", "0", "--quiet", "--output", output.to_str().unwrap()]);
    all.extend(more);
    (home.start(home.command(perfloss(), &all)), output)
}

fn result_of(output: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(output.join("result.json")).ok()?).ok()
}

fn rounds(result: &Value) -> usize {
    let points = result["points"].as_array().unwrap();
    points.iter().map(|p| p["rounds"].as_array().unwrap().len()).sum()
}

/// Waits until so many rounds are in the result.
fn wait_for_rounds(output: &Path, least: usize) {
    let begun = Instant::now();
    // Each time it is read it is whole: it is written by rename.
    while result_of(output).is_none_or(|r| rounds(&r) < least) {
        assert!(begun.elapsed() < Duration::from_secs(60), "no rounds come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_kept_and_marked(signal: Signal) {
    let home = Home::new();
    let (running, output) = long_run(&home, &[]);
    wait_for_rounds(&output, 3);
    assert_eq!(result_of(&output).unwrap()["complete"], false, "while it runs");
    let begun = Instant::now();
    running.signal(signal);
    let ran = running.end();
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(ran.status, 130, "{ran:?}");
    assert!(ran.stdout.contains("tmpfs") && ran.stdout.contains("ops/s"), "{ran:?}");
    assert!(ran.stdout.contains("interrupted"), "{ran:?}");
    let result = result_of(&output).unwrap();
    assert_eq!((&result["interrupted"], &result["complete"]), (&Value::Bool(true), &Value::Bool(false)));
    assert!(rounds(&result) >= 3);
    assert!(result["points"][0]["ops_per_s"]["median"].as_f64().unwrap() > 0.0);
    home.nothing_is_left();
    let shown = home.perfloss(&["show", output.to_str().unwrap()]);
    assert_eq!(shown.status, 0, "{shown:?}");
    assert!(shown.stdout.contains("interrupted"), "{shown:?}");
}

#[test]
fn ctrl_c_ends_cleanly_with_what_was_measured() {
    is_kept_and_marked(Signal::INT);
}

#[test]
fn sigterm_ends_cleanly_with_what_was_measured() {
    is_kept_and_marked(Signal::TERM);
}

#[test]
fn an_interrupted_first_round_leaves_a_valid_result_without_figures() {
    let home = Home::new();
    let (running, output) = long_run(&home, &["--warm-up", "30", "--on", "xfs"]);
    let begun = Instant::now();
    while running.guard().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    running.signal(Signal::INT);
    let ran = running.end();
    assert_eq!(ran.status, 130, "{ran:?}");
    let result = result_of(&output).unwrap();
    assert_eq!(result["interrupted"], true);
    assert_eq!(rounds(&result), 0);
    home.nothing_is_left();
}

#[test]
fn ctrl_c_does_not_wait_for_a_hanging_command_and_a_second_one_is_no_worse() {
    let home = Home::new();
    let mut all =
        vec!["run", "--shell", "--each", "trap '' INT TERM; setsid sleep 1000 & sleep 1000", "-t", "2"];
    all.extend(["--on", "tmpfs", "--deadline", "100", "--rounds", "1", "--no-capture", "--quiet"]);
    let running = home.start(home.command(perfloss(), &all));
    let begun = Instant::now();
    while home.processes().iter().filter(|(_, command)| command.starts_with("sleep")).count() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the commands do not start");
    }
    running.signal(Signal::INT);
    running.signal(Signal::INT);
    let ran = running.end();
    assert_eq!(ran.status, 130, "{ran:?}");
    assert!(begun.elapsed() < Duration::from_secs(40));
    home.nothing_is_left();
}

#[test]
fn a_point_that_is_void_is_kept_by_an_interrupted_run() {
    let home = Home::new();
    let (running, output) = long_run(&home, &["--on", "tmpfs:size=4k"]);
    wait_for_rounds(&output, 2);
    running.signal(Signal::INT);
    let ran = running.end();
    assert_eq!(ran.status, 130, "{ran:?}");
    home.nothing_is_left();
}
