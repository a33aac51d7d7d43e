//! Test cases that are not in this repository: `PERFLOSS_CASES=DIR cargo test -p workload --test originals -- --ignored` compiles
//! and runs every C file in DIR, in both modes, with two tasks or as many as `PERFLOSS_TASKS` says. They may use `/tmp`.

mod common;

use std::path::PathBuf;

use workload::Mode;
use workload::ccase::compile;

#[test]
#[ignore = "needs PERFLOSS_CASES, a directory of will-it-scale test cases"]
fn every_case_in_a_directory_compiles_and_runs_in_both_modes() {
    let dir = std::env::var_os("PERFLOSS_CASES").expect("PERFLOSS_CASES names a directory");
    let mut sources: Vec<PathBuf> = std::fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .collect();
    sources.sort();
    assert!(!sources.is_empty(), "no C files");
    let tasks = std::env::var("PERFLOSS_TASKS").map_or(2, |n| n.parse().expect("a number"));
    let mut bad = Vec::new();
    for source in &sources {
        let name = source.file_stem().unwrap_or_default().to_string_lossy();
        let scratch = tempfile::tempdir().expect("a directory");
        let case = match compile(source, scratch.path()) {
            Ok(case) => case,
            Err(error) => {
                bad.push(format!("{name}: {error}"));
                continue;
            }
        };
        for mode in [Mode::Processes, Mode::Threads] {
            let outcome = common::case::run(&case, tasks, mode, 10);
            let well = outcome.in_window.len() == tasks as usize
                && outcome.in_window.iter().all(|&n| n > 0.0)
                && outcome.failure.is_none()
                && outcome.died.is_none()
                && outcome.group_status.is_none()
                && outcome.cleanup_failed.is_none();
            println!("{name} {mode:?} {} {:?}", if well { "ok" } else { "FAILED" }, case.description);
            if !well {
                bad.push(format!("{name} {mode:?}: {outcome:?}"));
            }
        }
    }
    println!("{} cases", sources.len());
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}
