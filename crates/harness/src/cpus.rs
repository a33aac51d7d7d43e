//! The CPUs that tasks may use, and the order in which tasks are placed on them.
//!
//! Respected: the inherited affinity (which already reflects the cpuset) and the cgroup's CPU quota, version 1 or 2.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// One allowed CPU and where it sits; `None` where the kernel does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Number of the CPU.
    pub cpu: u32,
    /// Core within its package.
    pub core: Option<u32>,
    /// Package (socket).
    pub package: Option<u32>,
}

/// The allowed CPUs in placing order: a CPU of every core first, SMT siblings after all cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    order: Vec<Cpu>,
    /// How many of the first are on a core of their own.
    cores: usize,
}

impl Cpus {
    /// Those that the calling thread may use.
    ///
    /// # Errors
    /// If the kernel does not tell the affinity.
    pub fn allowed() -> std::io::Result<Cpus> {
        let set = sched_getaffinity(None)?;
        let numbers = (0..CpuSet::MAX_CPU as u32).filter(|&n| set.is_set(n as usize));
        Ok(Cpus::new(numbers.map(|cpu| topology(Path::new("/sys/devices/system/cpu"), cpu)).collect()))
    }

    /// Puts `cpus` into placing order.
    pub fn new(mut cpus: Vec<Cpu>) -> Cpus {
        cpus.sort_by_key(|c| c.cpu);
        let mut seen = BTreeSet::new();
        let (mut order, siblings): (Vec<Cpu>, Vec<Cpu>) =
            cpus.into_iter().partition(|c| c.core.is_none() || seen.insert((c.package, c.core)));
        let cores = order.len();
        order.extend(siblings);
        Cpus { order, cores }
    }

    /// All of them, in placing order.
    pub fn in_order(&self) -> &[Cpu] {
        &self.order
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.order.len()
    }

    /// How many cores they are.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// The CPU of each of `tasks` tasks, going around when there are more tasks than CPUs.
    pub fn place(&self, tasks: u32) -> Vec<u32> {
        self.order.iter().map(|c| c.cpu).cycle().take(tasks as usize).collect()
    }
}

/// Binds the calling thread (and what it forks) to one CPU.
///
/// # Errors
/// If the CPU went offline or the cpuset shrank.
pub fn bind(cpu: u32) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    Ok(sched_setaffinity(None, &set)?)
}

fn topology(base: &Path, cpu: u32) -> Cpu {
    let read = |name: &str| -> Option<u32> {
        let text = fs::read_to_string(base.join(format!("cpu{cpu}/topology/{name}"))).ok()?;
        text.trim().parse().ok()
    };
    Cpu { cpu, core: read("core_id"), package: read("physical_package_id") }
}

/// The cgroup's CPU quota and where its throttling is counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Quota {
    /// CPUs' worth of time; the smallest of this cgroup and the ones above.
    pub cpus: f64,
    stat: PathBuf,
}

impl Quota {
    /// That of the calling process; `None` without any.
    pub fn here() -> Option<Quota> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mut least: Option<Quota> = None;
        for line in own.lines() {
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let roots: &[&str] = match controllers {
                "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
                c if c.split(',').any(|c| c == "cpu") => {
                    &["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"]
                }
                _ => continue,
            };
            for root in roots {
                for group in Path::new(path.trim_start_matches('/')).ancestors() {
                    let dir = Path::new(root).join(group);
                    if let Some(cpus) = quota_of(&dir)
                        && least.as_ref().is_none_or(|q| cpus < q.cpus)
                    {
                        least = Some(Quota { cpus, stat: dir.join("cpu.stat") });
                    }
                }
            }
        }
        least
    }

    /// For how long the cgroup has been held back so far, seconds.
    pub fn throttled_s(&self) -> Option<f64> {
        throttled_s(&fs::read_to_string(&self.stat).ok()?)
    }
}

fn quota_of(dir: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    if let Some(max) = read("cpu.max") {
        let (quota, period) = max.trim().split_once(' ')?;
        return Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?);
    }
    let quota: f64 = read("cpu.cfs_quota_us")?.trim().parse().ok()?;
    let period: f64 = read("cpu.cfs_period_us")?.trim().parse().ok()?;
    (quota > 0.0).then_some(quota / period)
}

/// From `cpu.stat`: `throttled_usec` (version 2) or `throttled_time` in ns (version 1).
fn throttled_s(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", us) => us.parse::<f64>().ok().map(|us| us / 1e6),
        ("throttled_time", ns) => ns.parse::<f64>().ok().map(|ns| ns / 1e9),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(cpu: u32, core: u32, package: u32) -> Cpu {
        Cpu { cpu, core: Some(core), package: Some(package) }
    }

    #[test]
    fn every_core_gets_a_task_before_any_smt_sibling_does() {
        let cpus = Cpus::new(vec![
            cpu(0, 0, 0),
            cpu(1, 0, 0),
            cpu(2, 1, 0),
            cpu(3, 1, 0),
            cpu(4, 0, 1),
            cpu(5, 0, 1),
        ]);
        assert_eq!(cpus.place(8), [0, 2, 4, 1, 3, 5, 0, 2]);
        assert_eq!((cpus.cores(), cpus.count()), (3, 6));
    }

    #[test]
    fn without_topology_every_cpu_counts_as_a_core() {
        let bare = |n| Cpu { cpu: n, core: None, package: None };
        let cpus = Cpus::new(vec![bare(3), bare(1)]);
        assert_eq!(cpus.place(2), [1, 3]);
        assert_eq!(cpus.cores(), 2);
    }

    #[test]
    fn inherited_affinity_is_respected() {
        // In a thread of its own: affinity belongs to threads.
        std::thread::spawn(|| {
            let first = Cpus::allowed().unwrap().in_order()[0].cpu;
            bind(first).unwrap();
            let now = Cpus::allowed().unwrap();
            assert_eq!((now.count(), now.in_order()[0].cpu), (1, first));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn quota_is_read_in_both_versions_and_no_limit_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(quota_of(dir.path()), None);
        put("cpu.cfs_quota_us", "-1\n");
        put("cpu.cfs_period_us", "100000\n");
        assert_eq!(quota_of(dir.path()), None);
        put("cpu.cfs_quota_us", "50000\n");
        assert_eq!(quota_of(dir.path()), Some(0.5));
        put("cpu.max", "max 100000\n");
        assert_eq!(quota_of(dir.path()), None);
        put("cpu.max", "150000 100000\n");
        assert_eq!(quota_of(dir.path()), Some(1.5));
    }

    #[test]
    fn throttled_time_is_read_in_both_versions() {
        assert_eq!(throttled_s("nr_periods 3\nthrottled_usec 1500000\n"), Some(1.5));
        assert_eq!(throttled_s("nr_throttled 3\nthrottled_time 2000000000\n"), Some(2.0));
        assert_eq!(throttled_s("nr_periods 3\n"), None);
    }
}
