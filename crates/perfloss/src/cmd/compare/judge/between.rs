//! What two runs of the same differ by. Pure.
//!
//! A machine drifts: what one run measures is off by an amount that all its rounds share, and that no test over the rounds of two runs
//! can see. Where there are several runs of a side, their rates show it. Where there is one run a side, the rounds are the only
//! witnesses: it is then assumed that two runs differ as much as two rounds of one run do, and that rounds that follow each other are
//! alike, so that they tell as much as half as many independent ones (a correlation of a third between neighbours).

use statrs::distribution::{ContinuousCDF, StudentsT};

/// How many rounds tell as much as one that is independent of all others.
const ALIKE: f64 = 2.0;

/// How much more the median of normal values varies than their mean, as variances: π/2.
const MEDIAN_OVER_MEAN: f64 = std::f64::consts::FRAC_PI_2;

/// A difference of two sides, and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Between {
    /// Logarithm of the new rate over the base's.
    pub difference: f64,
    /// Standard error of it.
    error: f64,
    /// Degrees of freedom of the error.
    freedom: f64,
}

impl Between {
    /// From the rounds of one run a side; `None` with fewer than two rounds on either, or rates that are not positive.
    pub fn of_rounds(base: &[f64], new: &[f64]) -> Option<Between> {
        let (a, b) = (Side::of(base)?, Side::of(new)?);
        if a.count < 2.0 || b.count < 2.0 {
            return None;
        }
        // Each run is off as one more round would be, and its median is known as well as its rounds allow.
        let factor = 2.0 + MEDIAN_OVER_MEAN * ALIKE * (1.0 / a.count + 1.0 / b.count);
        let between = a.against(&b, b.median - a.median, factor);
        Some(Between { freedom: (between.freedom / ALIKE).max(1.0), ..between })
    }

    /// From the rates of several runs, three or more in all (Student's test with a pooled variance).
    pub fn of_runs(base: &[f64], new: &[f64]) -> Option<Between> {
        let (a, b) = (Side::of(base)?, Side::of(new)?);
        if a.count + b.count < 3.0 {
            return None;
        }
        Some(a.against(&b, b.mean - a.mean, 1.0 / a.count + 1.0 / b.count))
    }

    /// From the rates of runs that were made in turn, a pair after the other, so that a drift hits both of a pair (Student's test on the
    /// differences of the pairs); `None` with fewer than three.
    pub fn of_pairs(base: &[f64], new: &[f64]) -> Option<Between> {
        let ratios: Vec<f64> = base.iter().zip(new).map(|(a, b)| b / a).collect();
        let pairs = Side::of(&ratios).filter(|p| p.count >= 3.0 && base.len() == new.len())?;
        let freedom = pairs.count - 1.0;
        let error = (pairs.squares / freedom / pairs.count).sqrt();
        Some(Between { difference: pairs.mean, error, freedom })
    }

    /// How often runs of the same differ by this much or more.
    pub fn p(&self) -> f64 {
        if self.error <= 0.0 {
            return if self.difference == 0.0 { 1.0 } else { 0.0 };
        }
        let t = (self.difference / self.error).abs();
        StudentsT::new(0.0, 1.0, self.freedom).map_or(1.0, |student| (2.0 * student.sf(t)).min(1.0))
    }

    /// The difference, as a logarithm, that runs of the same stay below but for a share of `level` of the cases.
    pub fn reach(&self, level: f64) -> f64 {
        let student = StudentsT::new(0.0, 1.0, self.freedom);
        student.map_or(f64::INFINITY, |student| self.error * student.inverse_cdf(1.0 - level / 2.0))
    }
}

/// Logarithms of rates, since machines are off by factors.
struct Side {
    count: f64,
    mean: f64,
    median: f64,
    /// Sum of the squared deviations from the mean.
    squares: f64,
}

impl Side {
    fn of(rates: &[f64]) -> Option<Side> {
        if rates.is_empty() || rates.iter().any(|r| !(r.is_finite() && *r > 0.0)) {
            return None;
        }
        let logs: Vec<f64> = rates.iter().map(|r| r.ln()).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let median = harness::stats::median(rates)?.ln();
        Some(Side { count, mean, median, squares: logs.iter().map(|l| (l - mean).powi(2)).sum() })
    }

    fn against(&self, other: &Side, difference: f64, factor: f64) -> Between {
        let freedom = self.count + other.count - 2.0;
        let variance = (self.squares + other.squares) / freedom;
        Between { difference, error: (variance * factor).sqrt(), freedom }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_students_test_where_there_are_runs() {
        // Differences of logarithms: base 0, 0.1, 0.2 and new 0.5; pooled deviation 0.1 with 2 degrees of freedom.
        let rates = |logs: &[f64]| logs.iter().map(|l| l.exp()).collect::<Vec<_>>();
        let b = Between::of_runs(&rates(&[0.0, 0.1, 0.2]), &rates(&[0.5])).unwrap();
        assert!((b.difference - 0.4).abs() < 1e-12 && b.freedom == 2.0);
        // 95 % prediction: 4.303 deviations times the root of 1 + 1/3.
        assert!((b.reach(0.05) - 4.3027 * 0.1 * (4.0f64 / 3.0).sqrt()).abs() < 1e-4, "{}", b.reach(0.05));
        let at_reach = Between { difference: b.reach(0.05), ..b };
        assert!((at_reach.p() - 0.05).abs() < 1e-6);
        assert!(Between::of_runs(&[1.0], &[1.0]).is_none(), "two runs show no spread");
    }

    #[test]
    fn pairs_are_free_of_what_both_of_them_drift_by() {
        let base = [1000.0, 1400.0, 700.0, 1200.0];
        let new: Vec<f64> = base.iter().zip([0.91, 0.89, 0.90, 0.90]).map(|(b, f)| f * b).collect();
        let (pairs, runs) = (Between::of_pairs(&base, &new).unwrap(), Between::of_runs(&base, &new).unwrap());
        assert!((pairs.difference - runs.difference).abs() < 1e-12 && pairs.freedom == 3.0);
        assert!(pairs.p() < 1e-3 && runs.p() > 0.5, "{} {}", pairs.p(), runs.p());
        assert!(Between::of_pairs(&base[..2], &new[..2]).is_none());
        assert!(Between::of_pairs(&base, &new[..3]).is_none());
    }

    #[test]
    fn rounds_that_do_not_vary_tell_any_difference_and_none() {
        let b = Between::of_rounds(&[2.0; 8], &[2.0; 8]).unwrap();
        assert_eq!((b.p(), b.reach(0.05)), (1.0, 0.0));
        assert_eq!(Between::of_rounds(&[2.0; 8], &[3.0; 8]).unwrap().p(), 0.0);
        for unusable in [vec![], vec![1.0], vec![1.0, 0.0], vec![f64::NAN, 1.0]] {
            assert!(Between::of_rounds(&unusable, &[1.0, 2.0]).is_none());
        }
    }
}
