//! When the warm-up may end: when the rate has become steady.

/// How many bins have to agree.
const BINS: usize = 4;

/// The last bins' counts must lie within this share of their mean, plus what counting alone explains.
const SPREAD: f64 = 0.10;

/// Watches the total of completed operations in bins of equal length.
#[derive(Debug, Default)]
pub(crate) struct Steadiness {
    last: u64,
    bins: Vec<f64>,
}

impl Steadiness {
    /// Ends a bin with the total so far.
    pub fn bin(&mut self, total: u64) {
        self.bins.push(total.saturating_sub(self.last) as f64);
        self.last = total;
    }

    /// Whether the rate is steady: the last bins agree, and hold at least two operations of every task.
    pub fn reached(&self, tasks: u32) -> bool {
        let Some(recent) = self.bins.len().checked_sub(BINS).map(|from| &self.bins[from..]) else {
            return false;
        };
        let sum: f64 = recent.iter().sum();
        let mean = sum / BINS as f64;
        let most = recent.iter().copied().fold(0.0, f64::max);
        let least = recent.iter().copied().fold(f64::INFINITY, f64::min);
        // Counts of independent operations scatter by their square root; the range of four of them by about twice that.
        sum >= 2.0 * f64::from(tasks) && sum >= 20.0 && most - least <= SPREAD * mean + 2.0 * mean.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(totals: &[u64]) -> Steadiness {
        let mut s = Steadiness::default();
        totals.iter().for_each(|&t| s.bin(t));
        s
    }

    #[test]
    fn a_steady_rate_is_steady_after_four_bins() {
        assert!(!fed(&[1000, 2000, 3000]).reached(2));
        assert!(fed(&[1000, 2000, 3010, 4000]).reached(2));
    }

    #[test]
    fn a_rising_rate_is_not_steady_until_it_has_risen() {
        assert!(!fed(&[1000, 3000, 6000, 10000]).reached(2));
        assert!(fed(&[1000, 3000, 7000, 11000, 15000, 19000]).reached(2));
    }

    #[test]
    fn too_few_operations_are_never_steady() {
        assert!(!fed(&[2, 4, 6, 8]).reached(1));
        assert!(!fed(&[10, 20, 30, 40]).reached(24));
    }
}
