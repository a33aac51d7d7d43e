//! Typed handles: what is easily confused has a type of its own.

use std::fmt;
use std::num::NonZeroU32;

/// A moment, in nanoseconds of CLOCK_MONOTONIC of the machine that was traced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeNs(pub u64);

impl TimeNs {
    /// Nanoseconds from `earlier` to `self`; 0 if `earlier` is later.
    pub fn since(self, earlier: TimeNs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `ns` nanoseconds later (saturating).
    pub fn plus(self, ns: u64) -> TimeNs {
        TimeNs(self.0.saturating_add(ns))
    }
}

/// The number of a CPU, as the kernel numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu(pub u16);

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu{}", self.0)
    }
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// A handle is an index; `Option` of it is no larger than the handle itself.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU32);

        impl $name {
            /// The handle of row `index` (saturating at `u32::MAX - 1`, which no table reaches).
            pub const fn from_index(index: u32) -> Self {
                match NonZeroU32::new(index.saturating_add(1)) {
                    Some(raw) => Self(raw),
                    None => Self(NonZeroU32::MIN),
                }
            }

            /// The row that this handle stands for.
            pub const fn index(self) -> usize {
                (self.0.get() - 1) as usize
            }

            /// The handle as it is written in files: the row + 1; 0 stands for "none" there.
            pub(crate) const fn raw(self) -> u32 {
                self.0.get()
            }

            /// The reverse of `raw`: `None` for 0.
            pub(crate) const fn from_raw(raw: u32) -> Option<Self> {
                match NonZeroU32::new(raw) {
                    Some(raw) => Some(Self(raw)),
                    None => None,
                }
            }
        }
    };
}

handle! {
    /// A task: one thread from its start to its end. Two threads that had the same thread id one after the other are two tasks.
    TaskId
}
handle! {
    /// A lock, or another object that tasks wait for (a futex word, a block device).
    LockId
}
handle! {
    /// A call stack, kernel or user.
    StackId
}
handle! {
    /// A function.
    SymbolId
}
handle! {
    /// An interned string.
    StrId
}
handle! {
    /// A control group.
    CgroupId
}
