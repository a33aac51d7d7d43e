//! From records to a trace: in order of time, with tasks, locks and stacks as handles.

use std::collections::{HashMap, HashSet};

use trace::{
    Builder, CgroupId, ContentionFlags, Cpu, IrqKind, Kind, Lock, LockId, LockKind, Name, OwnerQuality,
    SampleMode, SeedState, StackId, SymbolId, Syscall, Task, TaskExit, TaskId, TaskKind, TaskState, TimeNs,
    Waker,
};

use crate::layout::{self, FsLayout, LockInfo, RawEvent, TaskSeed, big, ev, text};
use crate::machine;
use crate::names::{self, Namer};
use crate::quota::{self, Counter, Counters};
use crate::reader::{Entry, Item, Note, OwnIds, RawStack, Store};
use crate::scope::{self, Members, Scope};
use crate::symbols::{KernelSymbols, UserSymbols, is_tracer_frame};

/// The kind of an entry that is a task's state when the window opened; no program writes it.
const SEED_EVENT: u8 = 255;
/// Flags of a wait's end whose begin the programs did not see.
const FLAGS_UNKNOWN: u8 = 255;

/// A wait for a lock that is under way.
#[derive(Clone, Copy)]
struct OpenWait {
    address: u64,
    kind: LockKind,
    lock: LockId,
    owner: Option<u32>,
    /// It has slept in this wait before: a further sleep shows who has the lock by then.
    slept: bool,
}

/// Turns entries into events.
pub struct Converter {
    pub builder: Builder,
    /// Read when they are first needed: that takes as long as 100,000 events.
    kernel: Option<KernelSymbols>,
    /// The modules that were there then.
    modules: Vec<(String, String)>,
    user: UserSymbols,
    namer: Namer,
    members: Members,
    /// Cgroups of tasks are only looked up if asked for; forks inherit.
    cgroups: bool,
    kernel_frames: HashMap<u64, SymbolId>,
    user_frames: HashMap<(u32, u64), SymbolId>,
    stacks: HashMap<RawStack, Option<StackId>>,
    unknown: Option<SymbolId>,
    /// By thread id: waits for sleeping locks and, within them, for spinlocks.
    open: HashMap<u32, Vec<OpenWait>>,
    /// By thread id: user stacks of tasks that left their CPU.
    out_user: HashMap<u32, Option<StackId>>,
    /// A stack record whose user part follows.
    half: Option<(u64, u16, Note)>,
    /// Stacks of wakers in the batch: by time, waker and wakee.
    wakers: HashMap<(u64, u32, u32), RawStack>,
    futexes: HashMap<(u64, u64), LockId>,
    /// Control groups by their numbers, as far as their quotas held tasks back.
    groups: HashMap<u64, Option<CgroupId>>,
    /// The counters of the quotas before the window.
    pub quotas: Counters,
    /// Block devices by number, and what their requests did.
    devices: HashMap<(u32, u8), LockId>,
    /// Tasks that the iterator found, as long as no fork of them was seen.
    seeded: HashSet<TaskId>,
    seeds: Vec<TaskSeed>,
    /// Events outside are not the window's.
    from: u64,
    until: u64,
    last: u64,
    sample_ns: u64,
    /// Tasks whose first event came before their definition.
    pub unseeded: u64,
    pub events: u64,
    pub lost_stacks: u64,
}

fn time(ts: u64) -> TimeNs {
    TimeNs(ts)
}

impl Converter {
    pub fn new(builder: Builder, namer: Namer, scope: Scope, sample_hz: u32) -> Converter {
        let cgroups = matches!(scope, Scope::Cgroup(_));
        Converter {
            builder,
            kernel: None,
            modules: Vec::new(),
            user: UserSymbols::new(),
            namer,
            members: Members::new(scope),
            cgroups,
            kernel_frames: HashMap::new(),
            user_frames: HashMap::new(),
            stacks: HashMap::new(),
            unknown: None,
            open: HashMap::new(),
            out_user: HashMap::new(),
            half: None,
            wakers: HashMap::new(),
            futexes: HashMap::new(),
            groups: HashMap::new(),
            quotas: Counters::new(),
            devices: HashMap::new(),
            seeded: HashSet::new(),
            seeds: Vec::new(),
            from: 0,
            until: u64::MAX,
            last: 0,
            sample_ns: if sample_hz > 0 { 1_000_000_000 / u64::from(sample_hz) } else { 0 },
            unseeded: 0,
            events: 0,
            lost_stacks: 0,
        }
    }

