//! Everything that the locks ask of the machine, behind one small door.
//!
//! The algorithms use only what this module exports: atomics, a plain cell, a [`Futex`], a clock, a pause, the
//! current CPU and the number of CPUs. Three backends implement it:
//!
//! | backend | chosen by | what it is for |
//! | --- | --- | --- |
//! | `real` | a normal build | futex system calls, `CLOCK_MONOTONIC`, rseq |
//! | `model` over shuttle | `cargo test --lib` | thousands of random schedules of each algorithm, always part of the tests |
//! | `model` over loom | `RUSTFLAGS="--cfg loom"` | exhaustive schedules and C11 reorderings of small cases |
//!
//! The unit tests of this crate therefore never run on real threads; those are in `tests/`, where the crate is
//! built as its users build it.

#[cfg(any(test, loom))]
#[allow(clippy::unwrap_used)] // a checker's own locks: their failure is the test's
mod model;
#[cfg(any(test, loom))]
pub(crate) use model::*;

#[cfg(not(any(test, loom)))]
mod real;
#[cfg(not(any(test, loom)))]
pub(crate) use real::*;

/// Why [`Futex::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Woken, interrupted, or the word had already changed: look again.
    LookAgain,
    /// The deadline has passed.
    TimedOut,
}

/// Nanoseconds of `CLOCK_MONOTONIC`, or none: wait for ever.
pub(crate) type Deadline = Option<u64>;

/// The deadline that lies `timeout` ahead of now; none if it is too far ahead to be represented.
pub(crate) fn deadline_after(timeout: core::time::Duration) -> Deadline {
    let ahead = u64::try_from(timeout.as_nanos()).ok()?;
    now_ns().checked_add(ahead)
}

/// Whether a deadline has passed. Reads the clock only if there is one.
pub(crate) fn has_passed(deadline: Deadline) -> bool {
    deadline.is_some_and(|at| now_ns() >= at)
}

/// Declares a constructor that is `const` in every build but a model's, whose atomics are tracked objects.
macro_rules! const_constructor {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty $body:block) => {
        #[cfg(not(any(test, loom)))]
        $(#[$meta])*
        $vis const fn $name($($arg: $ty),*) -> $ret $body
        #[cfg(any(test, loom))]
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) -> $ret $body
    };
}
pub(crate) use const_constructor;
