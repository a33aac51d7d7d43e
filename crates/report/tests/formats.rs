//! The formats of `show`: what a reader of each would find in them.

#![allow(clippy::unwrap_used)]

mod common;

use report::flamegraph::{Which, difference_svg, svg};
use report::{columns, markdown, perfetto, pprof, stacks};
use std::collections::BTreeMap;
use std::io::Read;

#[test]
fn folded_stacks_follow_offcputime_and_add_up() {
    let result = common::result();
    let stacks = result.points[0].stacks.as_ref().unwrap();
    let text = stacks::folded(stacks, &stacks.off_cpu);
    let mut sum = 0.0;
    for line in text.lines() {
        let (path, us) = line.rsplit_once(' ').unwrap();
        assert!(
            path.starts_with(
                "perfloss;main;create_unlink;unlink;entry_SYSCALL_64_after_hwframe;do_syscall_64;"
            ),
            "{line}"
        );
        sum += us.parse::<f64>().unwrap();
    }
    let total: f64 = stacks.off_cpu.iter().map(|s| s.us).sum();
    assert!((sum - total).abs() <= 2.0, "{sum} {total}");
    assert!(text.lines().any(|l| l.contains(";xfs_iunlink;") && l.contains(";down ")));
}

#[test]
fn hostile_frames_cannot_break_a_folded_line() {
    let result = common::hostile();
    let stacks = result.points[0].stacks.as_ref().unwrap();
    let text = stacks::folded(stacks, &stacks.off_cpu);
    assert!(!text.is_empty());
    for line in text.lines() {
        let (path, us) = line.rsplit_once(' ').unwrap();
        us.parse::<u128>().unwrap_or_else(|_| panic!("{us}"));
        assert!(!path.chars().any(char::is_control));
    }
}

#[test]
fn a_flame_graph_is_an_svg_that_names_its_frames() {
    let result = common::result();
    let stacks = result.points[0].stacks.as_ref().unwrap();
    let image = String::from_utf8(svg(stacks, Which::OffCpu, "xfs, 2 tasks").unwrap()).unwrap();
    assert!(image.contains("xfs_iunlink") && image.contains("Off-CPU time: xfs, 2 tasks"));
    roxmltree::Document::parse_with_options(&image, options()).unwrap();
    let other = result.points[4].stacks.as_ref().unwrap();
    let image =
        String::from_utf8(difference_svg(other, stacks, Which::OffCpu, "ext4", "xfs").unwrap()).unwrap();
    roxmltree::Document::parse_with_options(&image, options()).unwrap();
    assert!(image.contains("xfs against ext4"));
}

fn options() -> roxmltree::ParsingOptions {
    roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() }
}

#[test]
fn hostile_names_are_text_in_a_flame_graph() {
    let result = common::hostile();
    let stacks = result.points[0].stacks.as_ref().unwrap();
    let image = String::from_utf8(svg(stacks, Which::OnCpu, common::HOSTILE).unwrap()).unwrap();
    let document = roxmltree::Document::parse_with_options(&image, options()).unwrap();
    let scripts =
        document.descendants().filter(|n| n.has_tag_name(("http://www.w3.org/2000/svg", "script"))).count();
    assert_eq!(scripts, 1, "only the drawing's own");
}

/// A message of protocol buffers, read by the wire format alone.
#[derive(Debug, Default)]
struct Wire {
    numbers: BTreeMap<u64, Vec<u64>>,
    bytes: BTreeMap<u64, Vec<Vec<u8>>>,
}

