//! The folder of a result is private, always whole, and refuses early.
#![allow(clippy::unwrap_used)]

use result::{Folder, MadeBy, RunResult, WriteError, read};
use std::os::unix::fs::PermissionsExt;

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_new_folder_and_its_files_are_private_and_nothing_else_is_left_in_it() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("a/b");
    let folder = Folder::create(&path).unwrap();
    folder.update(&RunResult::new(MadeBy::Run, 1)).unwrap();
    folder.update(&RunResult::new(MadeBy::Run, 2)).unwrap();
    assert_eq!(read(&path).unwrap().seed, 2);
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("result.json")), 0o600);
    let names: Vec<_> = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["result.json"]);
}

#[test]
fn a_folder_with_something_in_it_is_refused_and_an_empty_one_taken() {
    let temporary = tempfile::tempdir().unwrap();
    assert!(Folder::create(temporary.path()).is_ok());
    std::fs::write(temporary.path().join("x"), "x").unwrap();
    let error = Folder::create(temporary.path()).unwrap_err();
    assert!(matches!(error, WriteError::NotEmpty { .. }));
    assert!(error.to_string().contains("--output"));
}

#[test]
fn a_file_in_the_way_is_named() {
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("x");
    std::fs::write(&file, "x").unwrap();
    for path in [file.clone(), file.join("below")] {
        assert!(matches!(Folder::create(&path).unwrap_err(), WriteError::NotADirectory { .. }));
    }
}

#[test]
fn names_that_leave_the_folder_are_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Folder::create(temporary.path()).unwrap();
    for name in ["../x", "/tmp/x", "a/b", "", ".", "..", ".hidden"] {
        assert!(matches!(folder.write(name, b""), Err(WriteError::BadName { .. })));
    }
}

#[test]
fn a_full_disk_is_said_and_the_old_file_stays() {
    // /dev/full cannot be a folder; a tiny tmpfs needs privileges, so this test says when it could not look.
    let temporary = tempfile::tempdir().unwrap();
    let mount =
        std::process::Command::new("unshare").args(["--user", "--map-root-user", "--mount", "true"]).status();
    if !mount.is_ok_and(|s| s.success()) {
        eprintln!("not checked: no user and mount namespaces here");
        return;
    }
    // The child of a namespace of its own runs this same test binary's helper below.
    let exe = std::env::current_exe().unwrap();
    let status = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
        .arg(format!(
            "mount -t tmpfs -o size=64k none '{}' && '{}' --ignored --exact helper_on_a_tiny_tmpfs",
            temporary.path().display(),
            exe.display()
        ))
        .env("PERFLOSS_TINY", temporary.path())
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "run by a_full_disk_is_said_and_the_old_file_stays in a namespace of its own"]
fn helper_on_a_tiny_tmpfs() {
    let path = std::path::PathBuf::from(std::env::var_os("PERFLOSS_TINY").unwrap()).join("r");
    let folder = Folder::create(&path).unwrap();
    folder.update(&RunResult::new(MadeBy::Run, 1)).unwrap();
    let mut large = RunResult::new(MadeBy::Run, 2);
    large.command = vec!["x".repeat(1 << 20)];
    let error = folder.update(&large).unwrap_err();
    assert!(matches!(error, WriteError::Full { .. }), "{error}");
    assert_eq!(read(&path).unwrap().seed, 1);
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
    // And a folder cannot be made there any more.
    std::fs::write(path.join("fill"), vec![0; 1 << 20]).unwrap_err();
    let error = Folder::create(&path.join("sub")).unwrap_err();
    assert!(matches!(error, WriteError::Full { .. }), "{error}");
}
