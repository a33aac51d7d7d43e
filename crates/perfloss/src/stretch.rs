//! A short stretch of a trace in full, for the timeline: what each task did and who handed a lock to whom.
//!
//! Two passes over the trace: the first finds a stretch in which the waiting for locks is as heavy as in the upper quarter of all
//! stretches (the heaviest one is an outlier, and no picture of the rule); the second follows the states of the tasks up to its end.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use result::{HandOff, Interval, TaskState, Timeline, TimelineRow};
use trace::{
    Cpu, Error, Event, Kind, LockId, LockKind, SeedState, Source, Tables, TaskId, TaskKind, TimeNs, Waker,
};

/// The grid on which stretches are looked for, ns.
const STEP_NS: u64 = 500_000;
/// So many waits make a picture that can be read.
const WAITS: f64 = 40.0;
/// Bounds of the stretch, ns.
const LENGTH_NS: (u64, u64) = (50_000, 20_000_000);
/// Most rows and intervals that a result keeps.
const ROWS: usize = 24;
const INTERVALS: usize = 4000;

/// The timeline of a typical stretch of a trace file; none when the workload's tasks never waited.
///
/// # Errors
/// What reading the file fails with.
pub fn of_file(path: &Path) -> Result<Option<Timeline>, Error> {
    timeline(|| trace::Reader::new(BufReader::new(File::open(path)?)))
}

/// A part of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    /// Beginning of the window that it lies in.
    window: TimeNs,
    from: TimeNs,
    to: TimeNs,
}

/// The timeline of a typical stretch; none when the workload's tasks never waited.
///
/// # Errors
/// What reading the trace fails with. `open` gives the trace from its beginning, twice.
fn timeline<S: Source>(mut open: impl FnMut() -> Result<S, Error>) -> Result<Option<Timeline>, Error> {
    let Some(stretch) = choose(&mut open()?)? else { return Ok(None) };
    follow(&mut open()?, stretch).map(Some)
}

/// What the workload waited in one step of the grid.
#[derive(Clone, Copy, Default)]
struct Step {
    lock_ns: u64,
    lock_waits: u32,
    sleeps: u32,
}

fn choose(source: &mut impl Source) -> Result<Option<Stretch>, Error> {
    let mut window = None;
    let mut steps: HashMap<(TimeNs, u64), Step> = HashMap::new();
    let mut begun: HashMap<TaskId, TimeNs> = HashMap::new();
    let mut batch = Vec::new();
    while source.next_batch(&mut batch)? {
        let tables = source.tables();
        for event in &batch {
            if event.kind == Kind::WindowStart || window.is_none() {
                window = Some(event.time);
                begun.clear();
            }
            let Some(window) = window else { continue };
            let step = event.time.since(window) / STEP_NS;
            match event.kind {
                Kind::ContentionBegin { task, .. } if in_scope(tables, task) => {
                    begun.entry(task).or_insert(event.time);
                }
                Kind::ContentionEnd { task, .. } => {
                    if let Some(since) = begun.remove(&task) {
                        let at = steps.entry((window, step)).or_default();
                        at.lock_ns += event.time.since(since);
                        at.lock_waits += 1;
                    }
                }
                Kind::Switch { prev, prev_state, preempt, .. }
                    if !preempt && prev_state != trace::TaskState::Running && in_scope(tables, prev) =>
                {
                    steps.entry((window, step)).or_default().sleeps += 1;
                }
                _ => {}
            }
        }
    }
    let locks = steps.values().any(|s| s.lock_waits > 0);
    let weight = |s: &Step| if locks { s.lock_ns } else { u64::from(s.sleeps) };
    let mut heavy: Vec<((TimeNs, u64), Step)> = steps.into_iter().filter(|(_, s)| weight(s) > 0).collect();
    heavy.sort_by_key(|(at, s)| (weight(s), *at));
    let Some(((window, step), found)) = heavy.get(heavy.len() * 3 / 4) else { return Ok(None) };
    let waits = f64::from(if locks { found.lock_waits } else { found.sleeps }).max(1.0);
    let length = ((STEP_NS as f64 * WAITS / waits) as u64).clamp(LENGTH_NS.0, LENGTH_NS.1);
    // a wait is counted where it ends: begin early enough to see it
    let from = window.plus((step * STEP_NS).saturating_sub(length / 4));
    Ok(Some(Stretch { window: *window, from, to: from.plus(length) }))
}

