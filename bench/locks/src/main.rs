//! Races the locks crate against std, parking_lot and a plain futex semaphore, and says which bars hold.
//!
//! Usage: `locks-race [--rounds N] [--seconds S] [GROUP…]`; the groups are those of `GROUPS`, or `peers=N` for the peers at N threads only. Rounds are interleaved (all policies once, then in
//! the reverse order, and so on). A ratio is the median of the ratios of neighbours in time: each round's figure over the same round's figure of the other.
//! Exit status 1 if a bar is missed.

use std::process::ExitCode;
use std::time::Duration;

use harness::cpus::Cpus;
use harness::plan::TAINT_SHARE;
use harness::readings::Reading;
use harness::stats::{median, summarize};
use locks::pattern::{Counts, Edge, Pattern, Policy, run, uncontended_ns};

const GROUPS: [&str; 5] = ["uncontended", "spin", "crowd", "long", "peers"];

const RIVALS: [Policy; 2] = [Policy::Std, Policy::ParkingLot];

struct Settings {
    rounds: usize,
    cpus: Vec<u32>,
    window: Duration,
}

/// One window; none if others used more than a twentieth of the CPUs' time meanwhile, or the hypervisor took it.
fn window(policy: Policy, pattern: &Pattern, settings: &Settings) -> Option<Counts> {
    let mut edges = Vec::new();
    let mut read = |edge| {
        edges.push(Reading::take(&settings.cpus, None, edge == Edge::Opens, |_| ()).expect("/proc/stat"))
    };
    let counts = run(pattern, settings.window, || policy.lock(), || policy.lock(), &mut read)
        .unwrap_or_else(|error| panic!("{error}"));
    let all: f64 = (0..settings.cpus.len())
        .map(|cpu| edges[1].cpus[cpu].since(edges[0].cpus[cpu]))
        .map(|spent| spent.user_us + spent.system_us + spent.irq_us + spent.steal_us)
        .sum();
    let capacity = counts.window.as_secs_f64() * settings.cpus.len() as f64;
    (all / 1e6 - counts.cpu.as_secs_f64() <= TAINT_SHARE * capacity).then_some(counts)
}

/// Rounds of each policy, interleaved. A disturbed window is repeated at once.
fn race(policies: &[Policy], pattern: &Pattern, settings: &Settings) -> Vec<Vec<Counts>> {
    let mut all = vec![Vec::new(); policies.len()];
    let most_disturbed = 5 * policies.len() * settings.rounds;
    let mut disturbed = 0;
    for round in 0..settings.rounds {
        let mut order: Vec<usize> = (0..policies.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let counts = loop {
                if let Some(counts) = window(policies[index], pattern, settings) {
                    break counts;
                }
                disturbed += 1;
                assert!(
                    disturbed <= most_disturbed,
                    "this machine is too busy: {disturbed} windows disturbed"
                );
            };
            all[index].push(counts);
        }
    }
    println!("  {disturbed} windows were disturbed by others and repeated");
    all
}

fn of(rounds: &[Counts], f: impl Fn(&Counts) -> f64) -> Vec<f64> {
    rounds.iter().map(f).collect()
}

fn middle(values: &[f64]) -> f64 {
    median(values).unwrap_or(f64::NAN)
}

/// The median of pairs, and its bootstrap interval.
fn ratio(of: &[f64], over: &[f64]) -> (f64, f64, f64) {
    let pairs: Vec<f64> = of.iter().zip(over).map(|(a, b)| a / b).collect();
    summarize(&pairs, 7).map_or((f64::NAN, 0.0, 0.0), |s| (s.median, s.interval.low, s.interval.high))
}

fn table(policies: &[Policy], all: &[Vec<Counts>]) {
    println!(
        "  {:<12} {:>10} {:>6} {:>7} {:>8} {:>9} {:>9} {:>9} {:>7} {:>8}",
        "", "ops/s", "MAD", "idle", "CPU us", "p99.9 us", "max us", "bypass", "even", "hand-off"
    );
    for (policy, rounds) in policies.iter().zip(all) {
        let rate = of(rounds, Counts::operations_per_s);
        let mad = summarize(&rate, 7).map_or(0.0, |s| s.mad / s.median);
        println!(
            "  {:<12} {:>10.0} {:>5.1}% {:>6.1}% {:>8.2} {:>9.1} {:>9.0} {:>9.0} {:>7.2} {:>7.0}%",
            policy.name(),
            middle(&rate),
            100.0 * mad,
            100.0 * middle(&of(rounds, Counts::idle_share)),
            middle(&of(rounds, Counts::cpu_us_per_operation)),
            middle(&of(rounds, |c| c.waits.quantile(0.999) as f64 / 1e3)),
            middle(&of(rounds, |c| c.waits.largest() as f64 / 1e3)),
            middle(&of(rounds, |c| c.longest_bypass as f64)),
            middle(&of(rounds, Counts::evenness)),
            100.0 * middle(&of(rounds, Counts::hand_off_share)),
        );
    }
}

/// Prints a bar and whether it holds: missed if the whole interval lies below it, undecided if only the median does.
fn bar(what: &str, (value, low, high): (f64, f64, f64), at_least: f64, missed: &mut u32) {
    let verdict = match () {
        () if value >= at_least => "holds",
        () if high >= at_least => "undecided",
        () => {
            *missed += 1;
            "MISSED"
        }
    };
    println!("  {verdict:<9} {what}: {value:.3} ({low:.3}–{high:.3}), bar {at_least}");
}

