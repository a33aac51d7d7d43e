//! The table of commands.

use clap::{Parser, Subcommand};

use crate::cmd;
use crate::exit::{Failure, Status};

/// Finds what a parallel workload loses, which kernel lock or wait costs it, and what would win it back.
#[derive(Parser)]
#[command(name = "perfloss", version, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(cmd::run::Args),
    Record(cmd::record::Args),
    Show(cmd::show::Args),
    Compare(cmd::compare::Args),
    Offcpu(cmd::offcpu::Args),
    Lab(cmd::lab::Args),
    List(cmd::list::Args),
    Doctor(cmd::doctor::Args),
}

/// Reads the command line and runs the command that it names.
pub fn run() -> Result<Status, Failure> {
    match Cli::parse().command {
        Command::Run(args) => cmd::run::run(&args),
        Command::Record(args) => cmd::record::run(&args),
        Command::Show(args) => cmd::show::run(&args),
        Command::Compare(args) => cmd::compare::run(&args),
        Command::Offcpu(args) => cmd::offcpu::run(&args),
        Command::Lab(args) => cmd::lab::run(&args),
        Command::List(args) => cmd::list::run(&args),
        Command::Doctor(args) => cmd::doctor::run(&args),
    }
}
