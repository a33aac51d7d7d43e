//! Running one round from outside: starts its processes, listens, and makes sure of its end.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::lines::{Receiver, Sender, wait};
use crate::protocol::{Broken, Measured, Message, RoundSpec, Void};
use crate::strangers;

/// The hidden argument that makes the perfloss binary run a round (see [`run_stage`](crate::run_stage)).
pub const STAGE_ARGUMENT: &str = "__stage";

/// How a round ended.
#[derive(Debug)]
pub enum Outcome {
    /// With measurements.
    Measured(Box<Measured>),
    /// A task died, failed or hung.
    Void(Void),
    /// The place could not be made, or the harness failed.
    Broken(Broken),
    /// The user had enough.
    Interrupted,
}

/// Raises this process's priority where that is allowed, and gives the niceness that it had, which is the tasks'
/// ([`RoundSpec::nice`]). Tasks that start many processes starve everybody else of the same priority for seconds: whoever
/// watches them, and ends the window in time, must not be among these. It sleeps while they are measured.
pub fn raise_priority() -> i32 {
    let before = rustix::process::getpriority_process(None).unwrap_or(0);
    // Needs CAP_SYS_NICE; without, a busy machine may make rounds last longer.
    let _ = rustix::process::setpriority_process(None, before.min(WATCHER_NICE));
    before
}

/// The highest priority that is not real-time.
const WATCHER_NICE: i32 = -20;

/// What a round is doing, for progress and for capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The tasks wait at the gate; the id of the process that all of the round's processes descend from.
    Started(u32),
    /// The window opens.
    WindowOpen,
    /// The window is closed; the tasks of a captured round run on until this was taken note of.
    WindowClosed,
}

/// Runs rounds. A trait, so that the schedule can be tested with a pretended one.
pub trait Executor {
    /// Runs one round to its end.
    fn run(&mut self, spec: &RoundSpec, phase: &mut dyn FnMut(Phase)) -> Outcome;
}

/// Runs rounds in processes of their own, by starting this program again with [`STAGE_ARGUMENT`].
pub struct Processes<'a> {
    /// Set by a signal handler: stop as soon as possible.
    pub interrupted: &'a AtomicBool,
}

impl Executor for Processes<'_> {
    fn run(&mut self, spec: &RoundSpec, phase: &mut dyn FnMut(Phase)) -> Outcome {
        match Stage::start(spec) {
            Ok(stage) => stage.listen(spec, self.interrupted, phase),
            Err(e) => Outcome::Broken(Broken::new(format!("cannot start a round's process: {e}"))),
        }
    }
}

struct Stage {
    guard: Child,
    control: Option<OwnedFd>,
    messages: Receiver,
}

impl Stage {
    fn start(spec: &RoundSpec) -> std::io::Result<Stage> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("loss-guard").arg(STAGE_ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guard = command.spawn()?;
        let (Some(stdin), Some(stdout)) = (guard.stdin.take(), guard.stdout.take()) else {
            return Err(std::io::Error::other("no pipes"));
        };
        let control = OwnedFd::from(stdin);
        Sender::new(control.try_clone()?).send(spec)?;
        Ok(Stage { guard, control: Some(control), messages: Receiver::new(stdout.into()) })
    }

    /// Tells a captured round that it may go on: capture has begun, or has ended.
    fn acknowledge(&self, spec: &RoundSpec) {
        if let Some(control) = self.control.as_ref().filter(|_| spec.captured) {
            // Fails only if the round is over, which shows by itself.
            let _ = rustix::io::write(control, b"g");
        }
    }

    fn listen(mut self, spec: &RoundSpec, interrupted: &AtomicBool, phase: &mut dyn FnMut(Phase)) -> Outcome {
        let mut outcome = None;
        let mut before = None;
        // Preparation has its own limit inside; this one is for a harness that itself hangs.
        let longest = Duration::from_nanos(spec.warm_up_limit_ns + spec.window_ns + 6 * spec.deadline_ns);
        let begun = Instant::now();
        while !self.messages.ended() {
            if interrupted.load(Ordering::Relaxed) {
                self.control = None;
                outcome = Some(Outcome::Interrupted);
            } else if begun.elapsed() > longest + Duration::from_secs(240) {
                self.control = None;
                outcome = Some(Outcome::Broken(Broken::new("the round's processes hang; they were killed")));
            }
            if let Err(e) = wait(&[std::os::fd::AsFd::as_fd(&self.messages)], 50_000_000) {
                outcome = Some(Outcome::Broken(e.into()));
                break;
            }
            loop {
                match self.messages.next::<Message>() {
                    Ok(Some(Message::Started)) => {
                        before = Some((Instant::now(), strangers::cpu_seconds(self.guard.id())));
                        phase(Phase::Started(self.guard.id()));
                        self.acknowledge(spec);
                    }
                    Ok(Some(Message::WindowOpen)) => phase(Phase::WindowOpen),
                    Ok(Some(Message::WindowClosed)) => {
                        phase(Phase::WindowClosed);
                        self.acknowledge(spec);
                    }
                    Ok(Some(Message::Measured(mut measured))) => {
                        measured.other_load_s = before.take().and_then(|(at, seconds)| {
                            let used =
                                strangers::used_since(&seconds?, &strangers::cpu_seconds(self.guard.id())?);
                            Some(used / at.elapsed().as_secs_f64() * measured.window_s)
                        });
                        outcome.get_or_insert(Outcome::Measured(measured));
                    }
                    // Trouble at the very end overrules what was measured.
                    Ok(Some(Message::Void(void))) => outcome = Some(Outcome::Void(void)),
                    Ok(Some(Message::Broken(broken))) => match outcome {
                        None | Some(Outcome::Measured(_)) => outcome = Some(Outcome::Broken(broken)),
                        Some(_) => {}
                    },
                    Ok(None) => break,
                    Err(e) => {
                        self.control = None;
                        outcome =
                            Some(Outcome::Broken(Broken::new(format!("from the round's processes: {e}"))));
                        break;
                    }
                }
            }
        }
        self.control = None;
        let status = self.guard.wait();
        // The guard has done this; it is repeated for the case that somebody killed the guard.
        let cleaned = spec.cleanup.run();
        match (outcome, status, cleaned) {
            (Some(Outcome::Measured(_)), _, Err(e)) => Outcome::Broken(e.into()),
            (Some(outcome), ..) => outcome,
            (None, Ok(status), _) => Outcome::Broken(Broken::new(format!(
                "the round's processes were ended from outside ({status})"
            ))),
            (None, Err(e), _) => Outcome::Broken(e.into()),
        }
    }
}
