//! The times of the pattern that `lab` races, as a captured round saw them.
//!
//! How long the inode header of an allocation group (AGI) of XFS was held is seen exactly: the kernel tells who got and who released it. A cycle is
//! one such hold by a task of the workload. Where a directory's lock begins and ends is not seen on its fast path; since it surrounds nearly all of what the
//! kernel does to create or unlink a file, the kernel's part of a cycle outside the group's lock counts as under it, and the rest as thinking.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use result::Point;
use trace::{Error, Kind, LockId, SampleMode, Source, Tables, TaskId, TaskKind, TimeNs};

/// Fewer holds than this say nothing.
const LEAST: usize = 100;

/// Times of work in ns: medians.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// The lock whose holds these are.
    pub lock: String,
    /// Holds that were looked at: of the workload's tasks, and of others.
    pub holds: (usize, usize),
    pub hold_ns: u64,
    pub directory_ns: u64,
    pub think_ns: u64,
    pub worker_hold_ns: u64,
    pub worker_think_ns: u64,
    /// Tasks outside the workload that took the lock in more than one of twenty of their holds.
    pub workers: u32,
}

/// The times of a result: of its captured point with the fewest tasks in which a semaphore's holds were seen.
///
/// # Errors
/// In words, what is missing.
pub fn of_result(folder: &Path) -> Result<(String, Times), String> {
    let result = result::read(folder).map_err(|e| e.to_string())?;
    let mut points: Vec<(&Point, &str)> =
        result.points.iter().filter_map(|point| Some((point, trace_of(point)?))).collect();
    points.sort_by_key(|(point, _)| point.tasks);
    for (point, name) in points {
        let path = folder.join(name);
        let failed = |e: Error| format!("{}: {e}", path.display());
        let file = File::open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut reader = trace::Reader::new(BufReader::new(file)).map_err(failed)?;
        if let Some(times) = of_trace(&mut reader).map_err(failed)? {
            let where_from =
                format!("{} on {}, {}", point.workload, point.target, report::text::tasks(point.tasks));
            return Ok((where_from, times));
        }
    }
    Err(format!(
        "no captured round in {} shows XFS's allocation groups held by its tasks: give the result of a run on xfs with its traces, as `perfloss run create_unlink -t 1,2 --on xfs` writes it",
        folder.display()
    ))
}

/// Names in a result may be anybody's: only a plain file of the folder counts.
fn trace_of(point: &Point) -> Option<&str> {
    let name = point.capture.as_ref()?.trace.as_deref()?;
    (Path::new(name).file_name().is_some_and(|n| n == name)).then_some(name)
}

impl Times {
    /// What was seen, in a line.
    pub fn told(&self, point: &str) -> String {
        let us = |ns: u64| ns as f64 / 1000.0;
        let others = match self.holds.1 {
            0 => String::new(),
            n => format!(
                "; others held it {n} times for {} us, with {} us between",
                us(self.worker_hold_ns),
                us(self.worker_think_ns)
            ),
        };
        format!(
            "{point}: the tasks held {} {} times for {} us (median), with {} us in the kernel and {} us outside between{others}",
            report::text::plain(&self.lock, 80),
            self.holds.0,
            us(self.hold_ns),
            us(self.directory_ns),
            us(self.think_ns),
        )
    }
}

/// What a task did with a lock.
#[derive(Default)]
struct Holder {
    /// On a CPU from getting it to releasing it, ns; only holds that never left the CPU.
    holds: Vec<u64>,
    /// On a CPU from releasing it to getting it again, ns.
    between: Vec<u64>,
    /// How long the task had run, and how often it had left its CPU, when it got it.
    got: Option<(u64, u64)>,
    /// How long the task had run when it released it.
    gave: Option<u64>,
}

/// How long a task has run, how often it has left its CPU, and since when it is on one.
#[derive(Default)]
struct Ran {
    ns: u64,
    left: u64,
    since: Option<TimeNs>,
}

impl Ran {
    fn until(&self, now: TimeNs) -> u64 {
        self.ns + self.since.map_or(0, |since| now.since(since))
    }
}

/// The times of a trace; none if it has too few holds of one group by the workload's tasks.
///
/// Buffer locks are told only while they are contended: what a task does between two holds is the median of what is seen of it.
///
/// # Errors
/// What reading it fails with.
pub fn of_trace(source: &mut impl Source) -> Result<Option<Times>, Error> {
    let mut holders: HashMap<(LockId, TaskId), Holder> = HashMap::new();
    let mut ran: HashMap<TaskId, Ran> = HashMap::new();
    let (mut kernel_ns, mut user_ns) = (0u64, 0u64);
    let mut batch = Vec::new();
    while source.next_batch(&mut batch)? {
        let tables = source.tables();
        for event in &batch {
            let now = event.time;
            match event.kind {
                // what was not seen must not be taken for a part of a hold
                Kind::WindowStart | Kind::Lost { .. } => {
                    holders.values_mut().for_each(|h| (h.got, h.gave) = (None, None));
                    ran.values_mut().for_each(|r| r.since = None);
                }
                Kind::Switch { prev, next, .. } => {
                    let leaves = ran.entry(prev).or_default();
                    leaves.ns = leaves.until(now);
                    leaves.left += 1;
                    leaves.since = None;
                    ran.entry(next).or_default().since = Some(now);
                }
                Kind::Acquired { task, lock } if is_group(tables, lock) => {
                    let holder = holders.entry((lock, task)).or_default();
                    let ran = ran.entry(task).or_default();
                    let has_run = ran.until(now);
                    holder.got = ran.since.map(|_| (has_run, ran.left));
                    holder.between.extend(holder.gave.take().map(|gave| has_run - gave));
                }
                Kind::Released { task, lock } if is_group(tables, lock) => {
                    let holder = holders.entry((lock, task)).or_default();
                    let ran = ran.entry(task).or_default();
                    let has_run = ran.until(now);
                    // a hold that slept or waited for a CPU is no time of work
                    if let Some((got, left)) = holder.got.take()
                        && left == ran.left
                    {
                        holder.holds.push(has_run - got);
                    }
                    holder.gave = ran.since.map(|_| has_run);
                }
                Kind::Sample { task, mode, weight_ns, .. } if in_scope(tables, task) => match mode {
                    SampleMode::Kernel => kernel_ns += weight_ns,
                    SampleMode::User => user_ns += weight_ns,
                    SampleMode::Interrupt => {}
                },
                _ => {}
            }
        }
    }
    Ok(times(source.tables(), &holders, kernel_ns, user_ns))
}

