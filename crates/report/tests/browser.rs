//! The page in a real browser: it opens without complaints, its charts have the right numbers, switching works.
//!
//! `PERFLOSS_PAGES=DIR` keeps the pages and pictures of them, to be looked at; `PERFLOSS_RESULT=RESULT cargo test -p report --test browser
//! -- --ignored` does so for a result of one's own.

#![allow(clippy::unwrap_used)]

#[path = "common/browser.rs"]
mod browser;
mod common;

use browser::Browser;
use result::RunResult;
use std::path::PathBuf;

fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

struct Opened {
    browser: Browser,
    file: PathBuf,
    dir: tempfile::TempDir,
}

fn open(name: &str, result: &RunResult) -> Opened {
    let dir = tempfile::tempdir().unwrap();
    let file = match std::env::var_os("PERFLOSS_PAGES") {
        Some(pages) => PathBuf::from(pages).join(format!("{name}.html")),
        None => dir.path().join(format!("{name}.html")),
    };
    std::fs::write(&file, report::html::page(result)).unwrap();
    let mut browser = Browser::start();
    browser.window(1280, 900, false);
    browser.open(&file);
    Opened { browser, file, dir }
}

/// Keeps a picture where somebody wants to look at it.
fn picture(o: &mut Opened, name: &str) {
    if std::env::var_os("PERFLOSS_PAGES").is_some() {
        o.browser.picture(&o.file.with_file_name(format!("{name}.png")));
    } else {
        assert!(o.dir.path().exists());
    }
}

fn no_complaints(o: &Opened) {
    assert!(o.browser.complaints.is_empty(), "{:?}", o.browser.complaints);
}

#[test]
fn the_page_opens_without_complaints_and_its_charts_have_the_right_numbers() {
    let result = common::result();
    let mut o = open("run", &result);
    picture(&mut o, "run-light");
    no_complaints(&o);
    // Throughput: every mark stands at the height of its rate, measured on the axis that is drawn.
    let marks = o.browser.eval(
        "[...document.querySelectorAll('#chart-0 g.mark')].map(m => {
            const svg = document.getElementById('chart-0').getBoundingClientRect();
            const scale = svg.height / 300;
            const b = m.firstElementChild.getBoundingClientRect();
            const y = (b.top + b.bottom) / 2 - svg.top;
            const lines = [...document.querySelectorAll('#chart-0 line.grid')].map(l => l.getBoundingClientRect().top - svg.top);
            const top = Number(document.getElementById('chart-0').dataset.top);
            const read = (lines[0] - y) / (lines[0] - lines[lines.length - 1]) * top;
            return [Number(m.dataset.tasks), Number(m.dataset.rate), read, top / 258 / scale, m.querySelector('title').textContent];
        })",
    );
    let marks = marks.as_array().unwrap();
    assert_eq!(marks.len(), 6);
    for mark in marks {
        let (rate, read, slack) = (number(&mark[1]), number(&mark[2]), number(&mark[3]));
        // A triangle's box is not centred on its point: half a unit of the drawing.
        assert!((rate - read).abs() < 2.0 * slack * 300.0 / 100.0, "{mark}");
    }
    let xfs = marks.iter().find(|m| m[4].as_str().unwrap().starts_with("xfs, 2 tasks")).unwrap();
    assert_eq!(number(&xfs[1]), 23_200.0);
    // The table says the same as the result.
    let cells = o.browser.eval(
        "[...document.querySelectorAll('table.budget tbody tr')].map(r => [...r.children].map(c => c.textContent.trim()).slice(0, 3).join('|'))",
    );
    let cells: Vec<&str> = cells.as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
    assert_eq!(
        cells,
        [
            "tmpfs|1|103,600",
            "tmpfs|2|208,300",
            "ext4|1|52,600",
            "ext4|2|79,500",
            "xfs|1|40,900",
            "xfs|2|23,200"
        ]
    );
    // Flame graph: frames at the top of the off-CPU graph share its width as their weights do.
    let stacks = result.points[0].stacks.as_ref().unwrap();
    let total: f64 = stacks.off_cpu.iter().map(|s| s.us).sum();
    let share = stacks.off_cpu[0].us / total;
    let drawn = o.browser.eval(
        "(() => { const flame = document.querySelector('.captured .flame');
            const f = [...flame.querySelectorAll('.f')].find(f => f.textContent === 'rwsem_down_write_slowpath');
            return f.getBoundingClientRect().width / flame.clientWidth; })()",
    );
    assert!((number(&drawn) - share).abs() < 0.01, "{drawn} {share}");
    // Timeline: the first wait is where it was put.
    let wait = o.browser.eval(
        "(() => { const r = [...document.querySelectorAll('svg.timeline rect')].find(r => r.textContent.startsWith('waiting for a lock 50.0 us'));
            return [Number(r.getAttribute('x')), Number(r.getAttribute('width'))]; })()",
    );
    assert!((number(&wait[0]) - (170.0 + 30.0 / 960.0 * 820.0)).abs() < 0.1);
    assert!((number(&wait[1]) - 50.0 / 960.0 * 820.0).abs() < 0.1);
    no_complaints(&o);
}

