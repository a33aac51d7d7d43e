//! File systems that are made with plain `mkfs.NAME DEVICE` and have no friendly options.

use super::{FileSystem, FsOption, Making};
use crate::{machine, tool};

pub(super) struct Other {
    name: String,
    tool: String,
    package: String,
}

impl Other {
    /// One whose Debian package is known.
    pub fn packaged(name: &str, package: &str) -> Self {
        Self { name: name.to_owned(), tool: format!("mkfs.{name}"), package: package.to_owned() }
    }

    /// One that is not listed, but that the kernel has on block devices and that a `mkfs.NAME` can make.
    pub fn installed(name: &str) -> Option<Self> {
        let simple = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let usable = simple
            && machine::kernel_file_systems().iter().any(|fs| fs.on_device && fs.name == name)
            && tool::find(&format!("mkfs.{name}")).is_some();
        usable.then(|| Self::packaged(name, &format!("the package that has mkfs.{name}")))
    }
}

impl FileSystem for Other {
    fn name(&self) -> &str {
        &self.name
    }

    fn about(&self) -> &str {
        "made with mkfs's own defaults"
    }

    fn making(&self) -> Making<'_> {
        Making::Mkfs {
            tool: &self.tool,
            package: &self.package,
            always: &[],
            force: &[],
            version: "-V",
            least: 16 << 20,
        }
    }

    fn options(&self) -> &'static [FsOption] {
        &[]
    }
}
