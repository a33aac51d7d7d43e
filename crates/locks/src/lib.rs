#![doc = include_str!("../README.md")]
//!
//! # How it is checked
//!
//! - Models of every algorithm, in `src/models.rs`: on shuttle as part of `cargo test`; on loom, exhaustively up to two preemptions, with
//!   `RUSTFLAGS="--cfg loom" cargo test --release --lib`.
//! - Real threads in `tests/`: more of them than CPUs, with signals, time-outs and yields at bad moments.
//! - Miri: `cargo +nightly miri test --test semantics --test stress`.
//! - ThreadSanitizer: `RUSTFLAGS=-Zsanitizer=thread cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu --test stress`.
//!
//! Linux only: it needs futexes.

#![cfg(target_os = "linux")]

mod adaptive;
mod counting;
#[cfg(any(test, loom))]
#[allow(clippy::unwrap_used)] // a checker's own locks and threads: their failure is the test's
mod models;
mod mutex;
pub mod pattern;
mod rwsem;
mod semaphore;
mod spin;
mod spin_queue;
mod sys;
mod wait_list;

pub use adaptive::AdaptiveSemaphore;
pub use counting::{Counting, Permit};
pub use mutex::{Mutex, MutexGuard};
pub use rwsem::{ReadGuard, RwSemaphore, WriteGuard};
pub use semaphore::Semaphore;
