//! The table and the verdict for a terminal.

mod ink;
mod table;

use crate::text;
use crate::verdict::{self, LOSS};
use crate::view::{Group, groups};
use crate::warnings;
use ink::Ink;
use result::{Comparison, MadeBy, Point, Root, RunResult, Verdict};

/// Narrowest terminal that is laid out for, columns.
pub const NARROWEST: usize = 40;

/// Widest layout, columns: lines longer than this are hard to read.
pub const WIDEST: usize = 120;

/// Roots that are shown in full for a point; the page shows all.
const ROOTS: usize = 3;

/// A result as text for a terminal of so many columns: tables, then the verdict. Ends with a newline.
///
/// `color` is for a terminal only: the caller decides by what its output is and by `NO_COLOR`.
pub fn render(result: &RunResult, width: usize, color: bool) -> String {
    let width = width.clamp(NARROWEST, WIDEST);
    let ink = Ink::new(color);
    let mut out = Out { lines: Vec::new(), width, ink };
    let groups = groups(result);
    if groups.is_empty() {
        out.line("Nothing was measured.");
    }
    for (i, group) in groups.iter().enumerate() {
        if i > 0 {
            out.blank();
        }
        out.heading(&verdict::heading(result, group));
        out.blank();
        match result.made_by {
            MadeBy::Run => run_group(&mut out, result, group),
            MadeBy::Record => {
                for row in &group.rows {
                    recorded(&mut out, row.point);
                }
            }
        }
    }
    comparisons(&mut out, &result.comparisons);
    footer(&mut out, result);
    let mut textual = out.lines.join("\n");
    textual.push('\n');
    textual
}

/// Lines under construction.
struct Out {
    lines: Vec<String>,
    width: usize,
    ink: Ink,
}

impl Out {
    fn blank(&mut self) {
        if self.lines.last().is_some_and(|l| !l.is_empty()) {
            self.lines.push(String::new());
        }
    }

    fn line(&mut self, line: &str) {
        self.lines.extend(text::wrap(&format!(" {line}"), self.width, 1));
    }

    fn heading(&mut self, line: &str) {
        for line in text::wrap_parts(line, self.width) {
            self.lines.push(self.ink.bold(&line));
        }
    }

    /// `Label  text`, the text wrapped beside the label.
    fn labelled(&mut self, label: &str, content: &str) {
        let lines = text::wrap(&format!(" {} {content}", text::left(label, 6)), self.width, 8);
        for (i, line) in lines.into_iter().enumerate() {
            if i == 0 {
                let rest = line.get(1 + label.len()..).unwrap_or("").to_owned();
                self.lines.push(format!(" {}{}", self.ink.bold(label), rest.trim_end()));
            } else {
                self.lines.push(line);
            }
        }
    }

    /// `! text`.
    fn warning(&mut self, content: &str) {
        for line in text::wrap(&format!(" ! {content}"), self.width, 3) {
            self.lines.push(self.ink.yellow(&line));
        }
    }
}

fn run_group(out: &mut Out, result: &RunResult, group: &Group<'_>) {
    table::points(out, group);
    for line in warnings::void_lines(group.rows.iter().map(|r| r.point)) {
        for line in text::wrap(&format!(" ! {line}"), out.width, 3) {
            out.lines.push(out.ink.red(&line));
        }
    }
    let sentences = verdict::sentences(result, group);
    if !sentences.is_empty() {
        out.blank();
        for sentence in &sentences {
            out.line(sentence);
        }
    }
    // The causes at the most tasks of each target: there the loss is largest and the question is asked.
    for target in group.targets() {
        let Some(row) = group
            .rows
            .iter()
            .filter(|r| r.point.target == target && r.point.valid && !r.point.roots.is_empty())
            .max_by_key(|r| r.point.tasks)
        else {
            continue;
        };
        causes(out, target, row.point);
    }
    let remedies: Vec<&Point> =
        group.rows.iter().map(|r| r.point).filter(|p| !p.remedies.is_empty()).collect();
    if !remedies.is_empty() {
        out.blank();
        table::remedies(out, &remedies);
    }
}

