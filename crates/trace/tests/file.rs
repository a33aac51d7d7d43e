//! The trace file: what is written is read, what is cut is read up to the cut, what is hostile is refused.

#![allow(clippy::unwrap_used)]

mod common;

use proptest::prelude::*;
use trace::file::{End, VERSION};
use trace::*;

fn write(mut builder: Builder) -> Vec<u8> {
    let writer = Writer::new(Vec::new()).unwrap();
    writer.finish(&mut builder).unwrap()
}

fn read(bytes: &[u8]) -> Result<(Trace, End), Error> {
    let mut reader = Reader::new(bytes)?;
    let trace = Trace::read(&mut reader)?;
    Ok((trace, reader.end()))
}

/// About `count` events that do not compress to nothing.
fn many(count: u64) -> Builder {
    let mut b = common::tables();
    let mut x = 88172645463325252u64;
    for i in 0..count {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        let task = TaskId::from_index((x % 5) as u32 + 1);
        let kind =
            Kind::Sample { task, mode: SampleMode::User, kernel: None, user: None, weight_ns: x >> 40 };
        b.event(TimeNs(i * 1000 + x % 999), Cpu((x % 4) as u16), kind);
    }
    b
}

proptest! {
    #[test]
    fn what_is_written_is_read(steps in common::steps()) {
        let builder = common::builder(&steps);
        let expected = common::builder(&steps).into_trace();
        let (found, end) = read(&write(builder)).unwrap();
        prop_assert_eq!(end, End::Complete);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn pieces_written_one_after_the_other_are_the_whole(steps in common::steps(), at in 0usize..200) {
        let (first, second) = steps.split_at(at.min(steps.len()));
        let mut b = common::builder(first);
        let now = first.iter().map(|s| s.0).sum();
        let mut writer = Writer::new(Vec::new()).unwrap();
        writer.append(&mut b).unwrap();
        b.rename_task(TaskId::from_index(2), TimeNs(now), "later");
        b.change_lock(LockId::from_index(0), |l| l.address = 5);
        common::add(&mut b, second, now);
        let bytes = writer.finish(&mut b).unwrap();

        let mut whole = common::builder(&steps);
        whole.rename_task(TaskId::from_index(2), TimeNs(now), "later");
        whole.change_lock(LockId::from_index(0), |l| l.address = 5);
        let (found, end) = read(&bytes).unwrap();
        prop_assert_eq!(end, End::Complete);
        prop_assert_eq!(found, whole.into_trace());
    }

    #[test]
    fn changed_bytes_never_panic_and_never_pass_for_complete(
        steps in common::steps(), at in any::<prop::sample::Index>(), flip in 1u8..=255,
    ) {
        let mut bytes = write(common::builder(&steps));
        let i = at.index(bytes.len());
        bytes[i] ^= flip;
        if let Ok((_, end)) = read(&bytes) {
            prop_assert_ne!(end, End::Complete);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = read(&bytes);
        let mut good = b"PFLTRACE\x01\0\0\0".to_vec();
        good.append(&mut bytes);
        let _ = read(&good);
    }
}

#[test]
fn a_file_cut_anywhere_is_read_up_to_the_cut() {
    let bytes = write(many(100_000));
    let whole = many(100_000).into_trace();
    let mut lengths = Vec::new();
    for cut in (0..bytes.len()).step_by(4999) {
        match read(&bytes[..cut]) {
            Err(error) => assert!(cut < 12 && matches!(error, Error::NotATrace), "{cut}: {error}"),
            Ok((found, end)) => {
                assert_eq!(end, End::Cut);
                assert_eq!(found.events(), &whole.events()[..found.events().len()]);
                lengths.push(found.events().len());
            }
        }
    }
    assert!(lengths.is_sorted());
    lengths.dedup();
    assert!(lengths.len() > 3, "several blocks are readable one by one: {lengths:?}");
}

#[test]
fn a_block_that_is_damaged_ends_the_trace_there_and_says_so() {
    let mut bytes = write(many(100_000));
    let i = bytes.len() - 1000;
    bytes[i] ^= 1;
    let (found, end) = read(&bytes).unwrap();
    assert_eq!(end, End::Damaged("a block's checksum is wrong"));
    assert!(!found.events().is_empty() && found.events().len() < 100_000);
}

#[test]
fn a_file_of_a_newer_version_is_refused_by_its_version() {
    let mut bytes = write(many(1));
    bytes[8] = VERSION as u8 + 1;
    let error = read(&bytes).unwrap_err();
    assert!(matches!(error, Error::Version { found, .. } if found == VERSION + 1), "{error}");
}

#[test]
fn a_file_that_is_no_trace_is_refused() {
    assert!(matches!(read(b"").unwrap_err(), Error::NotATrace));
    assert!(matches!(read(b"\x7fELF and a lot more than twelve bytes").unwrap_err(), Error::NotATrace));
}

#[test]
fn tables_beyond_the_limit_are_refused() {
    let mut b = Builder::new(Meta::default());
    for i in 0..1000 {
        b.str(&format!("{i}{}", "x".repeat(1000)));
    }
    let bytes = write(b);
    let mut reader = Reader::new(bytes.as_slice()).unwrap();
    reader.limit_tables(100_000);
    let error = Trace::read(&mut reader).unwrap_err();
    assert!(error.to_string().contains("too large"), "{error}");
}

#[test]
fn long_strings_are_cut_at_a_character_and_counted() {
    let mut b = Builder::new(Meta::default());
    b.str(&"ü".repeat(20_000));
    let (found, end) = read(&write(b)).unwrap();
    assert_eq!(end, End::Complete);
    assert_eq!(found.tables().summary().truncated_names, 1);
    assert_eq!(found.tables().str(StrId::from_index(0)), "ü".repeat(8192));
}

#[test]
fn the_largest_meta_fits_into_a_block() {
    let mut b = Builder::new(Meta::default());
    for i in 0..20_000 {
        b.str(&i.to_string());
    }
    let long = "x".repeat(20_000);
    b.meta_mut().options = vec![(long.clone(), long.clone()); 50];
    b.meta_mut().machine = long;
    b.meta_mut().online = (0..60_000).map(Cpu).collect();
    b.meta_mut().allowed = (0..60_000).map(Cpu).collect();
    let (_, end) = read(&write(b)).unwrap();
    assert_eq!(end, End::Complete);
}

#[test]
fn events_that_come_too_late_get_the_time_of_their_predecessor_and_are_counted() {
    let mut b = common::tables();
    b.event(TimeNs(10), Cpu(0), Kind::WindowStart);
    b.event(TimeNs(9), Cpu(0), Kind::WindowEnd);
    let trace = b.into_trace();
    assert_eq!(trace.events()[1].time, TimeNs(10));
    assert_eq!(trace.tables().summary().reordered, 1);
}

#[test]
fn a_thread_id_that_is_used_again_is_another_task() {
    let mut b = Builder::new(Meta::default());
    let first = b.add_task(Task { tid: 7, ..Task::default() });
    assert_eq!(b.live_task(7), Some(first));
    b.end_task(first, TimeNs(5), 0);
    assert_eq!(b.live_task(7), None);
    let second = b.add_task(Task { tid: 7, ..Task::default() });
    assert_ne!(first, second);
    // the end of the first, noted late, does not end the second
    b.end_task(first, TimeNs(6), 0);
    assert_eq!(b.live_task(7), Some(second));
}

#[test]
fn an_event_is_small() {
    assert!(size_of::<Event>() <= 48, "{}", size_of::<Event>());
}
