//! The plain parts of the page: tables, warnings, the machine and how to reproduce the run.

use super::{NAME, point_name};
use crate::terminal::p_words;
use crate::text::{self, NONE, plain};
use crate::verdict;
use crate::view::{Group, Row};
use crate::warnings;
use maud::{Markup, html};
use result::{Budget, BudgetPart, Comparison, MadeBy, Point, RunResult};
use std::collections::BTreeMap;

/// Rows of a table beyond which nobody reads on.
const ROWS: usize = 2000;

/// The word for a part over a column or beside a bar.
pub(super) fn part_label(part: BudgetPart) -> &'static str {
    match part {
        BudgetPart::User => "user",
        BudgetPart::System => "system",
        BudgetPart::Spin => "spinning",
        BudgetPart::Irq => "interrupts",
        BudgetPart::SystemElsewhere => "system elsewhere",
        BudgetPart::Other => "other processes",
        BudgetPart::Steal => "steal",
        BudgetPart::Idle => "idle",
        BudgetPart::Unused => "unused CPUs",
        BudgetPart::Unaccounted => "unaccounted",
    }
}

/// The points with rates and budgets, as a table: everything that the charts show.
pub(super) fn budget_table(group: &Group<'_>, of: &str) -> Markup {
    let known: Vec<BudgetPart> = BudgetPart::ALL
        .into_iter()
        .filter(|p| {
            group.rows.iter().any(|r| {
                r.point.valid && r.point.budget_us_per_op.as_ref().is_some_and(|b| b.part(*p).is_some())
            })
        })
        .collect();
    let none = || NONE.to_owned();
    let budget =
        |r: &Row<'_>| -> Option<Budget> { r.point.budget_us_per_op.clone().filter(|_| r.point.valid) };
    html! {
        div.scroll tabindex="0" role="region" aria-label={ "Throughput and CPU budget of every point" (of) } {
            table.budget {
                thead {
                    tr {
                        th.l scope="col" { "target" } th scope="col" { "tasks" } th scope="col" { "ops/s" } th scope="col" { "±" }
                        th scope="col" { "of best" } th scope="col" { "scaling" } th scope="col" { "spread" }
                        th scope="col" { "total" }
                        @for part in &known { th scope="col" { (part_label(*part)) } }
                    }
                }
                tbody {
                    @for row in group.rows.iter().take(ROWS) {
                        @let e = row.point.ops_per_s.as_ref().filter(|_| row.point.valid);
                        tr {
                            th.l scope="row" { (plain(&row.point.target, NAME)) }
                            td { (row.point.tasks) }
                            @if row.point.valid {
                                td { (e.map_or_else(none, |e| text::rate(e.median))) }
                            } @else { td.void { "void" } }
                            td { (e.filter(|e| e.rounds.len() != 1).map_or_else(none, |e| text::percent(e.relative_half_width()))) }
                            td { (row.of_best.map_or_else(none, text::percent)) }
                            td { (row.scaling.map_or_else(none, text::ratio)) }
                            td { (row.spread().map_or_else(none, text::percent)) }
                            @let b = budget(row);
                            td { (text::micros_or_none(b.as_ref().and_then(|b| b.total))) }
                            @for part in &known { td { (text::micros_or_none(b.as_ref().and_then(|b| b.part(*part)))) } }
                        }
                    }
                }
            }
        }
        p.note {
            "From total on: CPU-us per operation. Scaling: against one task on the same target. Spread: fastest less slowest task, of the median. "
            (NONE) " was not measured; it is not zero."
        }
    }
}

/// The warnings, and whether anything is missing.
pub(super) fn warnings(result: &RunResult) -> Markup {
    let lines = warnings::lines(result);
    if lines.is_empty() && result.complete {
        return html! {};
    }
    html! {
        section aria-label="Warnings" {
            ul.warnings {
                @if result.interrupted {
                    li { "The run was interrupted: what is shown is whole, the rest was not measured." }
                } @else if !result.complete { li { "The run did not come to its end." } }
                @for line in lines.iter().take(100) { li { (line) } }
            }
        }
    }
}

/// What capture cost and kept.
pub(super) fn capture(point: &Point) -> Markup {
    let Some(c) = &point.capture else {
        return html! {};
    };
    let mut words = Vec::new();
    if let Some(kept) = c.throughput_ratio {
        words.push(format!("capture kept {} of the throughput", text::percent(kept)));
    }
    words.push(format!("{} events, {} lost", text::count(c.events), text::count(c.lost_events)));
    if c.lost_stacks > 0 {
        words.push(format!("{} stacks lost", c.lost_stacks));
    }
    if c.window_s > 0.0 {
        words.push(format!("window {}", text::seconds(c.window_s)));
    }
    if let Some(idle) = c.idle_share {
        words.push(format!("{} idle while captured", text::percent(idle)));
    }
    html! { p.note { (words.join(" · ")) } }
}