/// What a point's idle time goes back to: the largest root in full, smaller ones in a line each. Where next to nothing is lost,
/// one line says so and names the longest waits that cost no idle time here.
fn causes(out: &mut Out, target: &str, point: &Point) {
    let heading = format!(" {} at {}", text::plain(target, 40), text::tasks(point.tasks));
    let usable = point.budget_us_per_op.as_ref().and_then(|b| b.usable_total()).filter(|t| *t > 0.0);
    let of_usable = |us: Option<f64>| us.zip(usable).map_or(1.0, |(us, usable)| us / usable);
    let idle = point.budget_us_per_op.as_ref().and_then(|b| b.idle);
    out.blank();
    if of_usable(idle) < LOSS {
        let mut waits: Vec<&Root> = point
            .roots
            .iter()
            .filter(|r| r.lock.kind.is_lock() && of_usable(r.wait_us_per_op) >= LOSS)
            .collect();
        waits.sort_by(|a, b| b.wait_us_per_op.unwrap_or(0.0).total_cmp(&a.wait_us_per_op.unwrap_or(0.0)));
        let what = if waits.is_empty() {
            "no idle time is lost, and no lock is waited for long".to_owned()
        } else {
            "no idle time is lost; waits hidden behind other work:".to_owned()
        };
        out.line(&format!("{}: {what}", heading.trim()));
        for root in waits.iter().take(ROOTS) {
            let wait = root.wait_us_per_op.map_or_else(|| text::NONE.to_owned(), text::micros);
            out.labelled("Waits", &format!("{wait} us an operation: {}", verdict::lock_words(&root.lock)));
        }
        return;
    }
    out.heading(&heading);
    let (large, small): (Vec<&Root>, Vec<&Root>) =
        point.roots.iter().partition(|r| !r.latent && of_usable(r.idle_us_per_op) >= LOSS);
    for (i, root) in large.iter().take(ROOTS).enumerate() {
        if i == 0 {
            root_lines(out, root);
        } else {
            let what = format!("{}: {}", verdict::root_size(root), verdict::lock_words(&root.lock));
            out.labelled("Then", &what);
        }
    }
    let left = small.len() + large.len().saturating_sub(ROOTS);
    if left > 0 {
        out.line(&format!("… and {left} smaller roots and hidden waits on the page"));
    }
}

fn root_lines(out: &mut Out, root: &Root) {
    let mut what = format!("{}: {}", verdict::root_size(root), verdict::lock_words(&root.lock));
    if let Some(when) = &root.when {
        what.push_str(&format!(" ({})", text::plain(when, 60)));
    }
    if root.disturbed {
        what.push_str(" (disturbed by capture)");
    }
    out.labelled("Root", &what);
    let paths: Vec<String> = root
        .paths
        .iter()
        .filter(|p| p.share >= verdict::WORTH_A_LINE)
        .take(3)
        .map(|p| format!("{} {}", verdict::path_words(&root.paths, p), text::percent(p.share)))
        .collect();
    if !paths.is_empty() {
        out.labelled("Paths", &paths.join(" · "));
    }
    if !root.holders.is_empty() {
        out.labelled("Held", &format!("by {}", verdict::holders_words(root)));
    }
    if let Some(split) = &root.split {
        let words = verdict::split_words(split);
        let line = match root.wait_us_per_op {
            Some(wait) => format!("{} us an operation: {words}", text::micros(wait)),
            None => words,
        };
        out.labelled("Wait", &line);
    }
    if let Some(spin) = root.spin_us_per_op.filter(|s| *s > 0.0) {
        out.labelled("Spin", &format!("{} CPU-us an operation", text::micros(spin)));
    }
    for through in verdict::waits_through(root).take(3) {
        out.labelled("Hides", &format!("behind {}", verdict::through_words(through)));
    }
}

fn recorded(out: &mut Out, point: &Point) {
    if let Some(seen) = &point.recorded {
        let idle = match (seen.idle_s, seen.capacity_s > 0.0) {
            (Some(idle), true) => Some((idle / seen.capacity_s, idle)),
            _ => None,
        };
        match idle {
            Some((share, idle)) if point.capture.is_none() => out.line(&format!(
                "Idle {} = {} CPU-s. Not charged to anything: there was no capture.",
                text::percent(share),
                text::cpu_seconds(idle)
            )),
            Some((share, idle)) if point.roots.is_empty() => out.line(&format!(
                "Idle {} = {} CPU-s: nothing worth a line.",
                text::percent(share),
                text::cpu_seconds(idle)
            )),
            Some((share, idle)) => {
                out.line(&format!(
                    "Idle {} = {} CPU-s. Charged to:",
                    text::percent(share),
                    text::cpu_seconds(idle)
                ));
            }
            None => out.line("The idle time is not known."),
        }
    }
    recorded_roots(out, point);
    let failed = point.recorded.as_ref().and_then(|r| r.exit_status).filter(|s| *s != 0);
    if let Some(status) = failed {
        out.blank();
        out.warning(&format!("the command ended with status {status}"));
    }
}

