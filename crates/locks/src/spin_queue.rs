//! A queue of spinners, of which only the first looks at the lock.
//!
//! Source: the kernel's optimistic spin queue (`kernel/locking/osq_lock.c`), an MCS lock (Mellor-Crummey and Scott, 1991) that one can leave
//! before one's turn. Each spinner looks at its own node only, so that a release moves one cache line to one CPU, however many spin; and the first
//! is the only one who competes with newcomers, so that spinners get the lock in their order of arrival.
//!
//! Two things differ in user space:
//!
//! - The kernel has one node per CPU, as a spinner cannot be preempted. Here a node belongs to a thread. As there, a thread may look at the
//!   node of a predecessor that is just leaving, so nodes are never freed: threads that end leave theirs to threads to come.
//! - A spinner that is off its CPU holds up all behind it. The kernel makes spinners leave when they should give way. Here they leave
//!   when their predecessor published the CPU that they now run on themselves, or when their time is up; and there are never more than could have a CPU each.

use core::ptr;

use crate::spin::spinners_allowed;
use crate::sys::{AtomicPtr, AtomicU32, Ordering, const_constructor, cpu_plus_one, now_ns, relax, yield_now};

/// A spinner's place in a queue.
pub(crate) struct Node {
    next: AtomicPtr<Node>,
    previous: AtomicPtr<Node>,
    /// Whether it is this spinner's turn.
    first: AtomicU32,
    /// Where the spinner runs, plus one.
    cpu: AtomicU32,
}

impl Node {
    fn new() -> Self {
        Self {
            next: AtomicPtr::new(ptr::null_mut()),
            previous: AtomicPtr::new(ptr::null_mut()),
            first: AtomicU32::new(0),
            cpu: AtomicU32::new(0),
        }
    }
}

/// The queue.
pub(crate) struct SpinQueue {
    last: AtomicPtr<Node>,
    length: AtomicU32,
}

