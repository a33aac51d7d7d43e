//! C test cases against will-it-scale's interface, compiled, loaded and run for real.

mod common;

use std::path::{Path, PathBuf};

use common::case::{Outcome, alone, run};
use workload::Mode::{self, Processes, Threads};
use workload::ccase::{CompileError, Compiled, compile};

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name)
}

fn compiled_from(source: &Path) -> Result<Compiled, CompileError> {
    let _alone = alone();
    let scratch = tempfile::tempdir().expect("a directory");
    compile(source, scratch.path())
}

fn compiled(name: &str) -> Compiled {
    compiled_from(&source(name)).unwrap_or_else(|e| panic!("{e}\n{}", e.output))
}

fn ran_well(outcome: &Outcome, tasks: usize) {
    assert!(outcome.failure.is_none() && outcome.died.is_none(), "{outcome:?}");
    assert!(outcome.group_status.is_none() && outcome.cleanup_failed.is_none(), "{outcome:?}");
    assert_eq!(outcome.in_window.len(), tasks, "{outcome:?}");
    assert!(outcome.in_window.iter().all(|&n| n > 0.0), "{outcome:?}");
}

fn runs_in_both_modes(name: &str) {
    let case = compiled(name);
    for mode in [Processes, Threads] {
        ran_well(&run(&case, 3, mode, 60), 3);
    }
}

#[test]
fn a_case_without_includes_or_anything_optional_runs() {
    runs_in_both_modes("counts.c");
    assert_eq!(compiled("counts.c").description, None);
}

#[test]
fn the_reported_case_compiles_although_it_lacks_its_includes() {
    let case = compiled("cc.c");
    assert_eq!(case.description.as_deref(), Some("C compiler"));
    assert_eq!(case.name, "cc");
    assert!(case.warnings.contains("sprintf"), "{}", case.warnings);
}

#[test]
fn the_reported_case_counts_whatever_becomes_of_its_compilers() {
    ran_well(&run(&compiled("cc.c"), 2, Processes, 4), 2);
}

#[test]
fn prepare_and_cleanup_are_called_around_the_tasks() {
    let case = compiled("prepared.c");
    for mode in [Processes, Threads] {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        // SAFETY: no other test reads or sets this variable, and tests that fork get a copy.
        unsafe { std::env::set_var("PERFLOSS_TEST_FILE", &file) };
        ran_well(&run(&case, 3, mode, 60), 3);
        assert!(!file.exists(), "testcase_cleanup() was not called");
    }
}

#[test]
fn a_case_of_the_older_interface_runs() {
    runs_in_both_modes("old_prepare.c");
}

#[test]
fn new_task_starts_a_partner_in_the_mode_of_the_tasks() {
    runs_in_both_modes("partner.c");
}

#[test]
fn new_task_affinity_starts_its_function_on_the_named_cpus_behind_the_gate() {
    runs_in_both_modes("affine.c");
}

#[test]
fn a_header_beside_the_case_is_found() {
    assert_eq!(compiled("own_header.c").description.as_deref(), Some("has a header of its own"));
}

#[test]
fn a_name_with_blanks_quotes_and_newlines_compiles() {
    let dir = tempfile::tempdir().expect("a directory");
    let odd = dir.path().join("a 'b' \"c\" $(d)\n-e.c");
    std::fs::copy(source("counts.c"), &odd).expect("copies");
    let case = compiled_from(&odd).expect("compiles");
    assert_eq!(case.name, "a 'b' \"c\" $(d)\n-e");
}

#[test]
fn the_version_changes_with_the_source() {
    assert_eq!(compiled("counts.c").version, compiled("counts.c").version);
    assert_ne!(compiled("counts.c").version, compiled("returns.c").version);
}

#[test]
fn a_file_that_does_not_compile_gives_the_first_error_with_its_line() {
    let error = compiled_from(&source("broken.c")).expect_err("does not compile");
    let message = error.to_string();
    assert!(message.starts_with("does not compile: ") && message.contains("broken.c:3:"), "{message}");
    assert_eq!(message.lines().count(), 1);
    assert!(error.output.lines().count() > 1, "{}", error.output);
}

#[test]
fn a_file_without_testcase_is_asked_whether_it_is_one() {
    let error = compiled_from(&source("no_testcase.c")).expect_err("does not link");
    let message = error.to_string();
    assert!(
        message.ends_with("no_testcase.c: no testcase(): is this a will-it-scale test case?"),
        "{message}"
    );
}

#[test]
fn a_file_that_is_not_there_gives_one_line() {
    let error = compiled_from(Path::new("/nowhere/x.c")).expect_err("not there");
    assert_eq!(error.to_string(), "cannot read /nowhere/x.c: No such file or directory (os error 2)");
}

/// The signal that ended what ran the failing task: the task, or in threads mode all of them.
fn fatal_signal(name: &str, mode: Mode) -> (i32, Outcome) {
    let outcome = run(&compiled(name), 2, mode, 1_000_000_000);
    let status = match mode {
        Processes => outcome.died.expect("a task died").1,
        Threads => outcome.group_status.expect("the process died"),
    };
    assert!(libc::WIFSIGNALED(status), "{outcome:?}");
    (libc::WTERMSIG(status), outcome)
}

#[test]
fn a_failed_assertion_is_the_death_of_that_task_with_its_words() {
    let (signal, outcome) = fatal_signal("asserts.c", Processes);
    assert_eq!((signal, outcome.died.map(|d| d.0)), (libc::SIGABRT, Some(1)));
    assert!(outcome.stderr.contains("Assertion"), "{outcome:?}");
    assert_eq!(fatal_signal("asserts.c", Threads).0, libc::SIGABRT);
}

#[test]
fn a_crash_is_the_death_of_the_task() {
    assert_eq!(fatal_signal("crashes.c", Processes).0, libc::SIGSEGV);
    assert_eq!(fatal_signal("crashes.c", Threads).0, libc::SIGSEGV);
}

#[test]
fn the_death_of_a_partner_is_the_death_of_its_task() {
    let (signal, outcome) = fatal_signal("partner_dies.c", Processes);
    assert_eq!(signal, libc::SIGABRT);
    assert!(outcome.stderr.contains("new_task() died"), "{outcome:?}");
}

#[test]
fn a_case_that_exits_is_a_task_that_never_said_that_it_finished() {
    let outcome = run(&compiled("exits.c"), 2, Processes, 1_000_000_000);
    assert_eq!(outcome.died.map(|d| d.1), Some(0), "{outcome:?}");
}

#[test]
fn a_case_that_returns_has_failed() {
    for mode in [Processes, Threads] {
        let outcome = run(&compiled("returns.c"), 2, mode, 1_000_000_000);
        let failure = outcome.failure.expect("a failure").to_string();
        assert_eq!(
            failure,
            "testcase() returned; a will-it-scale test case runs until it is stopped: returns"
        );
    }
}
