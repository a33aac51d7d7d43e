//! From the sums to the explanation.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rustc_hash::FxHashMap;
use trace::{LockKind, StackId, Tables, TaskId, TaskKind, TimeNs};

use crate::account::{Account, End, EndSums, SampleSums, Stacks, Weight};
use crate::classify::{Class, KernelStack, entry_of, plain};
use crate::engine::Engine;
use crate::explanation::{
    Budget, Chain, ChainEdge, ChainNode, Explanation, Facts, Holder, NamedTime, Path, Root, RootKind,
    SampledTime, Serial, Split, TaskTimes, Through, WeightedStack,
};

/// How many of a kind are kept in lists.
const PATHS: usize = 12;
const HOLDERS: usize = 12;
const STACKS_OF_HOLDER: usize = 4;
const THROUGH: usize = 8;
const SERIAL: usize = 50;
const ROOTS: usize = 50;
const NODES: usize = 40;
const FLAMES: usize = 5000;
/// A lock is latent when less than this part of its waits cost idle time.
const LATENT: f64 = 0.02;

/// What a root is called: ends that are called the same are the same root.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Called {
    kind: RootKind,
    class: String,
    object: Option<String>,
}

struct Finish<'a> {
    account: &'a Account,
    tables: &'a Tables,
    engine: &'a Engine,
    called: HashMap<End, Called>,
    stacks: HashMap<StackId, KernelStack>,
    /// Control groups that were throttled, most first.
    throttled: Vec<(String, u64)>,
}

pub(crate) fn finish(engine: &Engine, tables: &Tables) -> Explanation {
    let account = &engine.account;
    let mut throttled: Vec<(String, u64)> = account
        .throttled_ns
        .iter()
        .map(|(group, (first, last))| (tables.cgroup_path(*group).to_owned(), last - first))
        .filter(|(_, ns)| *ns > 0)
        .collect();
    throttled.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut finish =
        Finish { account, tables, engine, called: HashMap::new(), stacks: HashMap::new(), throttled };
    finish.name_ends();
    finish.explanation()
}

