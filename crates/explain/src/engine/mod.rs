//! What each event means.

mod samples;
mod schedule;
mod waits;
mod window;

use schedule::Leaves;
use trace::{
    ContentionFlags, Cpu, Event, Kind, LockId, LockKind, OwnerQuality, Tables, TaskId, TaskKind, TimeNs,
    Waker,
};

use crate::account::Account;
use crate::classify::Arch;
use crate::clock::Clock;
use crate::explanation::Explanation;
use crate::lock::LockState;
use crate::scope::Scope;
use crate::task::{Doing, Piece, Request, Slot, State, WokenBy};

/// A task that is runnable that long beside idle CPUs is held back by a quota, if its group's was used up, and not by a slow wake-up.
const LONG_RUNNABLE_NS: u64 = 1_000_000;
/// Events that are further from the first one than that are not of this trace (78 hours).
const LONGEST_NS: u64 = 1 << 48;
/// How many failed tasks are named.
const FAILED: usize = 100;

/// Explains a trace as it comes. Feed the events in order of time, then [`Engine::finish`].
///
/// Events with equal times may come in any order: they are put into one before they are looked at.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) scope: Scope,
    pub(crate) account: Account,
    pub(crate) clock: Clock,
    arch: Arch,
    /// Whether a CPU is allowed, by its number.
    allowed: Vec<bool>,
    cpus: Vec<CpuSlot>,
    tasks: Vec<Slot>,
    locks: Vec<Option<Box<LockState>>>,
    open: bool,
    started: TimeNs,
    /// Events of one moment, of which more may come.
    same: Vec<Event>,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, Default)]
struct CpuSlot {
    current: Option<TaskId>,
    idle: bool,
    irq_depth: u32,
    irq_from: TimeNs,
}

impl Engine {
    /// An engine that has seen nothing yet.
    pub fn new(scope: Scope) -> Engine {
        Engine { scope, ..Engine::default() }
    }

    /// Takes events, in order of time over all calls. `tables` must be those that the events' handles refer to, as
    /// they are now: they may have grown since the last call.
    pub fn feed(&mut self, tables: &Tables, events: &[Event]) {
        self.account.events += events.len() as u64;
        if self.account.first.is_none() {
            self.arch = Arch::named(&tables.meta().arch);
            self.account.first = events.first().map(|e| e.time);
        }
        let first = self.account.first.unwrap_or_default();
        let mut moments = events.chunk_by(|a, b| a.time == b.time).peekable();
        while let Some(moment) = moments.next() {
            let time = moment.first().map_or(first, |e| e.time);
            if time < first || time.since(first) > LONGEST_NS {
                self.account.unpaired += moment.len() as u64;
                continue;
            }
            if self.same.first().is_some_and(|same| same.time != time) {
                self.flush_same(tables);
            }
            match moment {
                // nothing else came at that moment, and nothing will
                [event] if self.same.is_empty() && moments.peek().is_some() => self.event(tables, event),
                _ => self.same.extend_from_slice(moment),
            }
        }
    }

    /// The explanation of everything that was fed.
    pub fn finish(mut self, tables: &Tables) -> Explanation {
        self.flush_same(tables);
        self.close_window();
        crate::finish::finish(&self, tables)
    }

    fn flush_same(&mut self, tables: &Tables) {
        let mut same = std::mem::take(&mut self.same);
        if same.len() > 1 {
            // an end belongs to what was before, unless a new window begins at the same moment
            let restarts = same.iter().any(|e| e.kind == Kind::WindowStart);
            same.sort_unstable_by_key(|e| match e.kind {
                Kind::WindowEnd if restarts => (0, e.cpu, e.kind),
                kind => (rank(&kind), e.cpu, kind),
            });
        }
        for event in &same {
            self.event(tables, event);
        }
        same.clear();
        self.same = same;
    }

