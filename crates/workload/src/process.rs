//! Running a command as one operation: spawned without a copy of the address space, checked, its stderr kept.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, OFlags};
use rustix::io::Errno;

use crate::{Failure, STDERR_KEPT};

/// Finds a program as `execvp` would: a name with a slash is a path, any other is looked up in `PATH`.
pub(crate) fn find_program(name: &OsStr) -> Result<PathBuf, Failure> {
    let runnable = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let shown = name.to_string_lossy().into_owned();
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match runnable(&path) {
            true => Ok(path),
            false => Err(Failure::new("no such program, or it is not executable").at(shown)),
        };
    }
    let search = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&search)
        .map(|dir| dir.join(name))
        .find(|path| !name.is_empty() && runnable(path))
        .ok_or_else(|| Failure::new("program not found in PATH").at(shown))
}

/// A command, ready to be spawned any number of times without allocating.
pub(crate) struct Launch {
    program: CString,
    arguments: Strings,
    environment: Strings,
}

/// Strings with the NULL-terminated array of pointers that `execve` takes.
struct Strings {
    pointers: Vec<*mut libc::c_char>,
    strings: Vec<CString>,
}

// SAFETY: the pointers point into `strings`' heap buffers, which are never changed and live as long.
unsafe impl Send for Strings {}
// SAFETY: as above; `execve` only reads them.
unsafe impl Sync for Strings {}

impl Strings {
    fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|s| s.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect();
        Strings { pointers, strings }
    }
}

fn c_string(bytes: Vec<u8>) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|e| {
        Failure::new("an argument contains a NUL byte").at(String::from_utf8_lossy(&e.into_vec()))
    })
}

impl Launch {
    /// The program at `program`, called with `arguments` (the first is its name) in our environment with `variables` set in it.
    pub(crate) fn new(
        program: &Path,
        arguments: &[&OsStr],
        variables: &[(&OsStr, &OsStr)],
    ) -> Result<Launch, Failure> {
        let kept = std::env::vars_os().filter(|(name, _)| variables.iter().all(|(n, _)| n != name));
        let set = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let entry = |(name, value): (OsString, OsString)| {
            let mut bytes = name.into_vec();
            bytes.push(b'=');
            bytes.extend(value.as_bytes());
            c_string(bytes)
        };
        let argument = |argument: &&OsStr| c_string(argument.as_bytes().to_vec());
        Ok(Launch {
            program: c_string(program.as_os_str().as_bytes().to_vec())?,
            arguments: Strings::new(arguments.iter().map(argument).collect::<Result<_, _>>()?),
            environment: Strings::new(kept.chain(set).map(entry).collect::<Result<_, _>>()?),
        })
    }

    /// The command line as one would type it.
    pub(crate) fn line(&self) -> String {
        shell_words::join(self.arguments.strings.iter().map(|s| s.to_string_lossy()))
    }
}

/// What a task needs to run commands one after another: stdin and stdout are `/dev/null`, stderr is kept apart.
pub(crate) struct Runner {
    stderr: OwnedFd,
    // Both are used by the child only until it execs.
    _null: OwnedFd,
    actions: SpawnActions,
    attributes: SpawnAttributes,
}

