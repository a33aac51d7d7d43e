//! Exit statuses that scripts may rely on, and the one line that goes with a failure.

use std::fmt;
use std::process::ExitCode;

/// How a command ended. The numbers are a contract (see the README).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// All done.
    Done = 0,
    /// `compare` found a significant loss.
    Loss = 1,
    /// Bad usage.
    Usage = 2,
    /// Measured, but not to be trusted: a point is void, or events were lost.
    Untrusted = 3,
    /// Not allowed or not possible here: a capability, file system or tool is missing.
    NotAllowed = 4,
    /// Interrupted; what had been measured was kept.
    Interrupted = 130,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(status as u8)
    }
}

/// A command that could not do its work: the status to leave with and why.
#[derive(Debug)]
pub struct Failure {
    status: Status,
    error: anyhow::Error,
}

impl Failure {
    /// A failure that leaves with `status`.
    pub fn new(status: Status, error: impl Into<anyhow::Error>) -> Failure {
        Failure { status, error: error.into() }
    }

    /// Bad usage, in words.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure::new(Status::Usage, anyhow::anyhow!("{message}"))
    }

    /// Not possible on this machine, in words.
    pub fn not_allowed(message: impl fmt::Display) -> Failure {
        Failure::new(Status::NotAllowed, anyhow::anyhow!("{message}"))
    }

    /// Prints the one line and gives the exit status. A reader that went away (`perfloss … | head`)
    /// is success.
    pub fn report(self) -> ExitCode {
        let broken_pipe = self.error.chain().any(|e| {
            e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
        });
        if broken_pipe {
            return ExitCode::SUCCESS;
        }
        eprintln!("perfloss: {:#}", self.error);
        self.status.into()
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::new(Status::Untrusted, error)
    }
}
