//! What the ends of chains, and tasks, are called.

use std::collections::{BTreeMap, BTreeSet};

use trace::{LockKind, TaskId};

use super::{Called, Finish};
use crate::account::End;
use crate::classify::{Class, plain};
use crate::explanation::RootKind;

/// Part of the waiting time from which on a function stands for all of it.
const NEARLY_ALL: f64 = 0.8;

impl Finish<'_> {
    /// Finds out what each end is called.
    pub(super) fn name_ends(&mut self) {
        let account = self.account;
        let ends = account.ends.iter().map(|(end, _)| end);
        let through = account.through.keys().flat_map(|(a, b)| [*a, *b]);
        let all: Vec<End> = ends
            .chain(through)
            .chain(account.waiters.keys().map(|(_, end)| *end))
            .chain(account.holders.keys().map(|(end, ..)| *end))
            .chain(account.paths.keys().map(|(end, ..)| *end))
            .collect();
        for end in all {
            if !self.called.contains_key(&end) {
                let called = self.name(end);
                self.called.insert(end, called);
            }
        }
    }

    pub(super) fn name(&mut self, end: End) -> Called {
        let plain = |kind, class: &str| Called { kind, class: class.to_owned(), object: None };
        match end {
            End::Lock(id) => {
                let lock = self.tables.lock(id).cloned().unwrap_or_default();
                let class = lock.class.map(|c| self.tables.str(c).to_owned()).unwrap_or_default();
                let object = lock.object.map(|o| self.tables.str(o).to_owned());
                let object = object.or_else(|| {
                    let process = lock.process?;
                    let tgid = self.tables.task(process)?.tgid;
                    Some(format!("{} ({tgid})", self.tables.task_name(process)))
                });
                let kind = match lock.kind {
                    LockKind::Io => RootKind::Io,
                    LockKind::Pipe => RootKind::Pipe,
                    kind => RootKind::Lock(kind),
                };
                Called { kind, class, object }
            }
            End::Wait(Class::Io) => plain(RootKind::Io, &self.waiting_function(end).0),
            End::Wait(Class::Kernel | Class::Lock) => plain(RootKind::Kernel, &self.waiting_function(end).0),
            End::Wait(Class::Timed) => {
                let (function, timed) = self.waiting_function(end);
                plain(if timed { RootKind::Timed } else { RootKind::Kernel }, &function)
            }
            End::Wait(Class::Futex) => plain(RootKind::Futex, ""),
            End::Wait(Class::Peer) => plain(RootKind::Pipe, ""),
            End::Wait(Class::Child) => plain(RootKind::Child, ""),
            End::Wait(Class::Sleep | Class::Events | Class::Stopped) => plain(RootKind::Sleep, ""),
            End::WakeUp => plain(RootKind::WakeUp, ""),
            End::HeldBack { group, seen } => {
                let path = group.map(|g| self.tables.cgroup_path(g));
                let used_up = path.and_then(|path| self.used_up(path));
                if !seen && used_up.is_none() {
                    return plain(RootKind::WakeUp, "");
                }
                let object = used_up.or(path).map(|group| format!("control group {group}"));
                Called { object, ..plain(RootKind::Throttled, "") }
            }
            End::Unknown => plain(RootKind::Other, ""),
        }
    }

    /// The group whose quota was used up meanwhile: that one, or else the nearest above it.
    pub(super) fn used_up(&self, path: &str) -> Option<&str> {
        let above = |group: &str| {
            path.strip_prefix(group.trim_end_matches('/'))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let groups = self.throttled.iter().map(|(group, _)| group.as_str());
        groups.filter(|group| above(group)).max_by_key(|group| group.len())
    }

    /// How long the groups that held tasks of the workload back were throttled, as their counters say.
    pub(super) fn throttled_ns(&self) -> u64 {
        let groups: BTreeSet<&str> = self
            .account
            .ends
            .iter()
            .filter_map(|(end, _)| match end {
                End::HeldBack { group, .. } => self.used_up(self.tables.cgroup_path(group?)),
                _ => None,
            })
            .collect();
        let throttled = self.throttled.iter().filter(|(group, _)| groups.contains(group.as_str()));
        throttled.fold(0, |sum, (_, ns)| ns.saturating_add(sum))
    }

    /// The function that waits says best for what, if it is one for nearly all of the time; and whether it sleeps for a time.
    fn waiting_function(&self, end: End) -> (String, bool) {
        let mut by_function: BTreeMap<(&str, bool), u64> = BTreeMap::new();
        for ((of, stack, in_scope), ns) in &self.account.paths {
            if *of == end && *in_scope {
                let sum = by_function.entry(waiting_function(self.tables.stack_names(*stack))).or_default();
                *sum = sum.saturating_add(*ns);
            }
        }
        let total = by_function.values().fold(0u64, |a, ns| a.saturating_add(*ns));
        let timed = by_function.iter().filter(|((_, timed), _)| *timed);
        let timed = timed.fold(0u64, |a, (_, ns)| a.saturating_add(*ns)) > total / 2;
        let top = by_function.into_iter().max_by_key(|(_, ns)| *ns);
        let top = top.filter(|(_, ns)| *ns as f64 >= NEARLY_ALL * total as f64);
        (top.map_or(String::new(), |((name, _), _)| name.to_owned()), timed)
    }

    /// Whether it is a task of perfloss itself, which is shown nowhere.
    pub(super) fn is_own(&self, task: TaskId) -> bool {
        self.tables.task(task).is_some_and(|row| self.engine.scope.leaves_out(row))
    }

    /// The name of a task, for kernel workers that of their work.
    pub(super) fn holder_name(&self, task: TaskId, work: Option<&str>) -> String {
        let name = self.tables.task_name(task);
        match work {
            Some(work) => format!("kworker {}", plain(work)),
            None => family(name),
        }
    }

    pub(super) fn family_of(&self, task: TaskId) -> String {
        family(self.tables.task_name(task))
    }
}

