//! Durations counted in buckets whose width grows with the value.

/// Buckets per power of two: a bucket is at most 1/32 of its value wide.
const PER_OCTAVE: u32 = 32;
const OCTAVE_BITS: u32 = PER_OCTAVE.ilog2();
const BUCKETS: usize = ((u64::BITS - OCTAVE_BITS + 1) * PER_OCTAVE) as usize;

/// A histogram of nanoseconds; quantiles are exact to 3 %.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    largest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice(), total: 0, largest: 0 }
    }
}

impl Histogram {
    /// Counts one duration.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.largest = self.largest.max(ns);
    }

    /// Counts everything that another one has counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.largest = self.largest.max(other.largest);
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The largest one, in ns, exactly; 0 if there is none.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The duration, in ns, that a share `q` of all (0 to 1) does not exceed; 0 if there is none.
    pub fn quantile(&self, q: f64) -> u64 {
        let rank = (q.clamp(0.0, 1.0) * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_edge(index).min(self.largest);
            }
        }
        self.largest
    }
}

fn bucket(ns: u64) -> usize {
    if ns < u64::from(PER_OCTAVE) {
        return ns as usize;
    }
    let octave = ns.ilog2() - OCTAVE_BITS;
    // The leading bits below the highest one choose the bucket within the octave.
    let within = (ns >> octave) as u32 - PER_OCTAVE;
    ((octave + 1) * PER_OCTAVE + within) as usize
}

/// The largest value that falls into a bucket.
fn upper_edge(index: usize) -> u64 {
    let (octave, within) = (index as u32 / PER_OCTAVE, u64::from(index as u32 % PER_OCTAVE));
    if octave == 0 {
        return within;
    }
    let width = 1u64 << (octave - 1);
    (u64::from(PER_OCTAVE) + within).saturating_mul(width).saturating_add(width - 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for shift in 0..64 {
            for value in
                [1u64 << shift, (1u64 << shift) + 1, (1u64 << shift).wrapping_mul(3) / 2, u64::MAX >> shift]
            {
                let index = bucket(value);
                assert!(value <= upper_edge(index), "{value}");
                assert!(index == 0 || value > upper_edge(index - 1), "{value}");
            }
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn nothing_counted_has_quantiles_of_zero() {
        assert_eq!(Histogram::default().quantile(0.999), 0);
    }

    proptest! {
        #[test]
        fn quantiles_are_exact_to_three_percent(mut values in prop::collection::vec(0u64..10_000_000_000, 1..300), q in 0.0f64..=1.0) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record(value));
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let (exact, said) = (values[rank - 1], histogram.quantile(q));
            prop_assert!(said >= exact && said as f64 <= exact as f64 * 1.032 + 1.0, "{exact} {said}");
        }

        #[test]
        fn merging_is_counting_both(a in prop::collection::vec(any::<u64>(), 0..50), b in prop::collection::vec(any::<u64>(), 0..50)) {
            let of = |values: &[u64]| values.iter().fold(Histogram::default(), |mut all, &value| { all.record(value); all });
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let both = of(&[a, b].concat());
            prop_assert_eq!(merged.counts, both.counts);
            prop_assert_eq!((merged.total, merged.largest), (both.total, both.largest));
        }
    }
}
