//! What a capture fills: tables with interning, and the events since the last time they were taken.

use std::collections::HashMap;

use crate::event::{Event, Kind};
use crate::ids::{CgroupId, Cpu, LockId, StackId, StrId, SymbolId, TaskId, TimeNs};
use crate::memory::Trace;
use crate::tables::{Definition, Lock, Meta, Name, Summary, Symbol, Tables, Task, TaskExit, TaskKind};

/// Builds a trace: hands out handles for what is defined, and keeps events until they are taken.
///
/// A long capture calls [`Writer::append`](crate::Writer::append) now and then, which writes and forgets the pending events and
/// definitions (the tables stay); a short one ends with [`Builder::into_trace`]. Events must be given in order of time: the
/// capture merges its CPUs' streams. An event that is earlier than its predecessor gets the predecessor's time and is counted
/// in [`Summary::reordered`].
#[derive(Debug, Default)]
pub struct Builder {
    tables: Tables,
    strings: HashMap<Box<str>, StrId>,
    symbols: HashMap<Symbol, SymbolId>,
    stacks: HashMap<Box<[SymbolId]>, StackId>,
    /// Live tasks by thread id; a later start with the same thread id replaces the entry.
    live: HashMap<u32, TaskId>,
    idle: HashMap<Cpu, TaskId>,
    locks: HashMap<(u64, crate::tables::LockKind), LockId>,
    cgroups: HashMap<Box<str>, CgroupId>,
    events: Vec<Event>,
    last: TimeNs,
    pending: Pending,
}

/// Rows that are new or changed since the last time they were taken.
#[derive(Debug, Default)]
struct Pending {
    meta: bool,
    strings: usize,
    symbols: usize,
    stacks: usize,
    cgroups: usize,
    tasks: usize,
    locks: usize,
    /// Rows below `tasks` and `locks` that changed.
    changed_tasks: Vec<TaskId>,
    changed_locks: Vec<LockId>,
}

impl Builder {
    /// An empty trace of that machine.
    pub fn new(meta: Meta) -> Builder {
        let mut builder = Builder::default();
        builder.tables.meta = meta;
        builder.pending.meta = true;
        builder
    }

    /// The tables as they are now.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Changes what the trace says about its machine and options.
    pub fn meta_mut(&mut self) -> &mut Meta {
        self.pending.meta = true;
        &mut self.tables.meta
    }

    /// The summary; it is written at the end.
    pub fn summary_mut(&mut self) -> &mut Summary {
        &mut self.tables.summary
    }

    /// The handle of a string.
    pub fn str(&mut self, text: &str) -> StrId {
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        let id = StrId::from_index(self.tables.strings.len() as u32);
        self.tables.strings.push(text.into());
        self.strings.insert(text.into(), id);
        id
    }

    /// The handle of a function, by its name and module.
    pub fn symbol(&mut self, name: &str, module: Option<&str>) -> SymbolId {
        let name = self.str(name);
        let module = module.map(|m| self.str(m));
        let symbol = Symbol { name, module };
        if let Some(id) = self.symbols.get(&symbol) {
            return *id;
        }
        let id = SymbolId::from_index(self.tables.symbols.len() as u32);
        self.tables.symbols.push(symbol);
        self.symbols.insert(symbol, id);
        id
    }

    /// The handle of a stack: its frames, leaf first.
    pub fn stack(&mut self, frames: &[SymbolId]) -> StackId {
        if let Some(id) = self.stacks.get(frames) {
            return *id;
        }
        let id = StackId::from_index(self.tables.stacks.len() as u32);
        self.tables.stacks.push(frames.into());
        self.stacks.insert(frames.into(), id);
        id
    }

    /// The handle of the control group with that path.
    pub fn cgroup(&mut self, path: &str) -> CgroupId {
        if let Some(id) = self.cgroups.get(path) {
            return *id;
        }
        let name = self.str(path);
        let id = CgroupId::from_index(self.tables.cgroups.len() as u32);
        self.tables.cgroups.push(name);
        self.cgroups.insert(path.into(), id);
        id
    }

