//! A short stretch in full: tasks as rows, states as colours, hand-offs as arrows. Here a convoy can be seen.

use super::chart::nice;
use crate::text::{self, plain};
use maud::{Markup, html};
use result::{TaskState, Timeline};

/// Rows, intervals and hand-offs that are drawn; more cannot be seen.
const ROWS: usize = 40;
const INTERVALS: usize = 6000;
const HAND_OFFS: usize = 600;

const LEFT: f64 = 170.0;
const RIGHT: f64 = 990.0;
const ROW: f64 = 26.0;
const TOP: f64 = 24.0;

/// The drawing, its legend, and the same in figures.
pub(super) fn section(timeline: &Timeline) -> Markup {
    let rows = &timeline.rows[..timeline.rows.len().min(ROWS)];
    let length = timeline.length_us;
    if rows.is_empty() || !(length > 0.0 && length < 1e15) {
        return html! {};
    }
    let step = nice(length).1;
    let x = |us: f64| LEFT + (us / length).clamp(0.0, 1.0) * (RIGHT - LEFT);
    let y = |row: usize| TOP + row as f64 * ROW;
    let height = y(rows.len()) + 6.0;
    let states = [
        TaskState::Running,
        TaskState::Spinning,
        TaskState::Runnable,
        TaskState::BlockedLock,
        TaskState::BlockedIo,
        TaskState::Blocked,
        TaskState::Unknown,
    ];
    let lock = |index: Option<u32>| index.and_then(|i| timeline.locks.get(i as usize)).map(|l| plain(l, 120));
    let mut left = INTERVALS;
    let drawn: Vec<(usize, &result::Interval)> = rows
        .iter()
        .enumerate()
        .flat_map(|(i, r)| r.intervals.iter().map(move |interval| (i, interval)))
        .filter(|(_, i)| i.us > 0.0 && i.at_us < length && i.at_us + i.us > 0.0)
        .take_while(|_| {
            left = left.saturating_sub(1);
            left > 0
        })
        .collect();
    let totals = |row: usize, state: TaskState| -> f64 {
        rows[row]
            .intervals
            .iter()
            .filter(|i| i.state == state)
            .map(|i| (i.at_us + i.us).min(length) - i.at_us.max(0.0))
            .filter(|us| *us > 0.0)
            .sum()
    };
    html! {
        h3 { "A stretch of time" }
        p.note {
            (text::micros(length)) " us, from " (format!("{:.4}", timeline.start_s)) " s into the captured window. "
            "Arrows are hand-offs: from the release to the moment the next holder runs."
        }
        div.scroll tabindex="0" role="region" aria-label="Timeline" {
            svg.wide.timeline viewBox=(format!("0 0 1000 {height:.0}")) role="img"
                aria-label=(format!("Timeline of {} tasks over {} us; the totals are in the table below", rows.len(), text::micros(length))) {
                @for i in 0..=((length / step * (1.0 + 1e-9)).min(10.0) as u32) {
                    @let at = step * f64::from(i);
                    line.grid x1=(n(x(at))) x2=(n(x(at))) y1=(TOP - 6.0) y2=(n(height - 6.0)) {}
                    text.soft x=(n(x(at))) y="13" text-anchor=(if at > 0.97 * length { "end" } else { "middle" }) { (text::micros(at)) @if i == 0 { " us" } }
                }
                @for (i, row) in rows.iter().enumerate() {
                    text x=(LEFT - 6.0) y=(n(y(i) + 14.0)) text-anchor="end" { (plain(&row.comm, 18)) " " (row.tid) }
                }
                @for (i, interval) in &drawn {
                    @let (x0, x1) = (x(interval.at_us), x(interval.at_us + interval.us));
                    rect x=(n(x0)) y=(n(y(*i))) width=(format!("{:.2}", (x1 - x0).max(0.3))) height="18"
                        style=(format!("fill:var(--{})", variable(interval.state))) {
                        title {
                            (interval.state.words()) " " (text::micros(interval.us)) " us"
                            @if let Some(cpu) = interval.cpu { " on CPU " (cpu) }
                            @if let Some(name) = lock(interval.lock) { ", " (name) }
                        }
                    }
                }
                @for h in timeline.hand_offs.iter().take(HAND_OFFS) {
                    @if (h.to as usize) < rows.len() && h.runs_us >= 0.0 && h.released_us <= length {
                        @let to = h.to as usize;
                        @let from = h.from.map(|f| f as usize).filter(|f| *f < rows.len()).unwrap_or(to);
                        @let (x0, x1) = (x(h.released_us), x(h.runs_us));
                        // From the edge of the one row to the edge of the other, with a head at the end.
                        @let (y0, y1) = if from <= to { (y(from) + 18.0, y(to)) } else { (y(from), y(to) + 18.0) };
                        g.hand-off style="stroke:var(--ink);fill:var(--ink);stroke-width:1" {
                            line x1=(n(x0)) y1=(n(y0)) x2=(n(x1)) y2=(n(y1)) {}
                            @let d = if from <= to { -5.0 } else { 5.0 };
                            polygon points=(format!("{},{} {},{} {},{}", n(x1), n(y1), n(x1 - 3.0), n(y1 + d), n(x1 + 3.0), n(y1 + d))) {}
                            title {
                                "hand-off " (text::micros(h.runs_us - h.released_us)) " us"
                                @match h.cpu_idle { Some(true) => ", on an idle CPU", Some(false) => ", on a busy CPU", None => "" }
                                @if let Some(name) = lock(h.lock) { ", " (name) }
                            }
                        }
                    }
                }
            }
        }
        ul.legend {
            @for state in states.into_iter().filter(|s| drawn.iter().any(|(_, i)| i.state == *s)) {
                li { span.swatch style=(format!("background:var(--{})", variable(state))) {} (state.words()) }
            }
        }
        @if timeline.rows.len() > rows.len() { p.note { (timeline.rows.len() - rows.len()) " more tasks are not drawn." } }
        details {
            summary { "The same in figures: share of the stretch" }
            div.scroll tabindex="0" role="region" aria-label="States of the tasks" {
                table {
                    thead { tr { th.l scope="col" { "task" } @for s in states { th scope="col" { (s.words()) } } } }
                    tbody {
                        @for (i, row) in rows.iter().enumerate() {
                            tr {
                                th.l scope="row" { (plain(&row.comm, 40)) " " (row.tid) }
                                @for s in states { td { (text::percent(totals(i, s) / length)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn n(value: f64) -> String {
    format!("{value:.1}")
}

fn variable(state: TaskState) -> &'static str {
    match state {
        TaskState::Running => "running",
        TaskState::Spinning => "spinning",
        TaskState::Runnable => "runnable",
        TaskState::BlockedLock => "blocked_lock",
        TaskState::BlockedIo => "blocked_io",
        TaskState::Blocked => "blocked",
        TaskState::Unknown => "unknown",
    }
}
