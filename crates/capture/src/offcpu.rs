//! Off-CPU time by stack: what bcc's offcputime measures, from the same programs as a capture, without its small events.
//!
//! A wait's time is taken whole. Stacks are taken of waits in proportion to their length: each of those of at least 131 us, of the
//! shorter ones a sample that stands for them all; nothing is hashed in the kernel, so that no stack can be lost to a collision.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::capture::{Report, kernel_types, losses, power_of_two, seeds};
use crate::error::Error;
use crate::layout::{self, RawBig, RawOptions, big, text};
use crate::loader::{Loaded, Plan};
use crate::machine;
use crate::reader::{self, Entry, Item, Note, OwnIds, RawStack, Reader, Rings, Store, Unfinished};
use crate::symbols::{KernelSymbols, UserSymbols, is_tracer_frame};
use crate::sys;

/// Whose time is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Whom {
    /// All threads.
    #[default]
    All,
    /// Threads of user processes.
    UserThreads,
    /// Kernel threads.
    KernelThreads,
    /// These processes.
    Processes(Vec<u32>),
    /// These threads.
    Threads(Vec<u32>),
}

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whose time.
    pub whom: Whom,
    /// By kernel stack.
    pub kernel: bool,
    /// By user stack.
    pub user: bool,
    /// Waits shorter or longer, in us, are left out.
    pub min_us: u64,
    /// The longest, in us.
    pub max_us: u64,
    /// Only waits that began in one of these states (a mask of the kernel's bits); 0: only runnable ones.
    pub state: Option<u64>,
    /// Frames of a stack, at most (and at most 127).
    pub max_frames: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            whom: Whom::All,
            kernel: true,
            user: true,
            min_us: 1,
            max_us: u64::MAX,
            state: None,
            max_frames: layout::MAX_FRAMES as u32,
        }
    }
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Where it returns to.
    pub address: u64,
    /// The function; none if it has no name.
    pub name: Option<String>,
    /// How far the address is behind the function's begin.
    pub offset: u64,
}

/// A stack, leaf first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stack {
    /// Not asked for, or there can be none (the user stack of a kernel thread).
    None,
    /// There was one, but it could not be had.
    Missed,
    /// Its frames, leaf first.
    Frames(Vec<Frame>),
}

/// Off-CPU time of one thread under one name and with the same stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// The thread's name.
    pub name: String,
    /// Kernel stack.
    pub kernel: Stack,
    /// User stack.
    pub user: Stack,
    /// The time in ns.
    pub ns: u64,
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Rows, least time first.
    pub rows: Vec<Row>,
    /// What was lost.
    pub report: Report,
    /// Whether the kernel's functions have names.
    pub named: bool,
}

/// A measurement that is running.
pub struct OffCpu {
    loaded: Option<Loaded>,
    options: Options,
    from: u64,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<(Reader, Sums, Unfinished)>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    tid: u32,
    tgid: u32,
    comm: [u8; layout::COMM_LEN],
    kernel: Option<RawStack>,
    user: Option<RawStack>,
    kernel_thread: bool,
    kernel_missed: bool,
}

/// Sums by stack, and what tasks left behind when they left their CPU.
#[derive(Default)]
struct Sums {
    store: Store,
    ns: HashMap<Key, u64>,
    out: HashMap<u32, Out>,
    /// Kernel stacks without the scheduler's own frames, as they are had of tasks that sleep.
    short: BTreeSet<RawStack>,
}

/// The stacks with which a task left its CPU, and when.
#[derive(Clone, Copy, Default)]
struct Out {
    ts: u64,
    kernel: Option<RawStack>,
    user: Option<RawStack>,
}

