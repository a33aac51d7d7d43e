//! The compiler workload when things go wrong. One test, since it changes `PATH` for its whole process.

mod common;

use std::os::unix::fs::PermissionsExt;

use workload::{Mode, Spec};

#[test]
fn a_compiler_that_fails_lies_or_is_missing_is_a_failure_and_no_faster_operation() {
    let cc = "cc".parse::<Spec>().expect("built in").open().expect("opens");

    let dir = tempfile::tempdir().expect("a directory");
    let place = common::place(dir.path(), 2, Mode::Processes);
    std::fs::write(place.src.join("src1.c"), "no C\n").expect("writes");
    let failure = common::run(&*cc, &place, 3).expect_err("task 1 cannot compile");
    assert_eq!(failure.what, "exit status 1");
    assert!(failure.stderr.is_some_and(|s| s.contains("src1.c:1:")));

    let dir = tempfile::tempdir().expect("a directory");
    let place = common::place(dir.path(), 2, Mode::Processes);
    std::fs::remove_file(place.src.join("src1.c")).expect("removes");
    let failure = cc.prepare(&place).err().expect("no source");
    assert!(failure.to_string().starts_with("no source: "), "{failure}");

    let dir = tempfile::tempdir().expect("a directory");
    let fake = dir.path().join("cc");
    std::fs::write(&fake, "#!/bin/sh\nexit 0\n").expect("writes");
    std::fs::set_permissions(&fake, PermissionsExt::from_mode(0o755)).expect("executable");
    let place = common::place(dir.path(), 2, Mode::Processes);
    // An object of an earlier run must not pass for one of this run.
    std::fs::write(place.dir.join("out.0.o"), "old").expect("writes");
    // SAFETY: the only thread of this process that reads the environment is this one.
    unsafe { std::env::set_var("PATH", dir.path()) };
    let failure = common::run(&*cc, &place, 3).expect_err("nothing was compiled");
    assert_eq!(failure.what, "cc said success but wrote no object file");

    std::fs::remove_file(&fake).expect("removes");
    let failure = cc.prepare(&place).err().expect("no compiler");
    assert_eq!(failure.to_string(), "program not found in PATH: cc");
}