    fn event(&mut self, tables: &Tables, event: &Event) {
        if !self.open {
            match event.kind {
                Kind::WindowEnd => return,
                Kind::WindowStart => {}
                _ if self.account.windows > 0 => return,
                // a trace without marks is one window
                _ => self.open_window(tables, event.time),
            }
        }
        if let Some(from) = self.scope.from.filter(|from| event.time >= *from)
            && self.started < from
        {
            self.clock.advance(from);
            self.begin_here();
        }
        self.clock.advance(event.time);
        match event.kind {
            Kind::WindowStart => {
                self.close_window();
                self.open_window(tables, event.time);
            }
            Kind::WindowEnd => self.close_window(),
            Kind::Switch { prev, next, prev_state, preempt, iowait, syscall } => {
                if self.know(tables, prev) && self.know(tables, next) {
                    let leaves = Leaves { state: prev_state, preempt, iowait, syscall };
                    self.switch(event.cpu, prev, next, leaves);
                }
            }
            Kind::Waking { waker, wakee, .. } => {
                if self.know(tables, wakee) {
                    let by = match waker {
                        Waker::Task(task) if self.know(tables, task) => WokenBy::Task(task),
                        Waker::Interrupt => WokenBy::Interrupt,
                        _ => WokenBy::Unknown,
                    };
                    self.waking(wakee, by);
                }
            }
            Kind::ContentionBegin { task, lock, flags, owner, quality } => {
                let owner = owner.filter(|o| self.know(tables, *o));
                if self.know(tables, task) && self.know_lock(tables, lock) {
                    let kind = tables.lock(lock).map_or(LockKind::Other, |l| l.kind);
                    let spins =
                        flags.contains(ContentionFlags::SPIN) && !flags.contains(ContentionFlags::MUTEX);
                    if spins || matches!(kind, LockKind::Spinlock | LockKind::Rwlock) {
                        self.tasks[task.index()].spin = Some((lock, self.clock.now));
                    } else {
                        self.contention_begin(event.cpu, task, lock, flags);
                        self.observe(lock, owner, quality);
                    }
                }
            }
            Kind::ContentionEnd { task, lock, ret } => {
                if self.know(tables, task) && self.know_lock(tables, lock) {
                    self.contention_end(task, lock, ret);
                }
            }
            Kind::BlockedOn { task, lock } => {
                if self.know(tables, task) && self.know_lock(tables, lock) {
                    self.blocked_on(task, lock);
                }
            }
            Kind::IoDone { task, device, issued, done } => {
                if self.know(tables, task) && self.know_lock(tables, device) {
                    self.tasks[task.index()].request = Some(Request { device, issued, done });
                }
            }
            Kind::Owner { lock, owner, quality } => {
                let owner = owner.filter(|o| self.know(tables, *o));
                if self.know_lock(tables, lock) {
                    self.observe(lock, owner, quality);
                }
            }
            Kind::Acquired { task, lock } => {
                if self.know(tables, task) && self.know_lock(tables, lock) {
                    // the end of a wait says the same, and more; without a wait this is the only word
                    if self.tasks[task.index()].wait.is_none() {
                        self.observe(lock, Some(task), OwnerQuality::Owner);
                    }
                }
            }
            Kind::Released { task, lock } => {
                if self.know(tables, task) && self.know_lock(tables, lock) {
                    let now = self.clock.now;
                    self.with_lock(lock, |l| l.freed(now, task));
                }
            }
            Kind::WaitStack { task, lock, kernel, user, weight_ns } => {
                if self.know(tables, task) {
                    self.wait_stack(task, lock, kernel, user, weight_ns);
                }
            }
            Kind::Sample { task, mode, kernel, user, weight_ns } => {
                if self.know(tables, task) {
                    self.sample(task, mode, kernel, user, weight_ns);
                }
            }
            Kind::Seed { task, state, lock } => {
                if self.know(tables, task) {
                    let lock = lock.filter(|l| self.know_lock(tables, *l));
                    self.seed(event.cpu, task, state, lock);
                }
            }
            Kind::Fork { child, .. } => {
                if self.know(tables, child) {
                    let slot = &self.tasks[child.index()];
                    // a new task is made runnable without an event of its own
                    if slot.state == State::Unknown && !slot.seen {
                        self.waking(child, WokenBy::Unknown);
                    }
                }
            }
            Kind::Exec { .. } => {}
            Kind::Exit { task, status } => {
                if self.know(tables, task) && self.tasks[task.index()].in_scope {
                    self.account.exits += 1;
                    if status != 0 && self.account.failed.len() < FAILED {
                        self.account.failed.push((task, status));
                    }
                }
            }
            Kind::WorkStart { task, function } => {
                if self.know(tables, task) {
                    let now = self.clock.now;
                    let slot = &mut self.tasks[task.index()];
                    slot.work = Some(function);
                    if matches!(slot.state, State::Running(_)) && slot.wait.is_none() {
                        slot.note(now, Doing::Running(Some(function)));
                    }
                }
            }
            Kind::WorkEnd { task } => {
                if self.know(tables, task) {
                    let now = self.clock.now;
                    let slot = &mut self.tasks[task.index()];
                    slot.work = None;
                    if matches!(slot.state, State::Running(_)) && slot.wait.is_none() {
                        slot.note(now, Doing::Running(None));
                    }
                }
            }
            Kind::IrqEnter { irq, .. } => self.interrupt(event, irq, true),
            Kind::IrqExit { irq, .. } => self.interrupt(event, irq, false),
            Kind::Throttle { cgroup, throttled_ns, .. } => {
                let seen = self.account.throttled_ns.entry(cgroup).or_insert((throttled_ns, throttled_ns));
                seen.1 = seen.1.max(throttled_ns);
            }
            Kind::HeldBack { task, cgroup } => {
                if self.know(tables, task) {
                    let slot = &mut self.tasks[task.index()];
                    slot.group = cgroup.or(slot.group);
                    slot.held_back = slot.state == State::Runnable;
                }
            }
            Kind::Lost { count, from } => self.lost(u64::from(count), event.time.since(from)),
        }
    }

