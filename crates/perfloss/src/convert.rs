//! From an explanation to what a result shows. The only place that knows both.

use explain::{ChainNode, Explanation, Path, RootKind, Split};
use result::{
    Budget, Capture, ChainEdge, ChainNodeKind, Chains, Holder, Lock, NamedCost, PartSource, Root, Stack,
    Stacks, WaitThrough,
};
use trace::{LockKind, TimeNs};

/// Roots whose idle time is below that part of all of it are left out, unless they are latent locks or devices.
const LEAST_SHARE: f64 = 0.002;
/// Latent locks and devices whose waits are below that part of the capacity are left out: of a recording, which lists everything it has, and of a run.
const LEAST_WAIT: (f64, f64) = (0.01, 0.0002);
/// How many roots a result keeps.
const ROOTS: usize = 30;
/// A root whose time is spread over more than that part of the window needs no "when".
const SPREAD: f64 = 0.6;

/// What the explained windows are compared with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Basis {
    /// Operations in the captured windows; none for a recording.
    pub operations: Option<f64>,
    /// Idle time of an operation without capture, CPU-us: what the captured shares are shares of.
    pub idle_us_per_op: Option<f64>,
    /// Throughput with capture over throughput without.
    pub throughput_ratio: Option<f64>,
    /// Idle share of the allowed CPUs without capture, 0 to 1.
    pub idle_share: Option<f64>,
}

impl Basis {
    /// Nanoseconds of the captured windows as microseconds per operation.
    fn per_op(&self, ns: f64) -> Option<f64> {
        self.operations.filter(|ops| *ops > 0.0).map(|ops| ns / 1e3 / ops)
    }

    /// Whether capture changed what it watched too much for the shares to be trusted.
    pub fn disturbed(&self, e: &Explanation) -> bool {
        self.throughput_ratio.is_some_and(|r| r < 0.9)
            || self.idle_share.is_some_and(|idle| (idle - e.idle_share()).abs() > 0.05)
    }
}

fn seconds(ns: f64) -> f64 {
    ns / 1e9
}

/// The roots, those that cost most first.
pub fn roots(e: &Explanation, basis: &Basis) -> Vec<Root> {
    let disturbed = basis.disturbed(e);
    let finish = |mut root: Root, idle_ns: f64| {
        let share = e.share_of_idle(idle_ns);
        root.share_of_idle = share;
        root.idle_us_per_op = share.zip(basis.idle_us_per_op).map(|(share, idle)| share * idle);
        if basis.operations.is_some() && e.budget.idle_ns <= 0.0 {
            root.idle_us_per_op = Some(0.0);
        }
        root.idle_cpu_s = basis.operations.is_none().then(|| seconds(idle_ns));
        root.disturbed = disturbed;
        (root, idle_ns)
    };
    let mut all: Vec<(Root, f64)> = e.roots.iter().map(|r| finish(root(e, r, basis), r.idle_ns)).collect();
    for serial in &e.serial {
        let lock = Lock { kind: result::RootKind::Serial, class: serial.command.clone(), object: None };
        let when = when(e, serial.when);
        all.push(finish(Root { lock, when, ..Root::default() }, serial.idle_ns));
    }
    if e.nothing_to_run_ns > 0.0 {
        let lock = Lock { kind: result::RootKind::NothingToRun, ..Lock::default() };
        all.push(finish(Root { lock, ..Root::default() }, e.nothing_to_run_ns));
    }
    let least = if basis.operations.is_none() { LEAST_WAIT.0 } else { LEAST_WAIT.1 };
    let worth = |root: &Root| root.wait_s.unwrap_or(0.0) > least * seconds(e.capacity_ns());
    let mut all: Vec<(Root, f64)> = all
        .into_iter()
        .filter(|(root, idle)| match root.latent {
            true => worth(root),
            // A long wait is told even where hardly any of it fell into idle time.
            false => {
                let told = match root.lock.kind {
                    result::RootKind::Throttled => true,
                    result::RootKind::Io => root.lock.object.is_some(),
                    kind => kind.is_lock(),
                };
                *idle > LEAST_SHARE * e.budget.idle_ns.max(1.0) || told && worth(root)
            }
        })
        .collect();
    // stable: within the latent ones the order of the explanation stays
    all.sort_by(|(a, a_idle), (b, b_idle)| {
        a.latent
            .cmp(&b.latent)
            .then_with(|| if a.latent { std::cmp::Ordering::Equal } else { b_idle.total_cmp(a_idle) })
    });
    all.truncate(ROOTS);
    all.into_iter().map(|(root, _)| root).collect()
}

