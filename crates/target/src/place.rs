//! Making the place: from a named target to a `/tmp` that is it.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, chmod, openat, syncfs};
use rustix::mount::{MountFlags, mount_bind, mount_remount};
use rustix::process::umask;
use serde::{Deserialize, Serialize};

use crate::cleanup::Cleanup;
use crate::error::{Context, Error, shown};
use crate::facts::Facts;
use crate::fs::{self as known, Making};
use crate::image::{Ground, Medium};
use crate::machine::Caps;
use crate::spec::{Base, Made, Spec};
use crate::sys::{mount, mountinfo};
use crate::{Settings, image, keep, root, tool};

const TMP: &str = "/tmp";

/// Writes the sources that a run shows read-only into the directory that it is given.
pub type WriteSources<'a> = &'a mut dyn FnMut(&Path) -> io::Result<()>;

/// What [`enter`] is to make.
pub struct Layout<'a> {
    /// The target.
    pub spec: &'a Spec,
    /// How file systems are made.
    pub settings: &'a Settings,
    /// The mount namespace that the caller came from.
    pub outside: Namespace,
    /// What was planned with [`Cleanup::plan`] for this target.
    pub cleanup: &'a Cleanup,
    /// The caller is in a new PID namespace and needs a `/proc` of its own.
    pub fresh_proc: bool,
    /// Writes the sources.
    pub sources: Option<WriteSources<'a>>,
    /// Absolute paths of files and directories that have to stay reachable under the same names.
    pub keep_visible: &'a [PathBuf],
}

/// A mount namespace, to tell one from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace(u64, u64);

impl Namespace {
    /// That of the calling process.
    ///
    /// # Errors
    /// [`Error::System`] if `/proc` is not mounted.
    pub fn current() -> Result<Self, Error> {
        let meta = fs::metadata("/proc/self/ns/mnt").context(|| "look at /proc/self/ns/mnt")?;
        Ok(Self(meta.dev(), meta.ino()))
    }
}

/// A place to run in, made by [`enter`] or [`enter_plain`].
#[derive(Debug)]
pub struct Place {
    /// The directory that the workload uses.
    pub dir: PathBuf,
    /// Where the sources are, if any were given.
    pub src: Option<PathBuf>,
    /// What a result has to record.
    pub facts: Facts,
    /// Mounted by us, in this order.
    mounts: Vec<PathBuf>,
    /// Directories and files of the machine that were made visible again, with what is mounted in them.
    shown_again: Vec<PathBuf>,
    /// File systems of ours that have to be written back before they are unmounted.
    to_sync: Vec<PathBuf>,
}

/// Makes the target and puts it on `/tmp`, in a root directory of our own.
///
/// The caller has to be alone, with one thread, in a mount namespace made for this (CLONE_NEWNS); if it is in a PID
/// namespace of its own too, it sets [`Layout::fresh_proc`]. Then:
///
/// - `/` is a read-only tmpfs that shows every top-level entry of the machine's `/`;
/// - `/tmp` is the target, with mode 1777; for a directory target, a new private directory in it;
/// - the sources are in [`Place::src`] (`/perfloss/src`), read-only, and in `/src` if the machine has no `/src`;
/// - what [`Layout::keep_visible`] names, and a working directory below `/tmp`, is where it was;
/// - the working directory is the same, or `/` if it is not there any more.
///
/// Everything vanishes with the namespace's last process, except for what [`Layout::cleanup`] names.
///
/// # Errors
/// One line about the first thing that failed. The process should then end: its namespace may be half made.
pub fn enter(layout: Layout<'_>) -> Result<Place, Error> {
    if Namespace::current()? == layout.outside {
        return Err(Error::NotIsolated);
    }
    root::isolate()?;
    // Everybody may look at what is made here, whatever the caller's umask.
    let callers = umask(Mode::from_raw_mode(0o022));
    let place = make_and_cover(layout);
    umask(callers);
    place
}

fn make_and_cover(layout: Layout<'_>) -> Result<Place, Error> {
    let cwd = env::current_dir().ok();
    let kept = keep::take(&paths_to_keep(layout.keep_visible, cwd.as_deref()))?;
    let (made, mut facts) = make(layout.spec, layout.settings, layout.cleanup)?;
    let root = root::enter(layout.fresh_proc)?;
    facts.notes.extend(root.missing);

    let mut place = Place {
        dir: TMP.into(),
        src: None,
        facts,
        mounts: Vec::new(),
        shown_again: Vec::new(),
        to_sync: Vec::new(),
    };
    if layout.spec.is_overlay() {
        place.attach_overlay(&made, &root.own, layout.spec)?;
    } else {
        place.attach(&made, Path::new(TMP))?;
        place.facts.mounted(mountinfo::of(Path::new(TMP))?);
    }
    drop(made);
    open_to_all(Path::new(TMP))?;
    if let Some(write) = layout.sources {
        place.add_sources(write, &root.own, root.src_is_ours)?;
    }
    if root.src_is_ours && place.src.is_none() {
        fs::remove_dir("/src").context(|| "remove the empty /src")?;
    }
    place.shown_again = keep::show(kept)?;
    root::seal()?;
    if let Some(cwd) = cwd {
        // A working directory that is gone is no error: absolute names still mean the same.
        env::set_current_dir(cwd).or_else(|_| env::set_current_dir("/")).context(|| "change to /")?;
    }
    Ok(place)
}

