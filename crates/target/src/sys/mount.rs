//! Mounting with descriptors: a file system is made detached and shows up nowhere until it is attached.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};

use crate::error::{Error, shown};

/// Mount options, each with its value if it has one.
pub(crate) type Options = [(String, Option<String>)];

/// Makes an instance of a file system, mounted nowhere. It vanishes with the descriptor unless it is attached.
pub(crate) fn detached(fs_type: &str, source: Option<&Path>, options: &Options) -> Result<OwnedFd, Error> {
    let what = match source {
        Some(source) => format!("{fs_type} from {}", shown(source)),
        None => fs_type.to_owned(),
    };
    let refused = |reason: String| Error::Mount { what: what.clone(), reason };
    let context = fsopen(fs_type, FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| match errno {
        Errno::NODEV => Error::NoKernelSupport { fs: fs_type.to_owned() },
        Errno::NOSYS => refused("the kernel is older than 5.2".to_owned()),
        _ => refused(errno.to_string()),
    })?;
    let failed = |step: &str, errno: Errno| {
        let said = messages(&context);
        refused(if said.is_empty() { format!("{step}{errno}") } else { format!("{step}{said} ({errno})") })
    };
    if let Some(source) = source {
        fsconfig_set_string(&context, "source", source).map_err(|errno| failed("", errno))?;
    }
    let mut attributes = MountAttrFlags::empty();
    for (name, value) in options {
        match (attribute(name), value) {
            (Attribute::Set(flag), None) => attributes |= flag,
            (Attribute::Nothing, None) => {}
            (Attribute::ReadOnly, None) => {
                return Err(refused("the target has to be writable: leave ro away".to_owned()));
            }
            (_, Some(value)) => fsconfig_set_string(&context, name.as_str(), value.as_str())
                .map_err(|errno| failed(&format!("option {name}={value}: "), errno))?,
            (Attribute::OfFileSystem, None) => fsconfig_set_flag(&context, name.as_str())
                .map_err(|errno| failed(&format!("option {name}: "), errno))?,
        }
    }
    fsconfig_create(&context).map_err(|errno| failed("", errno))?;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(|errno| failed("", errno))
}

enum Attribute {
    /// The kernel takes it as an attribute of the mount.
    Set(MountAttrFlags),
    /// It is the default.
    Nothing,
    ReadOnly,
    /// The file system takes it.
    OfFileSystem,
}

fn attribute(name: &str) -> Attribute {
    match name {
        "noatime" => Attribute::Set(MountAttrFlags::MOUNT_ATTR_NOATIME),
        "nodiratime" => Attribute::Set(MountAttrFlags::MOUNT_ATTR_NODIRATIME),
        "strictatime" => Attribute::Set(MountAttrFlags::MOUNT_ATTR_STRICTATIME),
        "nosuid" => Attribute::Set(MountAttrFlags::MOUNT_ATTR_NOSUID),
        "nodev" => Attribute::Set(MountAttrFlags::MOUNT_ATTR_NODEV),
        "noexec" => Attribute::Set(MountAttrFlags::MOUNT_ATTR_NOEXEC),
        "ro" => Attribute::ReadOnly,
        "defaults" | "rw" | "atime" | "diratime" | "relatime" | "suid" | "dev" | "exec" => Attribute::Nothing,
        _ => Attribute::OfFileSystem,
    }
}

/// What the file system said about a refusal, in one line.
fn messages(context: &OwnedFd) -> String {
    let mut out = Vec::new();
    let mut buffer = [0_u8; 1024];
    while let Ok(length) = rustix::io::read(context, &mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        // "e xfs: text": the kind of message comes first.
        let text = text.trim();
        out.push(
            text.split_once(' ')
                .filter(|(kind, _)| kind.len() == 1)
                .map_or(text, |(_, said)| said)
                .to_owned(),
        );
        if length == 0 || out.len() > 20 {
            break;
        }
    }
    out.join("; ")
}

/// A private copy of what can be seen at a path, mounts below it included, mounted nowhere.
pub(crate) fn copy_tree(path: &Path) -> Result<OwnedFd, Errno> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, path, flags)
}

/// Mounts a detached file system or tree at a path.
pub(crate) fn attach(tree: &OwnedFd, at: &Path) -> Result<(), Error> {
    attach_below(tree, CWD, at)
}

/// Mounts a detached file system or tree at a path below an open directory.
pub(crate) fn attach_below(tree: &OwnedFd, directory: impl AsFd, at: &Path) -> Result<(), Error> {
    move_mount(tree, "", directory, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|errno| Error::Mount { what: shown(at), reason: errno.to_string() })
}

/// Unmounts; a busy mount is an error.
pub(crate) fn detach(path: &Path) -> Result<(), Error> {
    unmount(path, UnmountFlags::NOFOLLOW).map_err(|errno| {
        let reason =
            if errno == Errno::BUSY { "a process still uses it".to_owned() } else { errno.to_string() };
        Error::system(format!("unmount {}", shown(path)), std::io::Error::other(reason))
    })
}

/// Takes a copy of a tree of mounts away, whatever is mounted in it.
pub(crate) fn detach_with_what_is_in_it(path: &Path) -> Result<(), Error> {
    unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
        .map_err(|errno| Error::system(format!("unmount {}", shown(path)), errno))
}
