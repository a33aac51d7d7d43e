//! What the kernel counts about the allowed CPUs, read at the two edges of a window.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};
use workload::meter::now_ns;

use crate::cpus::Quota;

/// Time of one CPU, or of several added up, microseconds, as `/proc/stat` has it (in steps of 10 ms).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTimes {
    /// User code, niced included (guests are part of it).
    pub user_us: f64,
    /// Kernel code.
    pub system_us: f64,
    /// Hard and soft interrupts.
    pub irq_us: f64,
    /// Taken by the hypervisor.
    pub steal_us: f64,
    /// Idle, without iowait.
    pub idle_us: f64,
    /// Idle while a task waited for block I/O.
    pub iowait_us: f64,
}

impl CpuTimes {
    /// All that is accounted for.
    pub fn sum_us(&self) -> f64 {
        self.user_us + self.system_us + self.irq_us + self.steal_us + self.idle_us + self.iowait_us
    }

    fn zip(self, other: CpuTimes, f: impl Fn(f64, f64) -> f64) -> CpuTimes {
        CpuTimes {
            user_us: f(self.user_us, other.user_us),
            system_us: f(self.system_us, other.system_us),
            irq_us: f(self.irq_us, other.irq_us),
            steal_us: f(self.steal_us, other.steal_us),
            idle_us: f(self.idle_us, other.idle_us),
            iowait_us: f(self.iowait_us, other.iowait_us),
        }
    }

    /// Both added up.
    pub fn plus(self, other: CpuTimes) -> CpuTimes {
        self.zip(other, |a, b| a + b)
    }

    /// What has come since `earlier`. The kernel's idle and iowait counters may step back by a tick; that is kept,
    /// as a negative number, since it belongs to the next interval.
    pub fn since(self, earlier: CpuTimes) -> CpuTimes {
        self.zip(earlier, |a, b| a - b)
    }
}

/// Everything read at one edge of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// `CLOCK_MONOTONIC` just after the CPU times were read, ns.
    pub at_ns: u64,
    /// Times of each allowed CPU, in the order in which they were asked for.
    pub cpus: Vec<CpuTimes>,
    /// Tasks that run or could run, as `/proc/stat` counts them, the reader included.
    pub procs_running: Option<u64>,
    /// Pressure-stall totals, microseconds: CPU, I/O, memory.
    pub pressure_us: [Option<u64>; 3],
    /// For how long a quota has held the cgroup back, seconds.
    pub throttled_s: Option<f64>,
    /// Mean frequency of the allowed CPUs, MHz.
    pub frequency_mhz: Option<f64>,
}

impl Reading {
    /// Reads now. The CPU times and the clock come last (`start`) or first, so that what reading costs lies outside the
    /// window at both edges. `publish` is told the moment as soon as it is known: the rest of the reading may take milliseconds.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read or lacks one of `cpus`.
    pub fn take(
        cpus: &[u32],
        quota: Option<&Quota>,
        start: bool,
        publish: impl FnOnce(u64),
    ) -> io::Result<Reading> {
        let times = || -> io::Result<(Stat, u64)> {
            let text = fs::read_to_string("/proc/stat")?;
            let stat = parse_stat(&text, cpus).ok_or_else(|| io::Error::other("/proc/stat lacks a CPU"))?;
            let at_ns = now_ns();
            publish(at_ns);
            Ok((stat, at_ns))
        };
        let rest = || {
            let pressure = ["cpu", "io", "memory"]
                .map(|what| some_total(&fs::read_to_string(format!("/proc/pressure/{what}")).ok()?));
            (pressure, quota.and_then(Quota::throttled_s), frequency_mhz(cpus))
        };
        let ((stat, at_ns), (pressure_us, throttled_s, frequency_mhz)) = if start {
            let rest = rest();
            (times()?, rest)
        } else {
            (times()?, rest())
        };
        Ok(Reading {
            at_ns,
            cpus: stat.cpus,
            procs_running: stat.procs_running,
            pressure_us,
            throttled_s,
            frequency_mhz,
        })
    }
}

/// Whether the kernel accounts interrupts apart from the code that they interrupt. Not where it does not tell how it was built.
///
/// Asked of its configuration, since the columns of `/proc/stat` are filled by the tick either way.
pub fn interrupts_apart() -> bool {
    // this file is there with that option only (since Linux 6.1), and containers that hide configurations show it
    Path::new("/proc/pressure/irq").exists()
        || kernel_config().is_some_and(|c| c.lines().any(|line| line == "CONFIG_IRQ_TIME_ACCOUNTING=y"))
}

