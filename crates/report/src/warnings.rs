//! Warnings of many points, told once each: by their kind, with the worst of them in figures.

use crate::text::plain;
use crate::view::groups;
use result::{MadeBy, Mode, RunResult, Warning};

/// Longest text of a warning, columns.
const TEXT: usize = 400;

/// Points named before "and so many more".
const PLACES: usize = 5;

/// What a warning is merged by, and how bad it is among its like.
fn kind(warning: &Warning) -> (String, f64) {
    let plain_kind = |name: &str, size: f64| (name.to_owned(), size);
    match warning {
        Warning::RoundsDiffer { spread, because: None } => plain_kind("rounds differ", *spread),
        Warning::FewRounds { rounds } => plain_kind("few rounds", -f64::from(*rounds)),
        Warning::FewOperations { operations } => plain_kind("few operations", -operations),
        Warning::UnequalTasks { ratio } => plain_kind("unequal", *ratio),
        Warning::Steal { share } => plain_kind("steal", *share),
        Warning::OtherLoad { share } => plain_kind("other load", *share),
        Warning::Throttled { seconds } => plain_kind("throttled", *seconds),
        Warning::FrequencyVaries { low_mhz, high_mhz } => plain_kind("frequency", high_mhz - low_mhz),
        Warning::WarmUpNotSteady { rounds, .. } => plain_kind("not steady", f64::from(*rounds)),
        Warning::RoundsRepeated { rounds, still_tainted } => {
            plain_kind("repeated", f64::from(*still_tainted) * 1e6 + f64::from(*rounds))
        }
        Warning::TickSamples { points } => plain_kind("ticks", *points),
        Warning::Unaccounted { share } => plain_kind("unaccounted", share.abs()),
        Warning::LostEvents { lost, .. } => plain_kind("lost events", *lost as f64),
        Warning::LostStacks { lost } => plain_kind("lost stacks", *lost as f64),
        Warning::Disturbed { throughput_ratio, .. } => {
            plain_kind("disturbed", -throughput_ratio.unwrap_or(0.0))
        }
        other => (other.to_string(), 0.0),
    }
}

/// The warnings of a result as lines, those of the whole run first.
pub fn lines(result: &RunResult) -> Vec<String> {
    struct Merged<'a> {
        warning: &'a Warning,
        size: f64,
        differs: bool,
        worst: Option<String>,
        others: Vec<String>,
    }
    let several = groups(result).len() > 1;
    let of_run = result.warnings.iter().map(|w| (w, None));
    let of_points = result.points.iter().flat_map(|p| {
        let place = (result.made_by == MadeBy::Run).then(|| {
            let workload = if several { format!("{} ", plain(&p.workload, 30)) } else { String::new() };
            format!("{workload}{} {}", plain(&p.target, 30), p.tasks)
        });
        p.warnings.iter().map(move |w| (w, place.clone()))
    });
    let mut merged: Vec<Merged<'_>> = Vec::new();
    let mut index = std::collections::HashMap::new();
    for (warning, place) in of_run.chain(of_points) {
        let (key, size) = kind(warning);
        let Some(&at) = index.get(&key) else {
            index.insert(key, merged.len());
            merged.push(Merged { warning, size, differs: false, worst: place, others: Vec::new() });
            continue;
        };
        let m = &mut merged[at];
        m.differs |= m.warning != warning;
        if size > m.size {
            (m.warning, m.size) = (warning, size);
            m.others.extend(std::mem::replace(&mut m.worst, place));
        } else {
            m.others.extend(place);
        }
    }
    merged
        .into_iter()
        .map(|m| {
            let mut line = plain(&m.warning.to_string(), TEXT);
            let count = usize::from(m.worst.is_some()) + m.others.len();
            // What holds everywhere in the same way needs no list.
            let everywhere = count > 1 && count == result.points.len() && !m.differs;
            let Some(worst) = m.worst.filter(|_| !everywhere) else {
                return line;
            };
            line.push_str(" [");
            line.push_str(&worst);
            if !m.others.is_empty() {
                line.push_str(if m.differs { "; less so " } else { ", " });
                let shown = m.others.iter().take(PLACES).cloned().collect::<Vec<_>>();
                line.push_str(&shown.join(", "));
                if m.others.len() > PLACES {
                    line.push_str(&format!(", {} more", m.others.len() - PLACES));
                }
            }
            line.push(']');
            line
        })
        .collect()
}

/// Void points as lines: those with the same reason together.
pub fn void_lines<'a>(points: impl Iterator<Item = &'a result::Point>) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for p in points.filter(|p| !p.valid) {
        let because = plain(p.invalid_because.as_deref().unwrap_or("no reason given"), TEXT);
        let place = match p.mode {
            Mode::Recorded => plain(&p.workload, 40),
            _ => format!("{} at {}", plain(&p.target, 40), crate::text::tasks(p.tasks)),
        };
        match reasons.iter_mut().find(|(r, _)| *r == because) {
            Some((_, places)) => places.push(place),
            None => reasons.push((because, vec![place])),
        }
    }
    reasons
        .into_iter()
        .map(|(because, places)| {
            let verb = if places.len() > 1 { "are" } else { "is" };
            let more = places.len().saturating_sub(PLACES + 1);
            let mut shown = places[..places.len() - more].join(", ");
            if more > 0 {
                shown.push_str(&format!(" and {more} more"));
            }
            format!("{shown} {verb} void: {because}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use result::Point;

    fn point(target: &str, warning: Option<Warning>) -> Point {
        Point {
            target: target.into(),
            tasks: 2,
            valid: true,
            warnings: warning.into_iter().collect(),
            ..Default::default()
        }
    }

    fn of(points: Vec<Point>) -> RunResult {
        RunResult { points, ..RunResult::new(MadeBy::Run, 1) }
    }

    #[test]
    fn the_same_kind_at_many_points_is_one_line_with_the_worst_in_figures() {
        let differ = |spread| Some(Warning::RoundsDiffer { spread, because: None });
        let lines = lines(&of(vec![
            point("a", differ(0.2)),
            point("b", differ(0.4)),
            point("c", differ(0.3)),
            point("d", None),
        ]));
        assert_eq!(
            lines,
            ["the rounds differ by 40 %: more rounds narrow the interval (--rounds) [b 2; less so a 2, c 2]"]
        );
    }

    #[test]
    fn what_holds_everywhere_has_no_list() {
        let ticks = || Some(Warning::TickSamples { points: 3.0 });
        let lines = lines(&of(vec![point("a", ticks()), point("b", ticks())]));
        assert!(lines.len() == 1 && !lines[0].contains('['), "{lines:?}");
    }

    #[test]
    fn void_points_with_the_same_reason_are_one_line() {
        let mut points = [point("a", None), point("b", None), point("c", None)];
        for p in &mut points[..2] {
            p.valid = false;
            p.invalid_because = Some("mkfs failed".into());
        }
        assert_eq!(void_lines(points.iter()), ["a at 2 tasks, b at 2 tasks are void: mkfs failed"]);
    }
}
