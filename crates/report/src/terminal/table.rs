//! Tables that give up their least important columns until they fit.

use super::Out;
use super::ink::Ink;
use crate::text::{self, NONE};
use crate::verdict;
use crate::view::{Group, Row};
use result::{Budget, Point};

/// One column.
struct Column {
    head: &'static str,
    /// The lowest goes first when the table is too wide; 0 stays.
    keep: u8,
    /// Whether it begins the budget.
    budget: bool,
    cells: Vec<String>,
}

impl Column {
    fn width(&self) -> usize {
        self.cells.iter().map(|c| text::width(c)).chain([text::width(self.head)]).max().unwrap_or(0)
    }
}

/// Longest name of a target that a table shows, columns.
const TARGET: usize = 28;

/// Share of the budget from which a part is worth a column of its own.
const MATTERS: f64 = 0.02;

/// Relative half width of an interval beyond which it is marked.
const WIDE_INTERVAL: f64 = 0.10;

/// The points of a group.
pub(super) fn points(out: &mut Out, group: &Group<'_>) {
    let rows = &group.rows;
    let cell = |f: &dyn Fn(&Row<'_>) -> Option<String>| -> Vec<String> {
        rows.iter().map(|r| f(r).unwrap_or_else(|| NONE.to_owned())).collect()
    };
    let part = |f: fn(&Budget) -> Option<f64>| -> Vec<String> {
        rows.iter()
            .map(|r| {
                let budget = r.point.budget_us_per_op.as_ref().filter(|_| r.point.valid);
                text::micros_or_none(budget.and_then(f))
            })
            .collect()
    };
    let limit = if out.width < 60 { 14 } else { TARGET };
    let mut previous = None;
    let targets: Vec<String> = rows
        .iter()
        .map(|r| {
            let target = r.point.target.as_str();
            let again = previous == Some(target);
            previous = Some(target);
            if again { String::new() } else { text::plain(target, limit) }
        })
        .collect();
    let mut columns = vec![
        Column { head: "target", keep: 0, budget: false, cells: targets },
        Column { head: "tasks", keep: 0, budget: false, cells: cell(&|r| Some(r.point.tasks.to_string())) },
        Column {
            head: "ops/s",
            keep: 0,
            budget: false,
            cells: cell(&|r| {
                if r.point.valid { r.point.rate().map(text::rate) } else { Some("void".to_owned()) }
            }),
        },
        Column {
            head: "±",
            keep: 11,
            budget: false,
            cells: cell(&|r| {
                let estimate = r.point.ops_per_s.as_ref().filter(|_| r.point.valid)?;
                if estimate.rounds.len() == 1 {
                    return None;
                }
                let half = estimate.relative_half_width();
                let mark = if half > WIDE_INTERVAL { "!" } else { " " };
                Some(format!("{}{mark}", text::percent(half).replace(' ', "")))
            }),
        },
        Column {
            head: "of best",
            keep: 9,
            budget: false,
            cells: cell(&|r| r.of_best.map(|s| text::percent(s).replace(' ', ""))),
        },
        Column { head: "scaling", keep: 8, budget: false, cells: cell(&|r| r.scaling.map(text::ratio)) },
        Column {
            head: "spread",
            keep: 3,
            budget: false,
            cells: cell(&|r| r.spread().map(|s| text::percent(s).replace(' ', ""))),
        },
        Column { head: "total", keep: 10, budget: true, cells: part(|b| b.total) },
        Column { head: "user", keep: 6, budget: false, cells: part(|b| b.user) },
        Column { head: "sys", keep: 7, budget: false, cells: part(|b| b.system) },
        Column { head: "spin", keep: 5, budget: false, cells: part(|b| b.spin) },
        Column { head: "idle", keep: 10, budget: false, cells: part(|b| b.idle) },
        Column { head: "unused", keep: 2, budget: false, cells: part(|b| b.unused) },
        Column { head: "steal", keep: 4, budget: false, cells: part(|b| b.steal) },
    ];
    // The rarer parts have a column where one of them is large enough to matter.
    for (head, of) in [
        ("irq", (|b| b.irq) as fn(&Budget) -> Option<f64>),
        ("elsewhere", |b| b.system_elsewhere),
        ("other", |b| b.other),
    ] {
        let large = |b: &Budget| of(b).zip(b.total).is_some_and(|(us, total)| us >= MATTERS * total);
        if rows.iter().any(|r| r.point.valid && r.point.budget_us_per_op.as_ref().is_some_and(large)) {
            columns.push(Column { head, keep: 6, budget: false, cells: part(of) });
        }
    }
    // Columns that say nothing in any row are left out; the mandatory ones stay.
    const MAY_BE_ABSENT: [&str; 4] = ["unused", "of best", "spread", "scaling"];
    columns.retain(|c| !MAY_BE_ABSENT.contains(&c.head) || c.cells.iter().any(|t| t != NONE));
    // Without any budget its columns say nothing, not even that a part is missing.
    if rows.iter().all(|r| !r.point.valid || r.point.budget_us_per_op.is_none())
        && let Some(first) = columns.iter().position(|c| c.budget)
    {
        columns.truncate(first);
    }
    while total_width(&columns) > out.width {
        let Some(first) =
            (0..columns.len()).filter(|i| columns[*i].keep > 0).min_by_key(|i| columns[*i].keep)
        else {
            break;
        };
        let gone = columns.remove(first);
        if gone.budget
            && let Some(next) = columns.get_mut(first)
        {
            next.budget = true;
        }
    }
    draw(out, &columns);
}

