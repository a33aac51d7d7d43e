//! Loop devices that vanish with their last user.

use std::ffi::c_ulong;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error};
use crate::scratch::Scratch;

const CONTROL: &str = "/dev/loop-control";
const LOOP_CTL_GET_FREE: c_ulong = 0x4C82;
const LOOP_CONFIGURE: c_ulong = 0x4C0A;
const LOOP_GET_STATUS64: c_ulong = 0x4C05;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;
const LOOP_MAJOR: u32 = 7;

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// A loop device that is ours as long as this lives and, by autoclear, as long as something is mounted from it.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    pub file: File,
    pub path: PathBuf,
    /// Whether requests pass the page cache of the image's file system by.
    pub direct_io: bool,
    /// Holds the device node where `/dev` has none.
    _node: Option<Scratch>,
}

/// Attaches a file to a free loop device. `direct_io` is asked for, not enforced.
pub(crate) fn attach(backing: BorrowedFd<'_>, direct_io: bool) -> Result<LoopDevice, Error> {
    let control =
        OpenOptions::new().read(true).write(true).open(CONTROL).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Mount {
                what: "an image".to_owned(),
                reason: format!("{CONTROL} is missing: try `modprobe loop`, or take tmpfs or a directory"),
            },
            _ => Error::system(format!("open {CONTROL}"), error),
        })?;
    // Somebody else may take the free device first; then there is another one.
    const ATTEMPTS: u32 = 64;
    let mut flags = LO_FLAGS_AUTOCLEAR | if direct_io { LO_FLAGS_DIRECT_IO } else { 0 };
    for _ in 0..ATTEMPTS {
        let number = free_device(&control)?;
        let (file, path, node) = open_device(number)?;
        match configure(&file, backing, flags) {
            Ok(()) => {
                let direct_io = status(&file).context(|| format!("ask {} what it is", path.display()))?
                    & LO_FLAGS_DIRECT_IO
                    != 0;
                return Ok(LoopDevice { file, path, direct_io, _node: node });
            }
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && flags & LO_FLAGS_DIRECT_IO != 0 => {
                flags &= !LO_FLAGS_DIRECT_IO;
            }
            Err(error) => {
                return Err(Error::system(format!("attach the image to {}", path.display()), error));
            }
        }
    }
    Err(Error::system("find a free loop device", io::Error::from_raw_os_error(libc::EBUSY)))
}

fn free_device(control: &File) -> Result<u32, Error> {
    // SAFETY: this request takes no argument; the descriptor is open.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    u32::try_from(number).map_err(|_| Error::system("get a free loop device", io::Error::last_os_error()))
}

fn open_device(number: u32) -> Result<(File, PathBuf, Option<Scratch>), Error> {
    let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
    let usual = PathBuf::from(format!("/dev/loop{number}"));
    match open(&usual) {
        Ok(file) => Ok((file, usual, None)),
        // A container's /dev is often a copy from the time of its start: newer devices are not in it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let scratch = Scratch::new()?;
            let path = scratch.make_block_device(&format!("loop{number}"), LOOP_MAJOR, number)?;
            let file =
                open(&path).context(|| format!("open loop device {number}, which has no node in /dev"))?;
            Ok((file, path, Some(scratch)))
        }
        Err(error) => Err(Error::system(format!("open {}", usual.display()), error)),
    }
}

fn configure(device: &File, backing: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    // SAFETY: all fields are integers or arrays of them, for which zero is a valid value.
    let mut config: LoopConfig = unsafe { mem::zeroed() };
    config.fd = backing.as_raw_fd().cast_unsigned();
    config.info.flags = flags;
    // SAFETY: the request reads a `struct loop_config`, which `config` is; both descriptors are open.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn status(device: &File) -> io::Result<u32> {
    // SAFETY: as above: zero is valid for every field.
    let mut info: LoopInfo = unsafe { mem::zeroed() };
    // SAFETY: the request writes a `struct loop_info64`, which `info` is; the descriptor is open.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
    if result == 0 { Ok(info.flags) } else { Err(io::Error::last_os_error()) }
}

/// Whether this is a block device.
pub(crate) fn is_block_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.file_type().is_block_device())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_kernels_sizes() {
        assert_eq!(mem::size_of::<LoopInfo>(), 232);
        assert_eq!(mem::size_of::<LoopConfig>(), 304);
    }
}
