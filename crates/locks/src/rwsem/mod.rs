//! The kernel's read-write semaphore.
//!
//! How it works, and why its memory orderings suffice, is said in `raw.rs`.
//!
//! # Guarantees
//!
//! - **Fairness:** bounded by time. A waiter at the head is overtaken for 4 ms, then until it looks next (each release wakes it), then by nobody. Writers in the list are
//!   served in order; readers are served together with the first of them.
//! - **Release:** by the thread that locked it (guards cannot be sent).
//! - **Poisoning:** none, as for [`Mutex`](crate::Mutex).
//! - **Recursion:** reading twice on one thread may deadlock if a writer waits between the two.

mod raw;

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

use self::raw::RawRwSemaphore;
use crate::sys::{const_constructor, deadline_after};

/// A read-write lock whose writers spin while its owner seems to run, and sleep otherwise, as the kernel's does.
///
/// ```
/// let lock = locks::RwSemaphore::new(vec![1, 2, 3]);
/// assert_eq!(lock.read().len(), 3);
/// let mut writer = lock.write();
/// writer.push(4);
/// let reader = writer.downgrade();
/// assert_eq!(lock.read().len(), reader.len());
/// ```
pub struct RwSemaphore<T: ?Sized> {
    raw: RawRwSemaphore,
    data: UnsafeCell<T>,
}

// SAFETY: writers have the data to themselves, so it may be sent; readers share it, so it has to be shareable too.
unsafe impl<T: ?Sized + Send> Send for RwSemaphore<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwSemaphore<T> {}

impl<T> RwSemaphore<T> {
    const_constructor! {
        /// An unlocked one.
        pub fn new(value: T) -> Self {
            Self { raw: RawRwSemaphore::new(), data: UnsafeCell::new(value) }
        }
    }

    /// The data, as nobody else can have the lock any more.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> RwSemaphore<T> {
    fn reader(&self) -> ReadGuard<'_, T> {
        ReadGuard { lock: self, not_send: PhantomData }
    }

    fn writer(&self) -> WriteGuard<'_, T> {
        WriteGuard { lock: self, not_send: PhantomData }
    }

    /// Locks for reading, together with other readers; waits as long as it takes.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        self.raw.read(|| None);
        self.reader()
    }

    /// Locks for reading if that is possible at once and nobody waits.
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        self.raw.try_read().then(|| self.reader())
    }

    /// Locks for reading; gives up after `timeout`. A time-out too long for the clock is none.
    pub fn read_timeout(&self, timeout: Duration) -> Option<ReadGuard<'_, T>> {
        self.raw.read(|| deadline_after(timeout)).then(|| self.reader())
    }

    /// Locks for writing; waits as long as it takes.
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T> {
        self.raw.write(|| None);
        self.writer()
    }

    /// Locks for writing if that is possible at once.
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        self.raw.try_write().then(|| self.writer())
    }

    /// Locks for writing; gives up after `timeout`. A time-out too long for the clock is none.
    pub fn write_timeout(&self, timeout: Duration) -> Option<WriteGuard<'_, T>> {
        self.raw.write(|| deadline_after(timeout)).then(|| self.writer())
    }

    /// The data, without locking: nobody else can have the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwSemaphore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RwSemaphore");
        match self.try_read() {
            Some(guard) => out.field("data", &&*guard),
            None => out.field("data", &format_args!("<locked>")),
        };
        out.finish_non_exhaustive()
    }
}

impl<T: Default> Default for RwSemaphore<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Shared access to the data of a [`RwSemaphore`], which is unlocked when this is dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct ReadGuard<'a, T: ?Sized> {
    lock: &'a RwSemaphore<T>,
    not_send: PhantomData<*const ()>,
}

/// Exclusive access to the data of a [`RwSemaphore`], which is unlocked when this is dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct WriteGuard<'a, T: ?Sized> {
    lock: &'a RwSemaphore<T>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the data only.
unsafe impl<T: ?Sized + Sync> Sync for ReadGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for WriteGuard<'_, T> {}

impl<'a, T: ?Sized> WriteGuard<'a, T> {
    /// Keeps the lock, but for reading: nobody else can write in between, and readers that wait are let in.
    pub fn downgrade(self) -> ReadGuard<'a, T> {
        let writer = ManuallyDrop::new(self);
        writer.lock.raw.downgrade();
        writer.lock.reader()
    }
}

impl<T: ?Sized> Deref for ReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: locked for reading by this guard.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> Deref for WriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: locked for writing by this guard.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: locked for writing by this guard, which is borrowed exclusively.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock_read();
    }
}

impl<T: ?Sized> Drop for WriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock_write();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for WriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
