//! Where the time in the kernel goes: by system call, by part of the kernel, and by what is spun for, side by side for several points;
//! and the CPU time of a recording.

use super::{CAPTURED, NAME, point_name};
use crate::text::{self, NONE, plain};
use crate::verdict;
use crate::view::Group;
use maud::{Markup, html};
use result::{Budget, NamedCost, Point, Recorded};

/// Rows of a table; the rest is one more row.
const ROWS: usize = 12;

/// Names of a point that are looked at: more than any kernel has system calls.
const NAMES: usize = 600;

/// One of the lists of a budget.
type List = fn(&Budget) -> &[NamedCost];

/// The tables of a group; nothing where nothing was sampled.
pub(super) fn section(group: &Group<'_>, of: &str) -> Markup {
    let lists: [(&str, List); 3] = [
        ("Kernel code by system call", |b| &b.system_by),
        ("Kernel code by part of the kernel", |b| &b.system_by_group),
        ("Spinning by the function that wants the lock", |b| &b.spin_by),
    ];
    let tables: Vec<Markup> =
        lists.into_iter().filter_map(|(what, list)| table(group, of, what, list)).collect();
    html! {
        @if !tables.is_empty() {
            details.kernel {
                summary { "Where the time in the kernel goes" }
                @for table in &tables { (table) }
                p.note { "CPU-us per operation, from samples in the captured windows; " (NONE) " was never met there." }
            }
        }
    }
}

fn table(group: &Group<'_>, of: &str, what: &str, list: List) -> Option<Markup> {
    let points: Vec<(&Point, &[NamedCost])> = group
        .rows
        .iter()
        .filter(|r| r.point.valid)
        .filter_map(|r| {
            let costs = list(r.point.budget_us_per_op.as_ref()?);
            Some((r.point, costs.get(..NAMES).unwrap_or(costs)))
        })
        .filter(|(_, costs)| !costs.is_empty())
        .take(CAPTURED)
        .collect();
    // of a point, what goes by that name
    let cost = |costs: &[NamedCost], name: &str| costs.iter().find(|c| c.name == name).map(|c| c.us_per_op);
    let mut names: Vec<(&str, f64)> = Vec::new();
    for cost in points.iter().flat_map(|(_, costs)| costs.iter()) {
        match names.iter_mut().find(|(name, _)| *name == cost.name) {
            Some((_, most)) => *most = most.max(cost.us_per_op),
            None => names.push((&cost.name, cost.us_per_op)),
        }
    }
    names.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    if names.is_empty() {
        return None;
    }
    let rest = names.split_off(names.len().min(ROWS));
    let label = format!("{what}, CPU-us per operation{of}");
    Some(html! {
        div.scroll tabindex="0" role="region" aria-label=(label) { table {
            caption { (what) }
            thead { tr {
                th.l scope="col" { "name" }
                @for (point, _) in &points { th scope="col" { (point_name(point, false)) } }
            } }
            tbody {
                @for (name, _) in &names { tr {
                    th.l scope="row" { (plain(name, NAME)) }
                    @for (_, costs) in &points { td { (text::micros_or_none(cost(costs, name))) } }
                } }
                @if !rest.is_empty() { tr {
                    th.l scope="row" { "the rest" }
                    @for (_, costs) in &points {
                        td { (text::micros(rest.iter().filter_map(|(name, _)| cost(costs, name)).sum())) }
                    }
                } }
                tr {
                    th.l scope="row" { "together" }
                    @for (_, costs) in &points { td { (text::micros(costs.iter().map(|c| c.us_per_op).sum())) } }
                }
            }
        } }
    })
}

/// The CPU time of a recording: every part that is known, and by how much they do not add up.
pub(super) fn recorded(seen: &Recorded) -> Markup {
    let parts = [
        ("user code", seen.user_s),
        ("kernel code", seen.system_s),
        ("spinning for locks", seen.spin_s),
        ("interrupts", seen.irq_s),
        ("others", seen.other_s),
        ("idle", seen.idle_s),
        ("not known", seen.unaccounted_s),
    ];
    let share = |s: f64| s / seen.capacity_s;
    let worth = |s: f64| share(s).abs() >= verdict::WORTH_A_LINE;
    let parts: Vec<(&str, f64)> =
        parts.into_iter().filter_map(|(what, s)| Some((what, s.filter(|s| worth(*s))?))).collect();
    html! {
        @if seen.capacity_s > 0.0 && !parts.is_empty() {
            div.scroll tabindex="0" role="region" aria-label="What the CPUs did" { table.charged {
                caption { "What the CPUs did" }
                thead { tr { th.l scope="col" { "part" } th scope="col" { "CPU-s" } th scope="col" { "share" } } }
                tbody {
                    @for (what, s) in &parts { tr {
                        th.l scope="row" { (what) }
                        td { (text::cpu_seconds(*s)) }
                        td { (text::percent(share(*s))) }
                    } }
                    tr {
                        th.l scope="row" { "all CPUs" }
                        td { (text::cpu_seconds(seen.capacity_s)) }
                        td { (text::percent(1.0)) }
                    }
                }
            } }
        }
        @if let Some(waited) = seen.runnable_s.filter(|s| worth(*s)) {
            p.note { "The tasks waited " (text::cpu_seconds(waited)) " s for a CPU, all together." }
        }
    }
}
