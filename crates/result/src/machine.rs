//! Where a run took place: the facts that decide whether two results may be compared.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The machine as it was when the run began.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Kernel release (`uname -r`).
    pub kernel: String,
    /// Kernel build (`uname -v`).
    pub kernel_version: String,
    /// Architecture (`uname -m`).
    pub arch: String,
    /// Distribution, as in `PRETTY_NAME` of os-release.
    pub os: String,
    /// CPU model.
    pub cpu_model: String,
    /// CPUs online.
    pub cpus_online: u32,
    /// CPUs that the workload could use: inherited affinity and cpuset.
    pub allowed_cpus: Vec<u32>,
    /// Allowed CPUs less what a quota takes, in CPUs; null when there is no quota.
    pub quota_cpus: Option<f64>,
    /// Physical cores among the allowed CPUs; null when the topology is not known.
    pub cores: Option<u32>,
    /// Whether SMT siblings are among the allowed CPUs; null when not known.
    pub smt: Option<bool>,
    /// The allowed CPUs in the order in which tasks are placed on them, with core and package.
    pub topology: Vec<Cpu>,
    /// NUMA nodes with their CPUs.
    pub numa: Vec<NumaNode>,
    /// Frequency governor; null when the machine shows none.
    pub governor: Option<String>,
    /// Hypervisor, if one is seen: `kvm`, `xen`, …
    pub hypervisor: Option<String>,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Share of the CPU time that the hypervisor took away during the run, 0 to 1; null when not counted.
    pub steal_share: Option<f64>,
    /// Effective user is root.
    pub root: bool,
    /// Versions of tools and libraries that had a part: `mkfs.xfs`, `gcc`, …
    pub versions: BTreeMap<String, String>,
    /// Other facts: kernel command line, mitigations, transparent huge pages, …
    pub facts: BTreeMap<String, String>,
}

impl Machine {
    /// CPUs that the workload could use at once: the allowed ones, less what a quota takes.
    pub fn capacity_cpus(&self) -> f64 {
        let allowed = self.allowed_cpus.len() as f64;
        match self.quota_cpus {
            Some(quota) if quota < allowed => quota,
            _ => allowed,
        }
    }
}

/// One allowed CPU and where it sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Cpu {
    /// Number of the CPU.
    pub cpu: u32,
    /// Core within the package; null when not known.
    pub core: Option<u32>,
    /// Package (socket); null when not known.
    pub package: Option<u32>,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NumaNode {
    /// Number of the node.
    pub node: u32,
    /// Its CPUs.
    pub cpus: Vec<u32>,
}
