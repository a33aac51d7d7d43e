//! The text form: what is printed is parsed again, mistakes are named with their line.

#![allow(clippy::unwrap_used)]

mod common;

use proptest::prelude::*;
use trace::*;

proptest! {
    #[test]
    fn what_is_printed_is_parsed_to_the_same_trace(steps in common::steps()) {
        let trace = common::builder(&steps).into_trace();
        let text = text::print(&trace);
        let again = text::parse(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(again.events().len(), trace.events().len());
        prop_assert_eq!(text::print(&again), text);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
        let _ = text::parse(&text);
    }

    #[test]
    fn arbitrary_lines_of_known_words_never_panic(
        words in proptest::collection::vec(
            prop::sample::select(vec![
                "task", "lock", "stack", "meta", "1", "2.5", "cpu0", "A", "B", "->", "switch", "begin", "wake", "irq",
                "seed", "blocked", "D", "on=A", "weight=1", "sample", "user", "\n", "\"", "x=", "=", "#",
            ]), 0..60)
    ) {
        let _ = text::parse(&words.join(" "));
    }
}

#[test]
fn the_example_of_the_documentation_is_parsed() {
    let source = include_str!("../src/text/mod.rs");
    let example = source.split("```text").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let example: String = example.lines().map(|l| format!("{}\n", l.trim_start_matches("//!"))).collect();
    let trace = text::parse(&example).unwrap();
    assert_eq!(trace.events().len(), 11);
    let (id, agi) = trace.tables().locks().next().unwrap();
    assert_eq!(agi.kind, LockKind::Semaphore);
    assert_eq!(trace.tables().str(agi.object.unwrap()), "AGI of AG 0 on loop0");
    assert!(
        trace
            .events()
            .iter()
            .any(|e| matches!(e.kind, Kind::ContentionEnd { lock, ret: 0, .. } if lock == id))
    );
    let (task, _) = trace.tables().tasks().next().unwrap();
    assert_eq!(trace.tables().task_name_at(task, TimeNs(200_000)), "cc");
    assert_eq!(trace.tables().task_name_at(task, TimeNs(250_000)), "as");
}

#[test]
fn a_mistake_is_named_with_its_line() {
    for (text, expected) in [
        ("task A\n\n5 cpu0 exit B 0", "line 3: there is no task `B`"),
        ("x", "line 1: `x` is neither a definition nor a time"),
        ("task A\n5 cpu0 exit A 0\n4 cpu0 exit A 0", "line 3: the time is earlier than the line before"),
        ("task A\n5 cpu0 exit A 0 1", "line 2: `1` does not belong here"),
        ("task A name=\"a", "line 1: a quote is not closed"),
        ("task A\n1.0005 cpu0 exit A 0", "line 2: `1.0005` is not a time in microseconds"),
    ] {
        assert_eq!(text::parse(text).unwrap_err().to_string(), expected);
    }
}