    /// Adds a task. A live task with the same thread id is no longer found by [`Builder::live_task`].
    pub fn add_task(&mut self, task: Task) -> TaskId {
        let id = TaskId::from_index(self.tables.tasks.len() as u32);
        if !matches!(task.kind, TaskKind::Idle(_)) {
            self.live.insert(task.tid, id);
        }
        self.tables.tasks.push(task);
        id
    }

    /// The task that has that thread id now, if one was added and has not exited. Not the idle tasks (thread id 0).
    pub fn live_task(&self, tid: u32) -> Option<TaskId> {
        self.live.get(&tid).copied()
    }

    /// The idle task of a CPU.
    pub fn idle_task(&mut self, cpu: Cpu) -> TaskId {
        if let Some(id) = self.idle.get(&cpu) {
            return *id;
        }
        let name = self.str(&format!("swapper/{}", cpu.0));
        let id = self.add_task(Task {
            kind: TaskKind::Idle(cpu),
            names: vec![Name { from: TimeNs(0), name }],
            ..Task::default()
        });
        self.idle.insert(cpu, id);
        id
    }

    /// Gives a task a new name from a moment on. Nothing happens if it has that name already.
    pub fn rename_task(&mut self, task: TaskId, from: TimeNs, name: &str) {
        let name = self.str(name);
        let Some(row) = self.tables.tasks.get_mut(task.index()) else { return };
        if row.names.last().is_some_and(|n| n.name == name) {
            return;
        }
        row.names.push(Name { from, name });
        self.pending.changed_tasks.push(task);
    }

    /// Sets the command line of a task.
    pub fn set_command(&mut self, task: TaskId, command: &str) {
        let command = self.str(command);
        self.change_task(task, |row| row.command = Some(command));
    }

    /// Notes the end of a task; its thread id may be given to another from now on. Does not add the event.
    pub fn end_task(&mut self, task: TaskId, time: TimeNs, status: i32) {
        self.change_task(task, |row| row.exit = Some(TaskExit { time, status }));
        if let Some(row) = self.tables.tasks.get(task.index())
            && self.live.get(&row.tid) == Some(&task)
        {
            self.live.remove(&row.tid);
        }
    }

    /// Changes other facts of a task. Its thread id and scope must stay as they are.
    pub fn change_task(&mut self, task: TaskId, change: impl FnOnce(&mut Task)) {
        if let Some(row) = self.tables.tasks.get_mut(task.index()) {
            change(row);
            self.pending.changed_tasks.push(task);
        }
    }

    /// The lock of that kind at that address, if it was added.
    pub fn lock_at(&self, address: u64, kind: crate::tables::LockKind) -> Option<LockId> {
        self.locks.get(&(address, kind)).copied()
    }

    /// Adds a lock. It is found by [`Builder::lock_at`] from now on, instead of an older lock of the same kind at the same
    /// address (memory is reused: when the object there is another one, add another lock).
    pub fn add_lock(&mut self, lock: Lock) -> LockId {
        let id = LockId::from_index(self.tables.locks.len() as u32);
        if lock.address != 0 {
            self.locks.insert((lock.address, lock.kind), id);
        }
        self.tables.locks.push(lock);
        id
    }

    /// Changes what is known of a lock (its class, its object), for instance when its name is found later. Address and kind stay.
    pub fn change_lock(&mut self, lock: LockId, change: impl FnOnce(&mut Lock)) {
        if let Some(row) = self.tables.locks.get_mut(lock.index()) {
            change(row);
            self.pending.changed_locks.push(lock);
        }
    }

    /// Adds an event. Its handles must be this builder's.
    pub fn event(&mut self, time: TimeNs, cpu: Cpu, kind: Kind) {
        if time < self.last {
            self.tables.summary.reordered += 1;
        }
        self.last = self.last.max(time);
        self.events.push(Event { time: self.last, cpu, kind });
    }

    /// The events that were not taken yet.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Forgets the events that were not taken yet, without writing them: for who has fed them elsewhere and keeps no file.
    pub fn discard_events(&mut self) {
        self.events.clear();
    }

