//! CPU time of processes that have nothing to do with the round.

use std::collections::BTreeMap;
use std::fs;

/// Seconds of CPU time of each process, with the process's start so that a reused id is another process.
pub(crate) type CpuSeconds = BTreeMap<(u32, u64), f64>;

struct Process {
    parent: u32,
    kernel: bool,
    start: u64,
    seconds: f64,
}

/// The flag of kernel threads in `/proc/PID/stat` (`PF_KTHREAD`).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// CPU time so far of every process that is neither a kernel thread, nor this process, nor a descendant of `root`.
/// `None` if there is no `/proc`.
pub(crate) fn cpu_seconds(root: u32) -> Option<CpuSeconds> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        // A process may end while we look.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
        if let Some(process) = stat.and_then(|stat| parse(&stat)) {
            all.insert(pid, process);
        }
    }
    let ours = |mut pid: u32| {
        // As deep as the tree at most.
        for _ in 0..all.len() {
            if pid == root || pid == std::process::id() {
                return true;
            }
            match all.get(&pid) {
                Some(process) => pid = process.parent,
                None => return false,
            }
        }
        false
    };
    let strangers = all.iter().filter(|(pid, process)| !process.kernel && !ours(**pid));
    Some(strangers.map(|(pid, process)| ((*pid, process.start), process.seconds)).collect())
}

/// CPU seconds that the strangers of `before` (and newer ones) have used until `after`.
pub(crate) fn used_since(before: &CpuSeconds, after: &CpuSeconds) -> f64 {
    let used = |(who, seconds): (&(u32, u64), &f64)| seconds - before.get(who).copied().unwrap_or(0.0);
    after.iter().map(used).sum()
}

fn parse(stat: &str) -> Option<Process> {
    // The name stands in parentheses and may hold anything, parentheses included.
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |i: usize| words.get(i)?.parse::<u64>().ok();
    Some(Process {
        parent: number(1)? as u32,
        kernel: number(6)? & KERNEL_THREAD != 0,
        start: number(19)?,
        // USER_HZ is 100 everywhere we run.
        seconds: (number(11)? + number(12)?) as f64 / 100.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 3 7 7 0 -1 4194304 1 2 3 4 150 50 0 0 20 0 1 0 99 1 1";
        let process = parse(stat).unwrap();
        assert_eq!((process.parent, process.kernel, process.start, process.seconds), (3, false, 99, 2.0));
    }

    #[test]
    fn a_busy_stranger_is_seen_and_a_descendant_is_not() {
        use std::process::{Command, Stdio};
        // This test's process stands for perfloss, so that a child of it is no stranger; one that init adopts is.
        let spin = "while :; do :; done";
        let mut own = Command::new("sh").args(["-c", spin]).spawn().unwrap();
        let orphan = Command::new("sh")
            .args(["-c", &format!("timeout 10 sh -c '{spin}' >/dev/null 2>&1 & echo $!")])
            .stdout(Stdio::piped())
            .output()
            .unwrap();
        let orphan: u32 = String::from_utf8(orphan.stdout).unwrap().trim().parse().unwrap();
        let before = cpu_seconds(own.id()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(500));
        let after = cpu_seconds(own.id()).unwrap();
        own.kill().unwrap();
        own.wait().unwrap();
        let child_of_orphan = |pid: u32| {
            fs::read_to_string(format!("/proc/{pid}/stat"))
                .ok()
                .and_then(|s| parse(&s))
                .is_some_and(|p| p.parent == orphan)
        };
        let seen = after.keys().any(|(pid, _)| *pid == orphan || child_of_orphan(*pid));
        Command::new("kill").arg(orphan.to_string()).status().unwrap();
        assert!(seen);
        assert!(used_since(&before, &after) > 0.05);
        assert!(!after.keys().any(|(pid, _)| *pid == own.id()));
    }
}