/// The function that waits, without those through which all waits of a kind go; and whether it sleeps for a time, not for
/// an event (`kernel/time/sleep_timeout.c`; waits for an event may go through them too, with a time limit).
fn waiting_function<'a>(names: impl Iterator<Item = &'a str>) -> (&'a str, bool) {
    let mut timed = false;
    for name in names.map(plain) {
        match name {
            "__wait_for_common" | "do_wait_for_common" | "wait_for_common" | "wait_woken" => timed = false,
            _ if name.starts_with("wait_for_completion") => timed = false,
            "__wait_on_bit" | "__wait_on_bit_lock" | "folio_wait_bit_common" => timed = false,
            "msleep" | "usleep_range_state" | "fsleep" => timed = true,
            _ if name.starts_with("schedule_timeout") || name.starts_with("schedule_hrtimeout") => {
                timed = true
            }
            _ if is_sleeping(name) || name.starts_with("out_of_line_wait_on_bit") => {}
            "___down_common" | "__down_common" => return (name, false),
            _ => return (name, timed),
        }
    }
    ("", timed)
}

/// Whether a function belongs to going to sleep, whatever for.
pub(super) fn is_sleeping(name: &str) -> bool {
    let name = plain(name);
    name.starts_with("schedule_timeout")
        || name.starts_with("schedule_hrtimeout")
        || matches!(
            name,
            "finish_task_switch"
                | "__schedule"
                | "schedule"
                | "schedule_preempt_disabled"
                | "io_schedule"
                | "io_schedule_timeout"
                | "preempt_schedule_common"
                | "bit_wait"
                | "bit_wait_io"
                | "context_switch"
        )
}

/// The name of a task without what only numbers it: all kernel workers of a kind are one.
pub(super) fn family(name: &str) -> String {
    let Some((kind, rest)) = name.split_once('/') else { return name.to_owned() };
    if !rest.starts_with(|c: char| c.is_ascii_digit() || c == 'u') {
        return name.to_owned();
    }
    match rest.find(['-', '+']) {
        Some(at) => format!("{kind} {}", &rest[at + 1..]),
        None => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::waiting_function;

    fn of<'a>(names: &[&'a str]) -> (&'a str, bool) {
        waiting_function(names.iter().copied())
    }

    #[test]
    fn a_sleep_for_a_time_is_told_from_a_wait_with_a_time_limit() {
        assert_eq!(
            of(&["__schedule", "schedule", "schedule_timeout", "xfs_iget", "xfs_icreate"]),
            ("xfs_iget", true)
        );
        assert_eq!(
            of(&["schedule", "schedule_hrtimeout_range_clock", "usleep_range_state", "poll"]),
            ("poll", true)
        );
        let completion =
            ["__schedule", "schedule", "schedule_timeout", "__wait_for_common", "submit_bio_wait"];
        assert_eq!(of(&completion), ("submit_bio_wait", false));
        assert_eq!(
            of(&["__schedule.isra.0", "schedule", "xlog_wait_on_iclog"]),
            ("xlog_wait_on_iclog", false)
        );
        assert_eq!(of(&["__schedule", "schedule"]), ("", false));
    }
}