fn in_scope(tables: &Tables, task: TaskId) -> bool {
    tables.task(task).is_some_and(|t| t.in_scope)
}

fn is_idle(tables: &Tables, task: TaskId) -> bool {
    tables.task(task).is_some_and(|t| matches!(t.kind, TaskKind::Idle(_)))
}

/// A task on its way through the window.
#[derive(Clone, Copy, Debug)]
struct Now {
    state: TaskState,
    since: TimeNs,
    cpu: Option<Cpu>,
    /// The lock whose slow path it is in.
    lock: Option<LockId>,
    /// The lock is known from the kind of its sleep: the next time on a CPU ends that wait.
    named: bool,
    /// It spins while it is on a CPU.
    spins: bool,
    /// Who woke it last and when, until it blocks again.
    woken: Option<(Option<TaskId>, TimeNs)>,
    /// When it last got a CPU, and whether that was idle.
    got_cpu: Option<(TimeNs, bool)>,
}

/// A hand-off before rows have numbers.
struct Passed {
    lock: LockId,
    from: Option<TaskId>,
    to: TaskId,
    released: TimeNs,
    runs: TimeNs,
    cpu_idle: bool,
}

/// Follows the states of all tasks and keeps what lies in the stretch.
struct Follower {
    stretch: Stretch,
    tasks: HashMap<TaskId, Now>,
    intervals: HashMap<TaskId, Vec<(Interval, Option<LockId>)>>,
    passed: Vec<Passed>,
    kept: usize,
}

impl Follower {
    /// A task changes: what it did until now is kept, if it lies in the stretch.
    fn change(&mut self, task: TaskId, at: TimeNs, to: impl FnOnce(&mut Now)) {
        let fresh = Now {
            state: TaskState::Unknown,
            since: at,
            cpu: None,
            lock: None,
            named: false,
            spins: false,
            woken: None,
            got_cpu: None,
        };
        let mut now = self.tasks.get(&task).copied().unwrap_or(fresh);
        let before = now;
        to(&mut now);
        if (now.state, now.cpu, now.lock) != (before.state, before.cpu, before.lock) {
            self.keep(task, &before, at);
            now.since = at;
        }
        self.tasks.insert(task, now);
    }

    fn keep(&mut self, task: TaskId, now: &Now, until: TimeNs) {
        let (from, to) = (now.since.max(self.stretch.from), until.min(self.stretch.to));
        if from >= to || now.state == TaskState::Unknown || self.kept >= INTERVALS {
            return;
        }
        self.kept += 1;
        let interval = Interval {
            at_us: from.since(self.stretch.from) as f64 / 1e3,
            us: to.since(from) as f64 / 1e3,
            state: now.state,
            cpu: now.cpu.map(|c| u32::from(c.0)),
            lock: None,
        };
        let lock = now.lock.filter(|_| now.state != TaskState::Running);
        self.intervals.entry(task).or_default().push((interval, lock));
    }

