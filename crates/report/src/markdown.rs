//! Markdown for an issue or a mailing list: readable as it is, a table where it is rendered.

use crate::terminal::comparison_line;
use crate::text::{self, NONE, plain};
use crate::verdict;
use crate::view::{Group, groups};
use crate::warnings;
use result::{Budget, MadeBy, Mode, RunResult};

/// Longest cell, columns.
const CELL: usize = 120;

/// Text from anywhere as Markdown that shows it and does nothing else.
pub fn escape(text: &str) -> String {
    let mut out = String::new();
    let text = plain(text, 2000);
    let mut before = None;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        // Within a word `_` is itself, and names of functions stay readable where nothing is rendered.
        let within = before.is_some_and(char::is_alphanumeric)
            && rest.peek().copied().is_some_and(char::is_alphanumeric);
        before = Some(c);
        match c {
            '_' if !within => out.push_str("\\_"),
            // A backslash before punctuation is the punctuation; `<`, `&` and `@` are escaped so that neither HTML nor
            // a mention comes of them, `:` and `.` so that no bare address becomes a link. `(` and `!` are nothing
            // beside brackets that are escaped.
            '\\' | '`' | '*' | '{' | '}' | '[' | ']' | '<' | '>' | '#' | '|' | '~' | '&' => {
                out.push('\\');
                out.push(c);
            }
            '@' => out.push_str("&#64;"),
            c => out.push(c),
        }
    }
    out.replace("://", "&#58;//").replace("www.", "www&#46;")
}

/// A result as Markdown: per workload a table, the verdict, the roots; then warnings and how to reproduce it.
pub fn render(result: &RunResult) -> String {
    let mut out = String::new();
    for group in groups(result) {
        out.push_str(&format!("### {}\n\n", escape(&verdict::heading(result, &group))));
        if group.mode != Mode::Recorded {
            table(&mut out, &group);
        }
        for p in group.rows.iter().map(|r| r.point).filter(|p| p.recorded.is_some()) {
            let lines = [p.recorded.as_ref().and_then(verdict::busy_words), verdict::idle_words(p)];
            out.extend(lines.into_iter().flatten().map(|line| format!("{}\n", escape(&line))));
        }
        for sentence in verdict::sentences(result, &group) {
            out.push_str(&format!("{}\n", escape(&sentence)));
        }
        for line in warnings::void_lines(group.rows.iter().map(|r| r.point)) {
            out.push_str(&format!("\n**{}**\n", escape(&line)));
        }
        for row in &group.rows {
            let p = row.point;
            if !p.roots.is_empty() {
                roots(&mut out, p);
            }
        }
        out.push('\n');
    }
    if result.points.is_empty() {
        out.push_str("Nothing was measured.\n\n");
    }
    if !result.comparisons.is_empty() {
        for c in result.comparisons.iter().take(100) {
            out.push_str(&format!("- {}\n", escape(&comparison_line(c))));
        }
        out.push('\n');
    }
    let mut warnings: Vec<String> = warnings::lines(result).iter().take(50).map(|w| escape(w)).collect();
    if !result.complete {
        warnings.push(if result.interrupted { "interrupted" } else { "not complete" }.to_owned());
    }
    for w in &warnings {
        out.push_str(&format!("> - {w}\n"));
    }
    if !warnings.is_empty() {
        out.push('\n');
    }
    // Indented code needs no fence that a command could close.
    let command = plain(&text::shell(&result.command), 4000);
    if !command.is_empty() {
        out.push_str(&format!("    {command}\n\n"));
    }
    let m = &result.machine;
    let seed = match result.made_by {
        MadeBy::Run => format!(" · seed {}", result.seed),
        MadeBy::Record => String::new(),
    };
    out.push_str(&escape(&format!(
        "perfloss {} · {}{seed} · {} · Linux {}",
        result.perfloss_version, result.schema, m.cpu_model, m.kernel
    )));
    out.push('\n');
    out
}

