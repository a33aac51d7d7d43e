//! Reads from the kernel what every task did: BPF programs, loader, symbols, lock names.
//!
//! ```no_run
//! let capture = capture::Capture::start(capture::Options::default())?;
//! std::thread::sleep(std::time::Duration::from_secs(2));
//! let captured = capture.stop()?;
//! # Ok::<(), capture::Error>(())
//! ```
//!
//! The road of an event: a program in `bpf/capture.bpf.c` writes a record into its CPU's ring (`bpf/ring.h`); the drain thread
//! (`reader`) takes it out some milliseconds later, with the stacks and the mappings of the processes that they belong to; the trace
//! thread (`convert`) puts the CPUs' records in order and turns them into [`trace::Event`]s, naming locks (`names`, `btf`) and
//! functions (`symbols`) on the way.
//!
//! Invariants: nothing that the programs lose is lost silently ([`Report`]); the programs take no lock, wake nobody and loop nowhere;
//! nothing in this crate says what events mean.

mod btf;
mod capture;
mod convert;
mod doctor;
mod error;
mod layout;
mod loader;
mod machine;
mod names;
pub mod offcpu;
mod quota;
mod reader;
mod scope;
mod symbols;
mod sys;

pub use capture::{Capture, Captured, Closed, Feed, Options, Report, Sink};
pub use doctor::{Finding, SelfTest, Status, doctor, self_test};
pub use error::Error;
pub use scope::Scope;
