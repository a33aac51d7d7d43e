//! Which points of a result are meant: the options that `show` and `compare` share.

use clap::Args;
use report::select::Selection;

/// What is not given matches all points.
#[derive(Args, Debug, Clone)]
pub struct Choice {
    /// Only points of this workload
    #[arg(long, value_name = "WORKLOAD")]
    workload: Option<String>,
    /// Only points on this target
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// Only points with so many tasks
    #[arg(short, long, value_name = "N")]
    tasks: Option<u32>,
}

impl Choice {
    /// The same as the reports take it.
    pub fn selection(&self) -> Selection {
        Selection { workload: self.workload.clone(), target: self.target.clone(), tasks: self.tasks }
    }
}
