//! Any bytes are read as a trace file up to where they go wrong, without a crash and in bounded memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trace::{Reader, Source};

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = Reader::new(bytes) else { return };
    reader.limit_tables(16 << 20);
    let mut events = Vec::new();
    while let Ok(true) = reader.next_batch(&mut events) {}
});
