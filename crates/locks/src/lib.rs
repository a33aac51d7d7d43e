//! The kernel's sleeping locks and their adaptive variants, in user space.

mod adaptive;
mod counting;
#[cfg(any(test, loom))]
mod models;
mod mutex;
pub mod pattern;
mod rwsem;
mod semaphore;
mod spin;
mod spin_queue;
mod sys;
mod wait_list;

pub use adaptive::AdaptiveSemaphore;
pub use counting::{Counting, Permit};
pub use mutex::{Mutex, MutexGuard};
pub use rwsem::{ReadGuard, RwSemaphore, WriteGuard};
pub use semaphore::Semaphore;
