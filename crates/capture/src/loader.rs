//! Opens, sizes, loads and attaches the BPF programs.

use std::collections::VecDeque;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::sync::{Arc, Mutex, OnceLock};

use libbpf_rs::{Iter, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, PrintLevel};

use crate::btf::Btf;
use crate::error::Error;
use crate::layout::{CpuArea, FsLayout, RawBig, RawEvent, RawOptions};
use crate::sys::{self, SharedArray};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/capture.bpf.o"));

/// Tracepoints without which there is no capture.
pub const REQUIRED: [&str; 5] =
    ["sched_switch", "sched_waking", "sched_process_fork", "sched_process_exec", "sched_process_exit"];

/// Programs that are only loaded if their tracepoint exists, and what is lost without.
pub const OPTIONAL: [(&str, &str, &str); 20] = [
    ("on_contention_begin", "contention_begin", "waits for locks"),
    ("on_contention_end", "contention_end", "waits for locks"),
    ("on_rename", "task_rename", "new names of threads"),
    ("on_irq_handler_entry", "irq_handler_entry", "interrupts"),
    ("on_irq_handler_exit", "irq_handler_exit", "interrupts"),
    ("on_softirq_entry", "softirq_entry", "interrupts"),
    ("on_softirq_exit", "softirq_exit", "interrupts"),
    ("on_local_timer_entry", "local_timer_entry", "interrupts"),
    ("on_local_timer_exit", "local_timer_exit", "interrupts"),
    ("on_call_function_entry", "call_function_entry", "interrupts"),
    ("on_call_function_exit", "call_function_exit", "interrupts"),
    ("on_call_function_single_entry", "call_function_single_entry", "interrupts"),
    ("on_call_function_single_exit", "call_function_single_exit", "interrupts"),
    ("on_irq_work_entry", "irq_work_entry", "interrupts"),
    ("on_irq_work_exit", "irq_work_exit", "interrupts"),
    ("on_work", "workqueue_execute_start", "what kernel workers do"),
    ("on_work_end", "workqueue_execute_end", "what kernel workers do"),
    ("on_rq_complete", "block_rq_complete", DEVICES),
    ("on_queue_work", "workqueue_queue_work", DEVICES),
    ("on_sample", "", ""),
];
const DEVICES: &str = "devices of waits for I/O";

/// What the programs are to be loaded with.
pub struct Plan {
    pub options: RawOptions,
    pub events_per_cpu: usize,
    pub bigs_per_cpu: usize,
    pub cpus: usize,
    pub sample_hz: u32,
    pub interrupts: bool,
    pub work: bool,
    pub contention: bool,
    pub waking: bool,
    pub xfs_detail: bool,
    /// Completions of requests to block devices; takes interrupts and work.
    pub io: bool,
    pub names: bool,
}

/// The programs, loaded; they run from `attach` on.
pub struct Loaded {
    object: Object,
    links: Vec<Link>,
    pub areas: Arc<SharedArray<CpuArea>>,
    pub events: Arc<SharedArray<RawEvent>>,
    pub bigs: Arc<SharedArray<RawBig>>,
    pub cpus: usize,
    pub events_per_cpu: usize,
    pub bigs_per_cpu: usize,
    /// What could not be attached, though it was wanted.
    pub missing: Vec<String>,
    /// Whether buffer locks of XFS are seen taken and released, if that was wanted.
    pub xfs_detail: bool,
}

/// Tells the programs where members of file systems' structures are. On its own, since modules come while a capture runs.
pub struct Layouts {
    map: MapHandle,
    now: FsLayout,
}

impl Layouts {
    /// Whether XFS is there.
    pub fn has_xfs(&self) -> bool {
        self.now.xfs_valid != 0
    }

    /// From now on they are there.
    ///
    /// # Errors
    /// If the map cannot be written.
    pub fn set(&mut self, layout: FsLayout) -> Result<(), Error> {
        self.now = layout;
        self.map
            .update(sys::bytes_of(&0u32), sys::bytes_of(&self.now), MapFlags::ANY)
            .map_err(|e| bpf_error("describing file systems", &e))
    }
}

/// The last words of libbpf, to be quoted if something fails.
fn words() -> &'static Mutex<VecDeque<String>> {
    static WORDS: OnceLock<Mutex<VecDeque<String>>> = OnceLock::new();
    WORDS.get_or_init(|| Mutex::new(VecDeque::new()))
}

