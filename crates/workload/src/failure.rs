//! What went wrong, in a form that can be handed from a task to the supervisor.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// How much of a command's stderr is kept: the first and the last half of this many bytes.
pub const STDERR_KEPT: usize = 4096;

/// A task, or its preparation, could not do what it has to.
///
/// Shown as one line: what, where, why. The stderr of a command is apart, since it may have many lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Failure {
    /// What failed, e.g. `open` or `cannot run cc`.
    pub what: String,
    /// The path or the command line that it failed on.
    pub place: Option<String>,
    /// The system's error number.
    pub errno: Option<i32>,
    /// The stderr of the command that failed, at most [`STDERR_KEPT`] bytes and a note of how much was left out.
    pub stderr: Option<String>,
}

impl Failure {
    /// A failure without place, error number or stderr.
    pub fn new(what: impl Into<String>) -> Self {
        Failure { what: what.into(), place: None, errno: None, stderr: None }
    }

    /// Says on which path.
    pub fn on(self, path: &Path) -> Self {
        self.at(path.to_string_lossy())
    }

    /// Says on what: a path, a command line.
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// Says why.
    pub fn errno(mut self, errno: impl Into<rustix::io::Errno>) -> Self {
        self.errno = Some(errno.into().raw_os_error());
        self
    }

    /// Says why, from an error of the standard library; one without a number goes into the text.
    pub fn io(mut self, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => self.errno = Some(errno),
            None => self.what = format!("{}: {error}", self.what),
        }
        self
    }

    /// Keeps the beginning and the end of what a command wrote to stderr.
    pub fn stderr(mut self, bytes: &[u8]) -> Self {
        self.stderr = (!bytes.is_empty()).then(|| bounded(bytes));
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.what))?;
        if let Some(place) = &self.place {
            write!(f, ": {}", one_line(place))?;
        }
        if let Some(errno) = self.errno {
            write!(f, ": {}", std::io::Error::from_raw_os_error(errno))?;
        }
        match self.stderr.as_deref().and_then(first_line) {
            Some(line) => write!(f, ": {}", one_line(line)),
            None => Ok(()),
        }
    }
}

/// The first line with something on it.
pub(crate) fn first_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| !line.is_empty())
}

/// Names may contain newlines and escape sequences; a message is one line and must not drive the terminal.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => line.extend(c.escape_default()),
            false => line.push(c),
        }
    }
    line
}

fn bounded(bytes: &[u8]) -> String {
    if bytes.len() <= STDERR_KEPT {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let half = STDERR_KEPT / 2;
    let (head, tail) = (&bytes[..half], &bytes[bytes.len() - half..]);
    format!(
        "{}\n[{} bytes left out]\n{}",
        String::from_utf8_lossy(head),
        bytes.len() - STDERR_KEPT,
        String::from_utf8_lossy(tail)
    )
}

/// A failed system call inside a hot loop: small, so that the loop stays small. Becomes a [`Failure`] outside of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub what: &'static str,
    pub errno: Option<rustix::io::Errno>,
}

impl Fault {
    /// Something that no system call reported.
    pub(crate) const fn new(what: &'static str) -> Self {
        Fault { what, errno: None }
    }
}

impl From<Fault> for Failure {
    #[cold]
    fn from(fault: Fault) -> Failure {
        let failure = Failure::new(fault.what);
        match fault.errno {
            Some(errno) => failure.errno(errno),
            None => failure,
        }
    }
}

/// Names the system call that failed.
pub(crate) trait Named<T> {
    /// The same result, with the call's name in the error.
    fn named(self, what: &'static str) -> Result<T, Fault>;
}

impl<T> Named<T> for rustix::io::Result<T> {
    #[inline(always)]
    fn named(self, what: &'static str) -> Result<T, Fault> {
        self.map_err(|errno| Fault { what, errno: Some(errno) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_whatever_the_names_contain() {
        let failure = Failure::new("open").at("/tmp/a\nb\x1b[31m").errno(rustix::io::Errno::NOENT);
        let text = failure.to_string();
        assert_eq!(text, "open: /tmp/a\\nb\\u{1b}[31m: No such file or directory (os error 2)");
    }

    #[test]
    fn a_failure_shows_the_first_line_of_stderr_and_keeps_the_rest() {
        let failure = Failure::new("exit status 1").at("cc x").stderr(b"\nx.c:1: error\nmore\n");
        assert_eq!(failure.to_string(), "exit status 1: cc x: x.c:1: error");
        assert!(failure.stderr.is_some_and(|s| s.contains("more")));
    }

    #[test]
    fn long_stderr_keeps_its_beginning_and_its_end() {
        let mut bytes = vec![b'a'; 3000];
        bytes.extend(vec![b'z'; 3000]);
        let kept = Failure::new("x").stderr(&bytes).stderr.unwrap_or_default();
        assert!(kept.starts_with('a') && kept.ends_with('z') && kept.contains("1904 bytes left out"));
    }

    #[test]
    fn a_failure_survives_being_sent_as_json() {
        let failure = Failure::new("x").at("y").errno(rustix::io::Errno::IO).stderr(b"z");
        let text = serde_json::to_string(&failure).expect("serialises");
        assert_eq!(serde_json::from_str::<Failure>(&text).expect("parses"), failure);
    }
}
