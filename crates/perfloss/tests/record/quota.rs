//! Control groups with CPU quotas. The tasks run until the quota has held them back, so that it does not matter what else is idle or busy.

use crate::place::{Place, shares_add_up, text};
use result::{Point, Root, RootKind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

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
