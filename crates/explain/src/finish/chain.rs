//! Who waits for whom, as a graph.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use trace::TaskId;

use super::{Called, Finish};
use crate::explanation::{Chain, ChainEdge, ChainNode, RootKind};

/// How many nodes are kept.
const NODES: usize = 40;

impl Finish<'_> {
    pub(super) fn chain(&self) -> Chain {
        let mut chain = Chain::default();
        let mut tasks: HashMap<String, u32> = HashMap::new();
        let mut ends: HashMap<Called, u32> = HashMap::new();
        let mut edges: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        let mut waiters: Vec<_> = self.account.waiters.iter().filter(|(_, ns)| **ns > 0).collect();
        waiters.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let mut seen_tasks: HashMap<u32, HashSet<TaskId>> = HashMap::new();
        for ((task, end), ns) in waiters {
            let Some(called) = self.called.get(end) else { continue };
            if !shown(called.kind) {
                continue;
            }
            let Some(from) = task_node(&mut chain, &mut tasks, &self.family_of(*task)) else { continue };
            seen_tasks.entry(from).or_default().insert(*task);
            let Some(to) = end_node(&mut chain, &mut ends, called) else { continue };
            *edges.entry((from, to)).or_default() += ns;
        }
        for ((end, direct), ns) in &self.account.through {
            let (Some(end), Some(direct)) = (self.called.get(end), self.called.get(direct)) else { continue };
            if let Some(from) = ends.get(direct).copied()
                && let Some(to) = end_node(&mut chain, &mut ends, end)
                && from != to
            {
                *edges.entry((from, to)).or_default() += ns;
            }
        }
        let mut holders: Vec<_> = self
            .account
            .holders
            .iter()
            .filter(|((_, task, _), ns)| **ns > 0 && !self.is_own(*task))
            .collect();
        holders.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        for ((end, task, work), ns) in holders {
            let Some(from) = self.called.get(end).and_then(|c| ends.get(c)).copied() else { continue };
            let name = self.holder_name(*task, work.map(|w| self.tables.symbol_name(w)));
            let Some(to) = task_node(&mut chain, &mut tasks, &name) else { continue };
            seen_tasks.entry(to).or_default().insert(*task);
            *edges.entry((from, to)).or_default() += ns;
        }
        for (node, seen) in seen_tasks {
            if let Some(ChainNode::Tasks { count, .. }) = chain.nodes.get_mut(node as usize) {
                *count = seen.len() as u32;
            }
        }
        chain.edges =
            edges.into_iter().map(|((from, to), wait_ns)| ChainEdge { from, to, wait_ns }).collect();
        chain
    }
}

/// Whether waits for it belong into the graph.
fn shown(kind: RootKind) -> bool {
    !matches!(kind, RootKind::Child | RootKind::Sleep | RootKind::WakeUp | RootKind::Other)
}

/// The node of that key: the one that is known, or a new one while there is room.
fn node<K: Clone + Eq + Hash>(
    chain: &mut Chain,
    known: &mut HashMap<K, u32>,
    key: &K,
    new: impl FnOnce(K) -> ChainNode,
) -> Option<u32> {
    if let Some(node) = known.get(key) {
        return Some(*node);
    }
    if chain.nodes.len() >= NODES {
        return None;
    }
    let node = chain.nodes.len() as u32;
    chain.nodes.push(new(key.clone()));
    known.insert(key.clone(), node);
    Some(node)
}

fn task_node(chain: &mut Chain, known: &mut HashMap<String, u32>, name: &str) -> Option<u32> {
    node(chain, known, &name.to_owned(), |name| ChainNode::Tasks { name, count: 1 })
}

fn end_node(chain: &mut Chain, known: &mut HashMap<Called, u32>, called: &Called) -> Option<u32> {
    node(chain, known, called, |Called { kind, class, object }| ChainNode::End { kind, class, object })
}
