//! Races the locks crate against std, parking_lot and a plain futex semaphore, and says which bars hold.
//!
//! Usage: `locks-race [--rounds N] [--seconds S] [GROUP…]`; the groups are those of `GROUPS`. Rounds are interleaved (all contenders once, then in
//! the reverse order, and so on). A ratio is the median of the ratios of neighbours in time: each round's figure over the same round's figure of the other.
//! Exit status 1 if a bar is missed.

use std::process::ExitCode;
use std::time::Duration;

use harness::stats::{median, summarize};
use locks::pattern::{AnyLock, Counts, Lock, Pattern, Policy, run, uncontended_ns};

const GROUPS: [&str; 5] = ["uncontended", "spin", "crowd", "long", "peers"];

#[derive(Clone, Copy, PartialEq)]
enum Contender {
    Ours(Policy),
    ParkingLot,
}

use Contender::{Ours, ParkingLot};

const SEMAPHORE: Contender = Ours(Policy::Semaphore);
const ADAPTIVE: Contender = Ours(Policy::Adaptive);
const STD: Contender = Ours(Policy::Std);
const ALL: [Contender; 7] =
    [SEMAPHORE, ADAPTIVE, Ours(Policy::Rwsem), Ours(Policy::Mutex), Ours(Policy::Futex), STD, ParkingLot];

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Ours(policy) => policy.name(),
            ParkingLot => "parking_lot",
        }
    }

    fn lock(self) -> Raced {
        match self {
            Ours(policy) => Raced::Ours(policy.lock()),
            ParkingLot => Raced::ParkingLot(parking_lot::Mutex::new(())),
        }
    }
}

enum Raced {
    Ours(AnyLock),
    ParkingLot(parking_lot::Mutex<()>),
}

impl Lock for Raced {
    #[inline]
    fn hold<R>(&self, inside: impl FnOnce() -> R) -> R {
        match self {
            Raced::Ours(lock) => lock.hold(inside),
            Raced::ParkingLot(lock) => {
                let _guard = lock.lock();
                inside()
            }
        }
    }
}

struct Bare(parking_lot::Mutex<()>);

impl Lock for Bare {
    #[inline]
    fn hold<R>(&self, inside: impl FnOnce() -> R) -> R {
        let _guard = self.0.lock();
        inside()
    }
}

struct Settings {
    rounds: usize,
    window: Duration,
}

/// Rounds of each contender, interleaved.
fn race(contenders: &[Contender], pattern: &Pattern, settings: &Settings) -> Vec<Vec<Counts>> {
    let mut all = vec![Vec::new(); contenders.len()];
    for round in 0..settings.rounds {
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let contender = contenders[index];
            let counts = run(pattern, settings.window, || contender.lock(), || contender.lock(), |_| ())
                .unwrap_or_else(|error| panic!("{error}"));
            all[index].push(counts);
        }
    }
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

fn table(contenders: &[Contender], all: &[Vec<Counts>]) {
    println!(
        "  {:<12} {:>10} {:>6} {:>7} {:>8} {:>9} {:>9} {:>9} {:>7} {:>8}",
        "", "ops/s", "MAD", "idle", "CPU us", "p99.9 us", "max us", "bypass", "even", "hand-off"
    );
    for (contender, rounds) in contenders.iter().zip(all) {
        let rate = of(rounds, Counts::operations_per_s);
        let mad = summarize(&rate, 7).map_or(0.0, |s| s.mad / s.median);
        println!(
            "  {:<12} {:>10.0} {:>5.1}% {:>6.1}% {:>8.2} {:>9.1} {:>9.0} {:>9.0} {:>7.2} {:>7.0}%",
            contender.name(),
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

/// Prints a bar and whether it holds.
fn bar(what: &str, (value, low, high): (f64, f64, f64), at_least: f64, missed: &mut u32) {
    let holds = value >= at_least;
    *missed += u32::from(!holds);
    println!(
        "  {} {what}: {value:.3} ({low:.3}–{high:.3}), bar {at_least}",
        if holds { "holds " } else { "MISSED" }
    );
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
                _ => uncontended_ns(&Bare(parking_lot::Mutex::new(()))),
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
    let contenders = [SEMAPHORE, ADAPTIVE];
    let all = race(&contenders, &Pattern::plain(threads, hold_ns, think_ns), settings);
    table(&contenders, &all);
    let rates: Vec<_> = all.iter().map(|rounds| of(rounds, Counts::operations_per_s)).collect();
    bar("adaptive / semaphore", ratio(&rates[1], &rates[0]), at_least, missed);
}

/// The bar against std and parking_lot: throughput against the better of the two, fairness against the same one.
fn against_peers(threads: u32, settings: &Settings, missed: &mut u32) {
    println!("\n{threads} threads, hold 1 us, think 1 us, all contenders");
    let all = race(&ALL, &Pattern::plain(threads, 1000, 1000), settings);
    table(&ALL, &all);
    let rates: Vec<_> = all.iter().map(|rounds| of(rounds, Counts::operations_per_s)).collect();
    let best = if middle(&rates[5]) >= middle(&rates[6]) { 5 } else { 6 };
    let best_name = ALL[best].name();
    bar(&format!("adaptive / {best_name}, operations"), ratio(&rates[1], &rates[best]), 1.0, missed);
    let p999 = |rounds: &[Counts]| of(rounds, |c| c.waits.quantile(0.999) as f64);
    let bypass = |rounds: &[Counts]| of(rounds, |c| c.longest_bypass.max(1) as f64);
    bar(
        &format!("{best_name} / adaptive, p99.9 wait"),
        ratio(&p999(&all[best]), &p999(&all[1])),
        1.0,
        missed,
    );
    bar(
        &format!("{best_name} / adaptive, longest bypass"),
        ratio(&bypass(&all[best]), &bypass(&all[1])),
        1.0,
        missed,
    );
}

fn main() -> ExitCode {
    let mut settings = Settings { rounds: 11, window: Duration::from_millis(300) };
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
            group if GROUPS.contains(&group) => groups.push(argument),
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
    if wanted("peers") {
        for threads in [2, 8, 64] {
            against_peers(threads, &settings, &mut missed);
        }
    }
    println!("\n{missed} bars missed");
    ExitCode::from(u8::from(missed > 0))
}
