//! The process that makes the target, opens the gate, measures, and ends the tasks.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::MemfdFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process_group, set_child_subreaper,
    set_parent_process_death_signal, wait as wait_any,
};
use target::{Layout, Namespace};
use workload::meter::{State, Watcher, now_ns};
use workload::{Board, Mode, Stops};

use super::host::{Host, in_words};
use super::sweep::{all_children, whereabouts};
use crate::budget::{Parts, Spread};
use crate::cpus::Quota;
use crate::lines::{Receiver, Sender, wait};
use crate::protocol::{Broken, Measured, Message, Report, RoundSpec, Void};
use crate::readings::{CpuTimes, Reading, interrupts_apart};
use crate::steady::Steadiness;
use crate::sys::{self, Fork};

const MS: u64 = 1_000_000;

/// How long the preparation of a workload may take (it may fill files).
const PREPARE_NS: u64 = 120_000 * MS;

/// How long killed tasks get to die of SIGTERM before SIGKILL.
const TERM_NS: u64 = 300 * MS;

/// Capture may take so long to begin, or to end, on a busy machine.
const CAPTURE_NS: u64 = 30_000 * MS;

/// How often a captured round notes its counts.
const TRAIL_NS: u64 = 10 * MS;

/// How much of the tasks' stderr is kept.
const STDERR_KEPT: usize = 4096;

/// Why a round gave nothing.
enum Stop {
    Void(Void),
    Broken(Broken),
}

impl<E: Into<Broken>> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Broken(error.into())
    }
}

/// Runs a round and tells about it; gives the exit status.
pub(super) fn run(spec: &RoundSpec, outside: Namespace, messages: OwnedFd, alive: OwnedFd) -> i32 {
    let messages = Sender::new(messages);
    let message = match round(spec, outside, &messages, &alive) {
        Ok(measured) => Message::Measured(Box::new(measured)),
        Err(Stop::Void(void)) => Message::Void(void),
        Err(Stop::Broken(broken)) => Message::Broken(broken),
    };
    // On the way to a message processes may have been left: nothing of the round outlives it.
    let swept = all_children();
    let told = messages.send(&message);
    if let Err(broken) = swept {
        // Nobody may be there to read it any more.
        let _ = messages.send(&Message::Broken(broken));
        return 1;
    }
    i32::from(told.is_err())
}

fn round(spec: &RoundSpec, outside: Namespace, messages: &Sender, alive: &OwnedFd) -> Result<Measured, Stop> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(std::io::Error::from)?;
    if wait(&[alive.as_fd()], 0)? {
        return Err(Broken::new("the guard is gone").into());
    }
    let mut sources = |dir: &std::path::Path| {
        workload::sources::write(dir, spec.tasks)
            .map_err(|failure| std::io::Error::other(failure.to_string()))
    };
    let place = if spec.isolated {
        sys::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWIPC)?;
        target::enter(Layout {
            spec: &spec.target,
            settings: &spec.settings,
            outside,
            cleanup: &spec.cleanup,
            fresh_proc: true,
            sources: Some(&mut sources),
            keep_visible: &spec.keep_visible,
        })?
    } else {
        set_child_subreaper(Some(rustix::process::getpid())).map_err(std::io::Error::from)?;
        target::enter_plain(&spec.target, &spec.cleanup, Some(&mut sources))?
    };
    let mut measured = {
        let mut round = Round::begin(spec, &place, alive)?;
        let measured = round.measure(messages);
        let ended = round.end(measured.is_ok());
        let measured = measured?;
        ended?;
        measured
    };
    all_children()?;
    measured.facts = place.facts.clone();
    place.leave()?;
    Ok(measured)
}

/// A round whose host is alive.
struct Round<'a> {
    spec: &'a RoundSpec,
    stops: Stops,
    board: Board,
    host: Pid,
    host_ended: Option<WaitStatus>,
    tasks: Vec<Pid>,
    reports: Receiver,
    /// Closed to make the host clean up.
    commands: Option<OwnedFd>,
    stderr: File,
    alive: &'a OwnedFd,
    cleaned_up: Option<Option<String>>,
    quota: Option<Quota>,
    /// Of a captured round: when and how much had been done.
    trail: Vec<(u64, u64)>,
    /// How often perfloss has said that capture is where a captured round waits for it: begun, ended.
    acknowledged: u32,
}

