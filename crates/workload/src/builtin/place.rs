//! Names of files and directories in the place where a workload runs.

use std::ffi::CString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::{Failure, Place};

/// The directory of a task's own.
pub(crate) fn own_dir(place: &Place, task: u32) -> PathBuf {
    place.dir.join(format!("own.{task}"))
}

/// A file of a task's own in the shared directory.
pub(crate) fn task_file(place: &Place, task: u32) -> PathBuf {
    place.dir.join(format!("file.{task}"))
}

/// Makes the directories of all tasks' own.
pub(crate) fn make_own_dirs(place: &Place) -> Result<(), Failure> {
    for task in 0..place.tasks {
        let dir = own_dir(place, task);
        fs::create_dir(&dir)
            .map_err(|e| Failure::new("cannot make a task's own directory").on(&dir).io(&e))?;
    }
    Ok(())
}

/// Removes the directories of all tasks' own, with whatever is in them.
pub(crate) fn remove_own_dirs(place: &Place) -> Result<(), Failure> {
    for task in 0..place.tasks {
        remove_dir(&own_dir(place, task))?;
    }
    Ok(())
}

/// Removes a directory with whatever is in it; one that is not there is fine.
pub(crate) fn remove_dir(dir: &Path) -> Result<(), Failure> {
    gone(fs::remove_dir_all(dir), dir)
}

/// Removes a file; one that is not there is fine.
pub(crate) fn remove_file(path: &Path) -> Result<(), Failure> {
    gone(fs::remove_file(path), path)
}

fn gone(result: std::io::Result<()>, path: &Path) -> Result<(), Failure> {
    match result {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Failure::new("cannot remove").on(path).io(&e)),
        _ => Ok(()),
    }
}

/// The path as the kernel takes it.
pub(crate) fn c_path(path: &Path) -> Result<CString, Failure> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Failure::new("a path contains a NUL byte").on(path))
}
