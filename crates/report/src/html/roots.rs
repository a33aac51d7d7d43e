//! A card for each root, and what a recording charges its idle time to.

use super::NAME;
use crate::text::{self, NONE, plain};
use crate::verdict;
use maud::{Markup, html};
use result::{Point, Root, Split};

/// Share of the idle time from which on a root has its card in the open.
const LARGE: f64 = 0.05;

/// The roots of a point: large ones in the open, small and hidden ones to unfold.
pub(super) fn section(point: &Point) -> Markup {
    let roots = &point.roots[..point.roots.len().min(30)];
    let large = |i: usize, r: &Root| i == 0 || (!r.latent && r.share_of_idle.is_some_and(|s| s >= LARGE));
    let (large, small): (Vec<_>, Vec<_>) = roots.iter().enumerate().partition(|(i, r)| large(*i, r));
    html! {
        @if roots.iter().any(|r| r.disturbed) {
            p.void { "Capture changed the behaviour: take the shares of the roots as a hint only." }
        }
        @for (_, root) in &large { (card(point, root)) }
        @if !small.is_empty() {
            details.small {
                summary {
                    @if small.len() == 1 { "1 smaller root or wait hidden behind other work" }
                    @else { (small.len()) " smaller roots and waits hidden behind other work" }
                }
                @for (_, root) in &small { (card(point, root)) }
            }
        }
    }
}

/// A root with its paths, holders, split, what passes through it, and the remedies that speak to it.
fn card(point: &Point, root: &Root) -> Markup {
    let remedies: Vec<_> = point
        .remedies
        .iter()
        .filter(|r| root.lock.kind.is_lock() && r.root.as_deref() == Some(root.lock.class.as_str()))
        .collect();
    let mut size = vec![verdict::root_size(root)];
    if let Some(us) = root.idle_us_per_op {
        size.push(format!("{} CPU-us of idle time an operation", text::micros(us)));
    }
    if let Some(s) = root.idle_cpu_s {
        size.push(format!("{} CPU-s of idle time", text::cpu_seconds(s)));
    }
    if let Some(us) = root.wait_us_per_op.filter(|us| *us > 0.0 && root.share_of_idle.is_some()) {
        size.push(format!("{} us of waiting an operation", text::micros(us)));
    }
    if let Some(us) = root.spin_us_per_op.filter(|us| *us > 0.0) {
        size.push(format!("{} CPU-us of spinning", text::micros(us)));
    }
    if let Some(n) = root.waits.filter(|n| *n > 0) {
        size.push(format!("{} {}", text::count(n), if n == 1 { "wait" } else { "waits" }));
    }
    let worth = |share: f64| share >= verdict::WORTH_A_LINE;
    let holders = root.holders.iter().enumerate().filter(|(i, h)| *i == 0 || worth(h.share));
    let holders: Vec<_> = holders.map(|(_, h)| h).take(8).collect();
    html! {
        article.card {
            h4 { (verdict::lock_words(&root.lock)) }
            p.size {
                (size.join(" · "))
                @if let Some(when) = &root.when { " · " (plain(when, 100)) }
            }
            @if root.latent {
                p { "Latent: the wait costs no idle time here, because other tasks had work. A machine with more CPUs would lose it." }
            }
            @if let Some(s) = &root.split { (split(s)) }
            @if !root.paths.is_empty() {
                h4 { "Waited for on" }
                ul.paths {
                    @for path in root.paths.iter().filter(|p| worth(p.share)).take(8) {
                        li {
                            (text::percent(path.share)) " " (verdict::path_words(&root.paths, path))
                            (stack(&path.stack, None))
                        }
                    }
                }
            }
            @if !root.holders.is_empty() {
                h4 { (verdict::holders_label(root)) " by" }
                ul.holders {
                    @for h in &holders {
                        li {
                            (text::percent(h.share)) " " (plain(&h.comm, NAME))
                            @match h.of_workload {
                                Some(true) => " (a task of the workload)",
                                Some(false) => " (not of the workload)",
                                None => "",
                            }
                            @for s in h.stacks.iter().filter(|s| worth(s.share)).take(4) { (stack(&s.stack, Some(s.share))) }
                        }
                    }
                    @for (what, share) in verdict::holders_rest(root, holders.iter().map(|h| h.share).sum()) {
                        li { (text::percent(share)) " " (what) }
                    }
                }
            }
            @if verdict::waits_through(root).next().is_some() {
                h4 { "Hides behind" }
                ul.paths {
                    @for w in verdict::waits_through(root).take(8) {
                        li {
                            (w.kind.words()) " " (verdict::through_words(w))
                        }
                    }
                }
            }
            @if !remedies.is_empty() {
                h4 { "What would win it back" }
                ul.paths {
                    @for r in remedies {
                        li {
                            (plain(&r.what, NAME))
                            @if r.gain.is_some() { ": " (verdict::gain_words(r)) }
                            @if let Some(ops) = r.ops_per_s { ", " (text::rate(ops)) " ops/s" }
                            " (" (verdict::how_words(r)) ")"
                        }
                    }
                }
            }
        }
    }
}

