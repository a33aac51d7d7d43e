//! What is said about a target before anything runs.

#![allow(clippy::unwrap_used, reason = "a test helper fails by panicking")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::{Job, until};
use target::{Caps, Error, ErrorKind, Settings, Spec, available};

const NOBODY: Caps = Caps { sys_admin: false, initial_user_namespace: true };

fn check(target: &str, caps: Caps, settings: &Settings) -> Result<(), Error> {
    target.parse::<Spec>().unwrap().check(caps, settings)
}

fn refused(target: &str, caps: Caps) -> String {
    let error = check(target, caps, &Settings::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotAllowed);
    error.to_string()
}

#[test]
fn what_this_machine_has_is_possible_with_root() {
    let all = Caps { sys_admin: true, initial_user_namespace: true };
    for target in ["xfs", "ext4", "btrfs", "tmpfs", "overlay:xfs", "/tmp", "overlay:/tmp"] {
        check(target, all, &Settings::default()).unwrap();
    }
}

#[test]
fn without_root_a_line_points_to_directories() {
    let line = refused("xfs", NOBODY);
    assert!(
        line.starts_with("xfs needs CAP_SYS_ADMIN: run as root, or give an existing directory"),
        "{line}"
    );
    assert!(refused("overlay:/tmp", NOBODY).contains("CAP_SYS_ADMIN"));
    check("/tmp", NOBODY, &Settings::default()).unwrap();
    let container = Caps { sys_admin: true, initial_user_namespace: false };
    assert!(refused("ext4", container).contains("outside of any user namespace"));
    check("tmpfs", container, &Settings::default()).unwrap();
}

