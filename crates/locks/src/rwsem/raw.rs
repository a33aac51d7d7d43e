//! The algorithm of the read-write semaphore, without data.
//!
//! # Algorithm
//!
//! Source: `kernel/locking/rwsem.c`. One word counts readers and has three marks: a writer, waiters, hand-off. A second word hints at the owner: readers, or
//! the CPU on which the writer took it.
//!
//! - **Readers** add themselves to the count. If that found a writer or somebody who waits, they look closer: unless it is held by other readers with somebody
//!   waiting (a stream of readers must not starve a writer), a reader may *steal* a lock without a writer; otherwise it takes itself off the count and sleeps
//!   until it is *granted* the lock. Readers do not spin.
//! - **Writers** that find it taken spin in a [queue](crate::spin_queue), of which the first competes as long as the owner is a writer that can be thought to run; then they
//!   sleep in the list.
//! - **Release** wakes the head of the list: a writer is only woken, and has to compete; readers are granted the lock, and with the first reader all others in the list, wherever they are.
//! - **Hand-off:** a head that has waited 4 ms and still finds the lock taken sets the hand-off mark. From then on nobody but the head may take it.
//!
//! # Memory orderings
//!
//! Locking is an `Acquire`, unlocking a `Release` operation on the count; everything else on it is a read-modify-write and continues the release sequence. A reader that is granted
//! the lock acquires through its signal what the thread that granted it had acquired from the count. The mark for waiters and the list change with the list locked. A waiter sets
//! the mark before it looks at the count for the last time, a release clears its part of the count before it looks at the mark, both in one read-modify-write of one word: one of the two sees the other.

use crate::spin::{ROUNDS, SpinBudget};
use crate::spin_queue::SpinQueue;
use crate::sys::{
    AtomicU32, AtomicU64, Deadline, Ordering, Waker, const_constructor, cpu_plus_one, has_passed, now_ns,
};
use crate::wait_list::{LockedList, WaitList, Waiter};

const WRITER: u64 = 1;
/// Somebody is on the list.
const WAITERS: u64 = 1 << 1;
/// The head of the list is the only one who may take the lock.
const HANDOFF: u64 = 1 << 2;
const READER: u64 = 1 << 8;
const READERS: u64 = !(READER - 1);
const HELD: u64 = WRITER | READERS;

/// What [`Waiter::kind`] says.
const WANTS_TO_READ: u32 = 0;
const WANTS_TO_WRITE: u32 = 1;

/// How long the head of the list is overtaken, in ns. The kernel's figure.
const HANDOFF_AFTER_NS: u64 = 4_000_000;

/// The owner hint: nobody known, readers, or a writer's CPU plus one.
const NOBODY: u32 = 0;
const BY_READERS: u32 = u32::MAX;

/// Whom a release may wake.
#[derive(Clone, Copy, PartialEq)]
enum Wake {
    /// Whoever is the head of the list.
    Any,
    /// Readers, if one is the head.
    Readers,
    /// Readers; the caller holds the lock for reading.
    ReadersWithReader,
}

/// Who has the lock, who waits, and how they wait.
pub(super) struct RawRwSemaphore {
    count: AtomicU64,
    owner: AtomicU32,
    spinners: SpinQueue,
    budget: SpinBudget,
    waiters: WaitList,
    /// When the head of the list, and everybody after it, came: set by each waiter under the list's lock.
    head_since: AtomicU64,
}

/// Sleepers to wake once the list is unlocked.
struct Wakers {
    some: [Option<Waker>; 8],
    count: usize,
}

impl Wakers {
    fn new() -> Self {
        Self { some: [const { None }; 8], count: 0 }
    }

    /// Keeps one for later; if there are too many already, it is woken at once.
    fn add(&mut self, waker: Waker) {
        match self.some.get_mut(self.count) {
            Some(place) => {
                *place = Some(waker);
                self.count += 1;
            }
            None => waker.wake(),
        }
    }

    fn wake(self) {
        self.some.into_iter().flatten().for_each(Waker::wake);
    }
}

