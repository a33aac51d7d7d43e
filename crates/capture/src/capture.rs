//! A capture from start to stop.

use std::collections::HashSet;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use trace::{Builder, Cpu, Event, Meta, Tables, TimeNs, Trace, Writer};

use crate::btf::Btf;
use crate::convert::Converter;
use crate::error::Error;
use crate::layout::{RawOptions, TaskSeed};
use crate::loader::{Layouts, Loaded, Plan};
use crate::machine;
use crate::names::Namer;
use crate::quota::{self, Counters};
use crate::reader::{self, Batch, Entry, OwnIds, Reader, Rings, Store, Unfinished};
use crate::scope::Scope;
use crate::sys;

/// What to capture, and how much it may take.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which tasks belong to the workload. All are captured; these are marked.
    pub scope: Scope,
    /// Samples of running code per second and CPU; 0: none.
    pub sample_hz: u32,
    /// Stacks of waits and wakers. Without them it is the "stackless twin": the same small events.
    pub stacks: bool,
    /// User stacks of waits for locks and of samples.
    pub user_stacks: bool,
    /// User stacks of all other waits, too: they are taken before it is known how long the wait will be, and cost more.
    pub all_user_stacks: bool,
    /// Interrupts: without them the context of wake-ups is not known.
    pub interrupts: bool,
    /// What kernel workers run.
    pub work: bool,
    /// Acquisitions and releases of XFS buffer locks that were seen contended.
    pub xfs_detail: bool,
    /// Which device a wait for I/O was for. Takes `interrupts` and `work`.
    pub io: bool,
    /// Memory for small events and for stacks, in bytes per CPU; rounded to powers of two.
    pub event_bytes_per_cpu: usize,
    /// Memory for stacks, in bytes per CPU.
    pub stack_bytes_per_cpu: usize,
    /// Waits shorter than 2^`stack_shift` ns have their stack taken with a probability in proportion to their length.
    pub stack_shift: u32,
    /// How long the reader sleeps between two looks, at most.
    pub poll: Duration,
    /// What the trace says about how it was made (command line, options), by name.
    pub notes: Vec<(String, String)>,
    /// The CPUs that the workload may use; empty: those that this process may use.
    pub allowed: Vec<u16>,
}

impl Default for Options {
    fn default() -> Options {
        // all CPUs together at most a quarter of a gigabyte
        let cpus = machine::possible_cpus().max(1);
        let share = (256 << 20) / cpus;
        Options {
            scope: Scope::Everything,
            sample_hz: 99,
            stacks: true,
            user_stacks: true,
            all_user_stacks: false,
            interrupts: true,
            work: true,
            xfs_detail: true,
            io: true,
            event_bytes_per_cpu: share.clamp(512 << 10, 8 << 20),
            stack_bytes_per_cpu: share.clamp(512 << 10, 8 << 20),
            stack_shift: 17,
            poll: Duration::from_millis(20),
            notes: Vec::new(),
            allowed: Vec::new(),
        }
    }
}

/// Gets the tables as they are and the next events.
pub type Feed = Box<dyn FnMut(&Tables, &[Event]) + Send>;

/// Where the events go.
pub enum Sink {
    /// Into memory: [`Captured::trace`].
    Memory,
    /// Into a trace file, as they come; memory stays bounded by tasks, locks and stacks.
    File(Box<dyn Write + Send>),
    /// To a function, batch by batch, in order of time; nothing is kept.
    Feed(Feed),
}

/// How a capture went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// When the window opened and closed.
    pub from: TimeNs,
    /// When it closed.
    pub until: TimeNs,
    /// Events in the trace.
    pub events: u64,
    /// Events lost because a ring was full, by CPU.
    pub lost_by_cpu: Vec<u64>,
    /// All events lost.
    pub lost_events: u64,
    /// Events of interrupts that came while the program for the same kind of event ran on that CPU: the kernel does not run it twice.
    /// Some in a million, which are no loss of the rings; if they are more than one in ten thousand they count as lost, too.
    pub missed_in_interrupts: u64,
    /// Stacks lost because a ring was full, or that could not be walked.
    pub lost_stacks: u64,
    /// The waiting time that the lost stacks stood for, in ns.
    pub lost_stack_ns: u64,
    /// Names and paths that were cut.
    pub truncated_names: u64,
    /// Switches of tasks that the capture had no state for (they began before it, and were missed).
    pub stateless_switches: u64,
    /// Switches from another task than the one that was seen to get the CPU: the kernel ran no program for the switch between them.
    /// Some kernels hide all that happens while a certain task runs (a sandbox its supervisor).
    pub unseen_switches: u64,
    /// Processes with user stacks that were too short-lived for their mappings to be read: these stacks have no names.
    pub late_maps: u64,
    /// Of the lost events and stacks: records that a program had begun when the window closed, and did not finish within a fifth of a
    /// second. The waits of such stacks are not in `lost_stack_ns`.
    pub unfinished: u64,
    /// What could not be captured on this kernel, in words.
    pub missing: Vec<String>,
    /// Bytes of the trace file.
    pub bytes_written: u64,
}

