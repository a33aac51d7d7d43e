//! Targets made for real, as root. Each is in namespaces of its own; nothing may be left behind.

#![allow(clippy::unwrap_used, reason = "a test helper fails by panicking")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use common::Job;
use target::{Caps, Cleanup, ErrorKind, Scratch, Settings, Spec};

const WRITE: &str = "echo hello > /tmp/file; cat /tmp/file; stat -c %a /tmp; stat -f -c %T /tmp";

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn each_file_system_is_made_on_tmp_and_can_be_written() {
    for name in ["xfs", "ext4", "ext3", "ext2", "btrfs", "tmpfs"] {
        let (facts, said) = Job::new(name, WRITE).succeed();
        assert_eq!(facts.fs_type, name);
        assert_eq!(lines(&said)[..2], ["hello", "1777"], "{name}");
        assert_eq!(facts.medium.as_deref(), Some("memory"));
        assert_eq!(facts.image_size, Some(target::DEFAULT_SIZE));
        let formatted = name != "tmpfs";
        assert_eq!(facts.mkfs.is_some(), formatted);
        assert_eq!(facts.mkfs_version.is_some(), formatted);
        assert_eq!(facts.device.starts_with("/dev/loop"), formatted, "{}", facts.device);
    }
}

#[test]
fn options_of_mkfs_take_effect() {
    let (facts, said) = Job::new("xfs:agcount=13+inode-size=1k", "xfs_info /tmp").succeed();
    assert!(said.contains("agcount=13,"), "{said}");
    assert!(said.contains("isize=1024"), "{said}");
    assert_eq!(facts.geometry["agcount"], "13");
    assert_eq!(facts.geometry["inode-size"], "1024");

    let dump = "dumpe2fs -h $(findmnt -n -o SOURCE -T /tmp) 2>/dev/null | grep features";
    let (facts, said) = Job::new("ext4:journal=off+fast-commit=off", dump).succeed();
    assert!(said.contains("extent") && !said.contains("has_journal"), "{said}");
    assert_eq!(facts.geometry["journal"], "off");
    let (facts, said) = Job::new("ext4", dump).succeed();
    assert!(said.contains("has_journal"), "{said}");
    assert_eq!(facts.geometry["journal"], "on");

    let (facts, _) = Job::new("btrfs:nodesize=64k+metadata=single", "true").succeed();
    assert_eq!(facts.geometry["nodesize"], "65536");
    assert!(facts.mkfs.unwrap().contains("-n 65536 -m single /dev/loop"));
}

#[test]
fn raw_options_reach_mkfs_and_the_mount() {
    let spec = r#"xfs:mkfs=-m reflink=0 -i size=2048+mount="noatime,logbsize=256k""#;
    let (facts, said) = Job::new(spec, "xfs_info /tmp; findmnt -n -o OPTIONS -T /tmp").succeed();
    assert!(said.contains("reflink=0") && said.contains("isize=2048"), "{said}");
    assert!(said.contains("noatime") && said.contains("logbsize=256k"), "{said}");
    assert!(facts.mount_options.contains("noatime") && facts.mount_options.contains("logbsize=256k"));

    let (facts, _) = Job::new("ext4:mkfs=-E stride=16+data=writeback", "true").succeed();
    assert!(facts.mkfs.unwrap().contains("-E lazy_itable_init=0,lazy_journal_init=0,stride=16"));
    assert!(facts.mount_options.contains("data=writeback"));

    let (facts, _) = Job::new("tmpfs:size=100M+inodes=5000+mount=nosuid", "true").succeed();
    assert!(facts.mount_options.contains("size=102400k"), "{}", facts.mount_options);
    assert!(facts.mount_options.contains("nr_inodes=5000") && facts.mount_options.contains("nosuid"));
}

#[test]
fn an_overlay_lies_on_each_file_system() {
    let script =
        "echo changed > /tmp/lower-files/0; cat /tmp/lower-files/0 /perfloss/below/upper/lower-files/0
        cat /perfloss/below/lower/lower-files/0; stat -c %a /tmp";
    for below in ["xfs", "ext4:journal=off", "btrfs", "tmpfs"] {
        let (facts, said) = Job::new(&format!("overlay:{below}"), script).succeed();
        assert_eq!(facts.fs_type, "overlay");
        assert_eq!(lines(&said), ["changed", "changed", "a file of the lower directory", "1777"]);
        let fs_below = facts.below.unwrap();
        assert_eq!(fs_below.fs_type, below.split(':').next().unwrap());
    }
}

