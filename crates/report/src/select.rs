//! Choosing points of a result, for formats that hold one capture and for comparisons of two targets.

use result::{Point, RunResult};

/// Which points; what is none matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Workload, with its variant.
    pub workload: Option<String>,
    /// Target.
    pub target: Option<String>,
    /// Number of tasks.
    pub tasks: Option<u32>,
}

impl Selection {
    /// Whether a point is meant.
    pub fn matches(&self, point: &Point) -> bool {
        self.workload.as_ref().is_none_or(|w| *w == point.workload)
            && self.target.as_ref().is_none_or(|t| *t == point.target)
            && self.tasks.is_none_or(|t| t == point.tasks)
    }

    /// The points that are meant.
    pub fn of<'a>(&self, result: &'a RunResult) -> Vec<&'a Point> {
        result.points.iter().filter(|p| self.matches(p)).collect()
    }
}

/// Time that the workload's tasks were off the CPU in the captured windows, us an operation, or us when there are no operations.
fn off_cpu(point: &Point) -> f64 {
    point.stacks.as_ref().map_or(0.0, |s| {
        let own = crate::stacks::of_workload(&s.off_cpu);
        let us: f64 = own.iter().map(|s| s.us).filter(|us| us.is_finite() && *us > 0.0).sum();
        match s.operations {
            Some(n) if n > 0.0 => us / n,
            _ => us,
        }
    })
}

/// Of points that have stacks the one whose tasks waited most; the one to show when the user named none.
pub fn with_most_waiting<'a>(points: &[&'a Point]) -> Option<&'a Point> {
    points.iter().copied().filter(|p| p.stacks.is_some()).max_by(|a, b| off_cpu(a).total_cmp(&off_cpu(b)))
}
