//! Work of a given length: instructions, not time, so that a preempted thread still has it before it.

use std::hint::black_box;
use std::time::Instant;

/// How much work this CPU does in a nanosecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    steps_per_ns: f64,
}

/// Rounds of calibration; the fastest was disturbed least.
const ROUNDS: u32 = 20;
const STEPS: u64 = 20_000;

impl Work {
    /// Measures it; takes about a millisecond.
    pub(super) fn calibrate() -> Self {
        do_steps(STEPS);
        let fastest = (0..ROUNDS)
            .map(|_| {
                let start = Instant::now();
                do_steps(STEPS);
                start.elapsed().as_nanos().max(1) as f64
            })
            .fold(f64::INFINITY, f64::min);
        Self { steps_per_ns: STEPS as f64 / fastest }
    }

    /// The number of steps that take `ns`.
    pub(super) fn steps(self, ns: u64) -> u64 {
        (ns as f64 * self.steps_per_ns).round() as u64
    }
}

/// A chain of dependent steps that neither the compiler nor the CPU can shorten.
#[inline]
pub(super) fn do_steps(steps: u64) {
    let mut state = black_box(1u64);
    for _ in 0..steps {
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (state >> 29);
    }
    black_box(state);
}