fn table(out: &mut String, group: &Group<'_>) {
    let heads = [
        "target", "tasks", "ops/s", "±", "of best", "scaling", "total", "user", "sys", "spin", "idle",
        "steal",
    ];
    let mut lines: Vec<Vec<String>> = vec![heads.iter().map(|h| (*h).to_owned()).collect()];
    for row in group.rows.iter().take(2000) {
        let p = row.point;
        let e = p.ops_per_s.as_ref().filter(|_| p.valid);
        let none = || NONE.to_owned();
        let b = p.budget_us_per_op.as_ref().filter(|_| p.valid);
        let part = |f: fn(&Budget) -> Option<f64>| text::micros_or_none(b.and_then(f));
        lines.push(vec![
            escape(&plain(&p.target, CELL)),
            p.tasks.to_string(),
            if p.valid { e.map_or_else(none, |e| text::rate(e.median)) } else { "void".to_owned() },
            e.filter(|e| e.rounds.len() != 1).map_or_else(none, |e| text::percent(e.relative_half_width())),
            row.of_best.map_or_else(none, text::percent),
            row.scaling.map_or_else(none, text::ratio),
            part(|b| b.total),
            part(|b| b.user),
            part(|b| b.system),
            part(|b| b.spin),
            part(|b| b.idle),
            part(|b| b.steal),
        ]);
    }
    grid(out, &lines);
    out.push_str("\nThe columns from total on are CPU-us per operation.\n\n");
}

/// A table whose columns line up in the source, too: the first to the left, the others to the right.
pub(crate) fn grid(out: &mut String, lines: &[Vec<String>]) {
    let columns = lines.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|i| lines.iter().filter_map(|l| l.get(i)).map(|c| text::width(c)).max().unwrap_or(0).max(3))
        .collect();
    for (n, line) in lines.iter().enumerate() {
        out.push('|');
        for (i, cell) in line.iter().enumerate() {
            let cell = if i == 0 { text::left(cell, widths[i]) } else { text::right(cell, widths[i]) };
            out.push_str(&format!(" {cell} |"));
        }
        out.push('\n');
        if n == 0 {
            out.push('|');
            for (i, w) in widths.iter().enumerate() {
                let rule = "-".repeat(*w);
                out.push_str(&if i == 0 { format!(" {rule} |") } else { format!(" {}: |", &rule[1..]) });
            }
            out.push('\n');
        }
    }
}

fn roots(out: &mut String, p: &result::Point) {
    // Of a recording the heading has said it.
    let name = format!("{} at {}", plain(&p.target, CELL), text::tasks(p.tasks));
    match p.mode {
        Mode::Recorded => out.push('\n'),
        _ => out.push_str(&format!("\n**{}**\n\n", escape(&name))),
    }
    for root in p.roots.iter().take(10) {
        let mut line = format!("{}: {}", verdict::root_size(root), verdict::lock_words(&root.lock));
        if let Some(split) = &root.split {
            line.push_str(&format!(" · {}", verdict::split_words(split)));
        }
        if root.disturbed {
            line.push_str(" · disturbed by capture");
        }
        out.push_str(&format!("- {}\n", escape(&line)));
        for path in root.paths.iter().take(3) {
            out.push_str(&format!(
                "  - {} {}\n",
                text::percent(path.share),
                escape(&verdict::path_words(&root.paths, path))
            ));
        }
        if !root.holders.is_empty() {
            let label = verdict::holders_label(root).to_lowercase();
            out.push_str(&format!("  - {label} by {}\n", escape(&verdict::holders_words(root))));
        }
    }
    for r in p.remedies.iter().take(10) {
        out.push_str(&format!(
            "- remedy: {}, {} ({})\n",
            escape(&plain(&r.what, CELL)),
            escape(&verdict::gain_words(r)),
            escape(&verdict::how_words(r))
        ));
    }
}