/// What would win it back, for every point that has something.
pub(super) fn remedies(groups: &[Group<'_>]) -> Markup {
    let points: Vec<&Point> =
        groups.iter().flat_map(|g| &g.rows).map(|r| r.point).filter(|p| !p.remedies.is_empty()).collect();
    if points.is_empty() {
        return html! {};
    }
    html! {
        section aria-labelledby="remedies" {
            h2 #remedies { "What would win it back" }
            div.scroll tabindex="0" role="region" aria-label="Remedies" {
                table {
                    thead { tr {
                        th.l scope="col" { "point" } th.l scope="col" { "remedy" } th scope="col" { "ops/s" }
                        th scope="col" { "gain" } th.l scope="col" { "how it is known" }
                    } }
                    tbody {
                        @for p in &points {
                            @for r in p.remedies.iter().take(50) {
                                tr {
                                    td.l { (point_name(p, groups.len() > 1)) }
                                    td.l { (plain(&r.what, NAME)) }
                                    td { (r.ops_per_s.map_or_else(|| NONE.to_owned(), text::rate)) }
                                    td { (verdict::gain_words(r)) }
                                    td.l { (verdict::how_words(r)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The comparisons within the result.
pub(super) fn comparisons(result: &RunResult) -> Markup {
    if result.comparisons.is_empty() {
        return html! {};
    }
    html! {
        section aria-labelledby="comparisons" {
            h2 #comparisons { "Comparisons" }
            @if let Some(noise) = &result.noise {
                p.note {
                    "Noise threshold " (text::percent(noise.threshold)) ", from " (noise.pairs) " pairs of the same with the same: "
                    (plain(&noise.how, 200))
                }
            }
            (comparison_table(&result.comparisons))
        }
    }
}

pub(super) fn comparison_table(comparisons: &[Comparison]) -> Markup {
    let reasons = comparisons.iter().any(|c| !c.because.is_empty());
    html! {
        div.scroll tabindex="0" role="region" aria-label="Pairs of points" {
            table {
                thead { tr {
                    th.l scope="col" { "base" } th.l scope="col" { "compared" } th scope="col" { "ratio" } th scope="col" { "95 % interval" }
                    th scope="col" { "p" } th.l scope="col" { "verdict" } th scope="col" { "CPU-us per op" }
                    @if reasons { th.l scope="col" { "because" } }
                } }
                tbody {
                    @for c in comparisons.iter().take(ROWS) {
                        tr {
                            td.l { (point_ref(&c.a)) }
                            td.l { (point_ref(&c.b)) }
                            td { (c.ratio.map_or_else(|| NONE.to_owned(), text::ratio)) }
                            td { @if let (Some(l), Some(h)) = (c.low, c.high) { (text::ratio(l)) "–" (text::ratio(h)) } @else { (NONE) } }
                            td { (c.p().map_or_else(|| NONE.to_owned(), p_words)) }
                            td.l { (c.verdict.words()) }
                            td { (c.difference_us_per_op.as_ref().and_then(|d| d.total).map_or_else(|| NONE.to_owned(), text::signed_micros)) }
                            @if reasons { td.l { (c.because.iter().take(4).map(|b| plain(b, 200)).collect::<Vec<_>>().join("; ")) } }
                        }
                    }
                }
            }
        }
    }
}

fn point_ref(p: &result::PointRef) -> String {
    format!("{} on {}, {}", plain(&p.workload, 40), plain(&p.target, 40), text::tasks(p.tasks))
}

/// Scaling laws, or why there are none.
pub(super) fn scaling(result: &RunResult) -> Markup {
    if result.scaling.is_empty() {
        return html! {};
    }
    let number = |v: Option<f64>| v.map_or_else(|| NONE.to_owned(), |v| format!("{v:.4}"));
    html! {
        section aria-labelledby="scaling" {
            h2 #scaling { "Scaling law" }
            div.scroll tabindex="0" role="region" aria-label="Scaling laws" {
                table {
                    thead { tr {
                        th.l scope="col" { "workload" } th.l scope="col" { "target" } th scope="col" { "contention σ" }
                        th scope="col" { "coherency κ" } th scope="col" { "one task, ops/s" } th scope="col" { "fit" } th.l scope="col" { "note" }
                    } }
                    tbody {
                        @for s in result.scaling.iter().take(ROWS) {
                            tr {
                                td.l { (plain(&s.workload, NAME)) } td.l { (plain(&s.target, NAME)) }
                                td { (number(s.sigma)) } td { (number(s.kappa)) }
                                td { (s.x1.map_or_else(|| NONE.to_owned(), text::rate)) } td { (number(s.fit)) }
                                td.l { (plain(s.refused.as_deref().unwrap_or(""), 200)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The machine, the targets, the workloads, and the command that runs it again.
pub(super) fn machine(result: &RunResult) -> Markup {
    let m = &result.machine;
    let mut facts: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            facts.push((plain(name, 60), plain(&value, 2000)));
        }
    };
    add("host", m.host.clone());
    add("kernel", format!("{} {}", m.kernel, m.kernel_version).trim().to_owned());
    add("system", m.os.clone());
    add("architecture", m.arch.clone());
    add("CPU", m.cpu_model.clone());
    if m.cpus_online > 0 {
        add("CPUs online", m.cpus_online.to_string());
    }
    add("allowed CPUs", ranges(&m.allowed_cpus));
    add("quota", m.quota_cpus.map_or(String::new(), |q| format!("{} CPUs", text::ratio(q))));
    add("cores", m.cores.map_or(String::new(), |c| c.to_string()));
    add(
        "SMT siblings",
        m.smt.map_or("not known".to_owned(), |s| if s { "among them" } else { "none" }.to_owned()),
    );
    for node in m.numa.iter().take(64) {
        add(&format!("NUMA node {}", node.node), ranges(&node.cpus));
    }
    add("governor", m.governor.clone().unwrap_or_else(|| "not shown".to_owned()));
    add("hypervisor", m.hypervisor.clone().unwrap_or_default());
    if m.memory_bytes > 0 {
        add("memory", format!("{:.1} GiB", m.memory_bytes as f64 / f64::from(1 << 30)));
    }
    add("steal", m.steal_share.map_or("not counted".to_owned(), text::percent));
    for (name, value) in m.versions.iter().chain(&m.facts).take(200) {
        add(name, value.clone());
    }
    let mut options: Vec<(String, String)> = Vec::new();
    if result.made_by == MadeBy::Run {
        options.push(("rounds".to_owned(), result.options.rounds.to_string()));
        options.push(("window of a round".to_owned(), text::seconds(result.options.seconds)));
        options.push(("seed".to_owned(), result.seed.to_string()));
        options.push((
            "tasks bound to CPUs".to_owned(),
            if result.options.pinned { "yes" } else { "no" }.to_owned(),
        ));
    }
    for (name, value) in result.options.other.iter().take(200) {
        options.push((plain(name, 60), plain(value, 500)));
    }
    let list = |facts: &[(String, String)]| {
        html! { dl { @for (name, value) in facts { dt { (name) } dd { (value) } } } }
    };
    let named = |map: &BTreeMap<String, String>| -> Vec<(String, String)> {
        map.iter().take(200).map(|(k, v)| (plain(k, 60), plain(v, 2000))).collect()
    };
    html! {
        section aria-labelledby="machine" {
            h2 #machine { "Machine, and how to reproduce it" }
            h3 { "The command" }
            pre { code { (plain(&text::shell(&result.command), 8000)) } }
            @if result.made_by == MadeBy::Run && !result.command.iter().any(|a| a == "--seed" || a.starts_with("--seed=")) {
                p.note { "With --seed " (result.seed) " the rounds come in the same order." }
            }
            (list(&options))
            h3 { "The machine" }
            (list(&facts))
            @for w in result.workloads.iter().take(100) {
                h3 { "Workload " (plain(&w.name, NAME)) }
                p { (plain(&w.description, 500)) }
                @let facts = [vec![("version".to_owned(), plain(&w.version, 100)), ("one operation".to_owned(), plain(&w.operation, 200))], named(&w.facts)].concat();
                (list(&facts.into_iter().filter(|(_, v)| !v.is_empty()).collect::<Vec<_>>()))
            }
            @for t in result.targets.iter().take(100) {
                h3 { "Target " (plain(&t.name, NAME)) }
                (list(&[vec![("kind".to_owned(), plain(&t.kind, 100))], named(&t.facts)].concat()))
            }
        }
    }
}

/// `0-3,8`.
fn ranges(cpus: &[u32]) -> String {
    let mut sorted = cpus.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut out: Vec<String> = Vec::new();
    let mut i = 0;
    while i < sorted.len() {
        let start = sorted[i];
        while i + 1 < sorted.len() && sorted[i + 1] == sorted[i].wrapping_add(1) {
            i += 1;
        }
        out.push(if start == sorted[i] { start.to_string() } else { format!("{start}-{}", sorted[i]) });
        i += 1;
    }
    out.join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn cpus_are_named_by_ranges() {
        assert_eq!(super::ranges(&[3, 0, 1, 2, 8, 8, u32::MAX]), "0-3,8,4294967295");
        assert_eq!(super::ranges(&[]), "");
    }
}