fn remember(_: PrintLevel, text: String) {
    // its advice about RLIMIT_MEMLOCK follows any EPERM and is wrong on kernels that charge BPF memory to control groups
    if text.contains("RLIMIT_MEMLOCK") || text.contains("ulimit") {
        return;
    }
    if let Ok(mut words) = words().lock() {
        if words.len() >= 40 {
            words.pop_front();
        }
        words.push_back(text.trim_end().to_owned());
    }
}

fn last_words() -> String {
    let Ok(mut words) = words().lock() else { return String::new() };
    let text: Vec<String> = words.drain(..).filter(|w| !w.is_empty()).collect();
    let start = text.len().saturating_sub(6);
    text[start..].join(" | ")
}

/// Translates a failure of libbpf.
fn bpf_error(what: &str, error: &libbpf_rs::Error) -> Error {
    use libbpf_rs::ErrorKind;
    let words = last_words();
    if error.kind() == ErrorKind::PermissionDenied && !words.contains("BEGIN PROG LOAD LOG") {
        return Error::NotAllowed {
            what: what.to_owned(),
            remedy: "run as root, or grant CAP_BPF, CAP_PERFMON and CAP_SYS_RESOURCE to the binary (setcap cap_bpf,cap_perfmon,cap_sys_resource,cap_syslog,cap_sys_ptrace+ep); `perfloss doctor` says more".into(),
        };
    }
    let why = if words.is_empty() { format!("{error}") } else { format!("{error} ({words})") };
    Error::Bpf { what: what.to_owned(), why }
}

/// Whether this kernel lets programs be attached to functions.
///
/// # Errors
/// What loading one fails with.
pub fn fentry_allowed() -> Result<(), Error> {
    libbpf_rs::set_print(Some((PrintLevel::Warn, remember)));
    let what = "loading a program at a function";
    let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(|e| bpf_error(what, &e))?;
    for mut prog in open.progs_mut() {
        let probe = prog.name() == "probe_fentry";
        prog.set_autoload(probe);
    }
    let loaded = open.load();
    last_words();
    match loaded {
        Ok(_) => Ok(()),
        Err(e) => Err(Error::Bpf { what: what.into(), why: e.to_string() }),
    }
}

