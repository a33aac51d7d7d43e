//! What the fuzz target `records` does without end, from seeds and for a moment: the records of a real trace, damaged under a checksum that
//! is right again, are decoded or refused, and what was decoded is explained: no panic, no idle time charged twice.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use explain::{Scope, Select, explain, summary};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use trace::{Reader, Trace};

const MAGIC_AND_VERSION: usize = 12;
const HEADER: usize = 24;

/// The records of the first block of a recorded trace.
fn records(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.trace"));
    let file = fs::read(path).unwrap();
    let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let (payload, raw) = (number(MAGIC_AND_VERSION), number(MAGIC_AND_VERSION + 4));
    let from = MAGIC_AND_VERSION + HEADER;
    zstd::bulk::decompress(&file[from..from + payload], raw).unwrap()
}

/// A file with one block of these records, which is sound as far as its checksum goes.
fn file(records: &[u8]) -> Vec<u8> {
    let payload = zstd::bulk::compress(records, 1).unwrap();
    let mut header = [0u8; HEADER];
    header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[4..8].copy_from_slice(&(records.len() as u32).to_le_bytes());
    header[12..16].copy_from_slice(&1u32.to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&header[..8]);
    sum.update(&header[12..]);
    sum.update(&payload);
    header[8..12].copy_from_slice(&sum.finalize().to_le_bytes());
    [b"PFLTRACE\x01\0\0\0".as_slice(), &header, &payload].concat()
}

fn read(records: &[u8]) -> Option<Trace> {
    let file = file(records);
    let mut reader = Reader::new(file.as_slice()).unwrap();
    reader.limit_tables(16 << 20);
    Trace::read(&mut reader).ok()
}

#[test]
fn the_seeds_are_traces() {
    for seed in ["mmap_lock", "btrfs_create_unlink"] {
        assert!(read(&records(seed)).unwrap().events().len() > 1000, "{seed}");
    }
}

proptest! {
    // the same cases each time: looking for new ones is the fuzz target's business
    #![proptest_config(ProptestConfig { cases: 48, rng_seed: RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn damaged_records_are_refused_or_explained_without_charging_more_idle_time_than_there_is(
        seed in 0usize..2,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        // damage near the beginning hits definitions, and most of what follows is lost with a wrong length
        part in prop::sample::select(vec![1usize, 4, 64]),
    ) {
        let mut records = records(["mmap_lock", "btrfs_create_unlink"][seed]);
        let tail = records.len() - records.len() / part;
        for (at, value) in damage {
            let at = tail + at.index(records.len() - tail);
            records[at] = value;
        }
        if let Some(trace) = read(&records) {
            let scope = Scope { select: Select::All, ..Scope::default() };
            let e = explain(&mut trace.source(), &scope).unwrap();
            let charged: f64 = e.roots.iter().map(|r| r.idle_ns).sum();
            let sum = charged + e.serial_ns() + e.nothing_to_run_ns;
            // however events contradict each other
            prop_assert!(sum <= e.budget.idle_ns * 1.000_001 + 1000.0, "{sum} of {}\n{}", e.budget.idle_ns, summary(&e));
        }
    }
}