/// The bars of the waterfall as `kind: value`.
const BARS: &str = "[...document.querySelectorAll('.waterfall svg rect')].map(r => [r.dataset.kind, Number(r.dataset.value), Number(r.getAttribute('width')), r.textContent])";

#[test]
fn switching_targets_redraws_the_waterfall_with_the_right_numbers() {
    let result = common::result();
    let mut o = open("switch", &result);
    let before = o.browser.eval(BARS);
    let value = |bars: &serde_json::Value, kind: &str| -> Vec<f64> {
        bars.as_array().unwrap().iter().filter(|b| b[0] == kind).map(|b| number(&b[1])).collect()
    };
    let near = |a: f64, b: f64| (a - b).abs() < 1e-6 * b.abs().max(1.0);
    let total = |rate: f64| 2e6 / rate;
    let totals = value(&before, "total");
    assert!(near(totals[0], total(208_300.0)) && near(totals[1], total(23_200.0)), "{before}");
    assert!(near(value(&before, "idle")[0], 31.85), "{before}");
    // Drawing the same pair again by script gives the same bars as those that came with the page.
    o.browser.eval("document.querySelector('select.base').dispatchEvent(new Event('change'))");
    let again = o.browser.eval(BARS);
    assert_eq!(before, again);
    // Another pair.
    o.browser.eval(
        "(() => { const s = document.querySelector('select.base');
            s.value = [...s.options].find(o => o.textContent === 'ext4, 2 tasks').value;
            s.dispatchEvent(new Event('change')); })()",
    );
    let other = o.browser.eval(BARS);
    assert!(near(value(&other, "total")[0], total(79_500.0)), "{other}");
    assert!(near(value(&other, "idle")[0], 31.8), "{other}");
    assert_eq!(value(&other, "spin").len(), 0, "equal spinning has no bar");
    // The bars join: each begins where the one before ended, and they end at the total.
    let sum: f64 =
        other.as_array().unwrap().iter().filter(|b| b[0] != "total").map(|b| number(&b[1])).sum::<f64>()
            + value(&other, "total")[0];
    assert!(near(sum, value(&other, "total")[1]), "{other}");
    let caption = o.browser.eval("document.querySelector('.waterfall figcaption').textContent");
    assert!(
        caption.as_str().unwrap().contains("25.2 CPU-us at ext4, 2 tasks and 86.2 at xfs, 2 tasks: +61.0"),
        "{caption}"
    );
    // Different task counts leave unused CPUs out.
    o.browser.eval(
        "(() => { const s = document.querySelector('select.base');
            s.value = [...s.options].find(o => o.textContent === 'xfs, 1 task').value;
            s.dispatchEvent(new Event('change')); })()",
    );
    let bare = o.browser.eval(BARS);
    assert!(near(value(&bare, "total")[0], 1e6 / 40_900.0), "{bare}");
    assert!(value(&bare, "unused").is_empty());
    no_complaints(&o);
}

#[test]
fn choosing_a_captured_point_shows_it_alone_and_lines_can_be_hidden() {
    let mut o = open("choose", &common::result());
    let shown = "[...document.querySelectorAll('.captured')].filter(e => e.offsetParent !== null).map(e => e.querySelector('h3').textContent)";
    assert_eq!(o.browser.eval(shown), serde_json::json!(["xfs, 2 tasks"]));
    o.browser.eval(
        "(() => { const s = document.getElementById('point');
            s.value = [...s.options].find(o => o.textContent === 'ext4, 2 tasks').value;
            s.dispatchEvent(new Event('change')); })()",
    );
    assert_eq!(o.browser.eval(shown), serde_json::json!(["ext4, 2 tasks"]));
    let lines =
        "[...document.querySelectorAll('#chart-0 g.target')].filter(g => g.style.display !== 'none').length";
    assert_eq!(o.browser.eval(lines), 3);
    o.browser.eval("document.querySelector('button.line').click()");
    assert_eq!(o.browser.eval(lines), 2);
    o.browser.eval("document.querySelector('button.line').click()");
    assert_eq!(o.browser.eval(lines), 3);
    no_complaints(&o);
}

