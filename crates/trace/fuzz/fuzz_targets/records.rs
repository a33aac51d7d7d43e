//! Any records in a block that is sound as far as its checksum goes are decoded or refused; what was decoded is written and read again the same, and
//! is explained without a crash.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trace::{Reader, Trace, Writer};

fuzz_target!(|records: &[u8]| {
    let Ok(payload) = zstd::bulk::compress(records, 1) else { return };
    let mut header = [0u8; 24];
    header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[4..8].copy_from_slice(&(records.len() as u32).to_le_bytes());
    header[12..16].copy_from_slice(&1u32.to_le_bytes());
    let mut sum = crc32fast::Hasher::new();
    sum.update(&header[..8]);
    sum.update(&header[12..]);
    sum.update(&payload);
    header[8..12].copy_from_slice(&sum.finalize().to_le_bytes());
    let mut file = b"PFLTRACE\x01\0\0\0".to_vec();
    file.extend_from_slice(&header);
    file.extend_from_slice(&payload);

    let Ok(mut reader) = Reader::new(file.as_slice()) else { return };
    reader.limit_tables(16 << 20);
    let Ok(trace) = Trace::read(&mut reader) else { return };
    let scope = explain::Scope { select: explain::Select::All, ..Default::default() };
    let explanation = explain::explain(&mut trace.source(), &scope).expect("a trace in memory is read");
    let _ = explain::summary(&explanation);
    let mut written = trace.clone().into_builder();
    let bytes = Writer::new(Vec::new()).expect("memory").finish(&mut written).expect("memory");
    let again = Trace::read(&mut Reader::new(bytes.as_slice()).expect("written")).expect("written");
    assert_eq!(again.events(), trace.events());
});
