//! The command line of perfloss: options, progress, exit codes, wiring. Everything that measures,
//! explains or renders lives in the crates below; this one only joins them.

mod capturing;
mod child;
mod cli;
mod cmd;
mod convert;
mod exit;
mod machine;
mod measuring;
mod points;
mod progress;
mod remedies;
mod stretch;
mod terminal;

use std::process::ExitCode;

fn main() -> ExitCode {
    // A process of a round: see `harness::round`. Before anything else, since it must have one thread.
    if std::env::args_os().nth(1).is_some_and(|a| a == harness::STAGE_ARGUMENT) {
        return harness::run_stage();
    }
    match cli::run() {
        Ok(status) => status.into(),
        Err(failure) => failure.report(),
    }
}
