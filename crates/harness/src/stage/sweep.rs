//! Ends every process that is still there, and makes sure of it.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

use crate::protocol::Broken;

/// How long processes may take to die once killed; only one that waits for a device without end takes longer.
const DEADLINE: Duration = Duration::from_secs(10);

/// Kills and reaps all children of this process, and their children as they become ours (this process is the first of
/// its PID namespace, or a subreaper), until there is none.
pub(super) fn all_children() -> Result<(), Broken> {
    let begun = Instant::now();
    loop {
        for pid in children_of(getpid()) {
            // Fails only if it has ended meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(e) => return Err(std::io::Error::from(e).into()),
            }
        }
        if begun.elapsed() > DEADLINE {
            let left = children_of(getpid());
            let who = left.first().map(|&pid| whereabouts(pid)).unwrap_or_default();
            return Err(Broken::new(format!("{} processes of the round do not die: {who}", left.len())));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The processes whose parent is `parent`.
pub(super) fn children_of(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    entries
        .flatten()
        .filter_map(number)
        .filter(|&pid| parent_of(pid) == Some(parent.as_raw_nonzero().get()))
        .filter_map(Pid::from_raw)
        .collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything, parentheses included.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// What a process is and where it waits, in words: its youngest descendant's command and kernel function.
pub(super) fn whereabouts(pid: Pid) -> String {
    let mut pid = pid;
    // A chain of children is as deep as the commands that started each other; the bound is for a tree that changes.
    for _ in 0..16 {
        match children_of(pid).last() {
            Some(&child) => pid = child,
            None => break,
        }
    }
    let id = pid.as_raw_nonzero();
    let read = |name: &str| fs::read_to_string(format!("/proc/{id}/{name}")).unwrap_or_default();
    let name = read("comm");
    let place = read("wchan");
    match place.as_str() {
        "" | "0" => format!("{} (process {id})", name.trim()),
        place => format!("{} (process {id}) waits in {place}", name.trim()),
    }
}
