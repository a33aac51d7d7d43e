//! What needs `unsafe`: memory shared with BPF programs, and plain memory as bytes.

use std::io;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// Types that any bytes are a value of, and that have no padding.
///
/// # Safety
/// All members are integers or arrays of `Plain`, the type is `repr(C)` and its layout has no padding.
pub unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for u32 {}
// SAFETY: integers.
unsafe impl Plain for u64 {}

/// A value as its bytes.
pub fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: a Plain value has no padding, so that all its bytes are initialised; the lifetime is that of the reference.
    unsafe { std::slice::from_raw_parts((value as *const T).cast(), size_of::<T>()) }
}

/// A value from bytes; none if there are too few.
pub fn from_bytes<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough bytes, any bytes are a value, and the read does not need alignment.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}

/// The values of a BPF array map, shared with the programs that write them.
pub struct SharedArray<T> {
    base: NonNull<T>,
    len: usize,
    bytes: usize,
    _type: PhantomData<T>,
}

// SAFETY: the memory belongs to no thread; all accesses are volatile copies.
unsafe impl<T: Plain> Send for SharedArray<T> {}
// SAFETY: as above; what is written (`write`) are words of their own.
unsafe impl<T: Plain> Sync for SharedArray<T> {}

impl<T: Plain> SharedArray<T> {
    /// Maps the first `len` values of a map made with BPF_F_MMAPABLE.
    ///
    /// # Errors
    /// What mmap fails with.
    pub fn new(map: BorrowedFd<'_>, len: usize) -> io::Result<SharedArray<T>> {
        let bytes = (len * size_of::<T>()).next_multiple_of(4096);
        // SAFETY: a new mapping of a file descriptor that is open; nothing else refers to it.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(base.cast::<T>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(SharedArray { base, len, bytes, _type: PhantomData })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// A copy of value `index` (modulo the length).
    pub fn read(&self, index: usize) -> T {
        // SAFETY: the index is within the mapping; Plain makes any bytes that are torn by a concurrent writer a value.
        unsafe { self.base.as_ptr().add(index % self.len).read_volatile() }
    }

    /// Reads the `u32` at `offset` bytes in value `index`; what was written before it is seen by later reads.
    pub fn read_u32_acquire(&self, index: usize, offset: usize) -> u32 {
        assert!(offset + 4 <= size_of::<T>());
        // SAFETY: within the mapping, and aligned as the layout is.
        let value = unsafe {
            self.base.as_ptr().add(index % self.len).cast::<u8>().add(offset).cast::<u32>().read_volatile()
        };
        fence(Ordering::Acquire);
        value
    }

    /// Writes the `u64` at `offset` bytes in value `index`, after all reads before.
    pub fn write_u64_release(&self, index: usize, offset: usize, value: u64) {
        assert!(offset + 8 <= size_of::<T>());
        fence(Ordering::Release);
        // SAFETY: within the mapping, and aligned as the layout is.
        unsafe {
            self.base
                .as_ptr()
                .add(index % self.len)
                .cast::<u8>()
                .add(offset)
                .cast::<u64>()
                .write_volatile(value)
        }
    }

    /// Overwrites value `index`.
    pub fn write(&self, index: usize, value: T) {
        // SAFETY: within the mapping.
        unsafe { self.base.as_ptr().add(index % self.len).write_volatile(value) }
    }
}

impl<T> Drop for SharedArray<T> {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `new`, and no reference into it was handed out.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, the clock of all events.
pub fn monotonic_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64)
}

/// Wall-clock time less CLOCK_MONOTONIC, in ns.
pub fn realtime_offset_ns() -> i64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    t.tv_sec.saturating_mul(1_000_000_000).saturating_add(t.tv_nsec).saturating_sub(monotonic_ns() as i64)
}

/// The parts of `struct perf_event_attr` that a software clock needs.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period_or_freq: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    rest: [u64; 10],
}

/// Opens the sampling clock of a CPU.
///
/// # Errors
/// What perf_event_open fails with.
pub fn open_cpu_clock(cpu: u32, hz: u32) -> io::Result<OwnedFd> {
    const PERF_TYPE_SOFTWARE: u32 = 1;
    const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
    const FLAG_FREQ: u64 = 1 << 10;
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
    let attr = PerfEventAttr {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<PerfEventAttr>() as u32,
        config: PERF_COUNT_SW_CPU_CLOCK,
        sample_period_or_freq: u64::from(hz),
        flags: FLAG_FREQ,
        ..PerfEventAttr::default()
    };
    // SAFETY: the structure is as large as its `size` says and lives during the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            -1 as libc::pid_t,
            cpu as libc::c_int,
            -1 as libc::c_int,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A descriptor for a task, of any of its threads if the kernel can (since Linux 6.9), else of the leader only.
///
/// # Errors
/// What pidfd_open fails with.
pub fn open_task(tid: u32) -> io::Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_uint = libc::O_EXCL as libc::c_uint;
    match pidfd_open(tid, PIDFD_THREAD) {
        // it does not know that flag
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => pidfd_open(tid, 0),
        other => other,
    }
}

fn pidfd_open(tid: u32, flags: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, tid as libc::pid_t, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// How often a program was not run because it was running already on that CPU.
///
/// # Errors
/// None are reported: 0 where the kernel does not count.
pub fn recursion_misses(prog: BorrowedFd<'_>) -> u64 {
    let path = format!("/proc/self/fdinfo/{}", prog.as_raw_fd());
    let Ok(info) = std::fs::read_to_string(path) else { return 0 };
    info.lines()
        .find_map(|l| l.strip_prefix("recursion_misses:"))
        .and_then(|v| v.trim().parse().ok())
        .unwrap_or(0)
}

/// Reads a whole BPF iterator.
///
/// # Errors
/// What reading fails with.
pub fn read_iterator(mut iter: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0u8; 64 * 1024];
    loop {
        match iter.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // the iterator asks to be called again
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_can_be_opened_on_every_kernel_and_one_that_is_not_there_cannot() {
        open_task(std::process::id()).expect("a leader can always be opened");
        // larger than any process id can be
        assert!(open_task(i32::MAX as u32).is_err());
    }
}