impl Finish<'_> {
    fn explanation(&mut self) -> Explanation {
        let account = self.account;
        let times = &account.times;
        let (serial, nothing_to_run_ns) = self.serial();
        Explanation {
            window_ns: account.window_ns,
            windows: account.windows,
            allowed_cpus: self.engine.allowed_cpus() as u32,
            budget: self.budget(),
            times: TaskTimes {
                running_ns: times.running,
                in_lock_on_cpu_ns: times.lock_on_cpu,
                runnable_ns: times.runnable,
                lock_ns: times.lock,
                io_ns: times.io,
                kernel_ns: times.kernel,
                futex_ns: times.futex,
                peer_ns: times.peer,
                idle_ns: times.idle,
            },
            roots: self.roots(),
            serial,
            nothing_to_run_ns,
            chain: self.chain(),
            off_cpu: self.flames(&account.off_cpu),
            on_cpu: self.flames(&account.on_cpu),
            facts: self.facts(),
        }
    }

    /// Finds out what each end is called.
    fn name_ends(&mut self) {
        let account = self.account;
        let ends = account.ends.keys().copied();
        let through = account.through.keys().flat_map(|(a, b)| [*a, *b]);
        let all: Vec<End> = ends
            .chain(through)
            .chain(account.waiters.keys().map(|(_, end)| *end))
            .chain(account.holders.keys().map(|(end, ..)| *end))
            .chain(account.paths.keys().map(|(end, ..)| *end))
            .collect();
        for end in all {
            if !self.called.contains_key(&end) {
                let called = self.name(end);
                self.called.insert(end, called);
            }
        }
    }

    fn name(&mut self, end: End) -> Called {
        let plain = |kind, class: &str| Called { kind, class: class.to_owned(), object: None };
        match end {
            End::Lock(id) => {
                let lock = self.tables.lock(id).cloned().unwrap_or_default();
                let class = lock.class.map(|c| self.tables.str(c).to_owned()).unwrap_or_default();
                let object = lock.object.map(|o| self.tables.str(o).to_owned());
                let object = object.or_else(|| {
                    let process = lock.process?;
                    let tgid = self.tables.task(process)?.tgid;
                    Some(format!("{} ({tgid})", self.tables.task_name(process)))
                });
                let kind = match lock.kind {
                    LockKind::Io => RootKind::Io,
                    LockKind::Pipe => RootKind::Pipe,
                    kind => RootKind::Lock(kind),
                };
                Called { kind, class, object }
            }
            End::Wait(Class::Io) => Called { class: self.waiting_function(end), ..plain(RootKind::Io, "") },
            End::Wait(Class::Kernel | Class::Lock) => {
                Called { class: self.waiting_function(end), ..plain(RootKind::Kernel, "") }
            }
            End::Wait(Class::Futex) => plain(RootKind::Futex, ""),
            End::Wait(Class::Peer) => plain(RootKind::Pipe, ""),
            End::Wait(Class::Child) => plain(RootKind::Child, ""),
            End::Wait(Class::Sleep | Class::Events | Class::Stopped) => plain(RootKind::Sleep, ""),
            End::WakeUp => plain(RootKind::WakeUp, ""),
            End::HeldBack { group, seen } => {
                let path = group.map(|g| self.tables.cgroup_path(g));
                let used_up = path.and_then(|path| self.used_up(path));
                if !seen && used_up.is_none() {
                    return plain(RootKind::WakeUp, "");
                }
                let object = used_up.or(path).map(|group| format!("control group {group}"));
                Called { object, ..plain(RootKind::Throttled, "") }
            }
            End::Unknown => plain(RootKind::Other, ""),
        }
    }

    /// The group whose quota was used up meanwhile: that one, or else the nearest above it.
    fn used_up(&self, path: &str) -> Option<&str> {
        let above = |group: &str| {
            path.strip_prefix(group.trim_end_matches('/'))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let groups = self.throttled.iter().map(|(group, _)| group.as_str());
        groups.filter(|group| above(group)).max_by_key(|group| group.len())
    }

    /// How long the groups that held tasks of the workload back were throttled, as their counters say.
    fn throttled_ns(&self) -> u64 {
        let groups: BTreeSet<&str> = self
            .account
            .ends
            .keys()
            .filter_map(|end| match end {
                End::HeldBack { group, .. } => self.used_up(self.tables.cgroup_path((*group)?)),
                _ => None,
            })
            .collect();
        let throttled = self.throttled.iter().filter(|(group, _)| groups.contains(group.as_str()));
        throttled.fold(0, |sum, (_, ns)| ns.saturating_add(sum))
    }

    /// The function that waits says best for what, if it is one for most of the time.
    fn waiting_function(&self, end: End) -> String {
        let mut by_function: BTreeMap<&str, u64> = BTreeMap::new();
        for ((of, stack, in_scope), ns) in &self.account.paths {
            if *of == end && *in_scope {
                let function = self.tables.stack_names(*stack).find(|n| !is_sleeping(n));
                let sum = by_function.entry(function.map_or("", plain)).or_default();
                *sum = sum.saturating_add(*ns);
            }
        }
        let total = by_function.values().fold(0u64, |a, ns| a.saturating_add(*ns));
        let top = by_function.into_iter().max_by_key(|(_, ns)| *ns);
        top.filter(|(_, ns)| *ns > total / 2).map_or(String::new(), |(name, _)| name.to_owned())
    }

    fn roots(&mut self) -> Vec<Root> {
        let account = self.account;
        let mut merged: BTreeMap<Called, EndSums> = BTreeMap::new();
        for (end, sums) in &account.ends {
            let Some(called) = self.called.get(end) else { continue };
            merged.entry(called.clone()).or_default().merge(sums);
        }
        let mut roots: Vec<Root> = merged
            .into_iter()
            .filter(|(called, sums)| {
                let is_lock = matches!(called.kind, RootKind::Lock(_)) && called.class != "condition";
                // a lock that is only waited for because of another is listed there
                let through = sums.parts.blocked as f64 > sums.wait_ns as f64 / 2.0;
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

    fn stack(&mut self, stack: StackId) -> &KernelStack {
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
            let Some(i) = self.index(index, *end) else { continue };
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

    /// The name of a task, for kernel workers that of their work.
    fn holder_name(&self, task: TaskId, work: Option<&str>) -> String {
        let name = self.tables.task_name(task);
        match work {
            Some(work) => format!("kworker {}", plain(work)),
            None => family(name),
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

    /// What ran alone, and the idle time beyond everything.
    fn serial(&self) -> (Vec<Serial>, f64) {
        let mut nothing = self.account.nothing + self.engine.clock.nothing;
        let mut by_command: HashMap<String, Serial> = HashMap::new();
        for (task, sums) in &self.account.serial {
            let Some(row) = self.tables.task(*task) else { continue };
            let command = match row.command {
                Some(command) => self.tables.str(command).to_owned(),
                None => self.tables.task_name(*task).to_owned(),
            };
            let serial = by_command.entry(command.clone()).or_insert(Serial { command, ..Serial::default() });
            serial.idle_ns += sums.idle;
            serial.tasks += 1;
            if let Some(first) = sums.first {
                let (from, to) = serial.when.unwrap_or((first, sums.last));
                serial.when = Some((from.min(first), to.max(sums.last)));
            }
        }
        let mut serial: Vec<Serial> = by_command.into_values().filter(|s| s.idle_ns > 0.0).collect();
        let total: f64 = serial.iter().map(|s| s.idle_ns).sum();
        if total > 0.0 {
            // tasks that waited for others were in the way of what ran meanwhile; it was not said who that was
            let more = 1.0 + self.account.beside / total;
            serial.iter_mut().for_each(|s| s.idle_ns *= more);
        } else {
            nothing += self.account.beside;
        }
        serial.sort_by(|a, b| b.idle_ns.total_cmp(&a.idle_ns).then_with(|| a.command.cmp(&b.command)));
        if serial.len() > SERIAL {
            let rest = serial.split_off(SERIAL - 1);
            let tasks = rest.iter().map(|s| s.tasks).sum();
            let idle_ns = rest.iter().map(|s| s.idle_ns).sum();
            let command = format!("{} other commands", rest.len());
            serial.push(Serial { command, idle_ns, tasks, when: None });
        }
        (serial, nothing.max(0.0))
    }

    fn budget(&mut self) -> Budget {
        let account = self.account;
        let capacity = account.window_ns as f64 * self.engine.allowed_cpus() as f64;
        let known = self.engine.clock.idle + (account.scope_ns + account.others_ns) as f64;
        let mut system = SampleSums::default();
        let mut spin = SampleSums::default();
        let (mut by_call, mut by_group, mut spin_by) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (stack, sums) in &account.kernel {
            let none = KernelStack::default();
            let kernel = stack.map_or(&none, |s| self.stack(s));
            let name = |of: &Option<String>| of.clone().unwrap_or_else(|| "other".to_owned());
            if kernel.spins {
                spin.merge(sums);
                *spin_by.entry(name(&kernel.spins_for)).or_default() += sums.ns as f64;
            } else {
                system.merge(sums);
                *by_call.entry(name(&kernel.entry)).or_default() += sums.ns as f64;
                *by_group.entry(name(&kernel.group)).or_default() += sums.ns as f64;
            }
        }
        let sampled = |sums: &SampleSums| account.sampled.then(|| sampled(sums));
        Budget {
            idle_ns: self.engine.clock.idle,
            scope_ns: account.scope_ns,
            others_ns: account.others_ns,
            unknown_ns: (capacity - known).max(0.0),
            elsewhere_ns: account.scope_elsewhere_ns,
            user: sampled(&account.user),
            system: sampled(&system),
            spin: sampled(&spin),
            irq: sampled(&account.interrupt),
            irq_exact_ns: account.irq_events.then_some(account.irq_ns),
            system_by_call: named(by_call),
            system_by_group: named(by_group),
            spin_by: named(spin_by),
        }
    }

    fn chain(&self) -> Chain {
        let mut chain = Chain::default();
        let mut tasks: HashMap<String, u32> = HashMap::new();
        let mut ends: HashMap<Called, u32> = HashMap::new();
        let mut edges: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        let mut waiters: Vec<_> = self.account.waiters.iter().filter(|(_, ns)| **ns > 0).collect();
        waiters.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let mut seen_tasks: HashMap<u32, std::collections::HashSet<TaskId>> = HashMap::new();
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
        let mut holders: Vec<_> = self.account.holders.iter().filter(|(_, ns)| **ns > 0).collect();
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

    fn family_of(&self, task: TaskId) -> String {
        family(self.tables.task_name(task))
    }

    fn flames(&self, sums: &FxHashMap<Stacks, Weight>) -> Vec<WeightedStack> {
        let mut merged: FxHashMap<_, Weight> = FxHashMap::default();
        for ((task, kernel, user), (ns, count)) in sums {
            let Some(row) = self.tables.task(*task) else { continue };
            if matches!(row.kind, TaskKind::Idle(_)) || self.engine.scope.leaves_out(row) {
                continue;
            }
            let in_scope = self.engine.scope.contains(row);
            let sums = merged.entry((self.family_of(*task), in_scope, *kernel, *user)).or_default();
            sums.0 = sums.0.saturating_add(*ns);
            sums.1 += count;
        }
        let mut merged: Vec<_> = merged.into_iter().collect();
        merged.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        merged.truncate(FLAMES);
        let names = |stack: Option<StackId>| {
            stack.map(|s| self.tables.stack_names(s).map(str::to_owned).collect()).unwrap_or_default()
        };
        merged
            .into_iter()
            .map(|((name, in_scope, kernel, user), (ns, count))| WeightedStack {
                name,
                in_scope,
                kernel: names(kernel),
                user: names(user),
                ns,
                count,
            })
            .collect()
    }

    fn facts(&self) -> Facts {
        let account = self.account;
        let summary = self.tables.summary();
        let name = |task: &TaskId| self.tables.task_name(*task).to_owned();
        Facts {
            events: account.events,
            lost_events: account.lost.max(summary.lost_events),
            lost_ns: account.lost_ns,
            lost_stacks: summary.lost_stacks,
            truncated_names: summary.truncated_names,
            cycles_dropped: account.cycles,
            unpaired: account.unpaired,
            exits: account.exits,
            failed: account.failed.iter().map(|(task, status)| (name(task), *status)).collect(),
            throttled_ns: self.throttled_ns(),
            start: account.first.max(self.engine.scope.from).unwrap_or(TimeNs(0)),
        }
    }
}

fn root(called: Called, sums: &EndSums) -> Root {
    let Called { kind, class, object } = called;
    let parts = &sums.parts;
    let is_lock = matches!(kind, RootKind::Lock(_));
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

/// A 95 % interval for a sum of samples that come as they like.
fn sampled(sums: &SampleSums) -> SampledTime {
    SampledTime { ns: sums.ns as f64, margin_ns: 1.96 * sums.squares.sqrt(), samples: sums.count }
}

fn named(sums: BTreeMap<String, f64>) -> Vec<NamedTime> {
    let mut named: Vec<_> = sums.into_iter().map(|(name, ns)| NamedTime { name, ns }).collect();
    named.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    named
}

fn sort_paths(paths: &mut Vec<Path>, most: usize) {
    paths.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.stack.cmp(&b.stack)));
    paths.truncate(most);
}

/// Whether a function belongs to going to sleep, whatever for.
fn is_sleeping(name: &str) -> bool {
    matches!(
        plain(name),
        "finish_task_switch"
            | "__schedule"
            | "schedule"
            | "schedule_timeout"
            | "schedule_preempt_disabled"
            | "io_schedule"
            | "io_schedule_timeout"
            | "schedule_hrtimeout_range"
            | "schedule_hrtimeout_range_clock"
            | "preempt_schedule_common"
            | "bit_wait"
            | "bit_wait_io"
            | "context_switch"
    )
}

/// The name of a task without what only numbers it: all kernel workers of a kind are one.
fn family(name: &str) -> String {
    let Some((kind, rest)) = name.split_once('/') else { return name.to_owned() };
    if !rest.starts_with(|c: char| c.is_ascii_digit() || c == 'u') {
        return name.to_owned();
    }
    match rest.find(['-', '+']) {
        Some(at) => format!("{kind} {}", &rest[at + 1..]),
        None => kind.to_owned(),
    }
}

/// Whether waits for it belong into the graph.
fn shown(kind: RootKind) -> bool {
    !matches!(kind, RootKind::Child | RootKind::Sleep | RootKind::WakeUp | RootKind::Other)
}

fn task_node(chain: &mut Chain, known: &mut HashMap<String, u32>, name: &str) -> Option<u32> {
    if let Some(node) = known.get(name) {
        return Some(*node);
    }
    if chain.nodes.len() >= NODES {
        return None;
    }
    let node = chain.nodes.len() as u32;
    chain.nodes.push(ChainNode::Tasks { name: name.to_owned(), count: 1 });
    known.insert(name.to_owned(), node);
    Some(node)
}

fn end_node(chain: &mut Chain, known: &mut HashMap<Called, u32>, called: &Called) -> Option<u32> {
    if let Some(node) = known.get(called) {
        return Some(*node);
    }
    if chain.nodes.len() >= NODES {
        return None;
    }
    let node = chain.nodes.len() as u32;
    let Called { kind, class, object } = called.clone();
    chain.nodes.push(ChainNode::End { kind, class, object });
    known.insert(called.clone(), node);
    Some(node)
}
