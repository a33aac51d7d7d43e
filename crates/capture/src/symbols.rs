//! Names of addresses: of the kernel from kallsyms alone (there may be no kcore and no image), of user code from the files that were
//! mapped when a process was seen.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};

/// The kernel's functions by address.
pub struct KernelSymbols {
    /// Sorted by address.
    functions: Vec<(u64, Box<str>, u16)>,
    modules: Vec<Box<str>>,
    /// Other symbols: where a global lock is.
    data: Vec<(u64, Box<str>)>,
    sched_text: (u64, u64),
}

impl KernelSymbols {
    /// Reads /proc/kallsyms.
    ///
    /// # Errors
    /// What reading fails with; PermissionDenied if the kernel hides all addresses.
    pub fn read() -> io::Result<KernelSymbols> {
        let symbols = KernelSymbols::parse(&fs::read("/proc/kallsyms")?);
        if symbols.functions.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the kernel hides its addresses (kernel.kptr_restrict, CAP_SYSLOG)",
            ));
        }
        Ok(symbols)
    }

    /// None known: all addresses stay numbers.
    pub fn none() -> KernelSymbols {
        KernelSymbols { functions: Vec::new(), modules: Vec::new(), data: Vec::new(), sched_text: (0, 0) }
    }

    /// From the text of /proc/kallsyms: `address type name [module]` a line.
    pub fn parse(text: &[u8]) -> KernelSymbols {
        let mut symbols = KernelSymbols::none();
        let mut module_index: HashMap<Box<str>, u16> = HashMap::new();
        for line in text.split(|b| *b == b'\n') {
            let Ok(line) = std::str::from_utf8(line) else { continue };
            let mut fields = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if address == 0 {
                continue;
            }
            match name {
                "__sched_text_start" => symbols.sched_text.0 = address,
                "__sched_text_end" => symbols.sched_text.1 = address,
                _ => {}
            }
            if matches!(kind, "t" | "T" | "w" | "W") {
                let module = match fields.next() {
                    None => 0,
                    Some(m) => {
                        let m = m.trim_matches(['[', ']']);
                        match module_index.get(m) {
                            Some(i) => *i,
                            None => {
                                symbols.modules.push(m.into());
                                let i = symbols.modules.len() as u16;
                                module_index.insert(m.into(), i);
                                i
                            }
                        }
                    }
                };
                symbols.functions.push((address, name.into(), module));
            } else {
                symbols.data.push((address, name.into()));
            }
        }
        // of several names for an address the first one stays
        symbols.functions.sort_by_key(|f| f.0);
        symbols.functions.dedup_by_key(|f| f.0);
        symbols.data.sort_by_key(|f| f.0);
        symbols
    }

    /// The function at an address, and the module that it is in.
    pub fn function(&self, address: u64) -> Option<(&str, Option<&str>)> {
        self.function_at(address).map(|f| (f.0, f.1))
    }

    /// The function at an address, its module, and how far behind the function's begin the address is.
    pub fn function_at(&self, address: u64) -> Option<(&str, Option<&str>, u64)> {
        let i = self.functions.partition_point(|f| f.0 <= address).checked_sub(1)?;
        let (start, name, module) = &self.functions[i];
        // beyond the last function, or in a hole between the kernel and its modules
        if address - start > 16 << 20 {
            return None;
        }
        let module = usize::from(*module).checked_sub(1).and_then(|m| self.modules.get(m));
        Some((name, module.map(|m| &**m), address - start))
    }

    /// The global variable that an address is in.
    pub fn variable(&self, address: u64) -> Option<&str> {
        let i = self.data.partition_point(|f| f.0 <= address).checked_sub(1)?;
        let (start, name) = &self.data[i];
        (address - start < 4096 && !name.starts_with("__ksymtab") && !name.starts_with("__kstrtab"))
            .then_some(name)
    }

    /// Whether an address is in the scheduler's and the sleeping locks' own functions, which the kernel leaves out of the stacks of
    /// sleeping tasks.
    pub fn is_sched_text(&self, address: u64) -> bool {
        self.sched_text.0 <= address && address < self.sched_text.1
    }

    /// How many functions are known.
    pub fn len(&self) -> usize {
        self.functions.len()
    }
}

/// Functions of the tracer itself: they are the leaf of stacks that a program takes of its own task.
pub fn is_tracer_frame(name: &str) -> bool {
    const PREFIXES: [&str; 9] = [
        "bpf_prog_",
        "bpf_trace_run",
        "__bpf_trace_",
        "bpf_trampoline_",
        "__bpf_prog_",
        "bpf_get_stack",
        "bpf_dispatcher_",
        "__traceiter_",
        "__probestub_",
    ];
    PREFIXES.iter().any(|p| name.starts_with(p))
}

