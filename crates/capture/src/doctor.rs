//! What this machine allows, and what to do about the rest.

use std::fs;
use std::path::Path;
use std::time::Duration;

use trace::{Kind, TaskState};

use crate::capture::{Capture, Options, kernel_types};
use crate::error::Error;
use crate::loader::{self, OPTIONAL, REQUIRED};
use crate::machine;
use crate::names::MODULES;
use crate::symbols::KernelSymbols;
use crate::sys;

/// How good it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// As it should be.
    Good,
    /// It works, with less.
    Limited,
    /// A capture does not start without it.
    Missing,
}

/// One fact about the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, in a word or two.
    pub name: &'static str,
    /// How good it is.
    pub status: Status,
    /// What was found, and what is lost by it.
    pub what: String,
    /// What to do about it; empty if nothing has to be done or can be.
    pub remedy: String,
}

impl Finding {
    fn good(name: &'static str, what: impl Into<String>) -> Finding {
        Finding { name, status: Status::Good, what: what.into(), remedy: String::new() }
    }

    fn limited(name: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { name, status: Status::Limited, what: what.into(), remedy: remedy.into() }
    }

    fn missing(name: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { name, status: Status::Missing, what: what.into(), remedy: remedy.into() }
    }
}

/// Looks at everything that a capture needs or can use. Takes about 0.3 s, loads the programs, and leaves nothing behind.
pub fn doctor() -> Vec<Finding> {
    let mut findings = vec![capabilities(), lockdown(), symbols()];
    let btf = match kernel_types() {
        Ok(btf) => {
            findings.push(types_of_modules());
            btf
        }
        Err(e) => {
            let remedy = "use a kernel built with CONFIG_DEBUG_INFO_BTF, as distributions ship it";
            findings.push(Finding::missing("kernel types", e.to_string(), remedy));
            return findings;
        }
    };
    let lacking: Vec<&str> = REQUIRED.into_iter().filter(|t| !btf.has_tracepoint(t)).collect();
    if !lacking.is_empty() {
        let what = format!("no tracepoints {}", lacking.join(", "));
        findings.push(Finding::missing("tracepoints", what, "use a kernel with CONFIG_TRACEPOINTS"));
        return findings;
    }
    let mut lost: Vec<String> = OPTIONAL
        .iter()
        .filter(|o| !o.1.is_empty() && !btf.has_tracepoint(o.1))
        .map(|o| format!("{} ({})", o.1, o.2))
        .collect();
    lost.dedup();
    findings.push(if lost.is_empty() {
        Finding::good("tracepoints", "all that are used exist")
    } else {
        let remedy = "contention_begin came with Linux 5.19; a newer kernel has them";
        Finding::limited("tracepoints", format!("not there: {}", lost.join(", ")), remedy)
    });
    let fields = [
        ("semaphore", "last_holder", "who had a semaphore is known only from wake-ups"),
        ("task_struct", "blocker", "for what a task waited when the capture began is not known"),
        ("rw_semaphore", "owner", "owners of rw-semaphores are not known"),
        ("mutex", "owner", "owners of mutexes are not known"),
    ];
    let lost: Vec<String> = fields
        .iter()
        .filter(|(s, f, _)| btf.offset_of(s, f).is_none())
        .map(|(s, f, what)| format!("{s}.{f}: {what}"))
        .collect();
    findings.push(if lost.is_empty() {
        Finding::good("lock owners", "locks tell their owners or last holders")
    } else {
        Finding::limited(
            "lock owners",
            format!("not there: {}", lost.join("; ")),
            "CONFIG_DETECT_HUNG_TASK_BLOCKER (since Linux 6.16) has them",
        )
    });
    findings.push(if btf.has_function("bpf_get_kmem_cache") {
        Finding::good("lock names", "locks are named by the memory that they are in")
    } else {
        Finding::limited(
            "lock names",
            "no bpf_get_kmem_cache: file systems' buffers and inodes, address spaces and global locks are named, others by the function that waits",
            "kernels since Linux 6.13 have it",
        )
    });
    findings.push(clock());
    findings.push(functions());
    match self_test() {
        Ok(test) => {
            findings.push(Finding::good(
                "self-test",
                format!(
                    "a sleep of {:.1} ms was seen as {:.1} ms; started in {:.0} ms",
                    test.slept.as_secs_f64() * 1e3,
                    test.seen.as_secs_f64() * 1e3,
                    test.started.as_secs_f64() * 1e3
                ),
            ));
            if test.unseen_switches > 0 {
                let what = format!(
                    "{} switches of the self-test's 80 ms were not shown: this kernel hides a task and all that happens while it runs; \
                     such times count as unknown",
                    test.unseen_switches
                );
                findings.push(Finding::limited("hidden tasks", what, ""));
            }
        }
        Err(e) => findings.push(Finding::missing("self-test", e.to_string(), "")),
    }
    findings
}

