//! From the first moment of a recording to its last: signals, ends of processes, limits.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use capture::{Capture, Captured};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::not_captured;
use crate::child::{Child, End};
use crate::exit::Failure;

/// Signals are looked at so often at least.
const LOOK: Duration = Duration::from_millis(100);

/// The trace file, and how large it is.
pub(super) struct Counting {
    pub(super) file: File,
    pub(super) size: Arc<AtomicU64>,
}

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.size.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// The signals that end a recording, or are passed on to the command.
pub(super) struct Signals {
    interrupt: Arc<AtomicBool>,
    terminate: Arc<AtomicBool>,
    hang_up: Arc<AtomicBool>,
}

impl Signals {
    pub(super) fn catch() -> Result<Signals, Failure> {
        let catch = |signal| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("cannot handle signals")?;
            Ok::<_, anyhow::Error>(flag)
        };
        Ok(Signals { interrupt: catch(SIGINT)?, terminate: catch(SIGTERM)?, hang_up: catch(SIGHUP)? })
    }

    /// Whether one came since the last look.
    fn any(&self) -> bool {
        [&self.interrupt, &self.terminate, &self.hang_up].iter().any(|f| f.swap(false, Ordering::SeqCst))
    }

    /// Passes on what came. Ctrl-C at a terminal reaches the command by itself.
    fn pass_to(&self, child: &Child) {
        for (flag, signal) in [(&self.interrupt, SIGINT), (&self.terminate, SIGTERM), (&self.hang_up, SIGHUP)]
        {
            if flag.swap(false, Ordering::SeqCst) && (signal == SIGTERM || !in_foreground()) {
                child.signal(signal);
            }
        }
    }
}

/// Whether this process belongs to the foreground of its terminal, so that the terminal's signals reach the command, too.
fn in_foreground() -> bool {
    let Ok(tty) = File::open("/dev/tty") else { return false };
    rustix::termios::tcgetpgrp(&tty).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// When to stop.
pub(super) struct Watch {
    pub(super) begun: Instant,
    pub(super) duration: Option<Duration>,
    pub(super) max_size: u64,
    pub(super) size: Arc<AtomicU64>,
    pub(super) signals: Signals,
}

/// What was watched.
pub(super) struct Seen {
    pub(super) captured: Captured,
    /// The recording ended because the trace was as large as allowed.
    pub(super) full: bool,
    pub(super) wall: Duration,
}

impl Watch {
    /// Waits for what ends the recording.
    pub(super) fn watch(
        &self,
        child: Option<Child>,
        watched: &[OwnedFd],
        capture: Capture,
    ) -> Result<(Seen, Option<Child>), Failure> {
        let mut handles: Vec<&OwnedFd> = watched.iter().collect();
        let own;
        if let Some(child) = &child {
            let pid = Pid::from_raw(child.pid() as i32).context("the command has no process id")?;
            own = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch the command")?;
            handles.push(&own);
        }
        let mut full = false;
        loop {
            let left = self.duration.map(|d| d.saturating_sub(self.begun.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            let ended = wait_for_any(&mut handles, left.unwrap_or(LOOK).min(LOOK))?;
            if ended && handles.is_empty() {
                break;
            }
            match &child {
                Some(child) => self.signals.pass_to(child),
                None if self.signals.any() => break,
                None => {}
            }
            if self.size.load(Ordering::Relaxed) >= self.max_size {
                full = true;
                break;
            }
        }
        // without the time that it takes to end the capture
        let wall = self.begun.elapsed();
        let captured = capture.stop().map_err(not_captured)?;
        Ok((Seen { captured, full, wall }, child))
    }

    /// Waits for the end of the command.
    pub(super) fn wait(&self, child: &mut Child) -> Result<End, Failure> {
        let pid = Pid::from_raw(child.pid() as i32).context("the command has no process id")?;
        loop {
            if let Some(end) = child.try_wait().context("cannot wait for the command")? {
                return Ok(end);
            }
            self.signals.pass_to(child);
            let own = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch the command")?;
            wait_for_any(&mut vec![&own], LOOK)?;
        }
    }
}

/// Waits until one of the processes ends, a signal comes or the time is up; takes away those that have ended.
fn wait_for_any(handles: &mut Vec<&OwnedFd>, most: Duration) -> Result<bool, Failure> {
    let mut fds: Vec<PollFd<'_>> = handles.iter().map(|fd| PollFd::new(*fd, PollFlags::IN)).collect();
    let most = Timespec::try_from(most).context("cannot wait")?;
    match poll(&mut fds, Some(&most)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(anyhow::Error::from(e).context("cannot wait").into()),
    }
    let ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
    let mut i = 0;
    handles.retain(|_| {
        i += 1;
        !ended[i - 1]
    });
    Ok(ended.contains(&true))
}
