//! Paths that the user named and that the target on `/tmp` would hide.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::error::{Context, Error, shown};
use crate::sys::{mount, mountinfo};

/// A path, and a copy of what can be seen there now.
pub(crate) struct Kept {
    path: PathBuf,
    tree: OwnedFd,
    identity: (u64, u64),
    directory: bool,
}

/// Takes hold of what the user named, before anything is covered. Parents come before what is in them.
pub(crate) fn take(paths: &[PathBuf]) -> Result<Vec<Kept>, Error> {
    let covered = Path::new("/tmp").canonicalize().ok();
    let mut out = Vec::new();
    for path in paths {
        let hidden = |reason: &str| Error::Hidden { path: path.clone(), reason: reason.to_owned() };
        let simple =
            path.is_absolute() && !path.components().any(|part| matches!(part, Component::ParentDir));
        if !simple {
            return Err(hidden("its path has to be absolute, without .."));
        }
        if path == Path::new("/") {
            continue;
        }
        let meta = path.metadata().context(|| format!("look at {}", shown(path)))?;
        if covered.is_some() && path.canonicalize().ok() == covered {
            return Err(hidden("it is /tmp itself; name a directory in it, or work elsewhere"));
        }
        let tree = mount::copy_tree(path).context(|| format!("keep {} visible", shown(path)))?;
        let identity = (meta.dev(), meta.ino());
        out.push(Kept { path: path.clone(), tree, identity, directory: meta.is_dir() });
    }
    out.sort_by_key(|kept| kept.path.components().count());
    Ok(out)
}

/// Mounts what became hidden at the same names, on mountpoints made in the target. Gives the mounted paths.
pub(crate) fn show(kept: Vec<Kept>) -> Result<Vec<PathBuf>, Error> {
    let mut mounted = Vec::new();
    for Kept { path, tree, identity, directory } in kept {
        if path.metadata().is_ok_and(|meta| (meta.dev(), meta.ino()) == identity) {
            continue;
        }
        let hidden = |reason: String| Error::Hidden { path: path.clone(), reason };
        make_mountpoint(&path, directory).map_err(hidden)?;
        mount::attach(&tree, &path)?;
        let same = path.metadata().is_ok_and(|meta| (meta.dev(), meta.ino()) == identity);
        if !same {
            return Err(hidden("something else lies at this name".to_owned()));
        }
        mounted.push(path);
    }
    Ok(mounted)
}

fn make_mountpoint(path: &Path, directory: bool) -> Result<(), String> {
    let say = |error: io::Error| format!("no place for it could be made: {error}");
    // A link of the machine may lead into /tmp, where nothing is now.
    let path = &resolve(path).map_err(say)?;
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/"));
    // Whatever is made has to be made in the target and never in a directory of the machine.
    let on = |path: &Path| mountinfo::mount_id(path).map_err(|error| error.to_string());
    if on(existing)? != on(Path::new("/tmp"))? {
        return Err(format!("{} is not in the target", shown(existing)));
    }
    if existing == path {
        let right = path.metadata().map_err(say)?.is_dir() == directory;
        return if right { Ok(()) } else { Err("something else lies at this name".to_owned()) };
    }
    let parent = path.parent().ok_or("it has no parent")?;
    fs::create_dir_all(parent).map_err(say)?;
    if directory { fs::create_dir(path) } else { fs::File::create_new(path).map(|_| ()) }.map_err(say)
}

/// The path without symbolic links, as far as it exists.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    const MOST_LINKS: u32 = 40;
    let mut links = 0;
    let mut done = PathBuf::from("/");
    let mut rest: Vec<OsString> = path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    while let Some(part) = rest.pop() {
        if part == ".." {
            done.pop();
            continue;
        }
        // An absolute part, as the first of a path or of a link is, replaces all before it.
        let next = done.join(&part);
        if !next.is_symlink() {
            done = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let to = fs::read_link(&next)?;
        rest.extend(to.components().rev().map(|part| part.as_os_str().to_owned()));
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_even_when_nothing_is_behind_them() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        fs::create_dir(home.join("a")).unwrap();
        symlink("../missing", home.join("a/relative")).unwrap();
        symlink("/nowhere/at/all", home.join("absolute")).unwrap();
        symlink("loop", home.join("loop")).unwrap();
        assert_eq!(resolve(&home.join("a/relative/x")).unwrap(), home.join("missing/x"));
        assert_eq!(resolve(&home.join("absolute/x")).unwrap(), Path::new("/nowhere/at/all/x"));
        assert_eq!(resolve(&home.join("a")).unwrap(), home.join("a"));
        assert!(resolve(&home.join("loop")).is_err());
    }
}
