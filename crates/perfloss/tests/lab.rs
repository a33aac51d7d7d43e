//! `perfloss lab` from outside.

#![allow(clippy::unwrap_used)]

use assert_cmd::Command;

fn lab(arguments: &[&str]) -> assert_cmd::assert::Assert {
    Command::cargo_bin("perfloss").unwrap().arg("lab").args(arguments).assert()
}

#[test]
fn every_point_of_a_race_is_measured_and_described() {
    let arguments =
        "semaphore,adaptive,parking_lot -t 1,3 --split 1,2 -s 0.03 --rounds 2 --seed 5 --json --quiet";
    let out = lab(&arguments.split(' ').collect::<Vec<_>>()).code(0);
    let printed: serde_json::Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    let points = printed["result"]["points"].as_array().unwrap();
    assert_eq!(points.len(), 12);
    for point in points {
        assert_eq!(point["valid"], true, "{point}");
        assert_eq!(point["rounds"].as_array().unwrap().len(), 2);
        assert!(point["ops_per_s"]["median"].as_f64().unwrap() > 0.0, "{point}");
    }
    assert_eq!(printed["result"]["seed"], 5);
    for line in printed["locks"].as_array().unwrap() {
        assert!(line["uncontended_ns"].as_f64().unwrap() > 0.0, "{line}");
        assert!((0.0..=1.0).contains(&line["hand_off_share"].as_f64().unwrap()), "{line}");
        // The first policy is what the others are compared with.
        assert_eq!(line["against_first"].is_null(), line["policy"] == "semaphore", "{line}");
    }
}

#[test]
fn the_tables_name_every_policy_and_a_folder_can_be_shown_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("lab");
    let path = folder.to_str().unwrap();
    let out = lab(&[
        "rwsem,mutex",
        "-t",
        "2",
        "--plain",
        "-s",
        "0.03",
        "--rounds",
        "1",
        "--quiet",
        "--output",
        path,
    ])
    .code(0);
    let text = String::from_utf8(out.get_output().stdout.clone()).unwrap();
    for word in ["rwsem", "mutex", "one lock, hold 1 us", "bypass"] {
        assert!(text.contains(word), "{text}");
    }
    Command::cargo_bin("perfloss").unwrap().args(["show", path]).assert().code(0);
}

#[test]
fn wrong_values_are_usage_errors_with_the_way_out() {
    for (arguments, says) in [
        (&["spinlock"][..], "there are semaphore, adaptive"),
        (&["-t", "0"][..], "from 1 to"),
        (&["--hold=-1"][..], "--hold"),
        (&["-s", "0"][..], "--seconds"),
    ] {
        let out = lab(arguments).code(2);
        let text = String::from_utf8_lossy(&out.get_output().stderr).into_owned();
        assert!(text.contains(says), "{arguments:?}: {text}");
    }
}

#[test]
fn the_times_of_a_captured_run_of_xfs_are_raced() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("xfs");
    let folder = folder.to_str().unwrap();
    Command::cargo_bin("perfloss")
        .unwrap()
        .args("run create_unlink -t 2 --on xfs -s 0.5 --rounds 2 --quiet --output".split(' '))
        .arg(folder)
        .assert()
        .code(0);
    let out =
        lab(&["semaphore", "--from", folder, "-t", "2", "-s", "0.1", "--rounds", "1", "--json"]).code(0);
    let told = String::from_utf8(out.get_output().stderr.clone()).unwrap();
    assert!(
        told.contains("create_unlink on xfs, 2 tasks: the tasks held xfs_buf.b_sema AGI of AG"),
        "{told}"
    );
    let printed: serde_json::Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    let workload = printed["result"]["points"][0]["workload"].as_str().unwrap();
    let hold = workload.split("hold ").nth(1).unwrap().split(' ').next().unwrap();
    // a transaction under the lock takes microseconds, not milliseconds
    assert!((0.1..500.0).contains(&hold.parse::<f64>().unwrap()), "{workload}");
}

#[test]
fn a_result_without_holds_is_refused_in_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("lab");
    let folder = folder.to_str().unwrap();
    lab(&["rwsem", "-t", "1", "-s", "0.1", "--rounds", "1", "--quiet", "--output", folder]).code(0);
    let out = lab(&["--from", folder]).code(2);
    let told = String::from_utf8(out.get_output().stderr.clone()).unwrap();
    assert!(told.contains("give the result of a run on xfs"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}
