//! The fuzz targets in small: results that are cut, changed and made absurd, from fixed seeds of every kind.
//!
//! `crates/report/fuzz` runs the same checks for as long as one likes.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
#[path = "common/untrusted.rs"]
mod untrusted;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value;

fn seeds() -> [Vec<u8>; 3] {
    [common::result(), common::recording(), common::hostile()].map(|r| result::write_json(&r).unwrap())
}

fn check(bytes: &[u8]) {
    untrusted::is_read_or_refused(bytes);
    untrusted::is_shown_in_every_format(bytes);
}

/// What a value may be replaced with, by number: most often something of its own kind, so that it is read and has to be shown.
fn absurd(n: usize, old: &Value) -> Value {
    let texts = ["", "</script><script>alert(1)</script>", "\u{1b}]0;x\u{7}\u{202e}\r\n\0"];
    match old {
        _ if n % 13 == 12 => {
            [Value::Null, texts[1].into(), (-1).into(), Value::Array(Vec::new())][n / 13 % 4].clone()
        }
        Value::Number(number) if number.is_f64() => [f64::MAX, -1e300, 5e-324, 0.0, -1.0][n % 5].into(),
        Value::Number(_) => [0, 1, 7, u32::MAX.into(), u64::MAX][n % 5].into(),
        Value::String(_) if n % 4 == 3 => "漢".repeat(3000).into(),
        Value::String(_) => texts[n % 4].into(),
        Value::Array(list) if n.is_multiple_of(2) => {
            list.iter().cycle().take(3 * list.len()).cloned().collect()
        }
        Value::Array(_) => Value::Array(Vec::new()),
        Value::Bool(yes) => (!yes).into(),
        Value::Object(_) | Value::Null => Value::Null,
    }
}

/// The `n`th of all values of a tree, in its order, counted round.
fn replace(tree: &mut Value, n: usize, with: usize) {
    fn count(value: &Value) -> usize {
        1 + match value {
            Value::Array(list) => list.iter().map(count).sum(),
            Value::Object(map) => map.values().map(count).sum(),
            _ => 0usize,
        }
    }
    fn at<'a>(value: &'a mut Value, left: &mut usize) -> Option<&'a mut Value> {
        if *left == 0 {
            return Some(value);
        }
        *left -= 1;
        match value {
            Value::Array(list) => list.iter_mut().find_map(|v| at(v, left)),
            Value::Object(map) => map.values_mut().find_map(|v| at(v, left)),
            _ => None,
        }
    }
    let mut left = n % count(tree);
    if let Some(value) = at(tree, &mut left) {
        *value = absurd(with, value);
    }
}

#[test]
fn what_nobody_changed_passes_every_check() {
    for seed in seeds() {
        result::parse(&seed, "seed").unwrap();
        check(&seed);
    }
}

#[test]
fn what_is_replaced_is_replaced() {
    let mut tree = serde_json::json!({"a": [1, 2], "b": "c"});
    replace(&mut tree, 3, 2);
    assert_eq!(tree, serde_json::json!({"a": [1, 7], "b": "c"}));
    replace(&mut tree, 4 + 5, 12);
    assert_eq!(tree, serde_json::json!({"a": [1, 7], "b": null}));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        check(&bytes);
    }

    #[test]
    fn a_result_that_is_cut_or_whose_bytes_are_changed_does_no_harm(
        seed in 0..3usize,
        cut in prop::option::of(0.0..1.0f64),
        edits in prop::collection::vec((0.0..1.0f64, any::<u8>()), 0..6),
    ) {
        let mut bytes = seeds()[seed].clone();
        for (at, byte) in edits {
            let at = (at * bytes.len() as f64) as usize;
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate((cut * bytes.len() as f64) as usize);
        }
        check(&bytes);
    }

    #[test]
    fn a_result_whose_values_are_absurd_does_no_harm(
        seed in 0..3usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..52usize), 1..12),
    ) {
        let mut tree: Value = serde_json::from_slice(&seeds()[seed]).unwrap();
        for (at, with) in changes {
            replace(&mut tree, at.index(1 << 20), with);
        }
        check(&serde_json::to_vec(&tree).unwrap());
    }
}
