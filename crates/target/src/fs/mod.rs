//! The file systems that can be made for a run: one file each behind [`FileSystem`], listed in [`ALL`].

mod btrfs;
mod ext;
mod f2fs;
mod other;
mod tmpfs;
mod xfs;

use std::collections::BTreeMap;
use std::fs::File;

use crate::error::Error;
use crate::size;

/// What perfloss knows about one file system.
pub(crate) trait FileSystem {
    /// The name in `--on`, and the kernel's name for it.
    fn name(&self) -> &str;
    /// One line for `perfloss list`.
    fn about(&self) -> &str;
    /// How it comes into being.
    fn making(&self) -> Making<'_>;
    /// The friendly options, beside the common ones ([`COMMON`], [`COMMON_BLOCK`]).
    fn options(&self) -> &'static [FsOption];
    /// A last look at mkfs's arguments, after all options were applied.
    fn adjust(&self, _mkfs: &mut Vec<String>) {}
    /// Facts read back from the superblock of what was made; nothing where the format is not known.
    fn geometry(&self, _image: &File) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    /// Variants that may win back a loss with this many tasks: options to set, and why.
    fn remedies(&self, _size: u64, _tasks: u32) -> Vec<(Vec<(&'static str, String)>, String)> {
        Vec::new()
    }
}

/// How a file system comes into being.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Making<'a> {
    /// By mounting it.
    InMemory,
    /// By a program that formats a block device.
    Mkfs {
        /// The program.
        tool: &'a str,
        /// The Debian package that brings it.
        package: &'a str,
        /// Arguments that are always given.
        always: &'a [&'a str],
        /// Arguments that make it overwrite what is there.
        force: &'a [&'a str],
        /// The argument that makes it print its version.
        version: &'a str,
        /// Bytes below which it cannot work.
        least: u64,
    },
}

/// One friendly option of a file system.
pub(crate) struct FsOption {
    pub name: &'static str,
    pub value: Value,
    pub help: &'static str,
    pub apply: fn(&str, &mut Plan),
}

/// What an option accepts.
pub(crate) enum Value {
    /// A whole number in this range.
    Count(u64, u64),
    /// A number of bytes, as `512`, `64k`, `2G`; handed on in bytes.
    Size,
    /// `on` or `off`.
    Switch,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Any text that is not empty.
    Text(&'static str),
}

impl Value {
    /// Checks a value and brings it into the form that [`FsOption::apply`] takes.
    pub fn normal(&self, text: &str) -> Option<String> {
        match self {
            Self::Count(low, high) => {
                text.parse::<u64>().ok().filter(|n| (low..=high).contains(&n)).map(|n| n.to_string())
            }
            Self::Size => size::parse(text).filter(|&n| n > 0).map(|n| n.to_string()),
            Self::Switch => matches!(text, "on" | "off").then(|| text.to_owned()),
            Self::OneOf(words) => words.contains(&text).then(|| text.to_owned()),
            Self::Text(_) => (!text.is_empty()).then(|| text.to_owned()),
        }
    }

    /// What is accepted, for people.
    pub fn wanted(&self) -> String {
        match self {
            Self::Count(low, high) if *high == u64::from(u32::MAX) => format!("a number from {low}"),
            Self::Count(low, high) => format!("a number from {low} to {high}"),
            Self::Size => "a size such as 64k, 512M or 4G".to_owned(),
            Self::Switch => "on or off".to_owned(),
            Self::OneOf(words) => words.join(" or "),
            Self::Text(what) => (*what).to_owned(),
        }
    }
}

/// What a target's options come to.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Arguments for mkfs.
    pub mkfs: Vec<String>,
    /// Mount options, each with its value if it has one.
    pub mount: Vec<(String, Option<String>)>,
    /// Size of the image in bytes.
    pub size: Option<u64>,
    /// The block device to format instead of an image.
    pub device: Option<String>,
}

impl Plan {
    pub fn mkfs(&mut self, words: &[&str]) {
        self.mkfs.extend(words.iter().map(|&word| word.to_owned()));
    }

    pub fn mount(&mut self, name: &str, value: Option<&str>) {
        self.mount.push((name.to_owned(), value.map(str::to_owned)));
    }
}

/// Options of every file system.
pub(crate) const COMMON: &[FsOption] = &[
    FsOption {
        name: "size",
        value: Value::Size,
        help: "size of the image or, for tmpfs, its limit (default 4G, less where there is less)",
        apply: |value, plan| plan.size = value.parse().ok(),
    },
    FsOption {
        name: "mount",
        value: Value::Text("mount options, separated by commas (in quotes)"),
        help: "raw mount options",
        apply: |value, plan| {
            for word in value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
                match word.split_once('=') {
                    Some((name, value)) => plan.mount(name, Some(value)),
                    None => plan.mount(word, None),
                }
            }
        },
    },
];