#[test]
fn a_frame_of_a_flame_graph_can_be_widened_and_back() {
    let mut o = open("flame", &common::result());
    let share = "(() => { const flame = document.querySelector('.captured .flame');
        const f = [...flame.querySelectorAll('.f')].find(f => f.textContent === 'xfs_iunlink');
        return f.getBoundingClientRect().width / flame.clientWidth; })()";
    let before = number(&o.browser.eval(share));
    assert!(before < 0.5);
    o.browser.eval(
        "[...document.querySelector('.captured .flame').querySelectorAll('.f')].find(f => f.textContent === 'xfs_iunlink').click()",
    );
    assert!(number(&o.browser.eval(share)) > 0.98);
    o.browser.eval("document.querySelector('.captured .flame .f').click()");
    assert!((number(&o.browser.eval(share)) - before).abs() < 0.01);
    o.browser.eval(
        "(() => { const i = document.querySelector('.captured input.find'); i.value = 'iunlink'; i.dispatchEvent(new Event('input')); })()",
    );
    assert_eq!(o.browser.eval("document.querySelectorAll('.captured .flame .f.hit').length"), 1);
    no_complaints(&o);
}

#[test]
fn a_table_with_every_part_of_the_budget_fits_the_page() {
    let mut result = common::result();
    for p in &mut result.points {
        let budget = p.budget_us_per_op.as_mut().unwrap();
        (budget.irq, budget.system_elsewhere) = (Some(1234.5), Some(1234.5));
        (budget.other, budget.unaccounted, budget.spin) = (Some(1234.5), Some(-1234.5), Some(1234.5));
    }
    let mut o = open("wide", &result);
    picture(&mut o, "wide");
    for width in [1280, 1200] {
        o.browser.window(width, 900, false);
        let cut = o.browser.eval(
            "(() => { const r = document.querySelector('table.budget').parentElement; return r.scrollWidth - r.clientWidth; })()",
        );
        assert_eq!(number(&cut), 0.0, "at {width}");
    }
    no_complaints(&o);
}

#[test]
fn it_can_be_read_dark_on_a_phone_and_on_paper() {
    let mut o = open("media", &common::result());
    // Contrast of text against what it stands on, by the formula of WCAG, for every element with text of its own.
    const CONTRAST: &str = "(() => {
        const parse = (c) => { const m = c.match(/[0-9.]+/g).map(Number); return m.length > 3 ? m : [...m, 1]; };
        const light = (c) => { const f = c.slice(0, 3).map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; });
            return .2126 * f[0] + .7152 * f[1] + .0722 * f[2]; };
        const under = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > .99) return c; }
            return parse(getComputedStyle(document.body).backgroundColor); };
        const bad = [];
        for (const e of document.querySelectorAll('body *')) {
            if (e.offsetParent === null && !(e instanceof SVGElement)) continue;
            if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
            if (['SCRIPT', 'OPTION', 'title'].includes(e.tagName)) continue;
            const style = getComputedStyle(e);
            const ink = parse(e instanceof SVGElement ? style.fill : style.color);
            const [a, b] = [light(ink), light(under(e))].sort((x, y) => y - x);
            const ratio = (a + .05) / (b + .05);
            if (ratio < 4.5) bad.push(e.tagName + '.' + (e.getAttribute('class') || '') + ' ' + ratio.toFixed(2) + ' ' + e.textContent.trim().slice(0, 30));
        }
        return bad; })()";
    assert_eq!(o.browser.eval(CONTRAST), serde_json::json!([]), "light");
    o.browser.media("screen", "dark");
    assert_ne!(o.browser.eval("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)");
    assert_eq!(o.browser.eval(CONTRAST), serde_json::json!([]), "dark");
    picture(&mut o, "run-dark");
    o.browser.media("screen", "light");
    o.browser.window(360, 740, true);
    // Nothing makes the page wider than the phone; wide tables scroll by themselves.
    assert_eq!(o.browser.eval("document.documentElement.scrollWidth"), 360);
    // The first screen has the verdict and the chart.
    let below = o.browser.eval("document.getElementById('chart-0').getBoundingClientRect().bottom");
    assert!(number(&below) < 740.0, "{below}");
    // The smallest text of the charts that are scaled to the phone stays readable.
    let smallest = o.browser.eval(
        "Math.min(...[...document.querySelectorAll('#chart-0 text, .waterfall svg text')].map(t => t.getBoundingClientRect().height))",
    );
    assert!(number(&smallest) >= 9.0, "{smallest}");
    picture(&mut o, "run-phone");
    o.browser.window(1000, 1400, false);
    o.browser.media("print", "light");
    assert_eq!(
        o.browser.eval("[...document.querySelectorAll('.captured')].filter(e => getComputedStyle(e).display !== 'none').length"),
        2,
        "on paper every captured point is there"
    );
    assert_eq!(o.browser.eval("getComputedStyle(document.querySelector('nav')).display"), "none");
    // Of the chosen point all of it, and afterwards the screen is as it was.
    assert_eq!(
        o.browser.eval("[...document.querySelectorAll('.more-of-it')].filter(e => e.offsetParent !== null).map(e => e.parentElement.querySelector('h3').textContent)"),
        serde_json::json!(["xfs, 2 tasks"])
    );
    let open = "document.querySelectorAll('details[open]').length";
    let before = o.browser.eval(open);
    let all = o.browser.eval(
        "dispatchEvent(new Event('beforeprint')) && document.querySelectorAll('details:not([open])').length",
    );
    assert_eq!(all, 0);
    o.browser.eval("dispatchEvent(new Event('afterprint'))");
    assert_eq!(o.browser.eval(open), before);
    o.browser.window(794, 1123, false);
    assert_eq!(o.browser.eval("document.documentElement.scrollWidth"), 794, "A4 is wide enough");
    picture(&mut o, "run-print");
    if std::env::var_os("PERFLOSS_PAGES").is_some() {
        let file = o.file.with_file_name("run.pdf");
        o.browser.pdf(&file);
    }
    no_complaints(&o);
}

