//! The shared-memory counters, and the hot loop's half of the measuring.
//!
//! # Method
//!
//! Every task counts the operations that it completed in its own cache line and now and then stamps the count with
//! `CLOCK_MONOTONIC` (nanoseconds): every 50 to 200 us, or at every operation where operations take longer. When the
//! supervisor publishes the start (or the end) of the window, the task records the last stamp before and the first stamp
//! after that moment. The count *at* the moment is the linear interpolation between these two stamps, a fraction
//! included, so that the work in flight at the two edges of the window counts with the part that lies inside it.
//! For that, a task finishes its operation in flight after the stop flag is set, and makes one more stamp.
//!
//! Tasks that do not stamp (a C test case only increments its counter) are stamped from outside by a [`Watcher`].

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::track::{Stamp, Track};

/// What a task is doing, as it says so itself in its [`Slot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    /// Not there yet.
    Starting = 0,
    /// Waits at the gate.
    Ready = 1,
    /// In its loop.
    Running = 2,
    /// Left its loop because it was told to stop.
    Finished = 3,
    /// Left its loop because an operation failed.
    Failed = 4,
}

impl State {
    fn from_u32(value: u32) -> State {
        match value {
            0 => State::Starting,
            1 => State::Ready,
            2 => State::Running,
            3 => State::Finished,
            _ => State::Failed,
        }
    }
}

/// A stamp in shared memory.
#[repr(C)]
struct SharedStamp {
    ns: AtomicU64,
    count: AtomicU64,
}

impl SharedStamp {
    fn store(&self, stamp: Stamp) {
        self.ns.store(stamp.ns, Ordering::Relaxed);
        self.count.store(stamp.count, Ordering::Relaxed);
    }

    fn load(&self) -> Stamp {
        Stamp { ns: self.ns.load(Ordering::Relaxed), count: self.count.load(Ordering::Relaxed) }
    }
}

/// The last stamp before and the first stamp after a moment that the supervisor named.
#[repr(C)]
struct Bracket {
    /// The moment, in nanoseconds; 0 until the bracket is complete, and written last.
    at_ns: AtomicU64,
    before: SharedStamp,
    after: SharedStamp,
}

impl Bracket {
    fn publish(&self, at_ns: u64, before: Stamp, after: Stamp) {
        self.before.store(before);
        self.after.store(after);
        self.at_ns.store(at_ns, Ordering::Release);
    }

    fn count(&self) -> Option<f64> {
        match self.at_ns.load(Ordering::Acquire) {
            0 => None,
            at_ns => Some(crate::track::interpolate(self.before.load(), self.after.load(), at_ns)),
        }
    }

    fn reset(&self) {
        self.at_ns.store(0, Ordering::Relaxed);
        self.before.store(Stamp::default());
        self.after.store(Stamp::default());
    }
}

/// One task's place in the shared memory. Only the task writes to it while it runs.
#[repr(C, align(128))]
pub struct Slot {
    /// Completed operations. First in the slot: a C test case increments it as `unsigned long long *`.
    count: AtomicU64,
    last: SharedStamp,
    state: AtomicU32,
    start: Bracket,
    end: Bracket,
}

impl Slot {
    /// Operations completed so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// When the task last stamped its count (`CLOCK_MONOTONIC`, ns); 0 if it never did.
    ///
    /// A task that stamps does so at least once an operation or every 200 us, whichever is longer: a stamp that stays
    /// old means an operation that takes that long.
    pub fn last_ns(&self) -> u64 {
        self.last.ns.load(Ordering::Relaxed)
    }

    /// What the task says that it is doing.
    pub fn state(&self) -> State {
        State::from_u32(self.state.load(Ordering::Acquire))
    }

    /// Says what the task is doing.
    pub fn set_state(&self, state: State) {
        self.state.store(state as u32, Ordering::Release);
    }

    /// Operations completed at the window's start, interpolated between the two stamps around it.
    ///
    /// `None` until the task (or a [`Watcher`]) has stamped after the start.
    pub fn count_at_start(&self) -> Option<f64> {
        self.start.count()
    }

    /// Operations completed at the window's end, interpolated between the two stamps around it.
    ///
    /// `None` until the task (or a [`Watcher`]) has stamped after the end.
    pub fn count_at_end(&self) -> Option<f64> {
        self.end.count()
    }

    fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.last.store(Stamp::default());
        self.start.reset();
        self.end.reset();
        self.set_state(State::Starting);
    }

    fn publish(&self, stamp: Stamp, found: crate::track::Found) {
        self.last.store(stamp);
        if let Some((at, before, after)) = found.start {
            self.start.publish(at, before, after);
        }
        if let Some((at, before, after)) = found.end {
            self.end.publish(at, before, after);
        }
    }
}

/// What the supervisor tells all tasks. Tasks only read it.
#[repr(C, align(128))]
pub struct Control {
    gate: AtomicU32,
    stop: AtomicU32,
    start_ns: AtomicU64,
    end_ns: AtomicU64,
}