/// A mapping of a file, or of anonymous memory, in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub inode: u64,
    pub shared: bool,
    /// The file; empty if there is none.
    pub path: Arc<str>,
}

/// The mappings of a process at a moment.
#[derive(Clone, Debug)]
pub struct ProcessMaps {
    pub tgid: u32,
    /// Its number where it was read, and where it would write a map of compiled code.
    own: u32,
    pub mappings: Vec<Mapping>,
    /// Code that was compiled at run time, by /tmp/perf-PID.map: start, length, name.
    jit: OnceLock<Vec<(u64, u64, Box<str>)>>,
    /// Through which the process's files can be opened if its mount namespace is not ours.
    root: Option<PathBuf>,
}

impl ProcessMaps {
    /// Reads the mappings of a process, which has the number `own` in /proc.
    ///
    /// # Errors
    /// What reading /proc/PID/maps fails with: it is gone, or not ours (CAP_SYS_PTRACE).
    pub fn read(tgid: u32, own: u32) -> io::Result<ProcessMaps> {
        let text = fs::read_to_string(format!("/proc/{own}/maps"))?;
        static OURS: OnceLock<Option<PathBuf>> = OnceLock::new();
        let ours = OURS.get_or_init(|| fs::read_link("/proc/self/ns/mnt").ok());
        let theirs = fs::read_link(format!("/proc/{own}/ns/mnt")).ok();
        let root = (*ours != theirs).then(|| PathBuf::from(format!("/proc/{own}/root")));
        Ok(ProcessMaps { tgid, own, mappings: parse_maps(&text), jit: OnceLock::new(), root })
    }

    /// The function at an address that was compiled at run time.
    fn compiled(&self, address: u64) -> Option<Named> {
        let jit = self.jit.get_or_init(|| {
            let text = fs::read_to_string(format!("/tmp/perf-{}.map", self.own));
            text.map(|t| parse_perf_map(&t)).unwrap_or_default()
        });
        let (start, length, name) = &jit[jit.partition_point(|j| j.0 <= address).checked_sub(1)?];
        (address - start < *length).then(|| ((**name).into(), address - start))
    }

    /// The mapping that an address is in.
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let i = self.mappings.partition_point(|m| m.end <= address);
        self.mappings.get(i).filter(|m| m.start <= address)
    }
}

/// Parses /proc/PID/maps.
pub fn parse_maps(text: &str) -> Vec<Mapping> {
    let mut known: HashMap<&str, Arc<str>> = HashMap::new();
    text.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(6, ' ');
            let (start, end) = fields.next()?.split_once('-')?;
            let mode = fields.next()?;
            let offset = fields.next()?;
            let _device = fields.next()?;
            let inode = fields.next()?;
            let path = fields.next().unwrap_or("").trim_start();
            Some(Mapping {
                start: u64::from_str_radix(start, 16).ok()?,
                end: u64::from_str_radix(end, 16).ok()?,
                offset: u64::from_str_radix(offset, 16).ok()?,
                inode: inode.parse().ok()?,
                shared: mode.as_bytes().get(3) == Some(&b's'),
                path: known.entry(path).or_insert_with(|| path.into()).clone(),
            })
        })
        .collect()
}

/// Parses a map that a just-in-time compiler wrote for perf: `start length name` a line, numbers in hexadecimal.
fn parse_perf_map(text: &str) -> Vec<(u64, u64, Box<str>)> {
    let mut jit: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ' ');
            let start = u64::from_str_radix(fields.next()?.trim_start_matches("0x"), 16).ok()?;
            let length = u64::from_str_radix(fields.next()?, 16).ok()?;
            Some((start, length, fields.next()?.into()))
        })
        .collect();
    jit.sort_by_key(|j| j.0);
    jit
}

/// A file and an offset in it.
type Place = (Arc<str>, u64);
/// A function's name, and how far behind its begin an address is.
type Named = (Rc<str>, u64);

/// Names of user functions, by file and offset.
pub struct UserSymbols {
    symbolizer: Symbolizer,
    /// By file and offset in it; what is not found is remembered, too.
    names: RefCell<HashMap<Place, Option<Named>>>,
}

impl UserSymbols {
    /// No file is opened before the first address.
    pub fn new() -> UserSymbols {
        let symbolizer = Symbolizer::builder()
            .enable_code_info(false)
            .enable_inlined_fns(false)
            .enable_auto_reload(false)
            .build();
        UserSymbols { symbolizer, names: RefCell::default() }
    }