impl Wire {
    fn read(mut data: &[u8]) -> Self {
        fn varint(data: &mut &[u8]) -> u64 {
            let mut value = 0u64;
            for shift in (0..64).step_by(7) {
                let byte = data[0];
                *data = &data[1..];
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            value
        }
        let mut wire = Self::default();
        while !data.is_empty() {
            let tag = varint(&mut data);
            match tag & 7 {
                0 => {
                    let value = varint(&mut data);
                    wire.numbers.entry(tag >> 3).or_default().push(value);
                }
                1 => {
                    let (value, rest) = data.split_at(8);
                    wire.numbers
                        .entry(tag >> 3)
                        .or_default()
                        .push(u64::from_le_bytes(value.try_into().unwrap()));
                    data = rest;
                }
                2 => {
                    let length = varint(&mut data) as usize;
                    let (value, rest) = data.split_at(length);
                    wire.bytes.entry(tag >> 3).or_default().push(value.to_vec());
                    data = rest;
                }
                other => panic!("wire type {other}"),
            }
        }
        wire
    }

    fn number(&self, field: u64) -> u64 {
        self.numbers.get(&field).map_or(0, |v| v[0])
    }

    fn messages(&self, field: u64) -> Vec<Wire> {
        self.bytes.get(&field).into_iter().flatten().map(|b| Wire::read(b)).collect()
    }

    fn texts(&self, field: u64) -> Vec<String> {
        self.bytes.get(&field).into_iter().flatten().map(|b| String::from_utf8(b.clone()).unwrap()).collect()
    }

    /// A packed list of varints.
    fn packed(&self, field: u64) -> Vec<u64> {
        self.bytes
            .get(&field)
            .into_iter()
            .flatten()
            .flat_map(|b| {
                let mut out = Vec::new();
                let mut value = 0u64;
                let mut shift = 0;
                for byte in b {
                    value |= u64::from(byte & 0x7f) << shift;
                    shift += 7;
                    if *byte < 0x80 {
                        out.push(value);
                        value = 0;
                        shift = 0;
                    }
                }
                out
            })
            .collect()
    }
}

#[test]
fn a_pprof_profile_holds_the_stacks_leaf_first_with_their_weights() {
    let result = common::result();
    let point = &result.points[0];
    let gz = pprof::profile(point).unwrap();
    let mut raw = Vec::new();
    flate2::read::GzDecoder::new(gz.as_slice()).read_to_end(&mut raw).unwrap();
    let profile = Wire::read(&raw);
    let strings = profile.texts(6);
    assert_eq!(strings[0], "");
    let types: Vec<(String, String)> = profile
        .messages(1)
        .iter()
        .map(|t| (strings[t.number(1) as usize].clone(), strings[t.number(2) as usize].clone()))
        .collect();
    assert_eq!(types[1], ("off_cpu".to_owned(), "nanoseconds".to_owned()));
    assert_eq!(strings[profile.number(14) as usize], "off_cpu");
    let functions: BTreeMap<u64, String> =
        profile.messages(5).iter().map(|f| (f.number(1), strings[f.number(2) as usize].clone())).collect();
    let locations: BTreeMap<u64, String> = profile
        .messages(4)
        .iter()
        .map(|l| (l.number(1), functions[&l.messages(4)[0].number(1)].clone()))
        .collect();
    let samples = profile.messages(2);
    let stacks = point.stacks.as_ref().unwrap();
    assert_eq!(samples.len(), stacks.off_cpu.len() + stacks.on_cpu.len());
    let first: Vec<&str> = samples[1].packed(1).iter().map(|id| locations[id].as_str()).collect();
    assert_eq!(first[0], "down");
    assert_eq!(first[first.len() - 2..], ["main", "perfloss"]);
    let values = samples[1].packed(2);
    assert_eq!(values.len(), 4);
    assert_eq!(values[1], (stacks.off_cpu[1].us * 1000.0).round() as u64);
    assert_eq!((values[2], values[3]), (0, 0));
}

#[test]
fn a_perfetto_trace_has_a_track_per_task_slices_that_close_and_flows_that_meet() {
    let result = common::result();
    let bytes = perfetto::trace(&result.points[0]).unwrap();
    let packets = Wire::read(&bytes).messages(1);
    let tracks: Vec<Wire> = packets.iter().flat_map(|p| p.messages(60)).collect();
    assert_eq!(tracks.len(), 1 + 3);
    let names: Vec<String> = tracks.iter().flat_map(|t| t.messages(4)).flat_map(|t| t.texts(5)).collect();
    assert_eq!(names, ["perfloss", "perfloss", "kworker/0:1-xfs-inodegc"]);
    let mut open: BTreeMap<u64, u32> = BTreeMap::new();
    let mut last = 0;
    let (mut begun, mut ended) = (Vec::new(), Vec::new());
    let mut slices = 0;
    for p in packets.iter().filter(|p| p.bytes.contains_key(&11)) {
        let at = p.number(8);
        assert!(at >= last, "time goes on");
        last = at;
        let event = &p.messages(11)[0];
        let depth = open.entry(event.number(11)).or_default();
        match event.number(9) {
            1 => {
                assert_eq!(*depth, 0, "slices of a track follow each other");
                *depth += 1;
                slices += 1;
            }
            2 => *depth -= 1,
            3 => {
                begun.extend(event.numbers.get(&47).into_iter().flatten().copied());
                ended.extend(event.numbers.get(&48).into_iter().flatten().copied());
            }
            other => panic!("type {other}"),
        }
    }
    assert!(open.values().all(|d| *d == 0));
    assert_eq!(slices, 12 * 9);
    assert_eq!(begun.len(), 24);
    begun.sort_unstable();
    ended.sort_unstable();
    assert_eq!(begun, ended);
}

#[test]
fn parquet_tables_hold_the_points_the_roots_and_the_waits_and_null_is_null() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    let result = common::result();
    let files = columns::tables(&result).unwrap();
    let rows = |name: &str| -> Vec<parquet::record::Row> {
        let file = files.iter().find(|f| f.name == name).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(file.bytes.clone())).unwrap();
        reader.get_row_iter(None).unwrap().map(|r| r.unwrap()).collect()
    };
    let points = rows("points.parquet");
    assert_eq!(points.len(), result.points.len());
    let names: Vec<&String> = points[0].get_column_iter().map(|(n, _)| n).collect();
    let at = |name: &str| names.iter().position(|n| *n == name).unwrap();
    assert_eq!(points[0].get_string(at("target")).unwrap(), "xfs");
    assert_eq!(points[0].get_double(at("ops_per_s")).unwrap(), 23_200.0);
    assert!(points[0].get_double(at("spin_us_per_op")).is_ok());
    assert!(points[1].get_double(at("spin_us_per_op")).is_err(), "not measured is null");
    let roots = rows("roots.parquet");
    assert_eq!(roots.len(), 3);
    assert_eq!(rows("waits.parquet").len(), 4);
    // Nothing to write is no file, and hostile names are only text.
    let mut empty = result.clone();
    empty.points.clear();
    assert!(columns::tables(&empty).unwrap().is_empty());
    assert_eq!(columns::tables(&common::hostile()).unwrap().len(), 3);
}

