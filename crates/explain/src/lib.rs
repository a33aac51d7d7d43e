//! From a trace to the root lock and the loss that it causes.
//!
//! [`explain`] reads a trace once, in order of time, and says where the time of the CPUs went: an [`Explanation`]. It does no
//! input or output of its own and knows nothing of how the trace was got. An [`Engine`] does the same for events that come
//! in pieces (a running capture); its memory grows with the number of tasks, locks and stacks, not with the number of events.
//!
//! # How
//!
//! * `clock`: the time that idle CPUs lose is charged, at every instant, in equal shares to the tasks that wait, one share
//!   at most a task. The charge of a wait is the difference of a running sum between its end and its beginning, so that nothing has to be done for the
//!   tasks that wait while others come and go.
//! * `lock`: who had a lock between two pieces of evidence (an owner seen, a release, a grant), or that it is not known.
//! * `wait`: when a wait ends, it is cut by who had the lock and by what that holder did meanwhile. What a
//!   holder did was explained when its own waits ended, so that chains of any length end at their roots.
//! * `engine`: what each event means for these.
//! * `account`, `finish`: the sums, and the explanation made of them.

mod account;
mod classify;
mod clock;
mod engine;
mod explanation;
mod finish;
mod lock;
mod scope;
mod summary;
mod task;
mod wait;

pub use engine::Engine;
pub use explanation::{
    Budget, Chain, ChainEdge, ChainNode, Explanation, Facts, Holder, NamedTime, Path, Root, RootKind,
    SampledTime, Serial, Split, TaskTimes, Through, WeightedStack,
};
pub use scope::{Scope, Select};
pub use summary::summary;

use trace::Source;

/// Explains a whole trace.
///
/// # Errors
/// What the source fails with.
pub fn explain(source: &mut impl Source, scope: &Scope) -> Result<Explanation, trace::Error> {
    let mut engine = Engine::new(scope.clone());
    let mut batch = Vec::new();
    while source.next_batch(&mut batch)? {
        engine.feed(source.tables(), &batch);
    }
    Ok(engine.finish(source.tables()))
}
