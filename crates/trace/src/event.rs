//! Events: small, of fixed size, in order of time.

use crate::ids::{CgroupId, Cpu, LockId, StackId, StrId, SymbolId, TaskId, TimeNs};

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// When.
    pub time: TimeNs,
    /// The CPU on which it was seen. For [`Kind::Seed`]: the CPU of the task seeded.
    pub cpu: Cpu,
    /// What.
    pub kind: Kind,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The window opens: nothing is known about what was before. The states of the tasks follow as [`Kind::Seed`]s.
    /// A trace can have several windows; a new start without an end also ends the old one, at its last event.
    WindowStart,
    /// The window closes: whatever is open is counted up to here.
    WindowEnd,
    /// The state of a task when the window opened, or soon after it (the time is when it was read). Events of the same task that
    /// came before it in the window are better evidence, and win. A CPU for which no task is seeded as running is idle.
    Seed {
        /// Whose state.
        task: TaskId,
        /// The state.
        state: SeedState,
        /// For a blocked task: the lock that it waits for, if known.
        lock: Option<LockId>,
    },
    /// A CPU changes from one task to another.
    Switch {
        /// Who leaves the CPU (the CPU's idle task, too).
        prev: TaskId,
        /// Who gets it.
        next: TaskId,
        /// The state in which `prev` leaves. Not [`TaskState::Running`] and not `preempt`: it blocks.
        prev_state: TaskState,
        /// `prev` was preempted: it is runnable, whatever its state says.
        preempt: bool,
        /// `prev` waits for input or output (`in_iowait`).
        iowait: bool,
        /// The system call that `prev` is in, if it is a user task in one.
        syscall: Option<Syscall>,
    },
    /// Somebody wakes a blocked task.
    Waking {
        /// Who.
        waker: Waker,
        /// Whom.
        wakee: TaskId,
        /// The CPU that the wakee last ran on, or is sent to.
        target: Cpu,
        /// Where the waker was (kernel stack), if it was taken.
        stack: Option<StackId>,
    },
    /// A task begins to wait for a lock. Mutex paths emit several begins for one end: a further begin on the same lock changes the phase
    /// (spinning or sleeping) of the wait, it does not nest.
    ContentionBegin {
        /// Who waits.
        task: TaskId,
        /// For what.
        lock: LockId,
        /// How.
        flags: ContentionFlags,
        /// Who seemed to have the lock at that moment.
        owner: Option<TaskId>,
        /// What `owner` is worth.
        quality: OwnerQuality,
    },
    /// A wait for a lock ends.
    ContentionEnd {
        /// Who waited.
        task: TaskId,
        /// For what.
        lock: LockId,
        /// What the wait returned: 0 means that the task has the lock, a negative error number that it gave up.
        ret: i32,
    },
    /// The wait that began with the switch-out of `task` at the same time, or is under way, is for that object:
    /// futex words ([`crate::LockKind::Futex`]) and others that have no contention events.
    BlockedOn {
        /// Who waits.
        task: TaskId,
        /// For what.
        lock: LockId,
    },
    /// The [`Kind::Waking`] of `task` that comes next is due to a request of a block device: it was made by the completion of the request,
    /// or by a work item that the completion put into a queue.
    IoDone {
        /// Who waited.
        task: TaskId,
        /// The device ([`crate::LockKind::Io`]).
        device: LockId,
        /// When the request was handed to the device's queue, if that is known.
        issued: Option<TimeNs>,
        /// When the device had done it.
        done: TimeNs,
    },
    /// An observation of who has a lock (at the switch-out of its owner, for instance).
    Owner {
        /// Which lock.
        lock: LockId,
        /// Who has it; none: nobody has it.
        owner: Option<TaskId>,
        /// What the observation is worth.
        quality: OwnerQuality,
    },
    /// A task has taken a lock, seen for certain (buffer-lock tracepoints).
    Acquired {
        /// Who.
        task: TaskId,
        /// Which.
        lock: LockId,
    },
    /// A lock was released, seen for certain. `task` is who released it, which need not be who took it.
    Released {
        /// By whom.
        task: TaskId,
        /// Which.
        lock: LockId,
    },
    /// Where a wait was waited: taken for a sample of the waits, in proportion to their length.
    /// Its time is that of the end of the wait, and it comes next to the end: the [`Kind::ContentionEnd`] or the switch-in.
    WaitStack {
        /// Who waited.
        task: TaskId,
        /// For what lock, if it was a lock.
        lock: Option<LockId>,
        /// The kernel stack.
        kernel: Option<StackId>,
        /// The user stack.
        user: Option<StackId>,
        /// The waiting time that this stack stands for, in ns: its own length divided by the probability with which it was taken.
        weight_ns: u64,
    },
    /// A sample of what runs on a CPU.
    Sample {
        /// Who ran.
        task: TaskId,
        /// In which mode.
        mode: SampleMode,
        /// The kernel stack, if in the kernel and it could be taken.
        kernel: Option<StackId>,
        /// The user stack, if it could be taken.
        user: Option<StackId>,
        /// The CPU time that the sample stands for, in ns.
        weight_ns: u64,
    },
    /// A task makes another.
    Fork {
        /// Who.
        parent: TaskId,
        /// The new task.
        child: TaskId,
    },
    /// A task runs another program.
    Exec {
        /// Who.
        task: TaskId,
        /// Its new name.
        name: Option<StrId>,
    },
    /// A task ends.
    Exit {
        /// Who.
        task: TaskId,
        /// As `wait4` gives it: exit code << 8, or the signal; -1 if not known.
        status: i32,
    },
    /// A kernel worker begins a work item.
    WorkStart {
        /// The worker.
        task: TaskId,
        /// The function that it runs.
        function: SymbolId,
    },
    /// A kernel worker has done its work item.
    WorkEnd {
        /// The worker.
        task: TaskId,
    },
    /// An interrupt handler begins on the CPU of the event. Handlers nest.
    IrqEnter {
        /// Which kind of interrupt.
        irq: IrqKind,
        /// Its number or vector.
        number: u16,
    },
    /// An interrupt handler ends on the CPU of the event.
    IrqExit {
        /// Which kind of interrupt.
        irq: IrqKind,
        /// Its number or vector.
        number: u16,
    },
    /// The bandwidth counters of a control group, as they stand (they only grow).
    Throttle {
        /// Which group.
        cgroup: CgroupId,
        /// How often it was throttled.
        count: u32,
        /// For how long, in ns, added over CPUs.
        throttled_ns: u64,
    },
    /// A task that has just left its CPU runnable may not run before the quota of its control group is filled up again.
    HeldBack {
        /// Who.
        task: TaskId,
        /// The group whose quota is used up, if it is known.
        cgroup: Option<CgroupId>,
    },
    /// Events of this CPU were lost.
    Lost {
        /// How many.
        count: u32,
        /// The last moment before which nothing was lost; the event's own time is the end of the gap.
        from: TimeNs,
    },
}

