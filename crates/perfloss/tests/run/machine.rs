//! Tasks and the machine: how many there are, processes and threads, affinity, quota.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::home::{Home, case, perfloss, warns};

fn allowed() -> Vec<u64> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..1024).filter(|&n| set.is_set(n)).map(|n| n as u64).collect()
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

#[test]
fn one_to_hundreds_of_tasks_run_as_processes_and_as_threads() {
    let home = Home::new();
    for mode in ["processes", "threads"] {
        let ran = home.measure(&[
            "create_unlink",
            "-t",
            "1,2,24,300",
            "--mode",
            mode,
            "-s",
            "0.3",
            "--on",
            "tmpfs",
        ]);
        let result = ran.json(0);
        for point in result["points"].as_array().unwrap() {
            assert_eq!(point["mode"], mode);
            let tasks = point["tasks"].as_u64().unwrap() as usize;
            assert_eq!(point["per_task_ops_per_s"]["rates"].as_array().unwrap().len(), tasks);
            assert!(point["ops_per_s"]["median"].as_f64().unwrap() > 0.0, "{point}");
        }
    }
}

#[test]
fn two_thousand_tasks_run() {
    let home = Home::new();
    for mode in ["processes", "threads"] {
        let ran = home.measure(&["sched_yield", "-t", "2048", "--mode", mode, "-s", "0.5", "--on", "tmpfs"]);
        let point = &ran.json(0)["points"][0];
        assert_eq!(point["per_task_ops_per_s"]["rates"].as_array().unwrap().len(), 2048);
    }
}

#[test]
fn tasks_are_bound_where_there_are_no_more_than_cpus_unless_told_otherwise() {
    let home = Home::new();
    let cpus = allowed();
    let many = cpus.len() + 1;
    let counts = format!("1,{many}");
    let bound = |pin: &str| -> Vec<Vec<u64>> {
        let ran = home.measure(&["getppid", "-t", &counts, "--pin", pin, "--on", "tmpfs"]);
        ran.json(0)["points"].as_array().unwrap().iter().map(|p| numbers(&p["cpus"])).collect()
    };
    let auto = bound("auto");
    assert_eq!((auto[0].len(), auto[1].len()), (1, 0));
    assert!(bound("never").iter().all(Vec::is_empty));
    let always = bound("always");
    assert_eq!(always[1].len(), many);
    assert!(always.iter().flatten().all(|cpu| cpus.contains(cpu)));
}

#[test]
fn an_inherited_affinity_is_respected_to_the_last_task() {
    let home = Home::new();
    let last = *allowed().last().unwrap();
    let source = home.file(
        "where.c",
        "#include <sched.h>\n#include <stdlib.h>\nvoid testcase(unsigned long long *i, unsigned long nr)\n\
         { while (1) { if (sched_getcpu() != LAST) abort(); (*i)++; } }\n"
            .replace("LAST", &last.to_string())
            .as_str(),
    );
    let mut arguments = vec!["-c".to_owned(), last.to_string(), perfloss().to_owned()];
    let run = ["run", source.to_str().unwrap(), "-t", "1,3", "--on", "tmpfs", "-s", "0.1", "--rounds", "1"];
    arguments.extend(run.iter().map(|s| (*s).to_owned()));
    arguments.extend(["--no-capture", "--retries", "0", "--json", "--quiet"].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = home.start(home.command("taskset", &arguments)).end().json(0);
    assert_eq!(numbers(&result["machine"]["allowed_cpus"]), [last]);
    let points = result["points"].as_array().unwrap();
    assert_eq!(numbers(&points[0]["cpus"]), [last]);
    assert!(points.iter().all(|p| p["valid"] == true), "a task was on another CPU: {points:?}");
    // The capacity is that of one CPU.
    let round = &points[1]["rounds"][0];
    let share = round["cpu"]["capacity"].as_f64().unwrap() / round["window_s"].as_f64().unwrap();
    assert!((share - 1.0).abs() < 1e-6, "{round}");
    home.nothing_is_left();
}

#[test]
fn default_task_counts_are_one_and_the_allowed_cpus() {
    let home = Home::new();
    let result = home.measure(&["getppid", "--on", "tmpfs"]).json(0);
    let mut wanted = vec![1, allowed().len() as u64];
    wanted.dedup();
    assert_eq!(numbers(&result["options"]["tasks"]), wanted);
}

/// A control group with a quota, of whichever version there is; gone at the end.
struct Group(PathBuf);

impl Group {
    fn with_quota(cpus: f64) -> Option<Group> {
        let name = format!("perfloss-test-{}", std::process::id());
        let one = Path::new("/sys/fs/cgroup/cpu");
        let (root, writes) = if one.join("cpu.cfs_quota_us").exists() || one.join("cpu.shares").exists() {
            let quota = format!("{}", (cpus * 20_000.0) as u64);
            (one, vec![("cpu.cfs_period_us", "20000".to_owned()), ("cpu.cfs_quota_us", quota)])
        } else {
            (Path::new("/sys/fs/cgroup"), vec![("cpu.max", format!("{} 20000", (cpus * 20_000.0) as u64))])
        };
        let group = Group(root.join(name));
        fs::create_dir(&group.0).ok()?;
        for (file, text) in writes {
            fs::write(group.0.join(file), text).ok()?;
        }
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Nothing to be done if it fails: the processes in it were seen to end.
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_quota_is_recorded_and_throttling_is_warned_about() {
    let home = Home::new();
    let Some(group) = Group::with_quota(0.1) else {
        eprintln!("no control group with a quota can be made here: nothing to test");
        return;
    };
    let script = format!(
        "echo $$ > {}/cgroup.procs; exec {} run getppid -t 2 -s 0.5 --rounds 1 --retries 0 --on tmpfs --no-capture --json --quiet",
        group.0.display(),
        perfloss()
    );
    let result = home.start(home.command("sh", &["-c", &script])).end().json(0);
    home.nothing_is_left();
    let quota = result["machine"]["quota_cpus"].as_f64().unwrap();
    assert!((quota - 0.1).abs() < 0.01, "{quota}");
    let point = &result["points"][0];
    assert!(warns(&point["warnings"], "throttled"), "{}", point["warnings"]);
    assert!(point["rounds"][0]["throttled_s"].as_f64().unwrap() > 0.0);
    let taints = &point["rounds"][0]["taints"];
    assert!(taints.as_array().unwrap().iter().any(|t| t["code"] == "throttled"), "{taints}");
}

#[test]
fn test_cases_that_start_tasks_of_their_own_run_in_both_modes() {
    let home = Home::new();
    for name in ["partner.c", "affine.c", "old_prepare.c", "counts.c"] {
        for mode in ["processes", "threads"] {
            let ran = home.measure(&[&case(name), "-t", "1,2", "--mode", mode, "--on", "tmpfs"]);
            assert_eq!(ran.status, 0, "{name} with {mode}: {ran:?}");
        }
    }
}