    fn event(&mut self, tables: &Tables, event: &Event) {
        let at = event.time;
        match event.kind {
            Kind::WindowStart => self.tasks.clear(),
            Kind::Lost { from, .. } => {
                // nothing is known from the last good moment on, until the next event of each task
                let known: Vec<TaskId> = self.tasks.keys().copied().collect();
                for task in known {
                    self.change(task, from, |now| {
                        (now.state, now.lock, now.cpu) = (TaskState::Unknown, None, None);
                    });
                }
            }
            Kind::Seed { task, state, lock } if !self.tasks.contains_key(&task) => {
                let window = self.stretch.window;
                self.change(task, window, |now| {
                    now.lock = lock;
                    (now.state, now.cpu) = match state {
                        SeedState::Running => (TaskState::Running, Some(event.cpu)),
                        SeedState::Runnable => (TaskState::Runnable, None),
                        SeedState::Blocked { iowait, .. } => (blocked(lock.is_some(), iowait), None),
                    };
                });
            }
            Kind::Switch { prev, next, prev_state, preempt, iowait, .. } => {
                if !is_idle(tables, prev) {
                    let runnable = preempt || prev_state == trace::TaskState::Running;
                    self.change(prev, at, |now| {
                        now.cpu = None;
                        if runnable {
                            now.state = TaskState::Runnable;
                        } else {
                            now.state = blocked(now.lock.is_some(), iowait);
                            now.woken = None;
                        }
                    });
                }
                if !is_idle(tables, next) {
                    let was_idle = is_idle(tables, prev);
                    self.change(next, at, |now| {
                        now.cpu = Some(event.cpu);
                        if std::mem::take(&mut now.named) {
                            now.lock = None;
                        }
                        now.state = on_cpu(now);
                        now.got_cpu = Some((at, was_idle));
                    });
                }
            }
            // the wait is over with the wake-up that comes next; what it was for is known only now
            Kind::IoDone { task, device, .. } => {
                if let Some(now) = self.tasks.get_mut(&task)
                    && now.cpu.is_none()
                    && now.lock.is_none()
                    && matches!(now.state, TaskState::BlockedIo | TaskState::Blocked)
                {
                    (now.lock, now.named, now.state) = (Some(device), true, TaskState::BlockedIo);
                }
            }
            Kind::Waking { waker, wakee, .. } => {
                let waker = match waker {
                    Waker::Task(task) => Some(task),
                    Waker::Interrupt | Waker::Unknown => None,
                };
                self.change(wakee, at, |now| {
                    if now.cpu.is_none() && now.state != TaskState::Runnable {
                        now.state = TaskState::Runnable;
                        now.woken = Some((waker, at));
                    }
                });
            }
            Kind::ContentionBegin { task, lock, flags, .. } => self.change(task, at, |now| {
                now.lock = Some(lock);
                now.spins = flags.contains(trace::ContentionFlags::SPIN);
                if now.cpu.is_some() {
                    now.state = on_cpu(now);
                }
            }),
            Kind::ContentionEnd { task, lock, ret } => {
                if let Some(now) = self.tasks.get(&task)
                    && let (Some((from, released)), Some((runs, cpu_idle))) = (now.woken, now.got_cpu)
                    && ret == 0
                    && runs >= released
                    && runs >= self.stretch.from
                    && released <= self.stretch.to
                {
                    self.passed.push(Passed { lock, from, to: task, released, runs, cpu_idle });
                }
                self.change(task, at, |now| {
                    (now.lock, now.spins, now.woken) = (None, false, None);
                    if now.cpu.is_some() {
                        now.state = TaskState::Running;
                    }
                });
            }
            Kind::BlockedOn { task, lock } => {
                let kind = tables.lock(lock).map(|l| l.kind).unwrap_or_default();
                self.change(task, at, |now| {
                    if now.cpu.is_none() {
                        (now.lock, now.named) = (Some(lock), true);
                        now.state = match kind {
                            LockKind::Io => TaskState::BlockedIo,
                            LockKind::Pipe | LockKind::Other => TaskState::Blocked,
                            _ => TaskState::BlockedLock,
                        };
                    }
                });
            }
            Kind::Exit { task, .. } => {
                self.change(task, at, |now| (now.state, now.cpu) = (TaskState::Unknown, None));
            }
            _ => {}
        }
    }
}

/// The state of a task that leaves its CPU to wait.
fn blocked(lock: bool, iowait: bool) -> TaskState {
    if lock {
        TaskState::BlockedLock
    } else if iowait {
        TaskState::BlockedIo
    } else {
        TaskState::Blocked
    }
}

/// The state of a task on a CPU.
fn on_cpu(now: &Now) -> TaskState {
    if now.lock.is_some() && now.spins { TaskState::Spinning } else { TaskState::Running }
}

