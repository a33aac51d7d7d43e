//! The verdict in words: what is lost against what, where it goes back to, and what would win it back.
//!
//! A sentence claims a difference only where the intervals of the two points do not overlap.

use crate::text;
use crate::view::{Group, Row};
use result::{
    Budget, BudgetPart, Lock, Mode, Path, Point, Recorded, Remedy, RemedyHow, Root, RootKind, RunResult,
    Split, WaitThrough, Warning,
};

/// Smallest part of a difference worth a word, as a share of it.
const WORTH_A_WORD: f64 = 0.04;

/// Part of an operation's usable CPU time below which a root or a wait is not worth a line.
pub(crate) const LOSS: f64 = 0.01;

/// Smallest share of a wait worth a line.
pub(crate) const WORTH_A_LINE: f64 = 0.005;

/// Where the time of the CPUs went that were not idle.
pub fn busy_words(seen: &Recorded) -> Option<String> {
    let parts = [
        ("user code", seen.user_s),
        ("the kernel", seen.system_s),
        ("spinning", seen.spin_s),
        ("interrupts", seen.irq_s),
        ("others", seen.other_s),
    ];
    let share = |s: f64| s / seen.capacity_s;
    let words: Vec<String> = parts
        .into_iter()
        .filter_map(|(name, seconds)| Some((name, seconds.filter(|s| share(*s) >= WORTH_A_LINE)?)))
        .map(|(name, seconds)| format!("{name} {}", text::percent(share(seconds))))
        .collect();
    (!words.is_empty()).then(|| format!("Busy: {}", words.join(" · ")))
}

/// How much idle time a recording has, before what it is charged to.
pub fn idle_words(point: &Point) -> Option<String> {
    let seen = point.recorded.as_ref()?;
    let Some(idle) = seen.idle_s.filter(|_| seen.capacity_s > 0.0) else {
        return Some("The idle time is not known.".to_owned());
    };
    let charged = match (point.capture.is_some(), point.roots.is_empty()) {
        (false, _) => ". Not charged to anything: there was no capture.",
        (true, true) => ": nothing worth a line.",
        (true, false) => ". Charged to:",
    };
    let share = text::percent(idle / seen.capacity_s);
    Some(format!("Idle {share} = {} CPU-s{charged}", text::cpu_seconds(idle)))
}

/// A point by its name: `create_unlink on xfs, 2 tasks`, or what was recorded.
pub fn point_name(point: &Point, limit: usize) -> String {
    let workload = text::plain(&point.workload, limit);
    match point.mode {
        Mode::Recorded => workload,
        _ => format!("{workload} on {}, {}", text::plain(&point.target, limit), text::tasks(point.tasks)),
    }
}

/// What passes through a root, after `behind `: the lock, and how much is waited there.
pub fn through_words(w: &WaitThrough) -> String {
    let mut what = text::plain(&w.class, 80);
    if let Some(object) = &w.object {
        what.push_str(&format!(" of {}", text::plain(object, 80)));
    }
    match (w.wait_us_per_op, w.wait_s) {
        (Some(us), _) => {
            what.push_str(&format!(": {} us an operation, for sleeping holders", text::micros(us)))
        }
        (None, Some(s)) => what.push_str(&format!(
            ": {} s of waiting there, for holders asleep in the root",
            text::cpu_seconds(s)
        )),
        (None, None) => {}
    }
    what
}

/// What passes through a root and is waited for long enough to be worth a line: a hundredth of what the root's own waits take.
pub fn waits_through(root: &Root) -> impl Iterator<Item = &WaitThrough> {
    root.waits_through.iter().filter(|w| {
        let of = |part: Option<f64>, whole: Option<f64>| {
            part.zip(whole).filter(|(_, whole)| *whole > 0.0).map(|(part, whole)| part / whole)
        };
        of(w.wait_us_per_op, root.wait_us_per_op)
            .or_else(|| of(w.wait_s, root.wait_s))
            .is_none_or(|s| s >= 0.01)
    })
}

