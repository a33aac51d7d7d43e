//! What a capture saw, as typed tables and a stream of small events, and the trace file.
//!
//! This crate knows neither how events are got nor what they mean: `capture` produces them, `explain` reads them.
//!
//! * [`Event`]: one thing that happened, with its time ([`TimeNs`], CLOCK_MONOTONIC) and CPU. Events refer to tasks, locks and
//!   stacks by typed handles ([`TaskId`], [`LockId`], [`StackId`], …) into the [`Tables`].
//! * [`Builder`]: what `capture` fills: it hands out handles (interning strings, symbols and stacks), and keeps what has
//!   not been written yet.
//! * [`Trace`]: a whole trace in memory, for tests and small captures.
//! * [`Writer`] and [`Reader`]: the trace file, in compressed blocks with checksums, in bounded memory; see [`file`](mod@file) for the format.
//! * [`text`]: a small line-based form of a trace for hand-written test cases and bug reports.
//!
//! Invariants: events of one trace are in order of time (equal stamps in any order); every handle in an event was defined before the event;
//! nothing in this crate prints, and no input makes it panic.

mod builder;
mod error;
mod event;
pub mod file;
mod ids;
mod memory;
mod source;
mod tables;
pub mod text;

pub use builder::Builder;
pub use error::Error;
pub use event::{
    ContentionFlags, Event, IrqKind, Kind, OwnerQuality, SampleMode, SeedState, Syscall, TaskState, Waker,
};
pub use file::{Reader, Writer};
pub use ids::{CgroupId, Cpu, LockId, StackId, StrId, SymbolId, TaskId, TimeNs};
pub use memory::Trace;
pub use source::Source;
pub use tables::{Definition, Lock, LockKind, Meta, Name, Summary, Symbol, Tables, Task, TaskExit, TaskKind};
