//! `perfloss list`: the workloads and targets that there are.

use std::io::Write;

use anyhow::Context;
use clap::Args as ClapArgs;
use serde::Serialize;
use target::Caps;

use crate::exit::{Failure, Status};

/// List the workloads and targets, and why a target is not possible here.
#[derive(ClapArgs, Debug)]
#[command(after_help = "Examples:\n  perfloss list\n  perfloss list --json | jq -r '.workloads[].name'")]
pub struct Args {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed {
    workloads: Vec<WorkloadLine>,
    targets: Vec<TargetLine>,
}

#[derive(Serialize)]
struct WorkloadLine {
    name: String,
    about: String,
    version: u32,
    processes: bool,
    threads: bool,
}

#[derive(Serialize)]
struct TargetLine {
    name: String,
    about: String,
    options: Vec<OptionLine>,
    usable: bool,
    trouble: Option<String>,
}

#[derive(Serialize)]
struct OptionLine {
    name: String,
    wanted: String,
    help: String,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Status, Failure> {
    let listed = Listed {
        workloads: workload::registry()
            .iter()
            .map(|w| WorkloadLine {
                name: w.name().to_owned(),
                about: w.about().to_owned(),
                version: w.version(),
                processes: w.modes().processes,
                threads: w.modes().threads,
            })
            .collect(),
        targets: target::available(Caps::here())
            .into_iter()
            .map(|t| TargetLine {
                name: t.name,
                about: t.about,
                options: t
                    .options
                    .into_iter()
                    .map(|o| OptionLine {
                        name: o.name.to_owned(),
                        wanted: o.wanted,
                        help: o.help.to_owned(),
                    })
                    .collect(),
                usable: t.trouble.is_none(),
                trouble: t.trouble.map(|e| e.to_string()),
            })
            .collect(),
    };
    let mut out = std::io::stdout().lock();
    let printed = if args.json {
        serde_json::to_string_pretty(&listed)
            .map_err(std::io::Error::from)
            .and_then(|text| writeln!(out, "{text}"))
    } else {
        out.write_all(text(&listed).as_bytes())
    };
    printed.context("cannot print")?;
    Ok(Status::Done)
}

fn text(listed: &Listed) -> String {
    let mut out = String::from("Workloads\n");
    let widest = listed.workloads.iter().map(|w| w.name.len()).max().unwrap_or(0);
    for w in &listed.workloads {
        let only = match (w.processes, w.threads) {
            (true, false) => " (processes only)",
            (false, true) => " (threads only)",
            _ => "",
        };
        out.push_str(&format!("  {:widest$}  {}{only}\n", w.name, w.about));
    }
    out.push_str(&format!("  {:widest$}  a will-it-scale test case, unmodified\n", "./FILE.c"));
    out.push_str(&format!("  {:widest$}  any command: perfloss run --each 'COMMAND'\n", "--each"));
    out.push_str("\nTargets\n");
    let widest = listed.targets.iter().map(|t| t.name.len()).max().unwrap_or(0);
    for t in &listed.targets {
        match &t.trouble {
            None => out.push_str(&format!("  {:widest$}  {}\n", t.name, t.about)),
            Some(trouble) => out.push_str(&format!("  {:widest$}  not here: {trouble}\n", t.name)),
        }
        for o in &t.options {
            out.push_str(&format!("  {:widest$}    {}={}  {}\n", "", o.name, o.wanted, o.help));
        }
    }
    out.push('\n');
    out.push_str(target::SYNTAX_HELP);
    out
}
