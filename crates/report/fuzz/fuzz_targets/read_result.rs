//! Any bytes are read as a result, or refused with one line; what was read is written so that it can be read again.
#![no_main]

#[allow(dead_code)]
#[path = "../../tests/common/untrusted.rs"]
mod untrusted;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| untrusted::is_read_or_refused(bytes));