#[test]
fn a_directory_target_is_cleaned_up_and_nothing_else_is() {
    let home = tempfile::tempdir().unwrap();
    let strange = home.path().join("a, \"b\" $(touch x)\n+c");
    fs::create_dir(&strange).unwrap();
    fs::write(strange.join("mine"), "keep").unwrap();
    for overlay in ["", "overlay:"] {
        let spec = format!("{overlay}{}", Spec::directory(&strange).unwrap());
        let job = Job::new(&spec, "mkdir -p /tmp/a/b; ln -s / /tmp/a/link; echo x > /tmp/a/b/c");
        job.succeed();
        let ours = job.cleanup.paths().next().unwrap();
        assert!(ours.starts_with(&strange));
        assert!(ours.exists());
        job.cleanup.run().unwrap();
        let left: Vec<_> = fs::read_dir(&strange).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["mine"]);
    }
}

#[test]
fn what_the_user_named_below_tmp_stays_visible() {
    let home = tempfile::Builder::new().prefix("target test ' $(x)").tempdir_in("/tmp").unwrap();
    let file = home.path().join("a file.c");
    let directory = home.path().join("deeper/project");
    fs::write(&file, "file").unwrap();
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("inside"), "inside").unwrap();
    fs::write(home.path().join("unnamed"), "unnamed").unwrap();
    for spec in ["xfs", "tmpfs", "overlay:ext4"] {
        let script = "cat \"$PWD/inside\" ../../'a file.c'; test ! -e ../../unnamed; echo new > made; findmnt -n -o FSTYPE -T /tmp";
        let mut job = Job::new(spec, script);
        job.keep_visible =
            vec![directory.join("inside"), file.clone(), PathBuf::from("/usr/bin"), PathBuf::from("/")];
        // The working directory is kept without being named.
        job.cwd = directory.clone();
        let (_, said) = job.succeed();
        assert!(said.starts_with("insidefile"), "{said}");
        assert_eq!(fs::read_to_string(directory.join("made")).unwrap(), "new\n");
    }
}

#[test]
fn tmp_itself_cannot_be_kept_and_says_so() {
    let mut job = Job::new("tmpfs", "true");
    job.keep_visible = vec!["/tmp".into()];
    assert!(job.fail().starts_with("/tmp would be hidden behind the target on /tmp: it is /tmp itself"));
    // As a working directory it is not an error: it becomes the target.
    job.keep_visible.clear();
    job.cwd = "/tmp".into();
    job.script = "stat -f -c %T .".to_owned();
    assert_eq!(job.succeed().1, "tmpfs\n");
}

#[test]
fn sources_are_shown_read_only_and_the_machines_src_is_not_covered() {
    let script = "cat /perfloss/src/src0.c; if echo > /perfloss/src/x; then exit 1; fi; if echo > /top; then exit 1; fi
        cat /src/src0.c; if echo > /src/x; then exit 1; fi; ls /proc | grep -c '^1$'; test $$ -lt 20; ls /";
    let (_, said) = Job::new("tmpfs", script).succeed();
    assert!(said.starts_with("int main"), "{said}");
    if Path::new("/src").exists() {
        assert_eq!(said.matches("int main").count(), 1);
    } else {
        assert_eq!(said.matches("int main").count(), 2);
    }
    for entry in fs::read_dir("/").unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(
            name.starts_with('.') || lines(&said).contains(&name.as_str()),
            "{name} is missing in {said}"
        );
    }
}

#[test]
fn an_image_can_lie_on_a_disk_and_leaves_no_file() {
    let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let settings = Settings { medium: Some(disk.path().to_owned()), ..Settings::default() };
    let (facts, _) = Job::with("xfs:size=400M", WRITE, settings).succeed();
    assert_eq!(facts.medium, Some(format!("directory {}", disk.path().display())));
    assert_eq!(facts.image_size, Some(400 << 20));
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
}

