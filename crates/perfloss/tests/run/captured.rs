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