/// The roots of a recording, a line each, and the largest lock in full.
fn recorded_roots(out: &mut Out, point: &Point) {
    for root in point.roots.iter().take(12) {
        let share = root.share_of_idle.map_or_else(|| text::NONE.to_owned(), text::percent);
        let mut line = verdict::lock_words(&root.lock);
        if let Some(split) = root.split.as_ref().filter(|s| s.hand_off > 0.0) {
            line.push_str(&format!(" · hand-off {}", text::percent(split.hand_off)));
        }
        if root.latent {
            line.push_str(" · latent");
        }
        if let Some(when) = &root.when {
            line.push_str(&format!(" · {}", text::plain(when, 60)));
        }
        let line = format!("  {}  {line}", text::right(&share, 6));
        out.lines.extend(text::wrap(&line, out.width, 10));
    }
    if let Some(root) = point.roots.iter().find(|r| r.lock.kind.is_lock()) {
        out.blank();
        root_lines(out, root);
    }
}

fn comparisons(out: &mut Out, comparisons: &[Comparison]) {
    if comparisons.is_empty() {
        return;
    }
    const SHOWN: usize = 12;
    out.blank();
    for comparison in comparisons.iter().take(SHOWN) {
        out.line(&comparison_line(comparison));
    }
    if comparisons.len() > SHOWN {
        out.line(&format!("… and {} more on the page", comparisons.len() - SHOWN));
    }
}

/// `xfs#2 against xfs at 2 tasks: no difference (×1.01, 0.97–1.04, p = 0.62)`.
pub fn comparison_line(c: &Comparison) -> String {
    let mut line = String::new();
    if c.a.workload == c.b.workload {
        line.push_str(&text::plain(&c.b.workload, 40));
        line.push_str(": ");
    } else {
        line.push_str(&format!(
            "{} against {}: ",
            text::plain(&c.b.workload, 40),
            text::plain(&c.a.workload, 40)
        ));
    }
    if c.a.target == c.b.target {
        line.push_str(&text::plain(&c.b.target, 40));
    } else {
        line.push_str(&format!("{} against {}", text::plain(&c.b.target, 40), text::plain(&c.a.target, 40)));
    }
    if c.a.tasks == c.b.tasks {
        line.push_str(&format!(" at {}", text::tasks(c.b.tasks)));
    } else {
        line.push_str(&format!(" at {} against {}", text::tasks(c.b.tasks), c.a.tasks));
    }
    line.push_str(": ");
    line.push_str(c.verdict.words());
    let numbers = comparison_numbers(c);
    if !numbers.is_empty() {
        line.push_str(&format!(" ({numbers})"));
    }
    if c.verdict == Verdict::CannotSay
        && let Some(because) = c.because.first()
    {
        line.push_str(&format!(": {}", text::plain(because, 200)));
    }
    line
}

/// `×1.01, 0.97–1.04, p = 0.62`, as far as they are known.
pub(crate) fn comparison_numbers(c: &Comparison) -> String {
    let mut numbers = Vec::new();
    if let Some(ratio) = c.ratio {
        numbers.push(format!("×{}", text::ratio(ratio)));
    }
    if let (Some(low), Some(high)) = (c.low, c.high) {
        numbers.push(format!("{}–{}", text::ratio(low), text::ratio(high)));
    }
    if let Some(p) = c.p_value {
        numbers.push(p_words(p));
    }
    numbers.join(", ")
}

/// `p = 0.62`, `p < 0.001`.
pub(crate) fn p_words(p: f64) -> String {
    if p < 0.001 {
        "p < 0.001".to_owned()
    } else if p < 0.1 {
        format!("p = {p:.3}")
    } else {
        format!("p = {:.2}", p.min(1.0))
    }
}

/// Warnings, each text once with the points that have it, and what capture cost.
fn footer(out: &mut Out, result: &RunResult) {
    let lines = warnings::lines(result);
    const SHOWN: usize = 12;
    if !lines.is_empty() {
        out.blank();
    }
    for line in lines.iter().take(SHOWN) {
        out.warning(line);
    }
    if lines.len() > SHOWN {
        out.warning(&format!("… and {} more warnings on the page", lines.len() - SHOWN));
    }
    if result.interrupted {
        out.warning("interrupted: what follows was not measured any more, what is shown is whole");
    } else if !result.complete {
        out.warning("not complete: the run did not come to its end");
    }
    let captured: Vec<&result::Capture> = result.points.iter().filter_map(|p| p.capture.as_ref()).collect();
    if !captured.is_empty() {
        let kept = captured.iter().filter_map(|c| c.throughput_ratio).min_by(f64::total_cmp);
        let lost = captured.iter().fold(0u64, |n, c| n.saturating_add(c.lost_events));
        let mut words = Vec::new();
        if let Some(kept) = kept {
            words.push(format!(
                "capture kept {}{} of the throughput",
                if captured.len() > 1 { "at least " } else { "" },
                text::percent(kept)
            ));
        }
        words.push(format!("{lost} events lost"));
        words.push("shares are attribution, not winnable gain".to_owned());
        out.blank();
        out.line(&words.join(" · "));
    }
}
