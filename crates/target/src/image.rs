//! What a file system is made on: an image in memory, an unlinked file on a disk, or a block device.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, MemfdFlags, Mode, OFlags, ftruncate, memfd_create, openat, statvfs};
use rustix::io::Errno;

use crate::cleanup::{Cleanup, reason};
use crate::error::{Error, shown};
use crate::machine;
use crate::sys::{block, loopdev};
use crate::{DEFAULT_SIZE, Settings};

/// A block device to make a file system on.
pub(crate) struct Ground {
    /// Keeps the device (and so the image) until a mount does.
    pub file: File,
    pub path: PathBuf,
    pub size: u64,
    pub medium: Medium,
    pub direct_io: bool,
    _loop: Option<loopdev::LoopDevice>,
}

/// Where the bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Medium {
    Memory,
    Directory(PathBuf),
    Device(PathBuf),
}

impl Ground {
    pub fn device(path: &Path, settings: &Settings) -> Result<Self, Error> {
        let (file, size) = block::claim(path, settings.allow_format, settings.force_format)?;
        // mkfs and the mount take exclusive access themselves.
        let shared = File::options().read(true).write(true).open(path);
        drop(file);
        let file = shared.map_err(|error| Error::device(path, error.to_string()))?;
        let medium = Medium::Device(path.to_owned());
        Ok(Self { file, path: path.to_owned(), size, medium, direct_io: false, _loop: None })
    }

    pub fn image(
        fs: &str,
        wanted: Option<u64>,
        least: u64,
        settings: &Settings,
        cleanup: &Cleanup,
    ) -> Result<Self, Error> {
        let size = size(fs, wanted, least, settings)?;
        let (file, medium) = match &settings.medium {
            None => {
                let file = memfd_create(format!("perfloss-{fs}"), MemfdFlags::CLOEXEC)
                    .map_err(|errno| Error::system("make an image in memory", errno))?;
                (File::from(file), Medium::Memory)
            }
            Some(directory) => (unnamed_file(directory, cleanup)?, Medium::Directory(directory.clone())),
        };
        ftruncate(&file, size)
            .map_err(|errno| Error::system(format!("make an image of {size} bytes"), errno))?;
        let device = loopdev::attach(file.as_fd(), medium != Medium::Memory)?;
        let shared =
            device.file.try_clone().map_err(|error| Error::system("duplicate a descriptor", error))?;
        Ok(Self {
            file: shared,
            path: device.path.clone(),
            size,
            medium,
            direct_io: device.direct_io,
            _loop: Some(device),
        })
    }
}

/// Decides the size of an image, or says what is missing. It is sparse: it takes only what is written to it.
pub(crate) fn size(fs: &str, wanted: Option<u64>, least: u64, settings: &Settings) -> Result<u64, Error> {
    const MIB: u64 = 1 << 20;
    let (free, place, way_out) = match &settings.medium {
        None => (
            machine::available_memory(),
            "memory".to_owned(),
            "give a smaller size=, or a disk with --medium DIR",
        ),
        Some(directory) => {
            let stat = statvfs(directory)
                .map_err(|errno| Error::directory(directory, reason(&io::Error::from(errno))))?;
            (stat.f_bavail * stat.f_frsize, shown(directory), "give a smaller size=, or another --medium DIR")
        }
    };
    let needed = wanted.or(settings.size).unwrap_or_else(|| default_size(free).max(least));
    if needed > free {
        let what = format!("{fs}'s image");
        return Err(Error::Space { what, place, needed, free, way_out: way_out.to_owned() });
    }
    Ok(needed.div_ceil(MIB) * MIB)
}

/// Half of what is free, at most [`DEFAULT_SIZE`]. A power of two, so that all targets of a run get the same although
/// each of them takes a little.
fn default_size(free: u64) -> u64 {
    (free / 2).checked_ilog2().map_or(0, |log| DEFAULT_SIZE.min(1 << log))
}

/// A file without a name in a directory of the machine.
fn unnamed_file(directory: &Path, cleanup: &Cleanup) -> Result<File, Error> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    match openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        // The file system below cannot make files without a name; kernels that do not know the flag see a directory.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => cleanup.entry_in(directory)?.create_unlinked_file(),
        Err(errno) => Err(Error::directory(directory, reason(&io::Error::from(errno)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_one_run_have_the_same_size_though_memory_shrinks() {
        assert_eq!(default_size(64 << 30), DEFAULT_SIZE);
        assert_eq!(default_size(7_900 << 20), 2 << 30);
        assert_eq!(default_size(7_000 << 20), 2 << 30);
        assert_eq!(default_size(0), 0);
    }
}
