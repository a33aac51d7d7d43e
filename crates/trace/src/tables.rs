//! What the handles stand for.

use crate::ids::{CgroupId, Cpu, LockId, StackId, StrId, SymbolId, TaskId, TimeNs};

/// What the whole trace was taken on, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The machine's name.
    pub machine: String,
    /// Its kernel (`uname -r`).
    pub kernel: String,
    /// Its architecture (`uname -m`): system-call numbers belong to it.
    pub arch: String,
    /// Ticks per second (CONFIG_HZ); 0 if not known.
    pub hz: u32,
    /// Wall-clock time minus CLOCK_MONOTONIC, in ns: added to a [`TimeNs`] it gives the time of the day.
    pub realtime_offset_ns: i64,
    /// The CPUs that were online.
    pub online: Vec<Cpu>,
    /// The CPUs that the workload was allowed to use.
    pub allowed: Vec<Cpu>,
    /// What was asked for: the command line, the options of the capture, by name.
    pub options: Vec<(String, String)>,
}

/// What is only known when the capture ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events lost, over all CPUs.
    pub lost_events: u64,
    /// Stacks that could not be kept or taken.
    pub lost_stacks: u64,
    /// Names and paths that were cut.
    pub truncated_names: u64,
    /// Events whose time had to be corrected (clock trouble).
    pub reordered: u64,
}

/// A name that a task had from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// From when on.
    pub from: TimeNs,
    /// The name.
    pub name: StrId,
}

/// What kind of task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TaskKind {
    /// A user-space thread.
    #[default]
    User,
    /// A kernel thread.
    Kernel,
    /// The idle task of a CPU.
    Idle(Cpu),
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskExit {
    /// When.
    pub time: TimeNs,
    /// As `wait4` gives it; -1 if not known.
    pub status: i32,
}

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Thread id, in the initial namespace.
    pub tid: u32,
    /// Process id (thread group), in the initial namespace.
    pub tgid: u32,
    /// User, kernel, or idle.
    pub kind: TaskKind,
    /// Who made it, if known.
    pub parent: Option<TaskId>,
    /// It belongs to the workload that is looked at. Known when the task is defined and never changed.
    pub in_scope: bool,
    /// When it began; 0 if before the trace and not known.
    pub start: TimeNs,
    /// Its names (`comm`), in order of time.
    pub names: Vec<Name>,
    /// Its command line, arguments joined by blanks, as of its last exec.
    pub command: Option<StrId>,
    /// Its control group.
    pub cgroup: Option<CgroupId>,
    /// How it ended, if it did.
    pub exit: Option<TaskExit>,
}

/// What kind of lock, or of other thing that tasks wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum LockKind {
    /// Something else, or not known.
    #[default]
    Other = 0,
    /// A counting semaphore.
    Semaphore = 1,
    /// A mutex.
    Mutex = 2,
    /// A read-write semaphore.
    Rwsem = 3,
    /// A spinlock.
    Spinlock = 4,
    /// A spinning read-write lock.
    Rwlock = 5,
    /// A per-CPU read-write semaphore.
    PercpuRwsem = 6,
    /// A real-time mutex.
    RtMutex = 7,
    /// A futex word of user space; with the class `condition` it is not a lock, but what a thread waits for that has nothing to do
    /// until another one says so (a condition variable, the end of a thread).
    Futex = 8,
    /// A block device, or the storage behind it.
    Io = 9,
    /// A pipe.
    Pipe = 10,
    /// A file lock (flock, POSIX lock).
    FileLock = 11,
}

impl LockKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [LockKind; 12] = [
        LockKind::Other,
        LockKind::Semaphore,
        LockKind::Mutex,
        LockKind::Rwsem,
        LockKind::Spinlock,
        LockKind::Rwlock,
        LockKind::PercpuRwsem,
        LockKind::RtMutex,
        LockKind::Futex,
        LockKind::Io,
        LockKind::Pipe,
        LockKind::FileLock,
    ];

    /// Its name in reports and in the text form.
    pub fn name(self) -> &'static str {
        match self {
            LockKind::Other => "other",
            LockKind::Semaphore => "semaphore",
            LockKind::Mutex => "mutex",
            LockKind::Rwsem => "rwsem",
            LockKind::Spinlock => "spinlock",
            LockKind::Rwlock => "rwlock",
            LockKind::PercpuRwsem => "percpu_rwsem",
            LockKind::RtMutex => "rt_mutex",
            LockKind::Futex => "futex",
            LockKind::Io => "io",
            LockKind::Pipe => "pipe",
            LockKind::FileLock => "file_lock",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<LockKind> {
        LockKind::ALL.into_iter().find(|k| k.name() == name)
    }
}

