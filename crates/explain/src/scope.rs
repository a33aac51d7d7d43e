//! Whose loss is asked for, and on which CPUs.

use trace::{Cpu, Meta, Task, TaskKind};

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
    /// Processes (thread-group ids) that are not of the workload, whatever else says that they are: perfloss itself.
    pub without: Vec<u32>,
    /// The CPUs that the workload may use; `None`: as the trace says.
    pub allowed: Option<Vec<Cpu>>,
    /// Control groups whose quota held tasks back meanwhile, with the throttled time in ns, if that is known from elsewhere than the trace.
    pub throttled: Vec<(String, u64)>,
}

impl Scope {
    /// Whether a task is of the workload.
    pub(crate) fn contains(&self, task: &Task) -> bool {
        if matches!(task.kind, TaskKind::Idle(_)) || self.without.contains(&task.tgid) {
            return false;
        }
        match &self.select {
            Select::Marked => task.in_scope,
            Select::All => true,
            Select::Processes(processes) => processes.contains(&task.tgid),
        }
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