fn root(e: &Explanation, r: &explain::Root, basis: &Basis) -> Root {
    let reads_only = r.reads > 0 && r.writes == 0;
    let writes_only = r.writes > 0 && r.reads == 0;
    let is_lock = matches!(r.kind, RootKind::Lock(_));
    let paths_ns: u64 = r.paths.iter().map(|p| p.ns).sum();
    let sampled = e.budget.spin.is_some();
    Root {
        lock: Lock {
            kind: kind(r.kind, reads_only, writes_only),
            class: r.class.clone(),
            object: r.object.clone(),
        },
        wait_us_per_op: basis.per_op(r.wait_ns as f64),
        wait_s: Some(seconds(r.wait_ns as f64)),
        waits: Some(r.waits),
        split: is_lock.then(|| split(&r.split)),
        spin_us_per_op: if sampled { basis.per_op(r.spin_sampled_ns as f64) } else { None },
        latent: r.latent,
        paths: r.paths.iter().map(|p| path(p, paths_ns)).collect(),
        holders: r
            .holders
            .iter()
            .map(|h| {
                let stacks_ns: u64 = h.stacks.iter().map(|s| s.ns).sum();
                Holder {
                    comm: h.name.clone(),
                    share: part(h.ns, r.wait_ns),
                    of_workload: Some(h.in_scope),
                    stacks: h.stacks.iter().map(|s| path(s, stacks_ns)).collect(),
                }
            })
            .collect(),
        waits_through: r
            .through
            .iter()
            .filter(|t| matches!(t.kind, RootKind::Lock(_)))
            .map(|t| WaitThrough {
                kind: kind(t.kind, false, false),
                class: if t.class.is_empty() {
                    kind(t.kind, false, false).words().to_owned()
                } else {
                    t.class.clone()
                },
                object: t.object.clone(),
                wait_us_per_op: basis.per_op(t.wait_ns as f64),
                wait_s: Some(seconds(t.wait_ns as f64)),
            })
            .collect(),
        when: when(e, r.when),
        ..Root::default()
    }
}

fn part(ns: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { (ns as f64 / of as f64).min(1.0) }
}

fn path(p: &Path, of: u64) -> result::Path {
    result::Path { stack: p.stack.clone(), share: part(p.ns, of), entry: p.entry.clone() }
}

fn split(s: &Split) -> result::Split {
    let of = s.total_ns();
    let busy = part(s.hand_off_cpu_busy_ns, of);
    let idle = part(s.hand_off_cpu_idle_ns, of);
    result::Split {
        holder_running: part(s.holder_running_ns, of),
        holder_blocked: part(s.holder_blocked_ns, of),
        holder_runnable: part(s.holder_runnable_ns, of),
        hand_off: idle + busy,
        hand_off_cpu_idle: idle,
        hand_off_cpu_busy: busy,
        // a hand-off to a task that was overtaken, too: on which CPU it would have run is not known
        unknown: part(s.unknown_ns + s.hand_off_other_ns, of),
    }
}

fn kind(kind: RootKind, reads_only: bool, writes_only: bool) -> result::RootKind {
    use result::RootKind as Kind;
    match kind {
        RootKind::Lock(lock) => match lock {
            LockKind::Semaphore => Kind::Semaphore,
            LockKind::Mutex => Kind::Mutex,
            LockKind::Rwsem if reads_only => Kind::RwsemRead,
            LockKind::Rwsem if writes_only => Kind::RwsemWrite,
            LockKind::Rwsem => Kind::Rwsem,
            LockKind::Spinlock => Kind::Spinlock,
            LockKind::Rwlock => Kind::Rwlock,
            LockKind::PercpuRwsem => Kind::PercpuRwsem,
            LockKind::RtMutex => Kind::RtMutex,
            LockKind::Futex => Kind::Futex,
            LockKind::Io => Kind::Io,
            LockKind::Pipe => Kind::Pipe,
            LockKind::FileLock | LockKind::Other => Kind::Lock,
        },
        RootKind::Io => Kind::Io,
        RootKind::Futex => Kind::Futex,
        RootKind::Pipe => Kind::Pipe,
        RootKind::Child => Kind::Child,
        RootKind::Sleep | RootKind::Timed => Kind::Sleep,
        RootKind::WakeUp => Kind::WakeUp,
        RootKind::Throttled => Kind::Throttled,
        RootKind::Kernel | RootKind::Other => Kind::Other,
    }
}

/// `at 34.2–40.3 s`, unless it is spread over the window.
fn when(e: &Explanation, stretch: Option<(TimeNs, TimeNs)>) -> Option<String> {
    let (from, to) = stretch?;
    let length = to.since(from);
    if length as f64 > SPREAD * e.window_ns as f64 {
        return None;
    }
    let at = |t: TimeNs| t.since(e.facts.start) as f64 / 1e9;
    let (from, to) = (at(from), at(to));
    let digits = if e.window_ns < 5_000_000_000 { 2 } else { 1 };
    Some(format!("at {from:.digits$}–{to:.digits$} s"))
}