    /// The function at an address of a process with the distance from its begin, and the last part of the name of the file that it
    /// is in.
    pub fn function(&self, maps: &ProcessMaps, address: u64) -> (Option<Named>, Option<String>) {
        let Some(mapping) = maps.find(address) else { return (None, None) };
        if mapping.path.is_empty() || mapping.path.starts_with("//anon") {
            return (maps.compiled(address), None);
        }
        let file = Path::new(&*mapping.path).file_name().map(|f| f.to_string_lossy().into_owned());
        if !mapping.path.starts_with('/') {
            let name = (!mapping.path.is_empty()).then(|| mapping.path.to_string());
            return (None, name);
        }
        let offset = address - mapping.start + mapping.offset;
        let key = (mapping.path.clone(), offset);
        if let Some(known) = self.names.borrow().get(&key) {
            return (known.clone(), file);
        }
        let path = match &maps.root {
            Some(root) => root.join(mapping.path.trim_start_matches('/')),
            None => PathBuf::from(&*mapping.path),
        };
        let mut name = self.look_up(&path, offset);
        if name.is_none() && maps.root.is_some() {
            // the process may be gone; the same path is often the same file here
            name = self.look_up(Path::new(&*mapping.path), offset);
        }
        self.names.borrow_mut().insert(key, name.clone());
        (name, file)
    }

    fn look_up(&self, path: &Path, offset: u64) -> Option<Named> {
        // a device or a pipe would block or fail in odd ways
        if !fs::metadata(path).is_ok_and(|m| m.is_file()) {
            return None;
        }
        let look = |debug_syms| {
            let mut elf = Elf::new(path);
            elf.debug_syms = debug_syms;
            self.symbolizer.symbolize_single(&Source::Elf(elf), Input::FileOffset(offset))
        };
        // debug information that cannot be read must not hide the symbols beside it
        let found = look(true).or_else(|_| look(false)).ok()?;
        found.into_sym().map(|s| (Rc::from(&*s.name), s.offset as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "\
ffffffff81000000 T startup_64
ffffffff81000100 t do_thing
ffffffff81000100 t alias_of_thing
ffffffff81002000 T __sched_text_start
ffffffff81002010 t schedule
ffffffff81003000 T __sched_text_end
ffffffff82000000 d a_global_lock
ffffffffc0000000 t xfs_read_agi\t[xfs]
";

    #[test]
    fn kernel_addresses_get_the_function_before_them_and_its_module() {
        let symbols = KernelSymbols::parse(KALLSYMS.as_bytes());
        assert_eq!(symbols.function(0xffffffff81000105), Some(("do_thing", None)));
        assert_eq!(symbols.function(0xffffffffc0000010), Some(("xfs_read_agi", Some("xfs"))));
        assert_eq!(symbols.function(0x1000), None);
        assert_eq!(symbols.variable(0xffffffff82000008), Some("a_global_lock"));
        assert!(symbols.is_sched_text(0xffffffff81002015));
        assert!(!symbols.is_sched_text(0xffffffff81000105));
    }

    #[test]
    fn hidden_addresses_give_no_symbols() {
        let symbols = KernelSymbols::parse(b"0000000000000000 T startup_64\n");
        assert_eq!(symbols.len(), 0);
    }

    #[test]
    fn maps_are_read_with_paths_that_contain_blanks() {
        let text = "\
5581e000-5581f000 r-xp 00001000 fe:00 1234 /tmp/a file
7f000000-7f001000 rw-s 00000000 00:05 77 /dev/shm/x
7ffe0000-7fff0000 rw-p 00000000 00:00 0                          [stack]
";
        let maps = parse_maps(text);
        assert_eq!(maps.len(), 3);
        assert_eq!(&*maps[0].path, "/tmp/a file");
        assert_eq!((maps[0].offset, maps[0].inode, maps[0].shared), (0x1000, 1234, false));
        assert!(maps[1].shared);
        assert_eq!(&*maps[2].path, "[stack]");
    }

    #[test]
    fn our_own_functions_are_found_in_our_own_binary() {
        let maps =
            ProcessMaps::read(std::process::id(), std::process::id()).expect("our own maps are readable");
        let address = our_own_functions_are_found_in_our_own_binary as *const () as usize as u64;
        let symbols = UserSymbols::new();
        let (name, file) = symbols.function(&maps, address);
        assert!(name.is_some_and(|n| n.0.contains("our_own_functions_are_found")));
        assert!(file.is_some_and(|f| f.starts_with("capture")));
    }

    #[test]
    fn compiled_code_is_named_by_its_perf_map() {
        let jit = parse_perf_map("1000 20 js:outer\n0x2000 10 js inner with blanks\nbroken\n");
        assert_eq!(jit.len(), 2);
        assert_eq!(&*jit[1].2, "js inner with blanks");
    }
}
