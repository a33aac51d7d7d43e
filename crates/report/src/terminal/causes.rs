//! The verdict: what is lost against what, and what it goes back to. Ten lines at most: what matters less is left to the page.

use super::Out;
use crate::text;
use crate::verdict::{self, LOSS};
use crate::view::Group;
use result::{BudgetPart, Point, Root, RootKind, RunResult};

/// Most lines of a verdict on a terminal that is wide enough for most sentences; a narrow one has more.
const LINES: usize = 10;
const WIDE: usize = 90;

/// Waits that cost no idle time here and are named, of a point.
const WAITS: usize = 4;

/// Smallest part of an operation's usable CPU time that a hidden wait takes to be named: what is little here may be much on a larger
/// machine.
const WORTH_NAMING: f64 = 0.0001;

/// Lines of a verdict that stay together.
struct Part {
    /// What matters most has the lowest; of equal ones the earlier matters more.
    rank: usize,
    lines: Vec<String>,
}

/// A verdict under construction, in the order in which it is read.
struct Parts<'a> {
    out: &'a Out,
    parts: Vec<Part>,
}

impl Parts<'_> {
    fn add(&mut self, rank: usize, write: impl FnOnce(&mut Out)) {
        let mut part = Out { lines: Vec::new(), width: self.out.width, ink: self.out.ink };
        write(&mut part);
        self.parts.push(Part { rank, lines: part.lines });
    }

    /// The lines that there is room for.
    fn fit(self) -> Vec<String> {
        let most = if self.out.width >= WIDE { LINES } else { LINES * WIDE / self.out.width };
        let mut by_rank: Vec<usize> = (0..self.parts.len()).collect();
        by_rank.sort_by_key(|&i| self.parts[i].rank);
        let mut used = 0;
        let mut kept = vec![false; self.parts.len()];
        for i in by_rank {
            let more = self.parts[i].lines.len();
            if used + more > most {
                // what matters less does not take the place of what matters more
                break;
            }
            used += more;
            kept[i] = true;
        }
        let left_out = kept.contains(&false);
        let mut lines: Vec<String> =
            self.parts.into_iter().zip(kept).filter(|(_, kept)| *kept).flat_map(|(p, _)| p.lines).collect();
        if let Some(last) = lines.last_mut().filter(|_| left_out) {
            let more = " · … more on the page";
            if text::width(last) + text::width(more) <= self.out.width {
                last.push_str(more);
            }
        }
        lines
    }
}

/// The verdict on a group of points.
pub(super) fn group(out: &mut Out, result: &RunResult, group: &Group<'_>) {
    let sentences = verdict::sentences(result, group);
    // The causes at the most tasks of each target: there the loss is largest and the question is asked.
    let rows: Vec<(&str, &Point)> = group
        .targets()
        .into_iter()
        .filter_map(|target| {
            let points = group.rows.iter().map(|r| r.point);
            let of_target = points
                .filter(|p| p.target == target && p.valid && (p.capture.is_some() || !p.roots.is_empty()));
            Some((target, of_target.max_by_key(|p| p.tasks)?))
        })
        .collect();
    let (mut lost, hidden): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, p)| idle_part(p) >= LOSS);
    lost.sort_by(|(_, a), (_, b)| idle_part(b).total_cmp(&idle_part(a)));
    let mut parts = Parts { out, parts: Vec::new() };
    for (i, sentence) in sentences.iter().enumerate() {
        parts.add(if i < 2 { i } else { 6 }, |out| out.line(sentence));
    }
    for (i, (target, point)) in lost.iter().enumerate() {
        let which = format!("{} at {}", text::plain(target, 40), text::tasks(point.tasks));
        if i == 0 {
            worst(&mut parts, &which, point);
        } else if let Some(root) = roots_with_loss(point).next() {
            let root = format!("{}: {}", verdict::root_size(root), verdict::lock_words(&root.lock));
            parts.add(3, |out| out.labelled("Also", &format!("{which}: {root}")));
        }
    }
    match hidden.as_slice() {
        [] => {}
        [(target, point)] => without_loss(&mut parts, target, point),
        several => all_without_loss(&mut parts, several),
    }
    let lines = parts.fit();
    if !lines.is_empty() {
        out.blank();
        out.lines.extend(lines);
    }
}

/// The part of an operation's usable CPU time that was idle.
fn idle_part(point: &Point) -> f64 {
    let budget = point.budget_us_per_op.as_ref();
    let usable = budget.and_then(|b| b.usable_total()).filter(|t| *t > 0.0);
    budget.and_then(|b| b.idle).zip(usable).map_or(1.0, |(idle, usable)| idle / usable)
}

/// That part of an operation's usable CPU time.
fn of_usable(point: &Point, us: Option<f64>) -> f64 {
    let usable = point.budget_us_per_op.as_ref().and_then(|b| b.usable_total()).filter(|t| *t > 0.0);
    us.zip(usable).map_or(1.0, |(us, usable)| us / usable)
}