/// A task's state as the scheduler gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TaskState {
    /// Running or runnable (R).
    Running = 0,
    /// Waits and can be interrupted by signals (S).
    Interruptible = 1,
    /// Waits and cannot be interrupted (D).
    Uninterruptible = 2,
    /// Stopped by a signal (T).
    Stopped = 3,
    /// Stopped by a debugger (t).
    Traced = 4,
    /// Gone (X).
    Dead = 5,
    /// Ended, its parent has not yet asked (Z).
    Zombie = 6,
    /// A parked kernel thread (P).
    Parked = 7,
    /// An idle kernel thread: waits, and counts for nothing (I).
    Idle = 8,
}

impl TaskState {
    /// All states, in the order of their numbers.
    pub const ALL: [TaskState; 9] = [
        TaskState::Running,
        TaskState::Interruptible,
        TaskState::Uninterruptible,
        TaskState::Stopped,
        TaskState::Traced,
        TaskState::Dead,
        TaskState::Zombie,
        TaskState::Parked,
        TaskState::Idle,
    ];

    /// From the kernel's `prev_state` bits (`TASK_INTERRUPTIBLE` = 1, `TASK_UNINTERRUPTIBLE` = 2, …, with `TASK_NOLOAD` = 0x400).
    pub fn from_kernel(bits: u64) -> TaskState {
        match bits {
            0 => TaskState::Running,
            b if b & 0x402 == 0x402 => TaskState::Idle,
            b if b & 0x1 != 0 => TaskState::Interruptible,
            b if b & 0x2 != 0 => TaskState::Uninterruptible,
            b if b & 0x4 != 0 => TaskState::Stopped,
            b if b & 0x8 != 0 => TaskState::Traced,
            b if b & 0x10 != 0 => TaskState::Dead,
            b if b & 0x20 != 0 => TaskState::Zombie,
            b if b & 0x40 != 0 => TaskState::Parked,
            b if b & 0x80 != 0 => TaskState::Dead,
            // TASK_NEW and whatever else is no wait that anybody could be charged with
            _ => TaskState::Running,
        }
    }

