//! What the result records about this machine.

use std::fs;
use std::process::Command;

use harness::cpus::{Cpus, Quota};
use result::{Cpu, Machine, NumaNode};

/// The machine as it is now.
pub fn describe(cpus: &Cpus) -> Machine {
    let uname = rustix::system::uname();
    let text = |s: &std::ffi::CStr| s.to_string_lossy().into_owned();
    let online = read("/sys/devices/system/cpu/online").map(|list| parse_list(&list).len() as u32);
    let known = cpus.in_order().iter().all(|c| c.core.is_some());
    let mut machine = Machine {
        host: text(uname.nodename()),
        kernel: text(uname.release()),
        kernel_version: text(uname.version()),
        arch: text(uname.machine()),
        os: os_release().unwrap_or_default(),
        cpu_model: cpu_model().unwrap_or_default(),
        cpus_online: online.unwrap_or(cpus.count() as u32),
        allowed_cpus: sorted(cpus.in_order().iter().map(|c| c.cpu).collect()),
        quota_cpus: Quota::here().map(|q| q.cpus),
        cores: known.then_some(cpus.cores() as u32),
        smt: known.then_some(cpus.cores() < cpus.count()),
        topology: cpus
            .in_order()
            .iter()
            .map(|c| Cpu { cpu: c.cpu, core: c.core, package: c.package })
            .collect(),
        numa: numa_nodes(),
        governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        hypervisor: hypervisor(),
        memory_bytes: memory_bytes().unwrap_or(0),
        root: rustix::process::geteuid().is_root(),
        ..Machine::default()
    };
    for (name, path) in [
        ("kernel command line", "/proc/cmdline"),
        ("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
        ("clock source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ] {
        if let Some(value) = read(path) {
            machine.facts.insert(name.to_owned(), value);
        }
    }
    if let Ok(version) = compiler() {
        machine.versions.insert("cc".to_owned(), version);
    }
    machine
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn sorted(mut cpus: Vec<u32>) -> Vec<u32> {
    cpus.sort_unstable();
    cpus
}

/// Name and version of the C compiler, or what is wrong with it.
pub fn compiler() -> Result<String, String> {
    let output = Command::new("cc").arg("--version").output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => "cc is missing".to_owned(),
        _ => format!("cc cannot be started: {e}"),
    })?;
    if !output.status.success() {
        return Err(format!("cc --version fails ({})", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(str::to_owned).ok_or_else(|| "cc --version prints nothing".to_owned())
}

fn os_release() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches('"').to_owned())
}

fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, model)| model.trim().to_owned())
}

fn hypervisor() -> Option<String> {
    if let Some(kind) = read("/sys/hypervisor/type") {
        return Some(kind);
    }
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let flags = text.lines().find(|line| line.starts_with("flags"))?;
    flags.split_ascii_whitespace().any(|flag| flag == "hypervisor").then(|| "yes, of unknown kind".to_owned())
}

fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn numa_nodes() -> Vec<NumaNode> {
    let Ok(entries) = fs::read_dir("/sys/devices/system/node") else { return Vec::new() };
    let mut nodes: Vec<NumaNode> = entries
        .flatten()
        .filter_map(|entry| {
            let node = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let cpus = fs::read_to_string(entry.path().join("cpulist")).ok()?;
            Some(NumaNode { node, cpus: parse_list(cpus.trim()) })
        })
        .collect();
    nodes.sort_by_key(|n| n.node);
    nodes
}

/// A kernel CPU list, as in `0-3,8`.
pub fn parse_list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            cpus.extend(first..=last.min(first.saturating_add(8191)));
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_list("0-2,5,7-8"), [0, 1, 2, 5, 7, 8]);
        assert!(parse_list("").is_empty());
    }

    #[test]
    fn this_machine_has_a_kernel_memory_and_allowed_cpus() {
        let machine = describe(&Cpus::allowed().unwrap());
        assert!(!machine.kernel.is_empty() && machine.memory_bytes > 1 << 26);
        assert!(!machine.allowed_cpus.is_empty());
        assert!(machine.cpus_online as usize >= machine.allowed_cpus.len());
    }
}
