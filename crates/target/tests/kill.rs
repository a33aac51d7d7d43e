//! SIGKILL at random moments: nothing outlives the process.

mod common;

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Job, loops_of_size, until};
use target::Settings;

const KILLS: u32 = 12;

/// A generator of our own, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

/// A size that no other image on this machine is likely to have.
fn own_size(number: u64) -> u64 {
    (400 + u64::from(std::process::id()) % 200 * 8 + number) << 20
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()
}

/// Kills jobs of a target at moments from its start to its end, and looks for what is left.
fn nothing_is_left(target: &str, number: u64, medium: Option<&std::path::Path>) {
    let size = own_size(number);
    let settings = Settings { medium: medium.map(Into::into), size: Some(size), ..Settings::default() };
    let script = "i=0; while [ $i -lt 2000 ]; do echo x > /tmp/$i; i=$((i+1)); done; echo done; sleep 60";
    let before = mounts();
    assert!(loops_of_size(size).is_empty());

    // How long it takes until the script runs decides what a random moment is.
    let start = Instant::now();
    let whole = Job::with(target, "true", settings.clone());
    whole.succeed();
    let duration = start.elapsed() + Duration::from_millis(20);
    whole.cleanup.run().expect("clean up");
    until(&format!("{target}: the loop device is gone after a clean end"), || loops_of_size(size).is_empty());

    let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ number);
    let mut seen_loop = false;
    for kill in 0..KILLS {
        let job = Job::with(target, script, settings.clone());
        let child = job.start();
        let delay =
            Duration::from_micros(random.below(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)));
        sleep(delay);
        seen_loop |= !loops_of_size(size).is_empty();
        common::kill(child);
        job.wait_until_gone();
        until(&format!("{target}: loop devices are gone (kill {kill} after {delay:?})"), || {
            loops_of_size(size).is_empty()
        });
        for path in job.cleanup.paths() {
            if medium.is_some() {
                assert!(!path.exists(), "an image is left");
            }
        }
        job.cleanup.run().expect("clean up");
        assert!(job.cleanup.paths().all(|path| !path.exists()));
        assert_eq!(mounts(), before, "{target}: a mount reached the machine");
    }
    let on_loop = whole.spec.file_system().is_some_and(|name| name != "tmpfs");
    assert_eq!(seen_loop, on_loop, "{target}: the kills came at moments that prove nothing");
}

#[test]
fn nothing_is_left_of_a_killed_xfs() {
    nothing_is_left("xfs", 0, None);
}

#[test]
fn nothing_is_left_of_a_killed_ext4() {
    nothing_is_left("ext4", 1, None);
}

#[test]
fn nothing_is_left_of_a_killed_btrfs() {
    nothing_is_left("btrfs", 2, None);
}

#[test]
fn nothing_is_left_of_a_killed_tmpfs() {
    nothing_is_left("tmpfs", 3, None);
}

#[test]
fn nothing_is_left_of_a_killed_overlay() {
    nothing_is_left("overlay:ext4", 4, None);
}

#[test]
fn nothing_is_left_of_a_killed_image_on_a_disk() {
    let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
    nothing_is_left("ext4", 5, Some(disk.path()));
    assert_eq!(fs::read_dir(disk.path()).expect("the directory").count(), 0);
}

#[test]
fn only_the_planned_directory_is_left_of_a_killed_directory_target() {
    let home = tempfile::tempdir().expect("a directory");
    nothing_is_left(&home.path().display().to_string(), 6, None);
    assert_eq!(fs::read_dir(home.path()).expect("the directory").count(), 0);
}
