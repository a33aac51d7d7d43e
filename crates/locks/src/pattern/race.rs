//! One window of the race.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::work::{Work, do_steps};
use super::{Histogram, Lock, Pattern};

/// Why a race could not be run.
#[derive(Debug)]
pub enum RaceError {
    /// The pattern has no threads, no directories or no groups.
    Empty,
    /// A thread could not be started: how many there were, and why.
    Thread(u32, std::io::Error),
}

impl std::fmt::Display for RaceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("the pattern needs at least one thread, one directory and one group"),
            Self::Thread(number, error) => {
                write!(f, "thread {number} could not be started: {error}; use fewer tasks")
            }
        }
    }
}

impl std::error::Error for RaceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Empty => None,
            Self::Thread(_, error) => Some(error),
        }
    }
}

/// What happened in a window.
#[derive(Clone, Debug)]
pub struct Counts {
    /// How long the window was.
    pub window: Duration,
    /// Operations of each task, then of each worker.
    pub per_thread: Vec<u64>,
    /// How many of them are tasks.
    pub tasks: usize,
    /// How long each acquisition of a group's lock took, in ns.
    pub waits: Histogram,
    /// Time that threads waited for groups' locks.
    pub wait: Duration,
    /// The part of it that passed between the release of the lock and the moment that its next holder ran.
    pub hand_off: Duration,
    /// The most acquisitions of a group's lock by others between a thread's asking for it and getting it.
    pub longest_bypass: u64,
    /// CPU time of all threads.
    pub cpu: Duration,
    /// CPUs that they could have used.
    pub cpus: u32,
}

impl Counts {
    /// Operations of the tasks; of the workers if there are no tasks.
    pub fn operations(&self) -> u64 {
        match self.tasks {
            0 => self.per_thread.iter().sum(),
            tasks => self.per_thread[..tasks].iter().sum(),
        }
    }

    /// Operations per second.
    pub fn operations_per_s(&self) -> f64 {
        self.operations() as f64 / self.window.as_secs_f64()
    }

    /// The part of the CPUs' time that nobody used, 0 to 1. Other processes on the machine make it too large.
    pub fn idle_share(&self) -> f64 {
        let all = f64::from(self.cpus) * self.window.as_secs_f64();
        (1.0 - self.cpu.as_secs_f64() / all).max(0.0)
    }

    /// CPU time per operation, in us, spinning included.
    pub fn cpu_us_per_operation(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.operations().max(1) as f64
    }

    /// The part of the waiting that was hand-off, 0 to 1.
    pub fn hand_off_share(&self) -> f64 {
        self.hand_off.as_secs_f64() / self.wait.as_secs_f64().max(1e-9)
    }

    /// Operations of the slowest thread over those of the fastest of its kind, 0 to 1.
    pub fn evenness(&self) -> f64 {
        let of = match self.tasks {
            0 => &self.per_thread[..],
            tasks => &self.per_thread[..tasks],
        };
        let (least, most) = (of.iter().min(), of.iter().max());
        least.zip(most).map_or(0.0, |(&least, &most)| least as f64 / most.max(1) as f64)
    }
}

/// A group's lock with what is recorded about it.
struct Group<G> {
    lock: G,
    /// How often it was acquired. Written by the holder, read by everybody who comes.
    acquisitions: Aligned<AtomicU64>,
    /// When it was last released, in ns since the start.
    released: UnsafeCell<u64>,
}

// SAFETY: `released` is read and written by the holder of the lock only.
unsafe impl<G: Sync> Sync for Group<G> {}

/// On cache lines of its own, so that recording disturbs the lock as little as possible.
#[repr(align(128))]
struct Aligned<T>(T);

const WARM_UP: u32 = 0;
const OPEN: u32 = 1;
const CLOSED: u32 = 2;

/// What the threads wait at until all are there.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap_or_else(PoisonError::into_inner));
    }
}

/// What one thread saw.
#[derive(Default)]
struct Seen {
    operations: u64,
    waits: Histogram,
    wait_ns: u64,
    hand_off_ns: u64,
    longest_bypass: u64,
}

struct Script {
    think: u64,
    directory: u64,
    hold: u64,
}

/// An edge of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// It is about to open.
    Opens,
    /// It has just closed.
    Closed,
}

