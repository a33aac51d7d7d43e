//! Removing what we created in directories of the machine, and nothing else.
//!
//! The names are decided before anything is created, so that a guard process can hold them from the start: a process
//! that is killed at any moment leaves nothing that the guard does not know.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, shown};
use crate::spec::{Base, Spec};
use crate::{PREFIX, Settings};

/// What has to be removed from directories of the machine when a run is over, however it ended.
///
/// Make it with [`plan`](Self::plan) **before** anything is created, give it to whoever outlives the run (it can be
/// serialised), pass it to [`enter`](crate::enter) or [`enter_plain`](crate::enter_plain), and [`run`](Self::run) it
/// outside of the run's mount namespace after every process of the run is gone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleanup {
    entries: Vec<Entry>,
}

/// One name that we create in a directory of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The directory, as an absolute path.
    parent: PathBuf,
    /// The directory's device and inode, so that another directory of that name is left alone.
    parent_device: u64,
    parent_inode: u64,
    /// The name in it: 128 random bits, which nobody else chooses.
    name: String,
    /// Who creates it.
    owner: u32,
}

impl Cleanup {
    /// Decides the names for a target that [`enter`](crate::enter) or [`enter_plain`](crate::enter_plain) will make:
    /// a private directory in a directory target, and an image file in the medium for the moment before it is
    /// unlinked. Creates nothing.
    ///
    /// # Errors
    /// [`Error::Directory`] if one of the directories does not exist.
    pub fn plan(spec: &Spec, settings: &Settings) -> Result<Self, Error> {
        let mut out = Self::default();
        match spec.base() {
            Base::Directory(path) => out.plan_in(path).map(|_| ())?,
            Base::Made(_) => {
                if let Some(medium) = &settings.medium {
                    out.plan_in(medium)?;
                }
            }
        }
        if spec.is_directory() {
            // For the sources, where they cannot have a file system of their own.
            out.plan_in(&std::env::temp_dir())?;
        }
        Ok(out)
    }

    /// Whether there is nothing to remove, now or later.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The paths that may have been created.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.entries.iter().map(Entry::path)
    }

    /// Removes what was created, with everything below it. What is not there (any more) is no error. Symbolic links
    /// are removed, never followed; mounts are not entered; what another user made is left alone.
    ///
    /// # Errors
    /// [`Error::NotOurs`] or [`Error::System`] for the first thing that could not be removed; the others are removed
    /// all the same.
    pub fn run(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for entry in &self.entries {
            result = result.and(entry.remove());
        }
        result
    }

    /// Decides a name in a directory.
    pub(crate) fn plan_in(&mut self, directory: &Path) -> Result<&Entry, Error> {
        let trouble = |error: io::Error| Error::directory(directory, reason(&error));
        let parent = directory.canonicalize().map_err(trouble)?;
        let stat = parent.metadata().map_err(trouble)?;
        if !stat.is_dir() {
            return Err(Error::directory(directory, "it is not a directory"));
        }
        let entry = Entry {
            parent,
            parent_device: stat.dev(),
            parent_inode: stat.ino(),
            name: unguessable_name()?,
            owner: geteuid().as_raw(),
        };
        self.entries.push(entry);
        let last = self.entries.len() - 1;
        Ok(&self.entries[last])
    }

    /// The entry that was planned in this directory.
    pub(crate) fn entry_in(&self, directory: &Path) -> Result<&Entry, Error> {
        let stat = directory.metadata().map_err(|error| Error::directory(directory, reason(&error)))?;
        let same = |entry: &&Entry| (entry.parent_device, entry.parent_inode) == (stat.dev(), stat.ino());
        self.entries
            .iter()
            .find(same)
            .ok_or_else(|| Error::directory(directory, "no clean-up was planned for it"))
    }

    /// The entry that was planned last.
    pub(crate) fn last_entry(&self) -> Result<&Entry, Error> {
        let nothing = || Error::directory(&std::env::temp_dir(), "no clean-up was planned for it");
        self.entries.last().ok_or_else(nothing)
    }
}

/// Why a directory cannot be used, in words.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        io::ErrorKind::NotADirectory => "it is not a directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied: give one that you may write to".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "it is on a read-only file system".to_owned(),
        io::ErrorKind::StorageFull => "its file system is full".to_owned(),
        _ => error.to_string(),
    }
}

