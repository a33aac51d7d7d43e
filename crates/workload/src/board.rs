//! The shared memory of all tasks: one [`Control`] and one [`Slot`] each.

use std::ptr::NonNull;

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::meter::{self, Control, Slot};
use crate::{Failure, MAX_TASKS};

/// Bytes that the shared memory of `tasks` tasks takes.
pub fn layout(tasks: u32) -> usize {
    size_of::<Control>() + tasks as usize * size_of::<Slot>()
}

/// Shared, zeroed memory for the tasks of a point. It stays shared over `fork`.
pub struct Board {
    at: NonNull<u8>,
    tasks: u32,
}

// SAFETY: the mapping lives as long as the board, and everything in it is atomic.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    /// Makes the shared memory for 1 to [`MAX_TASKS`] tasks.
    ///
    /// # Errors
    /// If `tasks` is out of range, or the system has no memory or file descriptor left.
    pub fn create(tasks: u32) -> Result<Board, Failure> {
        if tasks == 0 || tasks > MAX_TASKS {
            return Err(Failure::new(format!("{tasks} tasks: it has to be 1 to {MAX_TASKS}")));
        }
        let failed = |what: &str, e: rustix::io::Errno| Failure::new(what).errno(e);
        let fd = rustix::fs::memfd_create(c"perfloss-board", MemfdFlags::CLOEXEC)
            .map_err(|e| failed("cannot make the shared counters (memfd_create)", e))?;
        rustix::fs::ftruncate(&fd, layout(tasks) as u64)
            .map_err(|e| failed("cannot size the shared counters (ftruncate)", e))?;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice touches no memory of ours. Zero is a valid
        // value for everything in it; the page alignment covers that of Control and Slot.
        let at = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                layout(tasks),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )
        }
        .map_err(|e| failed("cannot map the shared counters (mmap)", e))?;
        match NonNull::new(at.cast()) {
            Some(at) => Ok(Board { at, tasks }),
            None => Err(Failure::new("the shared counters were mapped at address 0")),
        }
    }

    /// How many tasks there is room for.
    pub fn tasks(&self) -> u32 {
        self.tasks
    }

    /// What the supervisor tells the tasks.
    pub fn control(&self) -> &Control {
        // SAFETY: the mapping starts with a Control (see `layout`) and lives as long as `self`.
        unsafe { self.at.cast().as_ref() }
    }

    /// One slot a task, in the order of their numbers.
    pub fn slots(&self) -> &[Slot] {
        // SAFETY: `tasks` slots follow the Control, whose size is a multiple of a slot's alignment (both 128).
        unsafe {
            let first = self.at.add(size_of::<Control>()).cast::<Slot>();
            std::slice::from_raw_parts(first.as_ptr(), self.tasks as usize)
        }
    }

    /// Puts everything back to "nothing has started", for the next round. No task may be running.
    pub fn reset(&self) {
        meter::reset(self.control(), self.slots());
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: exactly what `create` mapped; no reference into it outlives `self`.
        // Unmapping a whole mapping cannot fail.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), layout(self.tasks)) };
    }
}
