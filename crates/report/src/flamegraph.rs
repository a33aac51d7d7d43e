//! Flame graphs as SVG files that open in any browser, drawn by inferno.

use crate::FormatError;
use crate::stacks::{folded, from_root};
use crate::text::plain;
use inferno::flamegraph::{Options, from_lines};
use result::{Stack, Stacks};
use std::collections::BTreeMap;

/// What a flame graph shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Time off the CPU.
    OffCpu,
    /// Time on the CPU.
    OnCpu,
}

impl Which {
    /// The stacks of a capture.
    pub fn of(self, stacks: &Stacks) -> &[Stack] {
        match self {
            Self::OffCpu => &stacks.off_cpu,
            Self::OnCpu => &stacks.on_cpu,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::OffCpu => "Off-CPU time",
            Self::OnCpu => "On-CPU time",
        }
    }
}

/// One capture as an SVG flame graph.
///
/// # Errors
/// When there is nothing to draw.
pub fn svg(stacks: &Stacks, which: Which, name: &str) -> Result<Vec<u8>, FormatError> {
    let lines = folded(stacks, which.of(stacks));
    if lines.is_empty() {
        return Err(FormatError::NoStacks);
    }
    let mut options = options(which, name);
    options.count_name = "us".to_owned();
    draw(&mut options, lines.lines())
}

/// The difference of two captures per operation: as wide as `new`, red where it costs more than `base`, blue where less.
///
/// # Errors
/// When there is nothing to draw, or operations are missing to compare by.
pub fn difference_svg(
    base: &Stacks,
    new: &Stacks,
    which: Which,
    base_name: &str,
    new_name: &str,
) -> Result<Vec<u8>, FormatError> {
    let operations = |s: &Stacks| s.operations.filter(|n| *n > 0.0).ok_or(FormatError::NoOperations);
    let (a, b) = (operations(base)?, operations(new)?);
    // Nanoseconds an operation, so that small costs are not rounded away.
    let mut lines: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let mut add = |stacks: &Stacks, operations: f64, second: bool| {
        for stack in which.of(stacks) {
            let ns = stack.us * 1000.0 / operations;
            if !(ns.is_finite() && ns > 0.0 && ns < 1e15) {
                continue;
            }
            let names: Vec<String> =
                from_root(stacks, stack).into_iter().map(|(n, _)| plain(n, 400).replace(';', ":")).collect();
            let entry = lines.entry(names.join(";")).or_default();
            if second {
                entry.1 += ns;
            } else {
                entry.0 += ns;
            }
        }
    };
    add(base, a, false);
    add(new, b, true);
    let lines: Vec<String> = lines
        .into_iter()
        .filter(|(_, (x, y))| *x >= 0.5 || *y >= 0.5)
        .map(|(line, (x, y))| format!("{line} {x:.0} {y:.0}"))
        .collect();
    if lines.is_empty() {
        return Err(FormatError::NoStacks);
    }
    let mut options = options(which, &format!("{new_name} against {base_name}"));
    options.count_name = "ns per operation".to_owned();
    draw(&mut options, lines.iter().map(String::as_str))
}

fn options(which: Which, name: &str) -> Options<'static> {
    let mut options = Options::default();
    options.title = format!("{}: {}", which.words(), plain(name, 100));
    options.deterministic = true;
    options
}

fn draw<'a>(
    options: &mut Options<'_>,
    lines: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<u8>, FormatError> {
    let mut out = Vec::new();
    from_lines(options, lines, &mut out).map_err(|e| FormatError::Drawing { why: e.to_string() })?;
    Ok(out)
}