fn roots_with_loss(point: &Point) -> impl Iterator<Item = &Root> {
    point.roots.iter().filter(|r| !r.latent && of_usable(point, r.idle_us_per_op) >= LOSS)
}

/// The point that loses most: its largest root in full, the others in a line each.
fn worst(parts: &mut Parts<'_>, which: &str, point: &Point) {
    for (i, root) in roots_with_loss(point).take(3).enumerate() {
        if i == 0 {
            root_parts(parts, Some(which), root);
        } else {
            let what = format!("{}: {}", verdict::root_size(root), verdict::lock_words(&root.lock));
            parts.add(5, |out| out.labelled("Then", &what));
        }
    }
}

/// The locks of a point that loses next to nothing, for which tasks wait behind other work, longest waits first.
fn hidden_waits(point: &Point) -> Vec<&Root> {
    let worth = |root: &&Root| of_usable(point, root.wait_us_per_op) >= WORTH_NAMING;
    let mut waits: Vec<&Root> = point.roots.iter().filter(|r| r.lock.kind.is_lock()).filter(worth).collect();
    waits.sort_by(|a, b| b.wait_us_per_op.unwrap_or(0.0).total_cmp(&a.wait_us_per_op.unwrap_or(0.0)));
    waits
}

/// A hidden wait: how long, and for what.
fn wait_words(root: &Root) -> String {
    let wait = root.wait_us_per_op.map_or_else(|| text::NONE.to_owned(), text::micros);
    format!("{wait} {}", verdict::lock_words(&root.lock))
}

/// The longest of these waits, as many as have room.
fn waits_words(waits: &[&Root], room: usize) -> String {
    let mut all = waits.iter().map(|root| wait_words(root));
    let Some(mut words) = all.next() else { return "none for long".to_owned() };
    for more in all.take(WAITS - 1) {
        if text::width(&words) + text::width(&more) + 3 > room {
            words.push_str(" · …");
            break;
        }
        words.push_str(&format!(" · {more}"));
    }
    words
}

/// Several points that lose next to nothing: the longest waits of each that other work hides, a line a point.
fn all_without_loss(parts: &mut Parts<'_>, points: &[(&str, &Point)]) {
    let at = match points.first().map(|(_, p)| p.tasks) {
        Some(tasks) if points.iter().all(|(_, p)| p.tasks == tasks) => format!("at {}", text::tasks(tasks)),
        _ => "at the most tasks".to_owned(),
    };
    let names: Vec<String> = points.iter().map(|(target, _)| text::plain(target, 40)).collect();
    let line = format!(
        "{}: no idle time is lost {at}. Locks waited for behind runnable work, us an operation:",
        names.join(", ")
    );
    parts.add(2, |out| out.line(&line));
    for (target, point) in points {
        let words = waits_words(&hidden_waits(point), 2 * parts.out.width.saturating_sub(12));
        parts.add(3, |out| out.labelled(&text::plain(target, 40), &words));
        if let Some(words) = spin_words(point) {
            parts.add(4, |out| out.labelled("Spins", &format!("{}: {words}", text::plain(target, 40))));
        }
    }
}

/// What spins at a point, if that is worth a line.
fn spin_words(point: &Point) -> Option<String> {
    let budget = point.budget_us_per_op.as_ref()?;
    let spin = budget.part(BudgetPart::Spin).filter(|us| of_usable(point, Some(*us)) >= LOSS)?;
    let by: Vec<String> = budget
        .spin_by
        .iter()
        .take(3)
        .map(|c| format!("{} {}", text::plain(&c.name, 48), text::micros(c.us_per_op)))
        .collect();
    let by = if by.is_empty() { String::new() } else { format!(": {}", by.join(" · ")) };
    Some(format!("{} CPU-us an operation{by}", text::micros(spin)))
}

/// A point that loses next to nothing: the waits that other work hides, and what spins.
fn without_loss(parts: &mut Parts<'_>, target: &str, point: &Point) {
    let worth = |us| of_usable(point, us) >= WORTH_NAMING;
    let waits = hidden_waits(point);
    let what = match waits.is_empty() {
        true => "no idle time is lost, and no lock is waited for long",
        false => "no idle time is lost; waits hidden behind runnable work, us an operation:",
    };
    let which = format!("{} at {}", text::plain(target, 40), text::tasks(point.tasks));
    let rows: Vec<String> = waits
        .into_iter()
        .take(WAITS)
        .map(|root| {
            let mut words = wait_words(root);
            if let Some(path) = root.paths.first() {
                words.push_str(&format!(" ({})", verdict::path_words(&root.paths, path)));
            }
            if let Some(through) = root.waits_through.first().filter(|w| worth(w.wait_us_per_op)) {
                let wait = through.wait_us_per_op.map_or_else(|| text::NONE.to_owned(), text::micros);
                words.push_str(&format!(
                    ", and {wait} at {} for its holders",
                    text::plain(&through.class, 48)
                ));
            }
            words
        })
        .collect();
    // the heading and its first row are one part: neither says anything without the other
    parts.add(2, |out| {
        out.line(&format!("{which}: {what}"));
        if let Some(first) = rows.first() {
            out.labelled("Waits", first);
        }
    });
    for (i, words) in rows.iter().enumerate().skip(1) {
        parts.add(3 + i, |out| out.labelled("Waits", words));
    }
    if let Some(words) = spin_words(point) {
        parts.add(4, |out| out.labelled("Spins", &words));
    }
}

