//! The system calls for which there is no safe wrapper.

use std::io;

use rustix::process::Pid;

/// Which side of a fork this is.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old one, with the id of the new one.
    Parent(Pid),
}

/// Forks. The child goes on with a copy of everything, so it must do so only while this process has one thread: the
/// processes of a round see to that (none of them starts a thread before it has forked all that it forks).
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the caller's process has one thread (see above), so that no lock can be held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => match Pid::from_raw(pid) {
            Some(pid) => Ok(Fork::Parent(pid)),
            None => Err(io::Error::other("fork gave no process id")),
        },
    }
}

/// Ends this process at once: no destructors, no atexit handlers. For forked children, whose copies of the parent's
/// buffers and guards are not theirs to flush or drop.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: _exit only ends the process.
    unsafe { libc::_exit(status) }
}

/// Leaves the namespaces of the parent: for mounts and System V IPC (this process), or for process ids (its children).
pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: the flags that are used here (CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID) touch neither memory nor file descriptors.
    match unsafe { libc::unshare(flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Signals as a freshly started program has them: the Rust runtime ignores SIGPIPE, and a shell may have ignored others.
pub(crate) fn default_signals() {
    for signal in 1..32 {
        // SAFETY: SIG_DFL runs no code of ours; failures (SIGKILL, SIGSTOP) do not matter.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: an empty set is valid, and the pointers are.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// The id of the calling thread.
pub(crate) fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}
