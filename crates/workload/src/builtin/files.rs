//! Reading and writing files: the data operations of will-it-scale and FxMark.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;

use rustix::fs::FallocateFlags;
use rustix::io::{pread, pwrite};

use super::place::{remove_file, task_file};
use super::{BuiltIn, Looped};
use crate::failure::{Fault, Named};
use crate::{Failure, Place, Prepared};

/// Bytes of one read or write.
const BLOCK: usize = 4096;

/// Bytes of the files that are read or written in place.
const FILE: usize = 1 << 20;

/// Bytes of the allocated and truncated range.
const RANGE: u64 = 128 << 20;

pub(super) const ALL: &[BuiltIn] = &[
    BuiltIn::new("pread", "pread of 4 KiB at offset 0 of the task's own file", |place| {
        looped(place, Files::Own, FILE, read_first)
    }),
    BuiltIn::new(
        "pread:same-file",
        "pread of 4 KiB at offset 0 of one file, which each task has open for itself",
        |place| looped(place, Files::Same, FILE, read_first),
    ),
    BuiltIn::new("pwrite", "pwrite of 4 KiB at offset 0 of the task's own file", |place| {
        looped(place, Files::Own, FILE, write_first)
    }),
    BuiltIn::new(
        "pwrite:same-file",
        "pwrite of 4 KiB to the task's own block of one file, which each task has open for itself",
        |place| looped(place, Files::Same, FILE, write_own_block),
    ),
    BuiltIn::new(
        "append",
        "write of 4 KiB to the end of the task's own file; every 256th operation truncates it to nothing first",
        |place| looped(place, Files::Own, 0, append),
    ),
    BuiltIn::new(
        "append_fsync",
        "write of 4 KiB to the end of the task's own file and fsync; every 256th operation truncates it to nothing first",
        |place| {
            looped(place, Files::Own, 0, |own| {
                append(own)?;
                rustix::fs::fsync(&own.fd).named("fsync")
            })
        },
    ),
    BuiltIn::new("fsync", "pwrite of 4 KiB at offset 0 of the task's own file and fsync", |place| {
        looped(place, Files::Own, FILE, |own| {
            write_first(own)?;
            rustix::fs::fsync(&own.fd).named("fsync")
        })
    }),
    BuiltIn::new(
        "fallocate",
        "fallocate of 128 MiB in the task's own, empty file, and ftruncate to nothing",
        |place| {
            looped(place, Files::Own, 0, |own| {
                rustix::fs::fallocate(&own.fd, FallocateFlags::empty(), 0, RANGE).named("fallocate")?;
                rustix::fs::ftruncate(&own.fd, 0).named("ftruncate")
            })
        },
    ),
    BuiltIn::new(
        "ftruncate",
        "ftruncate of the task's own file to 128 MiB (a hole), and to nothing",
        |place| {
            looped(place, Files::Own, 0, |own| {
                rustix::fs::ftruncate(&own.fd, RANGE).named("ftruncate")?;
                rustix::fs::ftruncate(&own.fd, 0).named("ftruncate")
            })
        },
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Files {
    /// One file a task.
    Own,
    /// One file for all.
    Same,
}

/// What a task has.
struct Own {
    fd: OwnedFd,
    buffer: Box<[u8; BLOCK]>,
    /// The task's own block of a shared file.
    block: u64,
    /// Operations until the file is truncated.
    left: u32,
}

fn all_of(moved: usize, fault: &'static str) -> Result<(), Fault> {
    match moved {
        BLOCK => Ok(()),
        _ => Err(Fault::new(fault)),
    }
}

fn read_first(own: &mut Own) -> Result<(), Fault> {
    let got = pread(&own.fd, &mut own.buffer[..], 0).named("pread")?;
    all_of(got, "pread: fewer bytes than asked for")
}

fn write_first(own: &mut Own) -> Result<(), Fault> {
    let put = pwrite(&own.fd, &own.buffer[..], 0).named("pwrite")?;
    all_of(put, "pwrite: fewer bytes than asked for")
}

fn write_own_block(own: &mut Own) -> Result<(), Fault> {
    let put = pwrite(&own.fd, &own.buffer[..], own.block).named("pwrite")?;
    all_of(put, "pwrite: fewer bytes than asked for")
}

fn append(own: &mut Own) -> Result<(), Fault> {
    if own.left == 0 {
        rustix::fs::ftruncate(&own.fd, 0).named("ftruncate")?;
        own.left = 256;
        own.block = 0;
    }
    own.left -= 1;
    let put = pwrite(&own.fd, &own.buffer[..], own.block).named("write")?;
    own.block += BLOCK as u64;
    all_of(put, "write: fewer bytes than asked for")
}

fn looped<Op>(place: &Place, files: Files, size: usize, op: Op) -> Result<Box<dyn Prepared>, Failure>
where
    Op: Fn(&mut Own) -> Result<(), Fault> + Send + Sync + 'static,
{
    let number = move |task: u32| match files {
        Files::Own => task,
        Files::Same => 0,
    };
    let made = match files {
        Files::Own => place.tasks,
        Files::Same => 1,
    };
    for task in 0..made {
        let path = task_file(place, task);
        std::fs::write(&path, vec![b'p'; size])
            .map_err(|e| Failure::new("cannot write a file").on(&path).io(&e))?;
    }
    Ok(Box::new(Looped {
        shared: place.clone(),
        begin: move |place: &Place, task| {
            let path = task_file(place, number(task));
            let opened: std::io::Result<File> = OpenOptions::new().read(true).write(true).open(&path);
            let file = opened.map_err(|e| Failure::new("open").on(&path).io(&e))?;
            Ok(Own {
                fd: file.into(),
                buffer: Box::new([b'w'; BLOCK]),
                block: u64::from(task) * BLOCK as u64 * u64::from(size != 0),
                left: 0,
            })
        },
        op,
        clean: move |place: &Place| (0..made).try_for_each(|task| remove_file(&task_file(place, task))),
    }))
}