impl OffCpu {
    /// Starts to measure.
    ///
    /// # Errors
    /// As [`crate::Capture::start`].
    pub fn start(options: Options) -> Result<OffCpu, Error> {
        let btf = kernel_types()?;
        let (filter, wanted) = match &options.whom {
            Whom::All => (0, Vec::new()),
            Whom::Processes(ids) => (1, ids.clone()),
            Whom::Threads(ids) => (2, ids.clone()),
            Whom::UserThreads => (3, Vec::new()),
            Whom::KernelThreads => (4, Vec::new()),
        };
        let raw = RawOptions {
            want_events: 0,
            out_kernel_stacks: u8::from(options.kernel),
            out_user_stacks: u8::from(options.user),
            kernel_stacks: u8::from(options.kernel),
            user_stacks: u8::from(options.user),
            waker_stacks: 0,
            lock_waits_apart: 0,
            describe_locks: 0,
            max_frames: options.max_frames.clamp(1, layout::MAX_FRAMES as u32),
            filter,
            min_ns: options.min_us.saturating_mul(1000),
            max_ns: options.max_us.saturating_mul(1000).saturating_add(999),
            state_mask: options.state.map_or(-1, |s| i64::try_from(s).unwrap_or(i64::MAX)),
            ..RawOptions::default()
        };
        let bytes = (256 << 20) / machine::possible_cpus().max(1);
        let plan = Plan {
            options: raw,
            events_per_cpu: 64,
            bigs_per_cpu: power_of_two(bytes.clamp(512 << 10, 8 << 20), size_of::<RawBig>(), 64),
            cpus: machine::possible_cpus(),
            sample_hz: 0,
            interrupts: false,
            work: false,
            contention: false,
            waking: false,
            xfs_detail: false,
            io: false,
            names: true,
        };
        let (mut loaded, _) = Loaded::load(&btf, plan)?;
        loaded.attach(0)?;
        loaded.missing.extend(machine::pid_namespace_note());
        // gives every task its state; waits that are under way count from now on
        let seeds = seeds(&loaded)?;
        loaded.set_wanted(&machine::kernel_ids(&wanted, &seeds))?;
        let from = sys::monotonic_ns();
        let stop = Arc::new(AtomicBool::new(false));
        let mut reader = Reader::new(Rings::of(&loaded), 0, OwnIds::new(&seeds));
        let thread = thread::Builder::new()
            .name("perfloss-drain".into())
            .spawn({
                let stop = stop.clone();
                move || {
                    machine::set_nice(-10);
                    let mut sums = Sums::default();
                    let mut entries = Vec::new();
                    loop {
                        let last = stop.load(Ordering::SeqCst);
                        let (mut batch, unfinished) = match last {
                            true => reader.drain_rest(reader::PATIENCE),
                            false => (reader.drain(), Unfinished::default()),
                        };
                        sums.store.extend(&mut batch);
                        entries.append(&mut batch.entries);
                        entries.sort_by_key(|e: &Entry| e.ts);
                        // a record may be written a little after one of another CPU that is later
                        let safe = if last { u64::MAX } else { batch.safe.saturating_sub(5_000_000) };
                        let n = entries.partition_point(|e| e.ts <= safe);
                        entries.drain(..n).for_each(|e| sums.add(e));
                        if last {
                            return (reader, sums, unfinished);
                        }
                        let busy = reader.fullest() > 0.1;
                        thread::park_timeout(Duration::from_millis(if busy { 2 } else { 20 }));
                    }
                }
            })
            .map_err(|e| Error::io("starting the reader of the stacks", e))?;
        Ok(OffCpu { loaded: Some(loaded), options, from, stop, thread: Some(thread) })
    }

    /// What could not be had on this kernel, in words.
    pub fn missing(&self) -> &[String] {
        self.loaded.as_ref().map_or(&[], |l| &l.missing)
    }

    /// Stops, and sums up. Waits that are not over count up to now.
    ///
    /// # Errors
    /// [`Error::Reader`] if the reader died; what reading the tasks fails with.
    pub fn stop(mut self) -> Result<Measured, Error> {
        let mut loaded = self.loaded.take().ok_or(Error::Reader)?;
        let rest = loaded.iterate("last_waits")?;
        let until = sys::monotonic_ns();
        loaded.detach();
        // while the programs are still there: their own frames are told by name
        let kernel = KernelSymbols::read();
        self.stop.store(true, Ordering::SeqCst);
        let thread = self.thread.take().ok_or(Error::Reader)?;
        thread.thread().unpark();
        let (mut reader, mut sums, unfinished) = thread.join().map_err(|_| Error::Reader)?;
        for bytes in rest.chunks_exact(size_of::<RawBig>()) {
            let Some(record) = sys::from_bytes::<RawBig>(bytes) else { continue };
            if self.counts(&record) {
                let note = reader.note(&record);
                let mut batch = reader.drain();
                sums.store.extend(&mut batch);
                sums.wait(record.ts - record.a, &note);
            }
        }
        let mut report = Report {
            from: trace::TimeNs(self.from),
            until: trace::TimeNs(until),
            late_maps: reader.late_maps,
            ..Report::default()
        };
        losses(&loaded, &mut report);
        report.add_unfinished(&unfinished);
        report.missing = std::mem::take(&mut loaded.missing);
        let named = kernel.is_ok();
        let rows = sums.rows(&self.options, &kernel.unwrap_or_else(|_| KernelSymbols::none()));
        report.events = rows.len() as u64;
        Ok(Measured { rows, report, named })
    }

    /// Whether a wait that is not over counts. What slept all the time was not seen to do anything: it counts only if it was asked for.
    fn counts(&self, record: &RawBig) -> bool {
        let all_the_time = record.spare == 0 && record.ts - record.a <= self.from;
        let asked = matches!(self.options.whom, Whom::Processes(_) | Whom::Threads(_));
        let us = record.a / 1000;
        let preempted = record.state & layout::STATE_PREEMPTED != 0;
        let state = u64::from(record.state & !layout::STATE_PREEMPTED);
        let in_state = match self.options.state {
            None => true,
            Some(0) => preempted || state == 0,
            Some(mask) => state & mask != 0,
        };
        (asked || !all_the_time) && in_state && us >= self.options.min_us && us <= self.options.max_us
    }
}

