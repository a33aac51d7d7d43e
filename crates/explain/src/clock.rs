//! Charging idle CPUs to those who wait, as running sums.

use trace::TimeNs;

/// A moment, with the running sums as they stood then.
///
/// The sums are what a task that waited from the beginning of the trace on would have been charged, in CPU-ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Stamp {
    pub t: TimeNs,
    /// … if it waited for something that is a loss for certain: a lock, I/O, a CPU.
    pub sure: f64,
    /// … if it waited for another task, of which only its end tells whether it was a loss; these share what the others leave.
    pub peer: f64,
    /// The part of `peer` while some task of the workload ran.
    pub peer_beside: f64,
}

impl Stamp {
    /// The moment `t` between `self` and `later`, with the sums as if they had grown evenly between the two.
    pub fn between(&self, later: &Stamp, t: TimeNs) -> Stamp {
        if t <= self.t {
            return *self;
        }
        if t >= later.t {
            return *later;
        }
        let part = t.since(self.t) as f64 / self.until(later) as f64;
        let at = |a: f64, b: f64| a + (b - a) * part;
        Stamp {
            t,
            sure: at(self.sure, later.sure),
            peer: at(self.peer, later.peer),
            peer_beside: at(self.peer_beside, later.peer_beside),
        }
    }

    /// This moment as a place where the time from `from` to `to` is cut. Sums that are estimates ([`Stamp::between`]) may lie outside of what
    /// grew meanwhile: they are moved to its edge, so that the parts are never negative and add up to the whole.
    pub fn within(self, from: &Stamp, to: &Stamp) -> Stamp {
        if self.t <= from.t {
            return *from;
        }
        if self.t >= to.t {
            return *to;
        }
        Stamp {
            t: self.t,
            sure: self.sure.clamp(from.sure, to.sure),
            peer: self.peer.clamp(from.peer, to.peer),
            peer_beside: self.peer_beside.clamp(from.peer_beside, to.peer_beside),
        }
    }

    /// Nanoseconds from `self` to `later`.
    pub fn until(&self, later: &Stamp) -> u64 {
        later.t.since(self.t)
    }
}

/// How a task counts at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Not at all: a sleeper, a stranger.
    #[default]
    No,
    /// It runs.
    Running,
    /// It waits for something that is a loss for certain.
    Sure,
    /// It waits for another task.
    Peer,
}

/// The clock of the window, with how many tasks of the workload run and wait and how many allowed CPUs idle.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    pub now: Stamp,
    /// What a task of the workload that always ran would have been charged as `serial`: idle time that nobody's wait explains, shared by those who run.
    pub serial: f64,
    /// Idle time that nobody's wait explains while nobody ran.
    pub nothing: f64,
    /// All idle time of the allowed CPUs.
    pub idle: f64,
    idle_cpus: u32,
    running: u32,
    sure: u32,
    peer: u32,
    rates: Option<Rates>,
}

#[derive(Clone, Copy, Debug)]
struct Rates {
    sure: f64,
    peer: f64,
    serial: f64,
    nothing: f64,
}

impl Clock {
    /// Moves on to `t`. Time never goes back.
    #[inline]
    pub fn advance(&mut self, t: TimeNs) {
        if t <= self.now.t {
            return;
        }
        let dt = t.since(self.now.t) as f64;
        self.now.t = t;
        if self.idle_cpus == 0 {
            return;
        }
        let rates = match self.rates {
            Some(rates) => rates,
            None => self.new_rates(),
        };
        self.now.sure += dt * rates.sure;
        self.now.peer += dt * rates.peer;
        if self.running > 0 {
            self.now.peer_beside += dt * rates.peer;
        }
        self.serial += dt * rates.serial;
        self.nothing += dt * rates.nothing;
        self.idle += dt * f64::from(self.idle_cpus);
    }

    fn new_rates(&mut self) -> Rates {
        let share = |cpus: f64, tasks: u32| if tasks == 0 { 0.0 } else { (cpus / f64::from(tasks)).min(1.0) };
        let idle = f64::from(self.idle_cpus);
        let sure = share(idle, self.sure);
        let left = (idle - sure * f64::from(self.sure)).max(0.0);
        let peer = share(left, self.peer);
        let left = (left - peer * f64::from(self.peer)).max(0.0);
        let (serial, nothing) =
            if self.running > 0 { (left / f64::from(self.running), 0.0) } else { (0.0, left) };
        let rates = Rates { sure, peer, serial, nothing };
        self.rates = Some(rates);
        rates
    }

    /// Begins at `t`, whatever was before, with nobody counted.
    pub fn restart(&mut self, t: TimeNs) {
        self.now.t = t;
        (self.idle_cpus, self.running, self.sure, self.peer) = (0, 0, 0, 0);
        self.rates = None;
    }

    /// Counts anew the idle time of the CPUs; the sums that waits stand on go on.
    pub fn forget(&mut self) {
        (self.nothing, self.idle) = (0.0, 0.0);
    }

    pub fn cpu_goes_idle(&mut self) {
        self.idle_cpus += 1;
        self.rates = None;
    }

    pub fn cpu_goes_busy(&mut self) {
        self.idle_cpus = self.idle_cpus.saturating_sub(1);
        self.rates = None;
    }

    /// A task that counted as `from` counts as `to` from now on.
    #[inline]
    pub fn recount(&mut self, from: Counted, to: Counted) {
        if from == to {
            return;
        }
        for (counted, up) in [(from, false), (to, true)] {
            let count = match counted {
                Counted::No => continue,
                Counted::Running => &mut self.running,
                Counted::Sure => &mut self.sure,
                Counted::Peer => &mut self.peer,
            };
            *count = if up { *count + 1 } else { count.saturating_sub(1) };
        }
        self.rates = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_shared_by_those_who_wait_and_one_share_at_most_a_task() {
        let mut clock = Clock::default();
        clock.restart(TimeNs(0));
        (0..3).for_each(|_| clock.cpu_goes_idle());
        clock.recount(Counted::No, Counted::Sure);
        clock.recount(Counted::No, Counted::Running);
        clock.advance(TimeNs(100));
        assert_eq!((clock.now.sure, clock.serial, clock.nothing), (100.0, 200.0, 0.0));
        (0..5).for_each(|_| clock.recount(Counted::No, Counted::Sure));
        clock.advance(TimeNs(200));
        assert_eq!((clock.now.sure, clock.serial, clock.idle), (150.0, 200.0, 600.0));
    }

    #[test]
    fn those_who_wait_for_others_share_what_is_left() {
        let mut clock = Clock::default();
        clock.restart(TimeNs(0));
        (0..2).for_each(|_| clock.cpu_goes_idle());
        clock.recount(Counted::No, Counted::Sure);
        (0..2).for_each(|_| clock.recount(Counted::No, Counted::Peer));
        clock.advance(TimeNs(100));
        assert_eq!((clock.now.sure, clock.now.peer, clock.now.peer_beside), (100.0, 50.0, 0.0));
        assert_eq!(clock.nothing, 0.0);
    }
}
