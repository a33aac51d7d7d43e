//! Statistics of rounds: few, unsteady, with outliers. Therefore medians, MAD, bootstrap intervals and
//! permutation tests, and "cannot say" as an answer.
//!
//! All random choices come from a seeded generator, so that a result can be recomputed from its
//! raw rounds and seed.

use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

/// How many resamples a bootstrap interval takes.
const RESAMPLES: usize = 2000;

/// Above this number of ways to split the rounds in two, the permutation test draws splits
/// instead of visiting them all.
const MAX_EXACT_SPLITS: u64 = 50_000;

/// An interval that holds the true value in 95 of 100 cases, as far as the rounds can tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A value measured in several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The median of the rounds.
    pub median: f64,
    /// The median absolute deviation from the median.
    pub mad: f64,
    /// Bootstrap interval of the median.
    pub interval: Interval,
}

/// What two sets of rounds say of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The difference is larger than chance explains.
    Different,
    /// No difference that chance would not explain.
    NoDifference,
    /// Too few rounds for any answer: even the clearest difference could be chance.
    CannotSay,
}

/// The ratio of two values, each measured in several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Median of the second over median of the first.
    pub ratio: f64,
    /// Bootstrap interval of the ratio.
    pub interval: Interval,
    /// Two-sided p-value of the permutation test on the difference of the medians of the ranks' means.
    pub p: f64,
    /// The smallest p that this number of rounds can give.
    pub smallest_p: f64,
    /// The answer at the 5 % level.
    pub verdict: Verdict,
}

/// The median; the mean of the middle two for an even count. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    median_in_place(&mut sorted)
}

fn median_in_place(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let mid = values.len() / 2;
    Some(if values.len() % 2 == 1 { values[mid] } else { (values[mid - 1] + values[mid]) / 2.0 })
}

/// The median absolute deviation (not scaled to a normal distribution). `None` without values.
pub fn mad(values: &[f64]) -> Option<f64> {
    let center = median(values)?;
    let mut deviations: Vec<f64> = values.iter().map(|v| (v - center).abs()).collect();
    median_in_place(&mut deviations)
}

/// Median, MAD and the 95 % percentile-bootstrap interval of the median (Efron 1979).
/// One round gives an interval of no width: the caller has to say that it is one round.
pub fn summarize(values: &[f64], seed: u64) -> Option<Summary> {
    let center = median(values)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut scratch = vec![0.0; values.len()];
    let medians = (0..RESAMPLES).filter_map(|_| resampled_median(values, &mut scratch, &mut rng));
    Some(Summary { median: center, mad: mad(values)?, interval: middle_95(medians.collect())? })
}

/// Compares `b` with `a`. Rounds are not assumed to be normal, nor of equal spread; the test permutes
/// the labels of the rounds (Fisher/Pitman) on ranks, so that one wild round cannot decide.
/// `None` if either has no rounds or the median of `a` is not positive.
pub fn compare(a: &[f64], b: &[f64], seed: u64) -> Option<Ratio> {
    let (ma, mb) = (median(a)?, median(b)?);
    if ma <= 0.0 {
        return None;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut sa, mut sb) = (vec![0.0; a.len()], vec![0.0; b.len()]);
    let mut ratios = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let base = resampled_median(a, &mut sa, &mut rng)?;
        let new = resampled_median(b, &mut sb, &mut rng)?;
        if base > 0.0 {
            ratios.push(new / base);
        }
    }
    let splits = splits(a.len() as u64, b.len() as u64);
    // With equal counts the mirrored split is as extreme, so the smallest p is 2/splits; the same holds
    // for unequal counts on ranks by symmetry of the two tails.
    let smallest_p = splits.map_or(0.0, |n| (2.0 / n as f64).min(1.0));
    let p = permutation_p(a, b, splits, &mut rng);
    let verdict = if smallest_p > 0.05 {
        Verdict::CannotSay
    } else if p <= 0.05 {
        Verdict::Different
    } else {
        Verdict::NoDifference
    };
    Some(Ratio { ratio: mb / ma, interval: middle_95(ratios)?, p, smallest_p, verdict })
}

fn resampled_median(values: &[f64], scratch: &mut [f64], rng: &mut ChaCha8Rng) -> Option<f64> {
    for slot in scratch.iter_mut() {
        *slot = *values.choose(rng)?;
    }
    median_in_place(scratch)
}