    /// Reads the names of the kernel's functions before a conversion; again if there are other modules than before, whose functions
    /// would be taken for those of others.
    pub fn read_kernel_symbols(&mut self) {
        let modules = machine::modules();
        if self.kernel.is_none() || modules != self.modules {
            self.kernel = Some(KernelSymbols::read().unwrap_or_else(|_| KernelSymbols::none()));
            self.modules = modules;
        }
    }

    /// Where the members of file systems' structures are, if a module was loaded since it was last asked.
    pub fn new_layout(&mut self) -> Option<FsLayout> {
        self.namer.load_modules().then(|| self.namer.fs_layout())
    }

    fn kernel_function(&self, address: u64) -> Option<(&str, Option<&str>)> {
        self.kernel.as_ref()?.function(address)
    }

    fn push(&mut self, ts: u64, cpu: u16, kind: Kind) {
        // a record that was written late takes its place at the end of what is there
        self.last = self.last.max(ts);
        self.events += 1;
        self.builder.event(time(self.last), Cpu(cpu), kind);
    }

    /// Opens the window with the tasks as the iterator found them.
    /// Their states are entries among the others, each in its time.
    pub fn open_window(&mut self, from: u64, seeds: &[TaskSeed], entries: &mut Vec<Entry>) {
        self.from = from;
        self.push(from, 0, Kind::WindowStart);
        for (path, counter) in self.quotas.clone() {
            self.quota(from, &path, counter);
        }
        let all: Vec<(u32, u32, u32)> = seeds.iter().map(|s| (s.tid, s.tgid, s.ptid)).collect();
        let own = OwnIds::new(seeds);
        self.members.seed(&all, |tid| own.get(tid));
        for seed in seeds {
            if seed.tid == 0 || seed.exit_state != 0 {
                continue;
            }
            let task = self.define(seed, own.get(seed.tid));
            self.seeded.insert(task);
        }
        for seed in seeds {
            let task = if seed.tid == 0 { continue } else { self.builder.live_task(seed.tid) };
            let parent = self.builder.live_task(seed.ptid);
            if let (Some(task), Some(parent)) = (task, parent) {
                self.builder.change_task(task, |t| t.parent = Some(parent));
            }
        }
        for seed in seeds.iter().filter(|s| s.tid != 0 && s.exit_state == 0) {
            let a = self.seeds.len() as u64;
            self.seeds.push(*seed);
            let event = RawEvent { ts: seed.ts, a, kind: SEED_EVENT, ..RawEvent::default() };
            entries.push(Entry { ts: seed.ts, cpu: seed.cpu as u16, item: Item::Event(event) });
        }
    }

    fn define(&mut self, seed: &TaskSeed, own: Option<u32>) -> TaskId {
        let kernel = seed.flags & layout::SEED_KERNEL != 0;
        let name = self.builder.str(&text(&seed.comm));
        let cgroup = (self.cgroups && !kernel)
            .then(|| scope::cgroup_of(own?))
            .flatten()
            .map(|path| self.builder.cgroup(&path));
        let command = (!kernel && seed.tid == seed.tgid)
            .then(|| layout::command_line(&std::fs::read(format!("/proc/{}/cmdline", own?)).ok()?))
            .flatten()
            .map(|command| self.builder.str(&command));
        self.builder.add_task(Task {
            tid: seed.tid,
            tgid: seed.tgid,
            kind: if kernel { TaskKind::Kernel } else { TaskKind::User },
            in_scope: self.members.contains(seed.tid, kernel),
            start: time(seed.start),
            names: vec![Name { from: time(0), name }],
            cgroup,
            command,
            ..Task::default()
        })
    }

