//! The process between perfloss and a round: it outlives perfloss just long enough to leave nothing behind.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, set_child_subreaper, setsid, waitpid,
};
use target::Namespace;

use super::{supervisor, sweep};
use crate::lines::{Sender, wait};
use crate::protocol::{Broken, Message, RoundSpec};
use crate::sys::{self, Fork};

/// Runs a round: the specification comes as a line of JSON on standard input, whose end means "stop at once"; messages
/// go to standard output. For a process of its own, started with nothing but one thread.
pub fn run() -> ExitCode {
    let (Ok(control), Ok(messages)) =
        (std::io::stdin().as_fd().try_clone_to_owned(), std::io::stdout().as_fd().try_clone_to_owned())
    else {
        return ExitCode::FAILURE;
    };
    // The terminal's Ctrl-C is for perfloss, which tells us. (Fails only if we lead a session already.)
    let _ = setsid();
    // Found by name in `ps`, and not killed by a `pkill perfloss` that means the command itself.
    let _ = rustix::thread::set_name(c"loss-guard");
    match guard(control, &messages) {
        Ok(()) => ExitCode::SUCCESS,
        Err(broken) => {
            // Nobody may be there to read it any more.
            let _ = Sender::new(messages).send(&Message::Broken(broken));
            ExitCode::FAILURE
        }
    }
}

fn guard(control: OwnedFd, messages: &OwnedFd) -> Result<(), Broken> {
    let mut control = BufReader::new(File::from(control));
    let mut line = String::new();
    control.read_line(&mut line)?;
    let spec: RoundSpec =
        serde_json::from_str(&line).map_err(|e| Broken::new(format!("the round's specification: {e}")))?;
    let control = control.into_inner();
    let outside = Namespace::current()?;
    // What a killed supervisor leaves becomes our child instead of init's.
    set_child_subreaper(Some(rustix::process::getpid())).map_err(std::io::Error::from)?;
    if spec.isolated {
        sys::unshare(libc::CLONE_NEWPID)?;
    }
    // Closed by the kernel when we end: the supervisor sees it even if we die before it can ask for PDEATHSIG.
    let (alive, held) = pipe_with(PipeFlags::CLOEXEC).map_err(std::io::Error::from)?;
    match sys::fork()? {
        Fork::Child => {
            drop(held);
            drop(control);
            let status = match messages.try_clone() {
                Ok(messages) => supervisor::run(&spec, outside, messages, alive),
                Err(_) => 1,
            };
            sys::exit_now(status)
        }
        Fork::Parent(supervisor) => {
            drop(alive);
            watch(supervisor, &control, &File::from(held))?;
            if !spec.isolated {
                sweep::all_children()?;
            }
            Ok(spec.cleanup.run()?)
        }
    }
}

/// Waits for the end of the supervisor, and brings it about when perfloss is gone. What perfloss says meanwhile is passed on.
fn watch(supervisor: Pid, mut control: &File, mut to_supervisor: &File) -> Result<(), Broken> {
    let ended = pidfd_open(supervisor, PidfdFlags::empty()).map_err(std::io::Error::from)?;
    loop {
        wait(&[control.as_fd(), ended.as_fd()], u64::MAX / 2)?;
        if wait(&[ended.as_fd()], 0)? {
            break;
        }
        if wait(&[control.as_fd()], 0)? {
            let mut byte = [0];
            if control.read(&mut byte)? == 1 {
                // Fails only if it has ended meanwhile.
                let _ = to_supervisor.write_all(&byte);
                continue;
            }
            // Fails only if it has ended meanwhile.
            let _ = kill_process(supervisor, Signal::KILL);
            break;
        }
    }
    waitpid(Some(supervisor), WaitOptions::empty()).map_err(std::io::Error::from)?;
    Ok(())
}
