//! `record` on programs whose waits are known: end to end, on the real kernel. Needs root, as the capture does.

#![allow(clippy::unwrap_used)]

use assert_cmd::cargo::cargo_bin;
use result::{Point, Root, RootKind, RunResult};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A folder for programs and results.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        assert!(rustix::process::geteuid().is_root(), "capturing needs root");
        Place(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a program of `tests/record/`.
    fn program(&self, name: &str) -> String {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record").join(format!("{name}.c"));
        let program = self.file(name);
        let status =
            Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&program).arg(source).status().unwrap();
        assert!(status.success());
        program.display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(cargo_bin("perfloss"));
        command
            .args(["record", "--output"])
            .arg(self.file("result"))
            .args(arguments)
            .current_dir(self.0.path());
        command
    }

    /// Records, and gives the output and the result.
    fn record(&self, arguments: &[&str]) -> (Output, RunResult) {
        let output = self.command(arguments).output().unwrap();
        let folder = self.file("result");
        let result = result::read(&folder).unwrap_or_else(|e| panic!("{e}\n{}", text(&output.stderr)));
        std::fs::remove_dir_all(folder).unwrap();
        (output, result)
    }

    fn point(&self, arguments: &[&str]) -> (Output, Point) {
        let (output, mut result) = self.record(arguments);
        assert!(result.complete);
        (output, result.points.remove(0))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Idle CPU-seconds charged to roots of that kind.
fn idle_s(point: &Point, kind: RootKind) -> f64 {
    point.roots.iter().filter(|r| r.lock.kind == kind).filter_map(|r| r.idle_cpu_s).sum()
}

/// Idle CPU-seconds charged to locks.
fn idle_in_locks_s(point: &Point) -> f64 {
    point.roots.iter().filter(|r| r.lock.kind.is_lock()).filter_map(|r| r.idle_cpu_s).sum()
}

fn shares_add_up(point: &Point) {
    let shares: f64 = point.roots.iter().filter_map(|r| r.share_of_idle).sum();
    assert!(shares <= 1.0 + 1e-6, "{shares}");
    let idle = point.recorded.as_ref().unwrap().idle_s.unwrap();
    // what is below the threshold of the list is not in it
    assert!(idle < 0.001 || shares > 0.9, "{shares} of {idle} s: {:?}", point.roots);
}

fn lock<'a>(point: &'a Point, class: &str) -> &'a Root {
    let found = point.roots.iter().find(|r| r.lock.class == class);
    found.unwrap_or_else(|| panic!("no {class} in {:#?}", point.roots))
}

