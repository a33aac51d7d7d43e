//! The window: where it begins and ends, and what is known then.

use super::Engine;

use trace::{Cpu, LockId, LockKind, SeedState, Tables, TaskId, TaskState, TimeNs};

use crate::account::Account;
use crate::classify::Class;
use crate::clock::Counted;
use crate::task::{Doing, Phase, State, Wait, WokenBy};

impl Engine {
    pub(super) fn open_window(&mut self, tables: &Tables, time: TimeNs) {
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

    /// Forgets what was counted up to now; what is known of states, waits and locks stays.
    pub(super) fn begin_here(&mut self) {
        let now = self.clock.now;
        self.started = now.t;
        let old = std::mem::take(&mut self.account);
        self.account = Account {
            throttled_ns: old.throttled_ns,
            events: old.events,
            lost: old.lost,
            windows: old.windows,
            first: old.first,
            ..Account::default()
        };
        self.clock.forget();
        for slot in &mut self.tasks {
            slot.since = now;
            slot.serial_from = self.clock.serial;
            slot.last_wait = None;
            slot.spin = slot.spin.map(|(lock, _)| (lock, now));
            if let Some(wait) = &mut slot.wait {
                wait.go_on(now);
                wait.goes_on = false;
            }
        }
        for cpu in &mut self.cpus {
            cpu.irq_from = now.t;
        }
    }

    /// Ends the window: whatever is open is counted up to now.
    pub(super) fn close_window(&mut self) {
        if !self.open {
            return;
        }
        self.account.window_ns += self.clock.now.t.since(self.started);
        self.let_go();
        self.clock.restart(self.clock.now.t);
        self.open = false;
    }

    /// Counts whatever is open up to now, and forgets the states of all tasks.
    pub(super) fn let_go(&mut self) {
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
            slot.request = None;
            self.clock.recount(self.tasks[index].counted, Counted::No);
            self.tasks[index].counted = Counted::No;
        }
        self.locks.iter_mut().for_each(|l| *l = None);
    }

    pub(super) fn seed(&mut self, cpu: Cpu, task: TaskId, state: SeedState, lock: Option<LockId>) {
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

    /// Events are missing: what is known of states may be wrong.
    pub(super) fn lost(&mut self, count: u64, gap_ns: u64) {
        self.account.lost = self.account.lost.saturating_add(count);
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
