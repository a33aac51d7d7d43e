//! A private place for intermediate files that leaves nothing behind.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, makedev, mknodat};

use crate::cleanup::Cleanup;
use crate::error::{Context, Error};
use crate::machine::Caps;
use crate::sys::mount;

/// A private place for intermediate files, such as compiled C files.
///
/// With CAP_SYS_ADMIN it is a tmpfs that no mount table shows and that vanishes with its last descriptor, whatever
/// becomes of the process. Without, it is a directory of mode 0700 that is removed when this is dropped; then
/// [`cleanup`](Self::cleanup) names what a SIGKILL would leave.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// The mount lives as long as this descriptor.
    mount: Option<OwnedFd>,
    cleanup: Cleanup,
}

impl Scratch {
    /// Makes one, of the better kind if this process may.
    ///
    /// # Errors
    /// [`Error::System`] or [`Error::Mount`] if neither kind can be made.
    pub fn new() -> Result<Self, Error> {
        if Caps::here().sys_admin { Self::detached() } else { Self::directory() }
    }

    fn detached() -> Result<Self, Error> {
        let options = [("mode".to_owned(), Some("0700".to_owned()))];
        let mount = mount::detached("tmpfs", None, &options)?;
        // Through our own number rather than `self`, so that the path works in programs that we start, too. The
        // number is the one that this /proc knows, which need not be ours in our PID namespace.
        let own = fs::read_link("/proc/self").context(|| "read /proc/self")?;
        let path = Path::new("/proc").join(own).join("fd").join(mount.as_raw_fd().to_string());
        Ok(Self { path, mount: Some(mount), cleanup: Cleanup::default() })
    }

    fn directory() -> Result<Self, Error> {
        let mut cleanup = Cleanup::default();
        let entry = cleanup.plan_in(&std::env::temp_dir())?;
        entry.create_directory(Mode::RWXU)?;
        Ok(Self { path: entry.path(), mount: None, cleanup })
    }

    /// Where it is. Valid in this process and in programs that it starts, while this lives and they see the same
    /// `/proc`; in a new PID namespace with a `/proc` of its own, use [`mount`](Self::mount).
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What would be left behind if this process were killed: nothing for the better kind.
    pub fn cleanup(&self) -> &Cleanup {
        &self.cleanup
    }

    /// Makes a device node in it.
    pub(crate) fn make_block_device(&self, name: &str, major: u32, minor: u32) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        mknodat(
            rustix::fs::CWD,
            &path,
            FileType::BlockDevice,
            Mode::RUSR | Mode::WUSR,
            makedev(major, minor),
        )
        .context(|| format!("make a node for block device {major}:{minor}"))?;
        Ok(path)
    }
}

impl Scratch {
    /// The better kind's root directory, which a forked process can use whatever it mounts; `None` for a directory.
    pub fn mount(&self) -> Option<BorrowedFd<'_>> {
        self.mount.as_ref().map(AsFd::as_fd)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.mount.is_none() {
            // Nobody is left to hear of a failure; the guard that holds our clean-up tries again.
            self.cleanup.run().ok();
        }
    }
}