#[test]
fn no_box_of_the_wait_chains_hides_an_edge_or_its_figure() {
    let mut result = common::result();
    // A waits for B and B for C, and A for C as well.
    let chains = result.points[0].chains.as_mut().unwrap();
    let first = chains.edges[0].clone();
    let node = |label: &str| result::ChainNode { label: label.into(), ..chains.nodes[0].clone() };
    chains.nodes = vec![node("a"), node("b"), node("c")];
    chains.edges =
        [(0, 1), (1, 2), (0, 2)].map(|(from, to)| result::ChainEdge { from, to, ..first.clone() }).into();
    let mut o = open("chains", &result);
    let hidden = o.browser.eval(
        "(() => { const svg = document.querySelector('svg.chains');
            const boxes = [...svg.querySelectorAll('g.node rect')].map(r => r.getBBox());
            const inside = (x, y) => boxes.some(b => x > b.x + 1 && x < b.x + b.width - 1 && y > b.y + 1 && y < b.y + b.height - 1);
            let bad = 0;
            for (const p of svg.querySelectorAll('g.edge path'))
                for (let i = 0; i <= 200; i++) { const q = p.getPointAtLength(p.getTotalLength() * i / 200); if (inside(q.x, q.y)) bad++; }
            for (const t of svg.querySelectorAll('g.edge text')) { const b = t.getBBox();
                for (const x of [b.x, b.x + b.width]) for (const y of [b.y, b.y + b.height]) if (inside(x, y)) bad++; }
            return [svg.querySelectorAll('g.edge').length, bad]; })()",
    );
    assert_eq!(hidden, serde_json::json!([3, 0]));
    no_complaints(&o);
}

#[test]
fn without_scripts_everything_is_there() {
    let mut o = open("noscript", &common::result());
    o.browser.call("Emulation.setScriptExecutionDisabled", serde_json::json!({"value": true}));
    let file = o.file.clone();
    o.browser.open(&file);
    let tree =
        o.browser.call("DOMSnapshot.captureSnapshot", serde_json::json!({"computedStyles": ["display"]}));
    let text = tree["strings"].to_string();
    for must in ["xfs, 2 tasks", "ext4, 2 tasks", "xfs_buf.b_sema", "An operation costs 9.6 CPU-us at tmpfs"]
    {
        assert!(text.contains(must), "{must}");
    }
    no_complaints(&o);
}

#[test]
fn hostile_names_run_nothing() {
    let mut o = open("hostile", &common::hostile());
    picture(&mut o, "hostile");
    o.browser
        .eval("for (const e of document.querySelectorAll('select')) e.dispatchEvent(new Event('change'))");
    no_complaints(&o);
    assert_eq!(o.browser.eval("document.scripts.length"), 2);
    assert_eq!(
        o.browser
            .eval("document.querySelectorAll('a[href^=\"javascript\"], img, iframe, object, embed').length"),
        0
    );
}

#[test]
fn a_recording_opens_too() {
    let mut o = open("record", &common::recording());
    picture(&mut o, "record-light");
    let text = o.browser.eval("document.querySelector('main').innerText");
    assert!(text.as_str().unwrap().contains("Idle 29 % = 287 CPU-s."), "{text}");
    no_complaints(&o);
}

#[test]
#[ignore = "takes pictures of PERFLOSS_RESULT into the directory PERFLOSS_PAGES, for a person to look at"]
fn illustration() {
    let path = PathBuf::from(std::env::var_os("PERFLOSS_RESULT").unwrap());
    let mut o = open("result", &result::read(&path).unwrap());
    picture(&mut o, "result-light");
    o.browser.media("screen", "dark");
    picture(&mut o, "result-dark");
    o.browser.media("", "light");
    o.browser.window(390, 844, true);
    picture(&mut o, "result-phone");
    o.browser.window(1280, 900, false);
    let file = o.file.with_file_name("result.pdf");
    o.browser.pdf(&file);
    no_complaints(&o);
}
