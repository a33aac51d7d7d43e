//! Who waits for whom, as a graph from the waiters on top to the roots below.

use super::NAME;
use crate::text::{self, NONE, plain};
use maud::{Markup, html};
use result::{ChainEdge, ChainNodeKind, Chains};

/// Edges that are drawn, heaviest first, and the lightest of them as a share of the heaviest; the table has more.
const EDGES: usize = 16;
const LIGHTEST: f64 = 0.02;
const LISTED: usize = 200;

const BOX_WIDTH: f64 = 196.0;
const BOX_HEIGHT: f64 = 44.0;
const GAP_X: f64 = 24.0;
const GAP_Y: f64 = 66.0;
/// Room of an edge that passes a row of boxes, with its figure.
const PASS_WIDTH: f64 = 96.0;

/// The drawing and the same as a table.
pub(super) fn section(chains: &Chains) -> Markup {
    let mut edges: Vec<&ChainEdge> = chains
        .edges
        .iter()
        .filter(|e| {
            (e.from as usize) < chains.nodes.len() && (e.to as usize) < chains.nodes.len() && weight(e) > 0.0
        })
        .collect();
    edges.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    if edges.is_empty() {
        return html! {};
    }
    let heaviest = weight(edges[0]);
    let heavy = edges.iter().take(EDGES).take_while(|e| weight(e) >= LIGHTEST * heaviest).count();
    let drawn = &edges[..heavy];
    let layout = Layout::new(drawn);
    let top = weight(drawn[0]);
    let name = |i: u32| -> String {
        let node = &chains.nodes[i as usize];
        let mut name = plain(&node.label, NAME);
        if let Some(d) = &node.detail {
            name.push_str(", ");
            name.push_str(&plain(d, NAME));
        }
        name
    };
    html! {
        h3 { "Who waits for whom" }
        div.scroll tabindex="0" role="region" aria-label="Wait chains" {
            svg.chains viewBox=(format!("0 0 {:.0} {:.0}", layout.width, layout.height)) role="img"
                style=(format!("min-width:{:.0}px;max-width:{:.0}px", layout.width.min(560.0), layout.width * 1.25))
                aria-label="Wait chains as a graph; every edge is in the table below" {
                @for (i, e) in drawn.iter().enumerate() { (edge(i, e, &layout, top)) }
                @for (node, (x, y)) in &layout.places {
                    @let data = &chains.nodes[*node as usize];
                    g.node {
                        rect x=(n(*x)) y=(n(*y)) width=(BOX_WIDTH) height=(BOX_HEIGHT) rx=(if data.kind == ChainNodeKind::Tasks { 20 } else { 4 })
                            style=(node_style(data.kind)) {}
                        text x=(n(x + BOX_WIDTH / 2.0)) y=(n(y + 18.0)) text-anchor="middle" style="font-weight:600" { (plain(&data.label, 22)) }
                        text.soft x=(n(x + BOX_WIDTH / 2.0)) y=(n(y + 35.0)) text-anchor="middle" {
                            (plain(data.detail.as_deref().unwrap_or_else(|| data.lock_kind.map_or("", |k| k.words())), 27))
                        }
                        title { (name(*node)) }
                    }
                }
            }
        }
        p.note {
            @if edges.len() > drawn.len() { "Edges of less than 2 % of the heaviest are only in the table. " }
            "Round boxes are tasks, square ones locks; a thick frame is a root. Numbers are us of waiting an operation, or the time in the window."
        }
        details {
            summary { "The same as a table" }
            div.scroll tabindex="0" role="region" aria-label="Edges of the wait chains" {
                table {
                    thead { tr { th.l scope="col" { "who" } th.l scope="col" { "waits for or is held by" } th scope="col" { "us per op" } th scope="col" { "seconds" } th scope="col" { "waits" } } }
                    tbody {
                        @for e in edges.iter().take(LISTED) {
                            tr {
                                td.l { (name(e.from)) } td.l { (name(e.to)) }
                                td { (e.us_per_op.map_or_else(|| NONE.to_owned(), text::micros)) }
                                td { (text::cpu_seconds(e.wait_s)) } td { (text::rate(e.waits as f64)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What an edge weighs: comparable within one graph, whose edges all have the same units.
fn weight(edge: &ChainEdge) -> f64 {
    if edge.wait_s.is_finite() { edge.wait_s } else { 0.0 }
}

fn n(value: f64) -> String {
    format!("{value:.1}")
}

fn node_style(kind: ChainNodeKind) -> &'static str {
    match kind {
        ChainNodeKind::Tasks => "fill:var(--panel);stroke:var(--t2);stroke-width:2",
        ChainNodeKind::Lock => "fill:var(--panel);stroke:var(--t1);stroke-width:2",
        ChainNodeKind::Root => "fill:var(--panel);stroke:var(--bad);stroke-width:4",
        ChainNodeKind::Other => "fill:var(--panel);stroke:var(--soft);stroke-width:1.5",
    }
}

/// Where the boxes are, and by which ways the edges get around them.
struct Layout {
    places: Vec<(u32, (f64, f64))>,
    /// Of each edge, the points in the rows that it passes: their x and the middle of the row.
    ways: Vec<Vec<(f64, f64)>>,
    width: f64,
    height: f64,
}

/// What stands in a row: a box, or an edge that passes.
#[derive(Clone, Copy, PartialEq)]
enum Slot {
    Node(usize),
    Pass(usize),
}

impl Slot {
    fn width(self) -> f64 {
        match self {
            Self::Node(_) => BOX_WIDTH,
            Self::Pass(_) => PASS_WIDTH,
        }
    }
}

impl Layout {
    /// Layers from waiters downwards: a node stands below everything that waits for it; edges that would close a circle
    /// are left out of the ranking. An edge that skips layers has a place of its own in each of them, so that no box hides it.
    fn new(edges: &[&ChainEdge]) -> Self {
        let mut nodes: Vec<u32> = edges.iter().flat_map(|e| [e.from, e.to]).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let at = |node: u32| nodes.binary_search(&node).unwrap_or(0);
        let mut kept: Vec<(usize, usize)> = Vec::new();
        for e in edges {
            let (from, to) = (at(e.from), at(e.to));
            if from != to && !reaches(&kept, to, from) {
                kept.push((from, to));
            }
        }
        let mut layer = vec![0usize; nodes.len()];
        for _ in 0..nodes.len() {
            for (from, to) in &kept {
                layer[*to] = layer[*to].max(layer[*from] + 1);
            }
        }
        let layers = layer.iter().max().map_or(0, |l| l + 1);
        // The ends of an edge, upper one first.
        let ends: Vec<(usize, usize)> = edges
            .iter()
            .map(|e| (at(e.from), at(e.to)))
            .map(|(a, b)| if layer[a] <= layer[b] { (a, b) } else { (b, a) })
            .collect();
        let mut rows: Vec<Vec<Slot>> = Vec::new();
        for l in 0..layers {
            let mut row: Vec<Slot> = (0..nodes.len()).filter(|i| layer[*i] == l).map(Slot::Node).collect();
            let passing = ends.iter().enumerate().filter(|(_, (a, b))| layer[*a] < l && l < layer[*b]);
            row.extend(passing.map(|(e, _)| Slot::Pass(e)));
            if let Some(above) = rows.last() {
                // Each below the middle of what leads to it, in steps of the row above.
                let place = |slot: Slot| above.iter().position(|s| *s == slot).map(|i| i as f64);
                let ahead = |e: usize| place(Slot::Pass(e)).or_else(|| place(Slot::Node(ends[e].0)));
                let middle = |slot: Slot| -> f64 {
                    let from: Vec<f64> = match slot {
                        Slot::Pass(e) => ahead(e).into_iter().collect(),
                        Slot::Node(n) => {
                            (0..ends.len()).filter(|e| ends[*e].1 == n).filter_map(ahead).collect()
                        }
                    };
                    if from.is_empty() { 0.0 } else { from.iter().sum::<f64>() / from.len() as f64 }
                };
                row.sort_by(|a, b| middle(*a).total_cmp(&middle(*b)));
                // Of those below the same, one that passes stands outside and not between boxes.
                if row.len() > 2 && matches!(row[1], Slot::Pass(_)) && middle(row[0]) == middle(row[1]) {
                    row.swap(0, 1);
                }
            }
            rows.push(row);
        }
        let span = |row: &[Slot]| row.iter().map(|s| s.width() + GAP_X).sum::<f64>() - GAP_X;
        let width = rows.iter().map(|r| span(r) + 2.0 * GAP_X).fold(440.0, f64::max);
        let mut places = Vec::new();
        let mut ways = vec![Vec::new(); edges.len()];
        for (l, row) in rows.iter().enumerate() {
            let y = 8.0 + l as f64 * (BOX_HEIGHT + GAP_Y);
            let mut x = (width - span(row)) / 2.0;
            for slot in row {
                match *slot {
                    Slot::Node(i) => places.push((nodes[i], (x, y))),
                    Slot::Pass(e) => ways[e].push((x + PASS_WIDTH / 2.0, y + BOX_HEIGHT / 2.0)),
                }
                x += slot.width() + GAP_X;
            }
        }
        Self { places, ways, width, height: 8.0 + layers as f64 * (BOX_HEIGHT + GAP_Y) - GAP_Y + 12.0 }
    }

    fn place(&self, node: u32) -> (f64, f64) {
        self.places.iter().find(|(n, _)| *n == node).map_or((0.0, 0.0), |(_, p)| *p)
    }
}

/// Whether `to` can be reached from `from`.
fn reaches(edges: &[(usize, usize)], from: usize, to: usize) -> bool {
    let mut seen = vec![from];
    let mut next = vec![from];
    while let Some(node) = next.pop() {
        if node == to {
            return true;
        }
        for (_, b) in edges.iter().filter(|(a, _)| *a == node) {
            if !seen.contains(b) {
                seen.push(*b);
                next.push(*b);
            }
        }
    }
    false
}

fn edge(index: usize, e: &ChainEdge, layout: &Layout, top: f64) -> Markup {
    if e.from == e.to {
        return html! {};
    }
    let ((ax, ay), (bx, by)) = (layout.place(e.from), layout.place(e.to));
    let down = by > ay;
    let (x0, x1) = (ax + BOX_WIDTH / 2.0, bx + BOX_WIDTH / 2.0);
    let (y0, y1) = if down { (ay + BOX_HEIGHT, by) } else { (ay, by + BOX_HEIGHT) };
    let mut way = layout.ways[index].clone();
    if !down {
        way.reverse();
    }
    // One that goes up between two rows bends, away from the one that comes down there.
    let bend = if !down && way.is_empty() { BOX_WIDTH * 0.6 } else { 0.0 };
    let half = way.len() / 2;
    let (mx, my) = match way.get(half) {
        Some(middle) => *middle,
        None => ((x0 + x1) / 2.0 + bend * 0.75, (y0 + y1) / 2.0),
    };
    let width = 1.0 + 6.0 * (weight(e) / top).clamp(0.0, 1.0);
    let label = match e.us_per_op {
        Some(us) => format!("{} us", text::micros(us)),
        None => text::time(e.wait_s),
    };
    let mut path = format!("M{},{}", n(x0), n(y0));
    let curve = |path: &mut String, (x0, y0): (f64, f64), (x1, y1): (f64, f64)| {
        path.push_str(&format!(
            " C{},{} {},{} {},{}",
            n(x0 + bend),
            n(y0 + (y1 - y0) * 0.35),
            n(x1 + bend),
            n(y0 + (y1 - y0) * 0.65),
            n(x1),
            n(y1)
        ));
    };
    let mut at = (x0, y0);
    for (x, y) in way {
        // Straight beside the boxes of the row, from one edge of it to the other.
        let reach = if down { BOX_HEIGHT / 2.0 } else { -BOX_HEIGHT / 2.0 };
        curve(&mut path, at, (x, y - reach));
        path.push_str(&format!(" L{},{}", n(x), n(y + reach)));
        at = (x, y + reach);
    }
    curve(&mut path, at, (x1, y1));
    let tip = if down { -8.0 } else { 8.0 };
    html! {
        g.edge {
            path d=(path) style=(format!("fill:none;stroke:var(--soft);stroke-width:{width:.1};stroke-opacity:.55")) {}
            polygon points=(format!("{},{} {},{} {},{}", n(x1), n(y1), n(x1 - 5.0), n(y1 + tip), n(x1 + 5.0), n(y1 + tip))) style="fill:var(--soft)" {}
            text x=(n(mx + 8.0)) y=(n(my + 4.0)) style="paint-order:stroke;stroke:var(--bg);stroke-width:4px" { (label) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: u32, to: u32) -> ChainEdge {
        ChainEdge { from, to, wait_s: 1.0, ..Default::default() }
    }

    #[test]
    fn waiters_stand_above_what_they_wait_for_also_around_a_circle() {
        let edges = [edge(0, 1), edge(1, 2), edge(2, 0), edge(0, 2)];
        let layout = Layout::new(&edges.iter().collect::<Vec<_>>());
        let y = |i| layout.place(i).1;
        assert!(y(0) < y(1) && y(1) < y(2));
    }

    #[test]
    fn an_edge_that_skips_rows_passes_beside_their_boxes() {
        let edges = [edge(0, 1), edge(1, 2), edge(2, 3), edge(0, 3), edge(3, 0), edge(0, 2), edge(1, 3)];
        let layout = Layout::new(&edges.iter().collect::<Vec<_>>());
        let passed: Vec<usize> = layout.ways.iter().map(Vec::len).collect();
        assert_eq!(passed, [0, 0, 0, 2, 2, 1, 1]);
        for (x, y) in layout.ways.iter().flatten() {
            assert!((0.0..=layout.width).contains(x));
            let row = layout.places.iter().filter(|(_, (_, top))| (top..&(top + BOX_HEIGHT)).contains(&y));
            for (node, (left, _)) in row {
                assert!(*x < *left || *x > left + BOX_WIDTH, "box {node} hides the edge at {x}, {y}");
            }
        }
    }
}
