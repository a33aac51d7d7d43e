//! The points of a result as every report orders and relates them.

use result::{Mode, Point, RunResult};

/// The points of one workload in one mode: what belongs into one table and one chart.
#[derive(Debug)]
pub struct Group<'a> {
    /// Workload, with its variant.
    pub workload: &'a str,
    /// Processes, threads or recorded.
    pub mode: Mode,
    /// Its points: by target in the user's order, then by tasks.
    pub rows: Vec<Row<'a>>,
}

/// One point with what is only known beside the others.
#[derive(Debug)]
pub struct Row<'a> {
    /// The point.
    pub point: &'a Point,
    /// Its index in the result.
    pub index: usize,
    /// Its rate over the best one with as many tasks; none when void or alone.
    pub of_best: Option<f64>,
    /// Its rate over the one of a single task on the same target; none when either is missing.
    pub scaling: Option<f64>,
}

impl Row<'_> {
    /// (Fastest - slowest task) / median task; none when there is one task or it is not known.
    pub fn spread(&self) -> Option<f64> {
        let tasks = self.point.per_task_ops_per_s.as_ref()?;
        (self.point.valid && self.point.tasks > 1 && tasks.median > 0.0)
            .then(|| (tasks.max - tasks.min) / tasks.median)
    }
}

/// The groups of a result, in the order in which their workloads first appear.
pub fn groups(result: &RunResult) -> Vec<Group<'_>> {
    let mut keys: Vec<(&str, Mode)> = Vec::new();
    let mut members: Vec<Vec<(usize, &Point)>> = Vec::new();
    let mut by_key = std::collections::HashMap::new();
    for (index, point) in result.points.iter().enumerate() {
        let key = (point.workload.as_str(), point.mode);
        let at = *by_key.entry(key).or_insert_with(|| {
            keys.push(key);
            members.push(Vec::new());
            keys.len() - 1
        });
        members[at].push((index, point));
    }
    keys.into_iter()
        .zip(members)
        .map(|((workload, mode), mut points)| {
            // The user's order where the result knows it, else the order of appearance.
            let mut order = std::collections::HashMap::new();
            for name in result
                .targets
                .iter()
                .map(|t| t.name.as_str())
                .chain(points.iter().map(|(_, p)| p.target.as_str()))
            {
                let next = order.len();
                order.entry(name).or_insert(next);
            }
            points.sort_by_key(|(index, p)| (order.get(p.target.as_str()).copied(), p.tasks, *index));
            let mut best = std::collections::HashMap::new();
            let mut targets = std::collections::HashMap::new();
            let mut single = std::collections::HashMap::new();
            for (_, p) in &points {
                if let Some(rate) = p.rate() {
                    let b: &mut f64 = best.entry(p.tasks).or_insert(rate);
                    *b = b.max(rate);
                    *targets.entry(p.tasks).or_insert(0u32) += 1;
                    if p.tasks == 1 {
                        single.entry(p.target.as_str()).or_insert(rate);
                    }
                }
            }
            let over = |rate: f64, base: Option<&f64>| {
                base.filter(|b| **b > 0.0).map(|b| rate / b).filter(|r| r.is_finite())
            };
            let rows = points
                .into_iter()
                .map(|(index, point)| Row {
                    point,
                    index,
                    of_best: point.rate().and_then(|rate| {
                        (targets.get(&point.tasks).copied().unwrap_or(0) > 1)
                            .then(|| over(rate, best.get(&point.tasks)))
                            .flatten()
                    }),
                    scaling: point.rate().and_then(|rate| over(rate, single.get(point.target.as_str()))),
                })
                .collect();
            Group { workload, mode, rows }
        })
        .collect()
}

impl<'a> Group<'a> {
    /// The targets in order, each once.
    pub fn targets(&self) -> Vec<&'a str> {
        let mut targets: Vec<&str> = Vec::new();
        for row in &self.rows {
            if targets.last() != Some(&row.point.target.as_str()) {
                targets.push(&row.point.target);
            }
        }
        targets
    }

    /// The most tasks of a point with a rate.
    pub fn most_tasks(&self) -> Option<u32> {
        self.rows.iter().filter(|r| r.point.rate().is_some()).map(|r| r.point.tasks).max()
    }
}
