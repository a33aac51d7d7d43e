//! Who runs, who is runnable, who sleeps: switches and wake-ups.

use super::{Engine, LONG_RUNNABLE_NS};

use trace::{Cpu, LockKind, Syscall, TaskId, TaskState};

use crate::account::{Cut, End};
use crate::classify::Class;
use crate::clock::Counted;
use crate::task::{Doing, Phase, State, Wait, WokenBy};

/// How a task leaves its CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaves {
    pub state: TaskState,
    pub preempt: bool,
    pub iowait: bool,
    pub syscall: Option<Syscall>,
}

impl Engine {
    #[inline]
    pub(super) fn recount(&mut self, task: TaskId, counted: Counted) {
        let slot = &mut self.tasks[task.index()];
        if !slot.in_scope {
            return;
        }
        self.clock.recount(slot.counted, counted);
        slot.counted = counted;
    }

    /// Counts the time that a task was on a CPU.
    pub(super) fn leave_cpu(&mut self, task: TaskId, cpu: Cpu) {
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
    pub(super) fn leave_queue(&mut self, task: TaskId, on_idle: Option<bool>) {
        let now = self.clock.now;
        let slot = &mut self.tasks[task.index()];
        let from = slot.since;
        let held_back = std::mem::take(&mut slot.held_back);
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
        let group = slot.group;
        if held_back {
            let end = End::HeldBack { group, seen: true };
            let sums = self.account.end(end);
            sums.waits += 1;
            sums.wait_ns += ns;
            *self.account.waiters.entry((task, end)).or_default() += ns;
            return self.account.charge(end, from.t, now.t, idle);
        }
        // from the wake-up to the CPU is a part of the wait, as with locks
        let waited = slot.last_wait.filter(|_| slot.woken);
        if let Some(end) = waited {
            let sums = self.account.end(end);
            sums.wait_ns += ns;
            sums.parts.add(Cut::HandOff(on_idle), ns);
        }
        let end = match waited {
            Some(end) if self.is_loss(end) => end,
            _ if ns >= LONG_RUNNABLE_NS && group.is_some() => End::HeldBack { group, seen: false },
            _ => End::WakeUp,
        };
        self.account.charge(end, from.t, now.t, idle);
    }

    /// Whether a wait is a loss by itself, so that the wake-up at its end is a part of the loss.
    pub(super) fn is_loss(&self, end: End) -> bool {
        match end {
            End::Lock(id) => {
                let lock = self.locks.get(id.index()).and_then(|l| l.as_ref());
                lock.is_some_and(|l| !l.condition && l.kind != LockKind::Pipe)
            }
            End::Wait(class) => class.counted() == Counted::Sure,
            End::WakeUp | End::HeldBack { .. } | End::Unknown => false,
        }
    }

    /// Counts the time that a task slept.
    pub(super) fn leave_sleep(&mut self, task: TaskId) {
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
            Class::Kernel | Class::Timed => &mut times.kernel,
            Class::Futex => &mut times.futex,
            Class::Peer => &mut times.peer,
            Class::Child | Class::Sleep | Class::Events | Class::Stopped => &mut times.idle,
        } += ns;
    }

    pub(super) fn switch(&mut self, cpu: Cpu, prev: TaskId, next: TaskId, leaves: Leaves) {
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
    pub(super) fn lose_sight(&mut self, task: TaskId, cpu: Cpu) {
        let now = self.clock.now;
        let slot = &mut self.tasks[task.index()];
        if slot.idle || slot.state != State::Running(cpu) {
            return;
        }
        self.account.unpaired += 1;
        slot.state = State::Unknown;
        slot.since = now;
        if let Some(wait) = slot.wait.take() {
            self.give_up(task, &wait);
        }
        self.tasks[task.index()].note(now, Doing::Unknown);
        self.recount(task, Counted::No);
    }

    pub(super) fn switch_out(&mut self, cpu: Cpu, task: TaskId, leaves: Leaves) {
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

    pub(super) fn switch_in(&mut self, cpu: Cpu, task: TaskId, on_idle: bool) {
        let now = self.clock.now;
        match self.tasks[task.index()].state {
            State::Blocked => {
                // its wake-up came before it was seen to sleep, or was not seen
                let by = self.tasks[task.index()].early_wake.unwrap_or(WokenBy::Unknown);
                self.waited_for_request(task);
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
        slot.request = None;
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
    pub(super) fn ensure_running(&mut self, task: TaskId, cpu: Cpu) {
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

    pub(super) fn waking(&mut self, task: TaskId, by: WokenBy) {
        let now = self.clock.now;
        let slot = &mut self.tasks[task.index()];
        match slot.state {
            State::Blocked => {
                self.waited_for_request(task);
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

    /// A wait turns out to have been for the request of a device: only its end tells.
    fn waited_for_request(&mut self, task: TaskId) {
        let slot = &mut self.tasks[task.index()];
        // who waits for a lock waits for its holder, whoever wakes it
        if let Some(wait) = &mut slot.wait
            && wait.lock.is_none()
            && matches!(wait.class, Class::Io | Class::Kernel | Class::Peer)
            && let Some(request) = slot.request.take()
        {
            wait.class = Class::Io;
            wait.lock = Some(request.device);
            wait.request = Some(request);
        }
    }

    /// A task that sleeps becomes runnable.
    pub(super) fn wake(&mut self, task: TaskId, by: WokenBy) {
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
                let device = slot.request.take().map(|r| r.device);
                if let Some(lock) = wait.lock {
                    self.with_lock(lock, |l| l.release(now, by, device, task));
                    self.late_samples(lock);
                }
            }
            Some(_) => {
                if let Some(mut wait) = slot.wait.take() {
                    if wait.class == Class::Kernel && by == WokenBy::Interrupt {
                        wait.class = Class::Timed;
                    }
                    self.cut(task, &wait, by);
                    self.tasks[task.index()].note(now, Doing::Runnable);
                }
            }
            None => slot.note(now, Doing::Runnable),
        }
        self.recount(task, Counted::Sure);
    }
}
