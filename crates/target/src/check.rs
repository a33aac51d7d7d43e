//! Whether a target is possible here, found out before anything runs.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statvfs, unlinkat};
use rustix::io::Errno;

use crate::cleanup::{Cleanup, reason};
use crate::error::Error;
use crate::fs::{self, FileSystem, Making};
use crate::machine::{self, Caps};
use crate::spec::{Base, Made, Spec};
use crate::sys::block;
use crate::{Settings, image, tool};

/// Free bytes below which a directory is refused: compilers and test files need room.
const LEAST_FREE: u64 = 64 << 20;

impl Spec {
    /// Whether this target can be made here: kernel, tools, capabilities, directory, space. Leaves nothing behind.
    ///
    /// # Errors
    /// The first thing that is missing, with the way to get it.
    pub fn check(&self, caps: Caps, settings: &Settings) -> Result<(), Error> {
        match self.base() {
            Base::Directory(path) => directory(path)?,
            Base::Made(made) => {
                let fs = fs::lookup(made.fs_name())?;
                installed(&*fs)?;
                allowed(&*fs, caps, &self.to_string())?;
                making(made, &*fs, settings)?;
            }
        }
        if self.is_overlay() {
            if !machine::kernel_has("overlay") {
                return Err(Error::NoKernelSupport { fs: "overlay".to_owned() });
            }
            if !caps.sys_admin {
                return Err(needs_root(&self.to_string(), "CAP_SYS_ADMIN"));
            }
        }
        Ok(())
    }
}

fn needs_root(target: &str, needs: &str) -> Error {
    Error::NeedsRoot { target: target.to_owned(), needs: needs.to_owned() }
}

fn installed(fs: &dyn FileSystem) -> Result<(), Error> {
    if !machine::kernel_has(fs.name()) {
        return Err(Error::NoKernelSupport { fs: fs.name().to_owned() });
    }
    if let Making::Mkfs { tool, package, .. } = fs.making()
        && tool::find(tool).is_none()
    {
        return Err(Error::ToolMissing { tool: tool.to_owned(), package: package.to_owned() });
    }
    Ok(())
}

fn allowed(fs: &dyn FileSystem, caps: Caps, target: &str) -> Result<(), Error> {
    if !caps.sys_admin {
        return Err(needs_root(target, "CAP_SYS_ADMIN"));
    }
    if fs.making() != Making::InMemory && !caps.initial_user_namespace {
        return Err(needs_root(target, "CAP_SYS_ADMIN outside of any user namespace"));
    }
    Ok(())
}

fn making(made: &Made, fs: &dyn FileSystem, settings: &Settings) -> Result<(), Error> {
    let plan = made.plan(fs)?;
    match (fs.making(), &plan.device) {
        (Making::InMemory, _) => {
            // It cannot be on a disk, whatever the medium of the others is.
            let in_memory = Settings { medium: None, ..settings.clone() };
            image::size(fs.name(), plan.size, 0, &in_memory).map(|_| ())
        }
        (Making::Mkfs { .. }, Some(device)) => {
            block::claim(Path::new(device), settings.allow_format, settings.force_format).map(|_| ())
        }
        (Making::Mkfs { least, .. }, None) => {
            if let Some(medium) = &settings.medium {
                writable(medium)?;
            }
            image::size(fs.name(), plan.size, least, settings).map(|_| ())
        }
    }
}

fn directory(path: &Path) -> Result<(), Error> {
    let meta = path.metadata().map_err(|error| Error::directory(path, reason(&error)))?;
    if crate::sys::loopdev::is_block_device(path) {
        let name = path.display();
        return Err(Error::device(
            path,
            format!("name the file system to make on it, as in xfs:device={name}"),
        ));
    }
    if !meta.is_dir() {
        return Err(Error::directory(path, "it is not a directory"));
    }
    writable(path)?;
    let stat = statvfs(path).map_err(|errno| Error::directory(path, reason(&errno.into())))?;
    let free = stat.f_bavail * stat.f_frsize;
    // Some file systems (network, virtual) do not tell.
    if stat.f_blocks > 0 && free < LEAST_FREE {
        return Err(Error::Space {
            what: "a run".to_owned(),
            place: crate::error::shown(path),
            needed: LEAST_FREE,
            free,
            way_out: "free some, or give another directory".to_owned(),
        });
    }
    Ok(())
}

/// Really writes: permissions do not tell about read-only mounts and full disks.
fn writable(path: &Path) -> Result<(), Error> {
    let trouble = |errno: Errno| Error::directory(path, reason(&io::Error::from(errno)));
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let mut cleanup = Cleanup::default();
            let entry = cleanup.plan_in(path)?;
            entry.create_directory(Mode::RWXU)?;
            unlinkat(CWD, entry.path(), AtFlags::REMOVEDIR).map_err(trouble)
        }
        Err(errno) => Err(trouble(errno)),
    }
}

/// One kind of target, for `perfloss list` and `doctor`.
#[derive(Debug)]
pub struct Available {
    /// As it is written in `--on`.
    pub name: String,
    /// One line about it.
    pub about: String,
    /// Its options, each with what it accepts and what it does.
    pub options: Vec<OptionHelp>,
    /// Why it cannot be used here and what to do about it; `None` if it can.
    pub trouble: Option<Error>,
}

/// One option of a kind of target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionHelp {
    /// As it is written before the `=`.
    pub name: &'static str,
    /// What may stand after the `=`, for people.
    pub wanted: String,
    /// What it does.
    pub help: &'static str,
}

/// Every kind of target that is known, usable or not.
pub fn available(caps: Caps) -> Vec<Available> {
    let mut out: Vec<Available> = fs::all()
        .map(|fs| {
            let trouble = installed(&*fs).and_then(|()| allowed(&*fs, caps, fs.name()));
            let option = |option: &fs::FsOption| OptionHelp {
                name: option.name,
                wanted: option.value.wanted(),
                help: option.help,
            };
            Available {
                name: fs.name().to_owned(),
                about: fs.about().to_owned(),
                options: fs::options_of(&*fs).map(option).collect(),
                trouble: trouble.err(),
            }
        })
        .collect();
    let overlay = if !machine::kernel_has("overlay") {
        Some(Error::NoKernelSupport { fs: "overlay".to_owned() })
    } else if !caps.sys_admin {
        Some(needs_root("overlay", "CAP_SYS_ADMIN"))
    } else {
        None
    };
    out.push(Available {
        name: "overlay:TARGET".to_owned(),
        about: "overlay, its directories on the target that follows".to_owned(),
        options: Vec::new(),
        trouble: overlay,
    });
    out.push(Available {
        name: "/some/dir".to_owned(),
        about: "an existing directory; works without root".to_owned(),
        options: Vec::new(),
        trouble: None,
    });
    out
}
