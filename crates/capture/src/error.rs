//! What can keep a capture from running.

use std::io;

/// Why a capture could not be started, or broke off.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not let this process trace.
    #[error("{what}: not allowed; {remedy}")]
    NotAllowed {
        /// What was tried.
        what: String,
        /// What helps.
        remedy: String,
    },
    /// The kernel lacks something that capturing cannot do without.
    #[error("this kernel cannot be traced: {missing}; {remedy}")]
    Unsupported {
        /// What it lacks.
        missing: String,
        /// What helps.
        remedy: String,
    },
    /// Loading or attaching failed for another reason.
    #[error("{what}: {why}")]
    Bpf {
        /// What was tried.
        what: String,
        /// The kernel's or libbpf's words.
        why: String,
    },
    /// An operation of the system failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// How it failed.
        source: io::Error,
    },
    /// The trace could not be written.
    #[error(transparent)]
    Trace(#[from] trace::Error),
    /// The thread that reads the events died.
    #[error("the reader of the events stopped unexpectedly; the capture is lost")]
    Reader,
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Error {
        Error::Io { what: what.into(), source }
    }

    /// Whether it is a matter of privileges (exit status 4), and not a defect.
    pub fn is_not_allowed(&self) -> bool {
        matches!(self, Error::NotAllowed { .. } | Error::Unsupported { .. })
    }
}
