//! Runs a plan and turns its rounds into points, as they come.

use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use harness::budget::Parts;
use harness::cpus::Cpus;
use harness::plan::{End, Event, Plan, RunError};
use harness::round::Processes;
use result::{Point, Target, Warning};

use crate::capturing::{Capturing, Explained, Last};
use crate::points;
use crate::progress::Progress;

/// What a plan gives: one point for each of its specifications.
pub struct Measuring<'a> {
    plan: &'a Plan,
    /// Name of each point's target.
    names: &'a [String],
    /// The points so far.
    pub points: Vec<Point>,
    /// The targets, described once a round has seen them.
    pub targets: Vec<Target>,
    /// The captured round of each point.
    explained: Vec<Option<Explained>>,
    parts: Vec<Vec<(Parts, f64)>>,
    /// Points whose captured round failed, and why.
    not_captured: Vec<(usize, String)>,
}

impl<'a> Measuring<'a> {
    /// Points without rounds, on the allowed `cpus`.
    pub fn new(plan: &'a Plan, names: &'a [String], cpus: &Cpus) -> Measuring<'a> {
        let mut targets: Vec<Target> = Vec::new();
        for (spec, name) in plan.points.iter().zip(names) {
            if targets.iter().all(|t| t.name != *name) {
                targets.push(points::target_named(name, &spec.target));
            }
        }
        let count = plan.points.len();
        Measuring {
            plan,
            names,
            points: plan
                .points
                .iter()
                .zip(names)
                .map(|(spec, name)| points::begin(spec, name, cpus))
                .collect(),
            targets,
            explained: (0..count).map(|_| None).collect(),
            parts: vec![Vec::new(); count],
            not_captured: Vec::new(),
        }
    }

    /// Runs the plan. `save` is called with what there is after every round. Traces go to `folder`.
    ///
    /// # Errors
    /// As [`harness::plan::run`].
    pub fn run(
        &mut self,
        folder: &Path,
        interrupted: &AtomicBool,
        mut progress: Progress,
        save: &mut dyn FnMut(&[Point], &[Target]),
    ) -> Result<End, RunError> {
        let last = Last::default();
        let rounds = Processes { interrupted };
        let mut executor = Capturing { rounds, folder: folder.to_owned(), last: Rc::clone(&last), traces: 0 };
        let plan = self.plan;
        let end = harness::plan::run(plan, &mut executor, &mut |event| {
            progress.tell(&event, &self.points);
            match event {
                Event::Begins { .. } | Event::Phase(_) => return,
                Event::NotCaptured { point, why } => {
                    self.not_captured.push((point, why.text.clone()));
                    return;
                }
                Event::Void { point, void } => points::void(&mut self.points[point], void),
                Event::Done(done) => {
                    let (name, spec) = (&self.names[done.point], &plan.points[done.point]);
                    if let Some(target) =
                        self.targets.iter_mut().find(|t| t.name == *name && t.facts.is_empty())
                    {
                        *target = points::target(name, &spec.target, &done.measured);
                    }
                    let point = &mut self.points[done.point];
                    if !done.captured {
                        points::add(point, done, &mut self.parts[done.point], plan.seed);
                    } else if let Some(seen) = last.borrow_mut().take() {
                        let explained = Explained::new(seen, done.measured.clone());
                        if let Some(why) = explained.failure_of_descendants(&spec.workload) {
                            points::void_because(point, why);
                        }
                        self.explained[done.point] = Some(explained);
                    }
                }
            }
            save(&self.points, &self.targets);
        });
        progress.finish();
        self.put_explanations();
        save(&self.points, &self.targets);
        end
    }

    /// What could not be captured on this kernel, in words.
    pub fn missing(&self) -> &[String] {
        self.explained.iter().flatten().next().map_or(&[], Explained::missing)
    }

    /// Explanations are put into numbers beside all uncaptured rounds, so only at the end.
    fn put_explanations(&mut self) {
        for (point, why) in &self.not_captured {
            self.points[*point].warnings.push(Warning::NoCapture { because: why.clone() });
            if matches!(self.plan.points[*point].workload, workload::Spec::CCase { .. }) {
                self.points[*point].warnings.push(Warning::ExitStatusNotChecked);
            }
        }
        for (point, explained) in self.points.iter_mut().zip(&self.explained) {
            if let Some(explained) = explained.as_ref().filter(|_| point.valid) {
                explained.put_into(point);
            }
        }
    }
}