/// Fewest rounds on both sides with which a permutation test can find anything at the 5 % level.
const ENOUGH_ROUNDS: usize = 4;

/// The sentences about one group of points, most important first; bounded, for targets beyond the third are left to the table.
pub fn sentences(result: &RunResult, group: &Group<'_>) -> Vec<String> {
    let Some(most) = group.most_tasks() else {
        return if group.rows.iter().any(|r| r.point.ops_per_s.is_some() || !r.point.valid) {
            vec!["Nothing valid was measured.".to_owned()]
        } else {
            Vec::new()
        };
    };
    let mut rows: Vec<&Row<'_>> =
        group.rows.iter().filter(|r| r.point.tasks == most && r.point.rate().is_some()).collect();
    rows.sort_by(|a, b| a.point.rate().unwrap_or(0.0).total_cmp(&b.point.rate().unwrap_or(0.0)));
    let Some(best) = rows.last().copied() else {
        return Vec::new();
    };
    let mut out = Vec::new();
    let mut clear = false;
    for row in rows.iter().take(3) {
        if let Some(sentence) = scaling_sentence(result, group, row) {
            out.push(sentence);
        }
        if let Some(sentence) = against(row.point, best.point) {
            clear = true;
            out.push(sentence);
        }
    }
    if rows.len() > 1 && !clear {
        out.push(format!(
            "At {} no target is clearly faster than another: the intervals overlap.",
            text::tasks(most)
        ));
    }
    let rounds = |p: &Point| p.ops_per_s.as_ref().map_or(0, |e| e.rounds.len());
    let fewest = group.rows.iter().filter(|r| r.point.rate().is_some()).map(|r| rounds(r.point)).min();
    if let Some(fewest) = fewest.filter(|n| *n < ENOUGH_ROUNDS && !out.is_empty()) {
        out.push(format!(
            "With {fewest} {} all of this may be chance.",
            if fewest == 1 { "round" } else { "rounds" }
        ));
    }
    out
}

/// What more tasks bring on one target.
fn scaling_sentence(result: &RunResult, group: &Group<'_>, row: &Row<'_>) -> Option<String> {
    let target = text::plain(&row.point.target, 40);
    let here = row.point.ops_per_s.as_ref()?;
    let peak = group
        .rows
        .iter()
        .filter(|r| r.point.target == row.point.target && r.point.tasks < row.point.tasks)
        .filter(|r| r.point.rate().is_some())
        .max_by(|a, b| a.point.rate().unwrap_or(0.0).total_cmp(&b.point.rate().unwrap_or(0.0)))?;
    let top = peak.point.ops_per_s.as_ref()?;
    if here.high < top.low && top.median > 0.0 {
        return Some(format!(
            "{target} does {} fewer operations with {} than with {}.",
            text::percent(1.0 - here.median / top.median),
            text::tasks(row.point.tasks),
            peak.point.tasks
        ));
    }
    let scaling = row.scaling?;
    let full = f64::from(row.point.tasks).min(result.machine.capacity_cpus());
    (full > 1.0 && scaling < 0.8 * full).then(|| {
        format!(
            "{target} does {} times as many operations with {} as with 1; {full} CPUs could give {full}.",
            text::ratio(scaling),
            text::tasks(row.point.tasks),
            full = text::quantity(full),
        )
    })
}