/// The kernel describes its types; whether the file systems that are modules do, too.
fn types_of_modules() -> Finding {
    let silent: Vec<String> = machine::modules()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| MODULES.contains(&name.as_str()))
        .filter(|name| !Path::new(&format!("/sys/kernel/btf/{name}")).exists())
        .collect();
    if silent.is_empty() {
        return Finding::good("kernel types", "the kernel describes its types (BTF)");
    }
    Finding::limited(
        "kernel types",
        format!(
            "not described: modules {}: their locks are named by who waits, without object",
            silent.join(", ")
        ),
        "use modules built with CONFIG_DEBUG_INFO_BTF_MODULES for exactly this kernel",
    )
}

fn capabilities() -> Finding {
    let name = "capabilities";
    let effective = fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|s| s.lines().find_map(|l| l.strip_prefix("CapEff:").map(|v| v.trim().to_owned())))
        .and_then(|v| u64::from_str_radix(&v, 16).ok())
        .unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 != 0;
    let admin = has(21);
    let needed = [(39, "CAP_BPF"), (38, "CAP_PERFMON")];
    let lacking: Vec<&str> = needed.iter().filter(|(b, _)| !has(*b) && !admin).map(|(_, n)| *n).collect();
    if !lacking.is_empty() {
        return Finding::missing(
            name,
            format!(
                "{} not granted: causes cannot be captured, throughput can be measured",
                lacking.join(", ")
            ),
            "run as root, or `setcap cap_bpf,cap_perfmon,cap_sys_admin,cap_syslog,cap_sys_ptrace+ep` on the binary",
        );
    }
    let useful = [
        (21, "CAP_SYS_ADMIN", "types of modules and file systems made for a run"),
        (34, "CAP_SYSLOG", "names of kernel functions"),
        (19, "CAP_SYS_PTRACE", "names of other users' functions"),
    ];
    let lacking: Vec<String> =
        useful.iter().filter(|(b, _, _)| !has(*b)).map(|(_, n, what)| format!("{n} ({what})")).collect();
    if lacking.is_empty() {
        return Finding::good(name, "all that are used are granted");
    }
    Finding::limited(
        name,
        format!("not granted: {}", lacking.join(", ")),
        "run as root, or add them with setcap",
    )
}

fn lockdown() -> Finding {
    let state = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let mode = state.split(['[', ']']).nth(1).unwrap_or("none");
    match mode {
        "confidentiality" => Finding::missing(
            "lockdown",
            "the kernel is locked down (confidentiality): programs may not read kernel memory",
            "boot with lockdown=integrity or none, or without Secure Boot",
        ),
        mode => Finding::good("lockdown", format!("lockdown: {mode}")),
    }
}

fn symbols() -> Finding {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    match KernelSymbols::read() {
        Ok(symbols) => Finding::good("kernel symbols", format!("{} functions are known", symbols.len())),
        Err(e) => Finding::limited(
            "kernel symbols",
            format!("{e}; kptr_restrict is {}: kernel stacks have no names", read("kptr_restrict").trim()),
            "sysctl kernel.kptr_restrict=0, or CAP_SYSLOG with kptr_restrict=1",
        ),
    }
}

