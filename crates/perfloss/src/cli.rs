//! The table of commands.

use clap::{Parser, Subcommand};

use crate::exit::{Failure, Status};

/// Finds what a parallel workload loses, which kernel lock or wait costs it, and what would win it back.
#[derive(Parser)]
#[command(name = "perfloss", version, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {}

/// Reads the command line and runs the command that it names.
pub fn run() -> Result<Status, Failure> {
    match Cli::parse().command {}
}
