//! `perfloss list`: the workloads and targets that there are.

use std::io::Write;

use anyhow::Context;
use clap::Args as ClapArgs;
use serde::Serialize;
use target::Caps;

use crate::exit::{Failure, Status};
use crate::terminal;
use report::terminal::{NARROWEST, WIDEST};

/// What `--each` is, in the list of workloads.
const EACH: &str = "any command: perfloss run --each 'COMMAND'";

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

#[derive(Serialize, PartialEq)]
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
        out.write_all(text(&listed, terminal::width().clamp(NARROWEST, WIDEST)).as_bytes())
    };
    printed.context("cannot print")?;
    Ok(Status::Done)
}

/// For a terminal of so many columns.
fn text(listed: &Listed, columns: usize) -> String {
    let mut lines = vec!["Workloads".to_owned()];
    let more = [("./FILE.c", "a will-it-scale test case, unmodified"), ("--each", EACH)];
    let workloads = listed.workloads.iter().map(|w| {
        let only = match (w.processes, w.threads) {
            (true, false) => " (processes only)",
            (false, true) => " (threads only)",
            _ => "",
        };
        (w.name.as_str(), format!("{}{only}", w.about))
    });
    entries(&mut lines, 2, workloads.chain(more.map(|(name, about)| (name, about.to_owned()))), columns);
    lines.extend([String::new(), "Targets".to_owned()]);
    let widest = listed.targets.iter().map(|t| t.name.len()).max().unwrap_or(0);
    let mut told: Vec<(&str, Vec<&OptionLine>)> = Vec::new();
    for t in &listed.targets {
        let about = t.trouble.as_ref().map_or(t.about.clone(), |trouble| format!("not here: {trouble}"));
        entries(&mut lines, 2, [(format!("{:widest$}", t.name).as_str(), about)].into_iter(), columns);
        if t.trouble.is_some() {
            continue;
        }
        let own: Vec<&OptionLine> = t.options.iter().filter(|o| !common(o, &listed.targets)).collect();
        let like = told.iter().find(|(_, options)| !own.is_empty() && *options == own);
        if let Some((name, _)) = like {
            lines.push(format!("  {:widest$}    options as {name}", ""));
            continue;
        }
        let options = own.iter().map(|o| (o.name.as_str(), format!("{} ({})", o.help, o.wanted)));
        entries(&mut lines, widest + 6, options, columns);
        told.push((&t.name, own));
    }
    lines.push(String::new());
    let mut out = lines.join("\n");
    out.push('\n');
    out.push_str(target::SYNTAX_HELP);
    out
}

/// Whether most targets have an option: then it is told once, with the syntax.
fn common(option: &OptionLine, targets: &[TargetLine]) -> bool {
    let having = targets.iter().filter(|t| t.options.contains(option)).count();
    2 * having > targets.iter().filter(|t| !t.options.is_empty()).count()
}

/// Names in a column, and what they are beside them.
fn entries<'a>(
    lines: &mut Vec<String>,
    indent: usize,
    entries: impl Iterator<Item = (&'a str, String)>,
    columns: usize,
) {
    let entries: Vec<(&str, String)> = entries.collect();
    let widest = entries.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, about) in entries {
        let beside = indent + widest + 2;
        let wrapped = report::text::wrap(&format!("{:beside$}{about}", ""), columns, beside);
        for (i, line) in wrapped.into_iter().enumerate() {
            lines.push(if i == 0 {
                format!("{:indent$}{name:widest$}{}", "", &line[beside - 2..])
            } else {
                line
            });
        }
    }
}