/// What an operation costs more than on the base, and where it goes.
fn against(point: &Point, base: &Point) -> Option<String> {
    let (here, there) = (point.ops_per_s.as_ref()?, base.ops_per_s.as_ref()?);
    if here.high >= there.low || there.median <= 0.0 {
        return None;
    }
    let target = text::plain(&point.target, 40);
    let base_target = text::plain(&base.target, 40);
    let at = text::tasks(point.tasks);
    let lead = format!(
        "{target} does {} of the operations of {base_target} at {at}",
        text::percent(here.median / there.median)
    );
    let difference = match (&point.budget_us_per_op, &base.budget_us_per_op) {
        (Some(a), Some(b)) => a.minus(b, false),
        _ => return Some(format!("{lead}.")),
    };
    let Some(total) = difference.total.filter(|t| *t > 0.0) else {
        return Some(format!("{lead}."));
    };
    let parts = cost_words(|part| difference.part(part), total);
    if parts.is_empty() {
        return Some(format!("{lead}: an operation costs {} CPU-us more.", text::micros(total)));
    }
    let parts = match kernel_words(&difference, total) {
        Some(calls) => {
            let kernel = part_words(BudgetPart::System);
            parts.replacen(kernel, &format!("{kernel} ({calls})"), 1)
        }
        None => parts,
    };
    let mut sentence = format!("{lead}: an operation costs {} CPU-us more, {parts}.", text::micros(total));
    // ticks of a task's CPU do not say whose they are
    let user = difference.user.is_some_and(|us| us >= WORTH_A_WORD * total);
    let load = |p: &Point| p.warnings.iter().any(|w| matches!(w, Warning::OtherLoad { .. }));
    if user && (load(point) || load(base)) {
        sentence.push_str(" User code includes that of other processes.");
    }
    Some(sentence)
}