/// The label over the budget's columns.
const BUDGET: &str = "CPU-us per op:";

fn total_width(columns: &[Column]) -> usize {
    let mut width = 1;
    let mut budget = None;
    for (i, column) in columns.iter().enumerate() {
        if i > 0 {
            width += 2;
        }
        if column.budget {
            width += 2;
            budget = Some(width);
        }
        width += column.width();
    }
    // The label has to find room beside the first head of the budget.
    budget.map_or(width, |start| width.max(start + text::width(BUDGET)))
}

fn draw(out: &mut Out, columns: &[Column]) {
    let ink = out.ink;
    let rows = columns.first().map_or(0, |c| c.cells.len());
    if columns.iter().any(|c| c.budget) {
        let mut over = String::new();
        for (i, column) in columns.iter().enumerate() {
            if column.budget {
                over.push_str("  │ ");
                over.push_str(BUDGET);
                break;
            }
            over.push_str(if i == 0 { " " } else { "  " });
            over.push_str(&" ".repeat(column.width()));
        }
        out.lines.push(ink.dim(&over));
    }
    let mut head = String::new();
    for (i, column) in columns.iter().enumerate() {
        head.push_str(&joint(i, column, ink, false));
        head.push_str(&aligned(i, column.head, column.width()));
    }
    out.lines.push(ink.bold(head.trim_end()));
    for row in 0..rows {
        let mut line = String::new();
        for (i, column) in columns.iter().enumerate() {
            line.push_str(&joint(i, column, ink, true));
            let cell = &column.cells[row];
            let filled = aligned(i, cell, column.width());
            line.push_str(&match cell.as_str() {
                NONE => ink.dim(&filled),
                "void" => ink.red(&filled),
                c if c.ends_with('!') => ink.yellow(&filled),
                _ => filled,
            });
        }
        out.lines.push(line.trim_end().to_owned());
    }
}

/// What stands before a column.
fn joint(i: usize, column: &Column, ink: Ink, painted: bool) -> String {
    match (i, column.budget) {
        (0, _) => " ".to_owned(),
        (_, true) if painted => format!("  {} ", ink.dim("│")),
        (_, true) => "  │ ".to_owned(),
        _ => "  ".to_owned(),
    }
}

/// Names to the left, numbers to the right.
fn aligned(i: usize, cell: &str, width: usize) -> String {
    if i == 0 { text::left(cell, width) } else { text::right(cell, width) }
}

/// The remedies of points.
pub(super) fn remedies(out: &mut Out, points: &[&Point]) {
    let several = points.len() > 1;
    let mut lines = Vec::new();
    for point in points {
        for remedy in &point.remedies {
            let what = if several {
                format!(
                    "{} {}: {}",
                    text::plain(&point.target, 20),
                    point.tasks,
                    text::plain(&remedy.what, 60)
                )
            } else {
                text::plain(&remedy.what, 60)
            };
            lines.push([
                what,
                remedy.ops_per_s.map_or_else(|| NONE.to_owned(), |r| text::plain(&text::rate(r), 10)),
                text::plain(&verdict::gain_words(remedy), 20),
                verdict::how_words(remedy),
            ]);
        }
    }
    const HEADS: [&str; 4] = ["Remedy", "ops/s", "gain", "how"];
    let width =
        |i: usize| lines.iter().map(|l| text::width(&l[i])).chain([text::width(HEADS[i])]).max().unwrap_or(0);
    let (rate, gain) = (width(1), width(2));
    // Too narrow for a column of its own: the way it is known goes to a line below.
    let below = out.width < rate + gain + 36;
    let room = out.width.saturating_sub(rate + gain + if below { 5 } else { 24 });
    let what = width(0).min(room.max(4));
    let mut head = format!(
        " {}  {}  {}",
        text::left(&text::plain(HEADS[0], what), what),
        text::right(HEADS[1], rate),
        text::left(HEADS[2], gain)
    );
    if !below {
        head.push_str("  ");
        head.push_str(HEADS[3]);
    }
    out.lines.push(out.ink.bold(head.trim_end()));
    for [name, ops, factor, how] in &lines {
        let start = format!(
            " {}  {}  {}  ",
            text::left(&text::plain(name, what), what),
            text::right(ops, rate),
            text::left(factor, gain)
        );
        let indent = text::width(&start);
        if below {
            out.lines.push(start.trim_end().to_owned());
            out.lines.extend(text::wrap(&format!("   {how}"), out.width, 3));
            continue;
        }
        for (i, line) in
            text::wrap(&format!("{}{how}", " ".repeat(indent)), out.width, indent).into_iter().enumerate()
        {
            out.lines.push(if i == 0 { format!("{start}{}", &line[indent..]) } else { line });
        }
    }
}
