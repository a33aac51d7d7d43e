//! The pattern of the reported case, as code: tasks that take a directory's lock and inside it the lock of an allocation group,
//! beside workers that take the group's lock alone.
//!
//! Creating or unlinking a file takes the directory's lock around everything, and in it the lock of the allocation group's inode
//! header for a while; background workers that free unlinked inodes take the latter too. Whatever the policy of the group's lock is, a wait for it
//! holds up everybody who wants the directory. [`run`] races such a crowd for a window of time and says what it did: operations, waits, hand-offs, bypasses,
//! CPU time. With no tasks, only workers, it is plain contention for one lock.
//!
//! How often to repeat a window, in which order, and what is significant is the business of whoever calls it.

mod contender;
mod histogram;
mod race;
mod work;

pub use contender::{AnyLock, FutexSemaphore, Lock, Policy};
pub use histogram::Histogram;
pub use race::{Counts, Edge, RaceError, run, uncontended_ns};

/// Who does what, and for how long. All times in ns of work, that is of a busy CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Threads that take a directory's lock, and a group's inside.
    pub tasks: u32,
    /// Threads that take a group's lock only.
    pub workers: u32,
    /// Directories; task `i` uses directory `i % directories`. At least 1.
    pub directories: u32,
    /// Allocation groups; directory `d` is in group `d % groups`, worker `w` works on group `w % groups`. At least 1.
    pub groups: u32,
    /// What a task does without any lock.
    pub think_ns: u64,
    /// What it does with the directory's lock alone: half of it before, half after it has the group's.
    pub directory_ns: u64,
    /// What it does with both locks.
    pub hold_ns: u64,
    /// What a worker does without any lock.
    pub worker_think_ns: u64,
    /// What a worker does with a group's lock.
    pub worker_hold_ns: u64,
}

impl Pattern {
    /// Plain contention: `threads` that do nothing but take one lock for `hold_ns`, and think for `think_ns`.
    pub fn plain(threads: u32, hold_ns: u64, think_ns: u64) -> Self {
        Self {
            tasks: 0,
            workers: threads,
            directories: 1,
            groups: 1,
            think_ns: 0,
            directory_ns: 0,
            hold_ns: 0,
            worker_think_ns: think_ns,
            worker_hold_ns: hold_ns,
        }
    }

    /// All threads.
    pub fn threads(&self) -> u32 {
        self.tasks.saturating_add(self.workers)
    }
}
