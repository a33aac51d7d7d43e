//! The terminal's tables and verdict: right, within the width, harmless.

#![allow(clippy::unwrap_used)]

mod common;

use report::terminal::render;
use report::text::width;

fn fits(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(width(line) <= columns, "{} > {columns}: {line}", width(line));
        assert_eq!(line.trim_end(), line, "blanks at the end");
    }
}

#[test]
fn the_tables_fit_every_width_and_keep_what_matters() {
    let result = common::result();
    for columns in 40..=130 {
        let text = render(&result, columns, false);
        fits(&text, columns);
        for must in ["208,300", "23,200", "xfs does", "xfs_buf.b_sema"] {
            assert!(text.contains(must), "{must} at {columns}:\n{text}");
        }
    }
    let wide = render(&result, 100, false);
    for must in
        ["of best", "scaling", "user", "sys", "spin", "idle", "steal", "spread", "86.2", "0.57", "31.9"]
    {
        assert!(wide.contains(must), "{must}:\n{wide}");
    }
}

#[test]
fn what_others_used_has_a_column_where_it_matters() {
    let mut result = common::result();
    let head = |result: &result::RunResult, columns| {
        render(result, columns, false).lines().find(|l| l.contains("tasks")).unwrap().to_owned()
    };
    assert!(!head(&result, 120).contains("other"));
    let budget = result.points[0].budget_us_per_op.as_mut().unwrap();
    budget.other = budget.total.map(|t| t * 0.01);
    assert!(!head(&result, 120).contains("other"));
    let budget = result.points[0].budget_us_per_op.as_mut().unwrap();
    budget.other = budget.total.map(|t| t * 0.1);
    for columns in [120, 100, 80] {
        assert!(head(&result, columns).contains("other"), "{columns}");
        fits(&render(&result, columns, false), columns);
    }
}

#[test]
fn the_heading_breaks_between_its_parts() {
    let mut result = common::result();
    result.machine.kernel = "6.18.44-with-a-name-of-some-length".into();
    for columns in 60..=120 {
        let text = render(&result, columns, false);
        let heading: Vec<&str> = text.lines().take_while(|l| !l.is_empty()).collect();
        assert!(heading.iter().any(|l| l.contains("seed 7")), "{columns}: {heading:?}");
        assert!(heading.iter().all(|l| !l.starts_with('·')), "{columns}: {heading:?}");
    }
}

#[test]
fn the_reported_case_reads_as_in_the_design() {
    let text = render(&common::result(), 100, false);
    let squeezed: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for must in [
        "xfs does 43 % fewer operations with 2 tasks than with 1.",
        "Root 91 % of the idle time: semaphore xfs_buf.b_sema, AGI of AG 0 on loop0",
        "unlink: xfs_iunlink < xfs_dir_remove_child 48 %",
        "Held by kworker/0:1-xfs-inodegc 23 %, perfloss 15 %, nobody 61 %",
        "hand-off 61 % (CPU idle 59, busy 2) · holder running 33 %",
        "behind inode.i_rwsem of directory 131 on loop0: 32.6 us",
        "own directory per task 93,400 ×4.0 (3.9–4.2) measured",
        "an operation costs 76.6 CPU-us more",
        "! the rounds differ by 62 %",
        "capture kept at least 97 % of the throughput",
    ] {
        assert!(squeezed.contains(must), "{must}:\n{text}");
    }
}

#[test]
fn what_is_no_lock_is_not_held_and_the_rest_of_the_wait_is_said() {
    let mut result = common::recording();
    let point = &mut result.points[0];
    let root = point.roots.iter_mut().find(|r| r.lock.kind.is_lock()).unwrap();
    root.holders = vec![result::Holder { comm: "cc1".into(), share: 0.2, ..Default::default() }];
    root.split =
        Some(result::Split { hand_off: 0.5, holder_running: 0.3, unknown: 0.2, ..Default::default() });
    let text = render(&result, 100, false);
    assert!(text.contains("by cc1 20 %, others 10 %, nobody 50 %, not known 20 %"), "{text}");
    let root = result.points[0].roots.iter_mut().find(|r| r.lock.kind.is_lock()).unwrap();
    (root.lock.kind, root.split) = (result::RootKind::Io, None);
    let markdown = report::markdown::render(&result);
    assert!(markdown.contains("ended by cc1 20 %, others or not known 80 %"), "{markdown}");
}

#[test]
fn what_was_not_measured_is_a_dash_and_what_was_is_a_number() {
    let text = render(&common::result(), 100, false);
    let row = text.lines().find(|l| l.trim_start().starts_with("tmpfs ")).unwrap();
    let budget: Vec<&str> = row.split('│').nth(1).unwrap().split_whitespace().collect();
    // total user sys spin idle unused steal
    assert_eq!(budget[3], "–", "spinning was not sampled: {row}");
    assert_eq!(budget[4], "0", "idle was measured: {row}");
}

/// The lines of the verdict: those after the table, up to what is measured of remedies or warned of.
fn verdict_lines(text: &str) -> usize {
    let from = text.lines().position(|l| l.contains("operations with")).unwrap();
    let lines = text.lines().skip(from);
    lines.take_while(|l| !l.contains("Remedy") && !l.starts_with(" !")).filter(|l| !l.is_empty()).count()
}

