//! The kernel's sleeping locks and their adaptive variants, in user space, over futex.
//!
//! | lock | waiting | release | fairness |
//! | --- | --- | --- | --- |
//! | [`Semaphore`] | sleeps at once | hands over to the longest sleeper, who may be asleep | first in, first out |
//! | [`AdaptiveSemaphore`] | spins while that pays, then sleeps | makes the permit free, wakes a sleeper if nobody is awake | bounded bypass; first in, first out where holds are long |
//! | [`RwSemaphore`] | writers spin in a queue while the owner seems to run, then sleep; readers sleep | frees it and wakes; hand-off to who waited 4 ms | bounded by time |
//! | [`Mutex`] | as writers | frees it and wakes; hand-off to a sleeper that lost once | bounded |
//!
//! All of them have `const` constructors, guards, and immediate and timed variants; none is ever poisoned. A permit of a [`Counting`] semaphore belongs to no
//! thread and may be released by any; the guards of the other two stay on their thread. Each module's text says where the algorithm comes from, what it guarantees, and why its
//! memory orderings suffice. What user space puts in place of the kernel's "is the owner on a CPU?" is said in `src/spin.rs`.
//!
//! [`pattern`] races them on the pattern that this crate was made for: a directory's lock around that of an allocation group.
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