impl Report {
    /// Whether everything that was to be captured was.
    pub fn complete(&self) -> bool {
        self.lost_events == 0 && self.lost_stacks == 0
    }

    /// Counts what was never finished as lost.
    pub(crate) fn add_unfinished(&mut self, unfinished: &Unfinished) {
        let events: u64 = unfinished.events.iter().sum();
        for (lost, more) in self.lost_by_cpu.iter_mut().zip(&unfinished.events) {
            *lost += more;
        }
        self.lost_events += events;
        self.lost_stacks += unfinished.stacks;
        self.unfinished += events + unfinished.stacks;
    }
}

/// What a capture brought.
pub struct Captured {
    /// The trace, if it was kept in memory ([`Sink::Memory`]).
    pub trace: Option<Trace>,
    /// How it went.
    pub report: Report,
}

/// A capture that is running. Dropping it stops it and throws away what it saw.
pub struct Capture {
    loaded: Option<Loaded>,
    stop: Arc<AtomicBool>,
    end: Arc<Mutex<End>>,
    from: u64,
    drain: Option<JoinHandle<()>>,
    convert: Option<JoinHandle<Result<Finished, Error>>>,
}

/// What is only known at the end, for the trace.
#[derive(Clone, Default)]
struct End {
    report: Report,
    quotas: Counters,
}

struct Finished {
    builder: Builder,
    report: Report,
    kept: bool,
    /// XFS was loaded meanwhile.
    xfs_came: bool,
}

impl Capture {
    /// Starts to capture into memory. When it returns, the window is open.
    ///
    /// # Errors
    /// [`Error::NotAllowed`] without the capabilities, [`Error::Unsupported`] on kernels without BTF or the tracepoints.
    pub fn start(options: Options) -> Result<Capture, Error> {
        Capture::start_to(options, Sink::Memory)
    }