#[test]
fn the_exit_status_of_the_command_is_passed_through() {
    let place = Place::new();
    let (output, result) = place.record(&["-q", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    // nothing of ours is between what the command says
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("out\n", "err\n"));
    assert_eq!(result.points[0].recorded.as_ref().unwrap().exit_status, Some(7));
}

#[test]
fn a_signal_that_ends_the_command_ends_us_too() {
    let place = Place::new();
    let (output, _) = place.record(&["-q", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(output.status.signal(), Some(9));
}

#[test]
fn a_signal_to_us_is_passed_to_the_command() {
    let place = Place::new();
    let script = "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = place.command(&["-q", "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(&line, b"ready\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_command_that_cannot_run_is_bad_usage_and_one_line() {
    let place = Place::new();
    let output = place.command(&["--", "/nowhere/nothing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.lines().count() == 1 && said.contains("cannot run"), "{said}");
}

#[test]
fn what_the_command_did_before_it_ran_is_not_its_own() {
    let place = Place::new();
    let (_, point) = place.point(&["-q", "--", "false"]);
    // it was held until the capture had begun
    assert!(idle_s(&point, RootKind::Pipe) == 0.0, "{:#?}", point.roots);
}

#[test]
fn nothing_to_record_is_bad_usage() {
    let place = Place::new();
    assert_eq!(place.command(&[]).output().unwrap().status.code(), Some(2));
    assert_eq!(place.command(&["-p", "1", "--", "true"]).output().unwrap().status.code(), Some(2));
    assert_eq!(place.command(&["-p", "4000000"]).output().unwrap().status.code(), Some(2));
}

#[test]
fn an_interrupt_ends_a_recording_of_others_and_keeps_it() {
    let place = Place::new();
    let mut child = place.command(&["-a", "-q"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert!(matches!(status.code(), Some(0 | 3)), "{status}");
    let result = result::read(&place.file("result")).unwrap();
    assert!(result.points[0].recorded.as_ref().unwrap().wall_s > 0.3);
    assert!(place.file("result").join("record.trace").is_file());
}

#[test]
fn sleepers_lose_nothing() {
    let place = Place::new();
    let (_, point) = place.point(&["-q", "--", "sh", "-c", "sleep 0.5 & sleep 0.5; wait"]);
    shares_add_up(&point);
    assert!(idle_in_locks_s(&point) < 0.005, "{:#?}", point.roots);
    assert!(idle_s(&point, RootKind::Pipe) < 0.005, "{:#?}", point.roots);
}

#[test]
fn hogs_wait_for_cpus_and_not_for_locks() {
    let place = Place::new();
    let hogs = "for i in 1 2 3 4 5 6 7 8; do timeout 1 sh -c 'while :; do :; done' & done; wait";
    let (_, point) = place.point(&["-q", "--", "sh", "-c", hogs]);
    shares_add_up(&point);
    let seen = point.recorded.as_ref().unwrap();
    assert!(seen.idle_s.unwrap() < 0.2 * seen.capacity_s, "{seen:?}");
    assert!(idle_in_locks_s(&point) < 0.02, "{:#?}", point.roots);
}

#[test]
fn a_chain_of_futexes_is_followed_to_the_one_that_is_held_asleep() {
    let place = Place::new();
    let program = place.program("chain");
    let (output, point) = place.point(&["-q", "--", &program]);
    shares_add_up(&point);
    // the program's own stamps: addresses of the locks, and microseconds that a and b waited
    let said = text(&output.stdout);
    let words: Vec<&str> = said.split_whitespace().collect();
    let (first, second) = (words[0], words[1]);
    let (a_us, b_us): (f64, f64) = (words[2].parse().unwrap(), words[3].parse().unwrap());
    let within = |seconds: f64, us: f64| {
        let off = (seconds * 1e6 - us).abs();
        assert!(off <= (0.02 * us).max(5.0 * 50.0), "{seconds} s, {us} us");
    };
    let of = |object: &Option<String>, address: &str| {
        object.as_deref().is_some_and(|o| o.contains(&format!("{address} ")))
    };
    let root = point.roots.iter().find(|r| of(&r.lock.object, second)).unwrap();
    assert_eq!(root.lock.kind, RootKind::Futex);
    within(root.wait_s.unwrap(), b_us);
    assert_eq!(root.holders[0].comm, "c");
    assert!(root.split.as_ref().unwrap().holder_blocked > 0.9);
    let through = root.waits_through.iter().find(|t| of(&t.object, first));
    within(through.unwrap().wait_s.unwrap(), a_us);
}

#[test]
fn threads_that_map_memory_wait_for_their_mmap_lock() {
    let place = Place::new();
    let program = place.program("map");
    let (_, point) = place.point(&["-q", "--", &program]);
    shares_add_up(&point);
    let root = lock(&point, "mm_struct.mmap_lock");
    assert!(root.lock.object.as_deref().unwrap().contains("address space of process"));
    assert!(root.wait_s.unwrap() > 0.2, "{root:?}");
}

#[test]
fn the_slow_steps_of_a_build_are_named() {
    let place = Place::new();
    let slow = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; touch $1\n";
    std::fs::write(place.file("slow.sh"), slow).unwrap();
    std::fs::write(place.file("link.sh"), slow).unwrap();
    let makefile = "prog: a.o b.o slow.o\n\tsh ./link.sh $@\n%.o:\n\ttouch $@\nslow.o:\n\tsh ./slow.sh $@\n";
    std::fs::write(place.file("Makefile"), makefile).unwrap();
    let (output, point) = place.point(&["-q", "--", "make", "-j2"]);
    assert!(output.status.success());
    shares_add_up(&point);
    let serial: Vec<&str> = point
        .roots
        .iter()
        .filter(|r| r.lock.kind == RootKind::Serial)
        .map(|r| r.lock.class.as_str())
        .collect();
    let idle = point.recorded.as_ref().unwrap().idle_s.unwrap();
    // beside other load nothing may have been idle meanwhile
    if idle > 0.1 {
        assert!(
            serial.contains(&"sh ./slow.sh slow.o") || serial.contains(&"sh ./link.sh prog"),
            "{serial:?}"
        );
    }
    assert!(idle_in_locks_s(&point) < 0.01, "{:#?}", point.roots);
}

/// A control group with a quota, which goes away with the test.
struct Group {
    folder: PathBuf,
    path: String,
}

impl Group {
    /// Of each 100 ms its tasks may run 5.
    fn new(name: &str) -> Group {
        let path = format!("/perfloss-test-{}-{name}", std::process::id());
        // version 1 has the controller in a mount of its own, version 2 everything in one
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let (mount, file, quota) = match v1.join("cgroup.procs").exists() {
            true => (v1, "cpu.cfs_quota_us", "5000"),
            false => (Path::new("/sys/fs/cgroup"), "cpu.max", "5000 100000"),
        };
        let folder = mount.join(path.trim_start_matches('/'));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(file), quota).unwrap();
        Group { folder, path }
    }

    /// A script that enters the group and runs until the quota has held it back five times.
    fn script(&self) -> String {
        let folder = self.folder.display();
        format!(
            "echo $$ > {folder}/cgroup.procs; n=0; while [ $n -lt 5 ]; do \
             while read -r key value; do [ $key = nr_throttled ] && n=$value; done < {folder}/cpu.stat; done; true"
        )
    }

    /// For how long the quota held tasks back, seconds, added over CPUs.
    fn throttled_s(&self) -> f64 {
        let stat = std::fs::read_to_string(self.folder.join("cpu.stat")).unwrap();
        let value = |name: &str| -> Option<f64> {
            stat.lines().find_map(|l| l.strip_prefix(name)?.trim().parse().ok())
        };
        value("throttled_time ").map_or_else(|| value("throttled_usec ").unwrap() / 1e6, |ns| ns / 1e9)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The root that a quota is, which says for how long tasks were held back even where nothing was idle meanwhile.
fn throttled<'a>(point: &'a Point, group: &Group) -> &'a Root {
    let named = |r: &&Root| r.lock.object.as_deref() == Some(&*format!("control group {}", group.path));
    let root = point.roots.iter().filter(|r| r.lock.kind == RootKind::Throttled).find(named);
    root.unwrap_or_else(|| panic!("{:#?}", point.roots))
}

#[test]
fn a_command_that_a_quota_holds_back_is_throttled() {
    let place = Place::new();
    let group = Group::new("command");
    let (output, point) = place.point(&["--", "sh", "-c", &group.script()]);
    assert!(output.status.success());
    shares_add_up(&point);
    let (wait, counted) = (throttled(&point, &group).wait_s.unwrap(), group.throttled_s());
    // the one task of the group: what it waited is what the kernel counted, and until it ran again
    assert!(wait > 0.5 * counted && wait < point.recorded.as_ref().unwrap().wall_s, "{wait} s, {counted} s");
    let said = text(&output.stderr);
    assert!(said.contains("throttled, control group") && said.contains("cpu.stat"), "{said}");
}

#[test]
fn a_control_group_that_its_quota_holds_back_is_throttled() {
    let place = Place::new();
    let group = Group::new("group");
    let procs = group.folder.join("cgroup.procs");
    let script = format!("echo $$ > {}; while :; do :; done", procs.display());
    let mut hog = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    while std::fs::read_to_string(&procs).unwrap().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (_, point) = place.point(&["-q", "--cgroup", &group.path, "-d", "2"]);
    hog.kill().unwrap();
    hog.wait().unwrap();
    shares_add_up(&point);
    assert!(throttled(&point, &group).wait_s.unwrap() > 0.0);
}
