//! The roots: where they are waited for, who held them meanwhile, and what waits through them.

use std::collections::{BTreeMap, HashMap};

use trace::StackId;

use super::names::is_sleeping;
use super::{Called, Finish};
use crate::account::{End, EndSums};
use crate::classify::{KernelStack, entry_of, plain};
use crate::explanation::{Holder, Path, Root, RootKind, Split, Through};

/// How many of a kind are kept in lists.
const PATHS: usize = 12;
const HOLDERS: usize = 12;
const STACKS_OF_HOLDER: usize = 4;
const THROUGH: usize = 8;
const ROOTS: usize = 50;
/// A lock is latent when less than this part of its waits cost idle time.
const LATENT: f64 = 0.02;

impl Finish<'_> {
    pub(super) fn roots(&mut self) -> Vec<Root> {
        let account = self.account;
        let mut merged: BTreeMap<Called, EndSums> = BTreeMap::new();
        for (end, sums) in account.ends.iter() {
            let Some(called) = self.called.get(&end) else { continue };
            merged.entry(called.clone()).or_default().merge(sums);
        }
        // what is waited for on the way to another end
        let mut through: HashMap<&Called, u64> = HashMap::new();
        for ((_, direct), ns) in &account.through {
            if let Some(called) = self.called.get(direct) {
                *through.entry(called).or_default() += ns;
            }
        }
        let mut roots: Vec<Root> = merged
            .into_iter()
            .filter(|(called, sums)| {
                let is_lock = is_held(called.kind, called.object.as_ref()) && called.class != "condition";
                // a lock that is only waited for because of another is listed there
                let through = through.get(called).copied().unwrap_or(0) > sums.wait_ns / 2;
                let waits = is_lock && !through || called.kind == RootKind::Throttled;
                sums.idle >= 1.0 || (waits && sums.wait_ns > 0)
            })
            .map(|(called, sums)| root(called, &sums))
            .collect();
        let key = |r: &Root| (r.idle_ns + r.spin_ns as f64, r.wait_ns as f64);
        roots.sort_by(|a, b| {
            let (a, b) = ((a.latent, key(a)), (b.latent, key(b)));
            let by_cost = if a.0 { b.1.1.total_cmp(&a.1.1) } else { b.1.0.total_cmp(&a.1.0) };
            a.0.cmp(&b.0).then(by_cost)
        });
        roots.truncate(ROOTS);
        let index: HashMap<Called, usize> = roots
            .iter()
            .enumerate()
            .map(|(i, r)| (Called { kind: r.kind, class: r.class.clone(), object: r.object.clone() }, i))
            .collect();
        self.paths(&mut roots, &index);
        self.holders(&mut roots, &index);
        self.through(&mut roots, &index);
        roots
    }

    fn index(&self, index: &HashMap<Called, usize>, end: End) -> Option<usize> {
        index.get(self.called.get(&end)?).copied()
    }

    pub(super) fn stack(&mut self, stack: StackId) -> &KernelStack {
        let tables = self.tables;
        self.stacks.entry(stack).or_insert_with(|| KernelStack::of(tables, stack))
    }

    fn path(&self, stack: StackId, ns: u64, in_scope: bool) -> Path {
        let names: Vec<&str> = self.tables.stack_names(stack).collect();
        let awake = names.iter().position(|n| !is_sleeping(n)).unwrap_or(0);
        let entry = entry_of(names.iter().copied());
        let stack = names[awake..].iter().map(|n| plain(n).to_owned()).collect();
        Path { stack, ns, entry, in_scope }
    }

    fn paths(&mut self, roots: &mut [Root], index: &HashMap<Called, usize>) {
        let mut sums: HashMap<(usize, bool, Vec<String>), Path> = HashMap::new();
        for ((end, stack, in_scope), ns) in &self.account.paths {
            let Some(i) = self.index(index, *end) else { continue };
            let path = self.path(*stack, *ns, *in_scope);
            sums.entry((i, *in_scope, path.stack.clone()))
                .and_modify(|p| p.ns = p.ns.saturating_add(*ns))
                .or_insert(path);
        }
        for ((i, ..), path) in sums {
            roots[i].paths.push(path);
        }
        for root in roots {
            sort_paths(&mut root.paths, PATHS);
        }
    }

    fn holders(&mut self, roots: &mut [Root], index: &HashMap<Called, usize>) {
        let mut sums: HashMap<(usize, String), Holder> = HashMap::new();
        for ((end, task, work), ns) in &self.account.holders {
            let Some(i) = self.index(index, *end).filter(|_| !self.is_own(*task)) else { continue };
            let name = self.holder_name(*task, work.map(|w| self.tables.symbol_name(w)));
            let in_scope = self.tables.task(*task).is_some_and(|t| self.engine.scope.contains(t));
            let holder =
                sums.entry((i, name.clone())).or_insert(Holder { name, in_scope, ..Holder::default() });
            holder.ns += ns;
        }
        let mut stacks: HashMap<(usize, String, StackId), u64> = HashMap::new();
        for ((lock, task, stack), ns) in &self.account.under {
            let Some(i) = self.index(index, End::Lock(*lock)) else { continue };
            // who spins for a lock does not work under it
            if self.stack(*stack).spins {
                continue;
            }
            // the work item of a sample is in its stack
            let names: Vec<&str> = self.tables.stack_names(*stack).collect();
            let below = names.iter().position(|n| plain(n) == "process_one_work");
            let work = below.and_then(|at| names.get(at.checked_sub(1)?)).copied();
            let name = self.holder_name(*task, work);
            let sum = stacks.entry((i, name, *stack)).or_default();
            *sum = sum.saturating_add(*ns);
        }
        for ((i, name, stack), ns) in stacks {
            let path = self.path(stack, ns, false);
            if let Some(holder) = sums.get_mut(&(i, name)) {
                holder.stacks.push(path);
            }
        }
        for ((i, _), mut holder) in sums {
            let in_scope = holder.in_scope;
            holder.stacks.iter_mut().for_each(|s| s.in_scope = in_scope);
            sort_paths(&mut holder.stacks, STACKS_OF_HOLDER);
            roots[i].holders.push(holder);
        }
        for root in roots {
            root.holders.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.name.cmp(&b.name)));
            root.holders.truncate(HOLDERS);
        }
    }

    fn through(&self, roots: &mut [Root], index: &HashMap<Called, usize>) {
        let mut sums: BTreeMap<(usize, Called), u64> = BTreeMap::new();
        for ((end, direct), ns) in &self.account.through {
            let (Some(i), Some(called)) = (self.index(index, *end), self.called.get(direct)) else {
                continue;
            };
            *sums.entry((i, called.clone())).or_default() += ns;
        }
        for ((i, called), wait_ns) in sums {
            let Called { kind, class, object } = called;
            roots[i].through.push(Through { kind, class, object, wait_ns });
        }
        for root in roots {
            root.through.sort_by_key(|t| std::cmp::Reverse(t.wait_ns));
            root.through.truncate(THROUGH);
        }
    }
}

