//! Without root: directories work, everything else is refused with the remedy.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::home::{Home, Ran, case, open_to_all, warns};

/// Runs perfloss as nobody; the binary is copied to where nobody can run it.
fn as_nobody(home: &Home, arguments: &[&str]) -> Ran {
    let binary = home.work().join("perfloss");
    if !binary.exists() {
        fs::copy(crate::home::perfloss(), &binary).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut all = vec!["--reuid", "65534", "--regid", "65534", "--clear-groups", binary.to_str().unwrap()];
    all.extend(arguments);
    let ran = home.start(home.command("setpriv", &all)).end();
    home.nothing_is_left();
    ran
}

const SHORT: [&str; 9] =
    ["-s", "0.1", "--rounds", "1", "--retries", "0", "--no-capture", "--json", "--quiet"];

#[test]
fn directories_are_measured_without_root_and_it_is_said_what_is_not_guaranteed() {
    let home = Home::new();
    let place = home.place().display().to_string();
    for mode in ["processes", "threads"] {
        let mut all =
            vec!["run", "create_unlink,create_unlink:own-dir", "-t", "1,2", "--mode", mode, "--on", &place];
        all.extend(SHORT);
        let result = as_nobody(&home, &all).json(0);
        assert!(warns(&result["warnings"], "end_not_guaranteed"), "{}", result["warnings"]);
        assert_eq!(result["machine"]["root"], false);
    }
    let mut all = vec!["run", "cc", "-t", "2", "--on", &place];
    all.extend(SHORT);
    as_nobody(&home, &all).json(0);
    let each = "cc -c -o {dir}/out.{task}.o {src}/src{task}.c";
    let mut all = vec!["run", "--each", each, "-t", "2", "--on", &place];
    all.extend(SHORT);
    as_nobody(&home, &all).json(0);
}

#[test]
fn what_needs_root_is_refused_with_the_way_out() {
    let home = Home::new();
    let place = home.place().display().to_string();
    for target in ["xfs", "tmpfs", "overlay:xfs"] {
        as_nobody(&home, &["run", "create_unlink", "--on", target]).one_line(4, &["CAP_SYS_ADMIN", "--on"]);
    }
    as_nobody(&home, &["run", "create_unlink"]).one_line(4, &["CAP_SYS_ADMIN", "--on"]);
    let cc = home.work().join("cc.c");
    fs::copy(case("cc.c"), &cc).unwrap();
    open_to_all(&cc);
    as_nobody(&home, &["run", "./cc.c", "-t", "1", "--on", &place]).one_line(4, &["/tmp", "root"]);
    let closed = home.work().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    as_nobody(&home, &["run", "create_unlink", "--on", "./closed"]).one_line(4, &["closed", "permission"]);
    as_nobody(&home, &["run", "getppid", "--on", &place, "--output", "/root/result"])
        .one_line(4, &["/root", "ermission"]);
}

#[test]
fn commands_that_leave_processes_in_sessions_of_their_own_are_ended_without_root_too() {
    let home = Home::new();
    let place = home.place().display().to_string();
    let mut all =
        vec!["run", "--shell", "--each", "(setsid sleep 600 &) ; sleep 0.02", "-t", "2", "--on", &place];
    all.extend(SHORT);
    as_nobody(&home, &all).json(0);
}

#[test]
fn a_void_point_is_void_without_root_too() {
    let home = Home::new();
    let place = home.place().display().to_string();
    for each in ["false", "sleep 1000"] {
        let mut all = vec!["run", "--each", each, "-t", "2", "--deadline", "0.5", "--on", &place];
        all.extend(SHORT);
        let result = as_nobody(&home, &all).json(3);
        assert_eq!(result["points"][0]["valid"], false);
    }
}

#[test]
fn list_and_doctor_work_without_root() {
    let home = Home::new();
    let ran = as_nobody(&home, &["list"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let ran = as_nobody(&home, &["doctor"]);
    assert!(ran.status == 0 || ran.status == 4, "{ran:?}");
    assert!(ran.stdout.contains("CAP_SYS_ADMIN"), "{ran:?}");
}