/// The configuration of the running kernel, from itself or from where distributions put it.
fn kernel_config() -> Option<String> {
    if let Ok(file) = File::open("/proc/config.gz") {
        let mut text = String::new();
        return GzDecoder::new(file).read_to_string(&mut text).ok().map(|_| text);
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let release = release.trim();
    [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok())
}

struct Stat {
    cpus: Vec<CpuTimes>,
    procs_running: Option<u64>,
}

/// Microseconds of a tick of `USER_HZ`, which is 100 on every architecture that we run on.
const TICK_US: f64 = 10_000.0;

fn parse_stat(text: &str, cpus: &[u32]) -> Option<Stat> {
    let mut found = vec![None; cpus.len()];
    let mut procs_running = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(name) = words.next() else { continue };
        if name == "procs_running" {
            procs_running = words.next().and_then(|n| n.parse().ok());
        }
        let Some(number) = name.strip_prefix("cpu").and_then(|n| n.parse::<u32>().ok()) else { continue };
        let Some(place) = cpus.iter().position(|&c| c == number) else { continue };
        let ticks: Vec<f64> = words.map_while(|w| w.parse::<f64>().ok()).map(|t| t * TICK_US).collect();
        let at = |i: usize| ticks.get(i).copied().unwrap_or(0.0);
        found[place] = Some(CpuTimes {
            user_us: at(0) + at(1),
            system_us: at(2),
            idle_us: at(3),
            iowait_us: at(4),
            irq_us: at(5) + at(6),
            steal_us: at(7),
        });
    }
    Some(Stat { cpus: found.into_iter().collect::<Option<_>>()?, procs_running })
}

/// The `total=` of the `some` line of a pressure file.
fn some_total(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total=")?.parse().ok())
}

fn frequency_mhz(cpus: &[u32]) -> Option<f64> {
    let read = |cpu: &u32| -> Option<f64> {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
        fs::read_to_string(path).ok()?.trim().parse::<f64>().ok().map(|khz| khz / 1000.0)
    };
    let all: Vec<f64> = cpus.iter().map(read).collect::<Option<_>>()?;
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  10 0 20 300 5 1 2 3 0 0\ncpu0 4 1 9 100 2 1 1 1 0 0\ncpu1 6 0 11 200 3 0 1 2 7 7\nintr 5\nprocs_running 3\n";

    #[test]
    fn only_the_allowed_cpus_are_read_in_the_order_asked_for() {
        let stat = parse_stat(STAT, &[1, 0]).unwrap();
        assert_eq!(stat.cpus[0].user_us, 60_000.0);
        assert_eq!(stat.cpus[1].user_us, 50_000.0);
        assert_eq!(stat.cpus[1].irq_us, 20_000.0);
        assert_eq!(stat.cpus[0].steal_us, 20_000.0);
        assert_eq!(stat.procs_running, Some(3));
    }

    #[test]
    fn a_cpu_that_is_gone_is_an_error_and_not_a_zero() {
        assert!(parse_stat(STAT, &[0, 7]).is_none());
    }

    #[test]
    fn a_kernel_that_carries_its_configuration_is_asked_itself() {
        if Path::new("/proc/config.gz").exists() {
            let config = kernel_config().expect("it is readable");
            assert!(config.lines().any(|line| line == "CONFIG_IKCONFIG_PROC=y"), "it is how it got there");
        }
    }

    #[test]
    fn pressure_is_the_total_of_the_some_line() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.00 total=99\n";
        assert_eq!(some_total(text), Some(123));
        assert_eq!(some_total(""), None);
    }

    #[test]
    fn two_readings_of_this_machine_account_for_the_time_between_them() {
        let cpus: Vec<u32> = crate::cpus::Cpus::allowed().unwrap().in_order().iter().map(|c| c.cpu).collect();
        let mut told = Vec::new();
        let a = Reading::take(&cpus, None, true, |ns| told.push(ns)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1000));
        let b = Reading::take(&cpus, None, false, |ns| told.push(ns)).unwrap();
        assert_eq!(told, [a.at_ns, b.at_ns]);
        let wall_us = (b.at_ns - a.at_ns) as f64 / 1000.0;
        for (now, then) in b.cpus.iter().zip(&a.cpus) {
            let counted = now.since(*then).sum_us();
            assert!((counted / wall_us - 1.0).abs() < 0.2, "{counted} us of {wall_us}");
        }
    }
}