    /// Makes sure that there is a slot for a task; false if the tables do not have it.
    #[inline]
    fn know(&mut self, tables: &Tables, task: TaskId) -> bool {
        let index = task.index();
        if index < self.tasks.len() && self.tasks[index].known {
            return true;
        }
        let Some(row) = tables.task(task) else { return false };
        if index >= self.tasks.len() {
            self.tasks.resize_with(index + 1, Slot::default);
        }
        let slot = &mut self.tasks[index];
        slot.known = true;
        slot.in_scope = self.scope.contains(row);
        slot.kernel = row.kind == TaskKind::Kernel;
        slot.idle = matches!(row.kind, TaskKind::Idle(_));
        slot.group = row.cgroup;
        true
    }

    #[inline]
    fn know_lock(&mut self, tables: &Tables, lock: LockId) -> bool {
        let index = lock.index();
        if self.locks.get(index).is_some_and(Option::is_some) {
            return true;
        }
        let Some(row) = tables.lock(lock) else { return false };
        if index >= self.locks.len() {
            self.locks.resize_with(index + 1, || None);
        }
        let condition =
            row.kind == LockKind::Futex && row.class.is_some_and(|c| tables.str(c) == "condition");
        self.locks[index] = Some(Box::new(LockState::new(row.kind, condition)));
        true
    }

    fn cpu(&mut self, cpu: Cpu) -> &mut CpuSlot {
        let index = usize::from(cpu.0);
        if index >= self.cpus.len() {
            self.cpus.resize(index + 1, CpuSlot::default());
        }
        &mut self.cpus[index]
    }

    pub(crate) fn is_allowed(&self, cpu: Cpu) -> bool {
        self.allowed.get(usize::from(cpu.0)).copied().unwrap_or(false)
    }

    /// How many CPUs are allowed.
    pub(crate) fn allowed_cpus(&self) -> usize {
        self.allowed.iter().filter(|a| **a).count()
    }

    /// Changes what is seen of a lock, and who is known to have it.
    fn with_lock(&mut self, id: LockId, change: impl FnOnce(&mut LockState)) {
        let Some(Some(lock)) = self.locks.get_mut(id.index()) else { return };
        let before = if lock.waiters > 0 { lock.holder() } else { None };
        change(lock);
        let after = if lock.waiters > 0 { lock.holder() } else { None };
        if before != after {
            if let Some(slot) = before.and_then(|t| self.tasks.get_mut(t.index())) {
                slot.holding.retain(|l| *l != id);
            }
            if let Some(slot) = after.and_then(|t| self.tasks.get_mut(t.index())) {
                slot.holding.push(id);
            }
        }
    }

    /// An owner of a lock was seen.
    fn observe(&mut self, id: LockId, owner: Option<TaskId>, quality: OwnerQuality) {
        let now = self.clock.now;
        let wait = owner.and_then(|o| self.tasks.get(o.index())?.wait.as_ref());
        let since = wait.filter(|w| w.lock != Some(id)).map_or(now, |w| w.begin);
        self.with_lock(id, |l| l.observe(now, owner, quality, since));
    }
}

/// The order of events of one moment.
fn rank(kind: &Kind) -> u8 {
    match kind {
        Kind::WindowEnd => 20,
        Kind::WindowStart => 1,
        Kind::Lost { .. } => 2,
        Kind::Fork { .. } | Kind::Exec { .. } => 3,
        Kind::Seed { .. } => 4,
        Kind::Released { .. } => 5,
        Kind::BlockedOn { .. } | Kind::IoDone { .. } | Kind::ContentionBegin { .. } | Kind::Owner { .. } => 6,
        // who is woken and runs at one moment was woken first
        Kind::Waking { .. } => 7,
        Kind::Switch { .. } => 8,
        // who left its CPU at that moment
        Kind::HeldBack { .. } => 9,
        Kind::ContentionEnd { .. } => 9,
        Kind::Acquired { .. } => 10,
        Kind::WorkEnd { .. } => 11,
        Kind::WorkStart { .. } => 12,
        Kind::IrqExit { .. } => 13,
        Kind::IrqEnter { .. } => 14,
        Kind::Exit { .. } | Kind::Throttle { .. } | Kind::WaitStack { .. } | Kind::Sample { .. } => 15,
    }
}