impl<'a> Round<'a> {
    /// Starts the host and, through it, the tasks; returns when all wait at the gate.
    fn begin(spec: &'a RoundSpec, place: &target::Place, alive: &'a OwnedFd) -> Result<Round<'a>, Stop> {
        let io = std::io::Error::from;
        let workload = spec.workload.open().map_err(|e| Broken::new(e.to_string()))?;
        let board = Board::create(spec.tasks).map_err(|f| Broken::new(f.to_string()))?;
        let stderr = rustix::fs::memfd_create(c"perfloss-stderr", MemfdFlags::CLOEXEC).map_err(io)?;
        // All writers share one file description, so that their lines follow each other.
        let (reports, to_us) = pipe_with(PipeFlags::CLOEXEC).map_err(io)?;
        let (commands, to_host) = pipe_with(PipeFlags::CLOEXEC).map_err(io)?;
        let host = match sys::fork()? {
            Fork::Child => {
                drop((reports, to_host));
                let host = Host {
                    spec,
                    place: workload::Place {
                        dir: place.dir.clone(),
                        src: place.src.clone().unwrap_or_else(|| place.dir.clone()),
                        tasks: spec.tasks,
                        mode: spec.mode,
                        seed: spec.seed,
                    },
                    board: &board,
                    reports: Sender::new(to_us),
                    commands,
                    stderr,
                };
                sys::exit_now(host.run())
            }
            Fork::Parent(pid) => pid,
        };
        drop((to_us, commands));
        let mut round = Round {
            spec,
            stops: workload.stops(),
            board,
            host,
            host_ended: None,
            tasks: Vec::new(),
            reports: Receiver::new(reports),
            commands: Some(to_host),
            stderr: File::from(stderr),
            alive,
            cleaned_up: None,
            quota: Quota::here(),
            trail: Vec::new(),
            acknowledged: 0,
        };
        round.await_tasks()?;
        Ok(round)
    }

    fn await_tasks(&mut self) -> Result<(), Stop> {
        let prepared_by = now_ns() + PREPARE_NS;
        while self.tasks.is_empty() {
            if now_ns() > prepared_by {
                return Err(self.void(
                    None,
                    format!("the preparation did not end in 2 minutes: {}", whereabouts(self.host)),
                ));
            }
            self.pause(100 * MS)?;
        }
        let ready_by = now_ns() + self.spec.deadline_ns;
        let ready = |state| matches!(state, State::Ready | State::Running);
        while let Some(late) = self.board.slots().iter().position(|s| !ready(s.state())) {
            if now_ns() > ready_by {
                return Err(self.void_task(late, "was not ready in time"));
            }
            self.pause(MS)?;
        }
        Ok(())
    }

    /// Opens the gate, warms up, and measures one window.
    fn measure(&mut self, messages: &Sender) -> Result<Measured, Stop> {
        messages.send(&Message::Started)?;
        let mut watcher = (self.stops == Stops::ByKill).then(|| Watcher::new(self.board.slots()));
        let opened = now_ns();
        self.board.control().open_gate();
        let (steady, watch_ns) = self.warm_up(opened, &mut watcher)?;

        messages.send(&Message::WindowOpen)?;
        let cpus = &self.spec.cpus;
        observe(&mut watcher, &self.board);
        let control = self.board.control();
        let start = Reading::take(cpus, self.quota.as_ref(), true, |at_ns| control.set_start(at_ns))?;
        observe(&mut watcher, &self.board);
        let planned_end = start.at_ns + self.spec.window_ns;
        loop {
            let left = planned_end.saturating_sub(now_ns());
            if left == 0 {
                break;
            }
            self.pause(if watcher.is_some() { left.min(watch_ns) } else { left })?;
            if left > watch_ns {
                observe(&mut watcher, &self.board);
            }
        }
        observe(&mut watcher, &self.board);
        let control = self.board.control();
        let end = Reading::take(cpus, self.quota.as_ref(), false, |at_ns| control.set_end(at_ns))?;
        observe(&mut watcher, &self.board);
        if self.spec.captured {
            messages.send(&Message::WindowClosed)?;
            self.run_on(2, &mut watcher)?;
        }
        match watcher {
            None => self.stop_by_flag()?,
            Some(watcher) => self.stop_by_kill(watcher, watch_ns, opened, end.at_ns)?,
        }
        self.counted(&start, &end, opened, steady)
    }

    /// Waits until the rate is steady or the limit is reached. Gives whether it was, and how often tasks that do not stamp
    /// themselves have to be looked at, ns.
    fn warm_up(&mut self, opened: u64, watcher: &mut Option<Watcher>) -> Result<(bool, u64), Stop> {
        let limit = self.spec.warm_up_limit_ns;
        let bin = (limit / 5).clamp(MS, 100 * MS);
        let mut steadiness = Steadiness::default();
        let mut next_bin = opened + bin;
        let mut watch_ns = MS;
        loop {
            let now = now_ns();
            // The window waits for capture.
            let captured = !self.spec.captured || self.acknowledged >= 1;
            if now >= next_bin {
                steadiness.bin(self.total());
                watch_ns = watch_interval(self.total(), self.spec.tasks, now - opened);
                next_bin += bin;
                if steadiness.reached(self.spec.tasks) && captured {
                    return Ok((true, watch_ns));
                }
            }
            if now - opened >= limit && captured {
                return Ok((false, watch_ns));
            }
            if !captured && now - opened > CAPTURE_NS {
                return Err(Broken::new("capture did not begin in 30 s").into());
            }
            let edge = if captured { next_bin.min(opened + limit) } else { next_bin };
            let until = edge.saturating_sub(now).max(MS / 10);
            self.pause(if watcher.is_some() { until.min(watch_ns) } else { until })?;
            observe(watcher, &self.board);
        }
    }

    fn stop_by_flag(&mut self) -> Result<(), Stop> {
        self.board.control().stop();
        let by = now_ns() + self.spec.deadline_ns;
        let busy = |board: &Board| board.slots().iter().position(|s| s.state() != State::Finished);
        while let Some(late) = busy(&self.board) {
            self.pause(MS)?;
            if now_ns() > by {
                return Err(self.void_task(late, "hangs: it did not end its operation after the window"));
            }
        }
        Ok(())
    }

    /// Goes on watching until every task has completed an operation after the window, then kills them all.
    fn stop_by_kill(
        &mut self,
        mut watcher: Watcher,
        watch_ns: u64,
        opened: u64,
        end_ns: u64,
    ) -> Result<(), Stop> {
        let by = now_ns() + self.spec.deadline_ns;
        // An operation in flight that takes much longer than those before is not waited for.
        let operation_ns = (end_ns - opened) as f64 * f64::from(self.spec.tasks) / self.total().max(1) as f64;
        let patience = end_ns + (3.0 * operation_ns) as u64;
        loop {
            let slots = self.board.slots();
            let idle = slots.iter().position(|s| s.count_at_start().is_none());
            let open = slots.iter().any(|s| s.count_at_end().is_none());
            match idle {
                Some(task) if now_ns() > by => {
                    return Err(self.void_task(task, "hangs: it completed nothing since the window began"));
                }
                None if !open || now_ns() > patience => break,
                _ => {}
            }
            self.pause(watch_ns.min(10 * MS))?;
            watcher.observe(self.board.control(), self.board.slots());
        }
        self.board.control().stop();
        watcher.finish(self.board.control(), self.board.slots());
        Ok(())
    }

    fn counted(
        &mut self,
        start: &Reading,
        end: &Reading,
        opened: u64,
        steady: bool,
    ) -> Result<Measured, Stop> {
        let mut operations = Vec::with_capacity(self.spec.tasks as usize);
        for (task, slot) in self.board.slots().iter().enumerate() {
            let (Some(from), Some(to)) = (slot.count_at_start(), slot.count_at_end()) else {
                return Err(self.void_task(task, "left no count"));
            };
            operations.push((to - from).max(0.0));
        }
        if operations.iter().sum::<f64>() <= 0.0 {
            return Err(
                self.void(None, "no task completed anything in the window: make it longer (--seconds)")
            );
        }
        let window_us = (end.at_ns - start.at_ns) as f64 / 1000.0;
        let deltas: Vec<CpuTimes> = end.cpus.iter().zip(&start.cpus).map(|(e, s)| e.since(*s)).collect();
        let spread = if self.spec.bind {
            Spread::Bound((0..self.spec.cpus.len()).map(|i| i < self.spec.tasks as usize).collect())
        } else {
            Spread::Free(self.spec.tasks)
        };
        let quota = self.quota.as_ref().map(|q| q.cpus);
        let pressure =
            |i: usize| Some((end.pressure_us[i]?.checked_sub(start.pressure_us[i]?)?) as f64 / window_us);
        let both = |a: Option<f64>, b: Option<f64>| Some((a? + b?) / 2.0);
        Ok(Measured {
            warm_up_s: (start.at_ns - opened) as f64 / 1e9,
            steady,
            window_s: window_us / 1e6,
            operations,
            parts: Parts::new(&deltas, window_us, &spread, quota, interrupts_apart()),
            procs_running: both(start.procs_running.map(|n| n as f64), end.procs_running.map(|n| n as f64)),
            pressure: [pressure(0), pressure(1), pressure(2)],
            throttled_s: end.throttled_s.zip(start.throttled_s).map(|(e, s)| (e - s).max(0.0)),
            frequency_mhz: both(start.frequency_mhz, end.frequency_mhz),
            facts: target::Facts::default(),
            stderr: self.last_words(),
            other_load_s: None,
            trail: std::mem::take(&mut self.trail),
        })
    }

    /// Ends the tasks and the host: gently when all went well, at once when not.
    fn end(&mut self, well: bool) -> Result<(), Stop> {
        self.board.control().stop();
        self.board.control().open_gate();
        if !well {
            return Ok(()); // the sweep kills what is left
        }
        if self.stops == Stops::ByKill && self.spec.mode == Mode::Processes {
            self.signal_tasks(Signal::TERM);
        }
        self.commands = None;
        let (term_by, by) = (now_ns() + TERM_NS, now_ns() + self.spec.deadline_ns);
        let mut killed = false;
        while self.host_ended.is_none() {
            if now_ns() > by {
                return Err(self.void(None, format!("the tasks do not end: {}", whereabouts(self.host))));
            }
            if now_ns() > term_by && !killed && self.spec.mode == Mode::Processes {
                self.signal_tasks(Signal::KILL);
                killed = true;
            }
            self.pause(MS)?;
        }
        match self.cleaned_up.take() {
            Some(None) => Ok(()),
            Some(Some(trouble)) => Err(self.void(None, format!("cleaning up failed: {trouble}"))),
            None => Err(self.void(None, "the process that holds the tasks ended without cleaning up")),
        }
    }

    fn signal_tasks(&self, signal: Signal) {
        for &task in &self.tasks {
            // Fails only for a group that has ended.
            let _ = kill_process_group(task, signal);
        }
    }

    fn total(&self) -> u64 {
        self.board.slots().iter().map(|s| s.count()).sum()
    }

    /// Lets the tasks of a captured round go on until perfloss has said so often that it is ready.
    fn run_on(&mut self, acknowledged: u32, watcher: &mut Option<Watcher>) -> Result<(), Stop> {
        let by = now_ns() + CAPTURE_NS;
        while self.acknowledged < acknowledged {
            if now_ns() > by {
                return Err(Broken::new("capture did not end in 30 s").into());
            }
            self.pause(TRAIL_NS)?;
            observe(watcher, &self.board);
        }
        Ok(())
    }

    /// Waits for `ns`, less if something happens; an error if what happened ends the round.
    fn pause(&mut self, ns: u64) -> Result<(), Stop> {
        let ns = if self.spec.captured {
            self.trail.push((now_ns(), self.total()));
            ns.min(TRAIL_NS)
        } else {
            ns
        };
        let mut fds = vec![self.alive.as_fd()];
        if !self.reports.ended() {
            fds.push(self.reports.as_fd());
        }
        let woken = wait(&fds, ns)?;
        if woken && wait(&[self.alive.as_fd()], 0)? {
            let mut byte = [0];
            match rustix::io::read(self.alive, &mut byte) {
                Ok(1) => self.acknowledged += 1,
                _ => return Err(Broken::new("the guard is gone").into()),
            }
        }
        // What a task or the preparation reported says more than that the host ended because of it.
        let looked = self.look();
        let reaped = self.reap();
        looked.and(reaped)
    }

    fn look(&mut self) -> Result<(), Stop> {
        while let Some(report) = self.reports.next::<Report>()? {
            match report {
                Report::Tasks(ids) => self.tasks = ids.into_iter().filter_map(Pid::from_raw).collect(),
                Report::Failed { task, failure } => {
                    let mut void = Void::failed(task, failure);
                    void.stderr = void.stderr.or_else(|| self.last_words());
                    return Err(Stop::Void(void));
                }
                Report::Died { task, how } => return Err(self.void(Some(task), how)),
                Report::CleanedUp { trouble } => self.cleaned_up = Some(trouble),
            }
        }
        Ok(())
    }

    /// Takes note of the host's end, and reaps orphans: this process is their init.
    fn reap(&mut self) -> Result<(), Stop> {
        loop {
            match wait_any(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.host => {
                    self.host_ended = Some(status);
                    self.look()?;
                    if self.cleaned_up.is_none() {
                        let how = in_words(status);
                        return Err(self.void(None, format!("the process that holds the tasks {how}")));
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(std::io::Error::from(e).into()),
            }
        }
    }

    fn void_task(&self, task: usize, what: &str) -> Stop {
        let place = self.tasks.get(task).map(|&pid| format!(" ({})", whereabouts(pid))).unwrap_or_default();
        self.void(Some(task as u32), format!("{what}{place}"))
    }

    fn void(&self, task: Option<u32>, why: impl Into<String>) -> Stop {
        let mut void = Void::because(task, why);
        void.stderr = self.last_words();
        if let Some(line) =
            void.stderr.as_deref().and_then(|text| text.lines().find(|l| !l.trim().is_empty()))
        {
            void.why = format!("{}: {}", void.why, on_one_line(line.trim()));
        }
        Stop::Void(void)
    }

    /// The end of what the tasks wrote to stderr.
    fn last_words(&self) -> Option<String> {
        let length = self.stderr.metadata().ok()?.len();
        let mut bytes = vec![0; STDERR_KEPT.min(length as usize)];
        let from = length - bytes.len() as u64;
        self.stderr.read_exact_at(&mut bytes, from).ok()?;
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Without what would move a terminal's cursor.
fn on_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn observe(watcher: &mut Option<Watcher>, board: &Board) {
    if let Some(watcher) = watcher {
        watcher.observe(board.control(), board.slots());
    }
}

/// A twentieth of the time that an operation takes, so that its completion is known to 5 %; and no less than 1 ms, so that watching
/// costs next to nothing. Where many operations fit in between, the edges are enough: longer than any window.
fn watch_interval(total: u64, tasks: u32, elapsed_ns: u64) -> u64 {
    let operation_ns = elapsed_ns as f64 * f64::from(tasks) / (total.max(1) as f64);
    if operation_ns < MS as f64 { u64::MAX / 4 } else { ((operation_ns / 20.0) as u64).clamp(MS, 20 * MS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_operations_are_watched_closely_and_fast_ones_at_the_edges_only() {
        assert_eq!(watch_interval(10, 2, 2_000 * MS), 20 * MS);
        assert_eq!(watch_interval(100, 1, 2_000 * MS), MS);
        assert!(watch_interval(1_000_000, 1, 100 * MS) > 3_600_000 * MS);
    }
}
