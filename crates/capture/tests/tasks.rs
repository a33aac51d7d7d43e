//! Tasks that come and go.

mod common;

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::*;
use trace::{Kind, TaskId, TimeNs};

#[test]
fn thousands_of_short_lived_processes_are_all_seen_with_their_exit_status() {
    undisturbed(|| {
        const N: usize = 500;
        let (trace, (pids, elapsed)) = captured(options(), || {
            let begin = now();
            let mut pids = Vec::new();
            for i in 0..N {
                let command = if i % 2 == 0 { "true" } else { "false" };
                let mut child = Command::new(format!("/bin/{command}")).spawn().expect("a process");
                pids.push((child.id(), begin.max(now()), i % 2));
                child.wait().expect("our child");
            }
            (pids, now() - begin)
        });
        let mut exits: HashMap<TaskId, i32> = HashMap::new();
        let mut execs: HashMap<TaskId, String> = HashMap::new();
        let mut forks: HashMap<TaskId, TaskId> = HashMap::new();
        for event in trace.events() {
            match event.kind {
                Kind::Exit { task, status } => drop(exits.insert(task, status)),
                Kind::Exec { task, name } => {
                    drop(
                        execs.insert(task, name.map_or(String::new(), |n| trace.tables().str(n).to_owned())),
                    );
                }
                Kind::Fork { parent, child } => drop(forks.insert(child, parent)),
                _ => {}
            }
        }
        for (pid, time, fails) in &pids {
            let candidates: Vec<_> = trace.tables().tasks().filter(|(_, t)| t.tid == *pid).collect();
            let (task, row) = candidates
                .iter()
                .filter(|(_, t)| t.start.0 <= *time)
                .max_by_key(|(_, t)| t.start)
                .unwrap_or_else(|| panic!("process {pid} was not seen"));
            let status = if *fails == 1 { 1 << 8 } else { 0 };
            assert_eq!(exits.get(task), Some(&status), "process {pid}");
            assert_eq!(row.exit.map(|e| e.status), Some(status));
            assert_eq!(execs.get(task).map(String::as_str), Some(if *fails == 1 { "false" } else { "true" }));
            let parent = forks.get(task).and_then(|p| trace.tables().task(*p)).map(|p| p.tgid);
            assert_eq!(parent, Some(std::process::id()));
            assert_eq!(trace.tables().task_name(*task), if *fails == 1 { "false" } else { "true" });
        }
        println!("{:.0} processes/s", N as f64 / (elapsed as f64 / 1e9));
        Ok(())
    });
}

/// A process of the storm, by its own account.
struct Made {
    pid: u32,
    before: u64,
    after: u64,
}