fn clock() -> Finding {
    match sys::open_cpu_clock(0, 99) {
        Ok(_) => Finding::good("sampling", "running code can be sampled (perf cpu-clock)"),
        Err(e) => Finding::limited(
            "sampling",
            format!("running code cannot be sampled ({e}): no user, system and spinning time of captures"),
            "CAP_PERFMON, or sysctl kernel.perf_event_paranoid=-1",
        ),
    }
}

fn functions() -> Finding {
    match loader::fentry_allowed() {
        Ok(()) => Finding::good(
            "function probes",
            "programs at functions (fentry) would be allowed; they are not needed",
        ),
        Err(e) => Finding::good(
            "function probes",
            format!("programs at functions (fentry) are refused ({e}); tracepoints alone are used"),
        ),
    }
}

/// What the self-test saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfTest {
    /// How long the sleeper slept by its own clock.
    pub slept: Duration,
    /// How long the capture saw it blocked.
    pub seen: Duration,
    /// How long the capture took to start.
    pub started: Duration,
    /// Switches that the kernel did not show meanwhile.
    pub unseen_switches: u64,
}

/// Captures a thread that sleeps for a known time, and checks that this sleep is seen where and as long as it was.
///
/// # Errors
/// What starting a capture fails with, and [`Error::Bpf`] if the sleep was not seen or had another length.
pub fn self_test() -> Result<SelfTest, Error> {
    const SLEEP_NS: u64 = 20_000_000;
    const SLEEPS: usize = 4;
    let what = "the self-test (a thread that sleeps 20 ms)";
    let begin = sys::monotonic_ns();
    let capture = Capture::start(Options {
        sample_hz: 0,
        event_bytes_per_cpu: 1 << 20,
        stack_bytes_per_cpu: 1 << 20,
        ..Options::default()
    })?;
    let started = sys::monotonic_ns() - begin;
    // more than once: the kernel may hide a task that runs before or after it
    let sleeper = std::thread::spawn(|| {
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let sleeps: Vec<(u64, u64)> = (0..SLEEPS)
            .map(|_| {
                let from = sys::monotonic_ns();
                std::thread::sleep(Duration::from_nanos(SLEEP_NS));
                (from, sys::monotonic_ns())
            })
            .collect();
        (tid, sleeps)
    });
    let (tid, sleeps) = sleeper.join().map_err(|_| Error::Reader)?;
    let captured = capture.stop()?;
    let fail = |why: String| Error::Bpf { what: what.into(), why };
    let trace = captured.trace.ok_or(Error::Reader)?;
    let mut out = None;
    let mut waits: Vec<(u64, u64)> = Vec::new();
    for event in trace.events() {
        let is = |id| trace.tables().task(id).is_some_and(|t| t.tid == tid);
        if let Kind::Switch { prev, next, prev_state, preempt, .. } = event.kind {
            if is(prev) && !preempt && prev_state == TaskState::Interruptible {
                out = Some(event.time.0);
            } else if is(next)
                && let Some(out) = out.take()
            {
                waits.push((out, event.time.0));
            }
        }
    }
    // What holds however late a hypervisor lets the thread go to sleep and go on: it left its CPU after its first stamp, did not get
    // one before its time was over, and got it before its second stamp.
    let is_of = |(out, back): (u64, u64), (from, until): (u64, u64)| {
        out >= from && back >= from + SLEEP_NS && back <= until && back - out >= SLEEP_NS / 2
    };
    let found =
        sleeps.iter().find_map(|s| waits.iter().find(|w| is_of(**w, *s)).map(|w| (s.1 - s.0, w.1 - w.0)));
    let ns = Duration::from_nanos;
    match found {
        Some((slept, seen)) => Ok(SelfTest {
            slept: ns(slept),
            seen: ns(seen),
            started: ns(started),
            unseen_switches: captured.report.unseen_switches,
        }),
        None if waits.is_empty() => {
            Err(fail("it was not seen; the capture does not work on this kernel".into()))
        }
        None => Err(fail(format!("it slept {sleeps:?} and was seen blocked {waits:?} (ns, from and until)"))),
    }
}
