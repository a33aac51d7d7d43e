//! Every built-in workload, run for real.

mod common;

use workload::{Mode, registry};

fn everything_in(mode: Mode) {
    for workload in registry().iter().filter(|w| w.modes().has(mode)) {
        let dir = tempfile::tempdir().expect("a directory");
        let place = common::place(dir.path(), 2, mode);
        let counts = common::run(&**workload, &place, 10)
            .unwrap_or_else(|failure| panic!("{}: {failure}", workload.name()));
        assert!(counts.iter().all(|&n| n > 0.0), "{}: {counts:?}", workload.name());
        let left: Vec<_> = std::fs::read_dir(&place.dir).expect("the directory").collect();
        assert!(left.is_empty(), "{} left {left:?}", workload.name());
    }
}

#[test]
fn every_workload_runs_in_processes_counts_and_leaves_nothing_behind() {
    everything_in(Mode::Processes);
}

#[test]
fn every_workload_runs_in_threads_counts_and_leaves_nothing_behind() {
    everything_in(Mode::Threads);
}
