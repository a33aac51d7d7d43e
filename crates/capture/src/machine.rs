//! Facts about the machine that a capture needs.

use std::collections::HashSet;
use std::fs;

use trace::TaskState;

use crate::layout::{COMM_LEN, SEED_QUEUED, TaskSeed};
use crate::sys;

/// Parses a list as the kernel writes it (`0-3,8`).
pub fn parse_cpu_list(list: &str) -> Vec<u16> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',').filter(|p| !p.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.parse::<u16>(), to.parse::<u16>()) {
            cpus.extend(from..=to);
        }
    }
    cpus
}

/// The CPUs that are online.
pub fn online_cpus() -> Vec<u16> {
    let cpus = parse_cpu_list(&fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default());
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// One more than the highest number that a CPU can have.
pub fn possible_cpus() -> usize {
    let cpus = parse_cpu_list(&fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default());
    cpus.iter().max().map_or(1, |m| usize::from(*m) + 1)
}

/// The CPUs that this process may use. Its affinity may have some that are not there.
pub fn allowed_cpus() -> Vec<u16> {
    let online = online_cpus();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let Some(list) = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")) else { return online };
    parse_cpu_list(list).into_iter().filter(|cpu| online.contains(cpu)).collect()
}

/// The name of a block device by its number; `8:1` if it has none.
pub fn device_name(major: u32, minor: u32) -> String {
    fs::read_link(format!("/sys/dev/block/{major}:{minor}"))
        .ok()
        .and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()))
        .unwrap_or_else(|| format!("{major}:{minor}"))
}

/// The kernel's modules: name and address.
pub fn modules() -> Vec<(String, String)> {
    let text = fs::read_to_string("/proc/modules").unwrap_or_default();
    let module = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        Some((fields.next()?.to_owned(), fields.nth(4)?.to_owned()))
    };
    text.lines().filter_map(module).collect()
}

/// The number of the namespace that process ids here are of, unless it is the first one: the kernel's own numbers are those of the first.
pub fn pid_namespace() -> Option<u32> {
    // the number of the first namespace is fixed
    const FIRST: u32 = 4_026_531_836;
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    let number = link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()?;
    (number != FIRST).then_some(number)
}

/// Whether /proc shows the processes by the ids that they have here.
pub fn proc_is_ours() -> bool {
    fs::read_link("/proc/self").is_ok_and(|l| l.as_os_str() == std::process::id().to_string().as_str())
}

/// What is lost in a process-id namespace of a container.
pub fn pid_namespace_note() -> Option<String> {
    pid_namespace()?;
    let proc = if proc_is_ours() {
        ""
    } else {
        "; /proc is of another namespace: user functions and commands have no names (mount it: unshare --mount-proc)"
    };
    Some(format!(
        "in a container's process-id namespace: options take the container's ids, what is shown has the host's, and tasks outside have no names before they get new ones{proc}"
    ))
}

/// The kernel's ids of tasks that are named by the ids that they have here; those that are not there are left out.
pub fn kernel_ids(ids: &[u32], seeds: &[TaskSeed]) -> Vec<u32> {
    if pid_namespace().is_none() {
        return ids.to_vec();
    }
    seeds.iter().filter(|s| s.own_tid != 0 && ids.contains(&s.own_tid)).map(|s| s.tid).collect()
}

/// The tasks of processes that are not among the known ones, from /proc.
pub fn tasks_beside(known: &HashSet<u32>) -> Vec<TaskSeed> {
    let numbers = |path: &str| -> Vec<u32> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
    };
    numbers("/proc")
        .into_iter()
        .filter(|tgid| !known.contains(tgid))
        .flat_map(|tgid| {
            let threads = numbers(&format!("/proc/{tgid}/task"));
            threads.into_iter().filter_map(move |tid| task_from_proc(tgid, tid))
        })
        .collect()
}

/// A task from /proc/PID/task/TID/stat.
fn task_from_proc(tgid: u32, tid: u32) -> Option<TaskSeed> {
    let stat = fs::read_to_string(format!("/proc/{tgid}/task/{tid}/stat")).ok()?;
    // the name is in parentheses, and may contain some
    let (head, tail) = (stat.find('(')?, stat.rfind(')')?);
    let name = stat.get(head + 1..tail)?;
    let fields: Vec<&str> = stat.get(tail + 1..)?.split_ascii_whitespace().collect();
    let state = TaskState::from_letter(fields.first()?.chars().next()?).unwrap_or(TaskState::Running);
    let bits = match state {
        TaskState::Interruptible => 1,
        TaskState::Uninterruptible => 2,
        TaskState::Stopped => 4,
        TaskState::Traced => 8,
        TaskState::Idle => 0x402,
        _ => 0,
    };
    let mut comm = [0; COMM_LEN];
    let length = name.len().min(COMM_LEN - 1);
    comm[..length].copy_from_slice(&name.as_bytes()[..length]);
    let cpu = fields.get(36).and_then(|f| f.parse().ok()).unwrap_or(0);
    Some(TaskSeed {
        ts: sys::monotonic_ns(),
        start: 0,
        blocker: 0,
        futex: 0,
        tid,
        tgid,
        ptid: fields.get(1).and_then(|f| f.parse().ok()).unwrap_or(0),
        state: bits,
        // runnable or running: /proc does not tell, and an event will
        flags: if bits == 0 { SEED_QUEUED } else { 0 },
        cpu,
        syscall: -1,
        futex_op: 0,
        exit_state: i32::from(matches!(state, TaskState::Zombie | TaskState::Dead)),
        own_tid: tid,
        comm,
    })
}

/// Ticks per second of the kernel (CONFIG_HZ): the coarse clock advances by one a tick.
pub fn ticks_per_second() -> u32 {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    let ns = tick.tv_sec.saturating_mul(1_000_000_000).saturating_add(tick.tv_nsec);
    // a tick is a whole number of ns, a second rarely a whole number of such ticks
    u32::try_from((1_000_000_000 + ns / 2).checked_div(ns).unwrap_or(0)).unwrap_or(0)
}

/// Changes the priority of the calling thread; without the privilege it stays as it is.
pub fn set_nice(nice: i32) {
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), nice);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_that_are_not_there_are_not_allowed() {
        let (online, allowed) = (online_cpus(), allowed_cpus());
        assert!(
            !allowed.is_empty() && allowed.iter().all(|cpu| online.contains(cpu)),
            "{allowed:?} of {online:?}"
        );
    }

    #[test]
    fn the_kernels_ticks_are_those_of_some_configuration() {
        // what CONFIG_HZ can be on the architectures that there are
        let known = [24, 32, 48, 64, 100, 128, 200, 250, 256, 300, 500, 512, 1000, 1024, 1200];
        assert!(known.contains(&ticks_per_second()), "{}", ticks_per_second());
    }

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cpu_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_cpu_list(""), [] as [u16; 0]);
        assert_eq!(parse_cpu_list("nonsense"), [] as [u16; 0]);
    }
}