impl Runner {
    pub(crate) fn new() -> Result<Runner, Failure> {
        let failed = |what: &str, e: Errno| Failure::new(what).errno(e);
        let stderr = rustix::fs::memfd_create(c"stderr", MemfdFlags::CLOEXEC)
            .map_err(|e| failed("cannot make a file for stderr (memfd_create)", e))?;
        // Grandchildren write through the same description; after a truncation they go on at the end.
        rustix::fs::fcntl_setfl(&stderr, OFlags::APPEND)
            .map_err(|e| failed("cannot make a file for stderr (fcntl)", e))?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, 0.into())
            .map_err(|e| failed("cannot open /dev/null", e))?;
        let mut actions = SpawnActions::new()?;
        actions.dup2(null.as_raw_fd(), 0)?;
        actions.dup2(null.as_raw_fd(), 1)?;
        actions.dup2(stderr.as_raw_fd(), 2)?;
        Ok(Runner { stderr, _null: null, actions, attributes: SpawnAttributes::new()? })
    }

    /// Runs the command to its end; anything but exit status 0 is a failure.
    pub(crate) fn run(&mut self, launch: &Launch) -> Result<(), Failure> {
        let status = self.spawn_and_wait(launch)?;
        if status != 0 {
            return Err(self.failure(launch, &describe_status(status)));
        }
        // Warnings of a command that succeeded are of no interest, but must not pile up.
        if rustix::fs::fstat(&self.stderr).is_ok_and(|stat| stat.st_size > 0) {
            rustix::fs::ftruncate(&self.stderr, 0)
                .map_err(|e| Failure::new("cannot empty the file for stderr").errno(e))?;
        }
        Ok(())
    }

    /// A failure of this command, with what it wrote to stderr.
    #[cold]
    pub(crate) fn failure(&self, launch: &Launch, what: &str) -> Failure {
        Failure::new(what).at(launch.line()).stderr(&self.read_stderr())
    }

    fn read_stderr(&self) -> Vec<u8> {
        let size = rustix::fs::fstat(&self.stderr).map_or(0, |stat| stat.st_size.max(0) as u64);
        let read = |at: u64, length: usize| {
            let mut bytes = vec![0; length];
            let got = rustix::io::pread(&self.stderr, &mut bytes[..], at).unwrap_or(0);
            bytes.truncate(got);
            bytes
        };
        // One byte more than is kept, so that what is kept says that something was left out.
        let limit = 16 * STDERR_KEPT as u64;
        match size <= limit {
            true => read(0, size as usize),
            false => {
                let mut bytes = read(0, STDERR_KEPT);
                bytes.extend(read(size - limit / 2, limit as usize / 2));
                bytes
            }
        }
    }

    fn spawn_and_wait(&mut self, launch: &Launch) -> Result<i32, Failure> {
        let pid = spawn(launch, &self.actions, &self.attributes)
            .map_err(|e| Failure::new("cannot start").at(launch.line()).errno(e))?;
        wait_for(pid).map_err(|e| Failure::new("cannot wait for").at(launch.line()).io(&e))
    }
}

/// What a wait status says, in words.
pub(crate) fn describe_status(status: i32) -> String {
    if libc::WIFSIGNALED(status) {
        let number = libc::WTERMSIG(status);
        return match signal_name(number) {
            Some(name) => format!("killed by {name}"),
            None => format!("killed by signal {number}"),
        };
    }
    match libc::WEXITSTATUS(status) {
        // What posix_spawn's child exits with when it cannot exec, and what a shell says.
        127 => "exit status 127 (command not found?)".to_owned(),
        code => format!("exit status {code}"),
    }
}

fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

struct SpawnActions(Box<libc::posix_spawn_file_actions_t>);

// SAFETY: it owns plain heap memory that no thread is tied to.
unsafe impl Send for SpawnActions {}

impl SpawnActions {
    fn new() -> Result<Self, Failure> {
        let mut actions = Box::new(MaybeUninit::uninit());
        // SAFETY: the call initialises what the pointer points to, or says that it did not.
        let result = unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) };
        succeeded(result)?;
        // SAFETY: initialised just above.
        Ok(SpawnActions(unsafe { actions.assume_init() }))
    }

    fn dup2(&mut self, from: i32, to: i32) -> Result<(), Failure> {
        // SAFETY: initialised in `new`.
        succeeded(unsafe { libc::posix_spawn_file_actions_adddup2(&mut *self.0, from, to) })
    }
}

impl Drop for SpawnActions {
    fn drop(&mut self) {
        // SAFETY: initialised in `new` and dropped once; it cannot fail.
        unsafe { libc::posix_spawn_file_actions_destroy(&mut *self.0) };
    }
}

struct SpawnAttributes(Box<libc::posix_spawnattr_t>);

