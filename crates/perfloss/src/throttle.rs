//! What CPU quotas held back: the counters of the control groups, of both versions.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// How many groups are looked at.
const GROUPS: usize = 4096;

/// The throttled time of every control group that was ever throttled, as it stands now.
#[derive(Debug, Default)]
pub struct Counters(HashMap<PathBuf, u64>);

impl Counters {
    /// Reads them.
    pub fn read() -> Counters {
        let mut counters = Counters::default();
        for root in roots() {
            let mut left = vec![root.clone()];
            let mut seen = 0;
            while let Some(group) = left.pop() {
                seen += 1;
                if seen > GROUPS {
                    break;
                }
                if let Some(ns) = throttled_ns(&group).filter(|ns| *ns > 0) {
                    let path = group.strip_prefix(&root).unwrap_or(&group);
                    counters.0.insert(Path::new("/").join(path), ns);
                }
                let below = fs::read_dir(&group).into_iter().flatten().flatten();
                left.extend(below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
            }
        }
        counters
    }

    /// What was added since `before`, by the path of the group, most first.
    pub fn since(&self, before: &Counters) -> Vec<(String, u64)> {
        let mut grown: Vec<(String, u64)> = self
            .0
            .iter()
            .map(|(path, now)| (path, now.saturating_sub(before.0.get(path).copied().unwrap_or(0))))
            .filter(|(_, ns)| *ns > 0)
            .map(|(path, ns)| (path.display().to_string(), ns))
            .collect();
        grown.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        grown
    }
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

fn throttled_ns(group: &Path) -> Option<u64> {
    parse(&fs::read_to_string(group.join("cpu.stat")).ok()?)
}

fn parse(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_time", ns) => ns.trim().parse().ok(),
        ("throttled_usec", us) => us.trim().parse::<u64>().ok()?.checked_mul(1000),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read() {
        assert_eq!(parse("nr_periods 5\nnr_throttled 3\nthrottled_time 12345\n"), Some(12345));
        assert_eq!(parse("usage_usec 1\nnr_throttled 3\nthrottled_usec 7\n"), Some(7000));
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

    #[test]
    fn only_what_was_added_counts() {
        let of = |list: &[(&str, u64)]| Counters(list.iter().map(|(p, n)| (PathBuf::from(p), *n)).collect());
        let since = of(&[("/a", 5), ("/b", 7), ("/c", 9)]).since(&of(&[("/a", 5), ("/b", 1)]));
        assert_eq!(since, [("/c".to_owned(), 9), ("/b".to_owned(), 6)]);
    }
}
