//! What the tests of captures share: running work under a capture, and asking its trace simple questions.
#![allow(dead_code)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capture::{Capture, Options, Report};
use trace::{Event, Kind, TaskId, TaskState, TimeNs, Trace, Waker};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

thread_local! {
    /// Of this thread's captures: switches that the kernel did not show.
    static UNSEEN: Cell<u64> = const { Cell::new(0) };
}

/// Captures of several tests at once would be in each other's way.
pub fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Options for tests: every stack of waits of 33 us and more.
pub fn options() -> Options {
    Options { stack_shift: 15, poll: Duration::from_millis(5), ..Options::default() }
}

/// Runs something under a capture that has to be complete.
pub fn captured<T>(options: Options, work: impl FnOnce() -> T) -> (Trace, T) {
    let (trace, report, result) = captured_with_report(options, work);
    assert_eq!(report.lost_events, 0, "events were lost: {report:?}");
    (trace, result)
}

/// Runs something under a capture.
pub fn captured_with_report<T>(options: Options, work: impl FnOnce() -> T) -> (Trace, Report, T) {
    let _alone = alone();
    let capture = Capture::start(options).unwrap_or_else(|e| panic!("{e}"));
    let result = work();
    let captured = capture.stop().unwrap_or_else(|e| panic!("{e}"));
    note_unseen(&captured.report);
    (captured.trace.expect("kept in memory"), captured.report, result)
}

/// Adds up what the kernel did not show to this test.
pub fn note_unseen(report: &Report) {
    UNSEEN.set(UNSEEN.get() + report.unseen_switches);
    // shown of a test that fails
    println!("{report:?}");
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Nanoseconds that the calling thread has run.
pub fn cpu() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The calling thread's id.
pub fn tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// What a thread did, by its own clocks.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub tid: u32,
    pub from: u64,
    pub until: u64,
    /// Of that time, it did not run for so long.
    pub off: u64,
}

/// Does something and stamps it.
pub fn stamped(work: impl FnOnce()) -> Stamp {
    let (from, ran) = (now(), cpu());
    work();
    let (ran, until) = (cpu() - ran, now());
    Stamp { tid: tid(), from, until, off: (until - from).saturating_sub(ran) }
}

/// The task with that thread id that was alive at that time.
pub fn task_at(trace: &Trace, tid: u32, time: u64) -> TaskId {
    let alive =
        |t: &trace::Task| t.tid == tid && t.start.0 <= time && t.exit.is_none_or(|e| e.time.0 >= time);
    trace
        .tables()
        .tasks()
        .find(|(_, t)| alive(t))
        .map(|(id, _)| id)
        .unwrap_or_else(|| panic!("no task {tid} at {time}"))
}

/// A time off the CPU.
#[derive(Clone, Copy, Debug)]
pub struct Off {
    pub from: u64,
    pub until: u64,
    pub state: TaskState,
    pub preempt: bool,
    pub iowait: bool,
}

impl Off {
    pub fn blocked(&self) -> bool {
        !self.preempt && self.state != TaskState::Running
    }
    pub fn ns(&self) -> u64 {
        self.until - self.from
    }
}

/// The times that a task was off the CPU.
pub fn offs(trace: &Trace, task: TaskId) -> Vec<Off> {
    let mut offs = Vec::new();
    let mut open: Option<Off> = None;
    for event in trace.events() {
        if let Kind::Switch { prev, next, prev_state, preempt, iowait, .. } = event.kind {
            if prev == task {
                open = Some(Off { from: event.time.0, until: 0, state: prev_state, preempt, iowait });
            }
            if next == task
                && let Some(off) = open.take()
            {
                offs.push(Off { until: event.time.0, ..off });
            }
        }
    }
    offs
}

/// How long a task was off the CPU in a time.
pub fn off_within(trace: &Trace, task: TaskId, from: u64, until: u64) -> (u64, usize) {
    let parts: Vec<u64> = offs(trace, task)
        .iter()
        .filter_map(|o| o.until.min(until).checked_sub(o.from.max(from)))
        .filter(|ns| *ns > 0)
        .collect();
    (parts.iter().sum(), parts.len())
}

