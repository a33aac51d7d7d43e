//! Where the capacity of the allowed CPUs went during a window, from what uncaptured rounds can know.
//!
//! No part is a remainder. Capacity is the clock's (allowed CPUs x window); the parts are the kernel's counters; what the
//! two leave between them is printed as `unaccounted`.

use serde::{Deserialize, Serialize};

use crate::readings::CpuTimes;

/// How the tasks of a point were spread over the allowed CPUs.
#[derive(Clone, Debug, PartialEq)]
pub enum Spread {
    /// Each task, with all that it starts, is bound to a CPU; true for every allowed CPU that has a task.
    Bound(Vec<bool>),
    /// The scheduler decides; how many tasks there are.
    Free(u32),
}

/// The parts of a window, CPU-microseconds. They and `unaccounted` add up to `capacity`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// Allowed CPUs x window.
    pub capacity_us: f64,
    /// User code.
    pub user_us: f64,
    /// Kernel code; holds the interrupts too where `irq_us` is `None`.
    pub system_us: f64,
    /// Interrupts; `None` where the kernel does not count them apart.
    pub irq_us: Option<f64>,
    /// Taken by the hypervisor.
    pub steal_us: f64,
    /// Idle CPUs that could have been used, waits for block I/O included.
    pub idle_us: f64,
    /// The part of `idle_us` in which a task waited for block I/O, as the kernel guesses it.
    pub iowait_us: f64,
    /// CPUs that could not have been used: more CPUs than tasks, or what a quota takes.
    pub unused_us: f64,
    /// Kernel work on CPUs that have no task; `None` where every CPU may have one.
    pub system_elsewhere_us: Option<f64>,
    /// User code on CPUs that have no task; `None` where every CPU may have one: then it is part of `user_us`.
    pub other_us: Option<f64>,
    /// Capacity less all parts: how far the clock and the counters disagree.
    pub unaccounted_us: f64,
}

impl Parts {
    /// Sorts what the CPUs did. `cpus` is the difference of two readings, one entry an allowed CPU; `quota_cpus` is what
    /// a cgroup quota leaves, in CPUs.
    pub fn new(
        cpus: &[CpuTimes],
        window_us: f64,
        spread: &Spread,
        quota_cpus: Option<f64>,
        irq_apart: bool,
    ) -> Parts {
        let with_task = |i: usize| match spread {
            Spread::Bound(used) => used.get(i).copied().unwrap_or(false),
            Spread::Free(_) => true,
        };
        let (mut on, mut off) = (CpuTimes::default(), CpuTimes::default());
        for (i, times) in cpus.iter().enumerate() {
            let side = if with_task(i) { &mut on } else { &mut off };
            *side = side.plus(*times);
        }
        let capacity_us = cpus.len() as f64 * window_us;
        // Only on a CPU without a task can others' time be told from the tasks'.
        let apart = (0..cpus.len()).any(|i| !with_task(i));
        let mut idle_us = on.idle_us + on.iowait_us;
        let mut unused_us = off.idle_us + off.iowait_us;
        if let Spread::Free(tasks) = spread {
            let spare = (cpus.len() as f64 - f64::from(*tasks)).max(0.0) * window_us;
            unused_us = spare.min(idle_us.max(0.0));
            idle_us -= unused_us;
        }
        if let Some(quota) = quota_cpus {
            let taken = (cpus.len() as f64 - quota).max(0.0) * window_us - unused_us;
            let taken = taken.clamp(0.0, idle_us.max(0.0));
            unused_us += taken;
            idle_us -= taken;
        }
        let interrupts = |t: CpuTimes| if irq_apart { 0.0 } else { t.irq_us };
        let counted = on.plus(off);
        Parts {
            capacity_us,
            user_us: on.user_us,
            system_us: on.system_us + interrupts(on),
            irq_us: irq_apart.then_some(counted.irq_us),
            steal_us: counted.steal_us,
            idle_us,
            iowait_us: on.iowait_us.min(idle_us),
            unused_us,
            system_elsewhere_us: apart.then_some(off.system_us + interrupts(off)),
            other_us: apart.then_some(off.user_us),
            unaccounted_us: capacity_us - counted.sum_us(),
        }
    }

    /// All parts, without `unaccounted`.
    pub fn sum_us(&self) -> f64 {
        self.user_us
            + self.system_us
            + self.irq_us.unwrap_or(0.0)
            + self.steal_us
            + self.idle_us
            + self.unused_us
            + self.system_elsewhere_us.unwrap_or(0.0)
            + self.other_us.unwrap_or(0.0)
    }

