//! JSON lines over pipes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest line that is accepted: a round's measurements with 2048 tasks take far less.
const LONGEST: usize = 4 << 20;

/// The writing end. Short lines (up to `PIPE_BUF`) of several processes do not mix.
pub(crate) struct Sender(File);

impl Sender {
    pub fn new(fd: OwnedFd) -> Sender {
        Sender(fd.into())
    }

    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        (&self.0).write_all(&line)
    }
}

/// The reading end.
pub(crate) struct Receiver {
    file: File,
    pending: Vec<u8>,
    ended: bool,
}

impl Receiver {
    pub fn new(fd: OwnedFd) -> Receiver {
        Receiver { file: fd.into(), pending: Vec::new(), ended: false }
    }

    /// The next message that has come, without waiting; call it until it gives `None`, after `poll` said there is
    /// something.
    pub fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(end) = self.pending.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            if self.ended || !ready(self.file.as_fd())? {
                return Ok(None);
            }
            let mut chunk = [0u8; 65536];
            match self.file.read(&mut chunk) {
                Ok(0) => self.ended = true,
                Ok(n) => self.pending.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if self.pending.len() > LONGEST {
                return Err(io::Error::other("a message is too long"));
            }
        }
    }

    /// Whether the other end is closed and everything was read.
    pub fn ended(&self) -> bool {
        self.ended
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn ready(fd: BorrowedFd<'_>) -> io::Result<bool> {
    wait(&[fd], 0)
}

/// Waits until one of `fds` has something (its end included), or for `ns`. Whether one has.
pub(crate) fn wait(fds: &[BorrowedFd<'_>], ns: u64) -> io::Result<bool> {
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    match poll(&mut polled, Some(&timeout)) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_in_order_and_the_end_is_seen() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let (sender, mut receiver) = (Sender::new(write), Receiver::new(read));
        sender.send(&"a\nb").unwrap();
        sender.send(&7).unwrap();
        assert_eq!(receiver.next::<String>().unwrap().unwrap(), "a\nb");
        assert_eq!(receiver.next::<u32>().unwrap(), Some(7));
        assert_eq!(receiver.next::<u32>().unwrap(), None);
        assert!(!receiver.ended());
        drop(sender);
        assert_eq!(receiver.next::<u32>().unwrap(), None);
        assert!(receiver.ended());
    }
}