    /// The state of a task when the window opened: an entry among the others, by its time.
    fn seed(&mut self, seed: &TaskSeed, store: &Store) {
        let Some(task) = self.builder.live_task(seed.tid) else { return };
        let state = if seed.flags & layout::SEED_ON_CPU != 0 {
            SeedState::Running
        } else if seed.flags & layout::SEED_QUEUED != 0 || seed.state == 0 {
            SeedState::Runnable
        } else {
            SeedState::Blocked {
                state: TaskState::from_kernel(u64::from(seed.state)),
                iowait: seed.flags & layout::SEED_IOWAIT != 0,
                syscall: Syscall::new(i64::from(seed.syscall)),
            }
        };
        let blocked = matches!(state, SeedState::Blocked { .. });
        // the low bits of task->blocker are the kind of lock
        let lock = (blocked && seed.blocker != 0).then(|| {
            let kind = match seed.blocker & 3 {
                0 => LockKind::Mutex,
                1 => LockKind::Semaphore,
                _ => LockKind::Rwsem,
            };
            (self.lock(seed.blocker & !3, kind), kind)
        });
        let cpu = seed.cpu as u16;
        self.push(seed.ts, cpu, Kind::Seed { task, state, lock: lock.map(|(lock, _)| lock) });
        if let Some((lock, kind)) = lock {
            // its end is announced by address alone
            let address = seed.blocker & !3;
            self.open.entry(seed.tid).or_default().push(OpenWait {
                address,
                kind,
                lock,
                owner: None,
                slept: true,
            });
        }
        if blocked && seed.futex != 0 && lock.is_none() {
            let lock = self.futex(seed.tgid, seed.futex, seed.futex_op, store);
            self.push(seed.ts, cpu, Kind::BlockedOn { task, lock });
        }
    }

    /// Closes the window.
    pub fn close_window(&mut self, until: u64, quotas: &Counters, store: &Store) {
        self.flush_half(store);
        for (path, counter) in quotas {
            if !self.quotas.contains_key(path) {
                // made meanwhile: its counters began at 0
                self.quota(until, path, Counter::default());
            }
            self.quota(until, path, *counter);
        }
        self.push(until, 0, Kind::WindowEnd);
    }

    /// The counters of a control group's quota, as they stand.
    fn quota(&mut self, ts: u64, path: &str, counter: Counter) {
        let cgroup = self.builder.cgroup(path);
        let Counter { count, throttled_ns } = counter;
        self.push(ts, 0, Kind::Throttle { cgroup, count, throttled_ns });
    }

    /// The control group with that number.
    fn group(&mut self, number: u64) -> Option<CgroupId> {
        if let Some(known) = self.groups.get(&number) {
            return *known;
        }
        let group = quota::path_of(number).map(|path| self.builder.cgroup(&path));
        self.groups.insert(number, group);
        group
    }

    /// Events after that time are not the window's.
    pub fn set_until(&mut self, until: u64) {
        self.until = until;
    }

    /// Converts entries, which must be in order of time.
    pub fn convert(&mut self, entries: &[Entry], store: &Store) {
        self.wakers.clear();
        for entry in entries {
            if let Item::Note(note) = &entry.item
                && note.kind == big::WAKER_KERNEL
                && let Some(stack) = note.stack
            {
                self.wakers.insert((entry.ts, note.tid, note.a as u32), stack);
            }
        }
        for entry in entries {
            let inside = entry.ts >= self.from && entry.ts <= self.until;
            match &entry.item {
                Item::Event(event) if event.kind == SEED_EVENT => {
                    if let Some(seed) = self.seeds.get(event.a as usize).copied() {
                        self.seed(&seed, store);
                    }
                }
                Item::Event(event) => self.event(entry.cpu, event, inside, store),
                Item::Note(note) => self.note(entry.ts, entry.cpu, note, inside, store),
            }
        }
    }

