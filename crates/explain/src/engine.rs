//! What each event means.

use trace::{
    ContentionFlags, Cpu, Event, IrqKind, Kind, LockId, LockKind, OwnerQuality, SampleMode, SeedState,
    StackId, Syscall, Tables, TaskId, TaskKind, TaskState, TimeNs, Waker,
};

use crate::account::{Account, Cut, End};
use crate::classify::{Arch, Class};
use crate::clock::{Clock, Counted, Stamp};
use crate::explanation::Explanation;
use crate::lock::LockState;
use crate::scope::Scope;
use crate::task::{Doing, Phase, Piece, Slot, State, Wait, WokenBy};
use crate::wait::Past;

/// A task that is runnable that long beside idle CPUs is held back by a quota, if there was any at work, and not by a slow wake-up.
const LONG_RUNNABLE_NS: u64 = 1_000_000;
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
        for event in events {
            if self.same.first().is_some_and(|first| first.time != event.time) {
                self.flush_same(tables);
            }
            self.same.push(*event);
        }
    }

    /// The explanation of everything that was fed.
    pub fn finish(mut self, tables: &Tables) -> Explanation {
        self.flush_same(tables);
        self.close_window();
        crate::finish::finish(&self, tables)
    }

    #[inline]
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

    fn open_window(&mut self, tables: &Tables, time: TimeNs) {
        self.open = true;
        self.started = time;
        self.account.windows += 1;
        self.clock.restart(time);
        if self.allowed.is_empty() {
            for cpu in self.scope.cpus(tables.meta()) {
                let index = usize::from(cpu.0);
                if index >= self.allowed.len() {
                    self.allowed.resize(index + 1, false);
                }
                self.allowed[index] = true;
            }
        }
        self.cpus.clear();
        // a CPU for which nobody is seeded as running is idle
        for index in 0..self.allowed.len() {
            self.cpu(Cpu(index as u16)).idle = true;
            if self.allowed[index] {
                self.clock.cpu_goes_idle();
            }
        }
    }

    /// Ends the window: whatever is open is counted up to now.
    fn close_window(&mut self) {
        if !self.open {
            return;
        }
        self.account.window_ns += self.clock.now.t.since(self.started);
        self.let_go();
        self.clock.restart(self.clock.now.t);
        self.open = false;
    }

    /// Counts whatever is open up to now, and forgets the states of all tasks.
    fn let_go(&mut self) {
        for index in 0..self.tasks.len() {
            if !self.tasks[index].known {
                continue;
            }
            let task = TaskId::from_index(index as u32);
            match self.tasks[index].state {
                State::Running(cpu) => self.leave_cpu(task, cpu),
                State::Runnable => self.leave_queue(task, None),
                State::Blocked => self.leave_sleep(task),
                State::Unknown | State::Dead => {}
            }
            if let Some(wait) = self.tasks[index].wait.take() {
                self.give_up(task, &wait);
            }
            let slot = &mut self.tasks[index];
            slot.forget();
            if slot.state != State::Dead {
                slot.state = State::Unknown;
            }
            slot.seen = false;
            slot.early_wake = None;
            slot.object = None;
            self.clock.recount(self.tasks[index].counted, Counted::No);
            self.tasks[index].counted = Counted::No;
        }
        self.locks.iter_mut().for_each(|l| *l = None);
    }

    /// A wait whose end is not seen.
    fn give_up(&mut self, task: TaskId, wait: &Wait) {
        let now = self.clock.now;
        let slot = &self.tasks[task.index()];
        let futex = wait.class == Class::Futex
            || wait
                .lock
                .and_then(|l| self.locks.get(l.index())?.as_ref())
                .is_some_and(|l| l.kind == LockKind::Futex);
        if futex && !wait.woken {
            // a thread that nobody woke had nothing to do, as far as one can see
            if slot.in_scope {
                self.account.beside += now.sure - wait.begin.sure;
            }
            return;
        }
        self.cut(task, wait, WokenBy::Unknown);
    }

    /// Cuts a wait up to now; its pieces become the history of the task.
    fn cut(&mut self, task: TaskId, wait: &Wait, by: WokenBy) {
        let now = self.clock.now;
        self.cut_at(task, wait, by, now);
    }

    fn cut_at(&mut self, task: TaskId, wait: &Wait, by: WokenBy, at: Stamp) {
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        let mut past = Past { tasks: &self.tasks, account: &mut self.account, pieces: &mut pieces };
        match wait.lock.filter(|_| wait.is_for_lock()) {
            Some(id) => {
                if let Some(Some(lock)) = self.locks.get(id.index()) {
                    past.lock_wait(task, wait, id, lock, at);
                }
            }
            None => past.plain_wait(task, wait, by, at),
        }
        let slot = &mut self.tasks[task.index()];
        slot.last_wait = Some(wait.end());
        slot.resolve(&pieces);
        self.pieces = pieces;
    }

    #[inline]
    fn recount(&mut self, task: TaskId, counted: Counted) {
        let slot = &mut self.tasks[task.index()];
        if !slot.in_scope {
            return;
        }
        self.clock.recount(slot.counted, counted);
        slot.counted = counted;
    }

    /// Counts the time that a task was on a CPU.
    fn leave_cpu(&mut self, task: TaskId, cpu: Cpu) {
        let allowed = self.is_allowed(cpu);
        let now = self.clock.now;
        let slot = &mut self.tasks[task.index()];
        let ns = slot.since.until(&now);
        let from = slot.since;
        slot.since = now;
        if slot.in_scope {
            if slot.wait.is_some() {
                self.account.times.lock_on_cpu += ns;
            } else {
                self.account.times.running += ns;
            }
            *(if allowed { &mut self.account.scope_ns } else { &mut self.account.scope_elsewhere_ns }) += ns;
            let serial = self.clock.serial - slot.serial_from;
            slot.serial_from = self.clock.serial;
            self.account.charge_serial(task, from.t, now.t, serial);
        } else if allowed && !slot.idle {
            self.account.others_ns += ns;
        }
    }

    /// Counts the time that a task waited for a CPU.
    fn leave_queue(&mut self, task: TaskId, on_idle: Option<bool>) {
        let now = self.clock.now;
        let slot = &mut self.tasks[task.index()];
        let from = slot.since;
        slot.since = now;
        if !slot.in_scope {
            return;
        }
        let ns = from.until(&now);
        self.account.times.runnable += ns;
        if slot.wait.is_some() {
            return;
        }
        let idle = now.sure - from.sure;
        // from the wake-up to the CPU is a part of the wait, as with locks
        let waited = slot.last_wait.filter(|_| slot.woken);
        if let Some(end) = waited {
            let sums = self.account.end(end);
            sums.wait_ns += ns;
            sums.parts.add(Cut::HandOff(on_idle), ns);
        }
        let end = match waited {
            Some(end) if self.is_loss(end) => end,
            _ if ns >= LONG_RUNNABLE_NS => End::LongRunnable,
            _ => End::WakeUp,
        };
        self.account.charge(end, from.t, now.t, idle);
    }

    /// Whether a wait is a loss by itself, so that the wake-up at its end is a part of the loss.
    fn is_loss(&self, end: End) -> bool {
        match end {
            End::Lock(id) => {
                let lock = self.locks.get(id.index()).and_then(|l| l.as_ref());
                lock.is_some_and(|l| !l.condition && l.kind != LockKind::Pipe)
            }
            End::Wait(class) => class.counted() == Counted::Sure,
            End::WakeUp | End::LongRunnable | End::Unknown => false,
        }
    }

    /// Counts the time that a task slept.
    fn leave_sleep(&mut self, task: TaskId) {
        let now = self.clock.now;
        let slot = &mut self.tasks[task.index()];
        let ns = slot.since.until(&now);
        slot.since = now;
        if !slot.in_scope {
            return;
        }
        let times = &mut self.account.times;
        *match slot.wait.as_ref().map_or(Class::Stopped, |w| w.class) {
            Class::Lock => &mut times.lock,
            Class::Io => &mut times.io,
            Class::Kernel => &mut times.kernel,
            Class::Futex => &mut times.futex,
            Class::Peer => &mut times.peer,
            Class::Child | Class::Sleep | Class::Events | Class::Stopped => &mut times.idle,
        } += ns;
    }

    fn switch(&mut self, cpu: Cpu, prev: TaskId, next: TaskId, leaves: Leaves) {
        let was_idle = self.tasks[prev.index()].idle;
        let is_idle = self.tasks[next.index()].idle;
        if let Some(stale) = self.cpu(cpu).current.filter(|current| *current != prev) {
            self.lose_sight(stale, cpu);
        }
        if !was_idle {
            self.switch_out(cpu, prev, leaves);
        }
        let allowed = self.is_allowed(cpu);
        let slot = self.cpu(cpu);
        let seen_idle = slot.idle;
        slot.idle = is_idle;
        slot.current = Some(next);
        if allowed && seen_idle != is_idle {
            if is_idle {
                self.clock.cpu_goes_idle();
            } else {
                self.clock.cpu_goes_busy();
            }
        }
        if !is_idle {
            self.switch_in(cpu, next, was_idle);
        }
    }

    /// Another task leaves the CPU than the one that was seen to get it: a switch was missed, and what the first one did since is not known.
    fn lose_sight(&mut self, task: TaskId, cpu: Cpu) {
        let now = self.clock.now;
        let slot = &mut self.tasks[task.index()];
        if slot.idle || slot.state != State::Running(cpu) {
            return;
        }
        self.account.unpaired += 1;
        slot.state = State::Unknown;
        slot.since = now;
        if let Some(wait) = slot.wait.take() {
            self.abandon(task, &wait);
        }
        self.tasks[task.index()].note(now, Doing::Unknown);
        self.recount(task, Counted::No);
    }

    fn switch_out(&mut self, cpu: Cpu, task: TaskId, leaves: Leaves) {
        self.ensure_running(task, cpu);
        self.leave_cpu(task, cpu);
        let now = self.clock.now;
        let arch = self.arch;
        let slot = &mut self.tasks[task.index()];
        if leaves.preempt || leaves.state == TaskState::Running {
            slot.state = State::Runnable;
            slot.woken = false;
            match &mut slot.wait {
                Some(wait) => wait.enter(now, Phase::Preempted),
                None => slot.note(now, Doing::Runnable),
            }
            self.recount(task, Counted::Sure);
            return;
        }
        if matches!(leaves.state, TaskState::Dead | TaskState::Zombie) {
            slot.state = State::Dead;
            if let Some(wait) = slot.wait.take() {
                self.give_up(task, &wait);
            }
            self.recount(task, Counted::No);
            self.tasks[task.index()].forget();
            return;
        }
        slot.state = State::Blocked;
        let object = slot.object.take();
        if let Some(wait) = &mut slot.wait {
            wait.enter(now, Phase::Asleep);
            let long = wait.is_long();
            if std::mem::take(&mut wait.woken)
                && let Some(lock) = wait.lock
            {
                self.with_lock(lock, |l| l.missed(now, task));
            }
            if long {
                self.explain_so_far(task);
            }
        } else {
            let class = Class::of(leaves.state, leaves.iowait, leaves.syscall, slot.kernel, arch);
            slot.wait = Some(Wait::new(now, Phase::Asleep, class));
            slot.note(now, Doing::Open);
            if let Some(lock) = object {
                self.blocked_on(task, lock);
            }
        }
        let class = self.tasks[task.index()].wait.as_ref().map_or(Class::Stopped, |w| w.class);
        self.recount(task, class.counted());
    }

    fn switch_in(&mut self, cpu: Cpu, task: TaskId, on_idle: bool) {
        let now = self.clock.now;
        match self.tasks[task.index()].state {
            State::Blocked => {
                // its wake-up came before it was seen to sleep, or was not seen
                let by = self.tasks[task.index()].early_wake.unwrap_or(WokenBy::Unknown);
                self.leave_sleep(task);
                self.wake(task, by);
                self.leave_queue(task, Some(on_idle));
            }
            State::Runnable => self.leave_queue(task, Some(on_idle)),
            State::Running(_) | State::Unknown | State::Dead => {}
        }
        let slot = &mut self.tasks[task.index()];
        slot.seen = true;
        if !std::mem::take(&mut slot.woken) && slot.wait.is_none() {
            // it was preempted: the stack that may follow is of no wait
            slot.last_wait = None;
        }
        slot.early_wake = None;
        slot.object = None;
        slot.state = State::Running(cpu);
        slot.since = now;
        slot.serial_from = self.clock.serial;
        if let Some(wait) = &mut slot.wait {
            wait.enter(now, Phase::OnCpu);
            if wait.woken && wait.ran_on_idle.is_none() {
                wait.ran_on_idle = Some(on_idle);
            }
            if !wait.contention {
                self.end_wait(task, 0);
            }
        }
        let slot = &mut self.tasks[task.index()];
        if slot.wait.is_none() {
            let work = slot.work;
            slot.note(now, Doing::Running(work));
        }
        self.recount(task, Counted::Running);
    }

    /// An event shows that a task runs on a CPU.
    fn ensure_running(&mut self, task: TaskId, cpu: Cpu) {
        let now = self.clock.now;
        let slot = &mut self.tasks[task.index()];
        slot.seen = true;
        match slot.state {
            State::Running(_) => return,
            _ if slot.idle => return,
            State::Runnable => self.leave_queue(task, None),
            State::Blocked => self.leave_sleep(task),
            State::Unknown | State::Dead => {}
        }
        let slot = &mut self.tasks[task.index()];
        slot.state = State::Running(cpu);
        slot.since = now;
        slot.serial_from = self.clock.serial;
        if let Some(wait) = self.tasks[task.index()].wait.take() {
            self.account.unpaired += 1;
            self.give_up(task, &wait);
        }
        let slot = &mut self.tasks[task.index()];
        let work = slot.work;
        slot.note(now, Doing::Running(work));
        self.recount(task, Counted::Running);
        let allowed = self.is_allowed(cpu);
        if let Some(stale) = self.cpu(cpu).current.filter(|current| *current != task) {
            self.lose_sight(stale, cpu);
        }
        let slot = self.cpu(cpu);
        slot.current = Some(task);
        if std::mem::take(&mut slot.idle) && allowed {
            self.clock.cpu_goes_busy();
        }
    }

    fn waking(&mut self, task: TaskId, by: WokenBy) {
        let now = self.clock.now;
        let slot = &mut self.tasks[task.index()];
        match slot.state {
            State::Blocked => {
                self.leave_sleep(task);
                self.wake(task, by);
            }
            State::Running(_) => slot.early_wake = Some(by),
            State::Unknown if !slot.idle => {
                slot.state = State::Runnable;
                slot.since = now;
                slot.woken = true;
                slot.seen = true;
                slot.note(now, Doing::Runnable);
                self.recount(task, Counted::Sure);
            }
            State::Unknown | State::Runnable | State::Dead => {}
        }
    }

    /// A task that sleeps becomes runnable.
    fn wake(&mut self, task: TaskId, by: WokenBy) {
        let now = self.clock.now;
        let slot = &mut self.tasks[task.index()];
        slot.state = State::Runnable;
        slot.woken = true;
        slot.early_wake = None;
        match &mut slot.wait {
            Some(wait) if wait.is_for_lock() => {
                wait.enter(now, Phase::Woken);
                wait.woken = true;
                wait.ran_on_idle = None;
                if let Some(lock) = wait.lock {
                    self.with_lock(lock, |l| l.release(now, by, task));
                    self.late_samples(lock);
                }
            }
            Some(_) => {
                if let Some(wait) = slot.wait.take() {
                    self.cut(task, &wait, by);
                    self.tasks[task.index()].note(now, Doing::Runnable);
                }
            }
            None => slot.note(now, Doing::Runnable),
        }
        self.recount(task, Counted::Sure);
    }

    /// Samples of a task that is only now found to have had a lock.
    fn late_samples(&mut self, id: LockId) {
        let Some(Some(lock)) = self.locks.get(id.index()) else { return };
        let Some((holder, from)) = lock.found_by_release() else { return };
        let Some(slot) = self.tasks.get(holder.index()) else { return };
        for (at, stack, weight_ns) in slot.samples.iter().filter(|(at, ..)| *at >= from.t) {
            debug_assert!(*at <= self.clock.now.t);
            *self.account.under.entry((id, holder, *stack)).or_default() += weight_ns;
        }
    }

    fn contention_begin(&mut self, cpu: Cpu, task: TaskId, lock: LockId, flags: ContentionFlags) {
        self.ensure_running(task, cpu);
        if let Some(wait) = &self.tasks[task.index()].wait {
            if wait.lock == Some(lock) {
                return;
            }
            // its end was not seen
            self.account.unpaired += 1;
            let wait = self.tasks[task.index()].wait.take();
            if let Some(wait) = wait {
                self.abandon(task, &wait);
            }
        }
        self.leave_cpu(task, cpu);
        let now = self.clock.now;
        let mut wait = Wait::new(now, Phase::OnCpu, Class::Lock);
        wait.lock = Some(lock);
        wait.contention = true;
        wait.reads = flags.contains(ContentionFlags::READ);
        let in_scope = self.tasks[task.index()].in_scope;
        if in_scope {
            let sums = self.account.end(End::Lock(lock));
            sums.reads += u64::from(wait.reads);
            sums.writes += u64::from(flags.contains(ContentionFlags::WRITE));
        }
        let slot = &mut self.tasks[task.index()];
        slot.wait = Some(wait);
        slot.note(now, Doing::Open);
        self.with_lock(lock, |l| l.begin(now));
    }

    /// A lock wait that another begin or a loss of events ended.
    fn abandon(&mut self, task: TaskId, wait: &Wait) {
        self.cut(task, wait, WokenBy::Unknown);
        if let Some(lock) = wait.lock {
            self.with_lock(lock, LockState::leave);
        }
    }

    fn contention_end(&mut self, task: TaskId, lock: LockId, ret: i32) {
        let now = self.clock.now;
        let slot = &mut self.tasks[task.index()];
        if let Some((spun, from)) = slot.spin
            && spun == lock
        {
            slot.spin = None;
            let in_scope = slot.in_scope;
            let sums = self.account.end(End::Lock(lock));
            let ns = from.until(&now);
            if in_scope {
                sums.spin_ns += ns;
                sums.waits += 1;
                sums.wait_ns += ns;
                sums.parts.unknown += ns;
            } else {
                sums.elsewhere_ns += ns;
            }
            return;
        }
        match &slot.wait {
            Some(wait) if wait.contention && wait.lock == Some(lock) => {
                match slot.state {
                    State::Running(cpu) => self.leave_cpu(task, cpu),
                    // switches were lost
                    State::Runnable => self.leave_queue(task, None),
                    State::Blocked => self.leave_sleep(task),
                    State::Unknown | State::Dead => {}
                }
                self.end_wait(task, ret);
                let slot = &mut self.tasks[task.index()];
                let work = slot.work;
                slot.note(now, Doing::Running(work));
            }
            // begun before the window
            _ => self.account.unpaired += 1,
        }
    }

    /// Explains what a long wait was up to now; it goes on.
    fn explain_so_far(&mut self, task: TaskId) {
        let now = self.clock.now;
        let Some(mut wait) = self.tasks[task.index()].wait.take() else { return };
        self.cut(task, &wait, WokenBy::Unknown);
        wait.go_on(now);
        let slot = &mut self.tasks[task.index()];
        slot.wait = Some(wait);
        slot.note(now, Doing::Open);
    }

    /// A wait for a lock is over: the task has it, or gave up.
    fn end_wait(&mut self, task: TaskId, ret: i32) {
        let now = self.clock.now;
        let Some(wait) = self.tasks[task.index()].wait.take() else { return };
        let Some(lock) = wait.lock else { return };
        self.with_lock(lock, |l| {
            if ret == 0 {
                l.acquired(now, task, wait.reads, wait.ran_on_idle);
            } else {
                l.gave_up(now, task);
            }
        });
        self.cut(task, &wait, WokenBy::Unknown);
        self.with_lock(lock, LockState::leave);
    }

    /// What a task is about to wait for, or waits for.
    fn blocked_on(&mut self, task: TaskId, lock: LockId) {
        let slot = &mut self.tasks[task.index()];
        match slot.state {
            // it is about to sleep
            State::Running(_) | State::Unknown => slot.object = Some(lock),
            State::Blocked => {
                let Some(Some(state)) = self.locks.get(lock.index()) else { return };
                let (kind, condition) = (state.kind, state.condition);
                if slot.wait.as_ref().is_none_or(|w| w.lock.is_some()) {
                    return;
                }
                self.leave_sleep(task);
                let now = self.clock.now;
                let Some(wait) = &mut self.tasks[task.index()].wait else { return };
                let before = wait.class.counted();
                wait.lock = Some(lock);
                wait.class = match kind {
                    LockKind::Io => Class::Io,
                    LockKind::Pipe => Class::Peer,
                    _ if condition => Class::Peer,
                    _ => Class::Lock,
                };
                let counted = wait.class.counted();
                if counted != before {
                    // what it was charged up to now was for something else
                    *wait = Wait { begin: now, phases: vec![(now, Phase::Asleep)], ..wait.clone() };
                }
                if wait.is_for_lock() {
                    let begin = wait.begin;
                    self.with_lock(lock, |l| l.begin(begin));
                }
                self.recount(task, counted);
            }
            State::Runnable | State::Dead => {}
        }
    }

    fn seed(&mut self, cpu: Cpu, task: TaskId, state: SeedState, lock: Option<LockId>) {
        let now = self.clock.now;
        let arch = self.arch;
        let slot = &mut self.tasks[task.index()];
        if slot.seen || slot.idle {
            return;
        }
        match state {
            SeedState::Running => {
                // a switch on that CPU that came before is better evidence
                if self.cpu(cpu).current.is_none() {
                    self.ensure_running(task, cpu);
                }
            }
            SeedState::Runnable => self.waking(task, WokenBy::Unknown),
            SeedState::Blocked { state, iowait, syscall } => {
                slot.seen = true;
                if matches!(state, TaskState::Dead | TaskState::Zombie) {
                    slot.state = State::Dead;
                    return;
                }
                let class = Class::of(state, iowait, syscall, slot.kernel, arch);
                let mut wait = Wait::new(now, Phase::Asleep, class);
                wait.contention = lock.is_some();
                slot.state = State::Blocked;
                slot.since = now;
                slot.wait = Some(wait);
                slot.note(now, Doing::Open);
                self.recount(task, class.counted());
                if let Some(lock) = lock {
                    self.blocked_on(task, lock);
                    // its end is a contention_end, except for what has no contention events
                    let kind = self.locks.get(lock.index()).and_then(|l| l.as_ref()).map(|l| l.kind);
                    if let Some(wait) = &mut self.tasks[task.index()].wait {
                        wait.contention =
                            !matches!(kind, Some(LockKind::Futex | LockKind::Io | LockKind::Pipe));
                    }
                }
            }
        }
    }

    fn wait_stack(
        &mut self,
        task: TaskId,
        lock: Option<LockId>,
        kernel: Option<StackId>,
        user: Option<StackId>,
        weight_ns: u64,
    ) {
        let slot = &self.tasks[task.index()];
        let end = match (lock, &slot.wait) {
            (Some(lock), _) => Some(End::Lock(lock)),
            // within the wait for a lock the stack comes at its end
            (None, Some(wait)) if wait.contention => None,
            (None, Some(wait)) => Some(wait.end()),
            (None, None) => slot.last_wait,
        };
        if let (Some(end), Some(kernel)) = (end, kernel) {
            *self.account.paths.entry((end, kernel, slot.in_scope)).or_default() += weight_ns;
        }
        let sums = self.account.off_cpu.entry((task, kernel, user)).or_default();
        sums.0 += weight_ns;
        sums.1 += 1;
    }

    fn sample(
        &mut self,
        task: TaskId,
        mode: SampleMode,
        kernel: Option<StackId>,
        user: Option<StackId>,
        weight_ns: u64,
    ) {
        let account = &mut self.account;
        let now = self.clock.now.t;
        let slot = &mut self.tasks[task.index()];
        account.sampled = true;
        if slot.idle {
            return;
        }
        if mode != SampleMode::Interrupt {
            let sums = account.on_cpu.entry((task, kernel, user)).or_default();
            sums.0 += weight_ns;
            sums.1 += 1;
        }
        if let Some(kernel) = kernel {
            for lock in &slot.holding {
                *account.under.entry((*lock, task, kernel)).or_default() += weight_ns;
            }
            slot.note_sample(now, kernel, weight_ns);
        }
        if !slot.in_scope {
            return;
        }
        match mode {
            SampleMode::User => account.user.add(weight_ns),
            SampleMode::Kernel => account.kernel.entry(kernel).or_default().add(weight_ns),
            SampleMode::Interrupt => account.interrupt.add(weight_ns),
        }
        if mode == SampleMode::Kernel {
            let spun = slot.spin.map(|s| s.0).or(slot.wait.as_ref().and_then(|w| w.lock));
            if let Some(lock) = spun {
                account.end(End::Lock(lock)).spin_samples_ns += weight_ns;
            }
        }
    }

    fn interrupt(&mut self, event: &Event, irq: IrqKind, enter: bool) {
        let _ = irq;
        self.account.irq_events = true;
        let allowed = self.is_allowed(event.cpu);
        let slot = self.cpu(event.cpu);
        if enter {
            if slot.irq_depth == 0 {
                slot.irq_from = event.time;
            }
            slot.irq_depth += 1;
        } else if slot.irq_depth > 0 {
            slot.irq_depth -= 1;
            if slot.irq_depth == 0 && allowed {
                let ns = event.time.since(slot.irq_from);
                self.account.irq_ns += ns;
            }
        }
    }

    /// Events are missing: what is known of states may be wrong.
    fn lost(&mut self, count: u64, gap_ns: u64) {
        self.account.lost += count;
        self.account.lost_ns += gap_ns.min(self.clock.now.t.since(self.started));
        self.let_go();
        for index in 0..self.cpus.len() {
            let idle = std::mem::take(&mut self.cpus[index].idle);
            self.cpus[index].current = None;
            if idle && self.is_allowed(Cpu(index as u16)) {
                self.clock.cpu_goes_busy();
            }
        }
    }
}

/// How a task leaves its CPU.
#[derive(Clone, Copy, Debug)]
struct Leaves {
    state: TaskState,
    preempt: bool,
    iowait: bool,
    syscall: Option<Syscall>,
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
        Kind::BlockedOn { .. } | Kind::ContentionBegin { .. } | Kind::Owner { .. } => 6,
        // who is woken and runs at one moment was woken first
        Kind::Waking { .. } => 7,
        Kind::Switch { .. } => 8,
        Kind::ContentionEnd { .. } => 9,
        Kind::Acquired { .. } => 10,
        Kind::WorkEnd { .. } => 11,
        Kind::WorkStart { .. } => 12,
        Kind::IrqExit { .. } => 13,
        Kind::IrqEnter { .. } => 14,
        Kind::Exit { .. } | Kind::Throttle { .. } | Kind::WaitStack { .. } | Kind::Sample { .. } => 15,
    }
}
