//! `run` names the locks of the file systems: end to end, on the real kernel and the real file systems. Needs root.
//!
//! Which lock is waited for, by whom and on which path does not depend on how busy the machine is; how much of it costs idle time does.

#![allow(clippy::unwrap_used)]

use assert_cmd::cargo::cargo_bin;
use result::{Point, Root, RootKind, RunResult};
use std::process::Command;

/// The only point of a short run.
fn point(arguments: &[&str]) -> Point {
    assert!(rustix::process::geteuid().is_root(), "this mounts file systems and captures: run it as root");
    let place = tempfile::tempdir().unwrap();
    let output = Command::new(cargo_bin("perfloss"))
        .arg("run")
        .args(arguments)
        .args(["-s", "1", "--rounds", "1", "--retries", "0", "--quiet", "--output", "result"])
        .current_dir(place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
    let mut result: RunResult = result::read(&place.path().join("result")).unwrap();
    let point = result.points.remove(0);
    assert!(point.valid, "{:?}", point.invalid_because);
    let shares: f64 = point.roots.iter().filter_map(|r| r.share_of_idle).sum();
    assert!(shares <= 1.0 + 1e-6, "{shares}");
    point
}

fn root<'a>(point: &'a Point, class: &str, object: &str) -> &'a Root {
    let named =
        |r: &&Root| r.lock.class == class && r.lock.object.as_deref().is_some_and(|o| o.contains(object));
    let found = point.roots.iter().find(named);
    found.unwrap_or_else(|| panic!("no {class} of {object} in {:#?}", point.roots))
}

fn has_path(root: &Root, function: &str) -> bool {
    root.paths.iter().any(|p| p.stack.iter().any(|f| f.starts_with(function)))
}

#[test]
fn two_tasks_in_one_directory_of_xfs_wait_for_the_agi_and_others_for_them() {
    let point = point(&["create_unlink", "-t", "2", "--on", "xfs"]);
    let agi = root(&point, "xfs_buf.b_sema", "AGI of AG ");
    assert_eq!(agi.lock.kind, RootKind::Semaphore);
    assert!(agi.lock.object.as_deref().unwrap().contains(" on loop"));
    for function in ["xfs_dialloc", "xfs_iunlink", "xfs_difree"] {
        assert!(has_path(agi, function), "no {function} in {:#?}", agi.paths);
    }
    let held = |h: &result::Holder| h.comm == "kworker xfs_inodegc_worker" && h.of_workload == Some(false);
    assert!(agi.holders.iter().any(held), "{:#?}", agi.holders);
    assert!(agi.split.as_ref().unwrap().hand_off > 0.0);
    let through = agi.waits_through.iter().find(|w| w.class == "inode.i_rwsem");
    assert!(through.is_some_and(|w| w.object.as_deref().unwrap().starts_with("directory ")), "{agi:#?}");
    // the directory's lock may have waits of its own, but fewer
    let directory = point.roots.iter().find(|r| r.lock.class == "inode.i_rwsem");
    let idle = |r: &Root| r.share_of_idle.unwrap_or(0.0);
    assert!(directory.is_none_or(|d| idle(d) <= idle(agi)), "{:#?}", point.roots);
}

#[test]
fn two_tasks_in_one_directory_of_btrfs_wait_for_tree_blocks() {
    let point = point(&["create_unlink", "-t", "2", "--on", "btrfs"]);
    let tree = root(&point, "extent_buffer.lock", "tree block");
    assert!(has_path(tree, "btrfs_"), "{:#?}", tree.paths);
}

#[test]
fn compilers_on_xfs_wait_for_each_other_behind_runnable_work() {
    let point = point(&["cc", "-t", "24", "--on", "xfs"]);
    // there is always another compiler to run: what is waited for locks costs no idle time
    let locks = point.roots.iter().filter(|r| r.lock.kind.is_lock());
    let idle: f64 = locks.clone().filter_map(|r| r.idle_us_per_op).sum();
    let total = point.budget_us_per_op.as_ref().and_then(|b| b.usable_total()).unwrap();
    assert!(idle < 0.05 * total, "{idle} of {total}: {:#?}", point.roots);
    for lock in locks.filter(|r| r.wait_us_per_op.is_some_and(|w| w > 0.01 * total)) {
        assert!(lock.latent || lock.idle_us_per_op.is_some_and(|idle| idle > 0.0), "{lock:#?}");
    }
}

#[test]
fn nothing_is_lost_to_locks_on_tmpfs() {
    let point = point(&["create_unlink", "-t", "2", "--on", "tmpfs"]);
    let budget = point.budget_us_per_op.as_ref().unwrap();
    let idle: f64 =
        point.roots.iter().filter(|r| r.lock.kind.is_lock()).filter_map(|r| r.idle_us_per_op).sum();
    assert!(idle < 0.05 * budget.usable_total().unwrap(), "{:#?}", point.roots);
    // what it loses it spins away, which is sampled, and named by who wants the lock
    assert!(budget.spin.is_some());
    assert!(budget.spin == Some(0.0) || !budget.spin_by.is_empty());
    assert!(!budget.system_by.is_empty() && !budget.system_by_group.is_empty());
}
