//! `perfloss doctor`: what this machine allows, and what to do about the rest.

use std::io::Write;

use anyhow::Context;
use clap::Args as ClapArgs;
use harness::cpus::{Cpus, Quota};
use serde::Serialize;
use target::Caps;

use crate::exit::{Failure, Status};
use crate::machine;

/// Say what works on this machine, what does not, and how to get it.
#[derive(ClapArgs, Debug)]
#[command(
    after_help = "Examples:\n  perfloss doctor\n  perfloss doctor --json | jq -r '.[] | select(.ok | not) | .says'\n\nExit status: 0 when everything that the main job needs works (`-` marks what it does without), 4 when something is missing."
)]
pub struct Args {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// One thing that was looked at.
#[derive(Serialize)]
struct Finding {
    what: String,
    ok: bool,
    /// perfloss does its main job without it.
    optional: bool,
    /// What was found, or what is missing and how to get it.
    says: String,
}

impl Finding {
    fn new(what: &str, ok: bool, says: impl Into<String>) -> Finding {
        Finding { what: what.to_owned(), ok, optional: false, says: says.into() }
    }

    fn optional(self) -> Finding {
        Finding { optional: true, ..self }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<Status, Failure> {
    let findings = look();
    let mut out = std::io::stdout().lock();
    let printed = if args.json {
        serde_json::to_string_pretty(&findings)
            .map_err(std::io::Error::from)
            .and_then(|text| writeln!(out, "{text}"))
    } else {
        let widest = findings.iter().map(|f| f.what.len()).max().unwrap_or(0);
        findings.iter().try_for_each(|f| {
            let sign = match (f.ok, f.optional) {
                (true, _) => "ok  ",
                (false, true) => "-   ",
                (false, false) => "NO  ",
            };
            writeln!(out, " {sign} {:widest$}  {}", f.what, f.says)
        })
    };
    printed.context("cannot print")?;
    Ok(if findings.iter().all(|f| f.ok || f.optional) { Status::Done } else { Status::NotAllowed })
}

fn look() -> Vec<Finding> {
    let mut findings = Vec::new();
    let uname = rustix::system::uname();
    findings.push(Finding::new("kernel", true, uname.release().to_string_lossy()));
    match Cpus::allowed() {
        Ok(cpus) => {
            let quota = Quota::here().map(|q| format!(", a quota of {:.2} CPUs", q.cpus)).unwrap_or_default();
            let says = format!("{} allowed CPUs on {} cores{quota}", cpus.count(), cpus.cores());
            findings.push(Finding::new("CPUs", true, says));
        }
        Err(e) => findings.push(Finding::new("CPUs", false, format!("cannot be read: {e}"))),
    }
    let caps = Caps::here();
    findings.push(if caps.sys_admin {
        Finding::new("namespaces and mounts", true, "CAP_SYS_ADMIN: nothing can outlive a run")
    } else {
        let says = "run as root (CAP_SYS_ADMIN) to make file systems; without it --on /some/dir works, and an end is not guaranteed";
        Finding::new("namespaces and mounts", false, says)
    });
    for t in target::available(caps) {
        let says = t.trouble.as_ref().map_or_else(|| "can be made".to_owned(), ToString::to_string);
        let finding = Finding::new(&format!("target {}", t.name), t.trouble.is_none(), says);
        // Others are there for whoever has them.
        let usual = super::run::USUAL_TARGETS.contains(&t.name.as_str());
        findings.push(if usual { finding } else { finding.optional() });
    }
    findings.push(match machine::compiler() {
        Ok(version) => Finding::new("C compiler", true, version),
        Err(why) => {
            let says = format!("{why}; the workload cc and C test cases need it: apt install gcc");
            Finding::new("C compiler", false, says).optional()
        }
    });
    findings.extend(capture::doctor().into_iter().map(|f| {
        let ok = f.status != capture::Status::Missing;
        let says = if f.remedy.is_empty() { f.what } else { format!("{}; {}", f.what, f.remedy) };
        Finding::new(f.name, ok, says)
    }));
    findings
}
