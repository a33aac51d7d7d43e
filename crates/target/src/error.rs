//! What can go wrong, each as one line that says what, where, and the way out.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Which of the command line's exit statuses an [`Error`] belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The text of a target is wrong: exit status 2.
    Usage,
    /// This machine or this user cannot do it (capability, file system, tool, directory): exit status 4.
    NotAllowed,
    /// It should have worked and did not: exit status 3.
    Failed,
}

/// Why a target cannot be understood, used, made or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text does not follow the target syntax.
    #[error("target {}: {reason}", Shown(text))]
    Syntax {
        /// The text as it was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No file system has this name.
    #[error(
        "no target is called {}{}; known: {known}, overlay:NAME, or a directory written with a slash (./{})",
        Shown(name),
        meant(nearest),
        Shown(name)
    )]
    UnknownName {
        /// The name as it was given.
        name: String,
        /// The known name that is closest, if one is close.
        nearest: Option<String>,
        /// All known names.
        known: String,
    },
    /// The file system has no option of this name.
    #[error("{fs} has no option {}{}; it has: {known}", Shown(option), meant(nearest))]
    UnknownOption {
        /// The file system.
        fs: String,
        /// The option as it was given.
        option: String,
        /// The known option that is closest, if one is close.
        nearest: Option<String>,
        /// All options of this file system.
        known: String,
    },
    /// An option has a value that it cannot have.
    #[error("{fs}:{option}={}: give {wanted}", Shown(value))]
    BadValue {
        /// The file system.
        fs: String,
        /// The option.
        option: String,
        /// The value as it was given.
        value: String,
        /// What is accepted instead.
        wanted: String,
    },
    /// A program that makes the file system is not installed.
    #[error("{tool} is missing: apt install {package}")]
    ToolMissing {
        /// The program.
        tool: String,
        /// The Debian package that brings it.
        package: String,
    },
    /// The kernel does not know the file system.
    #[error("this kernel has no {fs}: try `modprobe {fs}`, or take another target")]
    NoKernelSupport {
        /// The file system.
        fs: String,
    },
    /// Mounting needs a capability that this process lacks.
    #[error(
        "{target} needs {needs}: run as root, or give an existing directory instead (--on /some/dir), which works without"
    )]
    NeedsRoot {
        /// The target.
        target: String,
        /// The capability.
        needs: String,
    },
    /// A directory that was named cannot be used.
    #[error("directory {}: {reason}", Shown(&path.to_string_lossy()))]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why, and the way out.
        reason: String,
    },
    /// A block device that was named cannot be used.
    #[error("device {}: {reason}", Shown(&path.to_string_lossy()))]
    Device {
        /// The device.
        path: PathBuf,
        /// Why, and the way out.
        reason: String,
    },
    /// There is less memory or disk than the image needs.
    #[error("{what} needs {} and {place} has {} free: {way_out}", Bytes(*needed), Bytes(*free))]
    Space {
        /// What needs the space.
        what: String,
        /// Where the space would come from.
        place: String,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are there.
        free: u64,
        /// What to do about it.
        way_out: String,
    },
    /// A program failed.
    #[error("`{command}` failed ({status}): {message}")]
    Tool {
        /// The command line, for people.
        command: String,
        /// Exit status or signal.
        status: String,
        /// Its error output, in one line.
        message: String,
    },
    /// The kernel refused to mount.
    #[error("mounting {what} failed: {reason}")]
    Mount {
        /// What was to be mounted.
        what: String,
        /// The kernel's reason.
        reason: String,
    },
    /// A path that has to stay visible cannot.
    #[error("{} would be hidden behind the target on /tmp: {reason}", Shown(&path.to_string_lossy()))]
    Hidden {
        /// The path.
        path: PathBuf,
        /// Why it cannot be shown, and the way out.
        reason: String,
    },
    /// [`enter`](crate::enter) was called in the mount namespace that the caller came from.
    #[error("the target would be mounted in the machine's own mount namespace: refused")]
    NotIsolated,
    /// Something that [`Cleanup`](crate::Cleanup) was to remove is not what was created.
    #[error("not removed: {}: {reason}", Shown(&path.to_string_lossy()))]
    NotOurs {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried, and on what.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    /// Which exit status this error belongs to.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Syntax { .. }
            | Self::UnknownName { .. }
            | Self::UnknownOption { .. }
            | Self::BadValue { .. } => ErrorKind::Usage,
            Self::ToolMissing { .. }
            | Self::NoKernelSupport { .. }
            | Self::NeedsRoot { .. }
            | Self::Directory { .. }
            | Self::Device { .. }
            | Self::Hidden { .. }
            | Self::Space { .. } => ErrorKind::NotAllowed,
            Self::Tool { .. }
            | Self::Mount { .. }
            | Self::NotIsolated
            | Self::NotOurs { .. }
            | Self::System { .. } => ErrorKind::Failed,
        }
    }

    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }

    pub(crate) fn directory(path: &Path, reason: impl Into<String>) -> Self {
        Self::Directory { path: path.to_owned(), reason: reason.into() }
    }

    pub(crate) fn device(path: &Path, reason: impl Into<String>) -> Self {
        Self::Device { path: path.to_owned(), reason: reason.into() }
    }
}

/// Attaches "cannot WHAT" to a failed system call.
pub(crate) trait Context<T> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T, Error> {
        self.map_err(|error| Error::system(what(), error))
    }
}

/// Text from outside, kept to one line: quoted and escaped where it holds anything unusual.
pub(crate) struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = !self.0.is_empty()
            && self
                .0
                .chars()
                .all(|c| !c.is_control() && !c.is_whitespace() && !matches!(c, '"' | '\'' | '\\' | '`'));
        if plain { f.write_str(self.0) } else { write!(f, "{:?}", self.0) }
    }
}

/// A path for an error message.
pub(crate) fn shown(path: &Path) -> String {
    Shown(&path.to_string_lossy()).to_string()
}

/// Bytes for people: the largest binary unit with at most one digit after the point.
pub(crate) struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < units.len() {
            value /= 1024.0;
            unit += 1;
        }
        if value.fract() < 0.05 {
            write!(f, "{value:.0} {}", units[unit])
        } else {
            write!(f, "{value:.1} {}", units[unit])
        }
    }
}

fn meant(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(" (did you mean {name}?)")).unwrap_or_default()
}
