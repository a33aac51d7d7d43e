//! Bytes to records. Input is not trusted: every length is checked before anything is reserved for it.

use super::{MAX_CPUS, MAX_FRAMES, MAX_NAMES, MAX_OPTIONS, MAX_STRING, tag};
use crate::event::{
    ContentionFlags, Event, IrqKind, Kind, OwnerQuality, SampleMode, SeedState, Syscall, TaskState, Waker,
};
use crate::ids::{CgroupId, Cpu, LockId, StackId, StrId, SymbolId, TaskId, TimeNs};
use crate::tables::{
    Definition, Lock, LockKind, Meta, Name, Summary, Symbol, Tables, Task, TaskExit, TaskKind,
};

/// Why a block's contents are wrong. A thin reference, so that a number or the reason why there is none is returned in registers.
pub(super) type Damage = &'static &'static str;

/// The highest handle of each kind that the events of a block use.
#[derive(Default)]
pub(super) struct Highest {
    task: u32,
    lock: u32,
    stack: u32,
    symbol: u32,
    string: u32,
    cgroup: u32,
}

impl Highest {
    /// Whether all handles that were seen are defined.
    pub(super) fn defined(&self, tables: &Tables) -> bool {
        self.task as usize <= tables.tasks.len()
            && self.lock as usize <= tables.locks.len()
            && self.stack as usize <= tables.stacks.len()
            && self.symbol as usize <= tables.symbols.len()
            && self.string as usize <= tables.strings.len()
            && self.cgroup as usize <= tables.cgroups.len()
    }
}

