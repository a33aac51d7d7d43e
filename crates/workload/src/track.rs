//! The arithmetic of stamps, apart from clocks and shared memory so that it can be tested with simulated time.

/// Stamps are made about this far apart (ns) where operations are shorter than that.
const APART_NS: u64 = 100_000;

/// How many stamps are remembered, so that a moment published late is still found between two of them: at least 50 ms, which a
/// supervisor that has to wait for a CPU among two dozen tasks can be late.
const REMEMBERED: usize = 1024;

/// A count and the moment at which it was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// `CLOCK_MONOTONIC`, ns.
    pub ns: u64,
    /// Completed operations.
    pub count: u64,
}

/// The count at `at_ns`, on the line through the two stamps; never outside of them.
pub(crate) fn interpolate(before: Stamp, after: Stamp, at_ns: u64) -> f64 {
    let span = after.ns.saturating_sub(before.ns);
    let operations = after.count.saturating_sub(before.count) as f64;
    let part = at_ns.clamp(before.ns, after.ns.max(before.ns)) - before.ns;
    match span {
        0 => after.count as f64,
        _ => before.count as f64 + operations * (part as f64 / span as f64),
    }
}

/// The moment asked for, the stamp before it, the stamp after it.
pub(crate) type Edge = (u64, Stamp, Stamp);

/// The edges of the window that a stamp completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub start: Option<Edge>,
    pub end: Option<Edge>,
}

/// One task's recent stamps.
pub(crate) struct Track {
    ring: [Stamp; REMEMBERED],
    /// Stamps made so far, the first one included.
    made: usize,
    every: u32,
    start_known: bool,
    end_known: bool,
}

impl Track {
    pub(crate) fn new(first: Stamp) -> Self {
        let mut ring = [Stamp::default(); REMEMBERED];
        ring[0] = first;
        Track { ring, made: 1, every: 1, start_known: false, end_known: false }
    }

    /// The newest stamp.
    pub(crate) fn newest(&self) -> Stamp {
        self.ring[(self.made - 1) % REMEMBERED]
    }

    /// After how many operations the next stamp is due.
    pub(crate) fn operations_to_next(&self) -> u32 {
        self.every
    }

    /// Takes a stamp; `start_ns` and `end_ns` are the window's edges, 0 while not known.
    pub(crate) fn stamp(&mut self, stamp: Stamp, start_ns: u64, end_ns: u64) -> Found {
        self.adapt(stamp);
        self.ring[self.made % REMEMBERED] = stamp;
        self.made += 1;
        let mut found = Found::default();
        if !self.start_known && start_ns != 0 && start_ns <= stamp.ns {
            self.start_known = true;
            found.start = self.edge(start_ns);
        }
        if !self.end_known && end_ns != 0 && end_ns <= stamp.ns {
            self.end_known = true;
            found.end = self.edge(end_ns);
        }
        found
    }

    /// Aims the next stamp at 100 us from now, going by the pace since the last one. It may at most double the distance: the
    /// pace of a few operations says little, and a stamp too many costs less than one too few.
    fn adapt(&mut self, stamp: Stamp) {
        let last = self.newest();
        let operations = (stamp.count - last.count).max(1);
        let took = (stamp.ns - last.ns).max(1);
        let due = (operations.saturating_mul(APART_NS) / took).clamp(1, operations * 2);
        self.every = u32::try_from(due).unwrap_or(u32::MAX);
    }