/// Makes a private directory in a directory target, without any privilege or namespace.
///
/// `/tmp` stays the machine's: the caller points TMPDIR to [`Place::dir`]. The sources are in a private directory of
/// their own. Both are removed by [`Cleanup::run`], which the caller has to see to.
///
/// # Errors
/// [`Error::NeedsRoot`] if the target is not a directory; [`Error::Directory`] if it cannot be used.
pub fn enter_plain(
    spec: &Spec,
    cleanup: &Cleanup,
    sources: Option<WriteSources<'_>>,
) -> Result<Place, Error> {
    let Some(parent) = spec.existing_directory().filter(|_| spec.is_directory()) else {
        return Err(Error::NeedsRoot { target: spec.to_string(), needs: "CAP_SYS_ADMIN".to_owned() });
    };
    let entry = cleanup.entry_in(parent)?;
    entry.create_directory(Mode::RWXU)?;
    let dir = entry.path();
    let mut facts = Facts { target: spec.to_string(), ..Facts::default() };
    facts.mounted(mountinfo::of(&dir)?);
    let mut src = None;
    if let Some(write) = sources {
        let own = cleanup.last_entry()?;
        own.create_directory(Mode::RWXU)?;
        write(&own.path()).context(|| "write the sources")?;
        src = Some(own.path());
    }
    Ok(Place { dir, src, facts, mounts: Vec::new(), shown_again: Vec::new(), to_sync: Vec::new() })
}

impl Place {
    /// Writes everything back and unmounts the target, so that its end is a clean one and errors show. For an existing
    /// directory nothing is written back: the files are to be removed by [`Cleanup::run`].
    ///
    /// # Errors
    /// The first write-back error or mount that is still in use.
    pub fn leave(self) -> Result<(), Error> {
        if self.mounts.is_empty() {
            return Ok(());
        }
        env::set_current_dir("/").context(|| "change to /")?;
        for path in &self.to_sync {
            let directory = open_directory(path)?;
            syncfs(&directory).context(|| format!("write {} back", shown(path)))?;
        }
        let mut result = Ok(());
        for path in self.shown_again.iter().rev() {
            result = result.and(mount::detach_with_what_is_in_it(path));
        }
        for path in self.mounts.iter().rev() {
            result = result.and(mount::detach(path));
        }
        result
    }

    fn attach(&mut self, made: &MadeTree, at: &Path) -> Result<(), Error> {
        mount::attach(&made.tree, at)?;
        self.mounts.push(at.to_owned());
        if made.ours {
            self.to_sync.push(at.to_owned());
        }
        Ok(())
    }

    fn attach_overlay(&mut self, made: &MadeTree, own: &Path, spec: &Spec) -> Result<(), Error> {
        let below = own.join("below");
        make_directory(&below)?;
        self.attach(made, &below)?;
        self.facts.mounted(mountinfo::of(&below)?);
        let directories = ["lower", "upper", "work"].map(|name| below.join(name));
        for directory in &directories {
            make_directory(directory)?;
        }
        let [lower, upper, work] = &directories;
        fill_lower(lower).context(|| "write the lower files of the overlay")?;
        open_to_all(upper)?;
        let option = |name: &str, path: &Path| (name.to_owned(), Some(path.to_string_lossy().into_owned()));
        let mut options = vec![option("lowerdir", lower), option("upperdir", upper), option("workdir", work)];
        if !Caps::here().initial_user_namespace {
            // The attributes that overlays use by default are reserved for the machine's root.
            options.push(("userxattr".to_owned(), None));
        }
        let overlay = mount::detached("overlay", None, &options)?;
        mount::attach(&overlay, Path::new(TMP))?;
        self.mounts.push(TMP.into());
        let mut facts = Facts { target: spec.to_string(), ..Facts::default() };
        facts.mounted(mountinfo::of(Path::new(TMP))?);
        facts.notes = std::mem::take(&mut self.facts.notes);
        facts.below = Some(Box::new(std::mem::take(&mut self.facts)));
        self.facts = facts;
        Ok(())
    }

    fn add_sources(&mut self, write: WriteSources<'_>, own: &Path, also_src: bool) -> Result<(), Error> {
        let src = own.join("src");
        make_directory(&src)?;
        let options = [("mode".to_owned(), Some("0755".to_owned()))];
        mount::attach(&mount::detached("tmpfs", None, &options)?, &src)?;
        write(&src).context(|| "write the sources")?;
        mount_remount(&src, MountFlags::BIND | MountFlags::RDONLY, "")
            .context(|| "make the sources read-only")?;
        if also_src {
            mount_bind(&src, "/src").context(|| "show the sources at /src")?;
            // A bind mount does not take the read-only state over on every kernel.
            mount_remount("/src", MountFlags::BIND | MountFlags::RDONLY, "")
                .context(|| "make /src read-only")?;
        }
        self.src = Some(src);
        Ok(())
    }
}