    /// The task with that thread id on that CPU; defines one if it is not known.
    fn task(&mut self, tid: u32, cpu: u16) -> TaskId {
        if tid == 0 {
            return self.builder.idle_task(Cpu(cpu));
        }
        if let Some(task) = self.builder.live_task(tid) {
            return task;
        }
        self.unseeded += 1;
        let kernel = false;
        // elsewhere the numbers of /proc are others
        let comm = match machine::pid_namespace() {
            None => std::fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default(),
            Some(_) => String::new(),
        };
        let comm = comm.trim_end();
        let name = self.builder.str(if comm.is_empty() { "[unknown]" } else { comm });
        self.builder.add_task(Task {
            tid,
            tgid: 0,
            in_scope: self.members.contains(tid, kernel),
            names: vec![Name { from: time(0), name }],
            ..Task::default()
        })
    }

    fn owner(&mut self, tid: u32) -> Option<TaskId> {
        // a hint may point to memory that was reused: only live tasks count
        if tid == 0 { None } else { self.builder.live_task(tid) }
    }

    fn lock(&mut self, address: u64, kind: LockKind) -> LockId {
        match self.builder.lock_at(address, kind) {
            Some(lock) => lock,
            None => self.builder.add_lock(Lock { kind, address, ..Lock::default() }),
        }
    }

    fn event(&mut self, cpu: u16, e: &RawEvent, inside: bool, store: &Store) {
        match e.kind {
            ev::FORK => return self.fork(cpu, e, inside),
            ev::EXIT => return self.exit(cpu, e, inside),
            ev::LOST => return self.lost(cpu, e),
            _ if !inside => return,
            _ => {}
        }
        match e.kind {
            ev::SWITCH => self.switch(cpu, e),
            ev::WAKING => {
                let wakee = self.task(e.tid, cpu);
                let waker = match (e.flags & layout::WAKING_CONTEXT_KNOWN, e.flags & layout::WAKING_INTERRUPT)
                {
                    (0, _) => Waker::Unknown,
                    (_, 0) if e.other != 0 => Waker::Task(self.task(e.other, cpu)),
                    // the idle task wakes others only on behalf of interrupts and calls from other CPUs
                    _ => Waker::Interrupt,
                };
                let target = Cpu(if e.x == u16::MAX { cpu } else { e.x });
                let stack = match self.wakers.remove(&(e.ts, e.other, e.tid)) {
                    Some(raw) => self.stack(raw, store),
                    None => None,
                };
                self.push(e.ts, cpu, Kind::Waking { waker, wakee, target, stack });
            }
            ev::BEGIN => {
                let task = self.task(e.tid, cpu);
                let kind = names::kind_of(e.flags);
                let lock = self.lock(e.a, kind);
                let owner = self.owner(e.other);
                let quality = if owner.is_some() { quality(e.x) } else { OwnerQuality::None };
                let waits = self.open.entry(e.tid).or_default();
                match waits.iter_mut().find(|w| w.lock == lock) {
                    Some(wait) => wait.owner = Some(e.other).filter(|o| *o != 0),
                    None => {
                        // a sleeping lock cannot be waited for within another one: the end was lost
                        if waits.len() >= 4 {
                            waits.remove(0);
                        }
                        waits.push(OpenWait {
                            address: e.a,
                            kind,
                            lock,
                            owner: Some(e.other).filter(|o| *o != 0),
                            slept: false,
                        });
                    }
                }
                let flags = ContentionFlags(e.flags);
                self.push(e.ts, cpu, Kind::ContentionBegin { task, lock, flags, owner, quality });
            }
            ev::END => {
                let task = self.task(e.tid, cpu);
                let ret = i32::from(e.x as i16);
                let Some(lock) = self.end_of_wait(e.tid, e.a, e.flags) else { return };
                self.push(e.ts, cpu, Kind::ContentionEnd { task, lock, ret });
            }
            ev::FUTEX => {
                let task = self.task(e.tid, cpu);
                let lock = self.futex(e.other, e.a, u32::from(e.x), store);
                self.push(e.ts, cpu, Kind::BlockedOn { task, lock });
            }
            ev::IRQ_ENTER => self.push(e.ts, cpu, Kind::IrqEnter { irq: irq(e.flags), number: e.x }),
            ev::IRQ_EXIT => self.push(e.ts, cpu, Kind::IrqExit { irq: irq(e.flags), number: e.x }),
            ev::WORK => {
                let task = self.task(e.tid, cpu);
                let function = self.kernel_frame(e.a);
                self.push(e.ts, cpu, Kind::WorkStart { task, function });
            }
            ev::WORK_END => {
                let task = self.task(e.tid, cpu);
                self.push(e.ts, cpu, Kind::WorkEnd { task });
            }
            ev::ACQUIRED => {
                let task = self.task(e.tid, cpu);
                let lock = self.lock(e.a, LockKind::Semaphore);
                self.push(e.ts, cpu, Kind::Acquired { task, lock });
            }
            ev::RELEASED => {
                let task = self.task(e.tid, cpu);
                let lock = self.lock(e.a, LockKind::Semaphore);
                self.push(e.ts, cpu, Kind::Released { task, lock });
            }
            ev::HELD_BACK => {
                let task = self.task(e.tid, cpu);
                let cgroup = self.group(e.a);
                self.push(e.ts, cpu, Kind::HeldBack { task, cgroup });
            }
            ev::IO_DONE => {
                let task = self.task(e.tid, cpu);
                let device = self.device(e.other, e.flags);
                let at = |age: u64| TimeNs(e.ts.saturating_sub(age << layout::AGE_SHIFT));
                let issued = Some(e.a as u32).filter(|age| *age != 0).map(|age| at(u64::from(age)));
                self.push(e.ts, cpu, Kind::IoDone { task, device, issued, done: at(e.a >> 32) });
            }
            _ => {}
        }
    }

