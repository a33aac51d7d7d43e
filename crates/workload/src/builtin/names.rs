//! Opening, looking up and renaming: the metadata operations of will-it-scale and FxMark.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom};

use super::place::{c_path, make_own_dirs, own_dir, remove_own_dirs};
use super::{BuiltIn, Looped};
use crate::failure::{Fault, Named};
use crate::{Failure, Place, Prepared};

/// Entries that readdir finds.
const ENTRIES: u32 = 256;

pub(super) const ALL: &[BuiltIn] = &[
    BuiltIn::new("open", "open(O_RDWR) and close of the task's own file; all in one directory", |place| {
        looped(place, Dir::Shared, Exists::Own, open_close)
    }),
    BuiltIn::new("open:own-dir", "open(O_RDWR) and close of a file in the task's own directory", |place| {
        looped(place, Dir::Own, Exists::Own, open_close)
    }),
    BuiltIn::new("open:same-file", "open(O_RDWR) and close of one file, by all tasks", |place| {
        looped(place, Dir::Shared, Exists::Same, open_close)
    }),
    BuiltIn::new("stat", "stat of the task's own file; all in one directory", |place| {
        looped(place, Dir::Shared, Exists::Own, stat)
    }),
    BuiltIn::new("stat:same-file", "stat of one file, by all tasks", |place| {
        looped(place, Dir::Shared, Exists::Same, stat)
    }),
    BuiltIn::new("access", "access(R_OK) of the task's own file; all in one directory", |place| {
        looped(place, Dir::Shared, Exists::Own, |own| {
            rustix::fs::accessat(CWD, &*own.path, rustix::fs::Access::READ_OK, AtFlags::empty())
                .named("access")
        })
    }),
    BuiltIn::new(
        "rename",
        "rename of the task's own file to another name or, in every second operation, back; all in one directory",
        |place| looped(place, Dir::Shared, Exists::Own, rename),
    ),
    BuiltIn::new(
        "rename:own-dir",
        "rename of a file to another name or, in every second operation, back; each task in its own directory",
        |place| looped(place, Dir::Own, Exists::Own, rename),
    ),
    BuiltIn::new("mkdir_rmdir", "mkdir and rmdir of the task's own name; all in one directory", |place| {
        looped(place, Dir::Shared, Exists::No, mkdir_rmdir)
    }),
    BuiltIn::new("mkdir_rmdir:own-dir", "mkdir and rmdir of a name in the task's own directory", |place| {
        looped(place, Dir::Own, Exists::No, mkdir_rmdir)
    }),
    BuiltIn::new(
        "link",
        "link of the task's own file to a second name, and unlink of that; all in one directory",
        |place| looped(place, Dir::Shared, Exists::Own, link),
    ),
    BuiltIn::new(
        "link:own-dir",
        "link of a file to a second name, and unlink of that; each task in its own directory",
        |place| looped(place, Dir::Own, Exists::Own, link),
    ),
    BuiltIn::new(
        "symlink",
        "symlink of the task's own name and unlink of it; all in one directory",
        |place| {
            looped(place, Dir::Shared, Exists::No, |own| {
                rustix::fs::symlinkat(c"target", CWD, &*own.path).named("symlink")?;
                rustix::fs::unlinkat(CWD, &*own.path, AtFlags::empty()).named("unlink")
            })
        },
    ),
    BuiltIn::new(
        "readdir",
        "reading the 256 entries of the task's own directory from beginning to end with getdents64",
        |place| readdir(place, Dir::Own),
    ),
    BuiltIn::new(
        "readdir:same-dir",
        "reading the 256 entries of one directory, which each task has open for itself, from beginning to end with getdents64",
        |place| readdir(place, Dir::Shared),
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dir {
    Shared,
    Own,
}

impl Dir {
    fn of(self, place: &Place, task: u32) -> PathBuf {
        match self {
            Dir::Shared => place.dir.join("names"),
            Dir::Own => own_dir(place, task),
        }
    }

    fn make(self, place: &Place) -> Result<(), Failure> {
        match self {
            Dir::Shared => {
                let dir = self.of(place, 0);
                std::fs::create_dir(&dir).map_err(|e| Failure::new("cannot make a directory").on(&dir).io(&e))
            }
            Dir::Own => make_own_dirs(place),
        }
    }

    fn remove(self, place: &Place) -> Result<(), Failure> {
        match self {
            Dir::Shared => super::place::remove_dir(&self.of(place, 0)),
            Dir::Own => remove_own_dirs(place),
        }
    }
}

/// Which file is there before the first operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exists {
    Own,
    Same,
    No,
}

/// What a task has: two names beside each other.
struct Own {
    path: CString,
    second: CString,
}

fn open_close(own: &mut Own) -> Result<(), Fault> {
    let fd = rustix::fs::openat(CWD, &*own.path, OFlags::RDWR, Mode::empty()).named("open")?;
    drop(fd);
    Ok(())
}

fn stat(own: &mut Own) -> Result<(), Fault> {
    rustix::fs::stat(&*own.path).named("stat").map(drop)
}

fn rename(own: &mut Own) -> Result<(), Fault> {
    rustix::fs::renameat(CWD, &*own.path, CWD, &*own.second).named("rename")?;
    std::mem::swap(&mut own.path, &mut own.second);
    Ok(())
}

fn mkdir_rmdir(own: &mut Own) -> Result<(), Fault> {
    rustix::fs::mkdirat(CWD, &*own.path, Mode::RWXU).named("mkdir")?;
    rustix::fs::unlinkat(CWD, &*own.path, AtFlags::REMOVEDIR).named("rmdir")
}

fn link(own: &mut Own) -> Result<(), Fault> {
    rustix::fs::linkat(CWD, &*own.path, CWD, &*own.second, AtFlags::empty()).named("link")?;
    rustix::fs::unlinkat(CWD, &*own.second, AtFlags::empty()).named("unlink")
}

fn looped<Op>(place: &Place, dir: Dir, exists: Exists, op: Op) -> Result<Box<dyn Prepared>, Failure>
where
    Op: Fn(&mut Own) -> Result<(), Fault> + Send + Sync + 'static,
{
    let path = move |place: &Place, task: u32| match exists {
        Exists::Same => dir.of(place, 0).join("same"),
        Exists::Own | Exists::No => dir.of(place, task).join(format!("file.{task}")),
    };
    dir.make(place)?;
    let made = match exists {
        Exists::Own => place.tasks,
        Exists::Same => 1,
        Exists::No => 0,
    };
    for task in 0..made {
        make_file(&path(place, task))?;
    }
    Ok(Box::new(Looped {
        shared: place.clone(),
        begin: move |place: &Place, task| {
            Ok(Own {
                path: c_path(&path(place, task))?,
                second: c_path(&dir.of(place, task).join(format!("second.{task}")))?,
            })
        },
        op,
        clean: move |place: &Place| dir.remove(place),
    }))
}

fn make_file(path: &std::path::Path) -> Result<(), Failure> {
    std::fs::File::create(path).map(drop).map_err(|e| Failure::new("cannot make a file").on(path).io(&e))
}

fn readdir(place: &Place, dir: Dir) -> Result<Box<dyn Prepared>, Failure> {
    dir.make(place)?;
    let dirs = match dir {
        Dir::Own => place.tasks,
        Dir::Shared => 1,
    };
    for task in 0..dirs {
        for entry in 0..ENTRIES {
            make_file(&dir.of(place, task).join(format!("entry.{entry}")))?;
        }
    }
    Ok(Box::new(Looped {
        shared: place.clone(),
        begin: move |place: &Place, task| {
            let path = dir.of(place, task);
            let fd = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
                .map_err(|e| Failure::new("open").on(&path).errno(e))?;
            let buffer: Box<[MaybeUninit<u8>]> = Box::new_uninit_slice(32 << 10);
            Ok((fd, buffer))
        },
        op: |(fd, buffer): &mut (rustix::fd::OwnedFd, Box<[MaybeUninit<u8>]>)| {
            rustix::fs::seek(&*fd, SeekFrom::Start(0)).named("lseek")?;
            let mut entries = RawDir::new(&*fd, buffer);
            let mut seen = 0;
            while let Some(entry) = entries.next() {
                entry.named("getdents64")?;
                seen += 1;
            }
            // "." and ".." are optional.
            match seen >= ENTRIES {
                true => Ok(()),
                false => Err(Fault::new("readdir: the directory ended too early")),
            }
        },
        clean: move |place: &Place| dir.remove(place),
    }))
}