/// What was made, mounted nowhere yet.
struct MadeTree {
    tree: OwnedFd,
    /// A file system of ours rather than a directory of the machine.
    ours: bool,
    /// Keeps the loop device until the tree is attached.
    _ground: Option<Ground>,
}

fn make(spec: &Spec, settings: &Settings, cleanup: &Cleanup) -> Result<(MadeTree, Facts), Error> {
    let mut facts = Facts { target: spec.to_string(), ..Facts::default() };
    let made = match spec.base() {
        Base::Directory(path) => {
            let entry = cleanup.entry_in(path)?;
            entry.create_directory(Mode::RWXU)?;
            let tree = mount::copy_tree(&entry.path())
                .context(|| format!("take hold of {}", shown(&entry.path())))?;
            MadeTree { tree, ours: false, _ground: None }
        }
        Base::Made(made) => make_file_system(made, settings, cleanup, &mut facts)?,
    };
    Ok((made, facts))
}

fn make_file_system(
    made: &Made,
    settings: &Settings,
    cleanup: &Cleanup,
    facts: &mut Facts,
) -> Result<MadeTree, Error> {
    let fs = known::lookup(made.fs_name())?;
    let mut plan = made.plan(&*fs)?;
    let Making::Mkfs { tool: name, package, always, force, version, least } = fs.making() else {
        let in_memory = Settings { medium: None, ..settings.clone() };
        let size = image::size(fs.name(), plan.size, 0, &in_memory)?;
        plan.mount.insert(0, ("size".to_owned(), Some(size.to_string())));
        facts.image_size = Some(size);
        facts.medium = Some("memory".to_owned());
        let tree = mount::detached(fs.name(), None, &plan.mount)?;
        return Ok(MadeTree { tree, ours: true, _ground: None });
    };
    let program = tool::find(name)
        .ok_or_else(|| Error::ToolMissing { tool: name.to_owned(), package: package.to_owned() })?;
    let ground = match &plan.device {
        Some(device) => Ground::device(Path::new(device), settings)?,
        None => Ground::image(fs.name(), plan.size, least, settings, cleanup)?,
    };
    let mut arguments: Vec<String> = always.iter().map(|&word| word.to_owned()).collect();
    if plan.device.is_some() && settings.force_format {
        arguments.extend(
            force.iter().map(|&word| word.to_owned()).filter(|word| !always.contains(&word.as_str())),
        );
    }
    arguments.append(&mut plan.mkfs);
    arguments.push(ground.path.to_string_lossy().into_owned());
    tool::run(&program, &arguments)?;
    facts.mkfs = Some(tool::line(&program, &arguments));
    facts.mkfs_version = tool::version(&program, version);
    facts.geometry = fs.geometry(&ground.file);
    facts.image_size = Some(ground.size);
    facts.direct_io = Some(ground.direct_io);
    facts.medium = Some(match &ground.medium {
        Medium::Memory => "memory".to_owned(),
        Medium::Directory(path) => format!("directory {}", path.display()),
        Medium::Device(path) => format!("device {}", path.display()),
    });
    let tree = mount::detached(fs.name(), Some(&ground.path), &plan.mount)?;
    Ok(MadeTree { tree, ours: true, _ground: Some(ground) })
}

/// What the user named, and the working directory if the target would hide it.
fn paths_to_keep(named: &[PathBuf], cwd: Option<&Path>) -> Vec<PathBuf> {
    let mut out = named.to_vec();
    let covered = Path::new(TMP).canonicalize().unwrap_or_else(|_| TMP.into());
    out.extend(cwd.filter(|cwd| cwd.starts_with(&covered) && *cwd != covered).map(Path::to_owned));
    out
}

/// Gives a directory the mode of `/tmp`.
fn open_to_all(directory: &Path) -> Result<(), Error> {
    chmod(directory, Mode::from_raw_mode(0o1777)).context(|| format!("set the mode of {}", shown(directory)))
}

fn make_directory(path: &Path) -> Result<(), Error> {
    fs::create_dir(path).context(|| format!("make {}", shown(path)))
}

/// An overlay without anything below would never merge a directory.
fn fill_lower(lower: &Path) -> io::Result<()> {
    fs::set_permissions(lower, fs::Permissions::from_mode(0o755))?;
    let directory = lower.join("lower-files");
    fs::create_dir(&directory)?;
    for number in 0..4 {
        fs::write(directory.join(number.to_string()), "a file of the lower directory\n")?;
    }
    Ok(())
}

fn open_directory(path: &Path) -> Result<File, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, path, flags, Mode::empty()).context(|| format!("open {}", shown(path)))?;
    Ok(opened.into())
}
