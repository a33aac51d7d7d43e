//! `show` and `compare` as scripts use them: output, exit status, one line for what is wrong.

#![allow(clippy::unwrap_used)]

#[path = "../../report/tests/common/mod.rs"]
mod common;

use assert_cmd::Command;
use result::{Folder, RunResult};
use std::path::{Path, PathBuf};

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn keep(&self, name: &str, result: &RunResult) -> PathBuf {
        let path = self.dir.path().join(name);
        Folder::create(&path).unwrap().update(result).unwrap();
        path
    }
}

fn perfloss(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("perfloss").unwrap();
    command.args(arguments).env_remove("NO_COLOR").env_remove("COLUMNS");
    command
}

/// Status, standard output, standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let out = perfloss(arguments).output().unwrap();
    (
        out.status.code().unwrap(),
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    )
}

fn fails(arguments: &[&str], status: i32, words: &str) {
    let (code, out, err) = run(arguments);
    assert_eq!(code, status, "{arguments:?}: {err}");
    assert_eq!(out, "", "{arguments:?}");
    assert_eq!(err.lines().count(), 1, "{arguments:?}: {err}");
    assert!(err.contains(words), "{arguments:?}: {err}");
    assert!(!err.trim_end().chars().any(char::is_control));
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_result_is_shown_from_its_folder_or_its_file_without_colour_in_a_pipe() {
    let place = Place::new();
    let folder = place.keep("r", &common::result());
    let (code, out, err) = run(&["show", &text(&folder)]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("208,300") && out.contains("xfs_buf.b_sema") && !out.contains('\x1b'));
    let (_, same, _) = run(&["show", &text(&folder.join("result.json"))]);
    assert_eq!(out, same);
    let narrow = perfloss(&["show", &text(&folder)]).env("COLUMNS", "60").output().unwrap();
    assert!(String::from_utf8(narrow.stdout).unwrap().lines().all(|l| report::text::width(l) <= 60));
}

#[test]
fn json_is_what_was_written_and_follows_the_schema() {
    let place = Place::new();
    let folder = place.keep("r", &common::result());
    let (code, out, _) = run(&["show", &text(&folder), "--json"]);
    assert_eq!(code, 0);
    assert!(out == std::fs::read_to_string(folder.join("result.json")).unwrap(), "every number is the same");
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/result.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(validator.is_valid(&serde_json::from_str(&out).unwrap()));
}

#[test]
fn every_format_is_written_to_standard_output_or_a_file() {
    let place = Place::new();
    let folder = text(&place.keep("r", &common::result()));
    for (flags, beginning) in [
        (vec!["--html"], "<!DOCTYPE html>"),
        (vec!["--markdown"], "### create"),
        (vec!["--folded"], "perfloss;main;"),
        (vec!["--folded", "--on-cpu", "--target", "ext4"], "perfloss;main;"),
        (vec!["--flame-graph"], "<?xml"),
        (vec!["--flame-graph", "--target", "xfs", "--against", "ext4"], "<?xml"),
        (vec!["--pprof"], "\u{1f}"),
        (vec!["--perfetto"], "\n"),
    ] {
        let mut arguments = vec!["show", folder.as_str()];
        arguments.extend(&flags);
        let (code, out, err) = run(&arguments);
        assert_eq!(code, 0, "{flags:?}: {err}");
        assert!(out.starts_with(beginning), "{flags:?}: {}", &out[..out.len().min(60)]);
        let file = place.dir.path().join("out");
        let file_name = text(&file);
        arguments.extend(["--output", file_name.as_str()]);
        let (code, nothing, err) = run(&arguments);
        assert_eq!((code, nothing.as_str()), (0, ""), "{err}");
        assert!(String::from_utf8_lossy(&std::fs::read(&file).unwrap()) == out, "{flags:?}");
    }
    let tables = place.dir.path().join("tables");
    let (code, _, err) = run(&["show", &folder, "--parquet", "-o", &text(&tables)]);
    assert_eq!(code, 0, "{err}");
    for name in ["points", "roots", "waits"] {
        assert!(std::fs::read(tables.join(format!("{name}.parquet"))).unwrap().starts_with(b"PAR1"));
    }
}

#[test]
fn stacks_are_those_of_the_workload_unless_all_tasks_are_asked_for() {
    let place = Place::new();
    let mut result = common::result();
    for p in &mut result.points {
        let Some(stacks) = &mut p.stacks else { continue };
        for list in [&mut stacks.off_cpu, &mut stacks.on_cpu] {
            for s in list.iter_mut() {
                s.of_workload = Some(true);
            }
            let stranger =
                result::Stack { comm: "stranger".into(), of_workload: Some(false), ..list[0].clone() };
            list.push(stranger);
        }
    }
    let folder = text(&place.keep("r", &result));
    for side in [vec!["--folded"], vec!["--folded", "--on-cpu"], vec!["--flame-graph", "--on-cpu"]] {
        let mut arguments = vec!["show", folder.as_str()];
        arguments.extend(&side);
        let (code, own, err) = run(&arguments);
        assert_eq!(code, 0, "{err}");
        assert!(own.contains("perfloss") && !own.contains("stranger"), "{side:?}");
        arguments.push("--all-tasks");
        assert!(run(&arguments).1.contains("stranger"), "{side:?}");
    }
    // Options of a format say so where there is none of it.
    fails(&["show", &folder, "--on-cpu"], 2, "--folded|--flame-graph");
    fails(&["show", &folder, "--all-tasks"], 2, "--folded|--flame-graph|--pprof");
    fails(&["show", &folder, "--json", "--on-cpu"], 2, "--folded");
    fails(&["show", &folder, "--pprof", "--on-cpu"], 2, "--folded");
}

#[test]
fn only_the_points_that_are_meant_are_shown() {
    let place = Place::new();
    let folder = text(&place.keep("r", &common::result()));
    let (_, out, _) = run(&["show", &folder, "--json", "--target", "xfs", "-t", "2"]);
    let shown: RunResult = serde_json::from_str(&out).unwrap();
    assert_eq!(shown.points.len(), 1);
    assert_eq!(shown.targets.len(), 1);
    assert!(shown.comparisons.is_empty(), "its other side is not shown");
    fails(&["show", &folder, "--target", "zfs"], 2, "create_unlink on xfs, 2 tasks");
}

#[test]
fn what_cannot_be_read_is_one_line_and_status_2() {
    let place = Place::new();
    let folder = place.keep("r", &common::result());
    let file = folder.join("result.json");
    let whole = std::fs::read(&file).unwrap();
    fails(&["show", "/nonexistent/result"], 2, "no such result");
    fails(&["show", &text(place.dir.path())], 2, "no result.json");
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    fails(&["show", &text(&folder)], 2, "cut off");
    std::fs::write(&file, b"{\"schema\":\"perfloss.result/99\"}").unwrap();
    fails(&["show", &text(&folder)], 2, "perfloss.result/99");
    std::fs::write(&file, "[".repeat(1 << 20)).unwrap();
    fails(&["show", &text(&folder)], 2, "not a perfloss result");
    std::fs::write(&file, b"\x1b]0;evil\x07").unwrap();
    fails(&["show", &text(&folder)], 2, "not a perfloss result");
    fails(&["show", &text(&place.dir.path().join("a\n\x1b[31mb"))], 2, "no such result");
}

#[test]
fn a_capture_that_is_not_there_is_said_with_the_way_to_get_it() {
    let place = Place::new();
    let mut result = common::result();
    for p in &mut result.points {
        p.stacks = None;
        p.timeline = None;
    }
    let folder = text(&place.keep("r", &result));
    for format in ["--folded", "--flame-graph", "--pprof", "--perfetto"] {
        fails(&["show", &folder, format], 2, "--no-capture");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new();
    let mut result = common::result();
    // More than a pipe holds, so that the writer must notice.
    result.command = vec!["x".repeat(1 << 20)];
    let folder = text(&place.keep("r", &result));
    let binary = assert_cmd::cargo::cargo_bin("perfloss");
    for arguments in [vec!["show", &folder, "--json"], vec!["show", &folder, "--html"]] {
        let mut child = std::process::Command::new(&binary)
            .args(&arguments)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{arguments:?}");
        assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn a_hostile_result_does_nothing_to_the_terminal() {
    let place = Place::new();
    let folder = text(&place.keep("r", &common::hostile()));
    let (code, out, _) = run(&["show", &folder]);
    assert_eq!(code, 0);
    assert!(out.chars().all(|c| c == '\n' || !c.is_control()));
    let (code, out, err) = run(&["compare", &folder, &folder]);
    assert!(code == 0 || code == 3, "{code} {err}");
    assert!(out.chars().all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn compare_finds_a_loss_with_status_1_and_none_in_the_same() {
    let place = Place::new();
    let base = common::result();
    let mut slow = base.clone();
    for p in slow.points.iter_mut().filter(|p| p.target == "xfs") {
        let e = p.ops_per_s.as_mut().unwrap();
        for r in e.rounds.iter_mut().chain([&mut e.median, &mut e.low, &mut e.high]) {
            *r *= 0.5;
        }
    }
    let (base, slow) = (text(&place.keep("base", &base)), text(&place.keep("slow", &slow)));
    let (code, out, err) = run(&["compare", &base, &slow]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("create_unlink on xfs, 2 tasks: slower, ×0.50"), "{out}");
    assert!(out.contains("create_unlink on tmpfs, 2 tasks: no difference"), "{out}");
    assert_eq!(run(&["compare", &base, &slow, "--fail-above", "3%"]).0, 1);
    assert_eq!(run(&["compare", &base, &slow, "--fail-above", "60%"]).0, 0);
    assert_eq!(run(&["compare", &slow, &base]).0, 0, "a gain is no loss");
    assert_eq!(run(&["compare", &base, &base]).0, 0);
    let (code, json, _) = run(&["compare", &base, &slow, "--json"]);
    assert_eq!(code, 1);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["schema"], "perfloss.comparison/1");
    assert_eq!(report["loss_found"], true);
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/comparison.schema.json")).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&report));
    let (code, markdown, _) = run(&["compare", &base, &slow, "--markdown"]);
    assert_eq!(code, 1);
    assert!(markdown.lines().filter(|l| l.starts_with('|')).count() == 8, "{markdown}");
}

#[test]
fn two_targets_of_one_result_are_compared() {
    let place = Place::new();
    let folder = text(&place.keep("r", &common::result()));
    let (code, out, _) = run(&["compare", &folder, "--base-target", "ext4", "--new-target", "xfs"]);
    assert_eq!(code, 1);
    assert!(out.contains("create_unlink on ext4 → xfs, 2 tasks: slower, ×0.28"), "{out}");
}

#[test]
fn compare_refuses_what_cannot_be_compared_and_bad_usage() {
    let place = Place::new();
    let base = common::result();
    let mut other = base.clone();
    other.machine.allowed_cpus = (0..24).collect();
    let (base, other) = (text(&place.keep("base", &base)), text(&place.keep("other", &other)));
    fails(&["compare", &base, &other], 2, "2 allowed against 24; --anyway");
    assert_eq!(run(&["compare", &base, &other, "--anyway"]).0, 0);
    fails(&["compare", &base], 2, "--base-target");
    fails(&["compare", &base, &base, "--target", "zfs"], 2, "create_unlink on ext4, tmpfs, xfs");
    assert_eq!(run(&["compare", &base, &base, "--fail-above", "3"]).0, 2);
    let recording = text(&place.keep("recording", &common::recording()));
    fails(&["compare", &base, &recording], 2, "recording");
}
