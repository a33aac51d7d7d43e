//! The page: one self-contained file for people.
//!
//! It works from disk, without network and without scripts; the script only switches, zooms and hides. Every name goes
//! through [`plain`] and the template's escaping, data for the script is JSON whose `<`, `>` and `&` are escaped, and a
//! content security policy lets nothing run but the one script whose hash it names.

mod chains;
mod chart;
mod flame;
mod kernel;
mod parts;
mod roots;
mod rounds;
mod timeline;
mod waterfall;

use crate::text::{self, plain};
use crate::verdict;
use crate::view::{Group, groups};
use crate::warnings;
use base64::Engine;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use result::{BudgetPart, MadeBy, Mode, Point, RunResult};
use sha2::Digest;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Longest name on the page, columns.
pub(crate) const NAME: usize = 120;

/// Captured points that get pictures of their own; beyond it the file would grow without use.
const CAPTURED: usize = 24;

/// A result as a page.
pub fn page(result: &RunResult) -> String {
    let groups = groups(result);
    let captured = captured_points(&groups);
    let title = title(result, &groups);
    let hash = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(SCRIPT));
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'"
    );
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { (title) }
                    p.sub { (sub_title(result, &groups)) }
                    (navigation(result, &groups, !captured.is_empty()))
                }
                main {
                    @for (i, group) in groups.iter().enumerate() {
                        (first_screen(result, group, i, &of(&groups, group)))
                    }
                    @if groups.is_empty() { p { "Nothing was measured." } }
                    (parts::warnings(result))
                    @for (i, group) in groups.iter().enumerate().filter(|(_, g)| g.mode != Mode::Recorded) {
                        section aria-labelledby=(format!("budget-{i}")) {
                            h2 #(format!("budget-{i}")) { "Where the CPU time of an operation goes" (of(&groups, group)) }
                            (waterfall::section(group, i))
                            (parts::budget_table(group, &of(&groups, group)))
                            (kernel::section(group, &of(&groups, group)))
                        }
                    }
                    @if !captured.is_empty() { (causes(&groups, &captured)) }
                    (parts::remedies(&groups))
                    (parts::comparisons(result))
                    (parts::scaling(result))
                    @for (i, group) in groups.iter().enumerate().filter(|(_, g)| g.mode != Mode::Recorded) {
                        section aria-labelledby=(format!("rounds-{i}")) {
                            h2 #(format!("rounds-{i}")) { "Rounds and noise" (of(&groups, group)) }
                            (rounds::section(result, group, &of(&groups, group)))
                        }
                    }
                    (parts::machine(result))
                }
                footer {
                    "perfloss " (plain(&result.perfloss_version, 40)) " · " (result.schema) " · CPU-us: microseconds of one CPU · shares are attribution, not winnable gain"
                }
                script type="application/json" id="data" { (PreEscaped(script_data(&groups))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    markup.into_string()
}

/// Headline: what ran, where.
fn title(result: &RunResult, groups: &[Group<'_>]) -> String {
    let mut names: Vec<String> = groups.iter().take(3).map(|g| plain(g.workload, 60)).collect();
    if groups.len() > 3 {
        names.push(format!("{} more", groups.len() - 3));
    }
    let mut targets: Vec<String> = Vec::new();
    for group in groups.iter().filter(|g| g.mode != Mode::Recorded) {
        for target in group.targets() {
            let target = plain(target, 30);
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
    }
    let mut title = names.join(", ");
    if !targets.is_empty() {
        if targets.len() > 6 {
            let more = targets.len() - 5;
            targets.truncate(5);
            targets.push(format!("{more} more"));
        }
        title.push_str(" on ");
        title.push_str(&targets.join(", "));
    }
    if title.is_empty() {
        title = match result.made_by {
            MadeBy::Run => "perfloss run".to_owned(),
            MadeBy::Record => "perfloss record".to_owned(),
        };
    }
    title
}

fn sub_title(result: &RunResult, groups: &[Group<'_>]) -> String {
    let mut parts = Vec::new();
    if let [group] = groups {
        parts.push(group.mode.name().to_owned());
    }
    parts.extend(verdict::cpus(result));
    if !result.machine.kernel.is_empty() {
        parts.push(format!("Linux {}", plain(&result.machine.kernel, 60)));
    }
    if !result.started.is_empty() {
        parts.push(plain(&result.started, 40));
    }
    if result.made_by == MadeBy::Run {
        parts.extend(verdict::method(result));
    }
    if result.interrupted {
        parts.push("interrupted".to_owned());
    } else if !result.complete {
        parts.push("not complete".to_owned());
    }
    parts.join(" · ")
}

/// ` · workload`, where there are several.
fn of(groups: &[Group<'_>], group: &Group<'_>) -> String {
    if groups.len() > 1 {
        format!(" · {}, {}", plain(group.workload, NAME), group.mode.name())
    } else {
        String::new()
    }
}

fn navigation(result: &RunResult, groups: &[Group<'_>], causes: bool) -> Markup {
    let measured = groups.iter().position(|g| g.mode != Mode::Recorded);
    html! {
        nav aria-label="Sections" {
            ul {
                @if let Some(i) = measured { li { a href=(format!("#budget-{i}")) { "CPU budget" } } }
                @if causes { li { a href="#causes" { "Causes" } } }
                @if groups.iter().any(|g| g.rows.iter().any(|r| !r.point.remedies.is_empty())) {
                    li { a href="#remedies" { "Remedies" } }
                }
                @if !result.comparisons.is_empty() { li { a href="#comparisons" { "Comparisons" } } }
                @if let Some(i) = measured { li { a href=(format!("#rounds-{i}")) { "Rounds and noise" } } }
                li { a href="#machine" { "Machine, and how to reproduce it" } }
            }
        }
    }
}

/// The verdict in words beside the chart.
fn first_screen(result: &RunResult, group: &Group<'_>, index: usize, of: &str) -> Markup {
    if group.mode == Mode::Recorded {
        return html! {
            section aria-label={ "Verdict" (of) } {
                @for row in &group.rows { (roots::recorded(row.point)) }
            }
        };
    }
    let mut sentences = verdict::sentences(result, group);
    if let Some((point, root)) = worst_root(group) {
        let target = plain(&point.target, 40);
        // Beside what is said of the same target: the loss and its cause are read together.
        let about = format!("{target} ");
        let after = sentences.iter().rposition(|s| s.starts_with(&about)).map_or(sentences.len(), |i| i + 1);
        let sentence = format!(
            "{target} at {}: {} goes back to {}.",
            text::tasks(point.tasks),
            verdict::root_size(root),
            verdict::lock_words(&root.lock)
        );
        sentences.insert(after, sentence);
    }
    html! {
        section aria-label={ "Verdict" (of) } {
            @if !of.is_empty() { h2 { (plain(group.workload, NAME)) ", " (group.mode.name()) } }
            div.first {
                div.words {
                    @for sentence in &sentences { p { (sentence) } }
                    @if sentences.is_empty() { p { "One point was measured; there is nothing to compare it with." } }
                    @for line in warnings::void_lines(group.rows.iter().map(|r| r.point)) { p.void { (line) } }
                }
                (chart::throughput(result, group, index))
            }
        }
    }
}

/// The root that costs most idle time in a group.
fn worst_root<'a>(group: &Group<'a>) -> Option<(&'a Point, &'a result::Root)> {
    group
        .rows
        .iter()
        .filter(|r| r.point.valid)
        .filter_map(|r| Some((r.point, r.point.roots.first()?)))
        .filter(|(point, root)| {
            let usable = point.budget_us_per_op.as_ref().and_then(|b| b.usable_total());
            root.idle_us_per_op.is_some_and(|us| us > 0.0 && us >= verdict::LOSS * usable.unwrap_or(0.0))
        })
        .max_by(|a, b| a.1.idle_us_per_op.unwrap_or(0.0).total_cmp(&b.1.idle_us_per_op.unwrap_or(0.0)))
}

/// Points with causes, worst first: by the idle time of their roots; where none is lost, most tasks first, and what they wait for.
fn captured_points<'a>(groups: &[Group<'a>]) -> Vec<(usize, &'a Point)> {
    let mut points: Vec<(usize, &Point)> = groups
        .iter()
        .flat_map(|g| g.rows.iter().map(|r| (r.index, r.point)))
        .filter(|(_, p)| {
            !p.roots.is_empty() || p.stacks.is_some() || p.chains.is_some() || p.timeline.is_some()
        })
        .collect();
    let idle = |p: &Point| {
        p.roots.iter().filter_map(|r| r.idle_us_per_op.or(r.idle_cpu_s)).fold(0.0f64, |a, b| a + b.max(0.0))
    };
    let wait = |p: &Point| p.roots.iter().filter_map(|r| r.wait_us_per_op).fold(0.0f64, f64::max);
    points.sort_by(|(_, a), (_, b)| {
        let size = |p: &Point| (idle(p), f64::from(p.tasks), wait(p));
        let ((ai, at, aw), (bi, bt, bw)) = (size(a), size(b));
        bi.total_cmp(&ai).then(bt.total_cmp(&at)).then(bw.total_cmp(&aw))
    });
    points.truncate(CAPTURED);
    points
}

fn causes(groups: &[Group<'_>], captured: &[(usize, &Point)]) -> Markup {
    let name = |p: &Point| point_name(p, groups.len() > 1);
    html! {
        section aria-labelledby="causes" {
            h2 #causes { "Causes" }
            @if captured.len() > 1 {
                div.controls.js-only {
                    label { "Point" select #point {
                        @for (index, p) in captured { option value=(index) { (name(p)) } }
                    } }
                }
            }
            @for (i, (index, p)) in captured.iter().enumerate() {
                div.captured.chosen[i == 0] data-point=(index) {
                    h3 { (name(p)) }
                    (parts::capture(p))
                    (roots::section(p))
                    div.more-of-it {
                        @if let Some(chains) = &p.chains { (chains::section(chains)) }
                        @if let Some(timeline) = &p.timeline { (timeline::section(timeline)) }
                        @if let Some(stacks) = &p.stacks {
                            (flame::section(stacks))
                            @if let Some(base) = flame_base(captured, p) {
                                (flame::difference(base.1, p, &name(base.1), &name(p)))
                            }
                        }
                    }
                }
            }
            @if captured.len() > 1 {
                p.note.paper-only { "Pictures and small roots are printed of one point: the one that is chosen on the screen." }
            }
        }
    }
}

/// The fastest captured point of the same workload with as many tasks, if it is faster.
fn flame_base<'a>(captured: &[(usize, &'a Point)], of: &Point) -> Option<(usize, &'a Point)> {
    captured
        .iter()
        .filter(|(_, p)| {
            p.workload == of.workload
                && p.mode == of.mode
                && p.tasks == of.tasks
                && p.target != of.target
                && p.stacks.is_some()
                && p.rate() > of.rate()
        })
        .max_by(|a, b| a.1.rate().unwrap_or(0.0).total_cmp(&b.1.rate().unwrap_or(0.0)))
        .copied()
}

/// `xfs, 2 tasks`.
pub(crate) fn point_name(point: &Point, with_workload: bool) -> String {
    let mut name = String::new();
    if with_workload || point.mode == Mode::Recorded {
        name.push_str(&plain(&point.workload, 40));
    }
    if point.mode != Mode::Recorded {
        if with_workload {
            name.push_str(" on ");
        }
        name.push_str(&format!("{}, {}", plain(&point.target, 40), text::tasks(point.tasks)));
        if with_workload {
            name.push_str(&format!(" ({})", point.mode.name()));
        }
    }
    name
}

/// What the script draws from, as JSON that cannot end the element it stands in.
fn script_data(groups: &[Group<'_>]) -> String {
    let waterfalls: Vec<Vec<serde_json::Value>> = groups
        .iter()
        .map(|g| waterfall::points(g).iter().map(|(_, p)| waterfall::data(p)).collect())
        .collect();
    let parts: Vec<(&str, &str)> =
        BudgetPart::ALL.into_iter().map(|p| (p.name(), parts::part_label(p))).collect();
    let json = serde_json::json!({ "waterfalls": waterfalls, "parts": parts }).to_string();
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}
