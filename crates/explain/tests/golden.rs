//! Traces written by hand, each with the explanation that it must give beside it.
//!
//! A new case is a file `cases/NAME.trace`; run with `PERFLOSS_BLESS=1` to write `cases/NAME.expect`, then check that by hand.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use explain::{Scope, explain, summary};
use trace::text;

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|e| e == "trace"));
    cases.sort();
    cases
}

#[test]
fn every_case_gives_what_is_expected() {
    let bless = std::env::var_os("PERFLOSS_BLESS").is_some();
    let mut wrong = Vec::new();
    let cases = cases();
    assert!(cases.len() > 15);
    for case in cases {
        let trace = text::parse(&fs::read_to_string(&case).unwrap())
            .unwrap_or_else(|e| panic!("{}: {e}", case.display()));
        let explanation = explain(&mut trace.source(), &Scope::default()).unwrap();
        let found = summary(&explanation);
        let expect = case.with_extension("expect");
        if bless {
            fs::write(&expect, &found).unwrap();
        }
        let expected = fs::read_to_string(&expect).unwrap_or_default();
        if found != expected {
            wrong.push(format!("== {}\nexpected:\n{expected}\nfound:\n{found}", case.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