    /// Starts to capture. When it returns, the window is open.
    ///
    /// # Errors
    /// As [`Capture::start`], and what writing the head of the trace file fails with.
    pub fn start_to(options: Options, sink: Sink) -> Result<Capture, Error> {
        let btf = Arc::new(kernel_types()?);
        let plan = plan(&options);
        let (mut loaded, _) = Loaded::load(&btf, plan)?;
        let namer = Namer::new(btf);
        let mut layouts = loaded.layouts()?;
        layouts.set(namer.fs_layout())?;
        loaded.attach(options.sample_hz)?;
        if !loaded.xfs_detail && layouts.has_xfs() {
            loaded.missing.push(format!("no tracepoints of XFS's buffer locks: {ONLY_WAITS}"));
        }
        loaded.missing.extend(machine::pid_namespace_note());
        let quotas = quota::counters();
        let from = sys::monotonic_ns();
        let seeds = seeds(&loaded)?;

        let builder = Builder::new(meta(&options));
        let end = Arc::new(Mutex::new(End::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let (send, receive) = sync_channel::<Batch>(QUEUE);
        let reader = Reader::new(Rings::of(&loaded), PATIENCE_NS, OwnIds::new(&seeds));
        let thread_error = |e| Error::io("starting the reader of the events", e);
        let drain = thread::Builder::new()
            .name("perfloss-drain".into())
            .spawn({
                let (stop, end) = (stop.clone(), end.clone());
                let poll = options.poll;
                move || {
                    usual_priority();
                    drain(reader, send, &stop, poll, &end);
                }
            })
            .map_err(thread_error)?;
        let convert = thread::Builder::new()
            .name("perfloss-trace".into())
            .spawn({
                let end = end.clone();
                let hz = options.sample_hz;
                let scope = match &options.scope {
                    Scope::Processes(ids) => Scope::Processes(machine::kernel_ids(ids, &seeds)),
                    other => other.clone(),
                };
                // what symbolizes cannot move between threads: the converter is made where it works
                move || {
                    usual_priority();
                    let mut converter = Converter::new(builder, namer, scope, hz);
                    converter.quotas = quotas;
                    convert(converter, sink, &receive, layouts, &seeds, from, &end)
                }
            })
            .map_err(thread_error)?;
        Ok(Capture { loaded: Some(loaded), stop, end, from, drain: Some(drain), convert: Some(convert) })
    }

    /// When the window opened.
    pub fn from(&self) -> TimeNs {
        TimeNs(self.from)
    }

    /// What could not be captured on this kernel, in words.
    pub fn missing(&self) -> &[String] {
        self.loaded.as_ref().map_or(&[], |l| &l.missing)
    }

    /// Closes the window, reads what is left, and hands over the trace.
    ///
    /// # Errors
    /// What writing the trace fails with; [`Error::Reader`] if the reader died.
    pub fn stop(self) -> Result<Captured, Error> {
        self.close()?.finish()
    }

    /// Closes the window and detaches the programs. What was seen is read and converted in [`Closed::finish`], which may take
    /// as long as the window did.
    ///
    /// # Errors
    /// [`Error::Reader`] if the reader died.
    pub fn close(mut self) -> Result<Closed, Error> {
        let until = sys::monotonic_ns();
        let mut loaded = self.loaded.take().ok_or(Error::Reader)?;
        loaded.detach();
        let mut report = Report { from: TimeNs(self.from), until: TimeNs(until), ..Report::default() };
        losses(&loaded, &mut report);
        report.missing = std::mem::take(&mut loaded.missing);
        let end = End { report, quotas: quota::counters() };
        *self.end.lock().map_err(|_| Error::Reader)? = end;
        self.stop.store(true, Ordering::SeqCst);
        let drain = self.drain.take().ok_or(Error::Reader)?;
        drain.thread().unpark();
        let convert = self.convert.take().ok_or(Error::Reader)?;
        Ok(Closed { loaded, drain, convert })
    }
}

/// A capture whose window is closed, not yet converted to its end.
pub struct Closed {
    /// The rings, which the reader still reads.
    loaded: Loaded,
    drain: JoinHandle<()>,
    convert: JoinHandle<Result<Finished, Error>>,
}

impl Closed {
    /// Reads what is left, and hands over the trace.
    ///
    /// # Errors
    /// What writing the trace fails with; [`Error::Reader`] if the reader died.
    pub fn finish(self) -> Result<Captured, Error> {
        self.drain.join().map_err(|_| Error::Reader)?;
        let finished = self.convert.join().map_err(|_| Error::Reader)??;
        let mut report = finished.report;
        if finished.xfs_came && !self.loaded.xfs_detail {
            report.missing.push(format!("XFS was loaded while the capture ran: {ONLY_WAITS}"));
        }
        let trace = finished.kept.then(|| finished.builder.into_trace());
        Ok(Captured { trace, report })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(mut loaded) = self.loaded.take() {
            loaded.detach();
        }
        self.stop.store(true, Ordering::SeqCst);
        for thread in
            [self.drain.take().map(|t| t.join().is_ok()), self.convert.take().map(|t| t.join().is_ok())]
        {
            // a thread that panicked has nothing to hand over
            let _ = thread;
        }
    }
}

/// Processes that live shorter have user stacks without names; reading the mappings of each would cost a compile farm percents.
const PATIENCE_NS: u64 = 30_000_000;
/// Batches that may wait for the converter.
const QUEUE: usize = 4096;
/// What is lost without XFS's own tracepoints.
const ONLY_WAITS: &str = "its buffer locks are only seen when they are waited for";
/// How often it is looked whether a file system's module was loaded meanwhile: by who mounts the first one.
const LOOK_FOR_MODULES: Duration = Duration::from_millis(100);
/// Entries that are kept before they are converted while the capture runs: converting takes time from the workload.
const KEEP: usize = 1 << 20;
/// A program may be held up for so long between reading the clock and writing its record.
const SLACK_NS: u64 = 5_000_000;

/// Whoever captures may run at a raised priority, so that it begins and ends in time. Reading and converting must not:
/// that would take time from the workload while it is watched. Of the calling thread only.
fn usual_priority() {
    // Lowering is always allowed; where the priority is lower already, it stays (without CAP_SYS_NICE).
    if rustix::process::getpriority_process(None).is_ok_and(|nice| nice < 0) {
        let _ = rustix::process::setpriority_process(None, 0);
    }
}

/// Reads the kernel's types, or says why they cannot be had.
pub(crate) fn kernel_types() -> Result<Btf, Error> {
    Btf::kernel().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::Unsupported {
            missing: "it has no type information (/sys/kernel/btf/vmlinux)".into(),
            remedy: "use a kernel built with CONFIG_DEBUG_INFO_BTF, as distributions ship it".into(),
        },
        _ => Error::io("/sys/kernel/btf/vmlinux", e),
    })
}

