//! What `compare` found, for a terminal and as Markdown. Its JSON is the report itself.

use crate::markdown::{escape, grid};
use crate::terminal::{NARROWEST, WIDEST, p_words};
use crate::text::{self, NONE, plain};
use crate::verdict;
use result::{Comparison, ComparisonReport, PointRef, RootChange};

/// Roots that are named per comparison.
const ROOTS: usize = 3;

/// `create_unlink on xfs, 2 tasks`, or both where they differ.
fn what(c: &Comparison) -> String {
    let both = |a: &str, b: &str| {
        if a == b { plain(b, 40) } else { format!("{} → {}", plain(a, 30), plain(b, 30)) }
    };
    let tasks = if c.a.tasks == c.b.tasks {
        text::tasks(c.b.tasks)
    } else {
        format!("{} → {}", c.a.tasks, text::tasks(c.b.tasks))
    };
    let mode = if c.b.mode == result::Mode::Threads { " (threads)" } else { "" };
    format!("{} on {}, {tasks}{mode}", both(&c.a.workload, &c.b.workload), both(&c.a.target, &c.b.target))
}

/// The name of a point.
fn point(p: &PointRef) -> String {
    format!("{} on {}, {}", plain(&p.workload, 40), plain(&p.target, 40), text::tasks(p.tasks))
}

fn change_words(change: &RootChange) -> String {
    let lock = verdict::lock_words(&change.lock);
    match (change.a_us_per_op, change.b_us_per_op) {
        (None, Some(b)) => format!("new: {lock} (+{} us)", text::micros(b)),
        (Some(a), None) => format!("gone: {lock} (−{} us)", text::micros(a)),
        (Some(a), Some(b)) => format!("{lock} ({} us)", text::signed_micros(b - a)),
        (None, None) => lock,
    }
}

/// Where the difference goes, in words; empty when nothing is known or nothing differs.
fn cost(c: &Comparison) -> String {
    let Some(difference) = &c.difference_us_per_op else {
        return String::new();
    };
    let Some(total) = difference.total.filter(|t| t.abs() >= 0.05) else {
        return String::new();
    };
    let parts = verdict::cost_words(|p| difference.part(p), total);
    let sum = format!("{} CPU-us an operation", text::signed_micros(total));
    if parts.is_empty() { sum } else { format!("{sum}: {parts}") }
}

fn sides(report: &ComparisonReport) -> Vec<String> {
    [("base", &report.base), ("new", &report.new)]
        .into_iter()
        .map(|(label, r)| {
            let mut line = format!("{label}  {}", plain(&r.path, 200));
            if !r.kernel.is_empty() {
                line.push_str(&format!(" · Linux {}", plain(&r.kernel, 60)));
            }
            if !r.started.is_empty() {
                line.push_str(&format!(" · {}", plain(&r.started, 40)));
            }
            if !r.complete {
                line.push_str(" · not complete");
            }
            line
        })
        .collect()
}

fn conclusion(report: &ComparisonReport) -> String {
    let count = |f: &dyn Fn(&Comparison) -> bool| report.comparisons.iter().filter(|c| f(c)).count();
    let (slower, faster) =
        (count(&|c| c.verdict == result::Verdict::Slower), count(&|c| c.verdict == result::Verdict::Faster));
    let (same, unsure) = (
        count(&|c| c.verdict == result::Verdict::NoDifference),
        count(&|c| c.verdict == result::Verdict::CannotSay),
    );
    let mut line = format!("{slower} slower · {faster} faster · {same} no difference · {unsure} cannot say");
    if !report.refused.is_empty() {
        line.push_str(&format!(" · {} not compared", report.refused.len()));
    }
    if report.loss_found {
        line.push_str(&if report.fail_above > 0.0 {
            format!(": a loss of more than {} was found", text::percent(report.fail_above))
        } else {
            ": a significant loss was found".to_owned()
        });
    }
    line
}