#[test]
fn a_file_system_that_the_kernel_lacks_or_no_tool_makes_is_named() {
    for fs in available(Caps::here()) {
        match fs.trouble {
            None => {}
            Some(Error::NoKernelSupport { fs: name }) => {
                let kernel = fs::read_to_string("/proc/filesystems").unwrap();
                assert!(!kernel.contains(&name));
            }
            Some(Error::ToolMissing { tool, package }) => {
                assert!(!Path::new("/usr/sbin").join(&tool).exists());
                assert!(!package.is_empty());
            }
            Some(other) => panic!("{}: {other}", fs.name),
        }
    }
    let usable: Vec<String> =
        available(Caps::here()).into_iter().filter(|fs| fs.trouble.is_none()).map(|fs| fs.name).collect();
    for name in ["xfs", "ext4", "btrfs", "tmpfs", "overlay:TARGET", "/some/dir"] {
        assert!(usable.iter().any(|usable| usable == name), "{name} should be usable: {usable:?}");
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_named_with_the_reason() {
    let caps = Caps::here();
    assert_eq!(refused("/no/such", caps), "directory /no/such: it does not exist");
    assert_eq!(refused("/etc/passwd", caps), "directory /etc/passwd: it is not a directory");
    assert!(refused("\"/no/such\nname\"", caps).starts_with(r#"directory "/no/such\nname""#));
    let line = check("/proc", caps, &Settings::default()).unwrap_err().to_string();
    assert!(line.starts_with("directory /proc: "), "{line}");
}

#[test]
fn a_read_only_directory_and_a_full_one_are_seen_by_writing() {
    // The checks run in the namespaces of a job, with a read-only and with a full file system at hand.
    let script = r#"
        mkdir /tmp/ro /tmp/full
        mount -t tmpfs -o ro none /tmp/ro
        mount -t tmpfs -o size=1M none /tmp/full
        echo --
        for dir in /tmp/ro /tmp/full; do "$PROBE" check "$dir"; done
        umount /tmp/ro /tmp/full"#;
    let (_, said) = Job::new("tmpfs", script).succeed();
    let lines: Vec<&str> = said.lines().skip(1).collect();
    assert_eq!(lines[0], "directory /tmp/ro: it is on a read-only file system");
    assert!(lines[1].starts_with("a run needs 64 MiB and /tmp/full has 1 MiB free"), "{said}");
}

/// A loop device that stands for a disk of the machine; it is detached at the end.
struct Disk {
    path: String,
    _image: tempfile::NamedTempFile,
}

impl Disk {
    fn new() -> Self {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(64 << 20).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(image.path()).output().unwrap();
        let path = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        assert!(path.starts_with("/dev/loop"), "{}", String::from_utf8_lossy(&output.stderr));
        Self { path, _image: image }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        Command::new("losetup").args(["--detach", &self.path]).status().ok();
    }
}

#[test]
fn a_block_device_is_formatted_only_when_that_was_said_and_it_holds_nothing() {
    let disk = Disk::new();
    let target = format!("ext4:device={}", disk.path);
    let allow = Settings { allow_format: true, ..Settings::default() };
    let force = Settings { allow_format: true, force_format: true, ..Settings::default() };
    let caps = Caps::here();

    let line = check(&disk.path, caps, &allow).unwrap_err().to_string();
    assert!(
        line.ends_with(&format!("name the file system to make on it, as in xfs:device={}", disk.path)),
        "{line}"
    );
    let line = check(&target, caps, &Settings::default()).unwrap_err().to_string();
    assert!(line.contains("all its contents would be lost: say --allow-format"), "{line}");
    assert!(Job::new(&target, "true").fail().contains("--allow-format"));

    check(&target, caps, &allow).unwrap();
    let (facts, _) = Job::with(&target, "echo x > /tmp/x", allow.clone()).succeed();
    assert_eq!(facts.device, disk.path);
    assert_eq!(facts.medium, Some(format!("device {}", disk.path)));
    assert_eq!(facts.image_size, Some(64 << 20));

    // It was left clean.
    let fsck = Command::new("e2fsck").args(["-f", "-n", &disk.path]).output().unwrap();
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
    let state = Command::new("dumpe2fs").args(["-h", &disk.path]).output().unwrap();
    let state = String::from_utf8_lossy(&state.stdout).into_owned();
    assert!(
        state.lines().any(|line| line.starts_with("Filesystem state:") && line.ends_with("clean")),
        "{state}"
    );
    assert!(!state.contains("needs_recovery"), "{state}");

    // Now it holds an ext4.
    let line = check(&target, caps, &allow).unwrap_err().to_string();
    assert!(line.contains("it holds ext4: say --force-format"), "{line}");
    assert!(Job::with(&target, "true", allow).fail().contains("it holds ext4"));
    Job::with(&target, "true", force.clone()).succeed();

    // While it is mounted anywhere, even in another namespace, force does not help.
    let running = Job::with(&target, "sleep 60", force.clone()).start();
    until("the device is mounted", || {
        check(&target, caps, &force).is_err_and(|error| error.to_string().contains("in use"))
    });
    common::kill(running);
    until("the device is free again", || check(&target, caps, &force).is_ok());
}

#[test]
fn without_privileges_a_directory_works_and_nothing_is_left() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let probe = home.path().join("probe");
    fs::copy(common::probe(), &probe).unwrap();
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::set_permissions(&work, fs::Permissions::from_mode(0o777)).unwrap();
    let nobody = |arguments: &[&str]| {
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&probe)
            .args(arguments)
            .env("TMPDIR", home.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let said = nobody(&["plain", work.to_str().unwrap()]);
    let paths: Vec<&Path> =
        said.lines().map(|line| Path::new(line.strip_suffix(" true").expect("it was a directory"))).collect();
    assert_eq!(paths.len(), 3);
    assert!(paths[1].starts_with(&work));
    assert!(paths.iter().all(|path| path.starts_with(home.path()) && !path.exists()), "{said}");
    assert!(nobody(&["check", "xfs"]).contains("xfs needs CAP_SYS_ADMIN"));
    assert!(nobody(&["check", "/root/x"]).contains("permission denied"));
    assert!(nobody(&["check", "/etc"]).contains("permission denied: give one that you may write to"));
    assert_eq!(nobody(&["check", work.to_str().unwrap()]), "possible\n");
}
