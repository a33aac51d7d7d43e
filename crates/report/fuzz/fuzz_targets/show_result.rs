//! Any result that can be read is shown in every format without a crash, and without what could harm a terminal or a page.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(result) = result::parse(bytes, "fuzz") else { return };
    for width in [0, 80, 120] {
        let text = report::terminal::render(&result, width, false);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }
    let page = report::html::page(&result);
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
    report::markdown::render(&result);
    let _ = report::columns::tables(&result);
    for point in &result.points {
        let _ = report::pprof::profile(point);
        let _ = report::perfetto::trace(point);
        if let Some(stacks) = &point.stacks {
            report::stacks::folded(stacks, &stacks.off_cpu);
            let _ = report::flamegraph::svg(stacks, report::flamegraph::Which::OffCpu, &point.target);
            let _ = report::flamegraph::difference_svg(
                stacks,
                stacks,
                report::flamegraph::Which::OnCpu,
                "a",
                "b",
            );
        }
    }
});
