//! The workloads that are built in: one file a family, and all of them listed in [`FAMILIES`].

mod cc;
mod create_unlink;
mod files;
mod ipc;
mod names;
pub(crate) mod place;
mod system;

use crate::failure::Fault;
use crate::{Failure, Meter, Modes, Needs, Place, Prepared, Workload};

/// Every family of built-in workloads: to add one is to add a file and a line.
const FAMILIES: &[&[BuiltIn]] = &[cc::ALL, create_unlink::ALL, names::ALL, files::ALL, ipc::ALL, system::ALL];

/// All built-in workloads, in the order in which a list shows them.
pub fn registry() -> Vec<Box<dyn Workload>> {
    all().map(|b| Box::new(*b) as Box<dyn Workload>).collect()
}

/// The names of all built-in workloads.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    all().map(|b| b.name)
}

/// The built-in workload of that name.
pub(crate) fn find(name: &str) -> Option<Box<dyn Workload>> {
    let found = all().find(|b| b.name == name)?;
    Some(Box::new(*found))
}

fn all() -> impl Iterator<Item = &'static BuiltIn> {
    FAMILIES.iter().copied().flatten()
}

/// A built-in workload: the answers of [`Workload`] as data.
#[derive(Clone, Copy)]
struct BuiltIn {
    name: &'static str,
    about: &'static str,
    version: u32,
    modes: Modes,
    needs: Needs,
    prepare: fn(&Place) -> Result<Box<dyn Prepared>, Failure>,
}

impl BuiltIn {
    /// Version 1, both modes, no needs.
    const fn new(
        name: &'static str,
        about: &'static str,
        prepare: fn(&Place) -> Result<Box<dyn Prepared>, Failure>,
    ) -> Self {
        BuiltIn {
            name,
            about,
            version: 1,
            modes: Modes::BOTH,
            needs: Needs { tmp: false, sources: false, src_at_root: false },
            prepare,
        }
    }

    const fn modes(mut self, modes: Modes) -> Self {
        self.modes = modes;
        self
    }

    const fn needs(mut self, needs: Needs) -> Self {
        self.needs = needs;
        self
    }
}

impl Workload for BuiltIn {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> &str {
        self.about
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn modes(&self) -> Modes {
        self.modes
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn prepare(&self, place: &Place) -> Result<Box<dyn Prepared>, Failure> {
        crate::process::raise_file_limit();
        (self.prepare)(place)
    }
}

/// The frame of most built-in workloads: each task makes its `Own` things before its loop, and the loop does `op` on them.
///
/// The types of the functions are parameters, so that each workload gets a loop of its own with the operation inlined.
struct Looped<Shared, Begin, Op, Clean> {
    shared: Shared,
    /// Makes what one task needs for itself, in the task.
    begin: Begin,
    /// One operation.
    op: Op,
    clean: Clean,
}

impl<Shared, Own, Begin, Op, Clean> Prepared for Looped<Shared, Begin, Op, Clean>
where
    Shared: Send + Sync,
    Begin: Fn(&Shared, u32) -> Result<Own, Failure> + Send + Sync,
    Op: Fn(&mut Own) -> Result<(), Fault> + Send + Sync,
    Clean: Fn(&Shared) -> Result<(), Failure> + Send + Sync,
{
    fn run(&self, task: u32, meter: &mut Meter<'_>) -> Result<(), Failure> {
        let mut own = (self.begin)(&self.shared, task)?;
        while meter.running() {
            (self.op)(&mut own)?;
            meter.done();
        }
        Ok(())
    }

    fn cleanup(&self) -> Result<(), Failure> {
        (self.clean)(&self.shared)
    }
}
