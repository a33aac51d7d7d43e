//! Results that a stranger wrote are read within bounds, and refused with one clear line.
#![allow(clippy::unwrap_used)]

use result::{MadeBy, ReadError, RunResult, parse, read, write_json};

fn written() -> Vec<u8> {
    let mut result = RunResult::new(MadeBy::Run, u64::MAX);
    result.points.push(result::Point { workload: "create_unlink".into(), ..Default::default() });
    write_json(&result).unwrap()
}

fn message(bytes: &[u8]) -> String {
    let error = parse(bytes, "r.json").unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("r.json: "), "{error}");
    assert!(!error.chars().any(char::is_control), "{error:?}");
    error
}

#[test]
fn what_is_written_is_read_again() {
    let bytes = written();
    let result = parse(&bytes, "r.json").unwrap();
    assert_eq!(result.seed, u64::MAX);
    assert_eq!(write_json(&result).unwrap(), bytes);
}

#[test]
fn every_number_is_read_as_it_was_written() {
    let mut result = RunResult::new(MadeBy::Run, 1);
    for seconds in [28_063.232_100_276_764, 0.1 + 0.2, 1.0 / 3.0, f64::MIN_POSITIVE, f64::MAX, 5e-324] {
        result.elapsed_s = seconds;
        assert_eq!(parse(&write_json(&result).unwrap(), "r").unwrap().elapsed_s.to_bits(), seconds.to_bits());
    }
}

#[test]
fn every_truncation_is_refused_as_cut_off() {
    let bytes = written();
    let end = bytes.len() - 2; // the closing brace and the newline
    for cut in 0..=end {
        assert!(message(&bytes[..cut]).contains("cut off"), "at {cut}");
    }
}

#[test]
fn other_versions_are_named_and_no_schema_is_said() {
    let other = message(br#"{"schema":"perfloss.result/2","points":7}"#);
    assert!(other.contains("perfloss.result/2") && other.contains("perfloss.result/1"));
    assert!(message(br#"{"schema":"else"}"#).contains("schema"));
    assert!(message(br#"{"schema":7}"#).contains("schema"));
    assert!(message(b"{}").contains("schema"));
    assert!(message(b"[]").contains("not a perfloss result"));
    assert!(message(b"\xff\xfe").contains("not a perfloss result"));
}

#[test]
fn control_characters_and_lengths_in_messages_are_tamed() {
    message(b"{\"schema\":\"perfloss.result/\\u001b[31m\"}");
    let long = format!("{{\"schema\":\"perfloss.result/{}\"}}", "x".repeat(100_000));
    assert!(message(long.as_bytes()).len() < 1000);
    let unknown = format!(
        r#"{{"schema":"perfloss.result/1","complete":true,"seed":1,"points":[],"made_by":"{}"}}"#,
        "\\u001b]0;x\\u0007".repeat(1000)
    );
    assert!(message(unknown.as_bytes()).len() < 1000);
}

#[test]
fn deep_nesting_is_refused_or_skipped_and_does_not_overflow_the_stack() {
    const DEEP: usize = 1_000_000;
    let nest = "[".repeat(DEEP) + &"]".repeat(DEEP);
    let known = format!(r#"{{"schema":{nest}}}"#);
    assert!(message(known.as_bytes()).contains("recursion"));
    // Skipping what is not known takes no stack.
    let unknown =
        format!(r#"{{"schema":"perfloss.result/1","complete":true,"seed":1,"points":[],"x":{nest}}}"#);
    assert!(parse(unknown.as_bytes(), "r").is_ok());
}

#[test]
fn numbers_that_are_not_finite_are_refused() {
    for number in ["1e999", "-1e999", "NaN", "Infinity"] {
        let text = format!(
            r#"{{"schema":"perfloss.result/1","complete":true,"seed":1,"points":[],"elapsed_s":{number}}}"#
        );
        message(text.as_bytes());
    }
    let mut result = RunResult::new(MadeBy::Run, 1);
    result.elapsed_s = f64::NAN;
    let folder = tempfile::tempdir().unwrap();
    let folder = result::Folder::create(&folder.path().join("r")).unwrap();
    assert!(folder.update(&result).is_err());
    assert!(!folder.file("result.json").exists());
}

#[test]
fn unknown_fields_and_unknown_words_of_a_later_minor_version_are_read() {
    let text = r#"{"schema":"perfloss.result/1","complete":true,"seed":1,"new":{"a":[1]},
        "warnings":[{"code":"from_the_future","x":1}],
        "points":[{"workload":"w","roots":[{"lock":{"kind":"from_the_future","class":"c"}}]}]}"#;
    let result = parse(text.as_bytes(), "r").unwrap();
    assert_eq!(result.warnings, [result::Warning::Unknown]);
    assert_eq!(result.points[0].roots[0].lock.kind, result::RootKind::Other);
}

#[test]
fn a_result_is_named_by_its_folder_or_its_file() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(read(folder.path()), Err(ReadError::NotAResult { .. })));
    std::fs::write(folder.path().join("result.json"), written()).unwrap();
    assert!(read(folder.path()).is_ok());
    assert!(read(&folder.path().join("result.json")).is_ok());
    assert!(matches!(read(&folder.path().join("none")), Err(ReadError::Missing { .. })));
    assert!(matches!(read(std::path::Path::new("/dev/zero")), Err(ReadError::NotAFile { .. })));
}