fn follow(source: &mut impl Source, stretch: Stretch) -> Result<Timeline, Error> {
    let mut follower =
        Follower { stretch, tasks: HashMap::new(), intervals: HashMap::new(), passed: Vec::new(), kept: 0 };
    let mut batch = Vec::new();
    let mut in_window = false;
    let mut last = stretch.from;
    'read: while source.next_batch(&mut batch)? {
        for event in &batch {
            in_window |= event.time >= stretch.window;
            if !in_window {
                continue;
            }
            let over = event.kind == Kind::WindowEnd
                || event.kind == Kind::WindowStart && event.time > stretch.window;
            if over || event.time > stretch.to {
                last = last.max(event.time);
                break 'read;
            }
            last = event.time;
            follower.event(source.tables(), event);
        }
    }
    // the window may end before the stretch does
    follower.stretch.to = stretch.to.min(last);
    let open: Vec<(TaskId, Now)> = follower.tasks.iter().map(|(t, n)| (*t, *n)).collect();
    for (task, now) in open {
        follower.keep(task, &now, follower.stretch.to);
    }
    Ok(finish(source.tables(), follower))
}

/// Chooses the rows: the workload's tasks, busiest in hand-offs first, and whoever hands to them or takes from them.
fn finish(tables: &Tables, follower: Follower) -> Timeline {
    let Follower { stretch, intervals, passed, .. } = follower;
    let mut hand_offs: HashMap<TaskId, usize> = HashMap::new();
    for p in &passed {
        for task in p.from.into_iter().chain([p.to]) {
            *hand_offs.entry(task).or_default() += 1;
        }
    }
    let count = |t: &TaskId| hand_offs.get(t).copied().unwrap_or(0);
    let moves = |list: &[(Interval, Option<LockId>)]| list.len() > 1;
    let mut tasks: Vec<TaskId> = intervals
        .iter()
        .filter(|(t, list)| !is_idle(tables, **t) && (count(t) > 0 || in_scope(tables, **t) && moves(list)))
        .map(|(t, _)| *t)
        .collect();
    tasks.sort_by_key(|t| (!in_scope(tables, *t), std::cmp::Reverse(count(t)), t.index()));
    tasks.truncate(ROWS);
    let row_of: HashMap<TaskId, u32> = tasks.iter().enumerate().map(|(i, t)| (*t, i as u32)).collect();
    let mut locks: Vec<LockId> = Vec::new();
    let mut number = |lock: LockId| match locks.iter().position(|l| *l == lock) {
        Some(i) => i as u32,
        None => {
            locks.push(lock);
            locks.len() as u32 - 1
        }
    };
    let us = |t: TimeNs| {
        // both sides of the beginning: a hand-off may have begun before the stretch
        if t >= stretch.from {
            t.since(stretch.from) as f64 / 1e3
        } else {
            -(stretch.from.since(t) as f64 / 1e3)
        }
    };
    let rows = tasks
        .iter()
        .map(|task| TimelineRow {
            tid: tables.task(*task).map_or(0, |t| i32::try_from(t.tid).unwrap_or(i32::MAX)),
            comm: tables.task_name_at(*task, stretch.to).to_owned(),
            of_workload: Some(in_scope(tables, *task)),
            intervals: intervals
                .get(task)
                .into_iter()
                .flatten()
                .map(|(interval, lock)| Interval { lock: lock.map(&mut number), ..interval.clone() })
                .collect(),
        })
        .collect();
    let hand_offs = passed
        .iter()
        .filter_map(|p| {
            Some(HandOff {
                lock: Some(number(p.lock)),
                from: p.from.and_then(|f| row_of.get(&f).copied()),
                to: row_of.get(&p.to).copied()?,
                released_us: us(p.released),
                runs_us: us(p.runs),
                cpu_idle: Some(p.cpu_idle),
            })
        })
        .collect();
    let words = |lock: &LockId| -> String {
        let Some(row) = tables.lock(*lock) else { return "a lock".to_owned() };
        let class = row.class.map_or_else(|| row.kind.name().to_owned(), |c| tables.str(c).to_owned());
        match row.object {
            Some(object) => format!("{class}, {}", tables.str(object)),
            None => class,
        }
    };
    Timeline {
        start_s: stretch.from.since(stretch.window) as f64 / 1e9,
        length_us: stretch.to.since(stretch.from) as f64 / 1e3,
        rows,
        locks: locks.iter().map(words).collect(),
        hand_offs,
    }
}

#[cfg(test)]
mod tests;
