//! Command templates, run for real.

mod common;

use std::path::Path;

use workload::{Command, Failure, Mode, Spec, Workload};

fn open(command: &Command) -> Result<Box<dyn Workload>, String> {
    Spec::Command(command.clone()).open().map_err(|e| e.to_string())
}

fn command(each: &str) -> Command {
    Command { each: each.to_owned(), setup: None, shell: false }
}

fn run_in(dir: &Path, command: &Command, operations: u64) -> Result<Vec<f64>, Failure> {
    let workload = open(command).expect("a good template");
    let place = common::place(dir, 2, Mode::Processes);
    common::run(&*workload, &place, operations)
}

#[test]
fn each_task_runs_its_own_command_in_both_modes() {
    for mode in [Mode::Processes, Mode::Threads] {
        let dir = tempfile::tempdir().expect("a directory");
        let workload = open(&command("cc -c -o {dir}/out.{task}.o {src}/src{task}.c")).expect("good");
        let place = common::place(dir.path(), 2, mode);
        let counts = common::run(&*workload, &place, 3).expect("runs");
        assert!(counts.iter().all(|&n| n > 0.0), "{counts:?}");
        assert!(place.dir.join("out.0.o").exists() && place.dir.join("out.1.o").exists());
    }
}

#[test]
fn names_with_blanks_quotes_substitutions_and_newlines_are_harmless() {
    for shell in [false, true] {
        let outer = tempfile::tempdir().expect("a directory");
        let odd = outer.path().join("a 'b' \"c\" $(touch bad)\n`touch bad`;*");
        std::fs::create_dir(&odd).expect("a directory");
        let command = Command {
            each: "cp {src}/src{task}.c '{dir}'/copy.{task}".to_owned(),
            setup: Some("cp {src}/src0.c \"{dir}/set up\"".to_owned()),
            shell,
        };
        run_in(&odd, &command, 3).expect("runs");
        let mut names: Vec<_> = std::fs::read_dir(odd.join("shared"))
            .expect("the directory")
            .map(|e| e.expect("an entry").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["copy.0", "copy.1", "set up"]);
        assert!(!Path::new("bad").exists());
    }
}

#[test]
fn own_directories_exist_before_the_first_operation_and_are_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    run_in(dir.path(), &command("cp {src}/src{task}.c {own}/x"), 3).expect("runs");
    let left = std::fs::read_dir(dir.path().join("shared")).expect("the directory").count();
    assert_eq!(left, 0);
}

#[test]
fn a_command_finds_its_values_in_the_environment_and_its_temporary_directory_on_the_target() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = "test \"$TMPDIR\" = \"$PERFLOSS_DIR\" && test \"$PERFLOSS_TASKS\" = 2 && test -d \"$PERFLOSS_OWN\" && test \"$PERFLOSS_TASK\" -lt 2";
    run_in(dir.path(), &command(&format!("sh -c '{script}'")), 3).expect("runs");
}

#[test]
fn a_command_that_fails_is_a_failure_with_its_line_status_and_stderr() {
    let dir = tempfile::tempdir().expect("a directory");
    let failure = run_in(dir.path(), &command("cc -c {src}/nowhere.c -o {dir}/x"), 3).expect_err("fails");
    assert_eq!(failure.what, "exit status 1");
    assert!(failure.place.as_ref().is_some_and(|p| p.contains("/src/nowhere.c -o ")), "{failure:?}");
    assert!(failure.stderr.as_ref().is_some_and(|s| s.contains("No such file")), "{failure:?}");
    assert_eq!(failure.to_string().lines().count(), 1);
}

#[test]
fn a_command_that_is_killed_says_by_what() {
    let dir = tempfile::tempdir().expect("a directory");
    let failure = run_in(dir.path(), &command("sh -c 'kill -9 $$'"), 3).expect_err("fails");
    assert_eq!(failure.what, "killed by SIGKILL");
}

#[test]
fn stderr_is_bounded_and_a_chatty_command_that_succeeds_is_fine() {
    let dir = tempfile::tempdir().expect("a directory");
    run_in(dir.path(), &command("sh -c 'head -c 100000 /dev/zero >&2'"), 20).expect("runs");
    let dir = tempfile::tempdir().expect("a directory");
    let chatty =
        "sh -c 'echo first >&2; head -c 300000 /dev/zero | tr \"\\\\0\" x >&2; echo last >&2; exit 7'";
    let failure = run_in(dir.path(), &command(chatty), 3).expect_err("fails");
    let stderr = failure.stderr.expect("stderr");
    assert!(stderr.starts_with("first\n") && stderr.ends_with("last\n"), "{stderr}");
    assert!(stderr.len() < workload::STDERR_KEPT + 100);
}

#[test]
fn a_set_up_that_fails_stops_everything_before_the_first_operation() {
    let dir = tempfile::tempdir().expect("a directory");
    let workload = open(&Command {
        each: "touch {dir}/x".to_owned(),
        setup: Some("sh -c 'echo no >&2; exit 4'".to_owned()),
        shell: false,
    })
    .expect("a good template");
    let place = common::place(dir.path(), 2, Mode::Processes);
    let failure = workload.prepare(&place).err().expect("fails");
    assert_eq!(failure.to_string(), "the set-up failed: exit status 4: sh -c 'echo no >&2; exit 4': no");
    assert!(!place.dir.join("x").exists());
}

#[test]
fn a_program_that_is_missing_is_named_before_anything_runs() {
    assert_eq!(
        open(&command("no-such-program {dir}")).err().as_deref(),
        Some("program not found in PATH: no-such-program")
    );
    assert_eq!(
        open(&command("/etc/passwd")).err().as_deref(),
        Some("no such program, or it is not executable: /etc/passwd")
    );
}

#[test]
fn an_unknown_placeholder_or_a_bare_operator_is_refused_when_it_is_opened() {
    let error = open(&command("touch {dri}")).err().expect("refused");
    assert!(error.starts_with("unknown placeholder {dri}"), "{error}");
    let error = open(&command("echo a > {dir}/x")).err().expect("refused");
    assert!(error.contains("--shell"), "{error}");
}

#[test]
fn a_shell_runs_pipes_and_redirections() {
    let dir = tempfile::tempdir().expect("a directory");
    let command = Command {
        each: "cat {src}/src{task}.c | tr a-z A-Z > {dir}/x.{task} && test -s {dir}/x.{task}".to_owned(),
        setup: None,
        shell: true,
    };
    run_in(dir.path(), &command, 3).expect("runs");
    let text = std::fs::read_to_string(dir.path().join("shared/x.1")).expect("written");
    assert!(text.contains("HELLO, WORLD, FROM 1"), "{text}");
}

#[test]
fn paths_that_the_user_named_are_found_in_arguments_options_and_scripts() {
    let command = Command {
        each: "cc -I/usr/include --sysroot=/usr -c /etc/passwd /nowhere/x {src}/y 'Cargo.toml'".to_owned(),
        setup: Some("/bin/cat </etc/hostname >/dev/null".to_owned()),
        shell: true,
    };
    let here = std::env::current_dir().expect("a directory").join("Cargo.toml");
    let mut expected = ["/bin/cat", "/dev/null", "/etc/hostname", "/etc/passwd", "/usr", "/usr/include"]
        .map(std::path::PathBuf::from)
        .to_vec();
    expected.push(here);
    let mut found = command.paths_named();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}
