//! In a process-id namespace of its own.

use crate::place::{Place, text};
use assert_cmd::cargo::cargo_bin;
use std::process::Command;

#[test]
fn ids_that_a_container_gives_are_those_of_the_container() {
    // process 1 of the namespace is the shell; the kernel has another number for it
    let script = format!(
        "(while :; do sleep 0.01; done) & loop=$!
        {0} offcpu -f -U -p $loop 1; echo status $?
        {0} offcpu -p 4194000 1; echo status $?
        {0} record -q --output {1} -- sh -c 'exit 7'; echo status $?; kill $loop",
        cargo_bin("perfloss").display(),
        Place::new().file("result").display(),
    );
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", &script])
        .output()
        .unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let statuses: Vec<&str> = out.lines().filter_map(|l| l.strip_prefix("status ")).collect();
    assert_eq!(statuses, ["0", "2", "7"], "{out}\n{err}");
    // the loop waits for its sleeps, and its functions have names
    let waits: Vec<&str> = out.lines().filter(|l| l.starts_with("bash;")).collect();
    assert!(waits.iter().any(|l| l.contains("wait4")), "{out}\n{err}");
    assert!(err.contains("there is no process 4194000"), "{err}");
}
