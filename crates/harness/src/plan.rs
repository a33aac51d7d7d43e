//! Which rounds are run in which order, what is repeated, and what becomes of points whose tasks fail.

use crate::order::interleave;
use crate::protocol::{Broken, Measured, RoundSpec, Void};
use crate::round::{Executor, Outcome, Phase};

/// Share of the allowed CPUs' time (stolen, or used by strangers) above which a round is tainted.
pub const TAINT_SHARE: f64 = 0.05;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One specification a point; `cleanup` and `seed` are filled in for every round.
    pub points: Vec<RoundSpec>,
    /// Rounds of each point.
    pub rounds: u32,
    /// Decides the order.
    pub seed: u64,
    /// How often a point's tainted rounds may be repeated, in all.
    pub retries: u32,
    /// How many more rounds of each point are captured; they stand in the middle of the others.
    pub captures: u32,
}

/// What makes a round doubtful.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Taint {
    /// The hypervisor took away this share of the capacity.
    Steal(f64),
    /// Strangers used this share of the capacity.
    OtherLoad(f64),
    /// A quota held the tasks back for so many seconds.
    Throttled(f64),
}

/// A round that has been run.
#[derive(Clone, Debug)]
pub struct Done {
    /// Which point.
    pub point: usize,
    /// Which of its rounds, from 0; captured rounds are counted by themselves.
    pub round: u32,
    /// Position in the order of the whole run, from 0.
    pub order: u32,
    /// How often this round had been tried before.
    pub retries: u32,
    /// Whether it counts: a tainted round that is repeated does not.
    pub kept: bool,
    /// What makes it doubtful.
    pub taints: Vec<Taint>,
    /// Whether it was captured: then its rate is not to be mixed with the others'.
    pub captured: bool,
    /// What it gave.
    pub measured: Measured,
}

/// What happens during a run, as it happens.
#[derive(Debug)]
pub enum Event<'a> {
    /// A round begins.
    Begins {
        /// Which point.
        point: usize,
        /// Which of its rounds.
        round: u32,
        /// Rounds run or skipped so far.
        done: u32,
        /// Rounds of the whole run.
        of: u32,
    },
    /// A round goes on.
    Phase(Phase),
    /// A round gave measurements.
    Done(&'a Done),
    /// A captured round could not be run or captured.
    NotCaptured {
        /// Which point.
        point: usize,
        /// Why.
        why: &'a Broken,
    },
    /// A point is void; its further rounds are skipped.
    Void {
        /// Which point.
        point: usize,
        /// Why.
        void: &'a Void,
    },
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything was measured, or is void.
    Complete,
    /// The user had enough.
    Interrupted,
}

/// A run that could not go on: which point, and why.
#[derive(Debug, thiserror::Error)]
#[error("{broken}")]
pub struct RunError {
    /// The point whose round it was.
    pub point: usize,
    /// What is wrong.
    pub broken: Broken,
}

/// Runs all rounds of a plan. A tainted round is repeated at once while the point has retries left; the last try counts,
/// tainted or not.
///
/// # Errors
/// If a place cannot be made or the harness fails: then nothing that follows would be comparable.
pub fn run(
    plan: &Plan,
    executor: &mut dyn Executor,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<End, RunError> {
    let mut void = vec![false; plan.points.len()];
    let mut retries_left = vec![plan.retries; plan.points.len()];
    let turns = interleave(plan.points.len(), plan.rounds + plan.captures, plan.seed);
    let captured_rounds = plan.rounds / 2..plan.rounds / 2 + plan.captures;
    // Among its like: captured rounds are counted by themselves.
    let number = |round: u32| match round {
        r if captured_rounds.contains(&r) => r - captured_rounds.start,
        r if r >= captured_rounds.end => r - plan.captures,
        r => r,
    };
    let of = turns.len() as u32;
    let mut order = 0;
    for (done, turn) in turns.into_iter().enumerate() {
        let (point, round) = (turn.point, turn.round);
        if void[point] {
            continue;
        }
        tell(Event::Begins { point, round: number(round), done: done as u32, of });
        let mut retries = 0;
        loop {
            let broken = |broken| RunError { point, broken };
            let mut spec = plan.points[point].clone();
            spec.seed = plan.seed.wrapping_add(u64::from(order));
            spec.captured = captured_rounds.contains(&round);
            spec.cleanup =
                target::Cleanup::plan(&spec.target, &spec.settings).map_err(|e| broken(e.into()))?;
            match executor.run(&spec, &mut |phase| tell(Event::Phase(phase))) {
                Outcome::Interrupted => return Ok(End::Interrupted),
                // The uncaptured rounds stand for themselves: only the causes are missing.
                Outcome::Broken(why) if spec.captured => {
                    tell(Event::NotCaptured { point, why: &why });
                    break;
                }
                Outcome::Broken(why) => return Err(broken(why)),
                Outcome::Void(why) => {
                    void[point] = true;
                    tell(Event::Void { point, void: &why });
                    break;
                }
                Outcome::Measured(measured) => {
                    let taints = taints(&measured);
                    let again = !taints.is_empty() && retries_left[point] > 0 && !spec.captured;
                    let done = Done {
                        point,
                        round: number(round),
                        order,
                        retries,
                        kept: !again,
                        taints,
                        captured: spec.captured,
                        measured: *measured,
                    };
                    order += 1;
                    tell(Event::Done(&done));
                    if !again {
                        break;
                    }
                    retries_left[point] -= 1;
                    retries += 1;
                }
            }
        }
    }
    Ok(End::Complete)
}

fn taints(measured: &Measured) -> Vec<Taint> {
    let capacity_s = measured.parts.capacity_us / 1e6;
    let mut taints = Vec::new();
    let steal = measured.parts.steal_us / measured.parts.capacity_us;
    if steal > TAINT_SHARE {
        taints.push(Taint::Steal(steal));
    }
    if let Some(other) = measured.other_load_s.map(|s| s / capacity_s).filter(|&share| share > TAINT_SHARE) {
        taints.push(Taint::OtherLoad(other));
    }
    if let Some(seconds) = measured.throttled_s.filter(|&s| s > 0.0) {
        taints.push(Taint::Throttled(seconds));
    }
    taints
}
