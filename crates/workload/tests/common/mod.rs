//! Runs workloads for real: prepared in a child, in forked tasks or in threads, as the harness does it.
#![allow(dead_code)]

pub mod case;

use std::path::Path;
use std::time::{Duration, Instant};

use workload::meter::{State, now_ns};
use workload::{Board, Failure, Meter, Mode, Place, Prepared, Workload};

pub fn place(dir: &Path, tasks: u32, mode: Mode) -> Place {
    let (shared, src) = (dir.join("shared"), dir.join("src"));
    std::fs::create_dir(&shared).expect("a fresh directory");
    std::fs::create_dir(&src).expect("a fresh directory");
    workload::sources::write(&src, tasks).expect("sources");
    Place { dir: shared, src, tasks, mode, seed: 7 }
}

/// One task from gate to end; what it says in its slot is what became of it.
fn task(prepared: &dyn Prepared, board: &Board, task: u32) -> Result<(), Failure> {
    let slot = &board.slots()[task as usize];
    slot.set_state(State::Ready);
    board.control().wait_at_gate();
    let mut meter = Meter::new(board.control(), slot);
    slot.set_state(State::Running);
    let result = prepared.run(task, &mut meter);
    meter.finish();
    slot.set_state(match result {
        Ok(()) => State::Finished,
        Err(_) => State::Failed,
    });
    result
}

/// Waits until `met` holds; a loaded machine is given time.
pub fn wait_for(what: &str, mut met: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(30);
    while !met() {
        assert!(Instant::now() < limit, "{what} did not happen in 30 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Opens the gate, waits until every task has completed `operations`, and as many again in the window, and stops them.
fn drive(board: &Board, operations: u64) {
    let slots = board.slots();
    let counts = || slots.iter().map(|s| s.count()).collect::<Vec<_>>();
    let ended = |s: &workload::meter::Slot| matches!(s.state(), State::Failed | State::Finished);
    let all_did = |since: &[u64]| {
        let did =
            |(slot, since): (&workload::meter::Slot, &u64)| slot.count() >= since + operations || ended(slot);
        slots.iter().zip(since).all(did)
    };
    board.control().open_gate();
    wait_for("the warm-up", || all_did(&vec![0; slots.len()]));
    let at_start = counts();
    board.control().set_start(now_ns());
    wait_for("the window", || all_did(&at_start));
    board.control().set_end(now_ns());
    board.control().stop();
}

/// Runs tasks as the place says until each has completed `operations` in the window. Returns the operations in the window of each task.
pub fn run(workload: &dyn Workload, place: &Place, operations: u64) -> Result<Vec<f64>, Failure> {
    let board = Board::create(place.tasks)?;
    let prepared = workload.prepare(place)?;
    let result = match place.mode {
        Mode::Threads => run_threads(&*prepared, &board, operations),
        Mode::Processes => run_processes(&*prepared, &board, operations),
    };
    prepared.cleanup()?;
    result?;
    let in_window = |s: &workload::meter::Slot| {
        let (start, end) = (s.count_at_start(), s.count_at_end());
        end.expect("stamped after the end") - start.expect("stamped after the start")
    };
    Ok(board.slots().iter().map(in_window).collect())
}

fn run_threads(prepared: &dyn Prepared, board: &Board, operations: u64) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let tasks: Vec<_> =
            (0..board.tasks()).map(|n| scope.spawn(move || task(prepared, board, n))).collect();
        drive(board, operations);
        let mut results = tasks.into_iter().map(|t| t.join().expect("no panic"));
        results.find(Result::is_err).unwrap_or(Ok(()))
    })
}

fn run_processes(prepared: &dyn Prepared, board: &Board, operations: u64) -> Result<(), Failure> {
    let dir = tempfile::tempdir().expect("a directory");
    let mut pids = Vec::new();
    for n in 0..board.tasks() {
        // SAFETY: the child runs the task and leaves with _exit; the loops under test do not allocate under a lock that
        // another thread of the test might hold for long, glibc's malloc is usable after fork.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork");
        if pid == 0 {
            let result = task(prepared, board, n);
            if let Err(failure) = &result {
                let text = serde_json::to_vec(failure).unwrap_or_default();
                let _ = std::fs::write(dir.path().join("failure"), text);
            }
            // SAFETY: leaves without running the parent's destructors.
            unsafe { libc::_exit(result.is_err().into()) };
        }
        pids.push(pid);
    }
    drive(board, operations);
    for pid in pids {
        let mut status = 0;
        // SAFETY: our child, waited for once.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status), "a task died with status {status:#x}");
    }
    match std::fs::read(dir.path().join("failure")) {
        Ok(text) => Err(serde_json::from_slice(&text).expect("what the task wrote")),
        Err(_) => Ok(()),
    }
}