impl Loaded {
    /// Loads the programs. Nothing is traced before [`Loaded::attach`].
    ///
    /// # Errors
    /// [`Error::NotAllowed`] without the capabilities, [`Error::Unsupported`] without BTF or the scheduler's tracepoints.
    pub fn load(btf: &Btf, mut plan: Plan) -> Result<(Loaded, Plan), Error> {
        libbpf_rs::set_print(Some((PrintLevel::Warn, remember)));
        let names: Vec<&str> = REQUIRED.into_iter().chain(OPTIONAL.iter().map(|o| o.1)).collect();
        let exist = btf.tracepoints(&names);
        if let Some(i) = exist[..REQUIRED.len()].iter().position(|e| !e) {
            return Err(Error::Unsupported {
                missing: format!("it has no tracepoint {}", REQUIRED[i]),
                remedy: "use a kernel built with CONFIG_TRACEPOINTS and CONFIG_DEBUG_INFO_BTF".into(),
            });
        }
        let mut missing = Vec::new();
        let open_error = |e: libbpf_rs::Error| bpf_error("opening the BPF programs", &e);
        let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(open_error)?;

        let irq = plan.interrupts
            && ["irq_handler_entry", "softirq_entry", "local_timer_entry"]
                .iter()
                .all(|t| btf.has_tracepoint(t));
        plan.options.irq_known = u8::from(irq);
        plan.options.pid_ns = crate::machine::pid_namespace().unwrap_or(0);
        let io = plan.io && irq && plan.work && btf.has_tracepoint("block_rq_complete");
        plan.options.io_known = u8::from(io);
        plan.options.switch_has_state =
            u8::from(btf.tracepoint_arguments("sched_switch").is_some_and(|n| n >= 4));

        for mut prog in open.progs_mut() {
            let name = prog.name().to_string_lossy().into_owned();
            let optional = OPTIONAL.iter().position(|o| o.0 == name);
            let exists = optional.is_none_or(|i| OPTIONAL[i].1.is_empty() || exist[REQUIRED.len() + i]);
            let wanted = match name.as_str() {
                "on_contention_begin" | "on_contention_end" => plan.contention,
                "on_waking" => plan.waking,
                "on_rename" | "on_exec" => plan.names,
                "on_sample" => plan.sample_hz > 0,
                "probe_fentry" => false,
                "on_work" | "on_work_end" => plan.work,
                "on_rq_complete" | "on_queue_work" => plan.io && irq && plan.work,
                n if n.starts_with("on_xfs") => plan.xfs_detail,
                n if optional.is_some_and(|i| OPTIONAL[i].2 == "interrupts") => {
                    debug_assert!(!n.is_empty());
                    irq
                }
                _ => true,
            };
            if wanted
                && !exists
                && let Some(i) = optional
            {
                missing.push(format!("no tracepoint {}: {} are not seen", OPTIONAL[i].1, OPTIONAL[i].2));
            }
            prog.set_autoload(wanted && exists);
        }
        plan.options.event_mask = (plan.events_per_cpu - 1) as u32;
        plan.options.big_mask = (plan.bigs_per_cpu - 1) as u32;
        let mut options_set = false;
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let entries = match name.as_str() {
                "areas" => plan.cpus,
                "events" => plan.cpus * plan.events_per_cpu,
                "bigs" => plan.cpus * plan.bigs_per_cpu,
                n if n.ends_with(".rodata") => {
                    let Some(value) = map.initial_value_mut() else { continue };
                    let bytes = sys::bytes_of(&plan.options);
                    if value.len() != bytes.len() {
                        return Err(Error::Bpf {
                            what: "setting the options".into(),
                            why: format!("{} bytes, not {}", value.len(), bytes.len()),
                        });
                    }
                    value.copy_from_slice(bytes);
                    options_set = true;
                    continue;
                }
                _ => continue,
            };
            map.set_max_entries(entries as u32).map_err(open_error)?;
        }
        if !options_set {
            return Err(Error::Bpf { what: "setting the options".into(), why: "no section for them".into() });
        }
        let object = open.load().map_err(|e| bpf_error("loading the BPF programs", &e))?;
        let mapped = |name: &str| {
            object.maps().find(|m| m.name() == name).ok_or_else(|| Error::Bpf {
                what: "mapping the buffers".into(),
                why: format!("no map {name}"),
            })
        };
        let shared_error = |e| Error::io("mapping the buffers", e);
        let areas = SharedArray::new(mapped("areas")?.as_fd(), plan.cpus).map_err(shared_error)?;
        let events = SharedArray::new(mapped("events")?.as_fd(), plan.cpus * plan.events_per_cpu)
            .map_err(shared_error)?;
        let bigs =
            SharedArray::new(mapped("bigs")?.as_fd(), plan.cpus * plan.bigs_per_cpu).map_err(shared_error)?;
        for cpu in 0..plan.cpus {
            let seed = (cpu as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            areas.write(cpu, CpuArea { shift: plan.options.base_shift, rand: seed, ..CpuArea::default() });
        }
        let loaded = Loaded {
            links: Vec::new(),
            areas: Arc::new(areas),
            events: Arc::new(events),
            bigs: Arc::new(bigs),
            cpus: plan.cpus,
            events_per_cpu: plan.events_per_cpu,
            bigs_per_cpu: plan.bigs_per_cpu,
            missing,
            xfs_detail: true,
            object,
        };
        Ok((loaded, plan))
    }

    /// Attaches all programs: from now on events are recorded.
    ///
    /// # Errors
    /// If a program that cannot be done without is refused.
    pub fn attach(&mut self, sample_hz: u32) -> Result<(), Error> {
        let mut links = Vec::new();
        let mut missing = Vec::new();
        for prog in self.object.progs_mut() {
            let name = prog.name().to_string_lossy().into_owned();
            let section = prog.section().to_string_lossy().into_owned();
            if !prog.autoload() || section.starts_with("iter") || section == "perf_event" {
                continue;
            }
            match prog.attach() {
                Ok(link) => links.push(link),
                // XFS is not there, or not yet
                Err(_) if section.starts_with("raw_tp") => self.xfs_detail = false,
                Err(e) => return Err(bpf_error(&format!("attaching {name}"), &e)),
            }
        }
        if sample_hz > 0
            && let Some(prog) = self.object.progs_mut().find(|p| p.name() == "on_sample")
        {
            for cpu in crate::machine::online_cpus() {
                match sys::open_cpu_clock(u32::from(cpu), sample_hz) {
                    Ok(fd) => {
                        // the link closes the descriptor
                        let link = prog
                            .attach_perf_event(fd.into_raw_fd())
                            .map_err(|e| bpf_error("attaching the sampling clock", &e))?;
                        links.push(link);
                    }
                    Err(e) => {
                        missing.push(format!("no samples of running code on CPU {cpu}: {e}"));
                        break;
                    }
                }
            }
        }
        self.links.append(&mut links);
        self.missing.append(&mut missing);
        Ok(())
    }

