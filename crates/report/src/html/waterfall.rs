//! The budget waterfall between two points: where the CPU-microseconds of the difference go.
//!
//! One pair is drawn here; the script draws any other pair in the same way.

use super::parts::part_label;
use super::point_name;
use crate::text::{self, plain};
use crate::view::Group;
use maud::{Markup, html};
use result::{Budget, BudgetPart, Point};

/// Points that can be chosen.
const CHOICES: usize = 200;

/// One bar of the drawing.
struct Bar {
    label: String,
    from: f64,
    to: f64,
    kind: &'static str,
    text: String,
}

/// The points of a group that have a budget, with their names.
pub(super) fn points<'a>(group: &Group<'a>) -> Vec<(String, &'a Point)> {
    group
        .rows
        .iter()
        .filter(|r| r.point.valid && r.point.budget_us_per_op.as_ref().is_some_and(|b| b.total.is_some()))
        .take(CHOICES)
        .map(|r| (point_name(r.point, false), r.point))
        .collect()
}

/// What the script needs of a point.
pub(super) fn data(point: &Point) -> serde_json::Value {
    let mut object = serde_json::Map::new();
    object.insert("name".to_owned(), point_name(point, false).into());
    object.insert("tasks".to_owned(), point.tasks.into());
    if let Some(budget) = &point.budget_us_per_op {
        object.insert("total".to_owned(), budget.total.into());
        for part in BudgetPart::ALL {
            object.insert(part.name().to_owned(), budget.part(part).into());
        }
    }
    object.into()
}

/// Which pair to show first: at the most tasks, the fastest against the slowest; else the fewest against the most tasks.
fn first_pair(points: &[(String, &Point)]) -> Option<(usize, usize)> {
    let most = points.iter().map(|(_, p)| p.tasks).max()?;
    let rate = |i: &usize| points[*i].1.rate().unwrap_or(0.0);
    let mut at: Vec<usize> = (0..points.len()).filter(|i| points[*i].1.tasks == most).collect();
    at.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    match at.as_slice() {
        [fast, .., slow] => Some((*fast, *slow)),
        [only] if points.len() > 1 => {
            let few = (0..points.len()).min_by_key(|i| points[*i].1.tasks)?;
            Some((few, *only))
        }
        _ => None,
    }
}

/// The section with its two selectors; nothing when there are no two budgets.
pub(super) fn section(group: &Group<'_>, index: usize) -> Markup {
    let points = points(group);
    let Some((base, next)) = first_pair(&points) else {
        return html! {};
    };
    let bare = points[base].1.tasks != points[next].1.tasks;
    let (Some(a), Some(b)) = (&points[base].1.budget_us_per_op, &points[next].1.budget_us_per_op) else {
        return html! {};
    };
    let bars = bars(&points[base].0, a, &points[next].0, b, bare);
    let total = |b: &Budget| if bare { b.usable_total() } else { b.total };
    let (from, to) = (total(a).unwrap_or(0.0), total(b).unwrap_or(0.0));
    let select = |class: &str, chosen: usize| {
        html! {
            select class=(class) autocomplete="off" {
                @for (i, (name, _)) in points.iter().enumerate() {
                    option value=(i) selected[i == chosen] { (name) }
                }
            }
        }
    };
    html! {
        div.waterfall data-group=(index) {
            div.controls.js-only {
                label { "From" (select("base", base)) }
                label { "to" (select("next", next)) }
            }
            figure style="max-width:40rem" {
                (draw(&bars, &points[base].0, &points[next].0))
                figcaption aria-live="polite" {
                    "An operation costs " (text::micros(from)) " CPU-us at " (points[base].0) " and " (text::micros(to)) " at "
                    (points[next].0) ": " (text::signed_micros(to - from))
                    @if bare { " (without CPUs that have no task)." } @else { "." }
                }
            }
        }
    }
}

fn bars(a_name: &str, a: &Budget, b_name: &str, b: &Budget, bare: bool) -> Vec<Bar> {
    let total = |b: &Budget| if bare { b.usable_total() } else { b.total };
    let (Some(from), Some(to)) = (total(a), total(b)) else {
        return Vec::new();
    };
    let whole = |label: &str, value: f64| Bar {
        label: label.to_owned(),
        from: 0.0,
        to: value,
        kind: "total",
        text: text::micros(value),
    };
    let difference = b.minus(a, bare);
    let mut bars = vec![whole(a_name, from)];
    let mut x = from;
    for part in BudgetPart::ALL {
        let Some(d) = difference.part(part).filter(|d| *d != 0.0) else {
            continue;
        };
        bars.push(Bar {
            label: part_label(part).to_owned(),
            from: x,
            to: x + d,
            kind: part.name(),
            text: text::signed_micros(d),
        });
        x += d;
    }
    let rest = to - x;
    if rest.abs() > 0.01 * from.abs().max(to.abs()) {
        bars.push(Bar {
            label: "not known in both".to_owned(),
            from: x,
            to,
            kind: "unaccounted",
            text: text::signed_micros(rest),
        });
    }
    bars.push(whole(b_name, to));
    bars
}

fn draw(bars: &[Bar], a_name: &str, b_name: &str) -> Markup {
    let ends = || bars.iter().flat_map(|b| [b.from, b.to]).filter(|v| v.is_finite());
    let low = ends().fold(0.0, f64::min);
    let high = ends().fold(1e-9, f64::max);
    let scale = |v: f64| 138.0 + ((v - low) / (high - low)).clamp(0.0, 1.0) * 220.0;
    let label = format!("CPU-us per operation: {a_name} to {b_name}");
    html! {
        svg viewBox=(format!("0 0 420 {}", bars.len() * 26 + 4)) role="img" aria-label=(label) {
            title { (label) }
            @for (i, bar) in bars.iter().enumerate() {
                @let y = i * 26 + 4;
                @let (x0, x1) = (scale(bar.from.min(bar.to)), scale(bar.from.max(bar.to)));
                @let value = if bar.kind == "total" { bar.to } else { bar.to - bar.from };
                text x="132" y=(y + 15) text-anchor="end" { (plain(&bar.label, 20)) }
                rect x=(format!("{x0:.1}")) y=(y) width=(format!("{:.1}", (x1 - x0).max(1.0))) height="20"
                    data-kind=(bar.kind) data-value=(value)
                    style=(format!("fill:var(--{})", if bar.kind == "total" { "soft" } else { bar.kind })) {
                    title { (bar.label) ": " (bar.text) }
                }
                text x=(format!("{:.1}", x1 + 5.0)) y=(y + 15) { (bar.text) }
            }
        }
    }
}