impl SpawnAttributes {
    /// No signal blocked, and SIGPIPE not ignored: Rust programs ignore it, and commands must not inherit that.
    fn new() -> Result<Self, Failure> {
        let mut attributes = Box::new(MaybeUninit::uninit());
        // SAFETY: the call initialises what the pointer points to, or says that it did not.
        succeeded(unsafe { libc::posix_spawnattr_init(attributes.as_mut_ptr()) })?;
        // SAFETY: initialised just above.
        let mut attributes = SpawnAttributes(unsafe { attributes.assume_init() });
        let mut set = MaybeUninit::uninit();
        let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        // SAFETY: sigemptyset initialises the set before it is used; the attributes are initialised.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            succeeded(libc::posix_spawnattr_setsigmask(&mut *attributes.0, set.as_ptr()))?;
            libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
            succeeded(libc::posix_spawnattr_setsigdefault(&mut *attributes.0, set.as_ptr()))?;
            succeeded(libc::posix_spawnattr_setflags(&mut *attributes.0, flags as libc::c_short))?;
        }
        Ok(attributes)
    }
}

impl Drop for SpawnAttributes {
    fn drop(&mut self) {
        // SAFETY: initialised in `new` and dropped once; it cannot fail.
        unsafe { libc::posix_spawnattr_destroy(&mut *self.0) };
    }
}

fn succeeded(result: i32) -> Result<(), Failure> {
    match result {
        0 => Ok(()),
        errno => Err(Failure::new("cannot set up posix_spawn").errno(Errno::from_raw_os_error(errno))),
    }
}

fn spawn(
    launch: &Launch,
    actions: &SpawnActions,
    attributes: &SpawnAttributes,
) -> Result<libc::pid_t, Errno> {
    let mut pid = 0;
    let program: &CStr = &launch.program;
    // SAFETY: every pointer is to an initialised object that outlives the call; both arrays end with NULL.
    let result = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            program.as_ptr(),
            &*actions.0,
            &*attributes.0,
            launch.arguments.pointers.as_ptr(),
            launch.environment.pointers.as_ptr(),
        )
    };
    match result {
        0 => Ok(pid),
        errno => Err(Errno::from_raw_os_error(errno)),
    }
}

/// Raises the soft limit of open files to the hard one: many tasks with some files each exceed the usual 1024.
pub(crate) fn raise_file_limit() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // If it fails, the call that needs the file says so.
    let _ = rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum },
    );
}

/// A process that a task started beside itself.
pub(crate) struct Partner(libc::pid_t);

/// Forks a partner that closes the descriptors `ours`, does `body` and ends. It dies with the task.
pub(crate) fn fork_partner(ours: [RawFd; 2], body: impl FnOnce()) -> Result<Partner, Failure> {
    let task = rustix::process::getpid();
    // SAFETY: the child calls only what is safe after a fork: `body` is system calls, as the callers see to.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: closes the child's copies of the task's descriptors, which the child never uses.
            ours.iter().for_each(|&fd| unsafe {
                libc::close(fd);
            });
            let follows =
                rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
            if follows.is_ok() && rustix::process::getppid() == Some(task) {
                body();
            }
            // SAFETY: leaves without running anything of the task's.
            unsafe { libc::_exit(0) }
        }
        -1 => Err(Failure::new("cannot start a partner (fork)").io(&std::io::Error::last_os_error())),
        pid => Ok(Partner(pid)),
    }
}

impl Partner {
    /// Waits until it has ended by itself.
    pub(crate) fn wait(self) -> Result<(), Failure> {
        match wait_for(self.0) {
            Ok(0) => Ok(()),
            Ok(status) => Err(Failure::new(format!("the partner: {}", describe_status(status)))),
            Err(error) => Err(Failure::new("cannot wait for the partner").io(&error)),
        }
    }
}

/// Waits for a child's end and returns its status.
fn wait_for(pid: libc::pid_t) -> std::io::Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a valid place for the status; the child is ours and not yet waited for.
        if unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid {
            return Ok(status);
        }
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}