    /// A gap in what a CPU has written, as far as it is in the window. Its own time is when it began; it is told at its end.
    fn lost(&mut self, cpu: u16, e: &RawEvent) {
        self.builder.summary_mut().lost_events += u64::from(e.tid);
        if e.ts <= self.until && e.a >= self.from {
            let from = time(e.ts.max(self.from));
            self.push(e.a.min(self.until), cpu, Kind::Lost { count: e.tid, from });
        }
    }

    /// What stands for a device and a kind of requests.
    fn device(&mut self, number: u32, does: u8) -> LockId {
        if let Some(device) = self.devices.get(&(number, does)) {
            return *device;
        }
        let class = layout::REQUESTS.get(usize::from(does)).copied().unwrap_or("requests");
        let class = Some(self.builder.str(class));
        let object = Some(self.builder.str(&machine::device_name(number >> 20, number & 0xf_ffff)));
        let lock = Lock { kind: LockKind::Io, class, object, ..Lock::default() };
        let device = self.builder.add_lock(lock);
        self.devices.insert((number, does), device);
        device
    }

    /// The lock whose wait ends. Its kind counts: a semaphore and the spinlock in it have the same address.
    fn end_of_wait(&mut self, tid: u32, address: u64, flags: u8) -> Option<LockId> {
        let kind = (flags != FLAGS_UNKNOWN).then(|| names::kind_of(flags));
        if let Some(waits) = self.open.get_mut(&tid) {
            let same = |w: &OpenWait| w.address == address && kind.is_none_or(|k| k == w.kind);
            if let Some(i) = waits.iter().rposition(same) {
                return Some(waits.remove(i).lock);
            }
        }
        // it began before the window
        kind.map(|kind| self.lock(address, kind))
    }

