//! The place that a workload runs in: a file system made for the run, or a directory.
