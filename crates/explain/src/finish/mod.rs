//! From the sums to the explanation.

mod chain;
mod names;
mod roots;

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxHashMap;
use trace::{StackId, Tables, TaskId, TaskKind, TimeNs};

use crate::account::{Account, End, SampleSums, Stacks, Weight};
use crate::classify::KernelStack;
use crate::engine::Engine;
use crate::explanation::{
    Budget, Explanation, Facts, NamedTime, RootKind, SampledTime, Serial, TaskTimes, WeightedStack,
};

/// How many of a kind are kept in lists.
const SERIAL: usize = 50;
const FLAMES: usize = 5000;

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

/// A 95 % interval for a sum of samples that come as they like.
fn sampled(sums: &SampleSums) -> SampledTime {
    SampledTime { ns: sums.ns as f64, margin_ns: 1.96 * sums.squares.sqrt(), samples: sums.count }
}

fn named(sums: BTreeMap<String, f64>) -> Vec<NamedTime> {
    let mut named: Vec<_> = sums.into_iter().map(|(name, ns)| NamedTime { name, ns }).collect();
    named.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    named
}
