//! Any result that can be read is shown in every format without a crash, and without what could harm a terminal or a page.
#![no_main]

#[allow(dead_code)]
#[path = "../../tests/common/untrusted.rs"]
mod untrusted;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| untrusted::is_shown_in_every_format(bytes));
