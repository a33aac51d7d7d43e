//! Throughput over tasks: a line per target with intervals, the ideal, and where cores and CPUs end.

use super::NAME;
use crate::text::{self, plain};
use crate::view::{Group, Row};
use maud::{Markup, html};
use result::RunResult;

/// Size of the drawing; it scales to its column.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 404.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 258.0;

/// Targets that are drawn; a chart of more lines cannot be read, the table has them all.
const LINES: usize = 16;

/// Maps values to the drawing.
struct Scale {
    first: f64,
    last: f64,
    logarithmic: bool,
    top: f64,
}

impl Scale {
    fn x(&self, tasks: f64) -> f64 {
        let f = if self.logarithmic { f64::log2 } else { |v| v };
        let (a, b) = (f(self.first), f(self.last));
        if b > a {
            LEFT + 16.0 + (f(tasks) - a) / (b - a) * (RIGHT - LEFT - 32.0)
        } else {
            (LEFT + RIGHT) / 2.0
        }
    }

    fn y(&self, rate: f64) -> f64 {
        BOTTOM - (rate / self.top).clamp(0.0, 1.0) * (BOTTOM - TOP)
    }
}

/// The chart of a group, with its legend.
pub(super) fn throughput(result: &RunResult, group: &Group<'_>, index: usize) -> Markup {
    let rows: Vec<&Row<'_>> = group.rows.iter().filter(|r| drawable(r)).collect();
    let all = group.targets();
    let targets: Vec<&str> =
        all.iter().copied().filter(|t| rows.iter().any(|r| r.point.target == *t)).take(LINES).collect();
    let Some(top) = rows
        .iter()
        .filter_map(|r| r.point.ops_per_s.as_ref())
        .map(|e| e.high.max(e.median))
        .max_by(f64::total_cmp)
    else {
        return html! { p.note { "No throughput to draw." } };
    };
    let (first, last) =
        rows.iter().fold((u32::MAX, 1), |(a, b), r| (a.min(r.point.tasks), b.max(r.point.tasks)));
    let (first, last) = (f64::from(first.max(1)), f64::from(last.max(1)));
    let (top, step) = nice(top);
    let scale = Scale { first, last, logarithmic: last / first >= 8.0, top };
    let mut ticks: Vec<u32> = rows.iter().map(|r| r.point.tasks).collect();
    ticks.sort_unstable();
    ticks.dedup();
    let id = format!("chart-{index}");
    let description = format!(
        "Operations a second over tasks, one line for each of {} targets; the figures are in the table below.",
        targets.len()
    );
    html! {
        figure style="max-width:34rem" {
            svg #(id) viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(description) data-top=(top) {
                title { "Throughput of " (plain(group.workload, NAME)) }
                @for i in 0..=((top / step).round() as u32) {
                    @let value = f64::from(i) * step;
                    @let y = scale.y(value);
                    line.grid x1=(LEFT) x2=(RIGHT) y1=(n(y)) y2=(n(y)) {}
                    text.soft x=(LEFT - 6.0) y=(n(y + 4.0)) text-anchor="end" { (axis_number(value)) }
                }
                text.soft x="4" y="12" { "ops/s" }
                @for tasks in thinned(&ticks, &scale) {
                    text.soft x=(n(scale.x(f64::from(tasks)))) y=(BOTTOM + 18.0) text-anchor="middle" { (tasks) }
                }
                text.soft x=((LEFT + RIGHT) / 2.0) y=(BOTTOM + 36.0) text-anchor="middle" { "tasks" }
                line.axis x1=(LEFT) x2=(RIGHT) y1=(BOTTOM) y2=(BOTTOM) {}
                (boundaries(result, &scale))
                (ideal(result, &rows, &scale))
                @for (i, target) in targets.iter().enumerate() {
                    (line(&rows, target, i, &scale))
                }
            }
            ul.legend {
                @for (i, target) in targets.iter().enumerate() {
                    li {
                        button.line type="button" aria-pressed="true" data-chart=(id) data-target=(i)
                            title="Show or hide this line" {
                            svg width="26" height="12" viewBox="0 0 26 12" style="width:26px;display:inline-block;vertical-align:middle" aria-hidden="true" {
                                line x1="1" x2="25" y1="6" y2="6" style=(stroke(i)) {}
                                (marker(i, 13.0, 6.0))
                            }
                            " " (plain(target, 40))
                        }
                    }
                }
            }
            figcaption {
                "Median of the rounds; bars are 95 % intervals."
                @if smt_cores(result).is_some_and(|cores| (first..last).contains(&cores)) {
                    " Dashed: where the cores end, beyond which tasks share them, and where the CPUs end."
                }
                @if last > first { " Dotted: the best single task, times the tasks, up to the allowed CPUs." }
                @if all.len() > targets.len() { " " (all.len() - targets.len()) " targets without a line are in the table." }
            }
        }
    }
}