/// For a terminal of so many columns. Ends with a newline.
pub fn terminal(report: &ComparisonReport, width: usize, color: bool) -> String {
    let width = width.clamp(NARROWEST, WIDEST);
    let paint = |code: &str, line: String| if color { format!("\x1b[{code}m{line}\x1b[0m") } else { line };
    let mut lines: Vec<String> = Vec::new();
    for side in sides(report) {
        lines.extend(text::wrap(&side, width, 6));
    }
    if let Some(noise) = &report.noise {
        let line = format!("noise {} ({})", text::percent(noise.threshold), plain(&noise.how, 200));
        lines.extend(text::wrap(&line, width, 6));
    }
    lines.push(String::new());
    for c in &report.comparisons {
        let code = match c.verdict {
            result::Verdict::Slower => "31",
            result::Verdict::Faster => "32",
            _ => "0",
        };
        let mut line = format!("{}: {}", what(c), c.verdict.words());
        if let Some(ratio) = c.ratio {
            line.push_str(&format!(", ×{}", text::ratio(ratio)));
        }
        if let (Some(low), Some(high)) = (c.low, c.high) {
            line.push_str(&format!(" ({}–{})", text::ratio(low), text::ratio(high)));
        }
        if let Some(p) = c.p() {
            line.push_str(&format!(", {}", p_words(p)));
        }
        if let (Some(a), Some(b)) = (c.a_ops_per_s, c.b_ops_per_s) {
            line.push_str(&format!(", {} → {} ops/s", text::rate(a), text::rate(b)));
        }
        lines.extend(text::wrap(&line, width, 4).into_iter().map(|l| paint(code, l)));
        let cost = cost(c);
        if !cost.is_empty() {
            lines.extend(text::wrap(&format!("    {cost}"), width, 4));
        }
        for change in c.roots.iter().take(ROOTS) {
            lines.extend(text::wrap(&format!("    {}", change_words(change)), width, 6));
        }
        for because in c.because.iter().take(3) {
            lines.extend(text::wrap(&format!("    {}", plain(because, 300)), width, 4));
        }
    }
    if !report.comparisons.is_empty() {
        lines.push(String::new());
    }
    for refusal in report.refused.iter().take(50) {
        let line = match &refusal.point {
            Some(p) => format!("! not compared: {}: {}", point(p), plain(&refusal.why, 300)),
            None => format!("! not compared: {}", plain(&refusal.why, 300)),
        };
        lines.extend(text::wrap(&line, width, 2).into_iter().map(|l| paint("33", l)));
    }
    for note in report.notes.iter().take(50) {
        lines.extend(
            text::wrap(&format!("! {}", plain(note, 300)), width, 2).into_iter().map(|l| paint("33", l)),
        );
    }
    lines.extend(text::wrap(&conclusion(report), width, 2));
    let mut out = lines.join("\n");
    out.push('\n');
    out
}

/// For an issue or a mailing list.
pub fn markdown(report: &ComparisonReport) -> String {
    let mut out = String::new();
    for side in sides(report) {
        out.push_str(&format!("- {}\n", escape(&side)));
    }
    if let Some(noise) = &report.noise {
        out.push_str(&format!("- noise {} ({})\n", text::percent(noise.threshold), escape(&noise.how)));
    }
    out.push('\n');
    let none = || NONE.to_owned();
    let mut table: Vec<Vec<String>> = vec![
        ["point", "base ops/s", "new ops/s", "ratio", "95 %", "p", "CPU-us per op", "verdict"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for c in &report.comparisons {
        table.push(vec![
            escape(&what(c)),
            c.a_ops_per_s.map_or_else(none, text::rate),
            c.b_ops_per_s.map_or_else(none, text::rate),
            c.ratio.map_or_else(none, text::ratio),
            match (c.low, c.high) {
                (Some(l), Some(h)) => format!("{}–{}", text::ratio(l), text::ratio(h)),
                _ => none(),
            },
            c.p().map_or_else(none, p_words),
            c.difference_us_per_op.as_ref().and_then(|d| d.total).map_or_else(none, text::signed_micros),
            c.verdict.words().to_owned(),
        ]);
    }
    if table.len() > 1 {
        grid(&mut out, &table);
        out.push('\n');
    }
    for c in report.comparisons.iter().filter(|c| c.verdict.is_significant()) {
        let cost = cost(c);
        if !cost.is_empty() {
            out.push_str(&format!("- {}: {}\n", escape(&what(c)), escape(&cost)));
        }
        for change in c.roots.iter().take(ROOTS) {
            out.push_str(&format!("  - {}\n", escape(&change_words(change))));
        }
    }
    for refusal in &report.refused {
        let place = refusal.point.as_ref().map_or(String::new(), |p| format!("{}: ", point(p)));
        out.push_str(&format!("- not compared: {}{}\n", escape(&place), escape(&refusal.why)));
    }
    for note in &report.notes {
        out.push_str(&format!("> {}\n", escape(note)));
    }
    out.push_str(&format!("\n{}\n", escape(&conclusion(report))));
    out
}