fn is_group(tables: &Tables, lock: LockId) -> bool {
    let object = tables.lock(lock).and_then(|l| l.object);
    object.is_some_and(|o| tables.str(o).starts_with("AGI "))
}

fn in_scope(tables: &Tables, task: TaskId) -> bool {
    tables.task(task).is_some_and(|t| t.in_scope && t.kind == TaskKind::User)
}

fn times(
    tables: &Tables,
    holders: &HashMap<(LockId, TaskId), Holder>,
    kernel_ns: u64,
    user_ns: u64,
) -> Option<Times> {
    let mut by_lock: HashMap<LockId, usize> = HashMap::new();
    for ((lock, task), holder) in holders {
        if in_scope(tables, *task) {
            *by_lock.entry(*lock).or_default() += holder.holds.len();
        }
    }
    let (&lock, &count) = by_lock.iter().max_by_key(|(lock, n)| (**n, std::cmp::Reverse(lock.index())))?;
    if count < LEAST || kernel_ns + user_ns == 0 {
        return None;
    }
    let of =
        |ours: bool| holders.iter().filter(move |((l, t), _)| *l == lock && in_scope(tables, *t) == ours);
    let all = |ours: bool, what: fn(&Holder) -> &Vec<u64>| {
        of(ours).flat_map(|(_, h)| what(h).iter().copied()).collect::<Vec<u64>>()
    };
    let (tasks, others) = (all(true, |h| &h.holds), all(false, |h| &h.holds));
    let between_ns = median(&all(true, |h| &h.between));
    let think_ns = (between_ns as f64 * user_ns as f64 / (kernel_ns + user_ns) as f64) as u64;
    let row = tables.lock(lock)?;
    let name = |id: Option<trace::StrId>| id.map_or("", |id| tables.str(id)).to_owned();
    Some(Times {
        lock: format!("{} {}", name(row.class), name(row.object)).trim().to_owned(),
        holds: (tasks.len(), others.len()),
        hold_ns: median(&tasks),
        directory_ns: between_ns - think_ns,
        think_ns,
        worker_hold_ns: median(&others),
        worker_think_ns: median(&all(false, |h| &h.between)),
        workers: of(false).filter(|(_, h)| h.holds.len() * 20 > others.len()).count() as u32,
    })
}

/// The median, ns; 0 of nothing.
fn median(values: &[u64]) -> u64 {
    let values: Vec<f64> = values.iter().map(|&ns| ns as f64).collect();
    harness::stats::median(&values).unwrap_or(0.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Task A works 3 us, holds the group for 2 us, works 5 us outside, and so on; a worker holds it for 7 us every 20 us. One hold of
    /// A's is longer by a sleep and does not count, nor does the hold of another buffer.
    #[test]
    fn holds_and_what_lies_between_are_times_on_a_cpu() {
        let mut text = "
meta hz=250 online=0,1 allowed=0,1
task A scope name=a
task W kernel name=kworker
lock G semaphore class=xfs_buf.b_sema object=\"AGI of AG 0 on loop0\"
lock B semaphore class=xfs_buf.b_sema object=\"inode buffer\"
stack s f
0 cpu0 window start
1 cpu0 switch idle0 -> A R
1 cpu1 switch idle1 -> W R
"
        .to_owned();
        for i in 0..120u32 {
            let at = 10 + 40 * i;
            text += &format!("{at} cpu0 acquire A G\n");
            if i == 7 {
                text +=
                    &format!("{} cpu0 switch A -> idle0 D\n{} cpu0 switch idle0 -> A R\n", at + 1, at + 9);
                text += &format!("{} cpu0 release A G\n", at + 10);
            } else {
                text += &format!("{} cpu0 release A G\n", at + 2);
            }
            text += &format!("{} cpu1 acquire W G\n{} cpu1 release W G\n", at + 13, at + 20);
            text += &format!("{} cpu0 acquire A B\n{} cpu0 release A B\n", at + 21, at + 39);
        }
        text += "4900 cpu0 sample A kernel kernel=s weight=3\n4901 cpu0 sample A user user=s weight=1\n5000 cpu0 window end\n";
        let trace = trace::text::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        let times = of_trace(&mut trace.source()).unwrap().unwrap();
        assert_eq!(times.holds, (119, 120));
        assert_eq!((times.hold_ns, times.worker_hold_ns), (2000, 7000));
        // 38 us between, a quarter of them in user mode
        assert_eq!((times.directory_ns, times.think_ns), (28_500, 9_500));
        assert_eq!((times.worker_think_ns, times.workers), (33_000, 1));
    }

    #[test]
    fn a_trace_without_enough_holds_says_nothing() {
        let trace =
            trace::text::parse("meta hz=250 online=0 allowed=0\n0 cpu0 window start\n9 cpu0 window end\n");
        assert_eq!(of_trace(&mut trace.unwrap().source()).unwrap(), None);
    }
}
