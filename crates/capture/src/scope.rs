//! Which tasks belong to the workload that is looked at.

use std::collections::{HashMap, HashSet};
use std::fs;

/// What is looked at. Everything is captured; this only marks tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All tasks but the kernel's.
    #[default]
    Everything,
    /// These processes and all their descendants.
    Processes(Vec<u32>),
    /// All tasks of that control group and of those below it: its path below the cgroup mount (`/user.slice/…`).
    Cgroup(String),
}

/// Follows a scope through forks.
pub struct Members {
    scope: Scope,
    /// Thread ids.
    members: HashSet<u32>,
}

impl Members {
    pub fn new(scope: Scope) -> Members {
        Members { scope, members: HashSet::new() }
    }

    /// The tasks at the start: (tid, tgid, ptid) of all of them. `own_id` gives the number that a task has in /proc, if it is there.
    pub fn seed(&mut self, tasks: &[(u32, u32, u32)], own_id: impl Fn(u32) -> Option<u32>) {
        match &self.scope {
            Scope::Everything => {}
            Scope::Processes(roots) => {
                let mut tgids: HashSet<u32> = roots.iter().copied().collect();
                let process: HashMap<u32, u32> = tasks.iter().map(|t| (t.0, t.1)).collect();
                // a parent may be listed after its children
                loop {
                    let before = tgids.len();
                    for (tid, tgid, ptid) in tasks {
                        let parent = *process.get(ptid).unwrap_or(ptid);
                        if tid == tgid && tgids.contains(&parent) {
                            tgids.insert(*tgid);
                        }
                    }
                    if tgids.len() == before {
                        break;
                    }
                }
                self.members = tasks.iter().filter(|t| tgids.contains(&t.1)).map(|t| t.0).collect();
                // roots that start later than the list was read
                self.members.extend(roots);
            }
            Scope::Cgroup(path) => {
                self.members = tasks
                    .iter()
                    .map(|t| t.0)
                    .filter(|tid| own_id(*tid).is_some_and(|own| in_cgroup(own, path)))
                    .collect();
            }
        }
    }

    /// A task was made. Whether it belongs to the scope.
    pub fn fork(&mut self, parent: u32, child: u32, kernel: bool) -> bool {
        match self.scope {
            Scope::Everything => !kernel,
            _ => {
                let member = self.members.contains(&parent) && !kernel;
                if member {
                    self.members.insert(child);
                } else {
                    self.members.remove(&child);
                }
                member
            }
        }
    }

    /// A task ended; its number may be given to another.
    pub fn exit(&mut self, tid: u32) {
        self.members.remove(&tid);
    }

    /// Whether a task belongs to the scope.
    pub fn contains(&self, tid: u32, kernel: bool) -> bool {
        match self.scope {
            Scope::Everything => !kernel,
            _ => self.members.contains(&tid),
        }
    }
}

/// Whether one of a task's control groups, of either version, is that one or below it.
fn in_cgroup(tid: u32, path: &str) -> bool {
    let wanted = path.trim_end_matches('/');
    fs::read_to_string(format!("/proc/{tid}/cgroup")).is_ok_and(|text| {
        text.lines()
            .filter_map(|l| l.splitn(3, ':').nth(2))
            .any(|group| group == wanted || group.strip_prefix(wanted).is_some_and(|r| r.starts_with('/')))
    })
}

/// The control group of a task: that of version 2, or else that of the cpu controller.
pub fn cgroup_of(tid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{tid}/cgroup")).ok()?;
    let group = |filter: &dyn Fn(&str, &str) -> bool| {
        text.lines().find_map(|l| {
            let mut fields = l.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            filter(number, controllers).then(|| path.to_owned())
        })
    };
    let cpu = group(&|_, controllers| controllers.split(',').any(|c| c == "cpu"));
    cpu.or_else(|| group(&|number, _| number == "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_belong_to_the_scope_and_strangers_do_not() {
        let mut members = Members::new(Scope::Processes(vec![10]));
        // 30 is a child of a thread (11) of 10; 31 its thread; 40 a stranger
        members.seed(&[(30, 30, 11), (31, 30, 11), (10, 10, 1), (11, 10, 1), (40, 40, 1)], Some);
        for tid in [10, 11, 30, 31] {
            assert!(members.contains(tid, false), "{tid}");
        }
        assert!(!members.contains(40, false));
        assert!(members.fork(31, 50, false));
        assert!(members.contains(50, false));
        members.exit(50);
        assert!(!members.fork(40, 50, false));
        assert!(!members.contains(50, false));
    }

    #[test]
    fn everything_means_no_kernel_threads() {
        let mut members = Members::new(Scope::Everything);
        assert!(members.contains(1, false));
        assert!(!members.contains(2, true));
        assert!(!members.fork(2, 3, true));
    }
}
