//! Runs tasks in rounds and counts what they do and what the CPUs did meanwhile.
//!
//! Of the crates, only this one forks. It knows neither BPF nor reports.

pub mod stats;