/// Puts what only capture can tell into the budget of a point: spinning, interrupts and the kernel's time by system call.
/// User and system time stay as counted without capture.
pub fn add_budget(budget: &mut Budget, e: &Explanation, basis: &Basis) {
    let b = &e.budget;
    budget.spin = b.spin.and_then(|s| basis.per_op(s.ns));
    if budget.spin.is_some() {
        budget.sources.insert("spin".to_owned(), PartSource::Samples);
        // the tick counts spinning as system time: what is shown apart is not shown twice
        if let (Some(system), Some(spin)) = (budget.system, budget.spin) {
            budget.system = Some((system - spin).max(0.0));
        }
    }
    let named = |times: &[explain::NamedTime]| -> Vec<NamedCost> {
        let cost =
            |t: &explain::NamedTime| Some(NamedCost { name: t.name.clone(), us_per_op: basis.per_op(t.ns)? });
        times.iter().filter_map(cost).collect()
    };
    budget.system_by = named(&b.system_by_call);
    budget.system_by_group = named(&b.system_by_group);
    budget.spin_by = named(&b.spin_by);
}

/// What is known of the captured windows.
pub fn capture(e: &Explanation, basis: &Basis, coverage: Option<f64>, trace: Option<String>) -> Capture {
    Capture {
        events: e.facts.events,
        lost_events: e.facts.lost_events,
        lost_stacks: e.facts.lost_stacks,
        throughput_ratio: basis.throughput_ratio,
        window_s: seconds(e.window_ns as f64),
        operations: basis.operations,
        coverage,
        idle_share: (e.capacity_ns() > 0.0).then(|| e.idle_share()),
        trace,
    }
}

/// Who waits for whom.
pub fn chains(e: &Explanation, basis: &Basis) -> Chains {
    let roots: Vec<_> = e.roots.iter().filter(|r| r.idle_ns > 0.0).collect();
    let is_root = |node: &ChainNode| match node {
        ChainNode::End { kind, class, object } => {
            roots.iter().any(|r| r.kind == *kind && r.class == *class && r.object == *object)
        }
        ChainNode::Tasks { .. } => false,
    };
    let nodes = e
        .chain
        .nodes
        .iter()
        .map(|node| match node {
            ChainNode::Tasks { name, count } => result::ChainNode {
                kind: ChainNodeKind::Tasks,
                label: name.clone(),
                detail: (*count > 1).then(|| format!("{count} tasks")),
                lock_kind: None,
            },
            ChainNode::End { kind: end, class, object } => result::ChainNode {
                kind: if is_root(node) { ChainNodeKind::Root } else { ChainNodeKind::Lock },
                label: if class.is_empty() {
                    kind(*end, false, false).words().to_owned()
                } else {
                    class.clone()
                },
                detail: object.clone(),
                lock_kind: Some(kind(*end, false, false)),
            },
        })
        .collect();
    let edges = e
        .chain
        .edges
        .iter()
        .map(|edge| ChainEdge {
            from: edge.from,
            to: edge.to,
            wait_s: seconds(edge.wait_ns as f64),
            us_per_op: basis.per_op(edge.wait_ns as f64),
            ..ChainEdge::default()
        })
        .collect();
    Chains { nodes, edges }
}

/// Stacks with their weights.
pub fn stacks(e: &Explanation, basis: &Basis) -> Stacks {
    let mut frames = Frames::default();
    let off_cpu = e.off_cpu.iter().map(|s| frames.stack(s)).collect();
    let on_cpu = e.on_cpu.iter().map(|s| frames.stack(s)).collect();
    Stacks { frames: frames.names, off_cpu, on_cpu, operations: basis.operations }
}

/// The names of frames, each once.
#[derive(Default)]
struct Frames {
    names: Vec<String>,
    index: std::collections::HashMap<String, u32>,
}

impl Frames {
    fn of(&mut self, names: &[String]) -> Vec<u32> {
        let mut index = |name: &String| {
            *self.index.entry(name.clone()).or_insert_with(|| {
                self.names.push(name.clone());
                self.names.len() as u32 - 1
            })
        };
        names.iter().map(&mut index).collect()
    }

    fn stack(&mut self, s: &explain::WeightedStack) -> Stack {
        Stack {
            comm: s.name.clone(),
            of_workload: Some(s.in_scope),
            kernel: self.of(&s.kernel),
            user: self.of(&s.user),
            us: s.ns as f64 / 1e3,
            count: s.count,
        }
    }
}