impl RawRwSemaphore {
    const_constructor! {
        pub(super) fn new() -> Self {
            Self {
                count: AtomicU64::new(0),
                owner: AtomicU32::new(NOBODY),
                spinners: SpinQueue::new(),
                budget: SpinBudget::new(),
                waiters: WaitList::new(),
                head_since: AtomicU64::new(0),
            }
        }
    }

    #[inline]
    pub(super) fn read(&self, deadline: impl FnOnce() -> Deadline) -> bool {
        let before = self.count.fetch_add(READER, Ordering::Acquire);
        if before & (WRITER | WAITERS | HANDOFF) == 0 {
            self.owner.store(BY_READERS, Ordering::Relaxed);
            return true;
        }
        self.read_contended(before + READER, deadline())
    }

    pub(super) fn try_read(&self) -> bool {
        let mut count = self.count.load(Ordering::Relaxed);
        while count & (WRITER | WAITERS | HANDOFF) == 0 {
            match self.count.compare_exchange_weak(
                count,
                count + READER,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    self.owner.store(BY_READERS, Ordering::Relaxed);
                    return true;
                }
                Err(now) => count = now,
            }
        }
        false
    }

    /// `count` includes this reader already.
    #[cold]
    fn read_contended(&self, count: u64, deadline: Deadline) -> bool {
        let others_read = count & READERS > READER && self.owner.load(Ordering::Relaxed) == BY_READERS;
        if !(others_read && count & WRITER == 0) && count & (WRITER | HANDOFF) == 0 {
            // Stolen. The count has this reader since an Acquire operation that saw no writer.
            self.owner.store(BY_READERS, Ordering::Relaxed);
            if count & READERS == READER && count & WAITERS != 0 {
                // The first to read lets in the readers that wait.
                let mut wakers = Wakers::new();
                let list = self.waiters.lock();
                self.wake_first(&list, Wake::ReadersWithReader, &mut wakers);
                drop(list);
                wakers.wake();
            }
            return true;
        }
        let waiter = Waiter::new(WANTS_TO_READ);
        let mut wakers = Wakers::new();
        {
            let list = self.waiters.lock();
            let alone = list.is_empty();
            if alone {
                if self.count.load(Ordering::Acquire) & (WRITER | HANDOFF) == 0 {
                    self.owner.store(BY_READERS, Ordering::Relaxed);
                    return true;
                }
                self.head_since.store(now_ns(), Ordering::Relaxed);
            }
            // SAFETY: the waiter is new, and this function does not return before it is off the list: a grant takes it off,
            // and so does giving up.
            unsafe { list.push(&waiter) };
            let mark = if alone { WAITERS } else { 0 };
            // One operation, so that no release can see the one without the other.
            let now = self.count.fetch_sub(READER - mark, Ordering::AcqRel).wrapping_sub(READER - mark);
            if now & HELD == 0 || now & WRITER == 0 && alone {
                self.wake_first(&list, Wake::Any, &mut wakers);
            }
        }
        wakers.wake();
        if waiter.sleep(deadline) {
            return true;
        }
        let list = self.waiters.lock();
        if waiter.is_signalled() {
            return true;
        }
        self.give_up(list, &waiter);
        false
    }

    #[inline]
    pub(super) fn write(&self, deadline: impl FnOnce() -> Deadline) -> bool {
        if self.count.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            self.owner.store(cpu_plus_one(), Ordering::Relaxed);
            return true;
        }
        self.write_contended(deadline())
    }

    /// Takes the lock for writing past the list, if nobody has it and it is not reserved.
    pub(super) fn try_write(&self) -> bool {
        let mut count = self.count.load(Ordering::Relaxed);
        while count & (HELD | HANDOFF) == 0 {
            match self.count.compare_exchange_weak(
                count,
                count | WRITER,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    self.owner.store(cpu_plus_one(), Ordering::Relaxed);
                    return true;
                }
                Err(now) => count = now,
            }
        }
        false
    }

    /// Whether to spin on: no hand-off is asked for, and the owner is a writer, on another CPU, or not known yet.
    fn is_spinnable(&self) -> bool {
        if self.count.load(Ordering::Relaxed) & HANDOFF != 0 {
            return false;
        }
        match self.owner.load(Ordering::Relaxed) {
            NOBODY => true,
            BY_READERS => false,
            cpu => cpu != cpu_plus_one(),
        }
    }

    #[cold]
    fn write_contended(&self, deadline: Deadline) -> bool {
        if self.budget.is_worth_it() && self.is_spinnable() {
            if let Some(turn) = self.spinners.turn() {
                let done = |_| self.try_write().then_some(());
                let taken = self.budget.spin(deadline, done, || !self.is_spinnable(), ROUNDS);
                self.spinners.leave(turn);
                if taken.is_some() {
                    return true;
                }
            }
            if has_passed(deadline) {
                return false;
            }
        }
        self.sleep_to_write(deadline)
    }

    fn sleep_to_write(&self, deadline: Deadline) -> bool {
        let waiter = Waiter::new(WANTS_TO_WRITE);
        let since = now_ns();
        let mut list = self.waiters.lock();
        if list.is_empty() {
            self.head_since.store(since, Ordering::Relaxed);
            // SAFETY: the waiter is new, and every way out of this function takes it off the list.
            unsafe { list.push(&waiter) };
            self.count.fetch_or(WAITERS, Ordering::Relaxed);
        } else {
            // SAFETY: as above.
            unsafe { list.push(&waiter) };
            let count = self.count.load(Ordering::Relaxed);
            if count & WRITER == 0 {
                // The lock became free, or readers got it, after this thread looked: their release may have come and gone.
                let mut wakers = Wakers::new();
                let whom = if count & READERS != 0 { Wake::Readers } else { Wake::Any };
                self.wake_first(&list, whom, &mut wakers);
                drop(list);
                wakers.wake();
                list = self.waiters.lock();
            }
        }
        loop {
            if self.try_write_queued(&list, &waiter, since) {
                return true;
            }
            waiter.reset();
            drop(list);
            if !waiter.sleep(deadline) {
                list = self.waiters.lock();
                if self.try_write_queued(&list, &waiter, since) {
                    return true;
                }
                self.give_up(list, &waiter);
                return false;
            }
            // Woken, hence the head. Whoever holds the lock for a moment only is worth a spin.
            let free = |_| (self.count.load(Ordering::Relaxed) & HELD == 0).then_some(());
            let displaced = || self.owner.load(Ordering::Relaxed) == cpu_plus_one();
            self.budget.spin(deadline, free, displaced, 1);
            list = self.waiters.lock();
        }
    }

    /// Takes the lock for writing as a waiter, and leaves the list; or, if it has waited long as the head, asks for the hand-off.
    fn try_write_queued(&self, list: &LockedList<'_>, waiter: &Waiter, since: u64) -> bool {
        let first = list.is_first(waiter);
        let mut count = self.count.load(Ordering::Relaxed);
        let next = loop {
            if count & HANDOFF != 0 && !first {
                return false;
            }
            let next = if count & HELD != 0 {
                if count & HANDOFF != 0 || !first || now_ns().saturating_sub(since) < HANDOFF_AFTER_NS {
                    return false;
                }
                count | HANDOFF
            } else {
                let alone = first && list.after(waiter).is_none();
                (count | WRITER) & !HANDOFF & !if alone { WAITERS } else { 0 }
            };
            match self.count.compare_exchange_weak(count, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break next,
                Err(now) => count = now,
            }
        };
        if next & HANDOFF != 0 {
            return false;
        }
        // SAFETY: `sleep_to_write` put it on this list, and returns when this succeeds.
        unsafe { list.remove(waiter) };
        if first {
            self.head_since.store(now_ns(), Ordering::Relaxed);
        }
        self.owner.store(cpu_plus_one(), Ordering::Relaxed);
        true
    }

    /// Takes a waiter without success off the list, and wakes whom it may have kept waiting.
    fn give_up(&self, list: LockedList<'_>, waiter: &Waiter) {
        let was_first = list.is_first(waiter);
        // SAFETY: the waiter's thread put it on this list, and it has not been taken off: it would be signalled or done.
        unsafe { list.remove(waiter) };
        let mut wakers = Wakers::new();
        if was_first {
            // The hand-off was for this waiter.
            self.count.fetch_and(!HANDOFF, Ordering::Relaxed);
            self.head_since.store(now_ns(), Ordering::Relaxed);
        }
        if list.is_empty() {
            self.count.fetch_and(!WAITERS, Ordering::Relaxed);
        } else if was_first {
            let whom = match self.count.load(Ordering::Relaxed) {
                count if count & WRITER != 0 => None,
                count if count & READERS != 0 => Some(Wake::Readers),
                _ => Some(Wake::Any),
            };
            if let Some(whom) = whom {
                self.wake_first(&list, whom, &mut wakers);
            }
        }
        drop(list);
        wakers.wake();
    }

    /// Wakes the head of the list if it is a writer; grants the lock to all readers of the list if it is a reader.
    fn wake_first(&self, list: &LockedList<'_>, whom: Wake, wakers: &mut Wakers) {
        let Some(first) = list.first() else { return };
        if first.kind() == WANTS_TO_WRITE {
            if whom == Wake::Any && !first.is_signalled() {
                wakers.add(first.signal());
            }
            return;
        }
        let mut counted = 0;
        if whom != Wake::ReadersWithReader {
            // The first reader goes into the count before anything else, so that no writer can come in between.
            counted = READER;
            let before = self.count.fetch_add(READER, Ordering::Acquire);
            if before & WRITER != 0 {
                // A writer stole it. Take the reader back, and if it has waited long, have the next release reserve the lock.
                let waited = now_ns().saturating_sub(self.head_since.load(Ordering::Relaxed));
                let ask = before & HANDOFF == 0 && waited >= HANDOFF_AFTER_NS;
                // That writer's release sees WAITERS, so that it comes here as soon as the list is unlocked. Until then nobody else
                // has to wake anybody, not even a reader whose release is hidden by the one counted here.
                self.count.fetch_sub(READER - if ask { HANDOFF } else { 0 }, Ordering::Relaxed);
                return;
            }
        }
        self.owner.store(BY_READERS, Ordering::Relaxed);
        // All readers into the count, in one step, before the first of them can leave again.
        let readers = || {
            let mut next = list.first();
            core::iter::from_fn(move || {
                let now = next?;
                next = list.after(now);
                Some(now)
            })
            .filter(|waiter| waiter.kind() == WANTS_TO_READ)
        };
        let granted = readers().count() as u64 * READER;
        self.count.fetch_add(granted - counted, Ordering::Relaxed);
        // The head is a reader, so that the mark, if set, was its own.
        self.count.fetch_and(!HANDOFF, Ordering::Relaxed);
        while let Some(reader) = readers().next() {
            // SAFETY: it is on this list.
            unsafe { list.remove(reader) };
            wakers.add(reader.signal());
        }
        self.head_since.store(now_ns(), Ordering::Relaxed);
        if list.is_empty() {
            self.count.fetch_and(!WAITERS, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(super) fn unlock_read(&self) {
        let now = self.count.fetch_sub(READER, Ordering::Release) - READER;
        if now & (HELD | WAITERS) == WAITERS {
            self.wake();
        }
    }

    #[inline]
    pub(super) fn unlock_write(&self) {
        self.owner.store(NOBODY, Ordering::Relaxed);
        let before = self.count.fetch_sub(WRITER, Ordering::Release);
        if before & WAITERS != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let mut wakers = Wakers::new();
        let list = self.waiters.lock();
        self.wake_first(&list, Wake::Any, &mut wakers);
        drop(list);
        wakers.wake();
    }

    pub(super) fn downgrade(&self) {
        // Release: what was written must not leak into the time when others read.
        let before = self.count.fetch_add(READER - WRITER, Ordering::Release);
        self.owner.store(BY_READERS, Ordering::Relaxed);
        if before & WAITERS != 0 {
            let mut wakers = Wakers::new();
            let list = self.waiters.lock();
            self.wake_first(&list, Wake::ReadersWithReader, &mut wakers);
            drop(list);
            wakers.wake();
        }
    }
}