    fn switch(&mut self, cpu: u16, e: &RawEvent) {
        let prev = self.task(e.tid, cpu);
        let next = self.task(e.other, cpu);
        let preempt = e.flags & layout::SWITCH_PREEMPT != 0;
        let syscall = Syscall::new(i64::from((e.a >> 32) as u16 as i16));
        self.push(
            e.ts,
            cpu,
            Kind::Switch {
                prev,
                next,
                prev_state: TaskState::from_kernel(u64::from(e.x)),
                preempt,
                iowait: e.flags & layout::SWITCH_IOWAIT != 0,
                syscall,
            },
        );
        let owner = e.a as u32;
        if owner != 0
            && let Some(wait) = self.open.get_mut(&e.tid).and_then(|w| w.first_mut())
            && (std::mem::replace(&mut wait.slept, true) || wait.owner != Some(owner))
        {
            wait.owner = Some(owner);
            let lock = wait.lock;
            let seen = quality((e.a >> 48) as u16);
            if let Some(owner) = self.owner(owner) {
                self.push(e.ts, cpu, Kind::Owner { lock, owner: Some(owner), quality: seen });
            }
        }
    }

    fn fork(&mut self, cpu: u16, e: &RawEvent, inside: bool) {
        let kernel = e.flags & 1 != 0;
        let member = self.members.fork(e.other, e.tid, kernel);
        // found by the iterator already
        if !inside && self.builder.live_task(e.tid).is_some() {
            return;
        }
        let parent = self.builder.live_task(e.other);
        let (name, cgroup, command) = match parent.and_then(|p| self.builder.tables().task(p)) {
            Some(p) => (p.names.last().map(|n| n.name), p.cgroup, p.command),
            None => (None, None, None),
        };
        let name = name.unwrap_or_else(|| self.builder.str("[unknown]"));
        let known = self.builder.live_task(e.tid);
        // the number may have been given to another task since: only what came from the iterator and has not ended is the same
        let is_seed = known.is_some_and(|t| {
            self.seeded.remove(&t)
                && self
                    .builder
                    .tables()
                    .task(t)
                    .is_some_and(|row| row.exit.is_none() && row.start.0.abs_diff(e.ts) < 10_000_000)
        });
        let child = match known {
            // the iterator was faster than the event
            Some(task) if is_seed => task,
            _ => self.builder.add_task(Task {
                tid: e.tid,
                tgid: e.a as u32,
                kind: if kernel { TaskKind::Kernel } else { TaskKind::User },
                parent,
                in_scope: member,
                start: time(e.ts),
                names: vec![Name { from: time(e.ts), name }],
                cgroup,
                command,
                ..Task::default()
            }),
        };
        if inside {
            let parent = match parent {
                Some(p) => p,
                None => self.task(e.other, cpu),
            };
            self.push(e.ts, cpu, Kind::Fork { parent, child });
        }
    }

    fn exit(&mut self, cpu: u16, e: &RawEvent, inside: bool) {
        let known = self.builder.live_task(e.tid);
        self.members.exit(e.tid);
        self.open.remove(&e.tid);
        self.out_user.remove(&e.tid);
        let Some(task) = known else { return };
        if inside {
            let status = e.a as u32 as i32;
            self.push(e.ts, cpu, Kind::Exit { task, status });
        }
        // the task keeps its number until it has left its CPU for the last time, or another one gets it
        let exit = TaskExit { time: time(e.ts), status: e.a as u32 as i32 };
        self.builder.change_task(task, |t| t.exit = Some(exit));
    }

    fn note(&mut self, ts: u64, cpu: u16, note: &Note, inside: bool, store: &Store) {
        match note.kind {
            big::COMM => {
                let task = self.task(note.tid, cpu);
                let name = text(&note.comm);
                self.builder.rename_task(task, time(ts), &name);
                if note.flags & layout::COMM_EXEC != 0 {
                    if let Some(command) = &note.command {
                        self.builder.set_command(task, command);
                    }
                    if inside {
                        let name = Some(self.builder.str(&name));
                        self.push(ts, cpu, Kind::Exec { task, name });
                    }
                }
            }
            big::LOCK => {
                if let Some(info) = &note.lock {
                    self.describe(info);
                }
            }
            _ if !inside => {}
            big::OUT_USER => {
                let stack = note.stack.and_then(|raw| self.stack(raw, store));
                self.out_user.insert(note.tid, stack);
            }
            big::WAIT_KERNEL | big::SAMPLE_KERNEL => {
                self.flush_half(store);
                if note.error < 0 {
                    self.lost_stacks += 1;
                }
                if note.flags & layout::STACK_USER_FOLLOWS != 0 {
                    self.half = Some((ts, cpu, note.clone()));
                } else {
                    self.whole(ts, cpu, note, None, store);
                }
            }
            big::WAIT_USER | big::SAMPLE_USER => match self.half.take() {
                Some((at, on, kernel)) if at == ts && kernel.tid == note.tid && on == cpu => {
                    self.whole(ts, cpu, &kernel, note.stack, store);
                }
                other => {
                    self.half = other;
                    self.flush_half(store);
                    if note.kind == big::SAMPLE_USER {
                        let only = Note { stack: None, ..note.clone() };
                        self.whole(ts, cpu, &only, note.stack, store);
                    }
                }
            },
            _ => {}
        }
    }

