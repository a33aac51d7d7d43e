//! Running mkfs and its like: never through a shell, and never outliving us.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::error::{Error, Shown};

/// An installed program. The directories of system programs are searched too: they are not in everybody's PATH.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .chain(system)
        .map(|directory| directory.join(name))
        .find(|file| {
            file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

/// Runs a program to its end, with the C locale and without input.
pub(crate) fn output<S: AsRef<OsStr>>(program: &Path, arguments: &[S]) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null());
    // SAFETY: the closure makes one system call, touches no memory that is shared and does not allocate.
    unsafe {
        command.pre_exec(|| set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from));
    }
    command.output()
}

/// Runs a program that has to succeed.
pub(crate) fn run<S: AsRef<OsStr>>(program: &Path, arguments: &[S]) -> Result<Output, Error> {
    let failed =
        |status: String, message: String| Error::Tool { command: line(program, arguments), status, message };
    let output = output(program, arguments)
        .map_err(|error| failed("could not be started".to_owned(), error.to_string()))?;
    if output.status.success() {
        return Ok(output);
    }
    let status = match (output.status.code(), output.status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    };
    let mut message = one_line(&output.stderr);
    if message.is_empty() {
        message = one_line(&output.stdout);
    }
    if message.is_empty() {
        "it said nothing".clone_into(&mut message);
    }
    Err(failed(status, message))
}

/// The first version-like line that a program prints when asked for it.
pub(crate) fn version(program: &Path, argument: &str) -> Option<String> {
    let output = output(program, &[argument]).ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().map(str::trim).find(|line| line.contains(|c: char| c.is_ascii_digit())).map(str::to_owned)
}

/// A command line for people; words with anything unusual in them are quoted.
pub(crate) fn line<S: AsRef<OsStr>>(program: &Path, arguments: &[S]) -> String {
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(arguments.iter().map(AsRef::as_ref));
    words.map(|word| Shown(&word.to_string_lossy()).to_string()).collect::<Vec<_>>().join(" ")
}

/// The last lines of what a program printed, joined; long output is cut at the front.
fn one_line(bytes: &[u8]) -> String {
    const MOST: usize = 400;
    let text = String::from_utf8_lossy(bytes);
    // A usage text says nothing about this failure; the complaint stands before it.
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:"))
        .filter(|line| !line.is_empty())
        .collect();
    let joined: String = lines.join("; ").chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let count = joined.chars().count();
    if count <= MOST {
        joined
    } else {
        format!("… {}", joined.chars().skip(count - MOST).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_gives_one_line() {
        let shell = find("sh").unwrap();
        let error =
            run(&shell, &["-c", "echo first >&2; echo; echo second >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("(exit status 3): first; second"), "{error}");
        assert!(!error.contains('\n'));
    }

    #[test]
    fn arguments_reach_the_program_as_they_are() {
        let echo = find("echo").unwrap();
        let strange = "a b\"c$(touch x)\n";
        let output = run(&echo, &["-n", strange]).unwrap();
        assert_eq!(output.stdout, strange.as_bytes());
    }
}
