//! Every way of showing a result.
//!
//! Pure: a result goes in, text or bytes come out. Nothing here reads a file, asks the machine or prints, and nothing
//! knows how the figures were got. Results may come from strangers: every name passes [`text::plain`] or the escaping of
//! its format on the way out, and every loop is bounded by what the reader of the result let in.

pub mod columns;
pub mod comparison;
pub mod flamegraph;
pub mod html;
pub mod markdown;
pub mod perfetto;
pub mod pprof;
pub mod select;
pub mod stacks;
pub mod terminal;
pub mod text;
pub mod verdict;
pub mod view;
pub mod warnings;

use thiserror::Error;

/// Why a result cannot be shown in a format.
#[derive(Debug, Error)]
pub enum FormatError {
    /// There was no capture, or it kept no stacks.
    #[error("there are no stacks in this result: they come from capture (root, without --no-capture)")]
    NoStacks,
    /// There was no capture, or it kept no stretch of time.
    #[error("there is no timeline in this result: it comes from capture (root, without --no-capture)")]
    NoTimeline,
    /// Nothing to divide by.
    #[error("these captures have no operations to compare by")]
    NoOperations,
    /// The writer of the format refused.
    #[error("cannot write this format: {why}")]
    Drawing {
        /// What it said.
        why: String,
    },
}
