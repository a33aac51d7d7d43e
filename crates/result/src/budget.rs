//! The CPU budget of an operation: what the allowed CPUs did during the window, per operation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// CPU budget per operation, CPU-microseconds; also the difference of two budgets.
///
/// A part that was not measured is null, never 0, and none is computed as the remainder: `unaccounted` says how far the
/// independent sources disagree.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Budget {
    /// User code.
    pub user: Option<f64>,
    /// Kernel code on behalf of the workload, without what `spin` and `irq` show.
    pub system: Option<f64>,
    /// Spinning for a lock; null without capture.
    pub spin: Option<f64>,
    /// Interrupts; null when the kernel does not count them apart.
    pub irq: Option<f64>,
    /// Taken by the hypervisor.
    pub steal: Option<f64>,
    /// Idle allowed CPUs that could have been used.
    pub idle: Option<f64>,
    /// The part of `idle` during which a task waited for block I/O, as the kernel counts it.
    pub iowait: Option<f64>,
    /// CPUs that could not have been used, because there were fewer tasks than CPUs.
    pub unused: Option<f64>,
    /// Kernel work for the workload on CPUs that its tasks do not use.
    pub system_elsewhere: Option<f64>,
    /// Work of strangers on the allowed CPUs.
    pub other: Option<f64>,
    /// Capacity: allowed CPUs times window over operations.
    pub total: Option<f64>,
    /// What the independent sources leave unexplained (positive) or explain twice (negative).
    pub unaccounted: Option<f64>,
    /// Kernel code by system call (or exception, or kind of kernel thread), most first; empty when not sampled.
    pub system_by: Vec<NamedCost>,
    /// Kernel code by the part of the kernel that works (a file system, `mm`, …), most first; empty when not sampled.
    pub system_by_group: Vec<NamedCost>,
    /// Spinning by the function that wants the lock, most first; empty when not sampled.
    pub spin_by: Vec<NamedCost>,
    /// Where each part comes from, by its name.
    pub sources: BTreeMap<String, PartSource>,
}

/// A cost with a name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NamedCost {
    /// System call or kernel function group.
    pub name: String,
    /// CPU-microseconds per operation.
    pub us_per_op: f64,
}

/// How exactly a part of the budget is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartSource {
    /// Counted by the kernel at every switch.
    Exact,
    /// The scheduler's tick: whichever ran at the tick gets the whole tick.
    Ticks,
    /// Samples of captured windows.
    Samples,
    /// A source that this version does not know.
    #[serde(other)]
    Unknown,
}

/// The parts of a budget, in the order in which reports show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BudgetPart {
    /// [`Budget::user`]
    User,
    /// [`Budget::system`]
    System,
    /// [`Budget::spin`]
    Spin,
    /// [`Budget::irq`]
    Irq,
    /// [`Budget::system_elsewhere`]
    SystemElsewhere,
    /// [`Budget::other`]
    Other,
    /// [`Budget::steal`]
    Steal,
    /// [`Budget::idle`]
    Idle,
    /// [`Budget::unused`]
    Unused,
    /// [`Budget::unaccounted`]
    Unaccounted,
}

impl BudgetPart {
    /// Every part that a total is made of, in order.
    pub const ALL: [Self; 10] = [
        Self::User,
        Self::System,
        Self::Spin,
        Self::Irq,
        Self::SystemElsewhere,
        Self::Other,
        Self::Steal,
        Self::Idle,
        Self::Unused,
        Self::Unaccounted,
    ];

    /// Name of the field in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::System => "system",
            Self::Spin => "spin",
            Self::Irq => "irq",
            Self::SystemElsewhere => "system_elsewhere",
            Self::Other => "other",
            Self::Steal => "steal",
            Self::Idle => "idle",
            Self::Unused => "unused",
            Self::Unaccounted => "unaccounted",
        }
    }
}

