//! Talking to a partner or to oneself: pipes, sockets, futexes.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use rustix::io::{read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::futex;

use super::{BuiltIn, Looped};
use crate::failure::{Fault, Named};
use crate::{Failure, Meter, Mode, Modes, Place, Prepared};

pub(super) const ALL: &[BuiltIn] = &[
    BuiltIn::new("pipe", "a byte written to and read from the task's own pipe", |place| {
        looped(
            place,
            |_, _| {
                let (reader, writer) = pipe()?;
                Ok(Ends { reader, writer })
            },
            there_and_back,
        )
    }),
    BuiltIn::new(
        "unix",
        "a byte written to and read from the task's own pair of Unix stream sockets",
        |place| {
            looped(
                place,
                |_, _| {
                    let (reader, writer) =
                        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                            .map_err(|e| Failure::new("socketpair").errno(e))?;
                    Ok(Ends { reader, writer })
                },
                there_and_back,
            )
        },
    ),
    BuiltIn::new(
        "context_switch",
        "a byte sent through a pipe to the task's partner, which sends it back through another",
        |place| Ok(Box::new(ContextSwitch { mode: place.mode })),
    ),
    BuiltIn::new("futex", "FUTEX_WAKE on the task's own word, on which nobody waits", |place| {
        looped(
            place,
            |_, _| Ok(Box::new(AtomicU32::new(0))),
            |word| futex::wake(word, futex::Flags::PRIVATE, 1).named("futex").map(drop),
        )
    }),
    BuiltIn::new(
        "futex:same",
        "FUTEX_WAIT with a value that does not match, on one word for all tasks",
        |_| {
            Ok(Box::new(Looped {
                shared: Arc::new(AtomicU32::new(0)),
                begin: |word: &Arc<AtomicU32>, _| Ok(Arc::clone(word)),
                op: |word: &mut Arc<AtomicU32>| match futex::wait(word, futex::Flags::PRIVATE, 1, None) {
                    Err(rustix::io::Errno::AGAIN) => Ok(()),
                    Err(errno) => Err(errno).named("futex"),
                    Ok(()) => Err(Fault::new("futex: it waited")),
                },
                clean: |_: &Arc<AtomicU32>| Ok(()),
            }))
        },
    )
    .modes(Modes::THREADS),
];

struct Ends {
    reader: OwnedFd,
    writer: OwnedFd,
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
    pipe_with(PipeFlags::CLOEXEC).map_err(|e| Failure::new("pipe").errno(e))
}

fn one_byte(moved: usize) -> Result<(), Fault> {
    match moved {
        1 => Ok(()),
        _ => Err(Fault::new("the other end was closed")),
    }
}

fn send(to: &OwnedFd) -> Result<(), Fault> {
    one_byte(write(to, b"x").named("write")?)
}

fn receive(from: &OwnedFd) -> Result<(), Fault> {
    let mut byte = [0];
    one_byte(read(from, &mut byte).named("read")?)
}

fn there_and_back(ends: &mut Ends) -> Result<(), Fault> {
    send(&ends.writer)?;
    receive(&ends.reader)
}

fn looped<Own, Begin, Op>(_: &Place, begin: Begin, op: Op) -> Result<Box<dyn Prepared>, Failure>
where
    Own: 'static,
    Begin: Fn(&(), u32) -> Result<Own, Failure> + Send + Sync + 'static,
    Op: Fn(&mut Own) -> Result<(), Fault> + Send + Sync + 'static,
{
    Ok(Box::new(Looped { shared: (), begin, op, clean: |(): &()| Ok(()) }))
}

/// Each task has a partner of the same kind: a process or a thread.
struct ContextSwitch {
    mode: Mode,
}

/// What the partner does: ends when the task closes its end.
fn partner(from: &OwnedFd, to: &OwnedFd) {
    while receive(from).and_then(|()| send(to)).is_ok() {}
}

impl Prepared for ContextSwitch {
    fn run(&self, _: u32, meter: &mut Meter<'_>) -> Result<(), Failure> {
        let (partner_reader, writer) = pipe()?;
        let (reader, partner_writer) = pipe()?;
        let mut ends = Ends { reader, writer };
        match self.mode {
            Mode::Threads => {
                let start =
                    std::thread::Builder::new().spawn(move || partner(&partner_reader, &partner_writer));
                let thread = start.map_err(|e| Failure::new("cannot start a partner").io(&e))?;
                let result = ping(&mut ends, meter);
                drop(ends);
                match thread.join() {
                    Ok(()) => result,
                    Err(_) => Err(Failure::new("the partner panicked")),
                }
            }
            Mode::Processes => {
                let ours = [ends.reader.as_raw_fd(), ends.writer.as_raw_fd()];
                let child = crate::process::fork_partner(ours, || partner(&partner_reader, &partner_writer))?;
                drop((partner_reader, partner_writer));
                let result = ping(&mut ends, meter);
                drop(ends);
                child.wait()?;
                result
            }
        }
    }

    fn cleanup(&self) -> Result<(), Failure> {
        Ok(())
    }
}

fn ping(ends: &mut Ends, meter: &mut Meter<'_>) -> Result<(), Failure> {
    while meter.running() {
        there_and_back(ends)?;
        meter.done();
    }
    Ok(())
}