/// The system calls that most of the difference in kernel time is in: `unlinkat 20.1, openat 15.2`.
fn kernel_words(difference: &Budget, total: f64) -> Option<String> {
    let calls = difference.system_by.iter().filter(|c| c.us_per_op >= 0.1 * total).take(2);
    let words: Vec<String> =
        calls.map(|c| format!("{} {}", text::plain(&c.name, 32), text::micros(c.us_per_op))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// `41.0 in the kernel, 32.0 idle`, largest first, without what is small beside the total.
pub(crate) fn cost_words(part: impl Fn(BudgetPart) -> Option<f64>, total: f64) -> String {
    let mut parts: Vec<(BudgetPart, f64)> = BudgetPart::ALL
        .into_iter()
        .filter_map(|p| Some((p, part(p)?)))
        .filter(|(_, cost)| cost.abs() >= WORTH_A_WORD * total.abs())
        .collect();
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let words: Vec<String> = parts
        .into_iter()
        .map(|(p, cost)| {
            if cost < 0.0 {
                format!("{} less {}", text::micros(-cost), part_words(p))
            } else {
                format!("{} {}", text::micros(cost), part_words(p))
            }
        })
        .collect();
    words.join(", ")
}

/// A part of the budget as the end of "so many CPU-us …".
pub(crate) fn part_words(part: BudgetPart) -> &'static str {
    match part {
        BudgetPart::User => "in user code",
        BudgetPart::System => "in the kernel",
        BudgetPart::Spin => "spinning",
        BudgetPart::Irq => "in interrupts",
        BudgetPart::SystemElsewhere => "in the kernel on other CPUs",
        BudgetPart::Other => "of other processes",
        BudgetPart::Steal => "stolen by the hypervisor",
        BudgetPart::Idle => "idle",
        BudgetPart::Unused => "on CPUs without a task",
        BudgetPart::Unaccounted => "unaccounted for",
    }
}

/// `semaphore xfs_buf.b_sema, AGI of AG 0 on loop0`, `io: writes on vda`.
pub fn lock_words(lock: &Lock) -> String {
    let mut words = lock.kind.words().to_owned();
    if lock.kind == RootKind::Sleep && !lock.class.is_empty() {
        words = format!("sleep for a time, not for an event, in {}", text::plain(&lock.class, 80));
    } else if !lock.class.is_empty() {
        words.push_str(if lock.kind.is_lock() { " " } else { ": " });
        words.push_str(&text::plain(&lock.class, 80));
    }
    if let Some(object) = &lock.object {
        // "io: writes on vda", but "semaphore xfs_buf.b_sema, AGI of AG 0 on loop0"
        words.push_str(if lock.kind == RootKind::Io { " on " } else { ", " });
        words.push_str(&text::plain(object, 80));
    }
    words
}

/// How large a root is, in words: its share of the idle time, or its waits when it is latent.
pub fn root_size(root: &Root) -> String {
    match (root.latent, root.share_of_idle) {
        (false, Some(share)) => format!("{} of the idle time", text::percent(share)),
        _ => match root.wait_us_per_op {
            Some(wait) if root.latent => {
                format!("hidden behind runnable work, {} us an operation", text::micros(wait))
            }
            Some(wait) => format!("{} us of waiting an operation", text::micros(wait)),
            None => {
                let hidden = if root.latent { "hidden behind runnable work" } else { "" };
                let wait = root.wait_s.map(|s| format!("{} s of waiting", text::cpu_seconds(s)));
                let words: Vec<String> =
                    [hidden.to_owned()].into_iter().filter(|w| !w.is_empty()).chain(wait).collect();
                if words.is_empty() { "size not known".to_owned() } else { words.join(", ") }
            }
        },
    }
}

/// The split of a wait, largest part first.
pub fn split_words(split: &Split) -> String {
    let hand_off = format!(
        "hand-off {} (CPU idle {}, busy {})",
        text::percent(split.hand_off),
        bare_percent(split.hand_off_cpu_idle),
        bare_percent(split.hand_off_cpu_busy)
    );
    let mut parts = [
        (split.hand_off, hand_off),
        (split.holder_running, format!("holder running {}", text::percent(split.holder_running))),
        (split.holder_blocked, format!("holder blocked {}", text::percent(split.holder_blocked))),
        (split.holder_runnable, format!("holder runnable {}", text::percent(split.holder_runnable))),
        (split.unknown, format!("unknown {}", text::percent(split.unknown))),
    ];
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let words: Vec<String> =
        parts.into_iter().filter(|(share, _)| *share >= WORTH_A_LINE).map(|(_, words)| words).collect();
    words.join(" · ")
}

/// Percent without its sign.
fn bare_percent(share: f64) -> String {
    text::percent(share).trim_end_matches(" %").to_owned()
}

/// Frames that say only that something waits, innermost first on every path.
fn is_lock_frame(frame: &str) -> bool {
    const PREFIXES: [&str; 16] = [
        "__schedule",
        "schedule",
        "finish_task_switch",
        "down",
        "__down",
        "mutex_lock",
        "__mutex",
        "rwsem_",
        "__rwsem",
        "rt_mutex",
        "__rt_mutex",
        "percpu_",
        "__percpu",
        "io_schedule",
        "preempt_schedule",
        "_raw_spin",
    ];
    PREFIXES.iter().any(|p| frame.starts_with(p))
        || frame.starts_with("queued_spin")
        || frame.starts_with("native_queued_spin")
        || frame.starts_with("__pv_queued_spin")
}

/// The two frames by which a path is told from the others: after the frames that all of them begin with, or, for a
/// single path, after those that only say that something waits.
pub fn path_words(paths: &[Path], of: &Path) -> String {
    let common = match paths {
        [] | [_] => of.stack.iter().take_while(|f| is_lock_frame(f)).count(),
        [first, rest @ ..] => rest.iter().fold(first.stack.len(), |n, path| {
            let same = first.stack.iter().zip(&path.stack).take_while(|(a, b)| a == b).count();
            n.min(same)
        }),
    };
    // Paths that are all the same have nothing that tells them apart.
    let start = if common >= of.stack.len() { 0 } else { common };
    let frames: Vec<String> = of.stack[start..]
        .iter()
        .filter(|f| start > 0 || !is_lock_frame(f))
        .take(2)
        .map(|f| text::plain(f, 48))
        .collect();
    let words = frames.join(" < ");
    match &of.entry {
        Some(entry) => format!("{}: {words}", text::plain(entry, 32)),
        None => words,
    }
}

/// What [`holders_words`] are about: who had a lock, or who ended the waits for something that nobody has.
pub fn holders_label(root: &Root) -> &'static str {
    if root.lock.kind.is_lock() { "Held" } else { "Ended" }
}