/// Whether it is a thing that somebody or something has meanwhile: a lock, or a device that is known.
fn is_held(kind: RootKind, object: Option<&String>) -> bool {
    matches!(kind, RootKind::Lock(_)) || kind == RootKind::Io && object.is_some()
}

fn root(called: Called, sums: &EndSums) -> Root {
    let Called { kind, class, object } = called;
    let parts = &sums.parts;
    let is_lock = is_held(kind, object.as_ref());
    Root {
        kind,
        class,
        object,
        idle_ns: sums.idle,
        waits: sums.waits,
        wait_ns: sums.wait_ns,
        spin_ns: sums.spin_ns,
        spin_sampled_ns: sums.spin_samples_ns,
        elsewhere_ns: sums.elsewhere_ns,
        reads: sums.reads,
        writes: sums.writes,
        split: Split {
            holder_running_ns: parts.running,
            holder_blocked_ns: parts.blocked,
            holder_runnable_ns: parts.runnable,
            hand_off_cpu_idle_ns: parts.hand_off_idle,
            hand_off_cpu_busy_ns: parts.hand_off_busy,
            hand_off_other_ns: parts.hand_off_other,
            unknown_ns: parts.unknown,
        },
        latent: is_lock && sums.idle < LATENT * sums.wait_ns as f64,
        paths: Vec::new(),
        holders: Vec::new(),
        through: Vec::new(),
        when: sums.first.map(|first| (first, sums.last)),
    }
}

impl EndSums {
    fn merge(&mut self, other: &EndSums) {
        self.idle += other.idle;
        self.waits += other.waits;
        self.wait_ns += other.wait_ns;
        self.parts.merge(&other.parts);
        self.spin_ns += other.spin_ns;
        self.elsewhere_ns += other.elsewhere_ns;
        self.spin_samples_ns = self.spin_samples_ns.saturating_add(other.spin_samples_ns);
        self.first = match (self.first, other.first) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.last = self.last.max(other.last);
        self.reads += other.reads;
        self.writes += other.writes;
    }
}

fn sort_paths(paths: &mut Vec<Path>, most: usize) {
    paths.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.stack.cmp(&b.stack)));
    paths.truncate(most);
}