    /// The letter that `ps` shows.
    pub fn letter(self) -> char {
        match self {
            TaskState::Running => 'R',
            TaskState::Interruptible => 'S',
            TaskState::Uninterruptible => 'D',
            TaskState::Stopped => 'T',
            TaskState::Traced => 't',
            TaskState::Dead => 'X',
            TaskState::Zombie => 'Z',
            TaskState::Parked => 'P',
            TaskState::Idle => 'I',
        }
    }

    /// The state of that letter.
    pub fn from_letter(letter: char) -> Option<TaskState> {
        TaskState::ALL.into_iter().find(|s| s.letter() == letter)
    }
}

/// What a task did when the window opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SeedState {
    /// It ran on the event's CPU.
    Running,
    /// It waited for a CPU.
    Runnable,
    /// It was blocked in that state.
    Blocked {
        /// The state.
        state: TaskState,
        /// It waited for input or output.
        iowait: bool,
        /// The system call that it was in.
        syscall: Option<Syscall>,
    },
}

/// Who wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waker {
    /// A task, in its own context.
    Task(TaskId),
    /// An interrupt (device, timer, other CPU): no task is guilty.
    Interrupt,
    /// Not known.
    Unknown,
}

/// The number of a system call, as this machine's architecture numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Syscall(u16);

impl Syscall {
    /// The system call `number`; `None` if there can be no such.
    pub fn new(number: i64) -> Option<Syscall> {
        u16::try_from(number).ok().filter(|n| *n < u16::MAX).map(Syscall)
    }

    /// Its number.
    pub fn number(self) -> u16 {
        self.0
    }
}

/// How a task waits for a lock: the flags of `contention_begin`, as the kernel numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentionFlags(pub u8);

impl ContentionFlags {
    /// It spins.
    pub const SPIN: ContentionFlags = ContentionFlags(1);
    /// It wants to read.
    pub const READ: ContentionFlags = ContentionFlags(2);
    /// It wants to write.
    pub const WRITE: ContentionFlags = ContentionFlags(4);
    /// A real-time lock.
    pub const RT: ContentionFlags = ContentionFlags(8);
    /// A per-CPU rw-semaphore.
    pub const PERCPU: ContentionFlags = ContentionFlags(16);
    /// A mutex.
    pub const MUTEX: ContentionFlags = ContentionFlags(32);

    /// Whether all of `flags` are set.
    pub fn contains(self, flags: ContentionFlags) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// What an observation of a lock's owner is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum OwnerQuality {
    /// No owner was seen.
    #[default]
    None = 0,
    /// The lock's own owner field: that task had it at that moment.
    Owner = 1,
    /// A reader that took it, perhaps one of several, perhaps gone.
    Reader = 2,
    /// The last task that took a semaphore, which need not have it any more.
    LastHolder = 3,
}

/// Where a sampled task was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SampleMode {
    /// In its own code.
    User = 0,
    /// In the kernel on its own behalf.
    Kernel = 1,
    /// In an interrupt handler that happened to run on top of it.
    Interrupt = 2,
}

/// A kind of interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum IrqKind {
    /// A device's interrupt.
    Hard = 0,
    /// A soft interrupt.
    Soft = 1,
    /// A vector of the CPU itself: local timer, rescheduling, function call.
    Vector = 2,
}
