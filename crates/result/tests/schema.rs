//! The schemas in docs/ are those of the types, and what is written follows them.
#![allow(clippy::unwrap_used)]

use result::{MadeBy, Point, RunResult, Warning, comparison_schema, result_schema};
use std::path::PathBuf;

fn check_fresh(file: &str, schema: &schemars::Schema) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    let now = serde_json::to_string_pretty(schema).unwrap() + "\n";
    if std::env::var_os("PERFLOSS_UPDATE_SCHEMA").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &now).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == now,
        "docs/{file} is not what the types say: run `PERFLOSS_UPDATE_SCHEMA=1 cargo test -p result --test schema` and commit it"
    );
}

#[test]
fn the_schema_of_results_in_docs_is_the_one_of_the_types() {
    check_fresh("result.schema.json", &result_schema());
}

#[test]
fn the_schema_of_comparisons_in_docs_is_the_one_of_the_types() {
    check_fresh("comparison.schema.json", &comparison_schema());
}

#[test]
fn the_contract_names_of_the_design_are_in_the_schema() {
    let text = serde_json::to_string(&result_schema()).unwrap();
    for name in [
        "schema",
        "complete",
        "seed",
        "machine",
        "command",
        "points",
        "workload",
        "target",
        "mode",
        "tasks",
        "valid",
        "invalid_because",
        "warnings",
        "ops_per_s",
        "median",
        "mad",
        "low",
        "high",
        "rounds",
        "per_task_ops_per_s",
        "min",
        "max",
        "budget_us_per_op",
        "user",
        "system",
        "spin",
        "irq",
        "steal",
        "idle",
        "unused",
        "system_elsewhere",
        "total",
        "unaccounted",
        "capture",
        "events",
        "lost_events",
        "lost_stacks",
        "throughput_ratio",
        "roots",
        "lock",
        "kind",
        "class",
        "object",
        "idle_us_per_op",
        "share_of_idle",
        "wait_us_per_op",
        "split",
        "holder_running",
        "holder_blocked",
        "holder_runnable",
        "hand_off",
        "hand_off_cpu_idle",
        "hand_off_cpu_busy",
        "unknown",
        "spin_us_per_op",
        "latent",
        "disturbed",
        "paths",
        "stack",
        "share",
        "holders",
        "comm",
        "stacks",
        "waits_through",
        "remedies",
        "what",
        "how",
        "gain",
        "scaling",
        "sigma",
        "kappa",
        "x1",
        "intervals",
        "fit",
        "comparisons",
        "a",
        "b",
        "difference_us_per_op",
        "because",
    ] {
        assert!(text.contains(&format!("\"{name}\":")), "{name} is missing");
    }
    for kind in ["io", "sleep", "pipe", "child", "throttled", "nothing_to_run", "other", "semaphore"] {
        assert!(text.contains(&format!("\"{kind}\"")), "kind {kind} is missing");
    }
}

#[test]
fn a_written_result_follows_the_schema() {
    let schema = serde_json::to_value(result_schema()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut result = RunResult::new(MadeBy::Run, 7);
    let empty = serde_json::to_value(&result).unwrap();
    assert!(validator.is_valid(&empty));
    result.warnings.push(Warning::Steal { share: 0.1 });
    result.points.push(Point {
        workload: "create_unlink".into(),
        target: "xfs".into(),
        tasks: 2,
        roots: vec![result::Root { split: Some(result::Split::default()), ..Default::default() }],
        budget_us_per_op: Some(result::Budget::default()),
        ..Default::default()
    });
    let full = serde_json::to_value(&result).unwrap();
    if let Err(error) = validator.validate(&full) {
        panic!("{error} at {}", error.instance_path);
    }
    // A check that cannot fail checks nothing: a wrong type has to be refused.
    let mut wrong = full.clone();
    wrong["points"][0]["tasks"] = "two".into();
    assert!(!validator.is_valid(&wrong));
}
