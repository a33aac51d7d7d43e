//! The pprof form (gzipped protocol buffer), for `go tool pprof`-compatible readers.
//!
//! Only the messages that are needed are declared, with the field numbers of the published format.

use crate::FormatError;
use crate::text::plain;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use result::{Point, Stack, Stacks};
use std::collections::HashMap;
use std::io::Write;

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
}

/// The table of strings, whose first is empty.
struct Strings {
    table: Vec<String>,
    index: HashMap<String, i64>,
}

impl Strings {
    fn new() -> Self {
        Self { table: vec![String::new()], index: HashMap::from([(String::new(), 0)]) }
    }

    fn id(&mut self, text: &str) -> i64 {
        if let Some(id) = self.index.get(text) {
            return *id;
        }
        let id = self.table.len() as i64;
        self.table.push(text.to_owned());
        self.index.insert(text.to_owned(), id);
        id
    }
}

/// The four values of a sample, in this order.
const TYPES: [(&str, &str); 4] =
    [("waits", "count"), ("off_cpu", "nanoseconds"), ("samples", "count"), ("on_cpu", "nanoseconds")];

const KERNEL: u64 = 1;
const USER: u64 = 2;

/// The captured stacks of a point as a gzipped pprof profile: off-CPU time (the default) and on-CPU time.
///
/// # Errors
/// When the point has no stacks.
pub fn profile(point: &Point) -> Result<Vec<u8>, FormatError> {
    let stacks = point.stacks.as_ref().ok_or(FormatError::NoStacks)?;
    let mut strings = Strings::new();
    let types = TYPES.map(|(t, unit)| ValueType { r#type: strings.id(t), unit: strings.id(unit) });
    let mut locations: HashMap<(u64, i64), u64> = HashMap::new();
    let mut out = Profile {
        period_type: Some(types[1].clone()),
        period: 1,
        default_sample_type: types[1].r#type,
        sample_type: types.to_vec(),
        duration_nanos: point.capture.as_ref().map_or(0, |c| whole(c.window_s * 1e9)),
        ..Default::default()
    };
    for (id, name) in [(KERNEL, "[kernel]"), (USER, "[user]")] {
        out.mapping.push(Mapping { id, filename: strings.id(name), has_functions: true });
    }
    let comment = crate::verdict::point_name(point, 200);
    out.comment.push(strings.id(&comment));
    let comm_key = strings.id("comm");
    for (list, off) in [(&stacks.off_cpu, true), (&stacks.on_cpu, false)] {
        for stack in list.iter().filter(|s| s.us.is_finite() && s.us > 0.0) {
            let mut location_id = Vec::with_capacity(stack.kernel.len() + stack.user.len());
            for (mapping, name) in leaf_first(stacks, stack) {
                let name = strings.id(&name);
                let next = out.location.len() as u64 + 1;
                let id = *locations.entry((mapping, name)).or_insert_with(|| {
                    out.function.push(Function { id: next, name, system_name: name });
                    out.location.push(Location {
                        id: next,
                        mapping_id: mapping,
                        line: vec![Line { function_id: next }],
                    });
                    next
                });
                location_id.push(id);
            }
            let (count, ns) = (i64::try_from(stack.count).unwrap_or(i64::MAX), whole(stack.us * 1000.0));
            let value = if off { vec![count, ns, 0, 0] } else { vec![0, 0, count, ns] };
            let label = vec![Label { key: comm_key, str: strings.id(&plain(&stack.comm, 100)) }];
            out.sample.push(Sample { location_id, value, label });
        }
    }
    if out.sample.is_empty() {
        return Err(FormatError::NoStacks);
    }
    out.string_table = strings.table;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&out.encode_to_vec())
        .and_then(|()| gzip.finish())
        .map_err(|e| FormatError::Drawing { why: e.to_string() })
}

/// Frames from the leaf, with the mapping that they belong to; the command is the root.
fn leaf_first(stacks: &Stacks, stack: &Stack) -> Vec<(u64, String)> {
    const DEEPEST: usize = 500;
    let name = |i: &u32| stacks.frames.get(*i as usize).map_or("[unknown]".to_owned(), |n| plain(n, 400));
    stack
        .kernel
        .iter()
        .map(|i| (KERNEL, name(i)))
        .chain(stack.user.iter().map(|i| (USER, name(i))))
        .take(DEEPEST)
        .chain([(USER, plain(&stack.comm, 100))])
        .collect()
}

/// A whole number, held within what the field can.
fn whole(value: f64) -> i64 {
    // A float to int cast saturates, and takes NaN to 0.
    value.round() as i64
}