impl Drop for OffCpu {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(mut loaded) = self.loaded.take() {
            loaded.detach();
        }
    }
}

impl Sums {
    fn add(&mut self, entry: Entry) {
        let Item::Note(note) = entry.item else { return };
        match note.kind {
            big::OUT_KERNEL => {
                let out = self.out.entry(note.tid).or_default();
                *out = Out { ts: entry.ts, kernel: note.stack, user: None };
            }
            big::OUT_USER => {
                let out = self.out.entry(note.tid).or_default();
                if out.ts != entry.ts {
                    *out = Out { ts: entry.ts, ..Out::default() };
                }
                out.user = note.stack;
            }
            big::WAIT_KERNEL => self.wait(entry.ts - note.a, &note),
            _ => {}
        }
    }

    /// A wait that began at that time.
    fn wait(&mut self, began: u64, note: &Note) {
        let out = match note.flags & layout::STACK_HAS_OUT {
            0 => None,
            // of another wait if its own record was lost
            _ => self.out.get(&note.tid).copied().filter(|o| o.ts == began),
        };
        let kernel = match out.and_then(|o| o.kernel) {
            Some(stack) => Some(stack),
            None => {
                self.short.extend(note.stack);
                note.stack
            }
        };
        let key = Key {
            tid: note.tid,
            tgid: note.tgid,
            comm: note.comm,
            kernel,
            user: out.and_then(|o| o.user),
            kernel_thread: note.flags & layout::STACK_KTHREAD != 0,
            kernel_missed: kernel.is_none(),
        };
        *self.ns.entry(key).or_insert(0) += layout::weighted(note.a, note.chance);
    }

    fn rows(&self, options: &Options, kernel: &KernelSymbols) -> Vec<Row> {
        // stacks of sleepers lack the scheduler's frames: give them those of the same stack taken at switch-out
        let mut full: HashMap<Vec<u64>, (u64, Vec<u64>)> = HashMap::new();
        for (key, ns) in &self.ns {
            if let Some(stack) = key.kernel.filter(|s| !self.short.contains(s)) {
                let frames = own_frames(self.store.frames(stack), kernel);
                let short: Vec<u64> = frames.iter().copied().filter(|f| !kernel.is_sched_text(*f)).collect();
                let best = full.entry(short).or_default();
                if *ns >= best.0 {
                    *best = (*ns, frames);
                }
            }
        }
        let user_symbols = UserSymbols::new();
        let mut sums: HashMap<(u32, u32, String, Stack, Stack), u64> = HashMap::new();
        for (key, ns) in &self.ns {
            let kernel_stack = match key.kernel {
                _ if !options.kernel => Stack::None,
                None => Stack::Missed,
                Some(stack) => {
                    let mut frames = own_frames(self.store.frames(stack), kernel);
                    if self.short.contains(&stack)
                        && let Some((_, with_scheduler)) = full.get(&frames)
                    {
                        frames = with_scheduler.clone();
                    }
                    Stack::Frames(frames.iter().map(|f| kernel_frame(*f, kernel)).collect())
                }
            };
            let user_stack = match key.user {
                _ if !options.user || key.kernel_thread => Stack::None,
                None => Stack::Missed,
                Some(stack) => Stack::Frames(self.user_frames(stack, &user_symbols)),
            };
            let row = (key.tid, key.tgid, text(&key.comm), kernel_stack, user_stack);
            *sums.entry(row).or_insert(0) += ns;
        }
        let mut rows: Vec<Row> = sums
            .into_iter()
            .map(|((tid, tgid, name, kernel, user), ns)| Row { tid, tgid, name, kernel, user, ns })
            .collect();
        rows.sort_by(|a, b| a.ns.cmp(&b.ns).then(a.tid.cmp(&b.tid)));
        rows
    }

    fn user_frames(&self, stack: RawStack, symbols: &UserSymbols) -> Vec<Frame> {
        let maps = self.store.maps(stack);
        let frames = self.store.frames(stack).iter().enumerate();
        frames
            .map(|(i, address)| {
                // return addresses are one instruction after the call
                let back = u64::from(i != 0);
                let found = maps.and_then(|m| symbols.function(m, address - back.min(*address)).0);
                Frame {
                    address: *address,
                    offset: found.as_ref().map_or(0, |f| f.1 + back),
                    name: found.map(|f| f.0.to_string()),
                }
            })
            .collect()
    }
}

/// A kernel stack without the frames of the tracer itself at its leaf.
fn own_frames(frames: &[u64], kernel: &KernelSymbols) -> Vec<u64> {
    let tracer = |f: &&u64| kernel.function(**f).is_some_and(|(name, _)| is_tracer_frame(name));
    let skip = frames.iter().take_while(tracer).count();
    frames[skip..].to_vec()
}

fn kernel_frame(address: u64, kernel: &KernelSymbols) -> Frame {
    match kernel.function_at(address) {
        Some((name, _, offset)) => Frame { address, name: Some(name.to_owned()), offset },
        None => Frame { address, name: None, offset: 0 },
    }
}
