//! The loaded shared object of a test case, and the calls into it.

use std::ffi::c_ulong;
use std::path::Path;
use std::time::{Duration, Instant};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::Failure;
use crate::process::describe_status;

/// A clean-up that takes longer is killed.
const CLEANUP_LIMIT: Duration = Duration::from_secs(10);

type Testcase = unsafe extern "C" fn(*mut u64, c_ulong);
type PrepareCase = unsafe extern "C" fn(c_ulong);
type CleanupCase = unsafe extern "C" fn();
type Setup = unsafe extern "C" fn(libc::c_int);

/// A loaded test case.
pub(super) struct Case {
    name: String,
    testcase: Testcase,
    prepare: Option<PrepareCase>,
    cleanup: Option<CleanupCase>,
    threads: bool,
    /// Keeps the functions above where they are.
    _library: Library,
}

impl Case {
    pub(super) fn open(object: &Path, name: &str, threads: bool) -> Result<Case, Failure> {
        let refused = |what: &str, e: libloading::Error| Failure::new(format!("{what}: {e}")).at(name);
        // SAFETY: loading runs the constructors of the user's own test case, which is what the user asked for.
        let library = unsafe { Library::open(Some(object), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|e| refused("cannot load the test case", e))?;
        // SAFETY: will-it-scale defines these functions with these types; an older `testcase_prepare(void)` ignores the
        // argument. `perfloss_setup` is the shim's.
        unsafe {
            let setup: Setup =
                *library.get(b"perfloss_setup\0").map_err(|e| refused("not compiled by perfloss", e))?;
            setup(threads.into());
            Ok(Case {
                name: name.to_owned(),
                testcase: *library
                    .get(b"testcase\0")
                    .map_err(|e| refused("no testcase(): is this a will-it-scale test case?", e))?,
                prepare: library.get(b"testcase_prepare\0").ok().map(|f| *f),
                cleanup: library.get(b"testcase_cleanup\0").ok().map(|f| *f),
                threads,
                _library: library,
            })
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn prepare(&self, tasks: u32) {
        // Rust programs ignore SIGPIPE, test cases expect the default.
        // SAFETY: setting a signal to its default touches no memory of ours.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        if let Some(prepare) = self.prepare {
            // SAFETY: called once, before any task, as will-it-scale does.
            unsafe { prepare(tasks.into()) };
        }
    }

    pub(super) fn testcase(&self, counter: *mut u64, task: u32) {
        // SAFETY: the counter is a task's own 8 bytes of shared memory, which outlive the task.
        unsafe { (self.testcase)(counter, task.into()) };
    }

    /// Calls `testcase_cleanup` in a fork: there the tasks' threads do not exist and hold no locks, and a clean-up
    /// that crashes, exits or hangs does no harm.
    pub(super) fn cleanup(&self) -> Result<(), Failure> {
        let Some(cleanup) = self.cleanup else {
            return Ok(());
        };
        if self.threads {
            sleep_instead_of_crashing();
        }
        // SAFETY: the child only calls the case's clean-up, then leaves; glibc keeps its own locks usable over a fork.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as will-it-scale calls it, after the tasks have ended; a crash is to end this child.
            unsafe {
                FATAL.iter().for_each(|&signal| {
                    libc::signal(signal, libc::SIG_DFL);
                });
                cleanup();
                libc::_exit(0);
            }
        }
        if pid < 0 {
            let error = std::io::Error::last_os_error();
            return Err(Failure::new("cannot fork for testcase_cleanup()").at(&self.name).io(&error));
        }
        let failed = |why: &str| Err(Failure::new(format!("testcase_cleanup(): {why}")).at(&self.name));
        match wait_until(pid, Instant::now() + CLEANUP_LIMIT) {
            Some(0) => Ok(()),
            Some(status) => failed(&describe_status(status)),
            None => failed("did not end within 10 s"),
        }
    }
}

/// Cases that move the program break (`brk1`, `brk2`) share it, as threads, with this process's heap. From now on malloc neither
/// gives memory back nor soon needs more.
pub(super) fn keep_heap_off_brk() {
    const SPARE: libc::c_int = 16 << 20;
    // SAFETY: sets parameters of malloc; then allocates a block that is larger than what is free and smaller than what malloc
    // would map apart, which makes it take the spare memory.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        libc::mallopt(libc::M_TOP_PAD, SPARE);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        let blocks: [_; 8] = std::array::from_fn(|_| libc::malloc(512 << 10));
        blocks.into_iter().for_each(|block| libc::free(block));
    }
}

/// The child's status; `None` if it had to be killed.
fn wait_until(pid: libc::pid_t, deadline: Instant) -> Option<i32> {
    let mut status = 0;
    loop {
        // SAFETY: our child, not yet waited for; `status` is a valid place.
        if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == pid {
            return Some(status);
        }
        if Instant::now() >= deadline {
            // SAFETY: still our child: it was not waited for.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, &raw mut status, 0);
            }
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What ends a process whose code went wrong.
const FATAL: [libc::c_int; 6] =
    [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGPIPE];

extern "C" fn sleep_for_ever(_: libc::c_int) {
    loop {
        // SAFETY: waits for a signal; async-signal-safe.
        unsafe { libc::pause() };
    }
}

/// Threads of test cases cannot be stopped. From now on one that asserts or crashes sleeps until the process leaves.
fn sleep_instead_of_crashing() {
    let handler: extern "C" fn(libc::c_int) = sleep_for_ever;
    for signal in FATAL {
        // SAFETY: the handler only calls an async-signal-safe function and never returns.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}
