//! The figures: rates that are known beforehand, and sums that have to close.

use serde_json::Value;

use crate::home::{Home, point, warns};

/// A rate of sleepers can be no higher than this, and on a busy machine it may well be lower.
fn is_about(rate: f64, known: f64) {
    assert!(rate <= known * 1.03, "{rate} is more than {known}");
    assert!(rate >= known * 0.5, "{rate} is far less than {known}");
}

#[test]
fn commands_that_sleep_a_known_time_have_the_known_rate() {
    let home = Home::new();
    let ran = home.measure(&["--each", "sleep 0.05", "-t", "1,4", "-s", "1", "--on", "tmpfs"]);
    let result = ran.json(0);
    is_about(point(&result, "tmpfs", 1)["ops_per_s"]["median"].as_f64().unwrap(), 20.0);
    let four = point(&result, "tmpfs", 4);
    is_about(four["ops_per_s"]["median"].as_f64().unwrap(), 80.0);
    let per_task = &four["per_task_ops_per_s"];
    for which in ["min", "median", "max"] {
        is_about(per_task[which].as_f64().unwrap(), 20.0);
    }
    let sum: f64 = per_task["rates"].as_array().unwrap().iter().map(|r| r.as_f64().unwrap()).sum();
    let rate = four["ops_per_s"]["median"].as_f64().unwrap();
    assert!((sum / rate - 1.0).abs() < 1e-9, "{sum} and {rate}");
}

#[test]
fn test_cases_that_sleep_a_known_time_have_the_known_rate_in_both_modes() {
    let home = Home::new();
    let source = home.file(
        "sleeps.c",
        "#include <unistd.h>\nvoid testcase(unsigned long long *i, unsigned long nr)\n\
         { while (1) { usleep(nr ? 20000 : 10000); (*i)++; } }\n",
    );
    for mode in ["processes", "threads"] {
        let ran =
            home.measure(&[source.to_str().unwrap(), "-t", "2", "--mode", mode, "-s", "1", "--on", "tmpfs"]);
        let result = ran.json(0);
        let per_task = &result["points"][0]["per_task_ops_per_s"];
        is_about(per_task["max"].as_f64().unwrap(), 100.0);
        is_about(per_task["min"].as_f64().unwrap(), 50.0);
    }
}

#[test]
fn few_slow_operations_give_fractional_rates() {
    let home = Home::new();
    for each in [&["--each", "sleep 0.11"][..], &["--shell", "--each", "sleep 0.11; :"]] {
        let mut arguments = each.to_vec();
        arguments.extend(["-t", "2", "-s", "1", "--rounds", "2", "--on", "tmpfs"]);
        let result = home.measure(&arguments).json(0);
        let rounds = result["points"][0]["rounds"].as_array().unwrap();
        let operations = |round: &Value| -> Vec<f64> {
            let window = round["window_s"].as_f64().unwrap();
            let rates = round["per_task_ops_per_s"].as_array().unwrap();
            rates.iter().for_each(|r| is_about(r.as_f64().unwrap(), 1.0 / 0.11));
            rates.iter().map(|r| r.as_f64().unwrap() * window).collect()
        };
        let all: Vec<f64> = rounds.iter().flat_map(operations).collect();
        assert!(all.iter().any(|n| (n - n.round()).abs() > 0.02), "whole operations only: {all:?}");
    }
}

#[test]
fn an_operation_longer_than_the_window_is_measured_or_the_point_is_void() {
    let home = Home::new();
    let ran = home.measure(&["--each", "sleep 0.7", "-t", "2", "-s", "0.2", "--on", "tmpfs"]);
    let result = ran.json(0);
    let point = &result["points"][0];
    let rate = point["ops_per_s"]["median"].as_f64().unwrap();
    is_about(rate, 2.0 / 0.7);
    assert!(warns(&point["warnings"], "few_operations"), "{point}");
}

/// Parts of a budget that were counted.
fn parts(budget: &Value) -> f64 {
    let names = ["user", "system", "spin", "irq", "steal", "idle", "unused", "system_elsewhere", "other"];
    names.iter().filter_map(|name| budget[name].as_f64()).sum()
}

