//! The trace file: versioned, self-contained, compressed, streamed.
//!
//! ```text
//! file   = "PFLTRACE" version:u32 block*
//! block  = payload_len:u32 raw_len:u32 crc32:u32 kind:u32 first_time:u64 payload     (all little endian)
//! ```
//!
//! The payload is a zstd frame of at most 1 MiB of records; the checksum covers the rest of the header and the payload. A block of kind 1 holds
//! definitions and events, in which no handle is used before the end of the block that defines it; a block of kind 2 holds the summary and ends the
//! file. Without it the file was cut, and is good up to there. A record is a tag byte and fields as LEB128 numbers; event times are
//! differences to the event before, the first one to `first_time`, so that each block can be decoded alone.
//!
//! Tags and fields are only ever added: a reader that meets a tag of a later version says so by the version number.

mod decode;
mod encode;
mod reader;
mod writer;

pub use reader::{End, Reader};
pub use writer::Writer;

const MAGIC: &[u8; 8] = b"PFLTRACE";
/// The version of the format that is written, and the newest that is read.
pub const VERSION: u32 = 2;

const HEADER: usize = 24;
const KIND_RECORDS: u32 = 1;
const KIND_END: u32 = 2;

/// The most that a block holds before compression.
const MAX_RAW: usize = 1 << 20;
/// The most that a compressed block takes.
const MAX_PAYLOAD: usize = MAX_RAW + (MAX_RAW >> 4);

/// Longest string; longer ones are cut when written.
const MAX_STRING: usize = 16 << 10;
/// Most frames of a stack, names of a task, CPUs of a list, options of a capture.
const MAX_FRAMES: usize = 1024;
const MAX_NAMES: usize = 64;
const MAX_CPUS: usize = 1 << 14;
const MAX_OPTIONS: usize = 16;

/// Record tags. Events first, then definitions.
mod tag {
    pub const WINDOW_START: u8 = 1;
    pub const WINDOW_END: u8 = 2;
    pub const SEED: u8 = 3;
    pub const SWITCH: u8 = 4;
    pub const WAKING: u8 = 5;
    pub const CONTENTION_BEGIN: u8 = 6;
    pub const CONTENTION_END: u8 = 7;
    pub const BLOCKED_ON: u8 = 8;
    pub const OWNER: u8 = 9;
    pub const ACQUIRED: u8 = 10;
    pub const RELEASED: u8 = 11;
    pub const WAIT_STACK: u8 = 12;
    pub const SAMPLE: u8 = 13;
    pub const FORK: u8 = 14;
    pub const EXEC: u8 = 15;
    pub const EXIT: u8 = 16;
    pub const WORK_START: u8 = 17;
    pub const WORK_END: u8 = 18;
    pub const IRQ_ENTER: u8 = 19;
    pub const IRQ_EXIT: u8 = 20;
    pub const THROTTLE: u8 = 21;
    pub const LOST: u8 = 22;
    /// Since version 2.
    pub const HELD_BACK: u8 = 23;
    pub const IO_DONE: u8 = 24;

    pub const DEF_META: u8 = 64;
    pub const DEF_STR: u8 = 65;
    pub const DEF_SYMBOL: u8 = 66;
    pub const DEF_STACK: u8 = 67;
    pub const DEF_TASK: u8 = 68;
    pub const DEF_LOCK: u8 = 69;
    pub const DEF_CGROUP: u8 = 70;
    pub const DEF_SUMMARY: u8 = 71;
}