fn drawable(row: &Row<'_>) -> bool {
    row.point.valid
        && row.point.ops_per_s.as_ref().is_some_and(|e| {
            [e.median, e.low, e.high].iter().all(|v| v.is_finite() && (0.0..1e18).contains(v))
        })
}

/// A number for an attribute.
fn n(value: f64) -> String {
    format!("{value:.1}")
}

/// The end of an axis and its step: 1, 2 or 5 times a power of ten, four to eight steps.
pub(super) fn nice(top: f64) -> (f64, f64) {
    let top = if top > 0.0 { top } else { 1.0 };
    let rough = top / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * power).find(|s| *s >= rough).unwrap_or(10.0 * power);
    ((top / step).ceil() * step, step)
}

/// A short number for an axis: `200k`.
fn axis_number(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 1e12 => return format!("{v:.0e}"),
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let text = format!("{scaled:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

/// Task counts whose labels do not touch.
fn thinned(ticks: &[u32], scale: &Scale) -> Vec<u32> {
    let mut out: Vec<u32> = Vec::new();
    for tick in ticks {
        let clear = out.last().is_none_or(|last| {
            let room = 8.0 + 3.5 * (last.to_string().len() + tick.to_string().len()) as f64;
            scale.x(f64::from(*tick)) - scale.x(f64::from(*last)) >= room
        });
        if clear {
            out.push(*tick);
        }
    }
    out
}

/// Where the cores end (SMT siblings begin) and where the allowed CPUs end.
fn boundaries(result: &RunResult, scale: &Scale) -> Markup {
    let capacity = result.machine.capacity_cpus();
    let mut marks: Vec<(f64, &str, &str)> = Vec::new();
    if let Some(cores) = smt_cores(result).filter(|c| *c < capacity) {
        marks.push((cores, "cores", "Beyond it tasks share cores with an SMT sibling"));
    }
    if capacity > 0.0 {
        marks.push((capacity, "CPUs", "Beyond it tasks take turns"));
    }
    marks.retain(|(at, ..)| *at >= scale.first && *at <= scale.last);
    html! {
        @for (at, what, beyond) in marks {
            @let x = scale.x(at);
            line.edge-cpu data-at=(at) data-what=(what) x1=(n(x)) x2=(n(x)) y1=(TOP - 4.0) y2=(BOTTOM) {
                title { (beyond) }
            }
            // Cores to the left of their line and CPUs to the right, as far as there is room: they may be close.
            @let left = if what == "cores" { x > LEFT + 70.0 } else { x > RIGHT - 50.0 };
            text.soft x=(n(if left { x - 3.0 } else { x + 3.0 })) y=(TOP - 8.0) text-anchor=(if left { "end" } else { "start" }) {
                (text::quantity(at)) " " (what)
            }
        }
    }
}

/// How many cores the allowed CPUs are, where some of them are SMT siblings.
fn smt_cores(result: &RunResult) -> Option<f64> {
    let machine = &result.machine;
    machine.cores.filter(|_| machine.smt == Some(true)).map(f64::from)
}

/// What the best single task would give if nothing were lost.
fn ideal(result: &RunResult, rows: &[&Row<'_>], scale: &Scale) -> Markup {
    let best =
        rows.iter().filter(|r| r.point.tasks == 1).filter_map(|r| r.point.rate()).max_by(f64::total_cmp);
    let Some(one) = best.filter(|_| scale.last > scale.first) else {
        return html! {};
    };
    // A straight line in tasks is a curve where the axis is logarithmic. It ends at the top of the drawing, and goes level where the CPUs end.
    let capacity = Some(result.machine.capacity_cpus()).filter(|c| *c >= 1.0).unwrap_or(f64::INFINITY);
    let top = scale.top / one.max(f64::MIN_POSITIVE);
    let end = scale.last.min(top).min(capacity).max(1.0);
    let mut points: Vec<String> = (0..=40)
        .map(|i| {
            let tasks = 1.0 + (end - 1.0) * f64::from(i) / 40.0;
            format!("{},{}", n(scale.x(tasks)), n(scale.y(one * tasks)))
        })
        .collect();
    if capacity < scale.last && capacity <= top {
        points.push(format!("{},{}", n(scale.x(scale.last)), n(scale.y(one * capacity))));
    }
    html! { polyline.ideal points=(points.join(" ")) { title { "ideal: the best single task, times the tasks" } } }
}

fn stroke(i: usize) -> String {
    const DASHES: [&str; 4] =
        ["", ";stroke-dasharray:7 3", ";stroke-dasharray:2 3", ";stroke-dasharray:9 3 2 3"];
    format!("stroke:var(--t{});stroke-width:2;fill:none{}", i % 8, DASHES[(i / 8) % 4])
}

/// A shape of its own for each target, for eyes that do not tell the colours apart.
fn marker(i: usize, x: f64, y: f64) -> Markup {
    let fill = format!("fill:var(--t{})", i % 8);
    let polygon = |points: &[(f64, f64)]| {
        let points: Vec<String> =
            points.iter().map(|(dx, dy)| format!("{},{}", n(x + dx), n(y + dy))).collect();
        points.join(" ")
    };
    html! {
        @match i % 4 {
            0 => circle cx=(n(x)) cy=(n(y)) r="4" style=(fill) {},
            1 => rect x=(n(x - 3.5)) y=(n(y - 3.5)) width="7" height="7" style=(fill) {},
            2 => polygon points=(polygon(&[(0.0, -5.0), (5.0, 4.0), (-5.0, 4.0)])) style=(fill) {},
            _ => polygon points=(polygon(&[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)])) style=(fill) {},
        }
    }
}

fn line(rows: &[&Row<'_>], target: &str, i: usize, scale: &Scale) -> Markup {
    let points: Vec<(f64, f64, &Row<'_>)> = rows
        .iter()
        .filter(|r| r.point.target == target)
        .filter_map(|r| {
            let rate = r.point.rate()?;
            Some((scale.x(f64::from(r.point.tasks)), scale.y(rate), *r))
        })
        .collect();
    let path: Vec<String> = points.iter().map(|(x, y, _)| format!("{},{}", n(*x), n(*y))).collect();
    html! {
        g.target data-target=(i) {
            polyline points=(path.join(" ")) style=(stroke(i)) {}
            @for (x, y, row) in &points {
                @if let Some(e) = &row.point.ops_per_s {
                    line x1=(n(*x)) x2=(n(*x)) y1=(n(scale.y(e.low))) y2=(n(scale.y(e.high)))
                        style=(format!("stroke:var(--t{});stroke-width:1.5", i % 8)) {}
                    g.mark data-tasks=(row.point.tasks) data-rate=(e.median) data-y=(n(*y)) {
                        (marker(i, *x, *y))
                        title {
                            (plain(target, NAME)) ", " (text::tasks(row.point.tasks)) ": " (text::rate(e.median)) " ops/s ("
                            (text::rate(e.low)) "–" (text::rate(e.high)) ")"
                            @if row.point.smt_shared == Some(true) { ", on shared cores" }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_above_the_largest_value_in_round_steps() {
        for (top, end, step) in
            [(208_300.0, 250_000.0, 50_000.0), (1.0, 1.0, 0.2), (0.037, 0.04, 0.01), (59.3, 60.0, 20.0)]
        {
            let (e, s) = nice(top);
            assert!((e - end).abs() < end * 1e-9 && (s - step).abs() < step * 1e-9, "{top}: {e} {s}");
        }
        assert_eq!(nice(0.0), (1.0, 0.2));
    }

    #[test]
    fn axis_numbers_are_short() {
        for (value, text) in [(200_000.0, "200k"), (2.5e6, "2.5M"), (0.2, "0.2"), (0.0, "0"), (3e13, "3e13")]
        {
            assert_eq!(axis_number(value), text);
        }
    }
}
