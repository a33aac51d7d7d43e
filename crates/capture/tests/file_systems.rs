//! Locks and devices of file systems, named, on file systems made for the test.

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::*;
use trace::{Kind, LockKind, Trace};

/// A file system over memory, in a mount namespace of its own, that ends with its process, and a load of `bench/capture/loads.c` on it.
struct Storm(Child);

impl Storm {
    /// Prepares everything up to the mount (or before it), and waits.
    fn prepare(dir: &Path, fs: &str, mounted: bool, load: &str) -> Storm {
        let loads = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/capture/loads.c");
        let script = format!(
            // whatever happens, it unmounts: a loop device over a file in a namespace that ends abruptly can stay for ever
            r#"set -e
            trap '' PIPE
            trap 'umount -q {dir}/memory/mnt; umount -q {dir}/memory' EXIT
            gcc -O2 -o {dir}/loads {loads}
            mount -t tmpfs tmpfs {dir}/memory
            truncate -s 1G {dir}/memory/image
            mkfs.{fs} -q {dir}/memory/image >/dev/null
            mkdir {dir}/memory/mnt
            {before}
            echo ready
            read go
            {after}
            {dir}/loads {load} {dir}/memory/mnt
            findmnt -n -o SOURCE {dir}/memory/mnt"#,
            dir = dir.display(),
            loads = loads.display(),
            before = if mounted { mount(dir) } else { String::new() },
            after = if mounted { String::new() } else { mount(dir) },
        );
        std::fs::create_dir(dir.join("memory")).expect("a directory");
        let mut child = Command::new("unshare")
            .args(["-m", "--propagation", "private", "bash", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare (util-linux)");
        let mut line = String::new();
        // unbuffered, or it would take more than the line
        let mut byte = [0];
        while !line.ends_with('\n')
            && child.stdout.as_mut().expect("piped").read(&mut byte).expect("text") > 0
        {
            line.push(char::from(byte[0]));
        }
        assert_eq!(line, "ready\n", "mkfs.{fs} and gcc are needed");
        Storm(child)
    }

    /// Runs the load; the name of the device.
    fn run(mut self) -> String {
        self.0.stdin.take().expect("piped").write_all(b"go\n").expect("it waits");
        let output = self.0.wait_with_output().expect("our child");
        assert!(output.status.success());
        let output = String::from_utf8(output.stdout).expect("text");
        output.lines().last().expect("findmnt").trim_start_matches("/dev/").to_owned()
    }
}

fn mount(dir: &Path) -> String {
    format!("mount -o loop {0}/memory/image {0}/memory/mnt", dir.display())
}

/// Kind, class and object of the locks that were waited for.
fn waited_for(trace: &Trace) -> Vec<(LockKind, String, String)> {
    let text = |s: Option<trace::StrId>| s.map_or(String::new(), |s| trace.tables().str(s).to_owned());
    let mut locks: Vec<_> = trace
        .events()
        .iter()
        .filter_map(|e| match e.kind {
            Kind::ContentionBegin { lock, .. } => trace.tables().lock(lock),
            _ => None,
        })
        .map(|l| (l.kind, text(l.class), text(l.object)))
        .collect();
    locks.sort();
    locks.dedup();
    locks
}

fn storm(fs: &str, mounted: bool) -> Trace {
    let dir = tempfile::tempdir().expect("a directory");
    let storm = Storm::prepare(dir.path(), fs, mounted, "create_unlink 0.7 2");
    let (trace, _) = captured(options(), || storm.run());
    trace
}

fn assert_the_reported_case(trace: &Trace) {
    let locks = waited_for(trace);
    let agi = |l: &&(LockKind, String, String)| {
        l.0 == LockKind::Semaphore
            && l.1 == "xfs_buf.b_sema"
            && l.2.starts_with("AGI of AG ")
            && l.2.contains(" on loop")
    };
    assert!(locks.iter().any(|l| agi(&l)), "{locks:?}");
    let directory = |l: &&(LockKind, String, String)| {
        l.0 == LockKind::Rwsem
            && l.1 == "inode.i_rwsem"
            && l.2.starts_with("directory ")
            && l.2.contains(" (/shared) on loop")
    };
    assert!(locks.iter().any(|l| directory(&l)), "{locks:?}");
    // kernel workers hold the AGI, too: what they run is known
    let inactivation = trace.events().iter().any(|e| match e.kind {
        Kind::WorkStart { function, .. } => trace.tables().symbol_name(function).starts_with("xfs_inodegc"),
        _ => false,
    });
    assert!(inactivation);
}

#[test]
fn the_agi_of_a_mounted_xfs_is_named_with_its_group_and_device() {
    let trace = storm("xfs", true);
    assert_the_reported_case(&trace);
    let semaphore = |lock| trace.tables().lock(lock).is_some_and(|l| l.kind == LockKind::Semaphore);
    let taken =
        trace.events().iter().filter(|e| matches!(e.kind, Kind::Acquired { lock, .. } if semaphore(lock)));
    let released =
        trace.events().iter().filter(|e| matches!(e.kind, Kind::Released { lock, .. } if semaphore(lock)));
    assert!(taken.count() > 0 && released.count() > 0, "buffer locks are seen taken and released");
}

#[test]
fn the_same_holds_for_an_xfs_that_is_mounted_while_the_capture_runs() {
    assert_the_reported_case(&storm("xfs", false));
}

#[test]
fn directories_of_ext4_and_btrfs_are_named() {
    for fs in ["ext4", "btrfs"] {
        let locks = waited_for(&storm(fs, true));
        // the root, in which the tasks make their directory, or that directory
        let directory = locks.iter().any(|l| {
            l.1 == "inode.i_rwsem"
                && l.2.starts_with("directory ")
                && (l.2.contains(" (/) on loop") || l.2.contains(" (/shared) on loop"))
        });
        assert!(directory, "{fs}: {locks:?}");
    }
}

/// The devices that the tasks of that name are said to have waited for, by how often.
fn devices_of(trace: &Trace, name: &str) -> BTreeMap<String, usize> {
    let mut devices = BTreeMap::new();
    let tables = trace.tables();
    for event in trace.events() {
        let Kind::IoDone { task, device, issued, done } = event.kind else { continue };
        assert!(issued.is_none_or(|at| at <= done) && done <= event.time, "{event:?}");
        if tables.task_name_at(task, event.time) == name {
            let lock = tables.lock(device).expect("defined");
            assert_eq!(lock.kind, LockKind::Io);
            assert!(
                lock.class
                    .is_some_and(|c| ["reads", "writes", "flushes", "discards"].contains(&tables.str(c)))
            );
            *devices.entry(tables.str(lock.object.expect("named")).to_owned()).or_default() += 1;
        }
    }
    devices
}

#[test]
fn who_waits_for_a_device_waits_for_that_device_directly_or_through_workers() {
    // the completions of xfs and btrfs wake through work items
    for fs in ["ext4", "xfs", "btrfs"] {
        let dir = tempfile::tempdir().expect("a directory");
        let storm = Storm::prepare(dir.path(), fs, true, "fsync 0.4 1");
        let (trace, device) = captured(options(), || storm.run());
        assert!(device.starts_with("loop"), "{device}");
        let devices = devices_of(&trace, "loads");
        // the load reads nothing but what is in memory, and waits for no other device
        assert_eq!(devices.keys().collect::<Vec<_>>(), [&device], "{fs}: {devices:?}");
        assert!(devices[&device] > 10, "{fs}: {devices:?}");
    }
}

#[test]
fn nobody_waits_for_a_device_who_only_waits_for_others() {
    let (trace, ()) = captured(options(), || {
        let (mut a, mut b) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let echo = std::thread::Builder::new().name("answers".into()).spawn(move || {
            let mut byte = [0];
            while b.read(&mut byte).expect("readable") == 1 {
                b.write_all(&byte).expect("writable");
            }
        });
        let echo = echo.expect("a thread");
        for _ in 0..1000 {
            a.write_all(&[1]).expect("writable");
            a.read_exact(&mut [0]).expect("readable");
        }
        drop(a);
        echo.join().expect("ends");
    });
    assert!(devices_of(&trace, "answers").is_empty());
}
