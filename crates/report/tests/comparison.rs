//! What `compare` found, in words.

#![allow(clippy::unwrap_used)]

mod common;

use report::comparison::{markdown, terminal};
use report::text::width;
use result::*;

fn report() -> ComparisonReport {
    let base = common::result();
    let at = |target: &str| PointRef {
        workload: "create_unlink".into(),
        target: target.into(),
        tasks: 2,
        ..Default::default()
    };
    let budget = |i: usize| base.points[i].budget_us_per_op.clone().unwrap();
    let slower = Comparison {
        a: at("xfs"),
        b: at("xfs"),
        a_ops_per_s: Some(79_500.0),
        b_ops_per_s: Some(23_200.0),
        ratio: Some(0.292),
        low: Some(0.25),
        high: Some(0.33),
        p_value: Some(0.0002),
        p_between: None,
        p_adjusted: None,
        verdict: Verdict::Slower,
        difference_us_per_op: Some(budget(0).minus(&budget(4), false)),
        roots: vec![RootChange {
            lock: base.points[0].roots[0].lock.clone(),
            a_us_per_op: None,
            b_us_per_op: Some(29.0),
        }],
        because: Vec::new(),
    };
    let same = Comparison {
        a: at("tmpfs"),
        b: at("tmpfs"),
        ratio: Some(1.01),
        low: Some(0.98),
        high: Some(1.03),
        p_value: Some(0.6),
        verdict: Verdict::NoDifference,
        ..Default::default()
    };
    ComparisonReport {
        schema: COMPARISON_SCHEMA.into(),
        base: ResultRef {
            path: "base".into(),
            kernel: "6.18.0".into(),
            complete: true,
            ..Default::default()
        },
        new: ResultRef { path: "new".into(), kernel: "6.19.0".into(), complete: true, ..Default::default() },
        noise: None,
        fail_above: 0.03,
        loss_found: true,
        comparisons: vec![slower, same],
        refused: vec![Refusal { point: Some(at("ext4")), why: "void in new".into() }],
        notes: vec!["other kernels".into()],
    }
}

#[test]
fn a_loss_is_said_with_its_interval_its_cost_and_its_new_root() {
    let text = terminal(&report(), 100, false);
    for must in [
        "create_unlink on xfs, 2 tasks: slower, ×0.29 (0.25–0.33), p < 0.001, 79,500 → 23,200 ops/s",
        "+61.0 CPU-us an operation: 31.8 idle, 29.2 in the kernel",
        "new: semaphore xfs_buf.b_sema, AGI of AG 0 on loop0 (+29.0 us)",
        "create_unlink on tmpfs, 2 tasks: no difference",
        "! not compared: create_unlink on ext4, 2 tasks: void in new",
        "1 slower · 0 faster · 1 no difference · 0 cannot say · 1 not compared: a loss of more than 3 % was found",
    ] {
        let squeezed: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed.contains(must), "{must}:\n{text}");
    }
    for columns in 40..120 {
        assert!(terminal(&report(), columns, false).lines().all(|l| width(l) <= columns));
    }
}

#[test]
fn the_markdown_of_a_comparison_is_a_table() {
    let text = markdown(&report());
    let table: Vec<&str> = text.lines().filter(|l| l.starts_with('|')).collect();
    assert_eq!(table.len(), 4);
    assert!(table.iter().all(|l| l.matches('|').count() == 9), "{text}");
}

#[test]
fn hostile_names_are_tamed_in_a_comparison() {
    let mut r = report();
    let evil = || common::HOSTILE.to_owned();
    r.base.path = evil();
    r.new.kernel = evil();
    r.notes.push(evil());
    for c in &mut r.comparisons {
        c.a.target = evil();
        c.b.workload = evil();
        c.because.push(evil());
        c.ratio = Some(f64::MAX);
    }
    for text in [terminal(&r, 80, false), markdown(&r)] {
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }
    assert_eq!(markdown(&r).replace("\\<", "").replace("p < 0", "").matches('<').count(), 0);
}