fn unguessable_name() -> Result<String, Error> {
    let mut bytes = [0_u8; 16];
    getrandom(&mut bytes, GetRandomFlags::empty()).context(|| "get random bytes")?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{PREFIX}{hex}"))
}

impl Entry {
    pub fn path(&self) -> PathBuf {
        self.parent.join(&self.name)
    }

    /// The parent, if it is still the directory that it was.
    fn open_parent(&self) -> Result<Option<OwnedFd>, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = match openat(rustix::fs::CWD, &self.parent, flags, Mode::empty()) {
            Ok(parent) => parent,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(Error::system(format!("open {}", shown(&self.parent)), errno)),
        };
        let stat = fstat(&parent).context(|| format!("look at {}", shown(&self.parent)))?;
        if (stat.st_dev, stat.st_ino) == (self.parent_device, self.parent_inode) {
            return Ok(Some(parent));
        }
        Err(Error::NotOurs {
            path: self.path(),
            reason: "its directory was replaced by another one".to_owned(),
        })
    }

    /// Creates the directory of this name.
    pub fn create_directory(&self, mode: Mode) -> Result<(), Error> {
        let trouble = |errno: Errno| Error::directory(&self.parent, reason(&io::Error::from(errno)));
        let parent = self.open_parent()?.ok_or_else(|| trouble(Errno::NOENT))?;
        mkdirat(&parent, &self.name, mode).map_err(trouble)?;
        // The umask took bits away.
        let made =
            openat(&parent, &self.name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
                .map_err(trouble)?;
        fchmod(&made, mode).map_err(trouble)
    }

    /// Creates a file of this name and takes the name away at once.
    pub fn create_unlinked_file(&self) -> Result<File, Error> {
        let trouble = |errno: Errno| Error::directory(&self.parent, reason(&io::Error::from(errno)));
        let parent = self.open_parent()?.ok_or_else(|| trouble(Errno::NOENT))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&parent, &self.name, flags, Mode::RUSR | Mode::WUSR).map_err(trouble)?;
        unlinkat(&parent, &self.name, AtFlags::empty()).map_err(trouble)?;
        Ok(file.into())
    }

    fn remove(&self) -> Result<(), Error> {
        let Some(parent) = self.open_parent()? else { return Ok(()) };
        let stat = match statat(&parent, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(Error::system(format!("look at {}", shown(&self.path())), errno)),
        };
        let refused = |reason: &str| Err(Error::NotOurs { path: self.path(), reason: reason.to_owned() });
        if stat.st_uid != self.owner {
            return refused("it belongs to another user");
        }
        let removed = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => remove_tree(&parent, &self.name, stat.st_dev),
            FileType::RegularFile => unlinkat(&parent, &self.name, AtFlags::empty()),
            _ => return refused("it is neither a directory nor a file"),
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::XDEV) => refused("something is mounted in it"),
            Err(errno) => Err(Error::system(format!("remove {}", shown(&self.path())), errno)),
        }
    }
}

/// Removes a directory and everything in it, on one device. Holds few descriptors however deep it goes: it climbs back
/// through `..`, and checks that it arrives where it came from.
fn remove_tree(parent: &OwnedFd, name: &str, device: u64) -> Result<(), Errno> {
    let mut current = enter_directory(parent, name.as_bytes(), device)?;
    // Name, device and inode of each directory on the way down; the last is `current`.
    let mut way = vec![(name.as_bytes().to_vec(), identity(&current)?)];
    loop {
        if let Some(below) = empty(&current)? {
            let next = enter_directory(&current, &below, device)?;
            way.push((below, identity(&next)?));
            current = next;
            continue;
        }
        let Some((done, _)) = way.pop() else { return Ok(()) };
        let Some((_, above)) = way.last() else { return unlinkat(parent, done, AtFlags::REMOVEDIR) };
        let up = openat(&current, "..", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        if identity(&up)? != *above {
            // Somebody moved it meanwhile: nothing outside of the tree may be touched.
            return Err(Errno::STALE);
        }
        unlinkat(&up, done, AtFlags::REMOVEDIR)?;
        current = up;
    }
}

/// Removes all that is no directory; gives the name of one directory that is left.
fn empty(directory: &OwnedFd) -> Result<Option<Vec<u8>>, Errno> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        match unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR | Errno::PERM) => return Ok(Some(name.to_vec())),
            Err(errno) => return Err(errno),
        }
    }
    Ok(None)
}