#[test]
fn a_verdict_has_ten_lines_at_most_however_many_targets_there_are() {
    let mut result = common::result();
    assert!(verdict_lines(&render(&result, 100, false)) <= 10);
    let more: Vec<_> = result
        .points
        .iter()
        .filter(|p| !p.roots.is_empty())
        .flat_map(|p| {
            ["a", "b", "c", "d"].map(|name| {
                let mut point = p.clone();
                point.target = format!("{}-{name}", p.target);
                point
            })
        })
        .collect();
    result.points.extend(more);
    for width in [90, 100, 120] {
        let text = render(&result, width, false);
        assert!(verdict_lines(&text) <= 10, "{text}");
        // the worst one is told in full
        for must in ["Root ", "Paths ", "Held ", "Wait "] {
            assert!(text.contains(must), "{must}:\n{text}");
        }
    }
}

#[test]
fn hidden_waits_of_several_targets_have_a_line_each() {
    let mut result = common::result();
    let storm = result.points.iter().find(|p| p.target == "xfs" && p.tasks == 2).unwrap().clone();
    let hidden = |target: &str, waits: &[(&str, f64)]| {
        let mut point = storm.clone();
        point.target = target.to_owned();
        point.tasks = 24;
        point.budget_us_per_op.as_mut().unwrap().idle = Some(0.0);
        let root = point.roots.iter().find(|r| r.lock.kind.is_lock()).unwrap().clone();
        point.roots.clear();
        for (class, wait) in waits {
            let mut root = root.clone();
            root.lock.class = (*class).to_owned();
            root.latent = true;
            root.idle_us_per_op = Some(0.0);
            root.wait_us_per_op = Some(*wait);
            point.roots.push(root);
        }
        point
    };
    result.points = vec![
        hidden("xfs", &[("xfs_buf.b_sema", 28.6), ("inode.i_rwsem", 882.0)]),
        hidden("btrfs", &[("extent_buffer.lock", 3126.0)]),
        hidden("tmpfs", &[]),
    ];
    let text = render(&result, 100, false);
    let squeezed: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for must in [
        "tmpfs, xfs, btrfs: no idle time is lost at 24 tasks.",
        "xfs 882 semaphore inode.i_rwsem, AGI of AG 0 on loop0 · 28.6 semaphore xfs_buf.b_sema,",
        "btrfs 3,126 semaphore extent_buffer.lock,",
        "tmpfs none for long",
    ] {
        assert!(squeezed.contains(must), "{must}:\n{text}");
    }
    assert!(!text.contains("Waits "), "only a single target has its paths here:\n{text}");
}

#[test]
fn colour_changes_nothing_but_the_colour() {
    let result = common::result();
    let plain = render(&result, 100, false);
    assert!(!plain.contains('\x1b'));
    let colored = render(&result, 100, true);
    assert!(colored.contains("\x1b["));
    let mut stripped = String::new();
    let mut rest = colored.as_str();
    while let Some(i) = rest.find('\x1b') {
        stripped.push_str(&rest[..i]);
        let end = rest[i..].find('m').unwrap();
        rest = &rest[i + end + 1..];
    }
    stripped.push_str(rest);
    assert_eq!(stripped, plain);
}

#[test]
fn hostile_names_and_absurd_numbers_are_tamed() {
    let result = common::hostile();
    for columns in [0, 40, 80, 100, usize::MAX] {
        let text = render(&result, columns, false);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
        assert!(!text.contains('\u{202e}'));
        fits(&text, columns.clamp(40, 120));
    }
}

#[test]
fn a_recording_says_what_the_idle_time_is_charged_to() {
    let text = render(&common::recording(), 100, false);
    for must in [
        "make -j24 · recorded · 24 CPUs",
        "71 % busy",
        "Busy: user code 61 % · the kernel 10 %",
        "Idle 29 % = 287 CPU-s. Charged to:",
        "48 %  serial: ld -o vmlinux (1 process, 6.1 s alone) · at 34.2–40.3 s",
        "31 %  semaphore xfs_buf.b_sema, AGI of AG 2 on nvme0n1p3 · hand-off 64 %",
        "9 %  nothing to run: make reads Makefiles",
        "sources agree within 0.0",
    ] {
        assert!(text.contains(must), "{must}:\n{text}");
    }
}

#[test]
fn void_points_interruptions_and_emptiness_are_said() {
    let mut result = common::result();
    result.complete = false;
    result.interrupted = true;
    result.points[1].valid = false;
    result.points[1].invalid_because = Some("task 3 was killed by signal 9".into());
    let text = render(&result, 80, false);
    assert!(text.contains("void"), "{text}");
    assert!(text.contains("task 3 was killed by signal 9"));
    assert!(text.contains("interrupted"));
    assert!(!text.contains("103,600"), "figures of a void point are not shown");
    result.points.clear();
    assert!(render(&result, 80, false).contains("Nothing was measured."));
}

#[test]
fn overlapping_intervals_claim_no_difference() {
    let mut result = common::result();
    result.points = vec![
        common::point("xfs", 2, 23_000.0, 0.2, 0.4, 10.0),
        common::point("ext4", 2, 24_000.0, 0.2, 0.4, 10.0),
    ];
    let text = render(&result, 100, false);
    assert!(text.contains("no target is clearly faster"), "{text}");
    assert!(!text.contains("fewer operations"));
}

#[test]
#[ignore = "prints the illustration for a person to look at"]
fn illustration() {
    for columns in [100, 80, 50] {
        println!("{}", render(&common::result(), columns, false));
    }
    println!("{}", render(&common::recording(), 100, false));
    println!("{}", render(&common::hostile(), 100, false));
}
