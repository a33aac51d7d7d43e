//! The trace form of ui.perfetto.dev: tasks as tracks, states as slices, hand-offs as flows from the releaser to the
//! next holder.
//!
//! Only the messages that are needed are declared, with the field numbers of the published format.

use crate::FormatError;
use crate::text::plain;
use prost::Message;
use result::{Point, TaskState, Timeline};
use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessDescriptor {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(string, tag = "6")]
    process_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct ThreadDescriptor {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(int32, tag = "2")]
    tid: i32,
    #[prost(string, tag = "5")]
    thread_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, tag = "9")]
    r#type: i32,
    #[prost(uint64, tag = "11")]
    track_uuid: u64,
    #[prost(string, repeated, tag = "22")]
    categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    // The published format is proto2: its repeated numbers are not packed.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    terminating_flow_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(int64, optional, tag = "4")]
    int_value: Option<i64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(string, tag = "10")]
    name: String,
}

const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;

/// One writer of packets.
const SEQUENCE: u32 = 1;

/// The process that all tasks are shown under: a timeline knows threads only.
const PROCESS: u64 = 1;
const PROCESS_ID: i32 = 1;

/// The timeline of a point as a Perfetto trace.
///
/// # Errors
/// When the point has no timeline.
pub fn trace(point: &Point) -> Result<Vec<u8>, FormatError> {
    let timeline = point.timeline.as_ref().filter(|t| !t.rows.is_empty()).ok_or(FormatError::NoTimeline)?;
    let name = crate::verdict::point_name(point, 80);
    let mut trace = Trace::default();
    trace.packet.push(TracePacket {
        trusted_packet_sequence_id: SEQUENCE,
        // The state of the sequence begins here.
        sequence_flags: Some(1),
        track_descriptor: Some(TrackDescriptor {
            uuid: PROCESS,
            process: Some(ProcessDescriptor { pid: PROCESS_ID, process_name: name }),
            ..Default::default()
        }),
        ..Default::default()
    });
    for (i, row) in timeline.rows.iter().enumerate() {
        trace.packet.push(TracePacket {
            trusted_packet_sequence_id: SEQUENCE,
            track_descriptor: Some(TrackDescriptor {
                uuid: track(i),
                parent_uuid: Some(PROCESS),
                thread: Some(ThreadDescriptor {
                    pid: PROCESS_ID,
                    tid: row.tid,
                    thread_name: plain(&row.comm, 100),
                }),
                ..Default::default()
            }),
            ..Default::default()
        });
    }
    for (_, events) in events(timeline) {
        trace.packet.extend(events);
    }
    Ok(trace.encode_to_vec())
}

fn track(row: usize) -> u64 {
    PROCESS + 1 + row as u64
}

/// Events by time; at one time ends come before instants and beginnings, so that slices do not nest.
fn events(timeline: &Timeline) -> BTreeMap<(u64, u8), Vec<TracePacket>> {
    let mut out: BTreeMap<(u64, u8), Vec<TracePacket>> = BTreeMap::new();
    let time = |us: f64| -> Option<u64> {
        let ns = (timeline.start_s * 1e9) + us * 1000.0;
        (ns.is_finite() && (0.0..9e18).contains(&ns)).then_some(ns.round() as u64)
    };
    let lock = |index: Option<u32>| index.and_then(|i| timeline.locks.get(i as usize)).map(|l| plain(l, 200));
    let packet = |at: u64, event: TrackEvent| TracePacket {
        timestamp: Some(at),
        trusted_packet_sequence_id: SEQUENCE,
        track_event: Some(event),
        ..Default::default()
    };
    for (i, row) in timeline.rows.iter().enumerate() {
        for interval in &row.intervals {
            let (Some(begin), Some(end)) = (time(interval.at_us), time(interval.at_us + interval.us)) else {
                continue;
            };
            if end <= begin {
                continue;
            }
            let mut debug_annotations = Vec::new();
            if let Some(cpu) = interval.cpu {
                debug_annotations.push(DebugAnnotation {
                    name: "cpu".to_owned(),
                    int_value: Some(i64::from(cpu)),
                    ..Default::default()
                });
            }
            let lock = lock(interval.lock);
            if let Some(lock) = &lock {
                debug_annotations.push(DebugAnnotation {
                    name: "lock".to_owned(),
                    string_value: Some(lock.clone()),
                    ..Default::default()
                });
            }
            let name = match (&lock, interval.state) {
                (Some(lock), TaskState::BlockedLock) => format!("waiting for {lock}"),
                (Some(lock), TaskState::Spinning) => format!("spinning for {lock}"),
                (_, state) => state.words().to_owned(),
            };
            out.entry((begin, 2)).or_default().push(packet(
                begin,
                TrackEvent {
                    r#type: SLICE_BEGIN,
                    track_uuid: track(i),
                    name: Some(name),
                    categories: vec!["state".to_owned()],
                    debug_annotations,
                    ..Default::default()
                },
            ));
            out.entry((end, 0)).or_default().push(packet(
                end,
                TrackEvent { r#type: SLICE_END, track_uuid: track(i), ..Default::default() },
            ));
        }
    }
    for (i, h) in timeline.hand_offs.iter().enumerate() {
        let (Some(released), Some(runs)) = (time(h.released_us), time(h.runs_us)) else {
            continue;
        };
        let rows = timeline.rows.len();
        let Some(from) = h.from.map(|f| f as usize).filter(|f| *f < rows) else {
            continue;
        };
        if h.to as usize >= rows || runs < released {
            continue;
        }
        let flow = i as u64 + 1;
        let what = lock(h.lock).unwrap_or_else(|| "a lock".to_owned());
        let instant = |row: usize, name: String| TrackEvent {
            r#type: INSTANT,
            track_uuid: track(row),
            name: Some(name),
            categories: vec!["hand-off".to_owned()],
            ..Default::default()
        };
        let mut release = instant(from, format!("releases {what}"));
        release.flow_ids.push(flow);
        out.entry((released, 1)).or_default().push(packet(released, release));
        let mut take = instant(h.to as usize, format!("runs with {what}"));
        take.terminating_flow_ids.push(flow);
        out.entry((runs, 3)).or_default().push(packet(runs, take));
    }
    out
}
