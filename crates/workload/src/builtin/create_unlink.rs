//! Creating and removing a file: what compilers do to temporary files, and the operation of the reported case.

use rustix::fs::{CWD, Mode, OFlags};

use super::place::{c_path, make_own_dirs, own_dir, remove_file, remove_own_dirs, task_file};
use super::{BuiltIn, Looped};
use crate::failure::Named;
use crate::{Failure, Place, Prepared};

pub(super) const ALL: &[BuiltIn] = &[
    BuiltIn::new(
        "create_unlink",
        "open(O_CREAT|O_EXCL|O_RDWR), close and unlink of the task's own name; all tasks in one directory",
        |place| prepare(place, false),
    ),
    BuiltIn::new(
        "create_unlink:own-dir",
        "open(O_CREAT|O_EXCL|O_RDWR), close and unlink of a file; each task in a directory of its own",
        |place| prepare(place, true),
    ),
];

fn prepare(place: &Place, own: bool) -> Result<Box<dyn Prepared>, Failure> {
    if own {
        make_own_dirs(place)?;
    }
    let path = move |place: &Place, task: u32| match own {
        true => own_dir(place, task).join("file"),
        false => task_file(place, task),
    };
    Ok(Box::new(Looped {
        shared: place.clone(),
        begin: move |place: &Place, task| c_path(&path(place, task)),
        op: |path: &mut std::ffi::CString| {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
            let fd = rustix::fs::openat(CWD, &**path, flags, Mode::RUSR | Mode::WUSR).named("create")?;
            drop(fd);
            rustix::fs::unlinkat(CWD, &**path, rustix::fs::AtFlags::empty()).named("unlink")
        },
        clean: move |place: &Place| {
            if own {
                return remove_own_dirs(place);
            }
            (0..place.tasks).try_for_each(|task| remove_file(&path(place, task)))
        },
    }))
}