/// Reads records from the bytes of a block.
pub(super) struct Decoder<'a> {
    bytes: &'a [u8],
    last: TimeNs,
    pub(super) highest: Highest,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8], first_time: TimeNs) -> Decoder<'a> {
        Decoder { bytes, last: first_time, highest: Highest::default() }
    }

    #[inline]
    fn byte(&mut self) -> Result<u8, Damage> {
        let (&first, rest) = self.bytes.split_first().ok_or(&"a record is cut")?;
        self.bytes = rest;
        Ok(first)
    }

    /// Most numbers take a byte, or two: times.
    #[inline(always)]
    fn number(&mut self) -> Result<u64, Damage> {
        match *self.bytes {
            [first, ref rest @ ..] if first < 0x80 => {
                self.bytes = rest;
                Ok(first.into())
            }
            [first, second, ref rest @ ..] if second < 0x80 => {
                self.bytes = rest;
                Ok(u64::from(first & 0x7f) | u64::from(second) << 7)
            }
            _ => self.long_number(),
        }
    }

    #[inline(never)]
    fn long_number(&mut self) -> Result<u64, Damage> {
        let mut value = 0;
        for shift in (0..=63).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(&"a number is too long")
    }

    #[inline]
    fn signed(&mut self) -> Result<i64, Damage> {
        let raw = self.number()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    #[inline]
    fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Damage> {
        T::try_from(self.number()?).map_err(|_| &"a number is out of range")
    }

    fn int32(&mut self) -> Result<i32, Damage> {
        i32::try_from(self.signed()?).map_err(|_| &"a number is out of range")
    }

    fn length(&mut self, most: usize) -> Result<usize, Damage> {
        let length: usize = self.small()?;
        if length > most || length > self.bytes.len() {
            return Err(&"a length is out of range");
        }
        Ok(length)
    }

    fn string(&mut self) -> Result<&'a str, Damage> {
        let length = self.length(MAX_STRING)?;
        let (text, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        std::str::from_utf8(text).map_err(|_| &"a string is not UTF-8")
    }

    #[inline]
    fn cpu(&mut self) -> Result<Cpu, Damage> {
        Ok(Cpu(self.small()?))
    }

    fn cpus(&mut self) -> Result<Vec<Cpu>, Damage> {
        let count = self.length(MAX_CPUS)?;
        (0..count).map(|_| self.cpu()).collect()
    }

    #[inline]
    fn task_or_none(&mut self) -> Result<Option<TaskId>, Damage> {
        let raw: u32 = self.small()?;
        self.highest.task = self.highest.task.max(raw);
        Ok(TaskId::from_raw(raw))
    }

    #[inline]
    fn task(&mut self) -> Result<TaskId, Damage> {
        self.task_or_none()?.ok_or(&"a task is missing")
    }

    #[inline]
    fn lock_or_none(&mut self) -> Result<Option<LockId>, Damage> {
        let raw: u32 = self.small()?;
        self.highest.lock = self.highest.lock.max(raw);
        Ok(LockId::from_raw(raw))
    }

    #[inline]
    fn lock(&mut self) -> Result<LockId, Damage> {
        self.lock_or_none()?.ok_or(&"a lock is missing")
    }

    #[inline]
    fn stack_or_none(&mut self) -> Result<Option<StackId>, Damage> {
        let raw: u32 = self.small()?;
        self.highest.stack = self.highest.stack.max(raw);
        Ok(StackId::from_raw(raw))
    }

    fn symbol(&mut self) -> Result<SymbolId, Damage> {
        let raw: u32 = self.small()?;
        self.highest.symbol = self.highest.symbol.max(raw);
        SymbolId::from_raw(raw).ok_or(&"a symbol is missing")
    }

    fn str_or_none(&mut self) -> Result<Option<StrId>, Damage> {
        let raw: u32 = self.small()?;
        self.highest.string = self.highest.string.max(raw);
        Ok(StrId::from_raw(raw))
    }

    fn cgroup_or_none(&mut self) -> Result<Option<CgroupId>, Damage> {
        let raw: u32 = self.small()?;
        self.highest.cgroup = self.highest.cgroup.max(raw);
        Ok(CgroupId::from_raw(raw))
    }

    fn cgroup(&mut self) -> Result<CgroupId, Damage> {
        self.cgroup_or_none()?.ok_or(&"a control group is missing")
    }

    #[inline]
    fn syscall(&mut self) -> Result<Option<Syscall>, Damage> {
        match self.number()? {
            0 => Ok(None),
            n => Syscall::new(n as i64 - 1).map(Some).ok_or(&"a system call is out of range"),
        }
    }

    fn quality(&mut self) -> Result<OwnerQuality, Damage> {
        Ok(match self.byte()? {
            0 => OwnerQuality::None,
            1 => OwnerQuality::Owner,
            2 => OwnerQuality::Reader,
            3 => OwnerQuality::LastHolder,
            _ => return Err(&"an owner quality is unknown"),
        })
    }

    fn irq(&mut self) -> Result<IrqKind, Damage> {
        Ok(match self.byte()? {
            0 => IrqKind::Hard,
            1 => IrqKind::Soft,
            2 => IrqKind::Vector,
            _ => return Err(&"an interrupt kind is unknown"),
        })
    }

    #[inline]
    fn state(&mut self) -> Result<(TaskState, bool, bool), Damage> {
        let byte = self.byte()?;
        let state = TaskState::ALL.get(usize::from(byte & 0xf)).ok_or(&"a state is unknown")?;
        Ok((*state, byte & 0x10 != 0, byte & 0x20 != 0))
    }

    /// A time, given as that of the event less its own.
    fn before(&mut self) -> Result<TimeNs, Damage> {
        Ok(TimeNs(self.last.0.wrapping_sub(self.signed()? as u64)))
    }

    /// Adds the events that come next to `events`, up to the next definition, which is returned; `None` at the end of the block.
    pub(super) fn events(&mut self, events: &mut Vec<Event>) -> Result<Option<Definition>, Damage> {
        while let Some((&tag, rest)) = self.bytes.split_first() {
            self.bytes = rest;
            if tag >= tag::DEF_META {
                return self.definition(tag).map(Some);
            }
            let delta = self.signed()?;
            let time = TimeNs(self.last.0.wrapping_add(delta as u64));
            self.last = time;
            let cpu = self.cpu()?;
            let kind = self.kind(tag)?;
            events.push(Event { time, cpu, kind });
        }
        Ok(None)
    }

    #[inline]
    fn kind(&mut self, tag: u8) -> Result<Kind, Damage> {
        Ok(match tag {
            tag::SWITCH => {
                let prev = self.task()?;
                let next = self.task()?;
                let (prev_state, preempt, iowait) = self.state()?;
                let syscall = self.syscall()?;
                Kind::Switch { prev, next, prev_state, preempt, iowait, syscall }
            }
            tag::WAKING => {
                let waker = match self.number()? {
                    0 => Waker::Unknown,
                    1 => Waker::Interrupt,
                    n => {
                        let raw = u32::try_from(n - 1).map_err(|_| &"a number is out of range")?;
                        self.highest.task = self.highest.task.max(raw);
                        Waker::Task(TaskId::from_raw(raw).ok_or(&"a task is missing")?)
                    }
                };
                let wakee = self.task()?;
                let target = self.cpu()?;
                let stack = self.stack_or_none()?;
                Kind::Waking { waker, wakee, target, stack }
            }
            tag::CONTENTION_BEGIN => Kind::ContentionBegin {
                task: self.task()?,
                lock: self.lock()?,
                flags: ContentionFlags(self.byte()?),
                owner: self.task_or_none()?,
                quality: self.quality()?,
            },
            tag::CONTENTION_END => {
                Kind::ContentionEnd { task: self.task()?, lock: self.lock()?, ret: self.int32()? }
            }
            tag::BLOCKED_ON => Kind::BlockedOn { task: self.task()?, lock: self.lock()? },
            tag::IO_DONE => Kind::IoDone {
                task: self.task()?,
                device: self.lock()?,
                issued: match self.byte()? {
                    0 => None,
                    1 => Some(self.before()?),
                    _ => return Err(&"a time is neither there nor not"),
                },
                done: self.before()?,
            },
            tag::OWNER => {
                Kind::Owner { lock: self.lock()?, owner: self.task_or_none()?, quality: self.quality()? }
            }
            tag::ACQUIRED => Kind::Acquired { task: self.task()?, lock: self.lock()? },
            tag::RELEASED => Kind::Released { task: self.task()?, lock: self.lock()? },
            tag::WAIT_STACK => Kind::WaitStack {
                task: self.task()?,
                lock: self.lock_or_none()?,
                kernel: self.stack_or_none()?,
                user: self.stack_or_none()?,
                weight_ns: self.number()?,
            },
            tag::SAMPLE => Kind::Sample {
                task: self.task()?,
                mode: match self.byte()? {
                    0 => SampleMode::User,
                    1 => SampleMode::Kernel,
                    2 => SampleMode::Interrupt,
                    _ => return Err(&"a sample mode is unknown"),
                },
                kernel: self.stack_or_none()?,
                user: self.stack_or_none()?,
                weight_ns: self.number()?,
            },
            tag::WINDOW_START => Kind::WindowStart,
            tag::WINDOW_END => Kind::WindowEnd,
            tag::SEED => {
                let task = self.task()?;
                let state = match self.byte()? {
                    0 => SeedState::Running,
                    1 => SeedState::Runnable,
                    2 => {
                        let (state, _, iowait) = self.state()?;
                        SeedState::Blocked { state, iowait, syscall: self.syscall()? }
                    }
                    _ => return Err(&"a seed state is unknown"),
                };
                Kind::Seed { task, state, lock: self.lock_or_none()? }
            }
            tag::FORK => Kind::Fork { parent: self.task()?, child: self.task()? },
            tag::EXEC => Kind::Exec { task: self.task()?, name: self.str_or_none()? },
            tag::EXIT => Kind::Exit { task: self.task()?, status: self.int32()? },
            tag::WORK_START => Kind::WorkStart { task: self.task()?, function: self.symbol()? },
            tag::WORK_END => Kind::WorkEnd { task: self.task()? },
            tag::IRQ_ENTER => Kind::IrqEnter { irq: self.irq()?, number: self.small()? },
            tag::IRQ_EXIT => Kind::IrqExit { irq: self.irq()?, number: self.small()? },
            tag::THROTTLE => {
                Kind::Throttle { cgroup: self.cgroup()?, count: self.small()?, throttled_ns: self.number()? }
            }
            tag::HELD_BACK => Kind::HeldBack { task: self.task()?, cgroup: self.cgroup_or_none()? },
            tag::LOST => Kind::Lost { count: self.small()?, from: TimeNs(self.number()?) },
            _ => return Err(&"a record is of an unknown kind"),
        })
    }

    fn definition(&mut self, tag: u8) -> Result<Definition, Damage> {
        Ok(match tag {
            tag::DEF_META => {
                let mut meta = Meta {
                    machine: self.string()?.to_owned(),
                    kernel: self.string()?.to_owned(),
                    arch: self.string()?.to_owned(),
                    hz: self.small()?,
                    realtime_offset_ns: self.signed()?,
                    online: self.cpus()?,
                    allowed: self.cpus()?,
                    options: Vec::new(),
                };
                for _ in 0..self.length(MAX_OPTIONS)? {
                    meta.options.push((self.string()?.to_owned(), self.string()?.to_owned()));
                }
                Definition::Meta(meta)
            }
            // the handles that definitions refer to need not be checked: looking them up is total
            tag::DEF_STR => Definition::Str(self.new_id(StrId::from_raw)?, self.string()?.to_owned()),
            tag::DEF_SYMBOL => Definition::Symbol(
                self.new_id(SymbolId::from_raw)?,
                Symbol { name: self.new_id(StrId::from_raw)?, module: StrId::from_raw(self.small()?) },
            ),
            tag::DEF_STACK => {
                let id = self.new_id(StackId::from_raw)?;
                let count = self.length(MAX_FRAMES)?;
                let frames = (0..count).map(|_| self.new_id(SymbolId::from_raw));
                Definition::Stack(id, frames.collect::<Result<_, _>>()?)
            }
            tag::DEF_TASK => Definition::Task(self.new_id(TaskId::from_raw)?, self.task_definition()?),
            tag::DEF_LOCK => Definition::Lock(
                self.new_id(LockId::from_raw)?,
                Lock {
                    kind: *LockKind::ALL.get(usize::from(self.byte()?)).ok_or(&"a lock kind is unknown")?,
                    address: self.number()?,
                    class: StrId::from_raw(self.small()?),
                    object: StrId::from_raw(self.small()?),
                    process: TaskId::from_raw(self.small()?),
                },
            ),
            tag::DEF_CGROUP => {
                Definition::Cgroup(self.new_id(CgroupId::from_raw)?, self.new_id(StrId::from_raw)?)
            }
            tag::DEF_SUMMARY => Definition::Summary(Summary {
                lost_events: self.number()?,
                lost_stacks: self.number()?,
                truncated_names: self.number()?,
                reordered: self.number()?,
            }),
            _ => return Err(&"a record is of an unknown kind"),
        })
    }

    fn new_id<T>(&mut self, from_raw: fn(u32) -> Option<T>) -> Result<T, Damage> {
        from_raw(self.small()?).ok_or(&"a handle is missing")
    }

    fn task_definition(&mut self) -> Result<Task, Damage> {
        let tid = self.small()?;
        let tgid = self.small()?;
        let kind = match self.byte()? {
            0 => TaskKind::User,
            1 => TaskKind::Kernel,
            2 => TaskKind::Idle(self.cpu()?),
            _ => return Err(&"a task kind is unknown"),
        };
        let parent = TaskId::from_raw(self.small()?);
        let in_scope = self.byte()? != 0;
        let start = TimeNs(self.number()?);
        let count = self.length(MAX_NAMES)?;
        let names = (0..count)
            .map(|_| {
                let from = TimeNs(self.number()?);
                Ok(Name { from, name: self.new_id(StrId::from_raw)? })
            })
            .collect::<Result<_, Damage>>()?;
        let command = StrId::from_raw(self.small()?);
        let cgroup = CgroupId::from_raw(self.small()?);
        let exit = match self.byte()? {
            0 => None,
            _ => Some(TaskExit { time: TimeNs(self.number()?), status: self.int32()? }),
        };
        Ok(Task { tid, tgid, kind, parent, in_scope, start, names, command, cgroup, exit })
    }
}
