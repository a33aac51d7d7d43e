//! What a result has to record about the place where a workload ran.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sys::mountinfo::Mount;

/// What a result has to record about the place where a workload ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The target as it was named.
    pub target: String,
    /// The kernel's name of the file system.
    pub fs_type: String,
    /// The options as in `/proc/self/mountinfo`: those of the mount, then those of the file system.
    pub mount_options: String,
    /// The mounted source as in `/proc/self/mountinfo`, such as `/dev/loop0`.
    pub device: String,
    /// The device number as `major:minor`, as tracepoints show it.
    pub device_number: String,
    /// The mkfs command line, for people; `None` where nothing was formatted.
    pub mkfs: Option<String>,
    /// The version that mkfs printed.
    pub mkfs_version: Option<String>,
    /// Where the bytes are: `memory`, `directory PATH`, `device PATH`; `None` for an existing directory.
    pub medium: Option<String>,
    /// Size of the image or the device in bytes.
    pub image_size: Option<u64>,
    /// Whether the loop device passes the page cache of the medium by.
    pub direct_io: Option<bool>,
    /// Read back from what was made: `agcount`, `inode-size`, `journal`, … by file system.
    pub geometry: BTreeMap<String, String>,
    /// For an overlay: the file system that its directories are on.
    pub below: Option<Box<Facts>>,
    /// What differs from the machine inside of the run, for people.
    pub notes: Vec<String>,
}

impl Facts {
    pub(crate) fn mounted(&mut self, mount: Mount) {
        self.fs_type = mount.fs_type;
        self.mount_options = mount.options;
        self.device = mount.source;
        self.device_number = mount.device_number;
    }
}