#[test]
fn two_thousand_processes_a_second_are_all_seen_or_reported_as_lost() {
    const N: usize = 3000;
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("storm");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/storm.c");
    let built = Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(source).status().expect("cc");
    assert!(built.success());
    let (trace, report, output) = captured_with_report(options(), || {
        Command::new(&program).args([&N.to_string(), "2000"]).output().expect("it runs")
    });
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("numbers");
    let made: Vec<Made> = text
        .lines()
        .map(|l| {
            let numbers: Vec<u64> = l.split(' ').map(|n| n.parse().expect("a number")).collect();
            Made { pid: numbers[0] as u32, before: numbers[1], after: numbers[2] }
        })
        .collect();
    assert_eq!(made.len(), N);
    let rate = N as f64 / ((made[N - 1].after - made[0].before) as f64 / 1e9);
    let mut pids: Vec<u32> = made.iter().map(|m| m.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    println!("{rate:.0} processes/s; {} numbers; {report:?}", pids.len());

    let tables = trace.tables();
    let mut tasks: HashMap<u32, Vec<(TaskId, &trace::Task)>> = HashMap::new();
    for (id, task) in tables.tasks() {
        tasks.entry(task.tid).or_default().push((id, task));
    }
    let mut forks: HashMap<TaskId, TimeNs> = HashMap::new();
    let mut exits: HashMap<TaskId, (TimeNs, i32)> = HashMap::new();
    let mut execs: HashMap<TaskId, String> = HashMap::new();
    for event in trace.events() {
        match event.kind {
            Kind::Fork { child, .. } => drop(forks.insert(child, event.time)),
            Kind::Exit { task, status } => drop(exits.insert(task, (event.time, status))),
            Kind::Exec { task, name } => {
                drop(execs.insert(task, tables.str(name.expect("named")).to_owned()))
            }
            _ => {}
        }
    }
    let mut missing = 0u64;
    let mut of = HashMap::new();
    for (i, process) in made.iter().enumerate() {
        let inside = |t: &TimeNs| process.before <= t.0 && t.0 <= process.after;
        let mut found = tasks.get(&process.pid).into_iter().flatten().filter(|(_, t)| inside(&t.start));
        let (Some((task, row)), None) = (found.next(), found.next()) else {
            missing += 1;
            continue;
        };
        // thread ids that are used again are tasks of their own
        assert_eq!(of.insert(*task, i), None);
        let exit = exits.get(task).filter(|e| inside(&e.0));
        if !forks.get(task).is_some_and(inside) || exit.is_none() {
            missing += 1;
            continue;
        }
        let status = (i as i32 % 200) << 8;
        assert_eq!(exit.map(|e| e.1), Some(status), "process {i}");
        assert_eq!(row.exit.map(|e| e.status), Some(status));
        let name = tables.task_name(*task);
        // names are large records: they are lost with the stacks
        let named = if i % 2 == 1 {
            let command = row.command.map_or("", |c| tables.str(c));
            execs.get(task).map(String::as_str) == Some("exe")
                && command.ends_with(&format!("storm child {i}"))
        } else {
            name == format!("f{i}")
        };
        assert!(named || report.lost_stacks > 0, "process {i} is called {name}: {:?}", execs.get(task));
    }
    // nothing of a task is before its beginning or long after its end
    for event in trace.events() {
        let Kind::Switch { prev, next, .. } = event.kind else { continue };
        for task in [prev, next] {
            if let Some(i) = of.get(&task) {
                assert!(event.time.0 >= made[*i].before, "process {i} before it was made");
            }
        }
    }
    if report.lost_events == 0 {
        assert_eq!(missing, 0, "{report:?}");
    } else {
        // each process has two events that it must not be without
        assert!(missing <= report.lost_events, "{missing} without one: {report:?}");
        assert!(trace.events().iter().any(|e| matches!(e.kind, Kind::Lost { .. })));
    }
}

#[test]
fn two_tasks_with_the_same_thread_id_are_two_tasks() {
    const LAST: &str = "/proc/sys/kernel/ns_last_pid";
    if fs::OpenOptions::new().write(true).open(LAST).is_err() {
        println!("this kernel cannot be asked for a process id (CONFIG_CHECKPOINT_RESTORE)");
        return;
    }
    undisturbed(|| {
        let spawn = || {
            let mut child = Command::new("/bin/true").spawn().expect("a process");
            let at = now();
            child.wait().expect("our child");
            (child.id(), at)
        };
        let (trace, pair) = captured(options(), || {
            // others may take the number in between
            (0..100).find_map(|_| {
                let first = spawn();
                fs::write(LAST, (first.0 - 1).to_string()).expect("it was writable");
                let second = spawn();
                (first.0 == second.0).then_some((first, second))
            })
        });
        let Some((first, second)) = pair else { panic!("the same process id was never given twice") };
        let tasks: Vec<_> = trace.tables().tasks().filter(|(_, t)| t.tid == first.0).collect();
        assert!(tasks.len() >= 2, "{tasks:?}");
        let exits: Vec<u64> = tasks.iter().filter_map(|(_, t)| t.exit).map(|e| e.time.0).collect();
        assert_eq!(exits.len(), tasks.len(), "each has its own end");
        let last = tasks.iter().max_by_key(|(_, t)| t.start).expect("two");
        let before =
            tasks.iter().filter(|(_, t)| t.start < last.1.start).max_by_key(|(_, t)| t.start).expect("two");
        assert!(before.1.exit.is_some_and(|e| e.time < last.1.start), "{before:?} {last:?}");
        // no switch of the second is charged to the first
        for event in trace.events() {
            if let Kind::Switch { next, .. } = event.kind
                && next == before.0
            {
                assert!(event.time < last.1.start);
            }
        }
        assert!(second.1 > first.1);
        Ok(())
    });
}

#[test]
fn children_of_the_scope_belong_to_it() {
    undisturbed(|| {
        let scope = capture::Scope::Processes(vec![std::process::id()]);
        let (trace, pid) = captured(capture::Options { scope, ..options() }, || {
            let mut child = Command::new("sh").args(["-c", "true; /bin/true"]).spawn().expect("a shell");
            child.wait().expect("our child");
            child.id()
        });
        let scoped: Vec<_> = trace.tables().tasks().filter(|(_, t)| t.in_scope).map(|(_, t)| t.tid).collect();
        assert!(scoped.contains(&pid) && scoped.contains(&std::process::id()), "{scoped:?}");
        assert!(trace.tables().tasks().any(|(_, t)| t.tid == 1 && !t.in_scope));
        Ok(())
    });
}

#[test]
fn a_burst_that_overflows_the_rings_is_reported_as_incomplete() {
    let small = capture::Options {
        event_bytes_per_cpu: 1,
        stack_bytes_per_cpu: 1,
        poll: Duration::from_millis(100),
        ..options()
    };
    let (trace, report, ()) = captured_with_report(small, || {
        let sleepers: Vec<_> = (0..4)
            .map(|_| thread::spawn(|| (0..2000).for_each(|_| thread::sleep(Duration::from_micros(10)))))
            .collect();
        sleepers.into_iter().for_each(|s| s.join().expect("ends"));
    });
    assert!(!report.complete());
    assert!(report.lost_events > 0, "{report:?}");
    assert!(report.lost_stack_ns > 0, "the time of lost stacks is known: {report:?}");
    assert_eq!(trace.tables().summary().lost_events, report.lost_events);
    let told: u64 = trace
        .events()
        .iter()
        .map(|e| match e.kind {
            Kind::Lost { count, from } => {
                assert!(from <= e.time);
                u64::from(count)
            }
            _ => 0,
        })
        .sum();
    let by_ring: u64 = report.lost_by_cpu.iter().sum();
    // a gap that is open at the end is only in the counters
    assert!(told > 0 && told <= by_ring, "{told} of {by_ring}");
    assert!(trace.events().is_sorted_by_key(|e| e.time));
}

#[test]
fn a_trace_file_is_what_memory_holds() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("capture.trace");
    let file = fs::File::create(&path).expect("a file");
    let capture = capture::Capture::start_to(options(), capture::Sink::File(Box::new(file)))
        .unwrap_or_else(|e| panic!("{e}"));
    thread::sleep(Duration::from_millis(50));
    let captured = capture.stop().unwrap_or_else(|e| panic!("{e}"));
    assert!(captured.trace.is_none());
    assert!(captured.report.bytes_written > 0);
    let mut reader = trace::Reader::new(fs::File::open(&path).expect("written")).expect("a trace");
    let trace = trace::Trace::read(&mut reader).expect("readable");
    assert_eq!(trace.events().len() as u64, captured.report.events);
    assert!(trace.tables().tasks().any(|(_, t)| t.tid == std::process::id()));
}