fn uncontended(settings: &Settings, missed: &mut u32) {
    println!("\nTaking and releasing a lock that nobody else wants, ns");
    let names = ["semaphore", "adaptive", "rwsem", "mutex", "std", "parking_lot"];
    let mut all = vec![Vec::new(); names.len()];
    for _ in 0..settings.rounds.max(9) {
        for (index, values) in all.iter_mut().enumerate() {
            values.push(match index {
                0 => uncontended_ns(&locks::Semaphore::new(1)),
                1 => uncontended_ns(&locks::AdaptiveSemaphore::new(1)),
                2 => uncontended_ns(&locks::RwSemaphore::new(())),
                3 => uncontended_ns(&locks::Mutex::new(())),
                4 => uncontended_ns(&std::sync::Mutex::new(())),
                _ => uncontended_ns(&parking_lot::Mutex::new(())),
            });
        }
    }
    for (name, values) in names.iter().zip(&all) {
        println!("  {name:<12} {:>6.2}", middle(values));
    }
    for (index, name) in names.iter().enumerate().take(4) {
        let over = ratio(&all[5], &all[index]);
        bar(&format!("parking_lot / {name} (1.1 x its cost allowed)"), over, 1.0 / 1.1, missed);
    }
}

fn against_semaphore(
    threads: u32,
    hold_ns: u64,
    think_ns: u64,
    at_least: f64,
    settings: &Settings,
    missed: &mut u32,
) {
    println!("\n{threads} threads, hold {} us, think {} us", hold_ns as f64 / 1e3, think_ns as f64 / 1e3);
    let policies = [Policy::Semaphore, Policy::Adaptive];
    let all = race(&policies, &Pattern::plain(threads, hold_ns, think_ns), settings);
    table(&policies, &all);
    let rates: Vec<_> = all.iter().map(|rounds| of(rounds, Counts::operations_per_s)).collect();
    bar("adaptive / semaphore", ratio(&rates[1], &rates[0]), at_least, missed);
}

/// The bar against std and parking_lot: throughput against the better of the two, fairness against the same one.
fn against_peers(threads: u32, settings: &Settings, missed: &mut u32) {
    println!("\n{threads} threads, hold 1 us, think 1 us, all contenders");
    let all = race(Policy::ALL, &Pattern::plain(threads, 1000, 1000), settings);
    table(Policy::ALL, &all);
    let of_policy = |policy: Policy| {
        let place = Policy::ALL.iter().position(|&p| p == policy).expect("it is one of all");
        all[place].as_slice()
    };
    let rates = |policy: Policy| of(of_policy(policy), Counts::operations_per_s);
    let ours = Policy::Adaptive;
    let best = RIVALS
        .into_iter()
        .max_by(|&a, &b| middle(&rates(a)).total_cmp(&middle(&rates(b))))
        .expect("there are two");
    let name = best.name();
    bar(&format!("adaptive / {name}, operations"), ratio(&rates(ours), &rates(best)), 1.0, missed);
    let p999 = |policy: Policy| of(of_policy(policy), |c| c.waits.quantile(0.999) as f64);
    bar(&format!("{name} / adaptive, p99.9 wait"), ratio(&p999(best), &p999(ours)), 1.0, missed);
    let bypass = |policy: Policy| of(of_policy(policy), |c| c.longest_bypass.max(1) as f64);
    bar(&format!("{name} / adaptive, longest bypass"), ratio(&bypass(best), &bypass(ours)), 1.0, missed);
}

fn main() -> ExitCode {
    let cpus = Cpus::allowed().expect("the allowed CPUs").in_order().iter().map(|c| c.cpu).collect();
    let mut settings = Settings { rounds: 11, cpus, window: Duration::from_millis(300) };
    let mut groups = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            arguments
                .next()
                .and_then(|text| text.parse::<f64>().ok())
                .unwrap_or_else(|| panic!("{argument} needs a number"))
        };
        match argument.as_str() {
            "--rounds" => settings.rounds = number() as usize,
            "--seconds" => settings.window = Duration::from_secs_f64(number()),
            group if GROUPS.contains(&group) || group.starts_with("peers=") => groups.push(argument),
            other => panic!("{other}: there are --rounds N, --seconds S, and {}", GROUPS.join(", ")),
        }
    }
    let wanted = |group: &str| groups.is_empty() || groups.iter().any(|g| g == group);
    println!(
        "{} rounds of {:?}, interleaved, {} CPUs",
        settings.rounds,
        settings.window,
        std::thread::available_parallelism().map_or(1, usize::from)
    );
    let mut missed = 0;
    if wanted("uncontended") {
        uncontended(&settings, &mut missed);
    }
    if wanted("spin") {
        against_semaphore(2, 1000, 1000, 3.0, &settings, &mut missed);
    }
    if wanted("crowd") {
        against_semaphore(8, 1000, 1000, 0.95, &settings, &mut missed);
        against_semaphore(64, 1000, 1000, 0.95, &settings, &mut missed);
    }
    if wanted("long") {
        for (threads, think) in [(2, 1000), (2, 1_000_000), (8, 1000), (8, 1_000_000), (64, 1_000_000)] {
            against_semaphore(threads, 1_000_000, think, 0.95, &settings, &mut missed);
        }
    }
    for threads in [2, 8, 64] {
        if wanted("peers") || groups.iter().any(|g| *g == format!("peers={threads}")) {
            against_peers(threads, &settings, &mut missed);
        }
    }
    println!("\n{missed} bars missed");
    ExitCode::from(u8::from(missed > 0))
}