#[test]
fn a_markdown_table_has_as_many_cells_in_every_line() {
    let text = markdown::render(&common::result());
    let table: Vec<&str> = text.lines().filter(|l| l.starts_with('|')).collect();
    assert_eq!(table.len(), 2 + 6);
    let width = table[0].chars().count();
    for line in &table {
        assert_eq!(line.matches('|').count(), 13, "{line}");
        assert_eq!(line.chars().count(), width, "{line}");
    }
    for must in [
        "208,300",
        "xfs does 43 % fewer operations",
        "91 % of the idle time: semaphore xfs_buf.b_sema",
        "    perfloss run create_unlink",
    ] {
        assert!(text.contains(must), "{must}:\n{text}");
    }
}

#[test]
fn hostile_names_are_text_in_markdown() {
    let text = markdown::render(&common::hostile());
    let mut html = String::new();
    let options = pulldown_cmark::Options::all();
    for event in pulldown_cmark::Parser::new_ext(&text, options) {
        use pulldown_cmark::{Event, Tag};
        match event {
            Event::Html(h) | Event::InlineHtml(h) => panic!("html: {h}"),
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                panic!("link: {dest_url}")
            }
            Event::Text(t) => html.push_str(&t),
            _ => {}
        }
    }
    assert!(html.contains("<script>alert(1)"), "the name is still shown");
    let escaped = markdown::escape("@all https://example.org www.example.org a|b");
    assert!(
        !escaped.contains("://")
            && !escaped.contains('@')
            && !escaped.contains("www.")
            && escaped.contains("\\|")
    );
}

