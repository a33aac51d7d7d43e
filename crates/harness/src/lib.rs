//! Runs tasks in rounds and counts what they do and what the CPUs did meanwhile.
//!
//! Of the crates, only this one forks. It knows neither BPF nor reports, and prints nothing.
//!
//! - [`order`] and [`plan`]: which round comes when, what is repeated;
//! - [`round`]: one round from outside; its processes are described in `stage/mod.rs`;
//! - [`cpus`], [`readings`], [`budget`]: the allowed CPUs, what the kernel counts about them, and where their time went;
//! - [`stats`]: what few, unsteady rounds can say.

pub mod budget;
pub mod cpus;
mod lines;
pub mod order;
pub mod plan;
mod protocol;
pub mod readings;
pub mod round;
mod stage;
pub mod stats;
mod steady;
mod strangers;
mod sys;

pub use protocol::{Broken, Measured, RoundSpec, Void};
pub use round::STAGE_ARGUMENT;
pub use stage::run_stage;
