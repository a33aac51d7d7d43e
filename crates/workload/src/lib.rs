//! What one task does over and over: built in, a will-it-scale C test case, or a command template.
//!
//! This crate knows nothing of file systems, mounting or BPF, and it starts no tasks. It offers
//!
//! - [`Workload`]: a kind of operation; [`Spec`] names one and opens it; [`registry`] lists those built in;
//! - [`Prepared`]: the same, ready to run in one [`Place`];
//! - [`meter`]: the shared-memory counters, and the part of the measuring that sits in the hot loop.
//!
//! The order of calls is: [`Spec::open`] in the harness; in a process of its own (which a bad C test case may
//! take down with it) [`Workload::prepare`], once; then the tasks are forked or spawned and each calls [`Prepared::run`]; when all
//! have stopped, [`Prepared::cleanup`] in the process that prepared.

#![warn(missing_docs)]

mod board;
mod builtin;
pub mod ccase;
pub mod command;
mod failure;
pub mod meter;
mod process;
pub mod sources;
mod spec;
mod track;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use board::{Board, layout};
pub use builtin::registry;
pub use command::Command;
pub use failure::{Failure, STDERR_KEPT};
pub use meter::Meter;
pub use spec::{Spec, SpecError};

/// The most tasks of a point.
pub const MAX_TASKS: u32 = 2048;

/// What tasks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Each task is a process.
    Processes,
    /// All tasks are threads of one process.
    Threads,
}

/// In which modes a workload is meaningful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// Runs as processes.
    pub processes: bool,
    /// Runs as threads.
    pub threads: bool,
}

impl Modes {
    /// Processes and threads.
    pub const BOTH: Modes = Modes { processes: true, threads: true };
    /// Threads only.
    pub const THREADS: Modes = Modes { processes: false, threads: true };

    /// Whether `mode` is one of them.
    pub fn has(self, mode: Mode) -> bool {
        match mode {
            Mode::Processes => self.processes,
            Mode::Threads => self.threads,
        }
    }
}

/// What a workload must find where it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// `/tmp` itself has to be the target, because the workload names it (a C test case).
    pub tmp: bool,
    /// [`sources::write`] was called on [`Place::src`].
    pub sources: bool,
    /// [`Place::src`] has to be reachable as `/src`, because the workload may name it (a C test case).
    pub src_at_root: bool,
}

/// How the tasks of a workload are stopped and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    /// They leave their loops when [`meter::Control::stop`] is called, and stamp their counts themselves.
    ByFlag,
    /// They never return and only count: stamp them with a [`meter::Watcher`], then kill the task's process group
    /// (processes mode) or call [`Prepared::cleanup`], which stops them, and leave the process with `_exit` (threads mode).
    ByKill,
}

/// Where and how a workload is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The shared directory on the target: existing, writable, and ours alone (usually `/tmp` in a private namespace).
    pub dir: PathBuf,
    /// The directory with the sources `src0.c`, `src1.c`, … where the workload needs them.
    pub src: PathBuf,
    /// How many tasks there will be; they are numbered from 0.
    pub tasks: u32,
    /// What they will be.
    pub mode: Mode,
    /// For everything random, so that a run can be repeated.
    pub seed: u64,
}

/// What one task does over and over.
pub trait Workload: Send + Sync {
    /// What the user calls it.
    fn name(&self) -> &str;

    /// What exactly one operation is, in one line.
    fn about(&self) -> &str;

    /// Raised whenever the operation changes: figures of different versions must not be compared.
    fn version(&self) -> u32;

    /// The modes in which it is meaningful.
    fn modes(&self) -> Modes {
        Modes::BOTH
    }

    /// What it must find where it runs.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// How its tasks are stopped.
    fn stops(&self) -> Stops {
        Stops::ByFlag
    }

    /// Makes everything that has to be there before the first operation: files, directories, command lines.
    ///
    /// Called once, in the process that forks or spawns the tasks afterwards. It raises that process's soft limit of open files to the
    /// hard one; a C test case may change more of it (limits, signal handlers), or end it.
    ///
    /// # Errors
    /// Whatever the place does not allow or the system refuses.
    fn prepare(&self, place: &Place) -> Result<Box<dyn Prepared>, Failure>;
}

/// A workload that is ready to run in its place.
pub trait Prepared: Send + Sync {
    /// The task's loop: operates and counts until told to stop. Neither allocates nor locks between operations.
    ///
    /// Called once in each task, with numbers from 0, after the gate. A thread needs a stack of 8 MiB, the usual size of a process:
    /// C test cases keep buffers of a MiB on theirs. Call [`Meter::finish`] when it returns. With
    /// [`Stops::ByKill`] it returns only on failure.
    ///
    /// # Errors
    /// The first operation that fails ends the loop.
    fn run(&self, task: u32, meter: &mut Meter<'_>) -> Result<(), Failure>;

    /// Undoes what [`Workload::prepare`] did and removes what the tasks left.
    ///
    /// # Errors
    /// What could not be removed.
    fn cleanup(&self) -> Result<(), Failure>;
}