pub(crate) fn power_of_two(bytes: usize, each: usize, least: usize) -> usize {
    let n = (bytes / each).max(least);
    if n.is_power_of_two() { n } else { n.next_power_of_two() / 2 }
}

fn plan(options: &Options) -> Plan {
    Plan {
        options: RawOptions {
            wait_stacks: u8::from(options.stacks),
            waker_stacks: u8::from(options.stacks),
            out_user_stacks: u8::from(options.stacks && options.user_stacks && options.all_user_stacks),
            user_stacks: u8::from(options.user_stacks),
            base_shift: options.stack_shift.clamp(10, 27),
            ..RawOptions::default()
        },
        events_per_cpu: power_of_two(options.event_bytes_per_cpu, size_of::<crate::layout::RawEvent>(), 128),
        bigs_per_cpu: power_of_two(options.stack_bytes_per_cpu, size_of::<crate::layout::RawBig>(), 64),
        cpus: machine::possible_cpus(),
        sample_hz: options.sample_hz,
        interrupts: options.interrupts,
        work: options.work,
        contention: true,
        waking: true,
        xfs_detail: options.xfs_detail,
        io: options.io,
        names: true,
    }
}

fn meta(options: &Options) -> Meta {
    let uname = rustix::system::uname();
    let cpus = |list: Vec<u16>| list.into_iter().map(Cpu).collect::<Vec<_>>();
    let allowed = if options.allowed.is_empty() { machine::allowed_cpus() } else { options.allowed.clone() };
    Meta {
        machine: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        arch: uname.machine().to_string_lossy().into_owned(),
        hz: machine::ticks_per_second(),
        realtime_offset_ns: sys::realtime_offset_ns(),
        online: cpus(machine::online_cpus()),
        allowed: cpus(allowed),
        options: options.notes.clone(),
    }
}

/// All tasks with their state; from here on each has a state of its own in the kernel.
///
/// # Errors
/// If the iterator cannot be run.
pub(crate) fn seeds(loaded: &Loaded) -> Result<Vec<TaskSeed>, Error> {
    let bytes = loaded.iterate("seed_tasks")?;
    let mut seeds: Vec<TaskSeed> =
        bytes.chunks_exact(size_of::<TaskSeed>()).filter_map(sys::from_bytes).collect();
    // some kernels' iterators leave out the process 1
    if machine::pid_namespace().is_none() {
        let known: HashSet<u32> = seeds.iter().map(|s| s.tgid).collect();
        for seed in machine::tasks_beside(&known) {
            loaded.add_state(seed.tid);
            seeds.push(seed);
        }
    }
    Ok(seeds)
}

/// What was lost, from the counters of the rings and of the programs.
pub(crate) fn losses(loaded: &Loaded, report: &mut Report) {
    let mut written = 0;
    for cpu in 0..loaded.cpus {
        let area = loaded.areas.read(cpu);
        written += area.head + area.big_head;
        report.lost_by_cpu.push(area.lost);
        report.lost_events += area.lost;
        report.lost_stacks += area.big_lost + area.stack_errors;
        report.lost_stack_ns += area.big_lost_ns;
        report.truncated_names += area.truncated;
        report.stateless_switches += area.no_state;
        report.unseen_switches += area.unseen;
    }
    report.missed_in_interrupts = loaded.recursion_misses();
    if report.missed_in_interrupts.saturating_mul(10_000) > written {
        report.lost_events += report.missed_in_interrupts;
    }
}

