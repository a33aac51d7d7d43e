//! Whom to watch, and on which CPUs.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Args;
use crate::child::Child;
use crate::exit::Failure;
use crate::machine;

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Handles on the processes to watch, which say when they end.
pub(super) fn open_all(pids: &[u32]) -> Result<Vec<OwnedFd>, Failure> {
    let open = |pid: &u32| {
        let number = i32::try_from(*pid).ok().and_then(Pid::from_raw);
        let number =
            number.ok_or_else(|| Failure::usage(format!("-p {pid}: there is no such process id")))?;
        pidfd_open(number, PidfdFlags::empty())
            .map_err(|e| Failure::usage(format!("-p {pid}: no process that can be watched: {e}")))
    };
    pids.iter().map(open).collect()
}

pub(super) fn scope(args: &Args, child: Option<&Child>, group: Option<String>) -> capture::Scope {
    if args.all {
        return capture::Scope::Everything;
    }
    match (child, group) {
        (Some(child), _) => capture::Scope::Processes(vec![child.pid()]),
        (None, Some(group)) => capture::Scope::Cgroup(group),
        (None, None) => capture::Scope::Processes(args.pids.clone()),
    }
}

/// The path of a control group below its mount, from either that or the directory itself.
pub(super) fn group_path(group: &Path) -> Result<String, Failure> {
    let text = group.display().to_string();
    let none = || Failure::usage(format!("--cgroup {text}: there is no such control group"));
    let Some(below) = text.strip_prefix(CGROUPS) else {
        let path = text.trim_start_matches('/');
        return if below_a_mount(path) { Ok(format!("/{path}")) } else { Err(none()) };
    };
    if !group.is_dir() {
        return Err(none());
    }
    // with version 1 there is a directory for each controller, which is a mount of its own
    let controllers = |name: &str| {
        ["cpu", "cpuacct", "cpuset", "memory", "blkio", "pids", "freezer", "devices", "systemd", "unified"]
            .iter()
            .any(|c| name.split(',').any(|part| part == *c))
    };
    let below = below.trim_start_matches('/');
    let (first, rest) = below.split_once('/').unwrap_or((below, ""));
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    Ok(if !unified && controllers(first) { format!("/{rest}") } else { format!("/{below}") })
}

/// Whether there is a control group of this path, in version 2 or in a controller of version 1.
pub(super) fn below_a_mount(path: &str) -> bool {
    let mut mounts = vec![PathBuf::from(CGROUPS)];
    if let Ok(entries) = std::fs::read_dir(CGROUPS) {
        mounts.extend(entries.flatten().map(|entry| entry.path()));
    }
    mounts.iter().any(|mount| mount.join(path).is_dir())
}

/// The CPUs that what is watched may use; empty: those that this process may use.
pub(super) fn allowed(args: &Args) -> Result<Vec<u16>, Failure> {
    if args.all || args.cgroup.is_some() {
        let cpus =
            std::fs::read_to_string("/sys/devices/system/cpu/online").context("cannot read the CPUs")?;
        return Ok(machine::parse_list(&cpus).into_iter().filter_map(|c| u16::try_from(c).ok()).collect());
    }
    let mut cpus = Vec::new();
    for pid in &args.pids {
        let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
        if let Ok(set) = rustix::thread::sched_getaffinity(pid) {
            cpus.extend(
                (0..=u16::MAX).take(rustix::thread::CpuSet::MAX_CPU).filter(|c| set.is_set(usize::from(*c))),
            );
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}
