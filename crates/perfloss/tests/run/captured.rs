//! Runs that look for causes, which is what happens without `--no-capture`.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::home::{Home, perfloss};

/// A run with capture on; the status may say that events were lost on a busy machine.
fn captured(home: &Home, arguments: &[&str]) -> serde_json::Value {
    let size = home.image_size();
    let mut all = vec!["run", "-s", "0.2", "--rounds", "2", "--retries", "0", "--image-size", &size];
    all.extend(["--json", "--quiet", "--output", "result"]);
    all.extend(arguments);
    let ran = home.perfloss(&all);
    assert!(ran.status == 0 || ran.status == 3, "{ran:?}");
    ran.json(ran.status)
}

#[test]
fn every_point_is_captured_once_and_its_rate_is_not_mixed_with_the_others() {
    let home = Home::new();
    let result = captured(&home, &["create_unlink", "-t", "1,2", "--on", "xfs,tmpfs"]);
    assert_eq!(result["complete"], true);
    for point in result["points"].as_array().unwrap() {
        assert_eq!(point["valid"], true, "{}", point["invalid_because"]);
        assert!(point["capture"]["events"].as_u64().unwrap() > 0, "{}", point["capture"]);
        let trace = home.work().join("result").join(point["capture"]["trace"].as_str().unwrap());
        assert!(trace.metadata().unwrap().len() > 0);
        assert_eq!(point["ops_per_s"]["rounds"].as_array().unwrap().len(), 2);
        assert!(point["roots"].is_array());
    }
    assert!(home.work().join("result/report.html").exists());
}

#[test]
fn ctrl_c_and_sigkill_during_a_captured_round_leave_nothing() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL, Signal::KILL] {
        let home = Home::new();
        let size = home.image_size();
        let all = [
            "run",
            "create_unlink",
            "-t",
            "2",
            "--on",
            "xfs",
            "-s",
            "10",
            "--rounds",
            "1",
            "--quiet",
            "--image-size",
            &size,
            "--output",
            "result",
        ];
        let running = home.start(home.command(perfloss(), &all));
        // The trace's file shows that capture has begun; one round is there, so it is the captured one.
        let begun = Instant::now();
        while !home.work().join("result/01.trace").exists() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", running.stderr());
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(300));
        running.signal(signal);
        let ran = running.end();
        if signal == Signal::KILL {
            assert_eq!(ran.status, 128 + 9, "{ran:?}");
        } else {
            assert_eq!(ran.status, 130, "{ran:?}");
            assert!(!home.work().join("result/01.trace").exists(), "half a trace is left");
        }
        home.nothing_is_left();
    }
}

#[test]
fn a_test_case_whose_commands_fail_unnoticed_is_void() {
    let home = Home::new();
    let source = "#include <stdlib.h>\n#include <unistd.h>\nchar *testcase_description = \"looks away\";\n\
        void testcase(unsigned long long *i, unsigned long nr) { while (1) { if (system(\"exit 7\")) {} usleep(5000); (*i)++; } }\n";
    std::fs::write(home.work().join("looks_away.c"), source).unwrap();
    let result = captured(&home, &["./looks_away.c", "-t", "2", "--on", "tmpfs"]);
    let point = &result["points"][0];
    assert_eq!(point["valid"], false);
    let why = point["invalid_because"].as_str().unwrap();
    assert!(why.contains("(sh) failed with exit status 7"), "{why}");
}

#[test]
fn the_captured_time_covers_the_window_and_its_operations_are_counted() {
    let home = Home::new();
    let result = captured(&home, &["--each", "sleep 0.005", "-t", "2", "--on", "tmpfs"]);
    let capture = &result["points"][0]["capture"];
    assert!(capture["window_s"].as_f64().unwrap() >= 0.2, "{capture}");
    let rate = capture["operations"].as_f64().unwrap() / capture["window_s"].as_f64().unwrap();
    let uncaptured = result["points"][0]["ops_per_s"]["median"].as_f64().unwrap();
    assert!((0.1..10.0).contains(&(rate / uncaptured)), "{rate}/s captured, {uncaptured}/s not");
}

#[test]
fn remedies_are_measured_when_asked_for() {
    let home = Home::new();
    // The loss that this needs shows on any machine with two CPUs: one directory is one lock.
    let result = captured(&home, &["create_unlink", "-t", "1,2", "--on", "xfs", "--try"]);
    let point = result["points"].as_array().unwrap().iter().find(|p| p["tasks"] == 2).unwrap();
    let remedies = point["remedies"].as_array().unwrap();
    let own = remedies.iter().find(|r| r["what"] == "own directory per task");
    let own = own.unwrap_or_else(|| panic!("{remedies:?}"));
    assert_eq!(own["how"], "measured");
    assert!(own["ops_per_s"].as_f64().unwrap() > 0.0 && own["gain"].as_f64().unwrap() > 1.0, "{own}");
    let groups = remedies.iter().any(|r| r["what"].as_str().unwrap().starts_with("xfs:agcount="));
    assert!(groups, "{remedies:?}");
}
