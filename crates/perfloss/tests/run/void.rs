//! A dead, failing or hanging task voids its point, and the result says which task and why.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::home::{Home, QUICK, case, perfloss, point, warns};

/// Runs a workload that cannot succeed beside nothing else; gives why the point is void.
fn why_void(home: &Home, arguments: &[&str]) -> String {
    let ran = home.measure(arguments);
    let result = ran.json(3);
    assert_eq!(result["complete"], true, "a void point is a finished one");
    let point = &result["points"][0];
    assert_eq!(point["valid"], false, "{point}");
    for absent in ["ops_per_s", "per_task_ops_per_s", "budget_us_per_op"] {
        assert!(point[absent].is_null(), "{absent} of a void point: {point}");
    }
    point["invalid_because"].as_str().unwrap().to_owned()
}

#[test]
fn test_cases_that_die_void_their_point_and_the_task_is_named() {
    let home = Home::new();
    for (name, words) in [
        ("asserts.c", &["task 1", "SIGABRT", "nr != 1"][..]),
        ("crashes.c", &["task ", "SIGSEGV"]),
        ("exits.c", &["task ", "exit status 0"]),
        ("returns.c", &["task ", "return"]),
    ] {
        let why = why_void(&home, &[&case(name), "-t", "2", "--on", "tmpfs"]);
        eprintln!("{name}: {why}");
        for word in words {
            assert!(why.contains(word), "{name}: no {word:?} in {why:?}");
        }
    }
}

#[test]
fn test_cases_that_die_as_threads_take_the_point_along_and_nothing_else() {
    let home = Home::new();
    for name in ["asserts.c", "crashes.c", "exits.c", "returns.c"] {
        let why = why_void(&home, &[&case(name), "-t", "2", "--mode", "threads", "--on", "tmpfs"]);
        eprintln!("{name}: {why}");
        assert!(!why.is_empty());
    }
}

#[test]
fn a_failing_command_is_void_with_its_status_and_its_last_words() {
    let home = Home::new();
    let why = why_void(&home, &["--each", "false", "-t", "1", "--on", "tmpfs"]);
    assert!(why.contains("task 0") && why.contains("exit status 1"), "{why}");
    let why =
        why_void(&home, &["--each", "cc -c -o {dir}/o.{task} {src}/missing.c", "-t", "2", "--on", "xfs"]);
    assert!(why.contains("missing.c"), "{why}");
    let why = why_void(&home, &["--shell", "--each", "kill -SEGV $$", "-t", "1", "--on", "tmpfs"]);
    assert!(why.contains("signal 11") || why.contains("SIGSEGV"), "{why}");
    let why = why_void(&home, &["--setup", "false", "--each", "true", "-t", "1", "--on", "tmpfs"]);
    assert!(why.contains("exit status 1"), "{why}");
}

#[test]
fn a_command_that_fails_only_later_voids_the_point_too() {
    let home = Home::new();
    // The 20th operation fails: in the window or before it.
    let each = "echo >> {dir}/n.{task}; [ $(wc -l < {dir}/n.{task}) -lt 20 ]";
    let why = why_void(&home, &["--shell", "--each", each, "-t", "1", "-s", "1", "--on", "tmpfs"]);
    assert!(why.contains("task 0"), "{why}");
}

#[test]
fn a_hanging_task_voids_the_point_within_the_deadline_and_says_where_it_hangs() {
    let home = Home::new();
    let begun = Instant::now();
    let why = why_void(&home, &["--each", "sleep 1000", "-t", "2", "--deadline", "0.5", "--on", "tmpfs"]);
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(why.contains("task 0") && why.contains("hangs") && why.contains("sleep"), "{why}");
}

#[test]
fn a_test_case_that_hangs_or_never_gets_ready_is_void() {
    let home = Home::new();
    let hangs = home.file("hangs.c", "#include <unistd.h>\nvoid testcase(unsigned long long *i, unsigned long nr)\n{ while (1) { if (nr == 1) pause(); (*i)++; } }\n");
    let why = why_void(&home, &[hangs.to_str().unwrap(), "-t", "2", "--deadline", "0.5", "--on", "tmpfs"]);
    assert!(why.contains("task 1") && why.contains("hangs"), "{why}");
    let prepares = home.file("prepares.c", "#include <stdlib.h>\nvoid testcase_prepare(unsigned long n) { abort(); }\nvoid testcase(unsigned long long *i, unsigned long nr)\n{ while (1) (*i)++; }\n");
    let why = why_void(&home, &[prepares.to_str().unwrap(), "-t", "2", "--on", "tmpfs"]);
    assert!(why.contains("SIGABRT"), "{why}");
}

#[test]
fn other_points_go_on_beside_a_void_one() {
    let home = Home::new();
    let each = "test {tasks} -eq 1";
    let ran = home.measure(&["--each", each, "-t", "1,2", "--rounds", "3", "--on", "tmpfs"]);
    let result = ran.json(3);
    assert_eq!(point(&result, "tmpfs", 1)["valid"], true);
    assert_eq!(point(&result, "tmpfs", 1)["rounds"].as_array().unwrap().len(), 3);
    assert_eq!(point(&result, "tmpfs", 2)["valid"], false);
}

#[test]
fn a_task_that_is_killed_from_outside_voids_the_point() {
    let home = Home::new();
    let arguments = ["run", "--each", "sleep 0.01", "-t", "2", "-s", "20", "--rounds", "1", "--no-capture"];
    let mut all = arguments.to_vec();
    all.extend(["--on", "tmpfs", "--json", "--quiet"]);
    let running = home.start(home.command(perfloss(), &all));
    // A task is the parent of a `sleep`.
    let begun = Instant::now();
    let task = loop {
        assert!(begun.elapsed() < Duration::from_secs(20), "no task is seen");
        let sleep = home.processes().into_iter().find(|(_, command)| command.starts_with("sleep"));
        let Some((pid, _)) = sleep else { continue };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse::<i32>().ok());
        if let Some(parent) = parent.and_then(Pid::from_raw) {
            break parent;
        }
    };
    kill_process(task, Signal::KILL).unwrap();
    let ran = running.end();
    let result = ran.json(3);
    let why = result["points"][0]["invalid_because"].as_str().unwrap();
    assert!(why.contains("task ") && why.contains("SIGKILL"), "{why}");
    home.nothing_is_left();
}

#[test]
fn a_compiler_that_fails_counts_nothing() {
    let home = Home::new();
    let fake = home.file("cc", "#!/bin/sh\nexit 1\n");
    crate::home::open_to_all(&fake);
    let path = format!("{}:{}", home.work().display(), std::env::var("PATH").unwrap());
    let mut arguments = QUICK.to_vec();
    arguments[1] = "cc";
    arguments.extend(["--json", "--quiet"]);
    let mut command = home.command(perfloss(), &arguments);
    command.env("PATH", path);
    let result = home.start(command).end().json(3);
    assert_eq!(result["points"][0]["valid"], false);
    assert!(!warns(&result["warnings"], "few_rounds"), "nothing was measured: {}", result["warnings"]);
    home.nothing_is_left();
}
