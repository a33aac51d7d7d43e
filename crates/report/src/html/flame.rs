//! Flame graphs, and the difference of two, drawn as boxes whose text stays readable at any width.

use crate::stacks::{Flame, Frame, fold, merge, of_workload};
use crate::text::{self, plain};
use maud::{Markup, html};
use result::{Point, Stacks};

/// Narrowest frame that is drawn, as a share of the width.
const NARROWEST: f64 = 0.0015;
/// Most frames that are drawn.
const FRAMES: usize = 1500;
/// Most rows that are drawn: beyond it there is only recursion.
const ROWS: usize = 72;
const ROW: usize = 18;

/// Off-CPU and on-CPU time of a captured window.
pub(super) fn section(stacks: &Stacks) -> Markup {
    let own = of_workload(&stacks.off_cpu);
    html! {
        @for (name, what, list) in [
            ("Off-CPU flame graph of the workload's tasks", "time off the CPU", &own),
            ("On-CPU flame graph, kernel threads and other tasks included", "time on the CPU", &stacks.on_cpu),
        ] {
            @let flame = fold(stacks, list);
            @if flame.total() > 0.0 {
                h3 { (name) }
                (draw(&flame, name, &|f| {
                    let cost = match stacks.operations {
                        Some(n) if n > 0.0 => format!("{} us an operation", text::micros(f.a / n)),
                        _ => format!("{} s", text::ratio(f.a / 1e6)),
                    };
                    format!("{}: {cost}, {} of the {what}", plain(f.name, 120), text::percent(f.a / flame.total()))
                }, &class))
            }
        }
    }
}

/// What an operation costs more or less than in another point, frame by frame.
pub(super) fn difference(base: &Point, new: &Point, base_name: &str, new_name: &str) -> Markup {
    let (Some(a), Some(b)) = (&base.stacks, &new.stacks) else {
        return html! {};
    };
    let (Some(a_ops), Some(b_ops)) = (a.operations.filter(|n| *n > 0.0), b.operations.filter(|n| *n > 0.0))
    else {
        return html! {};
    };
    let (a_own, b_own) = (of_workload(&a.off_cpu), of_workload(&b.off_cpu));
    html! {
        @for (name, a_list, b_list) in [
            ("Off-CPU time of the workload's tasks an operation, the difference", &a_own, &b_own),
            ("On-CPU time an operation, kernel threads and other tasks included, the difference", &a.on_cpu, &b.on_cpu),
        ] {
            @let flame = merge((a, a_list, a_ops), (b, b_list, b_ops));
            @if flame.total() > 0.0 {
                h3 { (name) }
                p.note {
                    "Against " (base_name) ". A frame is as wide as both sides together. "
                    span.swatch style="background:var(--more)" {} " more at " (new_name) ", "
                    span.swatch style="background:var(--less)" {} " less, "
                    span.swatch style="background:var(--same)" {} " within a tenth."
                }
                (draw(&flame, name, &|f| format!(
                    "{}: {} us an operation, {} there; {}",
                    plain(f.name, 120), text::micros(f.b), text::micros(f.a), text::signed_micros(f.b - f.a)
                ), &|f: &Frame<'_>| {
                    if (f.b - f.a).abs() < 0.1 * f.a.max(f.b) { "f same" } else if f.b > f.a { "f more" } else { "f less" }
                }))
            }
        }
    }
}

fn class(frame: &Frame<'_>) -> &'static str {
    if frame.kernel {
        "f k"
    } else if frame.depth > 1 {
        "f u"
    } else {
        "f"
    }
}

fn draw(
    flame: &Flame<'_>,
    label: &str,
    words: &dyn Fn(&Frame<'_>) -> String,
    class: &dyn Fn(&Frame<'_>) -> &'static str,
) -> Markup {
    let mut frames = flame.layout(NARROWEST, FRAMES);
    frames.retain(|f| f.depth < ROWS);
    let depth = frames.iter().map(|f| f.depth).max().unwrap_or(0) + 1;
    html! {
        div {
            div.controls.js-only { label { "Find" input.find type="search" size="16" maxlength="100"; } span.note { "A click widens a frame; one on a faded frame goes back." } }
            div.flame role="group" aria-label=(label) style=(format!("height:{}px", depth * ROW)) {
                @for f in &frames {
                    div class=(class(f)) tabindex="0" data-x=(format!("{:.6}", f.x)) data-w=(format!("{:.6}", f.w)) data-d=(f.depth)
                        style=(format!("left:{:.4}%;width:{:.4}%;top:{}px", f.x * 100.0, f.w * 100.0, f.depth * ROW))
                        title=(words(f)) { (plain(f.name, 80)) }
                }
            }
        }
    }
}