    /// The whole trace in memory: the tables and the events that were not taken yet.
    pub fn into_trace(self) -> Trace {
        Trace { tables: self.tables, events: self.events }
    }

    /// Hands over what is new or changed, in an order in which no row comes before what it refers to, except for tasks and locks
    /// among themselves.
    pub(crate) fn take_definitions(&mut self, mut take: impl FnMut(Definition)) {
        let tables = &self.tables;
        let pending = &mut self.pending;
        if std::mem::take(&mut pending.meta) {
            take(Definition::Meta(tables.meta.clone()));
        }
        for i in pending.strings..tables.strings.len() {
            take(Definition::Str(StrId::from_index(i as u32), tables.strings[i].to_string()));
        }
        pending.strings = tables.strings.len();
        for i in pending.symbols..tables.symbols.len() {
            take(Definition::Symbol(SymbolId::from_index(i as u32), tables.symbols[i]));
        }
        pending.symbols = tables.symbols.len();
        for i in pending.stacks..tables.stacks.len() {
            take(Definition::Stack(StackId::from_index(i as u32), tables.stacks[i].to_vec()));
        }
        pending.stacks = tables.stacks.len();
        for i in pending.cgroups..tables.cgroups.len() {
            take(Definition::Cgroup(CgroupId::from_index(i as u32), tables.cgroups[i]));
        }
        pending.cgroups = tables.cgroups.len();

        let old = pending.tasks;
        let mut changed = std::mem::take(&mut pending.changed_tasks);
        changed.sort_unstable();
        changed.dedup();
        let new = (old..tables.tasks.len()).map(|i| TaskId::from_index(i as u32));
        for id in changed.into_iter().filter(|id| id.index() < old).chain(new) {
            take(Definition::Task(id, tables.tasks[id.index()].clone()));
        }
        pending.tasks = tables.tasks.len();

        let old = pending.locks;
        let mut changed = std::mem::take(&mut pending.changed_locks);
        changed.sort_unstable();
        changed.dedup();
        let new = (old..tables.locks.len()).map(|i| LockId::from_index(i as u32));
        for id in changed.into_iter().filter(|id| id.index() < old).chain(new) {
            take(Definition::Lock(id, tables.locks[id.index()].clone()));
        }
        pending.locks = tables.locks.len();
    }

    /// Hands over the events that were not taken yet.
    pub(crate) fn take_events(&mut self, mut take: impl FnMut(&Event)) {
        self.events.iter().for_each(&mut take);
        self.events.clear();
    }

    /// A builder that goes on where a trace ends.
    pub(crate) fn from_trace(trace: Trace) -> Builder {
        let mut builder = Builder {
            last: trace.events.last().map_or(TimeNs(0), |e| e.time),
            events: trace.events,
            pending: Pending { meta: true, ..Pending::default() },
            ..Builder::default()
        };
        for (i, text) in trace.tables.strings.iter().enumerate() {
            builder.strings.entry(text.clone()).or_insert(StrId::from_index(i as u32));
        }
        for (i, symbol) in trace.tables.symbols.iter().enumerate() {
            builder.symbols.entry(*symbol).or_insert(SymbolId::from_index(i as u32));
        }
        for (i, frames) in trace.tables.stacks.iter().enumerate() {
            builder.stacks.entry(frames.clone()).or_insert(StackId::from_index(i as u32));
        }
        for (i, path) in trace.tables.cgroups.iter().enumerate() {
            let path = trace.tables.str(*path).into();
            builder.cgroups.entry(path).or_insert(CgroupId::from_index(i as u32));
        }
        for (id, task) in trace.tables.tasks() {
            if let TaskKind::Idle(cpu) = task.kind {
                builder.idle.insert(cpu, id);
            } else if task.exit.is_none() {
                builder.live.insert(task.tid, id);
            }
        }
        for (id, lock) in trace.tables.locks().filter(|(_, lock)| lock.address != 0) {
            builder.locks.insert((lock.address, lock.kind), id);
        }
        builder.tables = trace.tables;
        builder
    }
}
