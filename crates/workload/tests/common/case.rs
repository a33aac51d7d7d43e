//! Runs C test cases for real: a process of its own prepares and starts the tasks, which are killed in the end.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use workload::ccase::Compiled;
use workload::meter::{State, Watcher, now_ns};
use workload::{Board, Failure, Meter, Mode, Place, Prepared, Spec};

/// What became of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Operations of each task in the window, if all tasks worked.
    pub in_window: Vec<f64>,
    /// What `prepare` or a task said.
    pub failure: Option<Failure>,
    /// A task and its wait status, if it ended by itself.
    pub died: Option<(u32, i32)>,
    /// The status of the process that prepared, if it did not end well.
    pub group_status: Option<i32>,
    /// What `cleanup` said.
    pub cleanup_failed: Option<Failure>,
    /// What the tasks wrote to stderr.
    pub stderr: String,
}

/// A fork has only the thread that called it: what another thread holds at that moment (whoever starts a compiler holds the environment)
/// is held for ever in the child. So nobody compiles while somebody forks.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the case until every task has counted `operations`, or the case has failed.
pub fn run(compiled: &Compiled, tasks: u32, mode: Mode, operations: u64) -> Outcome {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let object = compiled.to_memfd().expect("a memfd");
    let path = format!("/proc/self/fd/{}", object.as_raw_fd());
    let spec = Spec::of_case(compiled, path.into());
    let place = super::place(dir.path(), tasks, mode);
    let board = Board::create(tasks).expect("shared memory");
    let report = dir.path().join("report");
    let stderr = dir.path().join("stderr");

    // SAFETY: the child leaves with _exit; glibc keeps malloc usable after fork.
    let group = unsafe { libc::fork() };
    assert!(group >= 0, "fork");
    if group == 0 {
        dies_with_its_parent();
        let file = File::create(&stderr).expect("a file");
        // A compiler that is killed leaves its temporary files.
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var("TMPDIR", &place.dir) };
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(file.as_raw_fd(), 2) };
        let outcome = supervise(&spec, &place, &board);
        std::fs::write(&report, serde_json::to_vec(&outcome).expect("serialises")).expect("writes");
        // SAFETY: leaves at once, with whatever threads there are.
        unsafe { libc::_exit(0) };
    }
    let status = watch(&board, group, operations);
    let mut outcome: Outcome = match std::fs::read(&report) {
        Ok(text) => serde_json::from_slice(&text).expect("a report"),
        Err(_) => Outcome::default(),
    };
    outcome.group_status = (status != 0).then_some(status);
    outcome.stderr = std::fs::read_to_string(&stderr).unwrap_or_default();
    let window = |slot: &workload::meter::Slot| Some(slot.count_at_end()? - slot.count_at_start()?);
    outcome.in_window = board.slots().iter().filter_map(window).collect();
    outcome
}

/// The supervisor's part: opens the gate, watches, stops. Returns the group's status.
fn watch(board: &Board, group: libc::pid_t, operations: u64) -> i32 {
    let (control, slots) = (board.control(), board.slots());
    let limit = Instant::now() + Duration::from_secs(20);
    let mut watcher = None;
    let mut at_start = Vec::new();
    let mut status = 0;
    control.open_gate();
    loop {
        // SAFETY: our child, and a valid place for its status.
        if unsafe { libc::waitpid(group, &raw mut status, libc::WNOHANG) } == group {
            return status;
        }
        assert!(Instant::now() < limit, "the case did nothing for 20 s");
        let running = slots.iter().all(|s| s.state() == State::Running);
        if running && watcher.is_none() {
            watcher = Some(Watcher::new(slots));
        }
        if let Some(watcher) = &mut watcher {
            watcher.observe(control, slots);
            let counts: Vec<u64> = slots.iter().map(|s| s.count()).collect();
            let done = |since: &[u64]| counts.iter().zip(since).all(|(c, s)| *c >= s + operations);
            if control.start_ns() == 0 {
                if done(&vec![0; counts.len()]) {
                    at_start = counts;
                    control.set_start(now_ns());
                }
            } else if control.end_ns() == 0 {
                if done(&at_start) {
                    control.set_end(now_ns());
                }
            } else {
                watcher.finish(control, slots);
                control.stop();
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A test that fails leaves nothing running.
fn dies_with_its_parent() {
    // SAFETY: takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn supervise(spec: &Spec, place: &Place, board: &Board) -> Outcome {
    let workload = spec.open().expect("opens");
    let prepared: Arc<dyn Prepared> = match workload.prepare(place) {
        Ok(prepared) => prepared.into(),
        Err(failure) => return Outcome { failure: Some(failure), ..Outcome::default() },
    };
    let mut outcome = match place.mode {
        Mode::Processes => processes(&*prepared, board, &place.dir),
        Mode::Threads => threads(&prepared, board),
    };
    outcome.cleanup_failed = prepared.cleanup().err();
    outcome
}

/// One task; returns only if the case does.
fn task(prepared: &dyn Prepared, board: &Board, number: u32) -> Result<(), Failure> {
    let slot = &board.slots()[number as usize];
    board.control().wait_at_gate();
    let mut meter = Meter::new(board.control(), slot);
    slot.set_state(State::Running);
    prepared.run(number, &mut meter)
}

fn processes(prepared: &dyn Prepared, board: &Board, dir: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    let mut pids = Vec::new();
    for number in 0..board.tasks() {
        // SAFETY: this process has one thread; the child leaves with _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            dies_with_its_parent();
            // SAFETY: makes this task the leader of a process group.
            unsafe { libc::setpgid(0, 0) };
            if let Err(failure) = task(prepared, board, number) {
                let text = serde_json::to_vec(&failure).expect("serialises");
                std::fs::write(dir.join("failure"), text).expect("writes");
            }
            // SAFETY: leaves without destructors.
            unsafe { libc::_exit(3) };
        }
        // SAFETY: our child, not yet waited for. Done on both sides so that it has happened here, too.
        unsafe { libc::setpgid(pid, pid) };
        pids.push(pid);
    }
    while !board.control().stopped() && outcome.died.is_none() {
        for (number, &pid) in pids.iter().enumerate() {
            let mut status = 0;
            // SAFETY: our child, and a valid place for its status.
            if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == pid {
                outcome.died = Some((number as u32, status));
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    for &pid in &pids {
        // SAFETY: signals the groups of our own children.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
    }
    for &pid in &pids {
        // SAFETY: waits for our own children; one may have been waited for already.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    }
    if let Ok(text) = std::fs::read(dir.join("failure")) {
        outcome.failure = serde_json::from_slice(&text).ok();
    }
    outcome
}

fn threads(prepared: &Arc<dyn Prepared>, board: &Board) -> Outcome {
    let failed = Mutex::new(None);
    // The tasks never end: they borrow what lives until this process leaves.
    let (board, failed): (&'static Board, &'static Mutex<Option<Failure>>) =
        // SAFETY: the board outlives this process's threads, which end with `_exit`.
        (unsafe { &*std::ptr::from_ref(board) }, Box::leak(Box::new(failed)));
    for number in 0..board.tasks() {
        let prepared = Arc::clone(prepared);
        std::thread::spawn(move || {
            let result = task(&*prepared, board, number);
            *failed.lock().expect("not poisoned") = result.err();
        });
    }
    let failure = loop {
        let failure = failed.lock().expect("not poisoned").take();
        if failure.is_some() || board.control().stopped() {
            break failure;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    Outcome { failure, ..Outcome::default() }
}