#[test]
fn a_medium_that_cannot_be_used_gives_one_line() {
    let check =
        |settings: &Settings| "ext4".parse::<Spec>().unwrap().check(Caps::here(), settings).unwrap_err();
    let medium = |path: &str| Settings { medium: Some(path.into()), ..Settings::default() };
    assert_eq!(check(&medium("/no such")).to_string(), "directory \"/no such\": it does not exist");
    assert_eq!(check(&medium("/etc/passwd")).to_string(), "directory /etc/passwd: it is not a directory");
    let settings = Settings { size: Some(1 << 60), ..Settings::default() };
    let line = check(&settings).to_string();
    assert!(line.starts_with("ext4's image needs 1024 PiB and memory has "), "{line}");
    assert!(line.ends_with("free: give a smaller size=, or a disk with --medium DIR"), "{line}");
}

#[test]
fn a_failing_mkfs_gives_one_line_with_its_reason() {
    let line = Job::new("ext4:inode-size=100", "true").fail();
    assert!(line.contains("mkfs.ext4") && line.contains("invalid inode size"), "{line}");
    let line = Job::new("xfs:size=16M", "true").fail();
    assert!(line.contains("mkfs.xfs") && line.contains("exit status 1"), "{line}");
    let line = Job::new("ext4:mkfs=$(touch /tmp/x) `id`", "true").fail();
    assert!(line.contains("mkfs.ext4"), "{line}");
}

#[test]
fn a_refused_mount_option_gives_one_line_with_its_reason() {
    let line = Job::new("xfs:mount=nosuchoption", "true").fail();
    assert!(line.starts_with("mounting xfs from /dev/loop") && line.contains("nosuchoption"), "{line}");
    let line = Job::new("tmpfs:mount=ro", "true").fail();
    assert!(line.contains("has to be writable"), "{line}");
}

#[test]
fn a_target_that_is_still_in_use_cannot_be_left_silently() {
    let line = Job::new("ext4", "exec 3< /tmp; sleep 60 > /dev/null 2>&1 &").fail();
    assert!(line.contains("unmount /tmp") && line.contains("still uses it"), "{line}");
}

#[test]
fn without_a_namespace_of_its_own_nothing_is_mounted() {
    let spec: Spec = "tmpfs".parse().unwrap();
    let settings = Settings::default();
    let layout = target::Layout {
        spec: &spec,
        settings: &settings,
        outside: target::Namespace::current().unwrap(),
        cleanup: &Cleanup::default(),
        fresh_proc: false,
        sources: None,
        keep_visible: &[],
    };
    assert!(matches!(target::enter(layout), Err(target::Error::NotIsolated)));
}

#[test]
fn a_scratch_is_in_no_mount_table_and_usable_by_programs() {
    let scratch = Scratch::new().unwrap();
    assert!(scratch.cleanup().is_empty());
    let file = scratch.path().join("a file");
    fs::write(&file, "x").unwrap();
    let program = scratch.path().join("program");
    fs::copy("/bin/cat", &program).unwrap();
    let output = std::process::Command::new(&program).arg(&file).output().unwrap();
    assert_eq!(output.stdout, b"x");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let number = fs::metadata(&file).unwrap();
    let device = std::os::unix::fs::MetadataExt::dev(&number);
    let device = format!(" {}:{} ", rustix::fs::major(device), rustix::fs::minor(device));
    assert!(!mounts.contains(&device));
    let path = scratch.path().to_owned();
    drop(scratch);
    assert!(!path.join("a file").exists());
}

#[test]
fn a_directory_without_privileges_gives_a_private_directory() {
    let home = tempfile::tempdir().unwrap();
    let spec = Spec::directory(home.path()).unwrap();
    let cleanup = Cleanup::plan(&spec, &Settings::default()).unwrap();
    let mut write = |directory: &Path| fs::write(directory.join("src0.c"), "x");
    let place = target::enter_plain(&spec, &cleanup, Some(&mut write)).unwrap();
    assert!(place.dir.starts_with(home.path()));
    assert_eq!(fs::metadata(&place.dir).unwrap().permissions().mode() & 0o7777, 0o700);
    let src = place.src.clone().unwrap();
    assert_eq!(fs::read_to_string(src.join("src0.c")).unwrap(), "x");
    let dir = place.dir.clone();
    place.leave().unwrap();
    cleanup.run().unwrap();
    assert!(!dir.exists() && !src.exists());
    let refused = target::enter_plain(&"xfs".parse().unwrap(), &cleanup, None).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotAllowed);
}