    /// Both added up: the budget of several rounds.
    pub fn plus(&self, other: &Parts) -> Parts {
        let both = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
        Parts {
            capacity_us: self.capacity_us + other.capacity_us,
            user_us: self.user_us + other.user_us,
            system_us: self.system_us + other.system_us,
            irq_us: both(self.irq_us, other.irq_us),
            steal_us: self.steal_us + other.steal_us,
            idle_us: self.idle_us + other.idle_us,
            iowait_us: self.iowait_us + other.iowait_us,
            unused_us: self.unused_us + other.unused_us,
            system_elsewhere_us: both(self.system_elsewhere_us, other.system_elsewhere_us),
            other_us: both(self.other_us, other.other_us),
            unaccounted_us: self.unaccounted_us + other.unaccounted_us,
        }
    }

    /// The same per operation.
    pub fn per(&self, operations: f64) -> Parts {
        let by = |us: f64| us / operations;
        Parts {
            capacity_us: by(self.capacity_us),
            user_us: by(self.user_us),
            system_us: by(self.system_us),
            irq_us: self.irq_us.map(by),
            steal_us: by(self.steal_us),
            idle_us: by(self.idle_us),
            iowait_us: by(self.iowait_us),
            unused_us: by(self.unused_us),
            system_elsewhere_us: self.system_elsewhere_us.map(by),
            other_us: self.other_us.map(by),
            unaccounted_us: by(self.unaccounted_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(user_us: f64, system_us: f64, idle_us: f64) -> CpuTimes {
        CpuTimes { user_us, system_us, idle_us, ..CpuTimes::default() }
    }

    #[test]
    fn the_idle_time_of_a_cpu_without_a_task_is_unused_and_not_idle() {
        let cpus = [times(1.0, 90.0, 9.0), times(2.0, 8.0, 90.0)];
        let p = Parts::new(&cpus, 100.0, &Spread::Bound(vec![true, false]), None, false);
        assert_eq!((p.idle_us, p.unused_us), (9.0, 90.0));
        assert_eq!((p.system_elsewhere_us, p.other_us), (Some(8.0), Some(2.0)));
        assert_eq!(p.unaccounted_us, 0.0);
    }

    #[test]
    fn free_tasks_leave_at_most_the_spare_cpus_unused() {
        let cpus = [times(0.0, 50.0, 50.0), times(0.0, 20.0, 80.0)];
        let p = Parts::new(&cpus, 100.0, &Spread::Free(1), None, false);
        assert_eq!((p.idle_us, p.unused_us, p.system_elsewhere_us), (30.0, 100.0, None));
    }

    #[test]
    fn what_a_quota_takes_is_unused() {
        let cpus = [times(0.0, 50.0, 50.0), times(0.0, 50.0, 50.0)];
        let p = Parts::new(&cpus, 100.0, &Spread::Free(4), Some(1.0), false);
        assert_eq!((p.idle_us, p.unused_us), (0.0, 100.0));
    }

    #[test]
    fn interrupts_are_null_and_in_system_where_they_are_not_counted_apart() {
        let cpus = [CpuTimes { system_us: 40.0, irq_us: 10.0, idle_us: 50.0, ..CpuTimes::default() }];
        let folded = Parts::new(&cpus, 100.0, &Spread::Free(1), None, false);
        assert_eq!((folded.irq_us, folded.system_us), (None, 50.0));
        let apart = Parts::new(&cpus, 100.0, &Spread::Free(1), None, true);
        assert_eq!((apart.irq_us, apart.system_us), (Some(10.0), 40.0));
    }

    fn any_times() -> impl Strategy<Value = CpuTimes> {
        prop::array::uniform6(0.0f64..1e6).prop_map(
            |[user_us, system_us, irq_us, steal_us, idle_us, iowait_us]| CpuTimes {
                user_us,
                system_us,
                irq_us,
                steal_us,
                idle_us,
                iowait_us,
            },
        )
    }

    proptest! {
        #[test]
        fn the_budget_closes(
            cpus in prop::collection::vec(any_times(), 1..9), window in 1.0f64..1e7, tasks in 1u32..20,
            quota in prop::option::of(0.1f64..9.0), apart in any::<bool>(), bound in any::<bool>()
        ) {
            let spread = match bound {
                true => Spread::Bound((0..cpus.len()).map(|i| i < tasks as usize).collect()),
                false => Spread::Free(tasks),
            };
            let p = Parts::new(&cpus, window, &spread, quota, apart);
            prop_assert!((p.sum_us() + p.unaccounted_us - p.capacity_us).abs() <= 1e-6 * p.capacity_us.max(p.sum_us()));
            prop_assert!(p.idle_us >= -1e-6 && p.unused_us >= -1e-6);
            let twice = p.plus(&p).per(2.0);
            prop_assert!((twice.sum_us() - p.sum_us()).abs() <= 1e-6 * p.sum_us());
        }
    }
}
