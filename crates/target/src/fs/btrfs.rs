//! Btrfs: every change goes through copy-on-write trees.

use std::collections::BTreeMap;
use std::fs::File;

use super::{FileSystem, FsOption, Making, Value, le32, read_at};

pub(super) struct Btrfs;

impl FileSystem for Btrfs {
    fn name(&self) -> &str {
        "btrfs"
    }

    fn about(&self) -> &str {
        "Btrfs; nodesize sets the fan-out of its trees"
    }

    fn making(&self) -> Making<'_> {
        Making::Mkfs {
            tool: "mkfs.btrfs",
            package: "btrfs-progs",
            always: &["-q"],
            force: &["-f"],
            version: "-V",
            least: 128 << 20,
        }
    }

    fn options(&self) -> &'static [FsOption] {
        &[
            FsOption {
                name: "nodesize",
                value: Value::Size,
                help: "size of a tree node, up to 64k",
                apply: |v, plan| plan.mkfs(&["-n", v]),
            },
            FsOption {
                name: "sectorsize",
                value: Value::Size,
                help: "size of a data block",
                apply: |v, plan| plan.mkfs(&["-s", v]),
            },
            FsOption {
                name: "metadata",
                value: Value::OneOf(&["single", "dup"]),
                help: "copies of the metadata",
                apply: |v, plan| plan.mkfs(&["-m", v]),
            },
            FsOption {
                name: "checksum",
                value: Value::OneOf(&["crc32c", "xxhash", "sha256", "blake2"]),
                help: "checksum algorithm",
                apply: |v, plan| plan.mkfs(&["--csum", v]),
            },
            FsOption {
                name: "compress",
                value: Value::OneOf(&["zlib", "lzo", "zstd", "no"]),
                help: "compression of data",
                apply: |v, plan| plan.mount("compress", Some(v)),
            },
            FsOption {
                name: "cow",
                value: Value::Switch,
                help: "copy-on-write of file data",
                apply: |v, plan| plan.mount(if v == "on" { "datacow" } else { "nodatacow" }, None),
            },
        ]
    }

    fn geometry(&self, image: &File) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        let Some(block) = read_at::<4096>(image, 65536).filter(|block| block[64..72] == *b"_BHRfS_M") else {
            return facts;
        };
        for (name, at) in [("sectorsize", 144), ("nodesize", 148)] {
            if let Some(value) = le32(&block, at) {
                facts.insert(name.to_owned(), value.to_string());
            }
        }
        facts
    }
}
