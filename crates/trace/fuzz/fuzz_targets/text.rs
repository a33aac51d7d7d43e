//! Any text is parsed as a trace or refused with its line; what was parsed is printed and parsed again to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trace::text;

fuzz_target!(|given: &str| {
    let Ok(trace) = text::parse(given) else { return };
    let printed = text::print(&trace);
    let again = text::parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
    assert_eq!(again.events().len(), trace.events().len());
    assert_eq!(text::print(&again), printed);
});
