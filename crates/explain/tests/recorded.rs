//! Traces of real runs (Linux 6.18, 2 CPUs, beside other load), with their known answers. The names of strangers are taken out.
//! They were recorded by `perfloss record --trace`, and can be looked at with `cargo run -p explain --example explain FILE`.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use explain::{Explanation, Root, RootKind, Scope, explain};
use trace::{LockKind, Reader};

fn explained(name: &str) -> Explanation {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.trace"));
    let file = File::open(path).unwrap();
    let explanation = explain(&mut Reader::new(BufReader::new(file)).unwrap(), &Scope::default()).unwrap();
    adds_up(&explanation);
    explanation
}

/// What holds for every explanation: shares of the idle time, parts of the waits, the time of the CPUs.
fn adds_up(e: &Explanation) {
    let shares: f64 = e.roots.iter().map(|r| r.idle_ns).sum();
    let sum = shares + e.serial_ns() + e.nothing_to_run_ns;
    assert!((sum - e.budget.idle_ns).abs() < 1000.0, "{sum} of {}", e.budget.idle_ns);
    let b = &e.budget;
    let cpus = b.idle_ns + (b.scope_ns + b.others_ns) as f64 + b.unknown_ns;
    assert!((cpus - e.capacity_ns()).abs() < 0.002 * e.capacity_ns(), "{cpus} of {}", e.capacity_ns());
    for root in e.roots.iter().filter(|r| matches!(r.kind, RootKind::Lock(_))) {
        assert_eq!(root.split.total_ns(), root.wait_ns, "{} {:?}", root.class, root.object);
    }
    assert_eq!(e.facts.lost_events, 0);
}

fn root<'a>(e: &'a Explanation, class: &str, object: &str) -> &'a Root {
    let found =
        e.roots.iter().find(|r| r.class == class && r.object.as_deref().is_some_and(|o| o.contains(object)));
    found.unwrap_or_else(|| panic!("no root {class} of {object}"))
}

fn has_path(root: &Root, function: &str) -> bool {
    root.paths.iter().any(|p| p.stack.iter().any(|f| f == function))
}

#[test]
fn xfs_in_one_directory_loses_its_idle_time_to_the_agi() {
    let e = explained("xfs_create_unlink");
    let agi = &e.roots[0];
    assert_eq!(agi.kind, RootKind::Lock(LockKind::Semaphore));
    assert_eq!(agi.class, "xfs_buf.b_sema");
    assert!(agi.object.as_deref().unwrap().starts_with("AGI of AG 0 on loop"), "{:?}", agi.object);
    assert!(agi.idle_ns > 0.4 * e.budget.idle_ns);
    // both paths of the workload, and that of the inactivation workers
    assert!(has_path(agi, "xfs_dialloc") && has_path(agi, "xfs_iunlink") && has_path(agi, "xfs_difree"));
    assert_eq!(agi.holders[0].name, "kworker xfs_inodegc_worker");
    assert!(!agi.holders[0].in_scope);
    // it is handed to sleepers, and every holder is known
    assert!(agi.split.hand_off_ns() as f64 > 0.3 * agi.wait_ns as f64);
    assert!((agi.split.unknown_ns as f64) < 0.02 * agi.wait_ns as f64);
    let through = &agi.through[0];
    assert_eq!((through.kind, through.class.as_str()), (RootKind::Lock(LockKind::Rwsem), "inode.i_rwsem"));
    assert!(through.object.as_deref().unwrap().starts_with("directory "));
    assert!(!agi.latent);
}

#[test]
fn compilers_on_xfs_wait_for_the_agi_behind_runnable_work() {
    // 24 compilers on 2 CPUs, 59 ms in which one of them gets the AGI while both CPUs are busy
    let e = explained("xfs_cc");
    assert!(e.budget.idle_ns < 0.01 * e.capacity_ns());
    let agi = root(&e, "xfs_buf.b_sema", "AGI of AG 0 on loop");
    assert!(agi.latent && agi.idle_ns == 0.0);
    assert!(has_path(agi, "xfs_dialloc") && has_path(agi, "xfs_difree"));
    // it was handed to the sleeper at once, which did not get a CPU for 29 ms
    assert!(agi.split.hand_off_cpu_busy_ns as f64 > 0.99 * agi.wait_ns as f64);
    // who has the directory meanwhile makes the others wait
    let through = &agi.through[0];
    assert_eq!(through.class, "inode.i_rwsem");
    assert!(through.wait_ns as f64 > 0.9 * agi.wait_ns as f64);
    let directory = root(&e, "inode.i_rwsem", "directory ");
    assert!(directory.latent && directory.split.unknown_ns == 0);
    assert_eq!(directory.split.holder_blocked_ns, through.wait_ns);
}