impl Budget {
    /// One part, CPU-microseconds per operation.
    pub fn part(&self, part: BudgetPart) -> Option<f64> {
        match part {
            BudgetPart::User => self.user,
            BudgetPart::System => self.system,
            BudgetPart::Spin => self.spin,
            BudgetPart::Irq => self.irq,
            BudgetPart::SystemElsewhere => self.system_elsewhere,
            BudgetPart::Other => self.other,
            BudgetPart::Steal => self.steal,
            BudgetPart::Idle => self.idle,
            BudgetPart::Unused => self.unused,
            BudgetPart::Unaccounted => self.unaccounted,
        }
    }

    /// Total less `unused`: the figure by which points with different task counts are compared.
    pub fn usable_total(&self) -> Option<f64> {
        Some(self.total? - self.unused.unwrap_or(0.0))
    }

    /// `self - base`, part by part. A part that either side does not know is null. With `leave_unused_out` (points of
    /// different task counts) `unused` is null and `total` goes without it. Where only one side knows its spinning, that is
    /// counted as system time, as it is on the other side.
    pub fn minus(&self, base: &Budget, leave_unused_out: bool) -> Budget {
        let sub = |a: Option<f64>, b: Option<f64>| Some(a? - b?);
        let spin_on_both = self.spin.is_some() && base.spin.is_some();
        let system = |b: &Budget| {
            if spin_on_both { b.system } else { b.system.map(|s| s + b.spin.unwrap_or(0.0)) }
        };
        Budget {
            user: sub(self.user, base.user),
            system: sub(system(self), system(base)),
            spin: sub(self.spin, base.spin),
            irq: sub(self.irq, base.irq),
            steal: sub(self.steal, base.steal),
            idle: sub(self.idle, base.idle),
            iowait: sub(self.iowait, base.iowait),
            unused: if leave_unused_out { None } else { sub(self.unused, base.unused) },
            system_elsewhere: sub(self.system_elsewhere, base.system_elsewhere),
            other: sub(self.other, base.other),
            total: if leave_unused_out {
                sub(self.usable_total(), base.usable_total())
            } else {
                sub(self.total, base.total)
            },
            unaccounted: sub(self.unaccounted, base.unaccounted),
            system_by: minus_by_name(&self.system_by, &base.system_by),
            system_by_group: minus_by_name(&self.system_by_group, &base.system_by_group),
            spin_by: minus_by_name(&self.spin_by, &base.spin_by),
            sources: BTreeMap::new(),
        }
    }
}

/// Name by name `costs - base`, largest difference first; empty when one side was not sampled.
fn minus_by_name(costs: &[NamedCost], base: &[NamedCost]) -> Vec<NamedCost> {
    if costs.is_empty() || base.is_empty() {
        return Vec::new();
    }
    let mut by_name: BTreeMap<&str, f64> = BTreeMap::new();
    for cost in costs {
        *by_name.entry(&cost.name).or_default() += cost.us_per_op;
    }
    for cost in base {
        *by_name.entry(&cost.name).or_default() -= cost.us_per_op;
    }
    let mut differences: Vec<NamedCost> =
        by_name.into_iter().map(|(name, us_per_op)| NamedCost { name: name.to_owned(), us_per_op }).collect();
    differences.sort_by(|a, b| b.us_per_op.abs().total_cmp(&a.us_per_op.abs()));
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(system: f64, spin: Option<f64>, unused: f64) -> Budget {
        Budget {
            system: Some(system),
            spin,
            unused: Some(unused),
            total: Some(system + spin.unwrap_or(0.0) + unused),
            ..Default::default()
        }
    }

    #[test]
    fn spinning_that_only_one_side_knows_is_compared_as_system_time() {
        let difference = budget(40.0, Some(4.0), 0.0).minus(&budget(30.0, None, 0.0), false);
        assert_eq!(difference.system, Some(14.0));
        assert_eq!(difference.spin, None);
        let difference = budget(40.0, Some(4.0), 0.0).minus(&budget(30.0, Some(1.0), 0.0), false);
        assert_eq!((difference.system, difference.spin), (Some(10.0), Some(3.0)));
    }

    #[test]
    fn points_of_different_task_counts_are_compared_without_unused_cpus() {
        let difference = budget(40.0, None, 0.0).minus(&budget(30.0, None, 30.0), true);
        assert_eq!((difference.total, difference.unused), (Some(10.0), None));
    }
}
