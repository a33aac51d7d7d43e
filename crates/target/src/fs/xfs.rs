//! XFS: allocation groups are what its metadata scales by.

use std::collections::BTreeMap;
use std::fs::File;

use super::{FileSystem, FsOption, Making, Value, be16, be32, read_at};

const MIB: u64 = 1 << 20;
/// mkfs.xfs refuses smaller allocation groups.
const LEAST_GROUP: u64 = 16 * MIB;

pub(super) struct Xfs;

impl FileSystem for Xfs {
    fn name(&self) -> &str {
        "xfs"
    }

    fn about(&self) -> &str {
        "XFS; agcount is the number of allocation groups (4 by default)"
    }

    fn making(&self) -> Making<'_> {
        Making::Mkfs {
            tool: "mkfs.xfs",
            package: "xfsprogs",
            always: &["-q"],
            force: &["-f"],
            version: "-V",
            least: 300 * MIB,
        }
    }

    fn options(&self) -> &'static [FsOption] {
        &[
            FsOption {
                name: "agcount",
                value: Value::Count(1, 1_000_000),
                help: "number of allocation groups",
                apply: |v, plan| plan.mkfs(&["-d", &format!("agcount={v}")]),
            },
            FsOption {
                name: "agsize",
                value: Value::Size,
                help: "size of an allocation group (instead of agcount)",
                apply: |v, plan| plan.mkfs(&["-d", &format!("agsize={v}")]),
            },
            FsOption {
                name: "inode-size",
                value: Value::Size,
                help: "size of an inode, 256 to 2048",
                apply: |v, plan| plan.mkfs(&["-i", &format!("size={v}")]),
            },
            FsOption {
                name: "block",
                value: Value::Size,
                help: "block size",
                apply: |v, plan| plan.mkfs(&["-b", &format!("size={v}")]),
            },
            FsOption {
                name: "dir-block",
                value: Value::Size,
                help: "block size of directories",
                apply: |v, plan| plan.mkfs(&["-n", &format!("size={v}")]),
            },
            FsOption {
                name: "log-size",
                value: Value::Size,
                help: "size of the journal",
                apply: |v, plan| plan.mkfs(&["-l", &format!("size={v}")]),
            },
            FsOption {
                name: "log-buffer",
                value: Value::Size,
                help: "size of an in-memory log buffer, 16k to 256k (mount option logbsize)",
                apply: |v, plan| plan.mount("logbsize", Some(v)),
            },
            FsOption {
                name: "finobt",
                value: Value::Switch,
                help: "index of free inodes",
                apply: |v, plan| plan.mkfs(&["-m", &format!("finobt={}", bit(v))]),
            },
            FsOption {
                name: "reflink",
                value: Value::Switch,
                help: "shared extents",
                apply: |v, plan| plan.mkfs(&["-m", &format!("reflink={}", bit(v))]),
            },
            FsOption {
                name: "rmapbt",
                value: Value::Switch,
                help: "index from blocks back to owners",
                apply: |v, plan| plan.mkfs(&["-m", &format!("rmapbt={}", bit(v))]),
            },
        ]
    }

    fn geometry(&self, image: &File) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        let Some(block) = read_at::<512>(image, 0).filter(|block| block.starts_with(b"XFSB")) else {
            return facts;
        };
        let fields = [
            ("agcount", be32(&block, 88)),
            ("agblocks", be32(&block, 84)),
            ("block", be32(&block, 4)),
            ("logblocks", be32(&block, 96)),
            ("sector", be16(&block, 102).map(u32::from)),
            ("inode-size", be16(&block, 104).map(u32::from)),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                facts.insert(name.to_owned(), value.to_string());
            }
        }
        facts
    }

    fn remedies(&self, size: u64, tasks: u32) -> Vec<(Vec<(&'static str, String)>, String)> {
        // Twice as many as tasks, and as mkfs makes on a small image, as far as they fit: each needs at least 16 MiB.
        let groups = (u64::from(tasks) * 2).max(8).min(size / LEAST_GROUP);
        if groups <= 4 {
            return Vec::new();
        }
        vec![(
            vec![("agcount", groups.to_string())],
            format!(
                "{groups} allocation groups for {tasks} tasks: each group has its own inode and space locks"
            ),
        )]
    }
}

fn bit(switch: &str) -> u8 {
    u8::from(switch == "on")
}