    fn flush_half(&mut self, store: &Store) {
        if let Some((ts, cpu, kernel)) = self.half.take() {
            self.whole(ts, cpu, &kernel, None, store);
        }
    }

    /// A stack record with both its halves.
    fn whole(&mut self, ts: u64, cpu: u16, note: &Note, user: Option<RawStack>, store: &Store) {
        let task = self.task(note.tid, cpu);
        let kernel = note.stack.and_then(|raw| self.stack(raw, store));
        let mut user = user.and_then(|raw| self.stack(raw, store));
        if matches!(note.kind, big::SAMPLE_KERNEL | big::SAMPLE_USER) {
            let mode = match note.flags {
                f if f & layout::SAMPLE_IN_INTERRUPT != 0 => SampleMode::Interrupt,
                f if f & layout::SAMPLE_IN_KERNEL != 0 => SampleMode::Kernel,
                _ => SampleMode::User,
            };
            let weight_ns = self.sample_ns;
            return self.push(ts, cpu, Kind::Sample { task, mode, kernel, user, weight_ns });
        }
        if note.flags & layout::STACK_HAS_OUT != 0 {
            user = user.or(self.out_user.remove(&note.tid).flatten());
        }
        let lock = (note.b != 0).then(|| self.lock(note.b, names::kind_of(note.state as u8)));
        if let (Some(lock), Some(kernel)) = (lock, kernel)
            && let Some(row) = self.builder.tables().lock(lock)
            && row.class.is_none()
        {
            let class = names::class_by_stack(row.kind, self.builder.tables().stack_names(kernel));
            if let Some(class) = class {
                let class = self.builder.str(&class);
                self.builder.change_lock(lock, |l| l.class = Some(class));
            }
        }
        let weight_ns = layout::weighted(note.a, note.chance);
        self.push(ts, cpu, Kind::WaitStack { task, lock, kernel, user, weight_ns });
    }

    /// Takes the description of a lock. Memory is reused: another object at the same address is another lock.
    fn describe(&mut self, info: &LockInfo) {
        let named = self.namer.name(info, self.kernel.as_ref());
        let class = named.class.map(|c| self.builder.str(&c));
        let object = named.object.map(|o| self.builder.str(&o));
        let process = named.process.and_then(|p| self.builder.live_task(p));
        let old = self.builder.lock_at(info.address, named.kind);
        let row = old.and_then(|l| self.builder.tables().lock(l));
        match (old, row) {
            (Some(_), _) if class.is_none() && object.is_none() => {}
            (Some(_), Some(r)) if r.class == class && r.object == object && r.process == process => {}
            // nothing was known, or the class only, by who waited
            (Some(lock), Some(r)) if (r.class.is_none() || r.class == class) && r.object.is_none() => {
                self.builder.change_lock(lock, |l| {
                    (l.class, l.object, l.process) = (class, object, process);
                });
            }
            _ => {
                let address = info.address;
                self.builder.add_lock(Lock { kind: named.kind, address, class, object, process });
            }
        }
    }

