//! The table of commands.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::cmd;
use crate::exit::{Failure, Status};

/// Finds what a parallel workload loses, which kernel lock or wait costs it, and what would win it back.
#[derive(Parser)]
#[command(name = "perfloss", version, max_term_width = 100, arg_required_else_help = true, after_help = EXAMPLES)]
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
    Completions(cmd::shell::Completions),
    Man(cmd::shell::Man),
}

const EXAMPLES: &str = "\
Examples:
  perfloss run create_unlink -t 1,2,4 --on xfs,ext4,btrfs,tmpfs   which file system loses what, and why
  perfloss record -- make -j24                                    why a build leaves CPUs idle
  perfloss compare base/ new/                                     what changed between two results
  perfloss doctor                                                 what works on this machine

`perfloss COMMAND --help` has more of each. Exit status: 0 done, 1 compare found a loss, 2 bad usage,
3 not trustworthy, 4 not possible here, 130 interrupted.";

/// Reads the command line and runs the command that it names.
pub fn run() -> Result<Status, Failure> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) if e.use_stderr() && e.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Err(Failure::usage(one_line(&e.to_string())));
        }
        // Help and version, which go to standard output; and help for who gave no command.
        Err(e) => e.exit(),
    };
    match cli.command {
        Command::Run(args) => cmd::run::run(&args),
        Command::Record(args) => cmd::record::run(&args),
        Command::Show(args) => cmd::show::run(&args),
        Command::Compare(args) => cmd::compare::run(&args),
        Command::Offcpu(args) => cmd::offcpu::run(&args),
        Command::Lab(args) => cmd::lab::run(&args),
        Command::List(args) => cmd::list::run(&args),
        Command::Doctor(args) => cmd::doctor::run(&args),
        Command::Completions(args) => cmd::shell::completions(&args, Cli::command()),
        Command::Man(args) => cmd::shell::man(&args, Cli::command()),
    }
}

/// The parser's error without its usage lines.
fn one_line(error: &str) -> String {
    let told =
        error.lines().map(str::trim).take_while(|l| !l.starts_with("Usage:") && !l.starts_with("For more"));
    let mut line = String::new();
    // The parser's tip for values that look like flags would make an operand of them.
    for part in told.filter(|l| !l.is_empty() && !l.starts_with("tip: to pass '")) {
        let part = part.trim_start_matches("error: ").trim_start_matches("tip: ");
        let goes_on = line.is_empty() || line.ends_with(':') || part.starts_with('[');
        line.push_str(match (line.is_empty(), goes_on) {
            (true, _) => "",
            (false, true) => " ",
            (false, false) => "; ",
        });
        line.extend(part.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_defined_without_contradictions() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn what_is_wrong_with_the_arguments_is_told_in_one_line() {
        let told = |words: &[&str]| {
            let all = ["perfloss", "run"].iter().chain(words);
            Cli::try_parse_from(all).err().map(|e| one_line(&e.to_string())).unwrap_or_default()
        };
        assert_eq!(told(&[]), "the following required arguments were not provided: <WORKLOAD>...");
        assert!(told(&["cc", "--rounds", "0"]).starts_with("invalid value '0' for '--rounds <N>'"));
        let mode = told(&["cc", "--mode", "process"]);
        assert!(mode.contains("[possible values: processes, threads]; a similar value"), "{mode}");
    }
}