/// Options of every file system on a block device.
pub(crate) const COMMON_BLOCK: &[FsOption] = &[
    FsOption {
        name: "mkfs",
        value: Value::Text("arguments for mkfs, separated by spaces"),
        help: "raw arguments for mkfs, split at spaces and never seen by a shell",
        apply: |value, plan| plan.mkfs.extend(value.split_whitespace().map(str::to_owned)),
    },
    FsOption {
        name: "device",
        value: Value::Text("the path of a block device"),
        help: "format this block device instead of an image; only with the flag that allows it",
        apply: |value, plan| plan.device = Some(value.to_owned()),
    },
];

/// Every file system that is known by name. To add one: a file beside this one, and a line here.
const ALL: &[fn() -> Box<dyn FileSystem>] = &[
    || Box::new(xfs::Xfs),
    || Box::new(ext::Ext::four()),
    || Box::new(btrfs::Btrfs),
    || Box::new(tmpfs::Tmpfs),
    || Box::new(f2fs::F2fs),
    || Box::new(ext::Ext::three()),
    || Box::new(ext::Ext::two()),
    || Box::new(other::Other::packaged("bcachefs", "bcachefs-tools")),
    || Box::new(other::Other::packaged("jfs", "jfsutils")),
    || Box::new(other::Other::packaged("nilfs2", "nilfs-tools")),
];

/// All file systems that are known by name.
pub(crate) fn all() -> impl Iterator<Item = Box<dyn FileSystem>> {
    ALL.iter().map(|make| make())
}

/// The file system of this name. A name that is not listed is accepted where the kernel has the file system and a
/// `mkfs.NAME` is installed.
pub(crate) fn lookup(name: &str) -> Result<Box<dyn FileSystem>, Error> {
    if let Some(found) = all().find(|fs| fs.name() == name) {
        return Ok(found);
    }
    if let Some(found) = other::Other::installed(name) {
        return Ok(Box::new(found));
    }
    let names: Vec<String> = all().map(|fs| fs.name().to_owned()).collect();
    Err(Error::UnknownName {
        name: name.to_owned(),
        nearest: nearest(name, names.iter()),
        known: names.join(", "),
    })
}

/// The options of a file system, the common ones last.
pub(crate) fn options_of(fs: &dyn FileSystem) -> impl Iterator<Item = &'static FsOption> {
    let block = if fs.making() == Making::InMemory { &[][..] } else { COMMON_BLOCK };
    fs.options().iter().chain(COMMON).chain(block)
}

/// The option of this name, or an error that lists what there is.
pub(crate) fn option_of(fs: &dyn FileSystem, name: &str) -> Result<&'static FsOption, Error> {
    if let Some(found) = options_of(fs).find(|option| option.name == name) {
        return Ok(found);
    }
    let names: Vec<&str> = options_of(fs).map(|option| option.name).collect();
    Err(Error::UnknownOption {
        fs: fs.name().to_owned(),
        option: name.to_owned(),
        nearest: nearest(name, names.iter()),
        known: names.join(", "),
    })
}

/// The known name closest to `name`, if it is close enough to be a slip of the fingers.
fn nearest<S: AsRef<str>>(name: &str, known: impl Iterator<Item = S>) -> Option<String> {
    let allowed = if name.chars().count() <= 3 { 1 } else { 2 };
    known
        .map(|candidate| (strsim::osa_distance(name, candidate.as_ref()), candidate.as_ref().to_owned()))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Reads `N` bytes at an offset of an image.
fn read_at<const N: usize>(image: &File, offset: u64) -> Option<[u8; N]> {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; N];
    image.read_exact_at(&mut bytes, offset).ok().map(|()| bytes)
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_finds_the_name_that_was_meant() {
        let names = ["xfs", "ext4", "btrfs", "tmpfs"];
        let near = |name| nearest(name, names.iter());
        assert_eq!(near("xsf").as_deref(), Some("xfs"));
        assert_eq!(near("brtfs").as_deref(), Some("btrfs"));
        assert_eq!(near("ext5").as_deref(), Some("ext4"));
        assert_eq!(near("zfsroot"), None);
    }

    #[test]
    fn names_and_option_names_are_unique() {
        let mut names: Vec<String> = all().map(|fs| fs.name().to_owned()).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        for fs in all() {
            let mut options: Vec<&str> = options_of(&*fs).map(|option| option.name).collect();
            options.sort_unstable();
            let count = options.len();
            options.dedup();
            assert_eq!(options.len(), count, "{}", fs.name());
        }
    }
}
