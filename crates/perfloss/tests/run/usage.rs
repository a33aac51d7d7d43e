//! Bad input: one clear line, the right exit status, nothing left.

use std::fs;

use crate::home::{Home, case, perfloss};

/// Arguments after `run`, exit status, words of the line.
type Wrong<'a> = (&'a [&'a str], i32, &'a [&'a str]);

#[test]
fn wrong_arguments_are_answered_with_one_line_that_says_what_is_right() {
    let home = Home::new();
    let nowhere = home.work().join("nowhere").display().to_string();
    let file = home.file("a file", "").display().to_string();
    let table: &[Wrong<'_>] = &[
        (&["cc", "-t", "0"], 2, &["-t \"0\"", "1 to 2048"]),
        (&["cc", "-t", "abc"], 2, &["-t \"abc\"", "1 to 2048"]),
        (&["cc", "-t", "5000"], 2, &["-t \"5000\"", "1 to 2048"]),
        (&["cc", "-t", "1,,2"], 2, &["-t \"\"", "1 to 2048"]),
        (&["cc", "-t", "-1"], 2, &[]),
        (&["cc", "-s", "0"], 2, &["--seconds", "0.01"]),
        (&["cc", "-s", "nan"], 2, &["--seconds"]),
        (&["cc", "-s", "inf"], 2, &["--seconds"]),
        (&["cc", "-s", "1s"], 2, &["--seconds"]),
        (&["cc", "--deadline", "0"], 2, &["--deadline"]),
        (&["cc", "--warm-up", "nan"], 2, &["--warm-up"]),
        (&["cc", "--image-size", "many"], 2, &["--image-size", "8G"]),
        (&["cc", "--rounds", "0"], 2, &["--rounds"]),
        (&["cc", "--mode", "process"], 2, &["--mode", "processes"]),
        (&["creat_unlink"], 2, &["creat_unlink", "did you mean", "create_unlink"]),
        (&["create_unlink:own_dir"], 2, &["create_unlink:own-dir"]),
        (&[""], 2, &["unknown workload"]),
        (&["futex:same"], 2, &["threads"]),
        (&["cc", "--on", "xsf"], 2, &["xsf", "did you mean xfs"]),
        (&["cc", "--on", ""], 2, &["empty"]),
        (&["cc", "--on", "xfs,,ext4"], 2, &["empty"]),
        (&["cc", "--on", "xfs:agcont=4"], 2, &["agcont", "agcount"]),
        (&["cc", "--on", "xfs:agcount=0"], 2, &["agcount"]),
        (&["cc", "--on", "xfs:agcount"], 2, &["agcount"]),
        (&["cc", "--on", "overlay"], 2, &["overlay:"]),
        (&["cc", "--on", "overlay:xsf"], 2, &["xsf"]),
        (&["cc", "--on", &nowhere], 4, &[&nowhere, "does not exist"]),
        (&["cc", "--on", &file], 4, &[&file, "not a directory"]),
        (&["cc", "--on", "xfs", "--medium", &nowhere], 4, &[&nowhere, "does not exist"]),
        (&["--each", "echo {foo}", "--on", "tmpfs"], 2, &["{foo}", "{task}", "{dir}"]),
        (&["--each", "", "--on", "tmpfs"], 2, &["empty"]),
        (&["--each", "echo 'x", "--on", "tmpfs"], 2, &["quote"]),
        (&["--each", "no-such-program {task}", "--on", "tmpfs"], 4, &["no-such-program", "PATH"]),
        (&["cc", "--setup", "true"], 2, &["--each"]),
        (&["./nowhere.c", "--on", "tmpfs"], 2, &["./nowhere.c"]),
        (&[&case("broken.c"), "--on", "tmpfs"], 2, &["broken.c"]),
        (&[&case("no_testcase.c"), "--on", "tmpfs"], 2, &["testcase"]),
        (&[], 2, &["WORKLOAD"]),
    ];
    for (arguments, status, words) in table {
        let mut all = vec!["run"];
        all.extend(*arguments);
        let ran = home.perfloss(&all);
        eprintln!("{arguments:?}: {}", ran.stderr.trim_end());
        ran.one_line(*status, words);
    }
    assert!(!home.work().join("perfloss-results").exists(), "a refused run leaves no result folder");
}

#[test]
fn a_result_folder_that_cannot_be_written_is_said_before_anything_is_measured() {
    let home = Home::new();
    let used = home.work().join("used");
    fs::create_dir(&used).unwrap();
    fs::write(used.join("mine"), "keep").unwrap();
    let file = home.file("file", "");
    for output in ["/proc/result", "/dev/null/x", &file.display().to_string(), &used.display().to_string()] {
        let ran = home.perfloss(&["run", "create_unlink", "--on", "tmpfs", "--output", output]);
        ran.one_line(4, &[output.rsplit('/').next().unwrap()]);
    }
    assert_eq!(fs::read_to_string(used.join("mine")).unwrap(), "keep");
}

/// A shell script in a mount namespace of its own; `$P` is perfloss.
fn in_own_mounts(home: &Home, script: &str) -> crate::home::Ran {
    let script = format!("set -e; P='{}'; {script}", perfloss());
    let ran = home.start(home.command("unshare", &["-m", "sh", "-c", &script])).end();
    home.nothing_is_left();
    ran
}

#[test]
fn a_read_only_directory_is_refused_as_target_and_as_output() {
    let home = Home::new();
    let run = "$P run create_unlink -t 1 -s 0.1 --rounds 1 --quiet";
    for rest in ["--on $PWD/ro", "--on tmpfs --output $PWD/ro/result", "--on xfs --medium $PWD/ro"] {
        let script = format!("mkdir -p ro; mount -t tmpfs -o ro none ro; exec {run} {rest}");
        let ran = in_own_mounts(&home, &script);
        ran.one_line(4, &["ro", "read-only"]);
    }
}

#[test]
fn a_full_disk_under_the_result_is_said_and_what_was_measured_is_printed() {
    let home = Home::new();
    // Room for the first, empty result, but not for one with rounds.
    let script = "mkdir -p full; mount -t tmpfs -o size=16k none full; head -c 4096 /dev/zero > full/fill; \
        exec $P run create_unlink -t 1,2 -s 0.05 --rounds 12 --on tmpfs --retries 0 --no-capture --quiet --output full/result";
    let ran = in_own_mounts(&home, script);
    assert_eq!(ran.status, 4, "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    assert!(ran.stderr.contains("full") || ran.stderr.contains("space"), "{ran:?}");
    assert!(ran.stdout.contains("tmpfs") && ran.stdout.contains("ops/s"), "{ran:?}");
}

#[test]
fn a_file_system_that_runs_full_voids_the_point_and_says_so() {
    let home = Home::new();
    let ran = home.measure(&["fallocate", "-t", "1", "--on", "tmpfs:size=64m,tmpfs"]);
    let result = ran.json(3);
    let full = &result["points"][0];
    assert_eq!(full["valid"], false);
    assert!(full["invalid_because"].as_str().unwrap().contains("No space left"), "{full}");
    assert_eq!(result["points"][1]["valid"], true, "the other point went on");
}

#[test]
fn a_failing_mkfs_is_told_with_its_words() {
    let home = Home::new();
    let ran = home.measure(&["create_unlink", "-t", "1", "--on", "xfs:agcount=100000"]);
    ran.one_line(3, &["mkfs.xfs", "agcount=100000", "agsize"]);
    let ran = home.measure(&["create_unlink", "-t", "1", "--on", "ext4:mkfs='-O nonsense'"]);
    ran.one_line(3, &["mkfs.ext4", "nonsense"]);
    let ran = home.measure(&["create_unlink", "-t", "1", "--on", "ext4:mount='nonsense=1'"]);
    assert_eq!(ran.status, 3, "{ran:?}");
    ran.one_line(3, &["nonsense"]);
}

#[test]
fn a_missing_tool_is_told_with_the_package_that_has_it() {
    let home = Home::new();
    for (target, package) in [("xfs", "xfsprogs"), ("btrfs", "btrfs-progs"), ("ext4", "e2fsprogs")] {
        let script = format!("mount -t tmpfs none /usr/sbin; exec $P run create_unlink -t 1 --on {target}");
        in_own_mounts(&home, &script).one_line(4, &["mkfs", package]);
    }
    let mut command = home.command(perfloss(), &["run", "cc", "-t", "1", "--on", "tmpfs", "-s", "0.1"]);
    command.env("PATH", home.work());
    let ran = home.start(command).end();
    assert!(ran.status == 4 || ran.status == 3, "{ran:?}");
    assert!(format!("{}{}", ran.stderr, ran.stdout).contains("cc"), "{ran:?}");
    home.nothing_is_left();
}

#[test]
fn a_device_is_not_formatted_without_its_own_flag() {
    let home = Home::new();
    let ran = home.perfloss(&["run", "create_unlink", "-t", "1", "--on", "ext4:device=/dev/loop0"]);
    assert!(ran.status == 2 || ran.status == 4, "{ran:?}");
    assert!(ran.stderr.contains("--allow-format"), "{ran:?}");
}