    /// Runs one of the task iterators and returns what it wrote.
    ///
    /// # Errors
    /// If it cannot be created or read.
    pub fn iterate(&self, program: &str) -> Result<Vec<u8>, Error> {
        let what = "reading the tasks";
        let prog = self
            .object
            .progs_mut()
            .find(|p| p.name() == program)
            .ok_or_else(|| Error::Bpf { what: what.into(), why: format!("no program {program}") })?;
        let link = prog.attach().map_err(|e| bpf_error(what, &e))?;
        let iter = Iter::new(&link).map_err(|e| bpf_error(what, &e))?;
        sys::read_iterator(iter).map_err(|e| Error::io(what, e))
    }

    /// Where the programs look up file systems' structures.
    ///
    /// # Errors
    /// If the map cannot be had.
    pub fn layouts(&self) -> Result<Layouts, Error> {
        let map = self
            .object
            .maps()
            .find(|m| m.name() == "layouts")
            .ok_or_else(|| Error::Bpf { what: "describing file systems".into(), why: "no map".into() })?;
        let map = MapHandle::try_from(&map).map_err(|e| bpf_error("describing file systems", &e))?;
        Ok(Layouts { map, now: FsLayout::default() })
    }

    fn map(&self, name: &str, what: &str) -> Result<libbpf_rs::Map<'_>, Error> {
        let missing = || Error::Bpf { what: what.into(), why: format!("no map {name}") };
        self.object.maps().find(|m| m.name() == name).ok_or_else(missing)
    }

    /// Which threads or processes the filter lets through, by the kernel's ids.
    ///
    /// # Errors
    /// If the map cannot be written.
    pub fn set_wanted(&self, ids: &[u32]) -> Result<(), Error> {
        let what = "setting the filter";
        let map = self.map("wanted", what)?;
        ids.iter()
            .try_for_each(|id| map.update(sys::bytes_of(id), &[1], MapFlags::ANY))
            .map_err(|e| bpf_error(what, &e))
    }

    /// Gives a task its state in the kernel. If that fails, its waits have no stacks; the switches are counted.
    pub fn add_state(&self, tid: u32) {
        let Some(map) = self.object.maps().find(|m| m.name() == "tasks") else { return };
        let Ok(fd) = sys::open_task(tid) else { return };
        let empty = vec![0u8; map.value_size() as usize];
        let _ = map.update(&fd.as_raw_fd().to_ne_bytes(), &empty, MapFlags::ANY);
    }

    /// Events that were not seen because a program was interrupted by itself.
    pub fn recursion_misses(&self) -> u64 {
        self.object.progs_mut().filter(|p| p.autoload()).map(|p| sys::recursion_misses(p.as_fd())).sum()
    }

    /// Stops recording. What is in the rings stays there.
    pub fn detach(&mut self) {
        self.links.clear();
    }
}

/// Offsets within one CPU's area that the reader writes.
pub const TAIL: usize = offset_of!(CpuArea, tail);
pub const BIG_TAIL: usize = offset_of!(CpuArea, big_tail);
/// Offsets of the numbers by which records are published.
pub const EVENT_SEQ: usize = offset_of!(RawEvent, seq);
pub const BIG_SEQ: usize = offset_of!(RawBig, seq);

