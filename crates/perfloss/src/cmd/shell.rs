//! `perfloss completions` and `perfloss man`: what a package installs beside the binary. Both come from the definition of the
//! command line itself.

use std::io::Write;

use anyhow::Context;
use clap::{Args as ClapArgs, Command};

use crate::exit::{Failure, Status};

/// Print the completions for a shell.
#[derive(ClapArgs, Debug)]
#[command(
    after_help = "Examples:\n  perfloss completions bash > /etc/bash_completion.d/perfloss\n  perfloss completions fish > ~/.config/fish/completions/perfloss.fish"
)]
pub struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

/// Print the manual page, of perfloss or of one of its commands.
#[derive(ClapArgs, Debug)]
#[command(
    after_help = "Examples:\n  perfloss man | man -l -\n  perfloss man run > /usr/local/share/man/man1/perfloss-run.1"
)]
pub struct Man {
    /// The command [default: perfloss itself]
    command: Option<String>,
}

/// Runs `completions`; `cli` is the definition of the command line.
pub fn completions(args: &Completions, mut cli: Command) -> Result<Status, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut cli, "perfloss", &mut text);
    print(&text)
}

/// Runs `man`.
pub fn man(args: &Man, cli: Command) -> Result<Status, Failure> {
    let page = match &args.command {
        None => cli,
        Some(name) => {
            let found = cli.find_subcommand(name);
            let found = found.ok_or_else(|| {
                Failure::usage(format!("there is no command {name:?}: see perfloss --help"))
            })?;
            // The name of a page is that of the program with the command's behind it.
            let full: &'static str = Box::leak(format!("perfloss-{name}").into_boxed_str());
            found.clone().name(full).bin_name(format!("perfloss {name}"))
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).context("cannot make the manual page")?;
    print(&text)
}

fn print(text: &[u8]) -> Result<Status, Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush()).context("cannot print")?;
    Ok(Status::Done)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, ValueEnum};

    #[test]
    fn every_shell_and_every_command_has_its_text() {
        let cli = crate::cli::Cli::command();
        for shell in clap_complete::Shell::value_variants() {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut cli.clone(), "perfloss", &mut text);
            assert!(String::from_utf8(text).unwrap().contains("offcpu"), "{shell}");
        }
        for command in cli.get_subcommands() {
            let mut text = Vec::new();
            clap_mangen::Man::new(command.clone()).render(&mut text).unwrap();
            assert!(String::from_utf8(text).unwrap().contains(".SH OPTIONS"), "{}", command.get_name());
        }
    }
}