/// Runs the pattern for a tenth of `window` to warm up, then for `window`, with fresh locks from `directory` and `group`. `edge` is called at
/// both edges of the window, while the threads run, for whoever wants to read other clocks and counters there.
///
/// # Errors
/// If the pattern is empty or a thread cannot be started.
pub fn run<D: Lock, G: Lock>(
    pattern: &Pattern,
    window: Duration,
    directory: impl Fn() -> D,
    group: impl Fn() -> G,
    mut edge: impl FnMut(Edge),
) -> Result<Counts, RaceError> {
    if pattern.threads() == 0 || pattern.directories == 0 || pattern.groups == 0 {
        return Err(RaceError::Empty);
    }
    let work = Work::calibrate();
    let directories: Vec<D> = (0..pattern.directories).map(|_| directory()).collect();
    let groups: Vec<Group<G>> = (0..pattern.groups)
        .map(|_| Group {
            lock: group(),
            acquisitions: Aligned(AtomicU64::new(0)),
            released: UnsafeCell::new(0),
        })
        .collect();
    let phase = AtomicU32::new(WARM_UP);
    let gate = Gate::default();
    let start = Instant::now();

    thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..pattern.threads() {
            let is_task = number < pattern.tasks;
            let (directory, place) = if is_task {
                let place = number % pattern.directories;
                (Some(&directories[place as usize]), place)
            } else {
                (None, number - pattern.tasks)
            };
            let group = &groups[(place % pattern.groups) as usize];
            let (think, inside, hold) = if is_task {
                (pattern.think_ns, pattern.directory_ns / 2, pattern.hold_ns)
            } else {
                (pattern.worker_think_ns, 0, pattern.worker_hold_ns)
            };
            let script =
                Script { think: work.steps(think), directory: work.steps(inside), hold: work.steps(hold) };
            let (phase, gate) = (&phase, &gate);
            let body = move || {
                gate.pass();
                match phase.load(Ordering::Acquire) {
                    CLOSED => Seen::default(),
                    _ => one_thread(directory, group, &script, phase, start),
                }
            };
            match thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, body) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // Those that did start have to end.
                    phase.store(CLOSED, Ordering::Release);
                    gate.open();
                    return Err(RaceError::Thread(number + 1, error));
                }
            }
        }
        gate.open();
        thread::sleep(window / 10);
        edge(Edge::Opens);
        let (opened, cpu_before) = (Instant::now(), cpu_time());
        phase.store(OPEN, Ordering::Release);
        thread::sleep(window);
        let (window, cpu) = (opened.elapsed(), cpu_time().saturating_sub(cpu_before));
        edge(Edge::Closed);
        phase.store(CLOSED, Ordering::Release);

        let mut counts = Counts {
            window,
            per_thread: Vec::with_capacity(threads.len()),
            tasks: pattern.tasks as usize,
            waits: Histogram::default(),
            wait: Duration::ZERO,
            hand_off: Duration::ZERO,
            longest_bypass: 0,
            cpu,
            cpus: thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
        };
        for thread in threads {
            // The threads' code does not panic; should a lock do it all the same, so does this.
            let seen = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            counts.per_thread.push(seen.operations);
            counts.waits.merge(&seen.waits);
            counts.wait += Duration::from_nanos(seen.wait_ns);
            counts.hand_off += Duration::from_nanos(seen.hand_off_ns);
            counts.longest_bypass = counts.longest_bypass.max(seen.longest_bypass);
        }
        Ok(counts)
    })
}

fn one_thread<D: Lock, G: Lock>(
    directory: Option<&D>,
    group: &Group<G>,
    script: &Script,
    phase: &AtomicU32,
    start: Instant,
) -> Seen {
    let mut seen = Seen::default();
    loop {
        do_steps(script.think);
        let now = phase.load(Ordering::Relaxed);
        if now == CLOSED {
            return seen;
        }
        let counts = now == OPEN;
        match directory {
            None => with_group(group, script, counts, &mut seen, start),
            Some(directory) => directory.hold(|| {
                do_steps(script.directory);
                with_group(group, script, counts, &mut seen, start);
                do_steps(script.directory);
            }),
        }
        if counts && phase.load(Ordering::Relaxed) == OPEN {
            seen.operations += 1;
        }
    }
}

#[inline]
fn with_group<G: Lock>(group: &Group<G>, script: &Script, counts: bool, seen: &mut Seen, start: Instant) {
    let before = group.acquisitions.0.load(Ordering::Relaxed);
    let asked = start.elapsed().as_nanos() as u64;
    group.lock.hold(|| {
        let got = start.elapsed().as_nanos() as u64;
        let number = group.acquisitions.0.load(Ordering::Relaxed);
        group.acquisitions.0.store(number + 1, Ordering::Relaxed);
        if counts {
            // SAFETY: the lock is held.
            let free_since = unsafe { *group.released.get() };
            let wait = got.saturating_sub(asked);
            seen.waits.record(wait);
            // An uncontended acquisition is no wait, though the clock sees it take a while.
            if free_since > asked {
                seen.wait_ns += wait;
                seen.hand_off_ns += got.saturating_sub(free_since);
            }
            seen.longest_bypass = seen.longest_bypass.max(number - before);
        }
        do_steps(script.hold);
        // SAFETY: the lock is held.
        unsafe { *group.released.get() = start.elapsed().as_nanos() as u64 };
    });
}

/// What taking and releasing a lock costs when nobody else wants it, in ns: the best of several rounds.
pub fn uncontended_ns(lock: &impl Lock) -> f64 {
    const TIMES: u32 = 200_000;
    (0..5)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..TIMES {
                std::hint::black_box(lock).hold(|| std::hint::black_box(()));
            }
            start.elapsed().as_nanos() as f64 / f64::from(TIMES)
        })
        .fold(f64::INFINITY, f64::min)
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