const _: () = assert!(size_of::<RawEvent>() == 32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{LockInfo, TaskSeed};

    /// The section of an ELF file that has this name.
    fn section<'a>(file: &'a [u8], name: &str) -> Option<&'a [u8]> {
        let u16_at = |at: usize| Some(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?) as usize);
        let u32_at = |at: usize| Some(u32::from_le_bytes(file.get(at..at + 4)?.try_into().ok()?) as usize);
        let u64_at = |at: usize| Some(u64::from_le_bytes(file.get(at..at + 8)?.try_into().ok()?) as usize);
        let (headers, size, count, names) = (u64_at(40)?, u16_at(58)?, u16_at(60)?, u16_at(62)?);
        let bounds = |i: usize| Some((u64_at(headers + i * size + 24)?, u64_at(headers + i * size + 32)?));
        let (strings, _) = bounds(names)?;
        (0..count).find_map(|i| {
            let at = strings + u32_at(headers + i * size)?;
            let (start, length) = bounds(i)?;
            let found = file.get(at..at + name.len() + 1)?.strip_suffix(&[0])? == name.as_bytes();
            found.then(|| file.get(start..start + length))?
        })
    }

    /// The programs and the reader must agree on every byte.
    #[test]
    fn the_records_of_the_programs_are_laid_out_as_the_reader_reads_them() {
        let btf = section(OBJECT, ".BTF").expect("compiled with -g");
        let btf = Btf::parse(btf.to_vec(), None).expect("clang wrote it");
        macro_rules! same {
            ($ours:ty, $theirs:literal, $($member:ident = $name:literal),+) => {{
                assert_eq!(btf.struct_size($theirs), Some(size_of::<$ours>() as u32), $theirs);
                $(assert_eq!(
                    btf.offset_of($theirs, $name),
                    Some(offset_of!($ours, $member) as u32),
                    concat!($theirs, ".", $name)
                );)+
            }};
        }
        same!(
            RawEvent,
            "event",
            ts = "ts",
            a = "a",
            tid = "tid",
            other = "other",
            seq = "seq",
            kind = "type",
            flags = "flags",
            x = "x"
        );
        same!(
            RawBig,
            "big",
            ts = "ts",
            a = "a",
            b = "b",
            tid = "tid",
            tgid = "tgid",
            seq = "seq",
            kind = "type",
            flags = "flags",
            frames = "frames",
            chance = "chance",
            state = "state",
            spare = "spare",
            comm = "comm",
            ip = "ip"
        );
        same!(
            LockInfo,
            "lock_info",
            address = "address",
            id = "id",
            extra = "extra",
            dev = "dev",
            mode = "mode",
            cache_size = "cache_size",
            cache_order = "cache_order",
            object = "object",
            flags = "flags",
            parts = "parts",
            path_full = "path_full",
            truncated = "truncated",
            extra_valid = "extra_valid",
            cache = "cache",
            words = "words",
            fs = "fs",
            sid = "sid",
            path = "path"
        );
        same!(
            CpuArea,
            "cpu_area",
            head = "ring.head",
            big_head = "ring.big_head",
            lost = "ring.lost",
            lost_since = "ring.lost_since",
            big_lost = "ring.big_lost",
            big_lost_ns = "ring.big_lost_ns",
            stack_errors = "ring.stack_errors",
            tail = "ring.tail",
            big_tail = "ring.big_tail",
            irq_depth = "state.irq_depth",
            shift = "state.shift",
            no_state = "state.no_state",
            truncated = "state.truncated",
            rand = "state.rand",
            unseen = "state.unseen",
            current = "state.current",
            known = "state.known",
            contexts = "state.contexts",
            io_depth = "state.io_depth",
            io_issued = "state.io.issued",
            io_done = "state.io.done",
            io_dev = "state.io.dev",
            io_op = "state.io.op"
        );
        same!(
            FsLayout,
            "fs_layout",
            xfs_valid = "xfs_valid",
            b_sema = "b_sema",
            b_block = "b_block",
            ops_name = "ops_name",
            eb_valid = "eb_valid",
            fs_info_sb = "fs_info_sb"
        );
        same!(
            TaskSeed,
            "task_seed",
            ts = "ts",
            start = "start",
            blocker = "blocker",
            futex = "futex",
            tid = "tid",
            tgid = "tgid",
            ptid = "ptid",
            state = "state",
            flags = "flags",
            cpu = "cpu",
            syscall = "syscall",
            futex_op = "futex_op",
            exit_state = "exit_state",
            own_tid = "own_tid",
            comm = "comm"
        );
        same!(
            RawOptions,
            "options",
            event_mask = "event_mask",
            want_events = "want_events",
            irq_known = "irq_known",
            kernel_stacks = "kernel_stacks",
            io_known = "io_known",
            base_shift = "base_shift",
            futex_nr = "futex_nr",
            filter = "filter",
            pid_ns = "pid_ns",
            min_ns = "min_ns",
            max_ns = "max_ns",
            state_mask = "state_mask"
        );
    }

    #[test]
    fn libbpfs_words_are_kept_short_and_its_memlock_advice_is_not_passed_on() {
        remember(PrintLevel::Warn, "libbpf: permission error; try raising 'ulimit -l'\n".into());
        remember(PrintLevel::Warn, "libbpf: real reason\n".into());
        assert!(!last_words().contains("ulimit"));
    }
}
