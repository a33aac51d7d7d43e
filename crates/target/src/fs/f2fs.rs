//! F2FS: a log-structured file system for flash.

use super::{FileSystem, FsOption, Making, Value};

pub(super) struct F2fs;

impl FileSystem for F2fs {
    fn name(&self) -> &str {
        "f2fs"
    }

    fn about(&self) -> &str {
        "F2FS, log-structured"
    }

    fn making(&self) -> Making<'_> {
        Making::Mkfs {
            tool: "mkfs.f2fs",
            package: "f2fs-tools",
            always: &["-q"],
            force: &["-f"],
            version: "-V",
            least: 64 << 20,
        }
    }

    fn options(&self) -> &'static [FsOption] {
        &[
            FsOption {
                name: "section",
                value: Value::Count(1, 1024),
                help: "segments in a section",
                apply: |v, plan| plan.mkfs(&["-s", v]),
            },
            FsOption {
                name: "logs",
                value: Value::OneOf(&["2", "4", "6"]),
                help: "logs that are written at the same time (mount option active_logs)",
                apply: |v, plan| plan.mount("active_logs", Some(v)),
            },
        ]
    }
}