#[test]
fn btrfs_waits_for_tree_locks() {
    let e = explained("btrfs_create_unlink");
    let tree = root(&e, "extent_buffer.lock", "tree block");
    assert_eq!(tree.kind, RootKind::Lock(LockKind::Rwsem));
    assert!(tree.idle_ns > 0.3 * e.budget.idle_ns);
    assert!(tree.paths.iter().any(|p| p.stack.iter().any(|f| f.starts_with("btrfs_"))));
}

#[test]
fn threads_that_map_memory_wait_for_their_mmap_lock_which_is_latent_beside_other_load() {
    let e = explained("mmap_lock");
    let lock = root(&e, "mm_struct.mmap_lock", "address space of process");
    assert_eq!(lock.kind, RootKind::Lock(LockKind::Rwsem));
    assert!(lock.latent);
    let others = e.roots.iter().filter(|r| r.object != lock.object).map(|r| r.wait_ns).max().unwrap();
    assert!(lock.wait_ns > 10 * others);
}

#[test]
fn a_chain_of_futexes_ends_at_the_one_whose_holder_sleeps_and_takes_as_long_as_the_program_says() {
    // what the program measured itself, in us over five rounds: a waits for the first, b for the second, which c has
    let (a_us, b_us) = (398_202.0, 448_612.0);
    let within = |ns: u64, us: f64| {
        let off = (ns as f64 / 1e3 - us).abs();
        assert!(off <= (0.02 * us).max(5.0 * 50.0), "{ns} ns, {us} us");
    };
    let e = explained("futex_chain");
    let second = &e.roots[0];
    assert_eq!(second.kind, RootKind::Lock(LockKind::Futex));
    assert!(second.object.as_deref().unwrap().starts_with("futex 0x556a3d9c40e0"));
    within(second.wait_ns, b_us);
    assert_eq!(second.holders[0].name, "c");
    assert!(second.split.holder_blocked_ns as f64 > 0.98 * second.wait_ns as f64);
    assert!(second.idle_ns > 0.85 * e.budget.idle_ns);
    let first =
        second.through.iter().find(|t| t.object.as_deref().is_some_and(|o| o.contains("9c4120"))).unwrap();
    within(first.wait_ns, a_us);
}

#[test]
fn fsync_in_a_loop_is_io() {
    let e = explained("fsync");
    assert_eq!(e.roots[0].kind, RootKind::Io);
    assert!(has_path(&e.roots[0], "submit_bio_wait"));
    let io: f64 = e.roots.iter().filter(|r| r.kind == RootKind::Io).map(|r| r.idle_ns).sum();
    // one task on two CPUs: the rest is what could not run
    assert!(io > 0.8 * (e.budget.idle_ns - e.serial_ns() - e.nothing_to_run_ns));
}

#[test]
fn waits_for_io_end_at_the_device_whose_requests_ended_them() {
    // forty times a block was written and synced; what the program measured of that itself, in us
    let synced_us = 7_097.0;
    let e = explained("fsync_device");
    let on_disk = |class: &str| {
        let root = root(&e, class, "vda");
        assert_eq!(root.kind, RootKind::Io);
        assert_eq!(root.split.total_ns(), root.wait_ns);
        // most of it is the disk at work: the rest is workers, and the way to the CPU
        assert!(root.split.holder_running_ns > root.wait_ns / 2, "{root:?}");
        root.wait_ns
    };
    let waited_us = (on_disk("writes") + on_disk("flushes")) as f64 / 1e3;
    assert!(waited_us > 0.5 * synced_us && waited_us < synced_us, "{waited_us} of {synced_us}");
    assert!(has_path(root(&e, "flushes", "vda"), "submit_bio_wait"));
    // no wait is left without a device
    assert!(
        e.roots.iter().all(|r| r.kind != RootKind::Io || r.object.as_deref() == Some("vda")),
        "{:?}",
        e.roots
    );
}

#[test]
fn the_slow_steps_of_a_build_are_named_by_their_command_lines() {
    let e = explained("make");
    let commands: Vec<&str> = e.serial.iter().map(|s| s.command.as_str()).collect();
    assert!(commands[..2].contains(&"sh ./slow.sh"), "{commands:?}");
    assert!(commands[..2].contains(&"sh ./link.sh prog"), "{commands:?}");
    assert!(e.roots.iter().all(|r| !matches!(r.kind, RootKind::Lock(_)) || r.idle_ns == 0.0));
}
