//! The command line of perfloss: options, progress, exit codes, wiring. Everything that measures,
//! explains or renders lives in the crates below; this one only joins them.

mod cli;
mod cmd;
mod exit;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run() {
        Ok(status) => status.into(),
        Err(failure) => failure.report(),
    }
}