#[test]
fn the_budget_closes_and_what_is_not_known_is_null() {
    let home = Home::new();
    let ran =
        home.measure(&["create_unlink", "-t", "1,2,4", "-s", "0.3", "--rounds", "2", "--on", "tmpfs,xfs,."]);
    let result = ran.json(0);
    for point in result["points"].as_array().unwrap() {
        let budget = &point["budget_us_per_op"];
        let total = budget["total"].as_f64().unwrap();
        let unaccounted = budget["unaccounted"].as_f64().unwrap();
        assert!(((parts(budget) + unaccounted) / total - 1.0).abs() < 1e-6, "{budget}");
        assert!(budget["spin"].is_null(), "nobody looked for spinning: {budget}");
        assert!(unaccounted.abs() / total < 0.25, "{budget}");
        // Independent of the budget: capacity over operations.
        let sum =
            |of: &dyn Fn(&Value) -> f64| point["rounds"].as_array().unwrap().iter().map(of).sum::<f64>();
        let capacity = sum(&|r| r["cpu"]["capacity"].as_f64().unwrap());
        let operations = sum(&|r| r["operations"].as_f64().unwrap());
        assert!((capacity * 1e6 / operations / total - 1.0).abs() < 1e-6, "{point}");
        let rate = point["ops_per_s"]["median"].as_f64().unwrap();
        assert!(rate > 0.0);
    }
}

#[test]
fn the_time_of_cpus_that_no_task_could_use_is_unused_and_not_idle() {
    let cpus = rustix::thread::sched_getaffinity(None).unwrap().count();
    if cpus < 2 {
        eprintln!("this machine has one CPU: nothing to test");
        return;
    }
    let home = Home::new();
    // A task that sleeps: its own CPU is idle, the others are unused, as far as no stranger runs there.
    let ran =
        home.measure(&["--each", "sleep 0.05", "-t", "1", "-s", "1", "--pin", "always", "--on", "tmpfs"]);
    let budget = &ran.json(0)["points"][0]["budget_us_per_op"];
    let share = |name: &str| budget[name].as_f64().unwrap_or(0.0) / budget["total"].as_f64().unwrap();
    let others = share("unused") + share("system_elsewhere") + share("other");
    let of_others = (cpus - 1) as f64 / cpus as f64;
    assert!((others - of_others).abs() < 0.1, "{budget}");
    assert!(share("idle") <= 1.0 / cpus as f64 + 0.03, "{budget}");
}

#[test]
fn the_same_target_twice_is_named_apart_and_no_verdict_is_reached_on_a_few_rounds() {
    let home = Home::new();
    let ran = home.measure(&[
        "create_unlink",
        "-t",
        "1",
        "-s",
        "0.05",
        "--rounds",
        "3",
        "--seed",
        "7",
        "--on",
        "tmpfs,tmpfs",
    ]);
    let result = ran.json(0);
    assert_eq!(result["seed"], 7);
    let names: Vec<&str> =
        result["points"].as_array().unwrap().iter().map(|p| p["target"].as_str().unwrap()).collect();
    assert_eq!(names, ["tmpfs", "tmpfs#2"]);
    let comparisons = result["comparisons"].as_array().unwrap();
    assert_eq!(comparisons.len(), 1);
    // Three rounds against three can never be significant, so this does not hang on luck.
    assert_eq!(comparisons[0]["verdict"], "cannot_say");
    assert_eq!(result["noise"]["pairs"], 1);
}

#[test]
fn the_seed_decides_the_order_and_is_recorded() {
    let home = Home::new();
    let order = |seed: &str| -> Vec<(u64, String)> {
        let ran = home.measure(&[
            "getppid",
            "-t",
            "1",
            "-s",
            "0.1",
            "--rounds",
            "2",
            "--seed",
            seed,
            "--on",
            "tmpfs,.,/",
        ]);
        let result = ran.json(0);
        let mut all: Vec<(u64, String)> = Vec::new();
        for point in result["points"].as_array().unwrap() {
            for round in point["rounds"].as_array().unwrap() {
                all.push((round["order"].as_u64().unwrap(), point["target"].as_str().unwrap().to_owned()));
            }
        }
        all.sort();
        all
    };
    let first = order("3");
    assert_eq!(first, order("3"));
    let mirrored: Vec<&String> = first.iter().rev().map(|(_, name)| name).collect();
    let there: Vec<&String> = first.iter().map(|(_, name)| name).collect();
    assert_eq!(there, mirrored, "A B C, then C B A");
}