/// Who had it, in words, and what of the wait nobody had it.
pub fn holders_words(root: &Root) -> String {
    let shown = root.holders.iter().enumerate().filter(|(i, h)| *i == 0 || h.share >= WORTH_A_LINE).take(4);
    let mut parts: Vec<(String, f64)> = shown.map(|(_, h)| (text::plain(&h.comm, 32), h.share)).collect();
    let named: f64 = parts.iter().map(|(_, share)| share).sum();
    parts.extend(holders_rest(root, named).map(|(what, share)| (what.to_owned(), share)));
    let words: Vec<String> =
        parts.iter().map(|(what, share)| format!("{what} {}", text::percent(*share))).collect();
    words.join(", ")
}

/// What of the wait is not `named`: parts of it that are worth saying.
pub fn holders_rest(root: &Root, named: f64) -> impl Iterator<Item = (&'static str, f64)> {
    let parts = match &root.split {
        Some(s) => [
            ("others", s.holder_running + s.holder_blocked + s.holder_runnable - named),
            ("nobody", s.hand_off),
            ("not known", s.unknown),
        ],
        None => [("others or not known", 1.0 - named), ("", 0.0), ("", 0.0)],
    };
    parts.into_iter().filter(|(_, share)| *share >= WORTH_A_LINE)
}

/// The gain of a remedy with its interval: `×4.0 (3.9–4.2)`.
pub fn gain_words(remedy: &Remedy) -> String {
    match (remedy.gain, remedy.low, remedy.high) {
        (Some(gain), Some(low), Some(high)) => format!(
            "{} ({}–{})",
            text::gain(gain),
            text::gain(low).trim_start_matches('×'),
            text::gain(high).trim_start_matches('×')
        ),
        (Some(gain), ..) => text::gain(gain),
        _ => text::NONE.to_owned(),
    }
}

/// How a remedy's effect is known, with its note.
pub fn how_words(remedy: &Remedy) -> String {
    let how = match remedy.how {
        RemedyHow::Measured => "measured",
        RemedyHow::Predicted => "predicted",
        RemedyHow::NotKnown => "not known",
    };
    match &remedy.note {
        Some(note) => format!("{how}: {}", text::plain(note, 200)),
        None => how.to_owned(),
    }
}

/// One line about the machine and the method of a group: what a reader has to know before the figures.
pub fn heading(result: &RunResult, group: &Group<'_>) -> String {
    let machine = &result.machine;
    let mut parts = vec![text::plain(group.workload, 60), group.mode.name().to_owned()];
    parts.extend(cpus(result));
    if !machine.kernel.is_empty() {
        parts.push(format!("Linux {}", text::plain(&machine.kernel, 40)));
    }
    if let Some(recorded) = group.rows.first().and_then(|r| r.point.recorded.as_ref()) {
        parts.push(text::seconds(recorded.wall_s));
        if let Some(busy) = recorded.busy_share {
            parts.push(format!("{} busy", text::percent(busy)));
        }
    } else {
        parts.extend(method(result));
    }
    parts.join(" · ")
}

/// `24 CPUs`, where it is known.
pub(crate) fn cpus(result: &RunResult) -> Option<String> {
    let capacity = result.machine.capacity_cpus();
    let cpus = text::quantity(capacity);
    (capacity > 0.0).then(|| format!("{cpus} {}", if cpus == "1" { "CPU" } else { "CPUs" }))
}

/// How it was measured: rounds and seed.
pub(crate) fn method(result: &RunResult) -> Vec<String> {
    let options = &result.options;
    let rounds = (options.rounds > 0).then(|| {
        format!(
            "{} {} x {}, interleaved",
            options.rounds,
            if options.rounds == 1 { "round" } else { "rounds" },
            text::seconds(options.seconds)
        )
    });
    rounds.into_iter().chain([format!("seed {}", result.seed)]).collect()
}