    /// The lock that a futex word is: by process and address, or by file and offset if it is in shared memory.
    fn futex(&mut self, tgid: u32, address: u64, operation: u32, store: &Store) -> LockId {
        const PRIVATE: u32 = 128;
        // FUTEX_WAIT_BITSET with FUTEX_CLOCK_REALTIME: how the C library waits for conditions, threads that end, and
        // semaphores, but not for mutexes
        const CONDITION: u32 = 9 | 256;
        let shared = (operation & PRIVATE == 0)
            .then(|| store.maps_of(tgid)?.find(address).filter(|m| m.shared && m.inode != 0))
            .flatten();
        let key = match shared {
            Some(m) => (m.inode | 1 << 63, address - m.start + m.offset),
            None => (u64::from(tgid), address),
        };
        if let Some(lock) = self.futexes.get(&key) {
            return *lock;
        }
        let process = self.builder.live_task(tgid);
        let object = match shared {
            Some(m) => format!("futex at offset {:#x} of {}", key.1, m.path),
            None => {
                let name = process.map_or("", |p| self.builder.tables().task_name(p));
                format!("futex {address:#x} of {name} ({tgid})")
            }
        };
        let object = Some(self.builder.str(&object));
        let class = (operation & !PRIVATE == CONDITION).then(|| self.builder.str("condition"));
        let process = if shared.is_some() { None } else { process };
        let lock = self.builder.add_lock(Lock { kind: LockKind::Futex, address, class, object, process });
        self.futexes.insert(key, lock);
        lock
    }

    /// A stack's handle: frames of the tracer itself are left out.
    fn stack(&mut self, raw: RawStack, store: &Store) -> Option<StackId> {
        if let Some(known) = self.stacks.get(&raw) {
            return *known;
        }
        let mut frames = Vec::with_capacity(store.frames(raw).len());
        for (i, address) in store.frames(raw).iter().enumerate() {
            let frame = match store.maps(raw) {
                // return addresses are one instruction after the call
                Some(maps) => {
                    let at = if i == 0 { *address } else { address.saturating_sub(1) };
                    self.user_frame(maps, store.maps_number(raw), at)
                }
                None if store.is_user(raw) => self.unknown(),
                None => {
                    let name = self.kernel_function(*address).map(|f| f.0);
                    if frames.is_empty() && name.is_some_and(is_tracer_frame) {
                        continue;
                    }
                    self.kernel_frame(*address)
                }
            };
            frames.push(frame);
        }
        let stack = (!frames.is_empty()).then(|| self.builder.stack(&frames));
        self.stacks.insert(raw, stack);
        stack
    }

    fn unknown(&mut self) -> SymbolId {
        match self.unknown {
            Some(symbol) => symbol,
            None => {
                let symbol = self.builder.symbol("[unknown]", None);
                self.unknown = Some(symbol);
                symbol
            }
        }
    }

    fn kernel_frame(&mut self, address: u64) -> SymbolId {
        if let Some(symbol) = self.kernel_frames.get(&address) {
            return *symbol;
        }
        let symbol = match self.kernel.as_ref().and_then(|k| k.function(address)) {
            Some((name, module)) => self.builder.symbol(name, module),
            None => self.unknown(),
        };
        self.kernel_frames.insert(address, symbol);
        symbol
    }

    fn user_frame(&mut self, maps: &crate::symbols::ProcessMaps, number: u32, address: u64) -> SymbolId {
        if let Some(symbol) = self.user_frames.get(&(number, address)) {
            return *symbol;
        }
        let (name, module) = self.user.function(maps, address);
        let name = name.as_ref().map_or("[unknown]", |n| &n.0);
        let symbol = self.builder.symbol(name, module.as_deref());
        self.user_frames.insert((number, address), symbol);
        symbol
    }
}

fn quality(x: u16) -> OwnerQuality {
    match x {
        1 => OwnerQuality::Owner,
        2 => OwnerQuality::Reader,
        3 => OwnerQuality::LastHolder,
        _ => OwnerQuality::None,
    }
}

fn irq(flags: u8) -> IrqKind {
    match flags {
        0 => IrqKind::Hard,
        1 => IrqKind::Soft,
        _ => IrqKind::Vector,
    }
}