/// Time that the hypervisor took from this machine, in ns; /proc/stat counts it in hundredths of a second.
pub fn stolen() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").expect("there is one");
    let steal =
        stat.lines().next().and_then(|l| l.split_ascii_whitespace().nth(8)).and_then(|f| f.parse().ok());
    steal.unwrap_or(0u64) * 10_000_000
}

/// A time that the trace has otherwise than the program: by an error of ours, or because the hypervisor took the CPU between
/// what happened and the clock that was read for it.
#[derive(Debug)]
pub struct Inaccurate(String);

/// Does something until nothing was in its way. An error of ours is there every time; stolen moments, and switches that the kernel
/// showed to no program ([`Report::unseen_switches`]), are not. With all of them seen, what is no matter of time has to hold at once.
pub fn undisturbed(mut work: impl FnMut() -> Result<(), Inaccurate>) {
    let mut seen = Vec::new();
    for _ in 0..8 {
        UNSEEN.set(0);
        match catch_unwind(AssertUnwindSafe(&mut work)) {
            Ok(Ok(())) => return,
            Ok(Err(e)) => seen.push(e.0),
            Err(panic) if UNSEEN.get() == 0 => resume_unwind(panic),
            Err(_) => seen.push(format!("{} switches were not shown", UNSEEN.get())),
        }
    }
    panic!("disturbed each time:\n{}", seen.join("\n"));
}

/// The promise: within 2 % or 50 us an event of the program's own stamps, whichever is more.
pub fn check_time(trace: &Trace, stamp: &Stamp, what: &str) -> Result<(), Inaccurate> {
    check_time_less(trace, stamp, 0, what)
}

/// The same of a task that ran meanwhile: time that was stolen from it is neither running nor off the CPU.
pub fn check_time_less(trace: &Trace, stamp: &Stamp, stolen: u64, what: &str) -> Result<(), Inaccurate> {
    let task = task_at(trace, stamp.tid, stamp.from);
    let (seen, events) = off_within(trace, task, stamp.from, stamp.until);
    assert!(events > 0, "{what}: {stamp:?} has no time off the CPU in the trace");
    let allowed = (stamp.off / 50).max(50_000 * events as u64);
    if seen <= stamp.off + allowed && seen + allowed + stolen >= stamp.off {
        return Ok(());
    }
    Err(Inaccurate(format!(
        "{what}: off the CPU for {} ns by the program's clocks, {seen} ns in {events} parts by the trace",
        stamp.off
    )))
}

/// Who ended a task's longest wait in a time, and when.
pub fn waker_of_longest(trace: &Trace, task: TaskId, from: u64, until: u64) -> (Off, Waker) {
    let off = offs(trace, task)
        .into_iter()
        .filter(|o| o.blocked() && o.from >= from && o.until <= until)
        .max_by_key(Off::ns)
        .unwrap_or_else(|| panic!("no wait between {from} and {until}"));
    let waker =
        trace.events().iter().filter(|e| e.time.0 >= off.from && e.time.0 <= off.until).find_map(|e| match e
            .kind
        {
            Kind::Waking { waker, wakee, .. } if wakee == task => Some(waker),
            _ => None,
        });
    (off, waker.expect("every wait is ended by a wake-up"))
}

/// Names of the kernel stack that was taken of a wait that ended at that time.
pub fn wait_stack(trace: &Trace, task: TaskId, end: u64) -> Vec<String> {
    let stacks = trace.events().iter().filter_map(|e| match e.kind {
        Kind::WaitStack { task: t, kernel: Some(kernel), .. } if t == task => {
            Some((e.time.0.abs_diff(end), kernel))
        }
        _ => None,
    });
    // of a wait for a lock it is taken a little later, when the lock is had
    let found = stacks.min_by_key(|s| s.0).filter(|s| s.0 < 1_000_000).map(|s| s.1);
    let stack = found.unwrap_or_else(|| panic!("no stack of the wait that ended at {end}"));
    trace.tables().stack_names(stack).map(str::to_owned).collect()
}

/// The events of a time.
pub fn between(trace: &Trace, from: u64, until: u64) -> impl Iterator<Item = &Event> {
    trace.events().iter().filter(move |e| e.time >= TimeNs(from) && e.time <= TimeNs(until))
}