    /// The two neighbouring stamps around `at_ns`, which is not after the newest; `None` if they are forgotten.
    fn edge(&self, at_ns: u64) -> Option<Edge> {
        let oldest = self.made.saturating_sub(REMEMBERED);
        let mut after = self.newest();
        for index in (oldest..self.made - 1).rev() {
            let before = self.ring[index % REMEMBERED];
            if before.ns <= at_ns {
                return Some((at_ns, before, after));
            }
            after = before;
        }
        // Before the very first stamp the task was not running yet: nothing was done then.
        (oldest == 0).then_some((at_ns, after, after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a task with the given operation lengths (ns) under a simulated clock, stamping as a meter does. Both edges are
    /// published `late` ns after the fact. Returns what was found and the distances between stamps.
    fn simulate(lengths: &[u64], start: u64, end: u64, late: u64) -> (Found, Vec<(u64, u64)>) {
        let mut now = 1_000_000;
        let mut track = Track::new(Stamp { ns: now, count: 0 });
        let (mut found, mut gaps, mut left) = (Found::default(), Vec::new(), 1);
        for (done, length) in lengths.iter().enumerate() {
            now += length;
            left -= 1;
            if left == 0 || done + 1 == lengths.len() {
                let stamp = Stamp { ns: now, count: done as u64 + 1 };
                let newest = track.newest();
                gaps.push((stamp.ns - newest.ns, stamp.count - newest.count));
                let known = |edge: u64| if now >= edge.saturating_add(late) { edge } else { 0 };
                let new = track.stamp(stamp, known(start), known(end));
                found.start = found.start.or(new.start);
                found.end = found.end.or(new.end);
                left = track.operations_to_next();
            }
        }
        (found, gaps)
    }

    fn count_at(edge: Option<Edge>) -> f64 {
        let (at, before, after) = edge.expect("the edge was passed");
        interpolate(before, after, at)
    }

    proptest! {
        #[test]
        fn the_count_at_an_edge_is_off_by_no_more_than_the_operations_between_two_stamps(
            lengths in prop::collection::vec(200u64..400_000, 400..2000),
            at in 0.05f64..0.8, late in 0u64..50_000,
        ) {
            let total: u64 = lengths.iter().sum();
            let start = 1_000_000 + (total as f64 * at) as u64;
            let (found, gaps) = simulate(&lengths, start, start, late);
            let mut now = 1_000_000.0;
            let mut truth = 0.0;
            for length in &lengths {
                truth += ((start as f64 - now) / *length as f64).clamp(0.0, 1.0);
                now += *length as f64;
            }
            let widest = gaps.iter().map(|g| g.1).max().unwrap_or(0) as f64;
            prop_assert!((count_at(found.start) - truth).abs() <= widest + 1.0);
        }

        #[test]
        fn operations_of_one_length_are_counted_exactly_with_their_fraction(
            length in 100u64..5_000_000, operations in 300usize..3000, at in 0.1f64..0.7, late in 0u64..40_000,
        ) {
            let total = length * operations as u64;
            let start = 1_000_000 + (total as f64 * at) as u64;
            let end = 1_000_000 + (total as f64 * 0.8) as u64;
            let (found, _) = simulate(&vec![length; operations], start, end, late.min(total / 10));
            let exact = (end - start) as f64 / length as f64;
            let counted = count_at(found.end) - count_at(found.start);
            prop_assert!((counted - exact).abs() < 1e-6 * exact.max(1.0), "{counted} {exact}");
        }

        #[test]
        fn stamps_are_50_to_200_us_apart_or_one_operation(length in 20u64..3_000_000) {
            let operations = (4_000_000 / length).clamp(200, 200_000) as usize;
            let (_, gaps) = simulate(&vec![length; operations], u64::MAX, u64::MAX, 0);
            // The first ones find the pace, the last one is cut short by the end.
            for (ns, count) in gaps.iter().skip(16).rev().skip(1) {
                prop_assert!((50_000..=200_000).contains(ns) || *count == 1, "{ns} ns, {count}");
            }
        }

        #[test]
        fn interpolation_never_leaves_its_two_stamps(a in 0u64..1000, d in 0u64..1000, n in 0u64..50, at in 0u64..3000) {
            let before = Stamp { ns: a, count: 7 };
            let after = Stamp { ns: a + d, count: 7 + n };
            let value = interpolate(before, after, at);
            prop_assert!((7.0..=(7 + n) as f64).contains(&value));
        }
    }

    #[test]
    fn an_operation_that_spans_the_whole_window_counts_with_the_part_inside() {
        let (found, _) = simulate(&[10_000_000], 3_000_000, 8_000_000, 0);
        assert!((count_at(found.end) - count_at(found.start) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_task_that_starts_after_the_windows_start_has_done_nothing_by_then() {
        let (found, _) = simulate(&[1_000; 50], 900_000, 1_010_500, 0);
        assert_eq!(count_at(found.start), 0.0);
        assert!((count_at(found.end) - 10.5).abs() < 1e-9);
    }

    #[test]
    fn an_edge_that_is_published_after_its_stamps_are_forgotten_is_not_guessed() {
        let (found, _) = simulate(&[200_000; 3_000], 2_000_000, u64::MAX, 300_000_000);
        assert_eq!(found.start, None);
    }
}