fn enter_directory(parent: impl AsFd, name: &[u8], device: u64) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let parent = parent.as_fd();
    let opened = match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            // A workload took our permission away. A path descriptor gives it back without following a link.
            let handle = openat(parent, name, flags | OFlags::PATH, Mode::empty())?;
            rustix::fs::chmodat(&handle, "", Mode::RWXU, AtFlags::EMPTY_PATH)
                .or_else(|_| rustix::fs::chmod(proc_path(&handle), Mode::RWXU))?;
            openat(parent, name, flags, Mode::empty())?
        }
        other => other?,
    };
    let stat = fstat(&opened)?;
    if stat.st_dev != device {
        return Err(Errno::XDEV);
    }
    // Entries can be removed only from a directory that may be written to.
    if stat.st_mode & 0o700 != 0o700 {
        fchmod(&opened, Mode::RWXU).ok();
    }
    Ok(opened)
}

fn proc_path(handle: &OwnedFd) -> PathBuf {
    use std::os::fd::AsRawFd;
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

fn identity(directory: &OwnedFd) -> Result<(u64, u64), Errno> {
    let stat = fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn planned(directory: &Path) -> Cleanup {
        let mut cleanup = Cleanup::default();
        cleanup.plan_in(directory).unwrap().create_directory(Mode::RWXU).unwrap();
        cleanup
    }

    #[test]
    fn everything_that_was_created_is_removed_and_nothing_beside_it() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("mine"), "keep").unwrap();
        let cleanup = planned(home.path());
        let ours = cleanup.paths().next().unwrap();
        let mut deep = ours.clone();
        for _ in 0..200 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("a file\n$(touch x)"), "x").unwrap();
        symlink(home.path(), deep.join("link")).unwrap();
        let back: Cleanup = serde_json::from_str(&serde_json::to_string(&cleanup).unwrap()).unwrap();
        back.run().unwrap();
        assert!(!ours.exists());
        assert_eq!(fs::read_to_string(home.path().join("mine")).unwrap(), "keep");
        back.run().unwrap();
    }

    #[test]
    fn a_tree_deeper_than_the_limit_of_descriptors_and_of_paths_is_removed() {
        let home = tempfile::tempdir().unwrap();
        let cleanup = planned(home.path());
        let ours = cleanup.paths().next().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = openat(rustix::fs::CWD, &ours, flags, Mode::empty()).unwrap();
        for _ in 0..3000 {
            mkdirat(&at, "deeper", Mode::RWXU).unwrap();
            at = openat(&at, "deeper", flags, Mode::empty()).unwrap();
        }
        cleanup.run().unwrap();
        assert!(!ours.exists());
    }

    #[test]
    fn a_link_of_the_planned_name_is_neither_followed_nor_removed() {
        let home = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("precious"), "keep").unwrap();
        let mut cleanup = Cleanup::default();
        let path = cleanup.plan_in(home.path()).unwrap().path();
        symlink(other.path(), &path).unwrap();
        assert!(matches!(cleanup.run(), Err(Error::NotOurs { .. })));
        assert!(other.path().join("precious").exists());
    }

    #[test]
    fn another_directory_in_the_place_of_the_parent_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let parent = home.path().join("parent");
        fs::create_dir(&parent).unwrap();
        let cleanup = planned(&parent);
        fs::rename(&parent, home.path().join("moved")).unwrap();
        let ours = cleanup.paths().next().unwrap();
        fs::create_dir_all(&ours).unwrap();
        assert!(matches!(cleanup.run(), Err(Error::NotOurs { .. })));
        assert!(ours.exists());
    }

    #[test]
    fn directories_without_permissions_are_removed_too() {
        let home = tempfile::tempdir().unwrap();
        let cleanup = planned(home.path());
        let ours = cleanup.paths().next().unwrap();
        let shut = ours.join("shut");
        fs::create_dir(&shut).unwrap();
        fs::write(shut.join("x"), "").unwrap();
        rustix::fs::chmod(&shut, Mode::empty()).unwrap();
        cleanup.run().unwrap();
        assert!(!ours.exists());
    }

    #[test]
    fn an_image_where_files_without_names_cannot_be_made_has_no_name_either() {
        let home = tempfile::tempdir().unwrap();
        let mut cleanup = Cleanup::default();
        let file = cleanup.plan_in(home.path()).unwrap().create_unlinked_file().unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
