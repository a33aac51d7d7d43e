//! Where waits begin and end.

use super::Engine;
use super::samples::saturating;

use trace::{ContentionFlags, Cpu, LockId, LockKind, TaskId};

use crate::account::End;
use crate::classify::Class;
use crate::clock::Stamp;
use crate::lock::LockState;
use crate::task::{Doing, Phase, State, Wait, WokenBy};
use crate::wait::Past;

impl Engine {
    /// A wait whose end is not seen.
    pub(super) fn give_up(&mut self, task: TaskId, wait: &Wait) {
        let now = self.clock.now;
        let of_futex = |l: LockId| {
            self.locks.get(l.index()).and_then(|l| l.as_ref()).is_some_and(|l| l.kind == LockKind::Futex)
        };
        let futex = match wait.class {
            Class::Futex => true,
            Class::Lock => wait.lock.is_some_and(of_futex),
            _ => false,
        };
        if futex && !wait.woken {
            // a thread that nobody woke had nothing to do, as far as one can see
            if self.tasks[task.index()].in_scope {
                self.account.beside += wait.charged(now);
            }
        } else {
            self.cut(task, wait, WokenBy::Unknown);
        }
        if let Some(lock) = wait.lock {
            self.with_lock(lock, LockState::leave);
        }
    }

    /// Cuts a wait up to now; its pieces become the history of the task.
    pub(super) fn cut(&mut self, task: TaskId, wait: &Wait, by: WokenBy) {
        let now = self.clock.now;
        self.cut_at(task, wait, by, now);
    }

    pub(super) fn cut_at(&mut self, task: TaskId, wait: &Wait, by: WokenBy, at: Stamp) {
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

    /// Samples of a task that is only now found to have had a lock.
    pub(super) fn late_samples(&mut self, id: LockId) {
        let Some(Some(lock)) = self.locks.get(id.index()) else { return };
        let Some((holder, from)) = lock.found_by_release() else { return };
        let Some(slot) = self.tasks.get(holder.index()) else { return };
        for (at, stack, weight_ns) in slot.samples.iter().filter(|(at, ..)| *at >= from.t) {
            debug_assert!(*at <= self.clock.now.t);
            saturating(self.account.under.entry((id, holder, *stack)).or_default(), *weight_ns);
        }
    }

    pub(super) fn contention_begin(&mut self, cpu: Cpu, task: TaskId, lock: LockId, flags: ContentionFlags) {
        self.ensure_running(task, cpu);
        if let Some(wait) = &self.tasks[task.index()].wait {
            if wait.lock == Some(lock) {
                return;
            }
            // its end was not seen
            self.account.unpaired += 1;
            let wait = self.tasks[task.index()].wait.take();
            if let Some(wait) = wait {
                self.give_up(task, &wait);
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

    pub(super) fn contention_end(&mut self, task: TaskId, lock: LockId, ret: i32) {
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
    pub(super) fn explain_so_far(&mut self, task: TaskId) {
        let now = self.clock.now;
        let Some(mut wait) = self.tasks[task.index()].wait.take() else { return };
        self.cut(task, &wait, WokenBy::Unknown);
        wait.go_on(now);
        let slot = &mut self.tasks[task.index()];
        slot.wait = Some(wait);
        slot.note(now, Doing::Open);
    }

    /// A wait for a lock is over: the task has it, or gave up.
    pub(super) fn end_wait(&mut self, task: TaskId, ret: i32) {
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
    pub(super) fn blocked_on(&mut self, task: TaskId, lock: LockId) {
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
                wait.lock = Some(lock);
                wait.class = match kind {
                    LockKind::Io => Class::Io,
                    LockKind::Pipe => Class::Peer,
                    _ if condition => Class::Peer,
                    _ => Class::Lock,
                };
                let counted = wait.class.counted();
                if counted != wait.counted {
                    // what it was charged up to now was for something else
                    *wait = Wait { begin: now, phases: vec![(now, Phase::Asleep)], counted, ..wait.clone() };
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
}
