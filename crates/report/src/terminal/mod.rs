//! The table and the verdict for a terminal.

mod causes;
mod ink;
mod table;

use crate::text;
use crate::verdict;
use crate::view::{Group, groups};
use crate::warnings;
use ink::Ink;
use result::{Comparison, MadeBy, Point, RunResult, Verdict};

/// Narrowest terminal that is laid out for, columns.
pub const NARROWEST: usize = 40;

/// Widest layout, columns: lines longer than this are hard to read.
pub const WIDEST: usize = 120;

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
                    causes::recorded(&mut out, row.point);
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
    causes::group(out, result, group);
    let remedies: Vec<&Point> =
        group.rows.iter().map(|r| r.point).filter(|p| !p.remedies.is_empty()).collect();
    if !remedies.is_empty() {
        out.blank();
        table::remedies(out, &remedies);
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
    if let Some(p) = c.p() {
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
        words.extend(agreement(result));
        words.push("shares are attribution, not winnable gain".to_owned());
        out.blank();
        out.line(&words.join(" · "));
    }
}

/// By how much the sources of a budget leave time unexplained, or explain it twice: the worst of all points.
fn agreement(result: &RunResult) -> Option<String> {
    let shares = result.points.iter().filter_map(|p| match (&p.recorded, &p.budget_us_per_op) {
        (Some(seen), _) => seen.unaccounted_s.filter(|_| seen.capacity_s > 0.0).map(|s| s / seen.capacity_s),
        (None, Some(budget)) => {
            budget.unaccounted.zip(budget.total.filter(|t| *t > 0.0)).map(|(part, total)| part / total)
        }
        (None, None) => None,
    });
    let worst = shares.map(f64::abs).max_by(f64::total_cmp)?;
    Some(format!("sources agree within {}", text::percent(worst)))
}
