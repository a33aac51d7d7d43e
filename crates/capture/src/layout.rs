//! The twin of `bpf/layout.h`: what the BPF programs write and read. A test compares the two.

use crate::sys::Plain;

/// Length of a task's name in the kernel.
pub const COMM_LEN: usize = 16;
/// Frames that a large record has room for.
pub const MAX_FRAMES: usize = 127;
const PATH_PARTS: usize = 6;
const PATH_PART_LEN: usize = 40;

/// Kinds of small records.
pub mod ev {
    pub const SWITCH: u8 = 1;
    pub const WAKING: u8 = 2;
    pub const BEGIN: u8 = 3;
    pub const END: u8 = 4;
    pub const FORK: u8 = 5;
    pub const EXIT: u8 = 6;
    pub const FUTEX: u8 = 7;
    pub const IRQ_ENTER: u8 = 8;
    pub const IRQ_EXIT: u8 = 9;
    pub const WORK: u8 = 10;
    pub const WORK_END: u8 = 11;
    pub const ACQUIRED: u8 = 12;
    pub const RELEASED: u8 = 13;
    pub const LOST: u8 = 14;
    pub const HELD_BACK: u8 = 15;
    pub const IO_DONE: u8 = 16;
}

/// Flags of a switch.
pub const SWITCH_PREEMPT: u8 = 1;
pub const SWITCH_IOWAIT: u8 = 2;
/// Flags of a waking.
pub const WAKING_INTERRUPT: u8 = 1;
pub const WAKING_CONTEXT_KNOWN: u8 = 2;

/// What requests of block devices do, in the order of their numbers.
pub const REQUESTS: [&str; 5] = ["reads", "writes", "flushes", "discards", "requests"];
/// Ages of requests are in units of 2^6 ns.
pub const AGE_SHIFT: u32 = 6;

/// A small record.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RawEvent {
    pub ts: u64,
    pub a: u64,
    pub tid: u32,
    pub other: u32,
    pub seq: u32,
    pub kind: u8,
    pub flags: u8,
    pub x: u16,
}

/// Kinds of large records.
pub mod big {
    pub const SKIP: u8 = 0;
    pub const WAIT_KERNEL: u8 = 1;
    pub const WAIT_USER: u8 = 2;
    pub const OUT_USER: u8 = 3;
    pub const OUT_KERNEL: u8 = 4;
    pub const WAKER_KERNEL: u8 = 5;
    pub const SAMPLE_KERNEL: u8 = 6;
    pub const SAMPLE_USER: u8 = 7;
    pub const COMM: u8 = 8;
    pub const LOCK: u8 = 9;
}

/// Flags of stack records, of samples, of names.
pub const STACK_USER_FOLLOWS: u8 = 1;
pub const STACK_HAS_OUT: u8 = 2;
pub const STACK_KTHREAD: u8 = 32;
pub const SAMPLE_IN_KERNEL: u8 = 8;
pub const SAMPLE_IN_INTERRUPT: u8 = 16;
pub const COMM_EXEC: u8 = 1;
/// In the state of a wait: the task was preempted.
pub const STATE_PREEMPTED: u32 = 0x8000_0000;

/// A large record.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RawBig {
    pub ts: u64,
    pub a: u64,
    pub b: u64,
    pub tid: u32,
    pub tgid: u32,
    pub seq: u32,
    pub kind: u8,
    pub flags: u8,
    pub frames: i16,
    pub chance: u32,
    pub state: u32,
    pub spare: u64,
    pub comm: [u8; COMM_LEN],
    pub ip: [u64; MAX_FRAMES],
}

impl RawBig {
    /// The command line of an exec.
    pub fn command(&self) -> Option<String> {
        let length = usize::try_from(self.frames).ok().filter(|l| *l > 0)?.min(MAX_FRAMES * 8);
        let bytes: Vec<u8> = self.ip.iter().flat_map(|w| w.to_ne_bytes()).take(length).collect();
        command_line(&bytes)
    }

    /// The frames, leaf first; none if the stack could not be taken.
    pub fn stack(&self) -> &[u64] {
        let n = usize::try_from(self.frames).unwrap_or(0).min(MAX_FRAMES);
        &self.ip[..n]
    }
}

/// Arguments, each ended by a zero byte, joined by blanks and cut.
pub fn command_line(bytes: &[u8]) -> Option<String> {
    let arguments = bytes.split(|b| *b == 0).filter(|a| !a.is_empty());
    let mut line = arguments.map(|a| String::from_utf8_lossy(a).into_owned()).collect::<Vec<_>>().join(" ");
    if line.len() > 200 {
        let end = (0..=200).rev().find(|i| line.is_char_boundary(*i)).unwrap_or(0);
        line.truncate(end);
        line.push('…');
    }
    (!line.is_empty()).then_some(line)
}

/// A length divided by a chance in 2^-32, of which the largest number is 1.
pub fn weighted(ns: u64, chance: u32) -> u64 {
    match chance {
        u32::MAX => ns,
        0 => 0,
        c => u64::try_from((u128::from(ns) << 32) / u128::from(c)).unwrap_or(u64::MAX),
    }
}

/// Kinds of objects that locks belong to.
pub mod object {
    pub const MM: u32 = 1;
    pub const INODE: u32 = 2;
    pub const SUPER: u32 = 3;
    pub const XFS_BUF: u32 = 4;
    pub const EXTENT: u32 = 5;
    pub const MAPPING: u32 = 6;
}

