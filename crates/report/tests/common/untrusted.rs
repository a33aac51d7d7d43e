//! What has to hold for any bytes that somebody gives as a result: for the tests and, as it is, for the fuzz targets.

/// They are read, or refused with one line; what was read is written so that it can be read again.
pub fn is_read_or_refused(bytes: &[u8]) {
    match result::parse(bytes, "given") {
        Ok(result) => {
            let Ok(written) = result::write_json(&result) else { return };
            let again = result::parse(&written, "given").expect("what was written is read");
            assert_eq!(result::write_json(&again).expect("written once, written again"), written);
        }
        Err(error) => {
            let line = error.to_string();
            assert!(line.len() < 2000 && !line.chars().any(char::is_control), "{line:?}");
        }
    }
}

/// What can be read is shown in every format, without what could harm a terminal or a page.
pub fn is_shown_in_every_format(bytes: &[u8]) {
    let Ok(result) = result::parse(bytes, "given") else { return };
    let harmless = |text: &str| text.chars().all(|c| c == '\n' || !c.is_control());
    for width in [0, 80, 120] {
        let text = report::terminal::render(&result, width, false);
        assert!(harmless(&text));
        assert!(text.lines().all(|l| report::text::width(l) <= width.max(report::terminal::NARROWEST)));
    }
    let page = report::html::page(&result);
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
    assert!(harmless(&page));
    assert!(harmless(&report::markdown::render(&result)));
    let _ = report::columns::tables(&result);
    for point in &result.points {
        let _ = report::pprof::profile(point);
        let _ = report::perfetto::trace(point);
        if let Some(stacks) = &point.stacks {
            use report::flamegraph::{Which, difference_svg, svg};
            assert!(harmless(&report::stacks::folded(stacks, &stacks.off_cpu)));
            let _ = svg(stacks, Which::OffCpu, &point.target);
            let _ = difference_svg(stacks, stacks, Which::OnCpu, "a", "b");
        }
    }
}
