//! What CPU quotas held back: the counters of the control groups (`cpu.stat`), of both versions.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How many groups are looked at.
const GROUPS: usize = 4096;

/// The counters of a group's quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// How often it was used up.
    pub count: u32,
    /// For how long it held tasks back, ns, added over CPUs.
    pub throttled_ns: u64,
}

/// The counters of every group that has or had a quota, by its path below the mount.
pub type Counters = BTreeMap<String, Counter>;

/// Reads the counters as they stand.
pub fn counters() -> Counters {
    let mut counters = Counters::new();
    walk(|root, group| {
        let counter = fs::read_to_string(group.join("cpu.stat")).ok().and_then(|stat| parse(&stat));
        if let Some(counter) = counter.filter(|c| c.count > 0 || has_quota(group)) {
            counters.insert(below(root, group), counter);
        }
        false
    });
    counters
}

/// The path below its mount of the group with that number, which is that of its directory.
pub fn path_of(number: u64) -> Option<String> {
    let mut found = None;
    walk(|root, group| {
        let same = fs::metadata(group).is_ok_and(|m| m.ino() == number);
        if same {
            found = Some(below(root, group));
        }
        same
    });
    found
}

/// Visits groups that can have a quota, until the visitor has what it wants.
fn walk(mut visit: impl FnMut(&Path, &Path) -> bool) {
    let mut seen = 0;
    for root in roots() {
        let mut left = vec![root.clone()];
        while let Some(group) = left.pop() {
            seen += 1;
            if seen > GROUPS || visit(&root, &group) {
                return;
            }
            let below = fs::read_dir(&group).into_iter().flatten().flatten();
            left.extend(below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        }
    }
}

fn below(root: &Path, group: &Path) -> String {
    Path::new("/").join(group.strip_prefix(root).unwrap_or(group)).display().to_string()
}

/// Where the hierarchies that can have quotas are mounted.
fn roots() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter_map(root).collect()
}

fn root(line: &str) -> Option<PathBuf> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut kind = kind.split_ascii_whitespace();
    let has_quotas = match kind.next()? {
        "cgroup2" => true,
        "cgroup" => kind.nth(1)?.split(',').any(|option| option == "cpu"),
        _ => false,
    };
    has_quotas.then(|| mount.split_ascii_whitespace().nth(4).map(PathBuf::from)).flatten()
}

fn has_quota(group: &Path) -> bool {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    read("cpu.cfs_quota_us").is_some_and(|quota| !quota.starts_with('-'))
        || read("cpu.max").is_some_and(|max| !max.starts_with("max"))
}

fn parse(stat: &str) -> Option<Counter> {
    let value = |name: &str| {
        stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
    };
    let throttled_ns = match value("throttled_time") {
        Some(ns) => ns,
        None => value("throttled_usec")?.checked_mul(1000)?,
    };
    Some(Counter { count: u32::try_from(value("nr_throttled")?).unwrap_or(u32::MAX), throttled_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read() {
        let counter = |count, throttled_ns| Some(Counter { count, throttled_ns });
        assert_eq!(parse("nr_periods 5\nnr_throttled 3\nthrottled_time 12345\n"), counter(3, 12345));
        assert_eq!(parse("usage_usec 1\nnr_throttled 3\nthrottled_usec 7\n"), counter(3, 7000));
        assert_eq!(parse("usage_usec 1\n"), None);
    }

    #[test]
    fn only_hierarchies_with_the_cpu_controller_count() {
        let line = "33 25 0:29 / /sys/fs/cgroup/cpu rw,nosuid - cgroup cgroup rw,cpu,cpuacct";
        assert_eq!(root(line), Some(PathBuf::from("/sys/fs/cgroup/cpu")));
        assert_eq!(root("33 25 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"), None);
        let line = "33 25 0:29 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw";
        assert_eq!(root(line), Some(PathBuf::from("/sys/fs/cgroup")));
    }
}
