//! The backend of normal builds: Linux system calls.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::AtomicIsize;

pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::{Deadline, Waited};

/// A word that threads can sleep on.
pub(crate) struct Futex(AtomicU32);

impl Futex {
    pub(crate) const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    /// The word itself.
    #[inline]
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.0
    }

    /// Sleeps as long as the word is `expected`, until a wake-up or the deadline. May return early: look at the word.
    pub(crate) fn wait(&self, expected: u32, deadline: Deadline) -> Waited {
        let until = deadline.map(|ns| libc::timespec {
            tv_sec: (ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (ns % 1_000_000_000) as libc::c_long,
        });
        // SAFETY: the word is a valid, aligned u32 for as long as &self lives, and the time is null or points to a
        // timespec that outlives the call. The bit-set form is used because its time-out is absolute.
        let status = unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
                expected,
                until.as_ref().map_or(ptr::null(), ptr::from_ref),
                ptr::null::<u32>(),
                libc::FUTEX_BITSET_MATCH_ANY,
            )
        };
        // SAFETY: errno is thread-local and always readable.
        if status < 0 && unsafe { *libc::__errno_location() } == libc::ETIMEDOUT {
            Waited::TimedOut
        } else {
            Waited::LookAgain
        }
    }

    /// Wakes one thread that sleeps on the word.
    pub(crate) fn wake_one(&self) {
        self.waker().wake();
    }

    /// What is needed to wake the sleeper later, when the word itself may be gone.
    #[inline]
    pub(crate) fn waker(&self) -> Waker {
        Waker(self.0.as_ptr())
    }
}

/// The address of a word to wake a thread on. It is never dereferenced: should the word have been freed and its memory
/// used for another futex meanwhile, somebody gets a wake-up for nothing, which every futex user has to bear anyway.
pub(crate) struct Waker(*mut u32);

impl Waker {
    /// Wakes one thread that sleeps at the address.
    pub(crate) fn wake(self) {
        // SAFETY: the kernel takes the address as a key only; a bad one makes the call fail, without effect here.
        unsafe {
            libc::syscall(libc::SYS_futex, self.0, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
        }
    }
}

/// A plain cell whose accesses are ordered by a lock around it.
pub(crate) struct Plain<T>(UnsafeCell<T>);

impl<T: Copy> Plain<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// # Safety
    /// No other thread may write at the same time.
    #[inline]
    pub(crate) unsafe fn get(&self) -> T {
        // SAFETY: no writer, by the caller's promise.
        unsafe { *self.0.get() }
    }

    /// # Safety
    /// No other thread may read or write at the same time.
    #[inline]
    pub(crate) unsafe fn set(&self, value: T) {
        // SAFETY: no other access, by the caller's promise.
        unsafe { *self.0.get() = value }
    }
}

/// Tells the CPU that this is a spin loop.
#[inline]
pub(crate) fn relax() {
    core::hint::spin_loop();
}

/// Offers the CPU to whoever else is ready to run on it.
pub(crate) fn yield_now() {
    std::thread::yield_now();
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How many CPUs the threads of this process may use, from the affinity of the thread that asks first.
pub(crate) fn usable_cpus() -> u32 {
    static KNOWN: AtomicU32 = AtomicU32::new(0);
    match KNOWN.load(Ordering::Relaxed) {
        0 => {
            let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
            KNOWN.store(cpus, Ordering::Relaxed);
            cpus
        }
        cpus => cpus,
    }
}

/// The C library has no restartable sequences, or it is not known yet whether it has.
const NO_RSEQ: isize = 0;
const NOT_ASKED: isize = 1;

static RSEQ_OFFSET: AtomicIsize = AtomicIsize::new(NOT_ASKED);

/// The CPU that the thread runs on, plus one; 0 if that cannot be had in a nanosecond or two.
///
/// The kernel keeps the number in the thread's restartable-sequence area, which the C library registers at thread
/// start (glibc 2.35 and later) at a fixed distance from the thread pointer.
#[inline]
pub(crate) fn cpu_plus_one() -> u32 {
    match RSEQ_OFFSET.load(Ordering::Relaxed) {
        NO_RSEQ => 0,
        NOT_ASKED => find_rseq(),
        offset => read_rseq_cpu(offset).wrapping_add(1),
    }
}

#[cold]
fn find_rseq() -> u32 {
    let mut offset = NO_RSEQ;
    if cfg!(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))) {
        // SAFETY: the names are terminated strings, and dlsym looks them up in what is loaded already. The symbols are
        // objects of the C library that are not written after its start: a ptrdiff_t and an unsigned int.
        unsafe {
            let at = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
            let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
            // A size of 0 says that registration failed or was turned off.
            if !at.is_null() && !size.is_null() && *size != 0 {
                offset = *at;
            }
        }
    }
    RSEQ_OFFSET.store(offset, Ordering::Relaxed);
    if offset == NO_RSEQ { 0 } else { read_rseq_cpu(offset).wrapping_add(1) }
}

/// Where the CPU number is in the kernel's `struct rseq`, in bytes.
const RSEQ_CPU_ID: isize = 4;

#[cfg(target_arch = "x86_64")]
#[inline]
fn read_rseq_cpu(offset: isize) -> u32 {
    let cpu: u32;
    // SAFETY: `offset` came from the C library: the area lies there in every thread's block, aligned, for the thread's life.
    unsafe {
        core::arch::asm!(
            "mov {cpu:e}, fs:[{at}]",
            cpu = out(reg) cpu,
            at = in(reg) offset + RSEQ_CPU_ID,
            options(nostack, preserves_flags, readonly, pure)
        );
    }
    cpu
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn read_rseq_cpu(offset: isize) -> u32 {
    let base: isize;
    // SAFETY: reading the thread pointer has no effect.
    unsafe { core::arch::asm!("mrs {}, tpidr_el0", out(reg) base, options(nostack, preserves_flags, nomem)) };
    // SAFETY: `offset` came from the C library: the area lies there in every thread's block, aligned, for the thread's life.
    unsafe { ((base + offset + RSEQ_CPU_ID) as *const u32).read_volatile() }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
fn read_rseq_cpu(_offset: isize) -> u32 {
    u32::MAX
}
