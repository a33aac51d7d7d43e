//! Any bytes are read as a result, or refused with one line; what was read is written so that it can be read again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match result::parse(bytes, "fuzz") {
        Ok(result) => {
            let Ok(written) = result::write_json(&result) else { return };
            let again = result::parse(&written, "fuzz").expect("what was written is read");
            assert_eq!(result::write_json(&again).expect("written once, written again"), written);
        }
        Err(error) => {
            let line = error.to_string();
            assert!(line.len() < 2000 && !line.chars().any(char::is_control), "{line:?}");
        }
    }
});
