//! The kernel's other parts: system-call entry, scheduler, memory.

use std::ptr::{NonNull, null_mut};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::{BuiltIn, Looped};
use crate::failure::{Fault, Named};
use crate::{Failure, Prepared};

const PAGE: usize = 4096;

/// Bytes that are mapped and touched at once.
const MAPPED: usize = 1 << 20;

pub(super) const ALL: &[BuiltIn] = &[
    BuiltIn::new("getppid", "getppid", |_| {
        looped(
            || Ok(()),
            |()| {
                std::hint::black_box(rustix::process::getppid());
                Ok(())
            },
        )
    }),
    BuiltIn::new("sched_yield", "sched_yield", |_| {
        looped(
            || Ok(()),
            |()| {
                rustix::thread::sched_yield();
                Ok(())
            },
        )
    }),
    BuiltIn::new(
        "mmap",
        "mmap of one anonymous page, a write to it, and munmap; threads share the address space and its lock",
        |_| {
            looped(
                || Ok(()),
                |()| {
                    let page = Mapping::new(PAGE)?;
                    page.touch(0);
                    page.unmap()
                },
            )
        },
    ),
    BuiltIn::new(
        "page_fault",
        "the first write to a page of anonymous memory, 1 MiB of which is given back every 256 operations",
        |_| {
            looped(
                || Ok((Mapping::new(MAPPED).map_err(Failure::from)?, 0)),
                |(mapping, next): &mut (Mapping, usize)| {
                    if *next == MAPPED {
                        mapping.give_back()?;
                        *next = 0;
                    }
                    mapping.touch(*next);
                    *next += PAGE;
                    Ok(())
                },
            )
        },
    ),
];

fn looped<Own, Begin, Op>(begin: Begin, op: Op) -> Result<Box<dyn Prepared>, Failure>
where
    Own: 'static,
    Begin: Fn() -> Result<Own, Failure> + Send + Sync + 'static,
    Op: Fn(&mut Own) -> Result<(), Fault> + Send + Sync + 'static,
{
    Ok(Box::new(Looped { shared: (), begin: move |(): &(), _| begin(), op, clean: |(): &()| Ok(()) }))
}

/// Anonymous memory of a task's own.
struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    #[inline(always)]
    fn new(bytes: usize) -> Result<Mapping, Fault> {
        // SAFETY: a fresh private mapping at an address of the kernel's choice touches no memory of ours.
        let at = unsafe {
            rustix::mm::mmap_anonymous(
                null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        match NonNull::new(at.named("mmap")?.cast()) {
            Some(at) => Ok(Mapping { at, bytes }),
            None => Err(Fault::new("mmap: at address 0")),
        }
    }

    /// Writes to the byte at `offset`.
    #[inline(always)]
    fn touch(&self, offset: usize) {
        debug_assert!(offset < self.bytes);
        // SAFETY: the callers' offsets are inside the mapping.
        unsafe { self.at.add(offset).write_volatile(1) };
    }

    /// Gives all pages back; the next write to each faults again.
    fn give_back(&self) -> Result<(), Fault> {
        // SAFETY: exactly this mapping, to which nothing refers; its contents are of no interest.
        unsafe { rustix::mm::madvise(self.at.as_ptr().cast(), self.bytes, Advice::LinuxDontNeed) }
            .named("madvise")
    }

    #[inline(always)]
    fn unmap(self) -> Result<(), Fault> {
        // SAFETY: exactly this mapping, to which nothing refers.
        let result = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.bytes) };
        std::mem::forget(self);
        result.named("munmap")
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly this mapping, to which nothing refers. Unmapping a whole mapping cannot fail.
        let _ = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}