impl Control {
    /// Waits until [`open_gate`](Self::open_gate) is called (in this or another process); returns at once if it was.
    pub fn wait_at_gate(&self) {
        while self.gate.load(Ordering::Acquire) == 0 {
            // A failed wait (EINTR, EAGAIN) is answered by looking again.
            let _ = rustix::thread::futex::wait(&self.gate, rustix::thread::futex::Flags::empty(), 0, None);
        }
    }

    /// Lets all tasks start.
    pub fn open_gate(&self) {
        self.gate.store(1, Ordering::Release);
        // Waking cannot fail on a mapped, aligned word.
        let _ =
            rustix::thread::futex::wake(&self.gate, rustix::thread::futex::Flags::empty(), i32::MAX as u32);
    }

    /// Publishes the window's start (`CLOCK_MONOTONIC`, ns, not 0).
    ///
    /// The moment may be a little in the past (the clock was read, then this was called) or in the future. A task remembers
    /// its last 1024 stamps, which is at least 50 ms; a start that is published later than that is seen by no task.
    pub fn set_start(&self, ns: u64) {
        self.start_ns.store(ns, Ordering::Release);
    }

    /// Publishes the window's end (`CLOCK_MONOTONIC`, ns, not 0); the same holds as for [`set_start`](Self::set_start).
    /// Call it before [`stop`](Self::stop).
    pub fn set_end(&self, ns: u64) {
        self.end_ns.store(ns, Ordering::Release);
    }

    /// The window's start in ns; 0 = not yet published.
    pub fn start_ns(&self) -> u64 {
        self.start_ns.load(Ordering::Acquire)
    }

    /// The window's end in ns; 0 = not yet published.
    pub fn end_ns(&self) -> u64 {
        self.end_ns.load(Ordering::Acquire)
    }

    /// Tells all tasks to finish the operation that they are in and to leave their loops.
    pub fn stop(&self) {
        self.stop.store(1, Ordering::Release);
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }

    fn reset(&self) {
        self.gate.store(0, Ordering::Relaxed);
        self.stop.store(0, Ordering::Relaxed);
        self.start_ns.store(0, Ordering::Relaxed);
        self.end_ns.store(0, Ordering::Release);
    }
}

/// Puts everything back to "nothing has started", for the next round. No task may be running.
pub(crate) fn reset(control: &Control, slots: &[Slot]) {
    control.reset();
    slots.iter().for_each(Slot::reset);
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn now_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// A task's half of the measuring: `while meter.running() { operation; meter.done(); }`.
///
/// Create it in the task, after the gate.
pub struct Meter<'a> {
    control: &'a Control,
    slot: &'a Slot,
    count: u64,
    /// Operations until the next stamp.
    left: u32,
    track: Box<Track>,
    /// One task, one meter: it is not to be shared.
    single: PhantomData<Cell<()>>,
}

impl<'a> Meter<'a> {
    /// Starts to measure: the first stamp is now, with the slot's present count.
    pub fn new(control: &'a Control, slot: &'a Slot) -> Self {
        let first = Stamp { ns: now_ns(), count: slot.count() };
        slot.last.store(first);
        Meter {
            control,
            slot,
            count: first.count,
            left: 1,
            track: Box::new(Track::new(first)),
            single: PhantomData,
        }
    }

    /// Whether the task is to go on.
    #[inline(always)]
    pub fn running(&self) -> bool {
        self.control.stop.load(Ordering::Relaxed) == 0
    }

    /// Counts one completed operation.
    #[inline(always)]
    pub fn done(&mut self) {
        self.count += 1;
        self.slot.count.store(self.count, Ordering::Relaxed);
        self.left -= 1;
        if self.left == 0 {
            self.stamp();
        }
    }

    /// Operations completed so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Makes the last stamp. Call it when the loop was left; the counts at the window's edges are complete then.
    pub fn finish(&mut self) {
        self.stamp();
    }

    /// Where a C test case counts. Once it does, [`done`](Self::done) must not be called any more.
    pub fn counter_ptr(&self) -> *mut u64 {
        self.slot.count.as_ptr()
    }

    #[cold]
    #[inline(never)]
    fn stamp(&mut self) {
        let stamp = Stamp { ns: now_ns(), count: self.count };
        let found = self.track.stamp(stamp, self.control.start_ns(), self.control.end_ns());
        self.left = self.track.operations_to_next();
        self.slot.publish(stamp, found);
    }
}

/// Stamps, from outside, the counts of tasks that do not stamp themselves (C test cases).
///
/// The supervisor calls [`observe`](Self::observe) again and again; the interval between calls is the error with which the
/// time of a completion is known, so 1 ms is plenty for a window of seconds. Calls matter from the warm-up until every task has completed an
/// operation after the start, and again from some operations before the end; for fast operations (many per
/// interval) one call just before and one just after each edge does.
///
/// After the end, go on until every slot has its [`Slot::count_at_end`], or patience ends and [`finish`](Self::finish) is due.
///
/// Where a task completes nothing between two calls, the stamp of its last completion stays as it is: a count is
/// interpolated between completions, not between calls. A task that completes nothing more after the end
/// gets its bracket from [`finish`](Self::finish).
pub struct Watcher {
    tracks: Vec<Track>,
}

