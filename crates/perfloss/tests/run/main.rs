//! `perfloss run` from end to end: the real binary on the real file systems of this machine, as root.
//!
//! Nothing here asserts a speed; where a rate is known beforehand, the bounds are wide enough for a busy machine.

#![allow(clippy::unwrap_used, reason = "a test helper fails by panicking")]

mod captured;
mod commands;
mod home;
mod hostile_names;
mod interrupted;
mod killed;
mod machine;
mod numbers;
mod screen;
mod unprivileged;
mod usage;
mod void;
