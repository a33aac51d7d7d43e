//! Makes one target and runs a script in it. The tests start this in namespaces of its own:
//!
//! ```text
//! unshare --mount --pid --fork --kill-child target-probe JOB
//! ```
//!
//! JOB is a `Job` as JSON. It prints what was made as one line of JSON, then what the script prints.
//! `target-probe check TARGET` prints what [`Spec::check`] says about a target, `target-probe plain DIRECTORY` uses a
//! directory and a scratch with what privileges it has and prints where they were.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde::Deserialize;
use target::{Caps, Cleanup, Layout, Namespace, Scratch, Settings, Spec};

#[derive(Deserialize)]
struct Job {
    spec: Spec,
    settings: Settings,
    outside: Namespace,
    cleanup: Cleanup,
    keep_visible: Vec<PathBuf>,
    script: String,
    leave: bool,
    fresh_proc: bool,
}

fn main() -> ExitCode {
    let job = std::env::args().nth(1).unwrap_or_default();
    let target = std::env::args().nth(2).unwrap_or_default();
    let done = match job.as_str() {
        "check" => check(&target),
        "plain" => plain(&target),
        job => serde_json::from_str::<Job>(job).map_err(|error| error.to_string()).and_then(|job| run(&job)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("{line}");
            ExitCode::FAILURE
        }
    }
}

fn check(target: &str) -> Result<(), String> {
    match target.parse::<Spec>().and_then(|spec| spec.check(Caps::here(), &Settings::default())) {
        Ok(()) => println!("possible"),
        Err(error) => println!("{error}"),
    }
    Ok(())
}

fn plain(directory: &str) -> Result<(), String> {
    let use_it = || -> Result<(), target::Error> {
        let spec = Spec::directory(Path::new(directory))?;
        let cleanup = Cleanup::plan(&spec, &Settings::default())?;
        let scratch = Scratch::new()?;
        let mut write = |directory: &Path| fs::write(directory.join("src0.c"), "x");
        let place = target::enter_plain(&spec, &cleanup, Some(&mut write))?;
        for path in [scratch.path(), &place.dir, place.src.as_deref().unwrap_or(Path::new(""))] {
            println!("{} {}", path.display(), path.is_dir());
        }
        place.leave()?;
        cleanup.run()
    };
    use_it().map_err(|error| error.to_string())
}

fn run(job: &Job) -> Result<(), String> {
    let mut write = |directory: &Path| fs::write(directory.join("src0.c"), "int main(void) { return 0; }\n");
    let layout = Layout {
        spec: &job.spec,
        settings: &job.settings,
        outside: job.outside,
        cleanup: &job.cleanup,
        fresh_proc: job.fresh_proc,
        sources: Some(&mut write),
        keep_visible: &job.keep_visible,
    };
    let place = target::enter(layout).map_err(|error| error.to_string())?;
    println!("{}", serde_json::to_string(&place.facts).map_err(|error| error.to_string())?);
    let status =
        Command::new("sh").args(["-euc", &job.script]).status().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("the script failed: {status}"));
    }
    if job.leave {
        place.leave().map_err(|error| error.to_string())?;
    }
    Ok(())
}
