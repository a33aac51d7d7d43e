//! Whose loss is asked for, and on which CPUs.

use trace::{Cpu, Meta, Task, TaskKind, TimeNs};

/// Which tasks are the workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Select {
    /// Those that the capture marked.
    #[default]
    Marked,
    /// Everything but idle tasks.
    All,
    /// The threads of these processes (thread-group ids).
    Processes(Vec<u32>),
}

/// Whose loss is asked for, and on which CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The workload's tasks. Everybody else's events still count where chains lead through them.
    pub select: Select,
    /// Processes (thread-group ids) that are not of the workload, whatever else says that they are, and whose stacks are left out:
    /// perfloss itself.
    pub without: Vec<u32>,
    /// Nothing before that moment counts: the command was not there yet. What is seen before only tells the states of the tasks.
    pub from: Option<TimeNs>,
    /// The CPUs that the workload may use; `None`: as the trace says.
    pub allowed: Option<Vec<Cpu>>,
}

impl Scope {
    /// Whether a task is of the workload.
    pub(crate) fn contains(&self, task: &Task) -> bool {
        if matches!(task.kind, TaskKind::Idle(_)) || self.leaves_out(task) {
            return false;
        }
        match &self.select {
            Select::Marked => task.in_scope,
            Select::All => true,
            Select::Processes(processes) => processes.contains(&task.tgid),
        }
    }

    /// Whether it is a task of perfloss itself.
    pub(crate) fn leaves_out(&self, task: &Task) -> bool {
        self.without.contains(&task.tgid)
    }

    /// The allowed CPUs; all online ones if nobody says.
    pub(crate) fn cpus(&self, meta: &Meta) -> Vec<Cpu> {
        let mut cpus = match &self.allowed {
            Some(cpus) => cpus.clone(),
            None if !meta.allowed.is_empty() => meta.allowed.clone(),
            None => meta.online.clone(),
        };
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }
}