impl Watcher {
    /// Starts to watch `slots`; the first stamp is now.
    pub fn new(slots: &[Slot]) -> Self {
        Self::at(slots, now_ns())
    }

    fn at(slots: &[Slot], ns: u64) -> Self {
        let first = |slot: &Slot| {
            let stamp = Stamp { ns, count: slot.count() };
            slot.last.store(stamp);
            Track::new(stamp)
        };
        Watcher { tracks: slots.iter().map(first).collect() }
    }

    /// Stamps every task that has completed an operation since the last call.
    pub fn observe(&mut self, control: &Control, slots: &[Slot]) {
        self.observe_at(control, slots, now_ns(), false);
    }

    /// The last look: closes the brackets of tasks, too, that have completed nothing since the window's edge. Their operation in
    /// flight counts nothing, so the result is a lower bound for them.
    pub fn finish(&mut self, control: &Control, slots: &[Slot]) {
        self.observe_at(control, slots, now_ns(), true);
    }

    fn observe_at(&mut self, control: &Control, slots: &[Slot], ns: u64, last: bool) {
        for (slot, track) in slots.iter().zip(&mut self.tracks) {
            let count = slot.count();
            if last || count != track.newest().count {
                let stamp = Stamp { ns, count };
                let found = track.stamp(stamp, control.start_ns(), control.end_ns());
                slot.publish(stamp, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Board;

    fn set(slot: &Slot, count: u64) {
        slot.count.store(count, Ordering::Relaxed);
    }

    #[test]
    fn a_meter_counts_in_shared_memory_and_gives_fractions_at_both_edges() {
        let board = Board::create(1).expect("shared memory");
        let (control, slot) = (board.control(), &board.slots()[0]);
        let mut meter = Meter::new(control, slot);
        let mut edges = (0, 0);
        while meter.running() {
            meter.done();
            match meter.count() {
                200_000 => {
                    edges.0 = now_ns();
                    control.set_start(edges.0);
                }
                400_000 => {
                    edges.1 = now_ns();
                    control.set_end(edges.1);
                    control.stop();
                }
                _ => {}
            }
        }
        meter.finish();
        let (start, end) = (slot.count_at_start(), slot.count_at_end());
        assert_eq!(slot.count(), 400_000);
        assert!(start.is_some_and(|n| (0.0..=400_000.0).contains(&n)), "{start:?}");
        assert!(end > start && end <= Some(400_000.0), "{end:?}");
        assert!(slot.last_ns() >= edges.1);
    }

    #[test]
    fn a_watcher_interpolates_between_completions_and_not_between_its_looks() {
        let board = Board::create(1).expect("shared memory");
        let (control, slots) = (board.control(), board.slots());
        let mut watcher = Watcher::at(slots, 1_000);
        // One operation takes 1,000 ns, and somebody looks every 100 ns.
        for ns in (1_100..=5_000).step_by(100) {
            set(&slots[0], ns / 1_000 - 1);
            if ns == 2_500 {
                control.set_start(2_500);
            }
            if ns == 4_200 {
                control.set_end(4_200);
            }
            watcher.observe_at(control, slots, ns, false);
        }
        assert_eq!(slots[0].count_at_start(), Some(1.5));
        let end = slots[0].count_at_end().expect("complete");
        assert!((end - 3.2).abs() < 1e-9, "{end}");
    }

    #[test]
    fn a_watcher_closes_the_bracket_of_a_task_that_completes_nothing_more() {
        let board = Board::create(2).expect("shared memory");
        let (control, slots) = (board.control(), board.slots());
        let mut watcher = Watcher::at(slots, 1_000);
        control.set_start(1_500);
        set(&slots[0], 4);
        watcher.observe_at(control, slots, 2_000, false);
        control.set_end(3_000);
        watcher.observe_at(control, slots, 3_500, false);
        assert_eq!(slots[0].count_at_end(), None);
        watcher.observe_at(control, slots, 4_000, true);
        assert_eq!(slots[0].count_at_end(), Some(4.0));
        assert_eq!((slots[1].count_at_start(), slots[1].count_at_end()), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn a_board_takes_1_to_2048_tasks_and_starts_over_after_a_reset() {
        assert!(Board::create(0).is_err() && Board::create(2049).is_err());
        let board = Board::create(2048).expect("shared memory");
        let (control, last) = (board.control(), &board.slots()[2047]);
        set(last, 7);
        last.set_state(State::Failed);
        control.open_gate();
        control.wait_at_gate();
        control.set_start(1);
        control.set_end(2);
        control.stop();
        assert!(control.stopped());
        board.reset();
        assert_eq!((last.count(), last.state(), last.count_at_start()), (0, State::Starting, None));
        assert_eq!((control.stopped(), control.start_ns(), control.end_ns()), (false, 0, 0));
    }

    #[test]
    fn slots_are_cache_lines_of_their_own() {
        assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (128, 128));
        assert_eq!(size_of::<Control>() % align_of::<Slot>(), 0);
        assert_eq!(std::mem::offset_of!(Slot, count), 0);
    }
}