#[test]
fn names_of_functions_are_read_as_they_are_in_the_source_of_markdown_and_in_its_page() {
    use pulldown_cmark::Event;
    assert_eq!(markdown::escape("xfs_buf.b_sema (write)"), "xfs_buf.b_sema (write)");
    for name in ["__flush_workqueue < __a__", "_a_ b_ _c *d* ~~e~~", "[a](b) ![c](d)", "a__b__c", "é_é_ _é"]
    {
        let escaped = markdown::escape(name);
        let mut text = String::new();
        for event in pulldown_cmark::Parser::new_ext(&escaped, pulldown_cmark::Options::all()) {
            match event {
                Event::Text(t) => text.push_str(&t),
                Event::Start(pulldown_cmark::Tag::Paragraph) | Event::End(_) => {}
                other => panic!("{escaped}: {other:?}"),
            }
        }
        assert_eq!(text, name, "{escaped}");
    }
}

#[test]
fn a_recording_has_its_name_and_its_verdict_in_every_format() {
    let result = common::recording();
    let text = markdown::render(&result);
    assert!(text.contains("Idle 29 % = 287 CPU-s. Charged to:\n\n- 48 %"), "{text}");
    assert!(text.contains("Busy: "), "{text}");
    for no in ["0 tasks", "on ,", "seed"] {
        assert!(!text.contains(no), "{no}: {text}");
    }
    assert_eq!(report::verdict::point_name(&result.points[0], 80), "make -j24");
}

#[test]
fn what_is_absent_is_said_with_the_way_to_get_it() {
    let mut point = common::result().points[1].clone();
    point.stacks = None;
    for message in
        [pprof::profile(&point).unwrap_err().to_string(), perfetto::trace(&point).unwrap_err().to_string()]
    {
        assert!(message.contains("--no-capture"), "{message}");
    }
}

#[test]
fn absurd_captures_are_written_or_refused_but_never_crash() {
    let result = common::hostile();
    for p in &result.points {
        let _ = pprof::profile(p);
        let _ = perfetto::trace(p);
    }
}

#[test]
#[ignore = "writes files for other readers into the directory PERFLOSS_PAGES"]
fn illustration() {
    let dir = std::path::PathBuf::from(std::env::var_os("PERFLOSS_PAGES").unwrap());
    let result = common::result();
    let p = &result.points[0];
    std::fs::write(dir.join("profile.pb.gz"), pprof::profile(p).unwrap()).unwrap();
    std::fs::write(dir.join("trace.pftrace"), perfetto::trace(p).unwrap()).unwrap();
    std::fs::write(dir.join("flame.svg"), svg(p.stacks.as_ref().unwrap(), Which::OffCpu, "xfs").unwrap())
        .unwrap();
    for (name, r) in
        [("seed-run", &result), ("seed-record", &common::recording()), ("seed-hostile", &common::hostile())]
    {
        std::fs::write(dir.join(format!("{name}.json")), result::write_json(r).unwrap()).unwrap();
    }
    std::fs::write(dir.join("result.md"), markdown::render(&result)).unwrap();
    for f in columns::tables(&result).unwrap() {
        std::fs::write(dir.join(f.name), f.bytes).unwrap();
    }
}
