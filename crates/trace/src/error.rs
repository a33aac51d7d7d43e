//! What can go wrong with a trace file.

/// Why a trace could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("trace file: {0}")]
    Io(#[from] std::io::Error),
    /// It does not begin as a trace file does.
    #[error("this is not a perfloss trace file")]
    NotATrace,
    /// It was written by a later version.
    #[error(
        "the trace file has format version {found}, this perfloss reads up to {known}; use a newer perfloss"
    )]
    Version {
        /// The file's version.
        found: u32,
        /// The newest version that is understood.
        known: u32,
    },
    /// The first block already is damaged.
    #[error("the trace file is damaged at its beginning: {0}")]
    Damaged(&'static str),
    /// A text trace is wrong.
    #[error("line {line}: {what}")]
    Text {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
}
