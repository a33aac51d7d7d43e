//! tmpfs: no device, no journal, the least that a file system can cost.

use super::{FileSystem, FsOption, Making, Value};

pub(super) struct Tmpfs;

impl FileSystem for Tmpfs {
    fn name(&self) -> &str {
        "tmpfs"
    }

    fn about(&self) -> &str {
        "memory only: what the virtual file system alone costs"
    }

    fn making(&self) -> Making<'_> {
        Making::InMemory
    }

    fn options(&self) -> &'static [FsOption] {
        &[
            FsOption {
                name: "inodes",
                value: Value::Count(0, u32::MAX as u64),
                help: "limit of inodes, 0 for none",
                apply: |v, plan| plan.mount("nr_inodes", Some(v)),
            },
            FsOption {
                name: "huge",
                value: Value::OneOf(&["never", "always", "within_size", "advise"]),
                help: "huge pages",
                apply: |v, plan| plan.mount("huge", Some(v)),
            },
        ]
    }
}
