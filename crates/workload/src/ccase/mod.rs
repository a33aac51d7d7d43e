//! An unmodified will-it-scale test case, written in C.
//!
//! Its interface: `char *testcase_description`; `void testcase(unsigned long long *iterations, unsigned long nr)`, an endless loop
//! that counts its operations in `*iterations`; optionally `void testcase_prepare(unsigned long nr_tasks)` and
//! `void testcase_cleanup(void)`. It may call `new_task()` and `new_task_affinity()`, which `shim.c` supplies.
//!
//! A case is foreign code. It is compiled and described in processes of their own; its `testcase_prepare` runs where
//! [`Workload::prepare`] is called and may crash there; its `testcase_cleanup` runs in a fork. A task whose case exits, asserts or
//! crashes takes its process along, which the harness sees as the death of a task that never said that it finished.

mod compile;
mod library;

use std::path::PathBuf;
use std::sync::Arc;

pub use compile::{CompileError, Compiled, compile};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::process::raise_file_limit;
use crate::{Failure, Meter, Mode, Needs, Place, Prepared, Stops, Workload};
use library::Case;

/// A compiled case as a workload.
pub(crate) struct CCase {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) object: PathBuf,
    pub(crate) version: u32,
}

impl Workload for CCase {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &str {
        &self.about
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn needs(&self) -> Needs {
        Needs { tmp: true, sources: true, src_at_root: true }
    }

    fn stops(&self) -> Stops {
        Stops::ByKill
    }

    fn prepare(&self, place: &Place) -> Result<Box<dyn Prepared>, Failure> {
        raise_file_limit();
        let files = getrlimit(Resource::Nofile);
        let threads = place.mode == Mode::Threads;
        let case = Case::open(&self.object, &self.name, threads)?;
        if threads {
            library::keep_heap_off_brk();
        }
        case.prepare(place.tasks);
        // `poll2` sets the limit to what it takes with one task a CPU, which is less than many tasks need. Only a
        // privileged process may raise it again, and another one is where it would be under will-it-scale.
        let _ = setrlimit(Resource::Nofile, files);
        Ok(Box::new(Running(Arc::new(case))))
    }
}

struct Running(Arc<Case>);

impl Prepared for Running {
    fn run(&self, task: u32, meter: &mut Meter<'_>) -> Result<(), Failure> {
        self.0.testcase(meter.counter_ptr(), task);
        Err(Failure::new("testcase() returned; a will-it-scale test case runs until it is stopped")
            .at(self.0.name()))
    }

    /// In threads mode the tasks go on running: leave the process with `_exit` right after. One that fails because the
    /// clean-up took its files away is put to sleep instead of taking the process down.
    fn cleanup(&self) -> Result<(), Failure> {
        self.0.cleanup()
    }
}
