//! Rounds and noise: every round as a dot beside its point, and what disturbed it.

use super::NAME;
use crate::text::{self, plain};
use crate::view::Group;
use maud::{Markup, html};
use result::{Point, Round, RunResult, Taint};

/// Rows of the raw table.
const RAW: usize = 2000;

/// A taint in words.
fn taint_words(taint: &Taint) -> String {
    match taint {
        Taint::Steal { share } => format!("steal {}", text::percent(*share)),
        Taint::OtherLoad { share } => format!("other load {}", text::percent(*share)),
        Taint::Throttled { seconds } => format!("throttled {}", text::seconds(*seconds)),
        Taint::NotSteady => "not steady after the warm-up".to_owned(),
        Taint::MemoryPressure { share } => format!("memory pressure {}", text::percent(*share)),
        Taint::Other { text } => plain(text, 200),
        Taint::Unknown => "a taint that this version does not know".to_owned(),
    }
}

/// The section of a group.
pub(super) fn section(result: &RunResult, group: &Group<'_>, of: &str) -> Markup {
    html! {
        @if let Some(noise) = &result.noise {
            p {
                "Two measurements of the same differ by up to " (text::percent(noise.threshold)) " here ("
                (noise.pairs) " pairs; " (plain(&noise.how, 200)) "): smaller differences are not told from noise."
            }
        }
        div.scroll tabindex="0" role="region" aria-label={ "Rounds of every point" (of) } {
            table {
                thead { tr {
                    th.l scope="col" { "target" } th scope="col" { "tasks" } th scope="col" { "rounds" } th scope="col" { "median, ops/s" }
                    th scope="col" { "MAD" } th scope="col" { "range" } th.l scope="col" { "each round, of the median" } th.l scope="col" { "disturbed by" }
                } }
                tbody {
                    @for row in group.rows.iter().take(RAW) {
                        @let p = row.point;
                        @if let Some(e) = p.ops_per_s.as_ref().filter(|_| p.valid) {
                            tr {
                                th.l scope="row" { (plain(&p.target, NAME)) }
                                td { (p.tasks) }
                                td { (e.rounds.len()) }
                                td { (text::rate(e.median)) }
                                td { (if e.median > 0.0 { text::percent(e.mad / e.median) } else { text::NONE.to_owned() }) }
                                td { (range(&e.rounds, e.median)) }
                                td.l { (strip(&e.rounds, e.median)) }
                                td.l { (taints(p)) }
                            }
                        }
                    }
                }
            }
        }
        details {
            summary { "Every round, raw" }
            div.scroll tabindex="0" role="region" aria-label={ "Raw rounds" (of) } {
                table {
                    thead { tr {
                        th.l scope="col" { "target" } th scope="col" { "tasks" } th scope="col" { "order" } th scope="col" { "kept" } th scope="col" { "warm-up, s" }
                        th scope="col" { "window, s" } th scope="col" { "operations" } th scope="col" { "ops/s" } th scope="col" { "steal, s" }
                        th scope="col" { "other load, s" } th scope="col" { "running" } th scope="col" { "CPU pressure" } th.l scope="col" { "disturbed by" }
                    } }
                    tbody {
                        @for (p, r) in in_order(group).into_iter().take(RAW) {
                            tr {
                                td.l { (plain(&p.target, 60)) }
                                td { (p.tasks) } td { (r.order) } td { @if r.kept { "yes" } @else { "no" } }
                                td { (format!("{:.2}", r.warm_up_s)) } td { (format!("{:.3}", r.window_s)) }
                                td { (text::rate(r.operations)) } td { (text::rate(r.ops_per_s)) }
                                td { (seconds_or_none(r.cpu.steal)) } td { (seconds_or_none(r.other_load_s)) }
                                td { (r.procs_running.map_or_else(|| text::NONE.to_owned(), |n| format!("{n:.1}"))) }
                                td { (r.pressure.as_ref().and_then(|p| p.cpu_some).map_or_else(|| text::NONE.to_owned(), text::percent)) }
                                td.l { (r.taints.iter().take(5).map(taint_words).collect::<Vec<_>>().join(", ")) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn seconds_or_none(value: Option<f64>) -> String {
    value.map_or_else(|| text::NONE.to_owned(), |v| format!("{v:.3}"))
}

/// The rounds in the order in which they ran.
fn in_order<'a>(group: &Group<'a>) -> Vec<(&'a Point, &'a Round)> {
    let mut rounds: Vec<(&Point, &Round)> =
        group.rows.iter().flat_map(|row| row.point.rounds.iter().map(|r| (row.point, r))).collect();
    rounds.sort_by_key(|(_, r)| (r.order, r.retries));
    rounds
}

fn range(rounds: &[f64], median: f64) -> String {
    let low = rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let high = rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if rounds.len() > 1 && median > 0.0 {
        text::percent((high - low) / median)
    } else {
        text::NONE.to_owned()
    }
}

/// Dots from half to one and a half times the median; what lies beyond is drawn at the edge.
fn strip(rounds: &[f64], median: f64) -> Markup {
    let x = |v: f64| 6.0 + ((v / median - 0.5).clamp(0.0, 1.0)) * 168.0;
    html! {
        @if median > 0.0 {
            svg.strip viewBox="0 0 180 16" role="img" aria-label="Rounds as dots around the median" {
                line.grid x1="6" x2="174" y1="8" y2="8" {}
                line.axis x1="90" x2="90" y1="2" y2="14" {}
                @for (i, r) in rounds.iter().take(200).enumerate() {
                    circle cx=(format!("{:.1}", x(*r))) cy="8" r="3" style="fill:var(--t0);fill-opacity:.6" {
                        title { "round " (i + 1) ": " (text::rate(*r)) " ops/s" }
                    }
                }
            }
        }
    }
}

fn taints(point: &Point) -> String {
    let mut words: Vec<String> = Vec::new();
    let repeated = point.rounds.iter().filter(|r| !r.kept).count();
    if repeated > 0 {
        words.push(format!("{repeated} repeated"));
    }
    for round in point.rounds.iter().filter(|r| r.kept) {
        for taint in &round.taints {
            words.push(format!("round {}: {}", round.round.saturating_add(1), taint_words(taint)));
        }
    }
    if words.len() > 6 {
        let more = words.len() - 5;
        words.truncate(5);
        words.push(format!("{more} more"));
    }
    words.join("; ")
}
