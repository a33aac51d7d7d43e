//! What `record` does with the command that it runs, and when it ends.

use crate::place::{Place, idle_s, text};
use result::RootKind;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

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