/// The description of a lock, in place of a large record's frames.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LockInfo {
    pub address: u64,
    pub id: u64,
    pub extra: u32,
    pub dev: u32,
    pub mode: u32,
    pub cache_size: u32,
    pub cache_order: u32,
    pub object: u32,
    pub flags: u8,
    pub parts: u8,
    pub path_full: u8,
    pub truncated: u8,
    pub extra_valid: u32,
    pub cache: [u8; 32],
    pub words: [u8; 32],
    pub fs: [u8; 16],
    pub sid: [u8; 32],
    pub path: [[u8; PATH_PART_LEN]; PATH_PARTS],
}

/// Counters and ends of one CPU's rings, and what the CPU remembers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuArea {
    pub head: u64,
    pub big_head: u64,
    pub lost: u64,
    pub lost_since: u64,
    pub lost_in_gap: u64,
    pub big_lost: u64,
    pub big_lost_ns: u64,
    pub stack_errors: u64,
    pub tail: u64,
    pub big_tail: u64,
    pub pad: [u64; 6],
    pub irq_depth: u32,
    pub shift: u32,
    pub period: u64,
    pub taken: u64,
    pub no_state: u64,
    pub truncated: u64,
    pub rand: u64,
    pub unseen: u64,
    pub current: u32,
    pub known: u32,
    pub contexts: u64,
    pub io_depth: u32,
    pub pad2: u32,
    pub io_issued: u64,
    pub io_done: u64,
    pub io_dev: u32,
    pub io_op: u32,
    pub pad3: [u64; 3],
}

/// Offsets of members of structures that a module may define.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsLayout {
    pub xfs_valid: u32,
    pub b_sema: u32,
    pub b_ops: u32,
    pub b_pag: u32,
    pub b_target: u32,
    pub b_block: u32,
    pub pag_number: u32,
    pub bt_dev: u32,
    pub ops_name: u32,
    pub eb_valid: u32,
    pub eb_lock: u32,
    pub eb_start: u32,
    pub eb_fs_info: u32,
    pub fs_info_sb: u32,
    pub pad: [u32; 2],
}

/// Flags of a seed.
pub const SEED_KERNEL: u32 = 1;
pub const SEED_ON_CPU: u32 = 2;
pub const SEED_IOWAIT: u32 = 4;
pub const SEED_QUEUED: u32 = 8;

/// A task as the iterator finds it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TaskSeed {
    pub ts: u64,
    pub start: u64,
    pub blocker: u64,
    pub futex: u64,
    pub tid: u32,
    pub tgid: u32,
    pub ptid: u32,
    pub state: u32,
    pub flags: u32,
    pub cpu: u32,
    pub syscall: i32,
    pub futex_op: u32,
    pub exit_state: i32,
    pub own_tid: u32,
    pub comm: [u8; COMM_LEN],
}

/// What the loader decides before the programs are verified.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RawOptions {
    pub event_mask: u32,
    pub big_mask: u32,
    pub want_events: u8,
    pub wait_stacks: u8,
    pub out_kernel_stacks: u8,
    pub out_user_stacks: u8,
    pub waker_stacks: u8,
    pub user_stacks: u8,
    pub lock_waits_apart: u8,
    pub describe_locks: u8,
    pub switch_has_state: u8,
    pub irq_known: u8,
    pub kernel_stacks: u8,
    pub io_known: u8,
    pub base_shift: u32,
    pub stack_limit: u32,
    pub max_frames: u32,
    pub futex_nr: u32,
    pub filter: u32,
    pub pid_ns: u32,
    pub pad: u32,
    pub min_ns: u64,
    pub max_ns: u64,
    pub state_mask: i64,
}

impl Default for RawOptions {
    /// Everything is recorded, and nothing filtered. The sizes of the rings and what depends on the kernel are the loader's.
    fn default() -> RawOptions {
        RawOptions {
            event_mask: 0,
            big_mask: 0,
            want_events: 1,
            wait_stacks: 1,
            out_kernel_stacks: 0,
            out_user_stacks: 1,
            waker_stacks: 1,
            user_stacks: 1,
            lock_waits_apart: 1,
            describe_locks: 1,
            switch_has_state: 1,
            irq_known: 0,
            kernel_stacks: 1,
            io_known: 0,
            base_shift: 17,
            stack_limit: 256,
            max_frames: MAX_FRAMES as u32,
            futex_nr: libc::SYS_futex as u32,
            filter: 0,
            pid_ns: 0,
            pad: 0,
            min_ns: 0,
            max_ns: u64::MAX,
            state_mask: -1,
        }
    }
}

// SAFETY: all members are integers or arrays of them, and the layout has no padding.
unsafe impl Plain for RawEvent {}
// SAFETY: as above.
unsafe impl Plain for RawBig {}
// SAFETY: as above.
unsafe impl Plain for LockInfo {}
// SAFETY: as above.
unsafe impl Plain for CpuArea {}
// SAFETY: as above.
unsafe impl Plain for FsLayout {}
// SAFETY: as above.
unsafe impl Plain for TaskSeed {}
// SAFETY: as above.
unsafe impl Plain for RawOptions {}

/// The text before the first zero byte; bytes that are no UTF-8 are replaced.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
