//! Captured rounds of `run`: capture begins while the tasks warm up and ends while they still run, and the trace is explained
//! between rounds.

use std::cell::RefCell;
use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;

use capture::{Capture, Captured, Sink};
use explain::Explanation;
use harness::round::{Executor, Outcome, Phase, Processes};
use harness::{Broken, Measured, RoundSpec};
use result::{Point, Warning};
use workload::Spec as WorkloadSpec;

use crate::cmd::record::explain_file;
use crate::convert::{self, Basis};

/// What a captured round brought.
pub struct Seen {
    /// The trace's file in the result folder.
    file: String,
    captured: Captured,
    explanation: Explanation,
    timeline: Option<result::Timeline>,
}

/// Where the executor leaves what it saw, for whoever is told of the round's end.
pub type Last = Rc<RefCell<Option<Seen>>>;

/// Runs rounds, and captures those that are to be.
pub struct Capturing<'a> {
    /// What really runs them.
    pub rounds: Processes<'a>,
    /// The result folder.
    pub folder: PathBuf,
    /// What the last captured round brought.
    pub last: Last,
    /// Traces written so far.
    pub traces: u32,
}

impl Executor for Capturing<'_> {
    fn run(&mut self, spec: &RoundSpec, phase: &mut dyn FnMut(Phase)) -> Outcome {
        self.last.borrow_mut().take();
        if !spec.captured {
            return self.rounds.run(spec, phase);
        }
        let file = format!("{:02}.trace", self.traces + 1);
        let path = self.folder.join(&file);
        let (mut running, mut closed) = (None, None);
        // the guard and the supervisor of the round are of perfloss, not of the workload
        let mut own = vec![std::process::id()];
        let outcome = self.rounds.run(spec, &mut |at| {
            match at {
                Phase::Started(guard) => {
                    own.push(guard);
                    own.extend(children(guard));
                    running = Some(start(spec, guard, &path));
                }
                Phase::WindowClosed => {
                    closed = running.take().map(|r| r.and_then(|c| c.close().map_err(text)))
                }
                Phase::WindowOpen => {}
            }
            phase(at);
        });
        if !matches!(outcome, Outcome::Measured(_)) {
            // A round that gave nothing explains nothing.
            let _ = std::fs::remove_file(&path);
            return outcome;
        }
        let seen = closed.unwrap_or_else(|| Err("the round ended before its window".to_owned()));
        let seen = seen.and_then(|closed| {
            let captured = closed.finish().map_err(text)?;
            let explanation = explain_file(&path, None, &own).map_err(|e| format!("{e:#}"))?;
            let timeline = crate::stretch::of_file(&path).map_err(|e| e.to_string())?;
            Ok(Seen { file, captured, explanation, timeline })
        });
        match seen {
            Ok(seen) => {
                self.traces += 1;
                *self.last.borrow_mut() = Some(seen);
                outcome
            }
            Err(why) => Outcome::Broken(Broken::new(why)),
        }
    }
}

/// The children of a process; none if the kernel does not say.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect()
}

fn text(error: capture::Error) -> String {
    error.to_string()
}

fn start(spec: &RoundSpec, guard: u32, path: &std::path::Path) -> Result<Capture, String> {
    let mut open = File::options();
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    let file =
        open.write(true).create_new(true).open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let options = capture::Options {
        scope: capture::Scope::Processes(vec![guard]),
        allowed: spec.cpus.iter().filter_map(|&cpu| u16::try_from(cpu).ok()).collect(),
        notes: vec![
            ("workload".to_owned(), spec.workload.name().to_owned()),
            ("target".to_owned(), spec.target.to_string()),
            ("tasks".to_owned(), spec.tasks.to_string()),
        ],
        ..capture::Options::default()
    };
    Capture::start_to(options, Sink::File(Box::new(file))).map_err(text)
}

/// A captured round of a point, kept until its uncaptured rounds are all there.
pub struct Explained {
    seen: Seen,
    measured: Measured,
}

impl Explained {
    /// From the executor and the measurements of the same round.
    pub fn new(seen: Seen, measured: Measured) -> Explained {
        Explained { seen, measured }
    }

    /// The descendants of an unmodified test case that failed although the case went on: why the point is void.
    pub fn failure_of_descendants(&self, workload: &WorkloadSpec) -> Option<String> {
        let e = &self.seen.explanation;
        let (comm, status) =
            e.facts.failed.first().filter(|_| matches!(workload, WorkloadSpec::CCase { .. }))?;
        // As wait4 has it: a signal in the low bits, else the exit status above them.
        let how = match status & 0x7f {
            0 => format!("exit status {}", status >> 8 & 0xff),
            signal => format!("signal {signal}"),
        };
        let many = if e.facts.failed.len() > 1 {
            format!(", as did {} of {} that ended", e.facts.failed.len(), e.facts.exits)
        } else {
            String::new()
        };
        Some(format!("a process that the test case started ({comm}) failed with {how}{many}"))
    }

    /// Puts what capture can tell into the point, whose uncaptured rounds are all there.
    pub fn put_into(&self, point: &mut Point) {
        let e = &self.seen.explanation;
        let report = &self.seen.captured.report;
        let operations = self.measured.operations_between(report.from.0, report.until.0);
        let share = |budget: &result::Budget| {
            let idle = budget.idle? + budget.unused.unwrap_or(0.0);
            budget.total.filter(|t| *t > 0.0).map(|total| idle / total)
        };
        let budget = point.budget_us_per_op.as_ref();
        let basis = Basis {
            operations,
            idle_us_per_op: budget.and_then(|b| b.idle),
            throughput_ratio: point.rate().filter(|r| *r > 0.0).map(|r| self.measured.ops_per_s() / r),
            idle_share: budget.and_then(share),
        };
        point.capture = Some(convert::capture(e, &basis, None, Some(self.seen.file.clone())));
        point.roots = convert::roots(e, &basis);
        point.chains = Some(convert::chains(e, &basis));
        point.stacks = Some(convert::stacks(e, &basis));
        point.timeline = self.seen.timeline.clone();
        if let Some(budget) = &mut point.budget_us_per_op {
            convert::add_budget(budget, e, &basis);
        }
        if report.lost_events > 0 {
            let share = report.lost_events as f64 / (report.events + report.lost_events) as f64;
            point.warnings.push(Warning::LostEvents { lost: report.lost_events, share });
        }
        if report.lost_stacks > 0 {
            point.warnings.push(Warning::LostStacks { lost: report.lost_stacks });
        }
        if operations.is_none() {
            let text =
                "the captured time is not covered by the round's counts: nothing is known per operation"
                    .to_owned();
            point.warnings.push(Warning::Other { text });
        }
        if basis.disturbed(e) {
            let idle_points = basis.idle_share.map(|idle| 100.0 * (e.idle_share() - idle));
            point.warnings.push(Warning::Disturbed { throughput_ratio: basis.throughput_ratio, idle_points });
        }
    }

    /// What could not be captured on this kernel, in words.
    pub fn missing(&self) -> &[String] {
        &self.seen.captured.report.missing
    }
}