/// A lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// What kind.
    pub kind: LockKind,
    /// Where it is in memory; 0 if it has no address.
    pub address: u64,
    /// Its class: `struct.member` (`xfs_buf.b_sema`), or a global's symbol.
    pub class: Option<StrId>,
    /// The object that it belongs to, in words: `AGI of AG 0 on loop0`, `directory 131 on loop0`.
    pub object: Option<StrId>,
    /// The process whose lock it is (`mmap_lock`, a private futex), by a task of it.
    pub process: Option<TaskId>,
}

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Symbol {
    /// Its name; `[unknown]` where there is none.
    pub name: StrId,
    /// The kernel module, or the binary or library, that it is in.
    pub module: Option<StrId>,
}

/// One row of a table, new or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// What the trace was taken on.
    Meta(Meta),
    /// A string.
    Str(StrId, String),
    /// A function.
    Symbol(SymbolId, Symbol),
    /// A stack: its frames, leaf first.
    Stack(StackId, Vec<SymbolId>),
    /// A task.
    Task(TaskId, Task),
    /// A lock.
    Lock(LockId, Lock),
    /// A control group: its path.
    Cgroup(CgroupId, StrId),
    /// What is known at the end.
    Summary(Summary),
}

/// What the handles of a trace stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    pub(crate) meta: Meta,
    pub(crate) summary: Summary,
    pub(crate) strings: Vec<Box<str>>,
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) stacks: Vec<Box<[SymbolId]>>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) cgroups: Vec<StrId>,
}

impl Tables {
    /// What the trace was taken on.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// What is known at the end.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The string of a handle; empty for a handle of another trace.
    pub fn str(&self, id: StrId) -> &str {
        self.strings.get(id.index()).map_or("", |s| s)
    }

    /// The function of a handle.
    pub fn symbol(&self, id: SymbolId) -> Option<&Symbol> {
        self.symbols.get(id.index())
    }

    /// The name of a function.
    pub fn symbol_name(&self, id: SymbolId) -> &str {
        self.symbol(id).map_or("[unknown]", |s| self.str(s.name))
    }

    /// The frames of a stack, leaf first.
    pub fn frames(&self, id: StackId) -> &[SymbolId] {
        self.stacks.get(id.index()).map_or(&[], |s| s)
    }

    /// The names of a stack's functions, leaf first.
    pub fn stack_names(&self, id: StackId) -> impl Iterator<Item = &str> {
        self.frames(id).iter().map(|f| self.symbol_name(*f))
    }

    /// The task of a handle.
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(id.index())
    }

    /// All tasks with their handles.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = (TaskId, &Task)> {
        self.tasks.iter().enumerate().map(|(i, t)| (TaskId::from_index(i as u32), t))
    }

    /// The last name of a task; empty if it has none.
    pub fn task_name(&self, id: TaskId) -> &str {
        self.task(id).and_then(|t| t.names.last()).map_or("", |n| self.str(n.name))
    }

    /// The name that a task had at a moment.
    pub fn task_name_at(&self, id: TaskId, time: TimeNs) -> &str {
        let Some(task) = self.task(id) else { return "" };
        let name = task.names.iter().rev().find(|n| n.from <= time).or(task.names.first());
        name.map_or("", |n| self.str(n.name))
    }

    /// The lock of a handle.
    pub fn lock(&self, id: LockId) -> Option<&Lock> {
        self.locks.get(id.index())
    }

    /// All locks with their handles.
    pub fn locks(&self) -> impl ExactSizeIterator<Item = (LockId, &Lock)> {
        self.locks.iter().enumerate().map(|(i, l)| (LockId::from_index(i as u32), l))
    }

    /// The path of a control group.
    pub fn cgroup_path(&self, id: CgroupId) -> &str {
        self.cgroups.get(id.index()).map_or("", |s| self.str(*s))
    }

    /// How many stacks there are.
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// Whether the row that a handle stands for exists; the reader checks it for every event, so that consumers need not.
    pub(crate) fn has_task(&self, id: TaskId) -> bool {
        id.index() < self.tasks.len()
    }
}
