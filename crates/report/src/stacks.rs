//! Stacks merged into trees: what flame graphs are laid out from, and the folded text form.

use crate::text::plain;
use result::{Stack, Stacks};
use std::collections::HashMap;

/// Deepest stack that is shown, frames; what lies deeper is cut at the leaf.
const DEEPEST: usize = 192;

/// A tree of frames from the root, with one or two weights.
#[derive(Debug)]
pub struct Flame<'a> {
    nodes: Vec<Node<'a>>,
}

#[derive(Debug)]
struct Node<'a> {
    name: &'a str,
    kernel: bool,
    a: f64,
    b: f64,
    children: Vec<usize>,
}

/// A frame that was laid out.
#[derive(Debug, Clone)]
pub struct Frame<'a> {
    /// Name of the function, or of the command at depth 1.
    pub name: &'a str,
    /// Whether it is a kernel function.
    pub kernel: bool,
    /// Rows above it.
    pub depth: usize,
    /// Left end, 0 to 1.
    pub x: f64,
    /// Width, 0 to 1.
    pub w: f64,
    /// First weight.
    pub a: f64,
    /// Second weight; 0 in a flame graph of one.
    pub b: f64,
}

/// The frames of a stack from its root: the command, user frames, kernel frames.
pub(crate) fn from_root<'a>(stacks: &'a Stacks, stack: &'a Stack) -> Vec<(&'a str, bool)> {
    let name = |i: &u32| stacks.frames.get(*i as usize).map_or("[unknown]", String::as_str);
    std::iter::once((stack.comm.as_str(), false))
        .chain(stack.user.iter().rev().map(|i| (name(i), false)))
        .chain(stack.kernel.iter().rev().map(|i| (name(i), true)))
        .take(DEEPEST)
        .collect()
}

/// Whether a weight can be drawn.
fn usable(us: f64) -> bool {
    us.is_finite() && us > 0.0 && us < 1e18
}

impl<'a> Flame<'a> {
    fn new() -> Self {
        Self { nodes: vec![Node { name: "all", kernel: false, a: 0.0, b: 0.0, children: Vec::new() }] }
    }

    fn add(
        &mut self,
        index: &mut HashMap<(usize, &'a str, bool), usize>,
        path: &[(&'a str, bool)],
        a: f64,
        b: f64,
    ) {
        let mut at = 0;
        self.nodes[0].a += a;
        self.nodes[0].b += b;
        for (name, kernel) in path {
            let next = *index.entry((at, name, *kernel)).or_insert_with(|| {
                self.nodes.push(Node { name, kernel: *kernel, a: 0.0, b: 0.0, children: Vec::new() });
                let new = self.nodes.len() - 1;
                self.nodes[at].children.push(new);
                new
            });
            self.nodes[next].a += a;
            self.nodes[next].b += b;
            at = next;
        }
    }

    /// All weight.
    pub fn total(&self) -> f64 {
        self.nodes[0].a + self.nodes[0].b
    }

    /// Frames by row, widest first within the limits; siblings by name, so that two graphs can be compared by eye.
    pub fn layout(&self, narrowest: f64, most: usize) -> Vec<Frame<'a>> {
        let total = self.total();
        let mut frames = Vec::new();
        if total <= 0.0 {
            return frames;
        }
        let mut row = vec![(0usize, 0.0f64)];
        let mut depth = 0;
        while !row.is_empty() && frames.len() < most {
            let mut below = Vec::new();
            for (node, x) in row {
                let n = &self.nodes[node];
                let w = (n.a + n.b) / total;
                if w < narrowest || frames.len() >= most {
                    continue;
                }
                frames.push(Frame { name: n.name, kernel: n.kernel, depth, x, w, a: n.a, b: n.b });
                let mut children = n.children.clone();
                children.sort_by_key(|c| self.nodes[*c].name);
                let mut at = x;
                for child in children {
                    below.push((child, at));
                    at += (self.nodes[child].a + self.nodes[child].b) / total;
                }
            }
            row = below;
            depth += 1;
        }
        frames
    }
}

/// The stacks of the workload's own tasks; all of them where none is known to be. Everybody else on the machine sleeps most of the
/// time, too, and what strangers do on its CPUs is not its work.
pub fn of_workload(list: &[Stack]) -> Vec<Stack> {
    let own: Vec<Stack> = list.iter().filter(|s| s.of_workload == Some(true)).cloned().collect();
    if own.is_empty() { list.to_vec() } else { own }
}

/// The tree of one list of stacks, weights in microseconds.
pub fn fold<'a>(stacks: &'a Stacks, list: &'a [Stack]) -> Flame<'a> {
    let mut flame = Flame::new();
    let mut index = HashMap::new();
    for stack in list.iter().filter(|s| usable(s.us)) {
        flame.add(&mut index, &from_root(stacks, stack), stack.us, 0.0);
    }
    flame
}

/// The tree of two lists, weights in microseconds per operation.
pub fn merge<'a>(a: (&'a Stacks, &'a [Stack], f64), b: (&'a Stacks, &'a [Stack], f64)) -> Flame<'a> {
    let mut flame = Flame::new();
    let mut index = HashMap::new();
    for stack in a.1.iter().filter(|s| usable(s.us / a.2)) {
        flame.add(&mut index, &from_root(a.0, stack), stack.us / a.2, 0.0);
    }
    for stack in b.1.iter().filter(|s| usable(s.us / b.2)) {
        flame.add(&mut index, &from_root(b.0, stack), 0.0, stack.us / b.2);
    }
    flame
}

/// A frame's name in the folded form, where `;` separates frames and the last blank ends the stack.
fn folded_name(name: &str) -> String {
    plain(name, 400).replace(';', ":")
}

/// The folded form of offcputime and of inferno: `COMM;user root…leaf;kernel root…leaf MICROSECONDS`, one stack a line;
/// equal stacks are added up, in the order of their text.
pub fn folded(stacks: &Stacks, list: &[Stack]) -> String {
    let mut lines: std::collections::BTreeMap<String, f64> = std::collections::BTreeMap::new();
    for stack in list.iter().filter(|s| usable(s.us)) {
        let names: Vec<String> = from_root(stacks, stack).into_iter().map(|(n, _)| folded_name(n)).collect();
        *lines.entry(names.join(";")).or_default() += stack.us;
    }
    let mut out = String::new();
    for (line, us) in lines {
        // What is less than half a microsecond has no line: 0 is not a weight.
        if us.round() >= 1.0 {
            out.push_str(&format!("{line} {us:.0}\n"));
        }
    }
    out
}
