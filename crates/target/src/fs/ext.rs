//! ext4 and its ancestors, all made by mke2fs.

use std::collections::BTreeMap;
use std::fs::File;

use super::{FileSystem, FsOption, Making, Value, le16, le32, read_at};

const HAS_JOURNAL: u32 = 0x4;

pub(super) struct Ext {
    name: &'static str,
    tool: &'static str,
    about: &'static str,
}

impl Ext {
    pub fn four() -> Self {
        Self { name: "ext4", tool: "mkfs.ext4", about: "ext4; journal=off shows what the journal costs" }
    }

    pub fn three() -> Self {
        Self { name: "ext3", tool: "mkfs.ext3", about: "ext3, usually run by the kernel's ext4" }
    }

    pub fn two() -> Self {
        Self { name: "ext2", tool: "mkfs.ext2", about: "ext2, without a journal" }
    }
}

impl FileSystem for Ext {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> &str {
        self.about
    }

    fn making(&self) -> Making<'_> {
        Making::Mkfs {
            tool: self.tool,
            package: "e2fsprogs",
            // It asks a question otherwise when the device is not a partition.
            always: &["-q", "-F"],
            force: &["-F"],
            version: "-V",
            least: 8 << 20,
        }
    }

    fn options(&self) -> &'static [FsOption] {
        const OPTIONS: &[FsOption] = &[
            FsOption {
                name: "journal",
                value: Value::Switch,
                help: "journal of metadata",
                apply: |v, plan| plan.mkfs(&["-O", if v == "on" { "has_journal" } else { "^has_journal" }]),
            },
            FsOption {
                name: "journal-size",
                value: Value::Size,
                help: "size of the journal, in whole MiB",
                apply: |v, plan| plan.mkfs(&["-J", &format!("size={}", mebibytes(v))]),
            },
            FsOption {
                name: "fast-commit",
                value: Value::Switch,
                help: "short commits for fsync (ext4)",
                apply: |v, plan| plan.mkfs(&["-O", if v == "on" { "fast_commit" } else { "^fast_commit" }]),
            },
            FsOption {
                name: "inode-size",
                value: Value::Size,
                help: "size of an inode, 128 to the block size",
                apply: |v, plan| plan.mkfs(&["-I", v]),
            },
            FsOption {
                name: "inodes",
                value: Value::Count(16, u32::MAX as u64),
                help: "number of inodes",
                apply: |v, plan| plan.mkfs(&["-N", v]),
            },
            FsOption {
                name: "block",
                value: Value::Size,
                help: "block size, 1k, 2k or 4k",
                apply: |v, plan| plan.mkfs(&["-b", v]),
            },
            FsOption {
                name: "data",
                value: Value::OneOf(&["ordered", "writeback", "journal"]),
                help: "what the journal does about data",
                apply: |v, plan| plan.mount("data", Some(v)),
            },
        ];
        OPTIONS
    }

    fn adjust(&self, mkfs: &mut Vec<String>) {
        // A kernel thread would otherwise initialise inode tables for minutes, while we measure.
        mkfs.splice(0..0, ["-E".to_owned(), "lazy_itable_init=0,lazy_journal_init=0".to_owned()]);
        // mke2fs heeds only the last of these.
        for letter in ["-E", "-O", "-J"] {
            merge(mkfs, letter);
        }
    }

    fn geometry(&self, image: &File) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        let Some(block) = read_at::<1024>(image, 1024).filter(|block| le16(block, 56) == Some(0xEF53)) else {
            return facts;
        };
        let mut add = |name: &str, value: Option<u64>| {
            if let Some(value) = value {
                facts.insert(name.to_owned(), value.to_string());
            }
        };
        add("inodes", le32(&block, 0).map(u64::from));
        add("block", le32(&block, 24).map(|log| 1024_u64 << log.min(16)));
        add("inodes-per-group", le32(&block, 40).map(u64::from));
        add("inode-size", le16(&block, 88).map(u64::from));
        if let Some(features) = le32(&block, 92) {
            let journal = if features & HAS_JOURNAL == 0 { "off" } else { "on" };
            facts.insert("journal".to_owned(), journal.to_owned());
        }
        facts
    }

    fn remedies(&self, _size: u64, _tasks: u32) -> Vec<(Vec<(&'static str, String)>, String)> {
        if self.name == "ext2" {
            return Vec::new();
        }
        vec![(
            vec![("journal", "off".to_owned())],
            "without the journal: shows what its commits and its lock cost".to_owned(),
        )]
    }
}

/// Joins the values of a repeated argument with commas, in the place of the last one.
fn merge(words: &mut Vec<String>, letter: &str) {
    let mut values = Vec::new();
    while let Some(at) = words.iter().position(|word| word == letter).filter(|at| at + 1 < words.len()) {
        values.push(words.remove(at + 1));
        words.remove(at);
    }
    if !values.is_empty() {
        words.extend([letter.to_owned(), values.join(",")]);
    }
}

fn mebibytes(bytes: &str) -> u64 {
    bytes.parse::<u64>().unwrap_or(0).div_ceil(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_arguments_are_merged_because_mke2fs_heeds_only_the_last() {
        let mut words: Vec<String> = ["-O", "^has_journal", "-b", "4096", "-E", "stride=4", "-O", "bigalloc"]
            .map(str::to_owned)
            .into();
        Ext::four().adjust(&mut words);
        assert_eq!(
            words,
            [
                "-b",
                "4096",
                "-E",
                "lazy_itable_init=0,lazy_journal_init=0,stride=4",
                "-O",
                "^has_journal,bigalloc"
            ]
        );
    }

    #[test]
    fn an_argument_without_its_value_is_left_for_mke2fs_to_refuse() {
        let mut words = vec!["-O".to_owned()];
        Ext::four().adjust(&mut words);
        assert!(words.contains(&"-O".to_owned()));
    }
}