/// A stack to unfold, innermost first.
fn stack(frames: &[String], share: Option<f64>) -> Markup {
    html! {
        @if frames.len() > 2 {
            details {
                summary {
                    @if let Some(share) = share { (text::percent(share)) " in " (plain(&frames[0], 60)) ": " }
                    "stack, innermost first"
                }
                pre { @for f in frames.iter().take(128) { (plain(f, NAME)) "\n" } @if frames.len() > 128 { "…" } }
            }
        }
    }
}

/// The wait by what the holder did: a bar and its figures.
fn split(s: &Split) -> Markup {
    let parts = [
        ("hand-off, CPU idle", s.hand_off_cpu_idle, "--blocked_lock"),
        ("hand-off, CPU busy", s.hand_off_cpu_busy, "--spinning"),
        ("hand-off", s.hand_off - s.hand_off_cpu_idle - s.hand_off_cpu_busy, "--more"),
        ("holder running", s.holder_running, "--running"),
        ("holder blocked", s.holder_blocked, "--blocked_io"),
        ("holder runnable", s.holder_runnable, "--runnable"),
        ("unknown", s.unknown, "--blocked"),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|(_, share, _)| *share >= 0.0005 && *share <= 1.5).collect();
    html! {
        h4 { "What the holder did while it was waited for" }
        div.bar aria-hidden="true" {
            @for (name, share, color) in &parts {
                span style=(format!("width:{:.1}%;background:var({color})", share * 100.0)) title=(format!("{name} {}", text::percent(*share))) {}
            }
        }
        ul.legend {
            @for (name, share, color) in &parts {
                li { span.swatch style=(format!("background:var({color})")) {} (name) " " (text::percent(*share)) }
            }
        }
    }
}

/// The first screen of a recording: how busy, and what the idle time is charged to.
pub(super) fn recorded(point: &Point) -> Markup {
    let Some(seen) = &point.recorded else {
        return html! {};
    };
    let idle = seen.idle_s.filter(|_| seen.capacity_s > 0.0);
    html! {
        p {
            (text::seconds(seen.wall_s))
            @if let Some(busy) = seen.busy_share { " · " (text::percent(busy)) " busy" }
            @if let Some(status) = seen.exit_status.filter(|s| *s != 0) { " · ended with status " (status) }
        }
        @if let Some(idle) = idle {
            p {
                strong { "Idle " (text::percent(idle / seen.capacity_s)) " = " (text::cpu_seconds(idle)) " CPU-s." }
                @if point.roots.is_empty() { " Not charged to anything: there was no capture." } @else { " Charged to:" }
            }
        }
        @if !point.roots.is_empty() {
            div.scroll tabindex="0" role="region" aria-label="What the idle time is charged to" { table.charged {
                thead { tr { th scope="col" { "share" } th.l.picture scope="col" aria-hidden="true" {} th scope="col" { "CPU-s" } th.l scope="col" { "root" } th scope="col" { "hand-off" } th.l scope="col" { "when" } } }
                tbody {
                    @for root in point.roots.iter().take(50) {
                        tr {
                            td { (root.share_of_idle.map_or_else(|| NONE.to_owned(), text::percent)) }
                            td.l.picture aria-hidden="true" {
                                @let share = root.share_of_idle.unwrap_or(0.0).clamp(0.0, 1.0);
                                div.share { span style=(format!("width:{:.1}%", share * 100.0)) {} }
                            }
                            td { (root.idle_cpu_s.map_or_else(|| NONE.to_owned(), text::cpu_seconds)) }
                            td.l { (verdict::lock_words(&root.lock)) @if root.latent { " (latent)" } }
                            td { (root.split.as_ref().map_or_else(|| NONE.to_owned(), |s| text::percent(s.hand_off))) }
                            td.l { (plain(root.when.as_deref().unwrap_or(""), 100)) }
                        }
                    }
                }
            } }
        }
        (super::kernel::recorded(seen))
    }
}
