//! A command that waits at a gate until everything is ready to watch it.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With that exit status.
    Exit(i32),
    /// By that signal.
    Signal(i32),
}

/// A process that is about to run a command.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    gate: Option<OwnedFd>,
    failure: OwnedFd,
    ended: Option<End>,
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for the two descriptors that pipe2 writes.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: pipe2 has just given us both, and nobody else has them.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

impl Child {
    /// Makes the process; the command runs from [`Child::release`] on. This process must have no other thread.
    ///
    /// # Errors
    /// When there can be no further process.
    pub fn hold(command: &[OsString]) -> io::Result<Child> {
        let invalid = |_| io::Error::new(io::ErrorKind::InvalidInput, "an argument has a NUL byte in it");
        let words: Vec<CString> =
            command.iter().map(|w| CString::new(w.as_bytes())).collect::<Result<_, _>>().map_err(invalid)?;
        let mut argv: Vec<*const libc::c_char> = words.iter().map(|w| w.as_ptr()).collect();
        argv.push(std::ptr::null());
        let (wait, gate) = pipe()?;
        let (failure, fail) = pipe()?;
        let (wait_fd, gate_fd, fail_fd) = (wait.as_raw_fd(), gate.as_raw_fd(), fail.as_raw_fd());
        // SAFETY: there is one thread; the child calls nothing but async-signal-safe functions on memory that exists already.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above; the descriptors are open, `argv` ends with a null pointer, and the child never returns.
            unsafe {
                libc::close(gate_fd);
                // Rust programs ignore SIGPIPE; the command should not inherit that
                libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                // in the report a wait of its own choice, which `poll` is, and no wait for somebody else
                let mut gate = libc::pollfd { fd: wait_fd, events: libc::POLLIN, revents: 0 };
                libc::poll(&raw mut gate, 1, -1);
                let mut byte = 0u8;
                let got = loop {
                    let got = libc::read(wait_fd, (&raw mut byte).cast(), 1);
                    if got >= 0 || *libc::__errno_location() != libc::EINTR {
                        break got;
                    }
                };
                // the gate was closed, not opened: there is nobody to run for
                if got == 1 {
                    libc::execvp(argv[0], argv.as_ptr());
                    let error: i32 = *libc::__errno_location();
                    libc::write(fail_fd, (&raw const error).cast(), size_of::<i32>());
                }
                libc::_exit(127)
            }
        }
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Child { pid, gate: Some(gate), failure, ended: None })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Runs the command.
    ///
    /// # Errors
    /// When the command cannot be run: not found, not allowed.
    pub fn release(&mut self) -> io::Result<()> {
        let Some(gate) = self.gate.take() else { return Ok(()) };
        rustix::io::write(&gate, &[1])?;
        drop(gate);
        let mut error = [0; 4];
        // at the exec the other end closes: then it runs
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.failure, &mut error))? {
            0 => Ok(()),
            _ => {
                self.wait()?;
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error)))
            }
        }
    }

    /// Sends a signal, if the command has not ended.
    pub fn signal(&self, signal: i32) {
        if self.ended.is_none() {
            // SAFETY: the process is our child and was not waited for, so the number is still its own.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn try_wait(&mut self) -> io::Result<Option<End>> {
        self.wait_with(libc::WNOHANG)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn wait(&mut self) -> io::Result<End> {
        loop {
            if let Some(end) = self.wait_with(0)? {
                return Ok(end);
            }
        }
    }

    fn wait_with(&mut self, flags: i32) -> io::Result<Option<End>> {
        if self.ended.is_some() {
            return Ok(self.ended);
        }
        let mut status = 0;
        // SAFETY: `status` is a valid place for the status, and the process is our child.
        match unsafe { libc::waitpid(self.pid, &raw mut status, flags) } {
            0 => Ok(None),
            pid if pid > 0 => {
                self.ended = Some(if libc::WIFSIGNALED(status) {
                    End::Signal(libc::WTERMSIG(status))
                } else {
                    End::Exit(libc::WEXITSTATUS(status))
                });
                Ok(self.ended)
            }
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(None),
                error => Err(error),
            },
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // a command that was never released ends at the closed gate; one that runs is not ours to end
        if self.gate.take().is_some() {
            let _ = self.wait();
        }
    }
}

/// Ends this process as the command ended.
pub fn end_as(end: End) -> ! {
    match end {
        End::Exit(status) => std::process::exit(status),
        End::Signal(signal) => {
            // SAFETY: plain system calls; no core of ours for a signal that is not about us.
            unsafe {
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            }
            std::process::exit(128 + signal)
        }
    }
}
