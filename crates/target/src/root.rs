//! A root directory of our own, which shows all of the machine's and leaves room for directories that it lacks.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount_change, mount_move, mount_remount, unmount,
};
use rustix::process::{chdir, chroot, fchdir, pivot_root};

use crate::error::{Context, Error, shown};
use crate::sys::mount;

/// The new root, with a directory of perfloss's own in it.
pub(crate) struct PrivateRoot {
    /// A top-level directory that the machine does not have: `/perfloss` unless that is taken.
    pub own: PathBuf,
    /// Whether the machine has no `/src`; then it is there, empty.
    pub src_is_ours: bool,
    /// Top-level entries that could not be shown, with the reason.
    pub missing: Vec<String>,
}

enum Entry {
    Link(PathBuf),
    Mount { tree: OwnedFd, directory: bool },
}

/// The top level of the machine's root directory.
struct Survey {
    entries: Vec<(OsString, Entry)>,
    missing: Vec<String>,
}

/// Stops mounts from reaching the machine, and the machine's from reaching us.
pub(crate) fn isolate() -> Result<(), Error> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", flags).map_err(|errno| {
        let reason = match errno {
            Errno::INVAL => {
                "the root directory is not a mount (a chroot?): bind-mount it on itself first".to_owned()
            }
            _ => format!("it cannot be made private: {errno}"),
        };
        Error::Mount { what: "in a namespace of our own".to_owned(), reason }
    })
}

/// Builds the new root and moves into it. The working directory is then `/`.
///
/// `/tmp` is an empty directory in it; `/proc` is that of the caller's PID namespace if `fresh_proc`.
pub(crate) fn enter(fresh_proc: bool) -> Result<PrivateRoot, Error> {
    let Survey { entries, missing } = survey(fresh_proc)?;
    let proc_tree = fresh_proc.then(|| mount::detached("proc", None, &[])).transpose()?;
    let options = [("mode".to_owned(), Some("0755".to_owned()))];
    let new = mount::detached("tmpfs", None, &options)?;
    let staging = staging(&entries)?;
    mount::attach(&new, &staging)?;
    fchdir(&new).context(|| "enter the new root directory")?;
    let make = |name: &Path| {
        fs::create_dir(name).context(|| format!("make {} in the new root directory", shown(name)))
    };
    let taken = |name: &str| entries.iter().any(|(entry, _)| entry == name);
    for (name, entry) in &entries {
        let name = Path::new(name);
        match entry {
            Entry::Link(to) => symlink(to, name).context(|| format!("make the link {}", shown(name)))?,
            Entry::Mount { tree, directory } => {
                if *directory {
                    make(name)?;
                } else {
                    fs::File::create_new(name).context(|| format!("make {}", shown(name)))?;
                }
                mount::attach_below(tree, &new, name)?;
            }
        }
    }
    make(Path::new("tmp"))?;
    if let Some(tree) = &proc_tree {
        make(Path::new("proc"))?;
        mount::attach_below(tree, &new, Path::new("proc"))?;
    }
    let own = (0..)
        .map(|number| if number == 0 { "perfloss".to_owned() } else { format!("perfloss.{number}") })
        .find(|name| !taken(name))
        .unwrap_or_default();
    make(Path::new(&own))?;
    let src_is_ours = !taken("src");
    if src_is_ours {
        make(Path::new("src"))?;
    }
    switch()?;
    Ok(PrivateRoot { own: Path::new("/").join(own), src_is_ours, missing })
}

/// What a workload makes at the top level would be measured on the wrong file system: it gets EROFS instead.
pub(crate) fn seal() -> Result<(), Error> {
    mount_remount("/", MountFlags::BIND | MountFlags::RDONLY, "")
        .context(|| "make the new root directory read-only")
}

fn survey(fresh_proc: bool) -> Result<Survey, Error> {
    let (mut entries, mut missing) = (Vec::new(), Vec::new());
    let listing = fs::read_dir("/").context(|| "read /")?;
    for entry in listing {
        let entry = entry.context(|| "read /")?;
        let name = entry.file_name();
        if name == "tmp" || (fresh_proc && name == "proc") {
            continue;
        }
        let path = entry.path();
        let kind = entry.file_type().context(|| format!("look at {}", shown(&path)))?;
        if kind.is_symlink() {
            let to = fs::read_link(&path).context(|| format!("read {}", shown(&path)))?;
            entries.push((name, Entry::Link(to)));
            continue;
        }
        match mount::copy_tree(&path) {
            Ok(tree) => entries.push((name, Entry::Mount { tree, directory: kind.is_dir() })),
            // A dead network mount must not stop a run that does not use it.
            Err(errno) => missing.push(format!("{} is not visible in the run: {errno}", shown(&path))),
        }
    }
    Ok(Survey { entries, missing })
}

/// A directory of the old root to put the new one on, for a moment.
fn staging(entries: &[(OsString, Entry)]) -> Result<PathBuf, Error> {
    let is_directory = |entry: &Entry| matches!(entry, Entry::Mount { directory: true, .. });
    entries
        .iter()
        .find(|(_, entry)| is_directory(entry))
        .map(|(name, _)| Path::new("/").join(name))
        .ok_or_else(|| Error::Mount {
            what: "a new root directory".to_owned(),
            reason: "/ has no directories".to_owned(),
        })
}

/// Makes the working directory the root.
fn switch() -> Result<(), Error> {
    match pivot_root(".", ".") {
        // The old root now lies on top of the new one.
        Ok(()) => unmount(".", UnmountFlags::DETACH).context(|| "leave the old root directory")?,
        // An initial ramfs cannot be exchanged, only covered.
        Err(Errno::INVAL) => cover()?,
        Err(errno) => return Err(Error::system("change the root directory", errno)),
    }
    chdir("/").context(|| "enter the new root directory")
}

fn cover() -> Result<(), Error> {
    mount_move(".", "/").context(|| "move the new root directory over the old one")?;
    chroot(".").context(|| "change the root directory")
}