/// Empties the rings now and then, and to the last record when the capture ends.
fn drain(mut reader: Reader, send: SyncSender<Batch>, stop: &AtomicBool, poll: Duration, end: &Mutex<End>) {
    // whoever empties the rings must not wait behind the workload
    machine::set_nice(-10);
    while !stop.load(Ordering::SeqCst) {
        if send.send(reader.drain()).is_err() {
            return;
        }
        let busy = reader.fullest() > 0.1;
        thread::park_timeout(if busy { poll / 8 } else { poll });
    }
    let (batch, unfinished) = reader.drain_rest(reader::PATIENCE);
    if let Ok(mut end) = end.lock() {
        end.report.late_maps = reader.late_maps;
        end.report.add_unfinished(&unfinished);
    }
    // the converter is gone if writing has failed: it says so itself
    let _ = send.send(batch);
}

/// Converts what the reader brings, and hands it to the sink.
fn convert(
    mut converter: Converter,
    sink: Sink,
    receive: &Receiver<Batch>,
    mut layouts: Layouts,
    seeds: &[TaskSeed],
    from: u64,
    end: &Mutex<End>,
) -> Result<Finished, Error> {
    machine::set_nice(5);
    let mut output = Output::new(sink)?;
    let mut store = Store::default();
    let mut entries: Vec<Entry> = Vec::new();
    converter.open_window(from, seeds, &mut entries);
    let mut safe = 0;
    let (mut looked, had_xfs) = (Instant::now(), layouts.has_xfs());
    while let Ok(mut batch) = receive.recv() {
        if looked.elapsed() >= LOOK_FOR_MODULES {
            looked = Instant::now();
            if let Some(layout) = converter.new_layout() {
                layouts.set(layout)?;
            }
        }
        safe = safe.max(batch.safe.saturating_sub(SLACK_NS));
        store.extend(&mut batch);
        entries.append(&mut batch.entries);
        if entries.len() > KEEP {
            converter.read_kernel_symbols();
            entries.sort_by_key(|e| e.ts);
            let n = entries.partition_point(|e| e.ts <= safe);
            converter.convert(&entries[..n], &store);
            entries.drain(..n);
            output.take(&mut converter.builder)?;
        }
    }
    // the programs are still loaded: their names are wanted to tell the tracer's own frames
    converter.read_kernel_symbols();
    let End { mut report, quotas } = end.lock().map_err(|_| Error::Reader)?.clone();
    // 0: the capture was dropped, and nobody wants the rest
    let until = if report.until.0 == 0 { safe } else { report.until.0 };
    converter.set_until(until);
    entries.sort_by_key(|e| e.ts);
    converter.convert(&entries, &store);
    converter.close_window(until, &quotas, &store);
    let Converter { mut builder, events, lost_stacks, .. } = converter;
    report.events = events;
    report.lost_stacks += lost_stacks;
    let summary = builder.summary_mut();
    summary.lost_events = report.lost_events;
    summary.lost_stacks = report.lost_stacks;
    summary.truncated_names += report.truncated_names;
    let kept = matches!(output, Output::Memory);
    report.bytes_written = output.finish(&mut builder)?;
    let xfs_came = !had_xfs && layouts.has_xfs();
    Ok(Finished { builder, report, kept, xfs_came })
}

enum Output {
    Memory,
    File(Writer<Box<dyn Write + Send>>),
    Feed(Feed),
}

impl Output {
    fn new(sink: Sink) -> Result<Output, Error> {
        Ok(match sink {
            Sink::Memory => Output::Memory,
            Sink::File(file) => Output::File(Writer::new(file)?),
            Sink::Feed(feed) => Output::Feed(feed),
        })
    }

    fn take(&mut self, builder: &mut Builder) -> Result<(), Error> {
        match self {
            Output::Memory => {}
            Output::File(writer) => writer.append(builder)?,
            Output::Feed(feed) => {
                feed(builder.tables(), builder.events());
                builder.discard_events();
            }
        }
        Ok(())
    }

    fn finish(mut self, builder: &mut Builder) -> Result<u64, Error> {
        self.take(builder)?;
        match self {
            Output::File(writer) => {
                let bytes = writer.bytes_written();
                writer.finish(builder)?.flush().map_err(|e| Error::io("writing the trace", e))?;
                Ok(bytes)
            }
            _ => Ok(0),
        }
    }
}