/// The first place of the queue. Has to be given up with [`SpinQueue::leave`].
pub(crate) struct Turn(&'static Node);

/// How long a spinner waits for its turn, in ns: a few uncontended spins ahead of it.
const LONGEST_IN_QUEUE_NS: u64 = 100_000;
/// Looks between two looks at the clock and at the predecessor's CPU.
const LOOKS: u32 = if cfg!(any(test, loom)) { 1 } else { 16 };

impl SpinQueue {
    const_constructor! {
        pub(crate) fn new() -> Self {
            Self { last: AtomicPtr::new(ptr::null_mut()), length: AtomicU32::new(0) }
        }
    }

    /// Waits for the first place; none if there are spinners enough, or it takes too long.
    pub(crate) fn turn(&self) -> Option<Turn> {
        if self.length.fetch_add(1, Ordering::Relaxed) >= spinners_allowed() {
            self.length.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let turn = with_own_node(|node| self.join(node).then_some(Turn(node)));
        if turn.is_none() {
            self.length.fetch_sub(1, Ordering::Relaxed);
        }
        turn
    }

    /// Gives the first place to the next in the queue.
    pub(crate) fn leave(&self, turn: Turn) {
        let node = turn.0;
        self.length.fetch_sub(1, Ordering::Relaxed);
        if let Some(next) = self.part_with_next(node, ptr::null_mut()) {
            // Release, to the Acquire of `join`: what the first saw, the next sees.
            next.first.store(1, Ordering::Release);
        }
    }

    /// Whether the node got the first place.
    fn join(&self, node: &'static Node) -> bool {
        node.first.store(0, Ordering::Relaxed);
        node.next.store(ptr::null_mut(), Ordering::Relaxed);
        node.cpu.store(cpu_plus_one(), Ordering::Relaxed);
        let me = ptr::from_ref(node).cast_mut();
        // Release publishes the node's fields, Acquire sees those of the predecessor and what the last first one left behind.
        let previous = self.last.swap(me, Ordering::AcqRel);
        // SAFETY: nodes are never freed.
        let Some(previous) = (unsafe { previous.as_ref() }) else { return true };
        node.previous.store(ptr::from_ref(previous).cast_mut(), Ordering::Relaxed);
        previous.next.store(me, Ordering::Release);

        let end = now_ns() + LONGEST_IN_QUEUE_NS;
        loop {
            for _ in 0..LOOKS {
                if node.first.load(Ordering::Acquire) == 1 {
                    return true;
                }
                relax();
            }
            let here = cpu_plus_one();
            // SAFETY: nodes are never freed, and this field has pointed to one since it was set above.
            let ahead = unsafe { &*node.previous.load(Ordering::Relaxed) };
            let displaced = here != 0 && ahead.cpu.load(Ordering::Relaxed) == here;
            if displaced || now_ns() >= end {
                return self.abandon(node);
            }
        }
    }

    /// Leaves the queue before one's turn; true if the turn comes in the middle of that.
    fn abandon(&self, node: &'static Node) -> bool {
        let me = ptr::from_ref(node).cast_mut();
        let mut patience = Patience::new();
        // First cut the predecessor's link to this node: it can neither give us the turn nor leave after that, but has to wait for a new link.
        let previous = loop {
            // Acquire: a leaving neighbour may just have given us a new predecessor.
            let previous = node.previous.load(Ordering::Acquire);
            // SAFETY: nodes are never freed.
            let cut = unsafe { &*previous }.next.compare_exchange(
                me,
                ptr::null_mut(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if cut.is_ok() {
                break previous;
            }
            if node.first.load(Ordering::Acquire) == 1 {
                return true;
            }
            patience.wait();
        };
        // Then part with the successor, or become nobody's: the predecessor is the last one then.
        if let Some(next) = self.part_with_next(node, previous) {
            // Both neighbours wait for these links and cannot leave meanwhile.
            next.previous.store(previous, Ordering::Release);
            // SAFETY: nodes are never freed.
            unsafe { &*previous }.next.store(ptr::from_ref(next).cast_mut(), Ordering::Release);
        }
        false
    }

    /// Ends the queue at `previous` if this node is the last, else takes the link to its successor away and returns that.
    fn part_with_next(&self, node: &'static Node, previous: *mut Node) -> Option<&'static Node> {
        let me = ptr::from_ref(node).cast_mut();
        let mut patience = Patience::new();
        loop {
            if self.last.load(Ordering::Relaxed) == me
                && self.last.compare_exchange(me, previous, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return None;
            }
            if !node.next.load(Ordering::Relaxed).is_null() {
                // Whoever takes the link owns it: the successor may be cutting it at this moment.
                let next = node.next.swap(ptr::null_mut(), Ordering::AcqRel);
                // SAFETY: nodes are never freed.
                if let Some(next) = unsafe { next.as_ref() } {
                    return Some(next);
                }
            }
            patience.wait();
        }
    }
}

/// Waits for another thread to finish a handful of instructions: spins, but lets others run should it be off its CPU.
struct Patience(u32);

impl Patience {
    fn new() -> Self {
        Self(0)
    }

    fn wait(&mut self) {
        self.0 += 1;
        if self.0.is_multiple_of(64) { yield_now() } else { relax() }
    }
}

/// A thread waits for one lock at a time, so one node is enough for it.
#[cfg(not(any(test, loom)))]
fn with_own_node<R>(body: impl FnOnce(&'static Node) -> Option<R>) -> Option<R> {
    use std::sync::{Mutex, PoisonError};

    /// Nodes of threads that have ended.
    static SPARE: Mutex<Vec<&'static Node>> = Mutex::new(Vec::new());

    struct Own(&'static Node);

    impl Drop for Own {
        fn drop(&mut self) {
            SPARE.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
        }
    }

    thread_local! {
        static OWN: Own = Own(
            SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_else(|| Box::leak(Box::new(Node::new()))),
        );
    }
    // Without thread-local storage, at the end of a thread, one does not spin.
    let node = OWN.try_with(|own| own.0).ok()?;
    body(node)
}

/// The checkers' atomics live as long as one schedule, so that each spin gets a node of its own there.
#[cfg(any(test, loom))]
fn with_own_node<R>(body: impl FnOnce(&'static Node) -> Option<R>) -> Option<R> {
    body(Box::leak(Box::new(Node::new())))
}