/// A root in full.
fn root_parts(parts: &mut Parts<'_>, which: Option<&str>, root: &Root) {
    let mut what = format!("{}: {}", verdict::root_size(root), verdict::lock_words(&root.lock));
    if let Some(when) = &root.when {
        what.push_str(&format!(" ({})", text::plain(when, 60)));
    }
    if root.disturbed {
        what.push_str(" (disturbed by capture)");
    }
    if let Some(which) = which {
        what.push_str(&format!(" [{which}]"));
    }
    parts.add(0, |out| out.labelled("Root", &what));
    let words = root
        .paths
        .iter()
        .filter(|p| p.share >= verdict::WORTH_A_LINE)
        .take(3)
        .map(|p| format!("{} {}", verdict::path_words(&root.paths, p), text::percent(p.share)));
    let paths: Vec<String> = words.collect();
    if !paths.is_empty() {
        parts.add(1, |out| out.labelled("Paths", &paths.join(" · ")));
    }
    if !root.holders.is_empty() {
        let label = verdict::holders_label(root);
        parts.add(1, |out| out.labelled(label, &format!("by {}", verdict::holders_words(root))));
    }
    if let Some(split) = &root.split {
        let words = verdict::split_words(split);
        let line = match root.wait_us_per_op {
            Some(wait) => format!("{} us an operation: {words}", text::micros(wait)),
            None => words,
        };
        parts.add(1, |out| out.labelled("Wait", &line));
    }
    for (i, through) in verdict::waits_through(root).take(3).enumerate() {
        let words = format!("behind {}", verdict::through_words(through));
        parts.add(2 + 3 * i, |out| out.labelled("Hides", &words));
    }
    if let Some(spin) = root.spin_us_per_op.filter(|s| *s > 0.0) {
        parts.add(5, |out| out.labelled("Spin", &format!("{} CPU-us an operation", text::micros(spin))));
    }
}

/// The verdict on a recording: what its idle time is charged to, a line each, and the largest lock in full.
pub(super) fn recorded(out: &mut Out, point: &Point) {
    let mut parts = Parts { out, parts: Vec::new() };
    if let Some(words) = point.recorded.as_ref().and_then(verdict::busy_words) {
        parts.add(1, |out| out.line(&words));
    }
    if let Some(line) = verdict::idle_words(point) {
        parts.add(0, |out| out.line(&line));
    }
    let in_full = point.roots.iter().find(|r| r.lock.kind.is_lock());
    for (i, root) in point.roots.iter().enumerate() {
        let line = recorded_line(root);
        let rank = match i {
            0 => 0,
            1 | 2 => 2,
            i => 2 + i,
        };
        parts.add(rank, |out| out.lines.extend(text::wrap(&line, out.width, 10)));
    }
    if let Some(seconds) = point.recorded.as_ref().and_then(|r| r.runnable_s).filter(|s| *s >= 0.01)
        && point.recorded.as_ref().is_some_and(|r| seconds > LOSS * r.capacity_s)
    {
        let line = format!("The tasks waited {} s for CPUs that others had.", text::cpu_seconds(seconds));
        parts.add(1, |out| out.line(&line));
    }
    if let Some(root) = in_full {
        root_parts(&mut parts, None, root);
    }
    let lines = parts.fit();
    out.lines.extend(lines);
    let failed = point.recorded.as_ref().and_then(|r| r.exit_status).filter(|s| *s != 0);
    if let Some(status) = failed {
        out.blank();
        out.warning(&format!("the command ended with status {status}"));
    }
}

/// A root of a recording in a line.
fn recorded_line(root: &Root) -> String {
    let share = root.share_of_idle.map_or_else(|| text::NONE.to_owned(), text::percent);
    let mut line = verdict::lock_words(&root.lock);
    if let Some(split) = root.split.as_ref().filter(|s| s.hand_off > 0.0) {
        line.push_str(&format!(" · hand-off {}", text::percent(split.hand_off)));
    }
    if let Some(wait) = root.wait_s.filter(|_| root.latent || root.lock.kind == RootKind::Throttled) {
        line.push_str(&format!(" · {} s of waiting", text::cpu_seconds(wait)));
    }
    if root.latent {
        line.push_str(", hidden behind runnable work");
    }
    if let Some(when) = &root.when {
        line.push_str(&format!(" · {}", text::plain(when, 60)));
    }
    format!("  {}  {line}", text::right(&share, 6))
}
