//! What this machine and this process allow. Only reads.

use std::fs;
use std::path::Path;

use rustix::thread::{CapabilitySet, capabilities};

/// What this process may do, as far as making targets goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// CAP_SYS_ADMIN is effective: namespaces and mounts are possible.
    pub sys_admin: bool,
    /// The process is in the machine's first user namespace: file systems on block devices can be mounted.
    pub initial_user_namespace: bool,
}

impl Caps {
    /// Those of the calling thread.
    pub fn here() -> Self {
        let sys_admin =
            capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
        // The first user namespace maps all ids onto themselves.
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let initial_user_namespace = map.split_whitespace().eq(["0", "0", "4294967295"]);
        Self { sys_admin, initial_user_namespace }
    }
}

pub(crate) struct KernelFileSystem {
    pub name: String,
    pub on_device: bool,
}

/// What `/proc/filesystems` lists: modules that are not loaded are not in it.
pub(crate) fn kernel_file_systems() -> Vec<KernelFileSystem> {
    let text = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(nodev, name)| KernelFileSystem { name: name.trim().to_owned(), on_device: nodev.is_empty() })
        .collect()
}

/// Whether the kernel has the file system, built in, loaded, or as a module that mounting loads.
pub(crate) fn kernel_has(name: &str) -> bool {
    kernel_file_systems().iter().any(|fs| fs.name == name) || module_exists(name)
}

/// Whether a module of this name lies ready: mounting asks the kernel to load it.
fn module_exists(name: &str) -> bool {
    let Ok(release) = fs::read_to_string("/proc/sys/kernel/osrelease") else { return false };
    let list = Path::new("/lib/modules").join(release.trim()).join("modules.dep");
    let Ok(text) = fs::read_to_string(list) else { return false };
    text.lines()
        .filter_map(|line| line.split(':').next())
        .filter_map(|path| path.rsplit('/').next())
        .any(|file| file.split('.').next() == Some(name))
}

/// Bytes of memory that can be had: what the kernel estimates, less what the memory cgroup takes away.
pub(crate) fn available_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok());
    let machine = kib.map_or(0, |kib| kib * 1024);
    machine.min(cgroup_room().unwrap_or(u64::MAX))
}

/// What the memory cgroup leaves, by version 2 or 1, of this cgroup and of the ones above.
fn cgroup_room() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut room: Option<u64> = None;
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (mounts, limit, usage): (&[&str], _, _) = match controllers {
            "" => (&["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "memory.max", "memory.current"),
            "memory" => (&["/sys/fs/cgroup/memory"], "memory.limit_in_bytes", "memory.usage_in_bytes"),
            _ => continue,
        };
        for mount in mounts {
            for group in Path::new(path.trim_start_matches('/')).ancestors() {
                let directory = Path::new(mount).join(group);
                let read = |name| fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
                if let (Some(limit), Some(usage)) = (read(limit), read(usage)) {
                    let left = limit.saturating_sub(usage);
                    room = Some(room.map_or(left, |room| room.min(left)));
                }
            }
        }
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_lists_tmpfs_and_there_is_memory() {
        assert!(kernel_has("tmpfs"));
        assert!(!kernel_has("no_such_fs"));
        assert!(available_memory() > 1 << 20);
    }
}