/// Runs the probe in a machine with another root directory: a tmpfs that shows the real one's entries.
fn in_another_root(spec: &str, prepare: &str, script: &str) -> String {
    let job = Job::new(spec, script);
    // In $ROOT everything of the machine but /tmp; `prepare` adds what is special.
    let root = format!(
        "set -eu
        mount --make-rprivate /
        ROOT=/mnt
        mount -t tmpfs -o mode=755 none $ROOT
        for entry in /*; do
            name=${{entry#/}}
            if [ $name = tmp ] || [ $name = mnt ] || [ $name = perfloss ] || [ $name = src ]; then continue; fi
            if [ -L $entry ]; then cp -P $entry $ROOT/; continue; fi
            if [ ! -d $entry ]; then continue; fi
            mkdir $ROOT/$name
            mount --rbind $entry $ROOT/$name
        done
        {prepare}
        exec chroot $ROOT \"$@\""
    );
    let output = job.start_in(&["unshare", "--mount", "sh", "-c", &root, "sh"]).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn a_machine_with_src_and_perfloss_directories_keeps_both() {
    let prepare = "mkdir $ROOT/tmp $ROOT/src $ROOT/perfloss; echo theirs > $ROOT/src/mine; echo theirs > $ROOT/perfloss/mine";
    let said =
        in_another_root("ext4", prepare, "cat /src/mine /perfloss/mine; cat /perfloss.1/src/src0.c; ls /src");
    let lines = lines(&said);
    assert_eq!(lines[1..3], ["theirs", "theirs"], "{said}");
    assert!(lines[3].starts_with("int main"), "{said}");
    assert_eq!(lines[4..], ["mine"], "{said}");
}

#[test]
fn links_from_and_to_tmp_do_not_matter() {
    // /tmp -> /disk/temporary
    let prepare =
        "mkdir -p $ROOT/disk/temporary; ln -s disk/temporary $ROOT/tmp; echo theirs > $ROOT/disk/temporary/x";
    let script = "stat -f -c %T /tmp; cat /disk/temporary/x; test ! -e /tmp/x";
    let said = in_another_root("tmpfs", prepare, script);
    assert_eq!(lines(&said)[1..], ["tmpfs", "theirs"]);
    // /scratch -> /tmp, and no /tmp at all
    let said = in_another_root("btrfs", "ln -s tmp $ROOT/scratch", "stat -f -c %T /scratch/.");
    assert_eq!(lines(&said)[1..], ["btrfs"]);
}

#[test]
fn a_path_named_through_a_link_to_tmp_stays_visible() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let link = home.path().join("link");
    let real = tempfile::tempdir_in("/tmp").unwrap();
    fs::write(real.path().join("file"), "named").unwrap();
    std::os::unix::fs::symlink(real.path(), &link).unwrap();
    let mut job = Job::new("ext4", &format!("cat '{}/file'", link.display()));
    job.keep_visible = vec![link.join("file")];
    assert_eq!(job.succeed().1, "named");
}

#[test]
fn the_umask_of_the_caller_does_not_shut_others_out() {
    let job = Job::new("overlay:tmpfs", "stat -c %a / /tmp /perfloss /perfloss/src");
    let output = job.start_in(&["sh", "-c", "umask 077; exec \"$@\"", "sh"]).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        lines(&said)[1..],
        ["755", "1777", "755", "755"],
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_mount_namespace_without_a_pid_namespace_is_enough() {
    let mut job = Job::new("ext4", "test -d /proc/$$; stat -f -c %T /tmp; test $$ -gt 20");
    job.pid_namespace = false;
    assert_eq!(job.succeed().1, "ext2/ext3\n");
}

#[test]
fn mounts_do_not_reach_a_machine_that_shares_its_mounts() {
    let job = Job::new("overlay:ext4", "true");
    let compare = "before=$(cat /proc/self/mountinfo); \"$@\" > /dev/null; test \"$before\" = \"$(cat /proc/self/mountinfo)\"";
    let before = ["unshare", "--mount", "--propagation", "shared", "sh", "-ec", compare, "sh"];
    let output = job.start_in(&before).wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