fn middle_95(mut values: Vec<f64>) -> Option<Interval> {
    if values.is_empty() {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let at = |q: f64| values[((values.len() - 1) as f64 * q).round() as usize];
    Some(Interval { low: at(0.025), high: at(0.975) })
}

/// In how many ways `a + b` rounds split into `a` and `b`; `None` above [`MAX_EXACT_SPLITS`].
fn splits(a: u64, b: u64) -> Option<u64> {
    let mut n: u64 = 1;
    for i in 1..=a.min(b) {
        n = n.checked_mul(a + b + 1 - i)? / i;
        if n > MAX_EXACT_SPLITS {
            return None;
        }
    }
    Some(n)
}

/// Two-sided p of the rank-sum under permutation of labels, exact where the number of splits allows.
fn permutation_p(a: &[f64], b: &[f64], splits: Option<u64>, rng: &mut ChaCha8Rng) -> f64 {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let ranks = mid_ranks(&all);
    let expected = a.len() as f64 * (all.len() as f64 + 1.0) / 2.0;
    let seen = (ranks[..a.len()].iter().sum::<f64>() - expected).abs() - 1e-9;
    let mut extreme = 0u64;
    let mut total = 0u64;
    let mut count = |sum: f64| {
        total += 1;
        extreme += u64::from((sum - expected).abs() >= seen);
    };
    if splits.is_some() {
        each_subset_sum(&ranks, a.len(), 0.0, &mut count);
        return extreme as f64 / total as f64;
    }
    for _ in 0..MAX_EXACT_SPLITS / 5 {
        count(ranks.choose_multiple(rng, a.len()).sum());
    }
    (extreme + 1) as f64 / (total + 1) as f64
}

fn each_subset_sum(ranks: &[f64], take: usize, sum: f64, visit: &mut impl FnMut(f64)) {
    if take == 0 {
        return visit(sum);
    }
    for i in 0..=ranks.len().saturating_sub(take) {
        if let Some(rest) = ranks.get(i + 1..) {
            each_subset_sum(rest, take - 1, sum + ranks[i], visit);
        }
    }
}

/// Ranks from 1, equal values share the mean of their ranks.
fn mid_ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let same = order[start..].iter().take_while(|&&i| values[i] == values[order[start]]).count();
        let rank = start as f64 + (same as f64 + 1.0) / 2.0;
        for &i in &order[start..start + same] {
            ranks[i] = rank;
        }
        start += same;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::Rng;

    #[test]
    fn median_of_even_count_is_the_mean_of_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn one_wild_round_moves_neither_median_nor_mad() {
        let s = summarize(&[10.0, 11.0, 9.0, 10.0, 1000.0], 1).unwrap();
        assert_eq!((s.median, s.mad), (10.0, 1.0));
    }

    #[test]
    fn three_rounds_each_cannot_say_anything() {
        let r = compare(&[1.0, 2.0, 3.0], &[101.0, 102.0, 103.0], 1).unwrap();
        assert!((r.smallest_p - 0.1).abs() < 1e-12, "{r:?}");
        assert_eq!(r.verdict, Verdict::CannotSay);
    }

    #[test]
    fn eight_clearly_apart_rounds_differ_with_the_smallest_p() {
        let a: Vec<f64> = (0..8).map(|i| 100.0 + f64::from(i)).collect();
        let b: Vec<f64> = a.iter().map(|v| v * 2.0).collect();
        let r = compare(&a, &b, 1).unwrap();
        assert_eq!(r.verdict, Verdict::Different);
        assert!((r.p - 2.0 / 12870.0).abs() < 1e-9 && (r.p - r.smallest_p).abs() < 1e-12, "{r:?}");
        assert!((r.ratio - 2.0).abs() < 1e-9);
    }

    #[test]
    fn the_same_rounds_do_not_differ() {
        let a = [5.0, 5.0, 5.0, 5.0, 5.0];
        assert_eq!(compare(&a, &a, 3).unwrap().p, 1.0);
    }

    #[test]
    fn a_against_a_differs_about_once_in_twenty() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut different = 0;
        let trials = 400;
        for seed in 0..trials {
            // A storm that has a fast and a slow state, as the one on XFS.
            let mut draw = || -> Vec<f64> {
                (0..8)
                    .map(|_| if rng.random_bool(0.3) { 5e3 } else { 2e4 } * rng.random_range(0.9..1.1))
                    .collect()
            };
            let (a, b) = (draw(), draw());
            different += u32::from(compare(&a, &b, seed).unwrap().verdict == Verdict::Different);
        }
        assert!((7..=38).contains(&different), "{different} of {trials}");
    }

    #[test]
    fn sampled_permutations_agree_with_what_must_be() {
        let a: Vec<f64> = (0..20).map(f64::from).collect();
        let b: Vec<f64> = (100..120).map(f64::from).collect();
        let r = compare(&a, &b, 1).unwrap();
        assert!(r.p < 0.001 && r.verdict == Verdict::Different);
    }

    proptest! {
        #[test]
        fn interval_lies_within_the_rounds_and_holds_the_median(
            values in prop::collection::vec(0.1f64..1e9, 1..30), seed in any::<u64>()
        ) {
            let s = summarize(&values, seed).unwrap();
            let min = values.iter().copied().fold(f64::INFINITY, f64::min);
            let max = values.iter().copied().fold(0.0, f64::max);
            prop_assert!(min <= s.interval.low && s.interval.high <= max);
            prop_assert!(s.interval.low <= s.interval.high);
            prop_assert!(s.median >= min && s.median <= max && s.mad >= 0.0);
        }

        #[test]
        fn the_same_seed_gives_the_same_numbers(values in prop::collection::vec(0.1f64..1e9, 1..12), seed in any::<u64>()) {
            prop_assert_eq!(summarize(&values, seed), summarize(&values, seed));
            prop_assert_eq!(compare(&values, &values, seed), compare(&values, &values, seed));
        }

        #[test]
        fn scaling_all_rounds_leaves_p_alone(
            a in prop::collection::vec(0.1f64..1e6, 4..7), b in prop::collection::vec(0.1f64..1e6, 4..7)
        ) {
            let scaled = |v: &[f64]| v.iter().map(|x| x * 4.0).collect::<Vec<_>>();
            prop_assert_eq!(compare(&a, &b, 5).unwrap().p, compare(&scaled(&a), &scaled(&b), 5).unwrap().p);
        }
    }
}
