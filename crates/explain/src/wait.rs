//! What a wait was spent on, once it is over.

use trace::{LockId, TaskId};

use crate::account::{Account, Cause, Cut, End};
use crate::classify::Class;
use crate::clock::{Counted, Stamp};
use crate::lock::{LockState, Who};
use crate::task::{Doing, Phase, Piece, Slot, Wait, WokenBy};

/// The table of what is looked up while a wait is cut into pieces.
pub(crate) struct Past<'a> {
    pub tasks: &'a [Slot],
    pub account: &'a mut Account,
    /// The pieces of the wait, for the history of the task that waited.
    pub pieces: &'a mut Vec<Piece>,
}

impl Wait {
    /// Where its chain ends if it goes no further.
    pub fn end(&self) -> End {
        match self.lock {
            Some(lock) => End::Lock(lock),
            None => End::Wait(self.class),
        }
    }

    /// Whether it is for something that tasks hold and release.
    pub fn is_for_lock(&self) -> bool {
        self.lock.is_some() && self.class == Class::Lock
    }
}

impl Past<'_> {
    /// Cuts the wait of `task` for `lock` from its beginning to `now`. `charged`: whether idle time was counted for it.
    pub fn lock_wait(&mut self, task: TaskId, wait: &Wait, id: LockId, lock: &LockState, now: Stamp) {
        let in_scope = self.tasks.get(task.index()).is_some_and(|t| t.in_scope);
        let end = End::Lock(id);
        self.count(task, end, !wait.goes_on, wait.begin, now, in_scope);
        for (i, &(from, phase)) in wait.phases.iter().enumerate() {
            let to = wait.phases.get(i + 1).map_or(now, |p| p.0);
            let counted = if phase == Phase::OnCpu { Counted::Running } else { Counted::Sure };
            if phase == Phase::OnCpu && in_scope {
                self.account.end(end).spin_ns += from.until(&to);
            }
            lock.past(from, to, |from, to, who| match who {
                Who::Held(holder) if holder != task => {
                    self.holder(end, holder, from, to, in_scope, counted);
                }
                Who::WhileAsleep(holder, since) if holder != task => {
                    let tasks = self.tasks;
                    let awake = tasks.get(holder.index()).map_or(since, |slot| slot.awake_after(since, to));
                    let middle = if awake.t < from.t {
                        from
                    } else if awake.t > to.t {
                        to
                    } else {
                        awake
                    };
                    if middle.t > from.t {
                        self.holder(end, holder, from, middle, in_scope, counted);
                    }
                    if to.t > middle.t {
                        let cause = Cause::unknown(end);
                        self.piece(end, cause, Cut::Unknown, middle, to, in_scope, counted);
                    }
                }
                Who::Held(_) | Who::WhileAsleep(..) => {
                    self.account.cycles += 1;
                    self.piece(end, Cause::unknown(end), Cut::Unknown, from, to, in_scope, counted);
                }
                Who::HandOff(next, on_idle) => {
                    let cut = Cut::HandOff(on_idle);
                    let cause = Cause { end, cut, holder: Some(next), work: None };
                    self.piece(end, cause, cut, from, to, in_scope, counted);
                }
                Who::Device(device) => {
                    let cause = Cause::unknown(device.map_or(End::Wait(Class::Io), End::Lock));
                    self.piece(end, cause, Cut::HolderBlocked, from, to, in_scope, counted);
                }
                Who::Unknown => {
                    self.piece(end, Cause::unknown(end), Cut::Unknown, from, to, in_scope, counted);
                }
            });
        }
    }

    /// What `holder` did with the lock `end` from `from` to `to`.
    fn holder(&mut self, end: End, holder: TaskId, from: Stamp, to: Stamp, in_scope: bool, counted: Counted) {
        let tasks = self.tasks;
        let Some(slot) = tasks.get(holder.index()) else { return };
        slot.past(from, to, |from, to, doing| {
            let mut work = None;
            let own = |cut, work| Cause { end, cut, holder: Some(holder), work };
            let (cause, cut) = match doing {
                Doing::Running(item) => {
                    work = item;
                    (own(Cut::HolderRunning, item), Cut::HolderRunning)
                }
                Doing::Runnable => (own(Cut::HolderRunnable, None), Cut::HolderRunnable),
                Doing::Waited(cause) => self.beyond(end, cause, own(Cut::HolderBlocked, None)),
                Doing::Open => {
                    let open = slot.wait.as_ref().map_or(Cause::unknown(end), |w| Cause::unknown(w.end()));
                    self.beyond(end, open, own(Cut::HolderBlocked, None))
                }
                Doing::Unknown => (Cause { holder: Some(holder), ..Cause::unknown(end) }, Cut::Unknown),
            };
            if in_scope && cut != Cut::Unknown {
                *self.account.holders.entry((end, holder, work)).or_default() += from.until(&to);
            }
            self.piece(end, cause, cut, from, to, in_scope, counted);
        });
    }

    /// One link further: the holder of `end` waited itself, because of `cause`.
    fn beyond(&mut self, end: End, cause: Cause, own: Cause) -> (Cause, Cut) {
        if cause.end == end {
            // it waits for what it is said to have: one of both is wrong, and what is seen of waits is certain
            self.account.cycles += 1;
            return (Cause::unknown(end), Cut::Unknown);
        }
        // a holder that sleeps of its own choice is the end of the chain
        if cause.is_idle() || cause.end == End::Unknown {
            return (own, Cut::HolderBlocked);
        }
        (cause, Cut::HolderBlocked)
    }

    /// Cuts a wait without a holder, which `by` ended at `now`.
    pub fn plain_wait(&mut self, task: TaskId, wait: &Wait, by: WokenBy, now: Stamp) {
        let tasks = self.tasks;
        let in_scope = tasks.get(task.index()).is_some_and(|t| t.in_scope);
        let (end, from) = (wait.end(), self.for_request(task, wait, by, now, in_scope));
        if wait.request.is_some() && from.t >= now.t {
            return;
        }
        let waker = match by {
            WokenBy::Task(waker) if !wait.class.is_idle() && waker != task => {
                tasks.get(waker.index()).map(|slot| (waker, slot))
            }
            _ => None,
        };
        let Some((waker, slot)) = waker else {
            if wait.class == Class::Peer {
                // nobody's fault: the world outside sent something, or the time was up
                self.returned(in_scope, from, now);
                self.push(from, Cause::unknown(End::Wait(Class::Events)));
            } else {
                self.piece(end, Cause::unknown(end), Cut::Unknown, from, now, in_scope, wait.counted);
            }
            return;
        };
        if wait.class == Class::Peer {
            return self.peer_wait(end, waker, from, now, in_scope);
        }
        slot.past(from, now, |from, to, doing| {
            let own = |cut, work| Cause { end, cut, holder: Some(waker), work };
            let (cause, cut) = match doing {
                Doing::Running(work) => (own(Cut::HolderRunning, work), Cut::HolderRunning),
                Doing::Runnable => (own(Cut::HolderRunnable, None), Cut::HolderRunnable),
                Doing::Waited(cause) if cause.end != end && !cause.is_idle() => (cause, Cut::HolderBlocked),
                // a worker that had nothing to do yet: what was waited for was elsewhere, in the device perhaps
                Doing::Waited(_) | Doing::Open if wait.class == Class::Io => {
                    (Cause::unknown(end), Cut::Unknown)
                }
                Doing::Waited(_) | Doing::Open => (own(Cut::HolderBlocked, None), Cut::HolderBlocked),
                Doing::Unknown => (Cause::unknown(end), Cut::Unknown),
            };
            if in_scope && cut != Cut::Unknown {
                let key = (end, waker, cause.work);
                *self.account.holders.entry(key).or_default() += from.until(&to);
            }
            self.piece(end, cause, cut, from, to, in_scope, wait.counted);
        });
    }

    /// The part of a wait in which a device had the request whose completion ended it; where that part ends.
    fn for_request(&mut self, task: TaskId, wait: &Wait, by: WokenBy, now: Stamp, in_scope: bool) -> Stamp {
        let (begin, end) = (wait.begin, wait.end());
        let Some(request) = wait.request else {
            self.count(task, end, !wait.goes_on, begin, now, in_scope);
            return begin;
        };
        let issued = begin.between(&now, request.issued.unwrap_or(begin.t));
        if issued.t > begin.t {
            // somebody was still to make the request: who that was, and what kept it, is not known
            let before = End::Wait(wait.class);
            self.count(task, before, false, begin, issued, in_scope);
            self.piece(before, Cause::unknown(before), Cut::Unknown, begin, issued, in_scope, wait.counted);
        }
        self.count(task, end, !wait.goes_on, issued, now, in_scope);
        // the completion itself wakes, or a worker that it has called
        let done = match by {
            WokenBy::Task(_) => issued.between(&now, request.done),
            WokenBy::Interrupt | WokenBy::Unknown => now,
        };
        if done.t > issued.t {
            let cut = Cut::HolderRunning;
            let cause = Cause { cut, ..Cause::unknown(end) };
            self.piece(end, cause, cut, issued, done, in_scope, wait.counted);
        }
        done
    }

    /// A wait for another task, which may be of the workload: then it is no loss of its own.
    fn peer_wait(&mut self, end: End, waker: TaskId, from: Stamp, now: Stamp, in_scope: bool) {
        let tasks = self.tasks;
        let Some(slot) = tasks.get(waker.index()) else { return };
        slot.past(from, now, |from, to, doing| {
            let cause = match doing {
                Doing::Running(work) => Cause { end, cut: Cut::HolderRunning, holder: Some(waker), work },
                Doing::Runnable => Cause { end, cut: Cut::HolderRunnable, holder: Some(waker), work: None },
                Doing::Waited(cause) => cause,
                Doing::Open | Doing::Unknown => Cause::unknown(End::Unknown),
            };
            if in_scope {
                let charge = to.peer - from.peer;
                let account = &mut *self.account;
                match (slot.in_scope, doing) {
                    (true, Doing::Running(_)) => account.charge_serial(waker, from.t, to.t, charge),
                    (false, Doing::Running(_) | Doing::Runnable) => {
                        account.charge(end, from.t, to.t, charge);
                    }
                    (false, Doing::Waited(cause)) if !cause.is_idle() && cause.end != End::Unknown => {
                        account.charge(cause.end, from.t, to.t, charge);
                    }
                    _ => self.returned(in_scope, from, to),
                }
            }
            self.push(from, cause);
        });
    }

    /// Gives back what a task was charged that waited for another without loss.
    fn returned(&mut self, in_scope: bool, from: Stamp, to: Stamp) {
        if in_scope {
            let beside = to.peer_beside - from.peer_beside;
            self.account.beside += beside;
            self.account.nothing += to.peer - from.peer - beside;
        }
    }

    /// A wait as a whole; `new`: its beginning was not counted before.
    fn count(&mut self, task: TaskId, end: End, new: bool, from: Stamp, to: Stamp, in_scope: bool) {
        let ns = from.until(&to);
        let sums = self.account.end(end);
        if in_scope {
            sums.waits += u64::from(new);
            sums.wait_ns += ns;
            *self.account.waiters.entry((task, end)).or_default() += ns;
        } else {
            sums.elsewhere_ns += ns;
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one row of facts, used in a row of places")]
    fn piece(
        &mut self,
        direct: End,
        cause: Cause,
        cut: Cut,
        from: Stamp,
        to: Stamp,
        in_scope: bool,
        counted: Counted,
    ) {
        if in_scope {
            let ns = from.until(&to);
            self.account.end(direct).parts.add(cut, ns);
            if cause.end != direct {
                *self.account.through.entry((cause.end, direct)).or_default() += ns;
            }
            let charge = match counted {
                Counted::Sure => to.sure - from.sure,
                Counted::Peer => to.peer - from.peer,
                // who runs or sleeps of its own choice was not charged
                Counted::Running | Counted::No => 0.0,
            };
            if charge > 0.0 {
                self.account.charge(cause.end, from.t, to.t, charge);
            }
        }
        self.push(from, cause);
    }

    fn push(&mut self, from: Stamp, cause: Cause) {
        self.pieces.push(Piece { from, what: Doing::Waited(cause) });
    }
}
