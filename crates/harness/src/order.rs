//! The order of rounds: interleaved over all points, seeded, and mirrored (A B … B A), so that a drift of the
//! machine does not favour any point.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// One round of one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which point.
    pub point: usize,
    /// Which of its rounds, from 0.
    pub round: u32,
}

/// All turns of `points` points with `rounds` rounds each. Odd rounds go through the points in the reverse of the
/// order of the round before; each pair of rounds is shuffled anew.
pub fn interleave(points: usize, rounds: u32, seed: u64) -> Vec<Turn> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<usize> = (0..points).collect();
    let mut turns = Vec::with_capacity(points * rounds as usize);
    for round in 0..rounds {
        if round % 2 == 0 {
            order.shuffle(&mut rng);
        } else {
            order.reverse();
        }
        turns.extend(order.iter().map(|&point| Turn { point, round }));
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_point_gets_every_round_once_and_rounds_do_not_mix(points in 1usize..20, rounds in 1u32..12, seed in any::<u64>()) {
            let turns = interleave(points, rounds, seed);
            prop_assert_eq!(turns.len(), points * rounds as usize);
            for (round, chunk) in turns.chunks(points).enumerate() {
                let mut seen: Vec<usize> = chunk.iter().map(|t| t.point).collect();
                seen.sort_unstable();
                prop_assert_eq!(seen, (0..points).collect::<Vec<_>>());
                prop_assert!(chunk.iter().all(|t| t.round as usize == round));
            }
        }

        #[test]
        fn a_pair_of_rounds_mirrors_itself(points in 1usize..20, seed in any::<u64>()) {
            let turns = interleave(points, 2, seed);
            let there: Vec<usize> = turns[..points].iter().map(|t| t.point).collect();
            let back: Vec<usize> = turns[points..].iter().rev().map(|t| t.point).collect();
            prop_assert_eq!(there, back);
        }
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(interleave(8, 4, 7), interleave(8, 4, 7));
        assert_ne!(interleave(8, 4, 7), interleave(8, 4, 8));
    }
}
