//! The page as text: self-contained, escaped, bounded.

#![allow(clippy::unwrap_used)]

mod common;

use report::html::page;

/// The text between two marks.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let start = text.find(from).unwrap() + from.len();
    &text[start..start + text[start..].find(to).unwrap()]
}

#[test]
fn the_page_is_one_file_without_network() {
    let page = page(&common::result());
    for forbidden in ["src=", "@import", "url(", "<link", "<iframe", "<img"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    // The only addresses are names of the SVG namespace and anchors within the page.
    for (i, _) in page.match_indices("http") {
        let rest = &page[i..(i + 30).min(page.len())];
        assert!(rest.starts_with("http://www.w3.org/2000/svg") || rest.starts_with("http-equiv"), "{rest}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn the_heading_stands_on_the_page_once() {
    let result = common::result();
    let page = page(&result);
    let body = between(&page, "<body>", "id=\"machine\"");
    assert_eq!(body.matches(&format!("seed {}", result.seed)).count(), 1);
    assert_eq!(body.matches("interleaved").count(), 1);
}

#[test]
fn the_chart_shows_where_the_cores_and_where_the_cpus_end() {
    let mut result = common::result();
    // Two cores with two threads each.
    result.machine.allowed_cpus = (0..4).collect();
    (result.machine.cores, result.machine.smt) = (Some(2), Some(true));
    result.points = [1, 2, 3, 4].map(|tasks| common::point("xfs", tasks, 1e4, 0.02, 1.0, 1.0)).to_vec();
    for p in &mut result.points {
        p.smt_shared = Some(p.tasks > 2);
    }
    let marks = |page: &str| -> Vec<(String, f64)> {
        let at = |text: &str, name: &str| between(text, &format!(" {name}=\""), "\"").to_owned();
        let x = |text: &str| at(text, "x1").parse::<f64>().unwrap();
        let of = |what: &str| page.match_indices(what).map(|(i, _)| &page[i..]).collect::<Vec<_>>();
        let ends = of("class=\"edge-cpu\"");
        ends.into_iter().map(|e| (format!("{} {}", at(e, "data-at"), at(e, "data-what")), x(e))).collect()
    };
    let drawn = page(&result);
    let seen = marks(&drawn);
    assert_eq!(seen.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["2 cores", "4 CPUs"]);
    // Tasks 1 to 4 stand in equal steps: the lines go through the marks of 2 and of 4 tasks.
    assert!(seen[0].1 < seen[1].1 && drawn.contains("beyond which tasks share them"));
    let left = 58.0 + 16.0;
    let step = (404.0 - 58.0 - 32.0) / 3.0;
    assert!((seen[0].1 - (left + step)).abs() < 0.1 && (seen[1].1 - (left + 3.0 * step)).abs() < 0.1);
    assert_eq!(drawn.matches("on shared cores").count(), 2, "3 and 4 tasks");
    // Without SMT there is one boundary, and none that nobody measured up to.
    result.machine.smt = Some(false);
    assert_eq!(marks(&page(&result)).len(), 1);
    result.points.truncate(2);
    assert!(marks(&page(&result)).is_empty());
}

#[test]
fn the_policy_names_the_hash_of_the_script_that_is_there() {
    use base64::Engine;
    use sha2::Digest;
    let page = page(&common::result());
    let script = page.rsplit("<script>").next().unwrap();
    let script = &script[..script.find("</script>").unwrap()];
    let hash = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(script));
    assert!(
        page.contains(&format!("script-src 'sha256-{hash}'"))
            || page.contains(&format!("script-src &#39;sha256-{hash}&#39;"))
    );
}

#[test]
fn hostile_names_stay_text() {
    let page = page(&common::hostile());
    // Three elements of script begin and end: two of ours.
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script").count(), 2);
    assert!(page.contains("&lt;script&gt;alert(1)"));
    assert!(!page.contains("href=\"javascript:"));
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()));
    assert!(!page.contains('\u{202e}'));
    assert!(!page.contains("NaN"));
    for word in ["=\"inf", "=\"-inf", "inf%", " inf,"] {
        assert!(!page.contains(word), "{word}");
    }
    // The data of the script is JSON.
    let json = between(&page, "id=\"data\">", "</script>");
    serde_json::from_str::<serde_json::Value>(json).unwrap();
}

#[test]
fn a_page_of_a_huge_result_stays_bounded() {
    let mut result = common::result();
    let point = result.points[0].clone();
    for i in 0..300 {
        let mut p = point.clone();
        p.target = format!("t{i}");
        p.tasks = i + 1;
        result.points.push(p);
    }
    let stacks = result.points[0].stacks.as_mut().unwrap();
    for i in 0..20_000u32 {
        stacks.frames.push(format!("f{i}"));
        let mut s = stacks.off_cpu[0].clone();
        s.kernel.push(i);
        stacks.off_cpu.push(s);
    }
    let timeline = result.points[0].timeline.as_mut().unwrap();
    let interval = timeline.rows[0].intervals[0].clone();
    timeline.rows[0].intervals = vec![interval; 200_000];
    let page = page(&result);
    assert!(page.len() < 24 << 20, "{} bytes", page.len());
}

#[test]
fn nothing_is_made_up_when_there_is_no_capture() {
    let mut result = common::result();
    for p in &mut result.points {
        p.roots.clear();
        p.remedies.clear();
        p.chains = None;
        p.stacks = None;
        p.timeline = None;
        p.capture = None;
    }
    let page = page(&result);
    for absent in ["Causes", "Root", "flame", "Timeline", "Remedies", "win it back"] {
        let body = &page[page.find("<body>").unwrap()..page.find("<script").unwrap()];
        assert!(!body.contains(absent), "{absent}");
    }
    assert!(page.contains("208,300"));
}

#[test]
fn empty_and_recorded_results_have_pages() {
    let mut result = common::result();
    result.points.clear();
    assert!(page(&result).contains("Nothing was measured"));
    let page = page(&common::recording());
    for must in ["make -j24", "Idle 29 % = 287 CPU-s.", "serial: ld -o vmlinux", "at 34.2–40.3 s"] {
        assert!(page.contains(must), "{must}");
    }
}

#[test]
#[ignore = "writes pages to look at into the directory PERFLOSS_PAGES"]
fn illustration() {
    let dir = std::path::PathBuf::from(std::env::var_os("PERFLOSS_PAGES").unwrap());
    for (name, result) in
        [("run", common::result()), ("record", common::recording()), ("hostile", common::hostile())]
    {
        std::fs::write(dir.join(format!("{name}.html")), page(&result)).unwrap();
    }
}

/// The cells of the table with that caption, row by row.
fn cells(page: &str, caption: &str) -> Vec<Vec<String>> {
    let table = between(page, &format!("<caption>{caption}</caption>"), "</table>");
    let rows = table.split("<tr>").skip(1);
    let text = |cell: &str| cell.split('>').nth(1).unwrap().split('<').next().unwrap().to_owned();
    rows.map(|row| {
        row.split("<t").skip(1).filter(|c| c.starts_with('h') || c.starts_with("d>")).map(text).collect()
    })
    .collect()
}

#[test]
fn the_time_in_the_kernel_is_split_by_name_for_each_point() {
    let cost = |name: &str, us_per_op| result::NamedCost { name: name.into(), us_per_op };
    let mut result = common::result();
    assert!(!page(&result).contains("Kernel code by"), "nothing was sampled");
    for p in &mut result.points {
        if let Some(b) = p.budget_us_per_op.as_mut().filter(|_| p.tasks == 2) {
            b.system_by = match p.target.as_str() {
                "xfs" => vec![cost("unlink", 9.0), cost("open", 5.0)],
                "tmpfs" => (0..14).map(|i| cost(&format!("call{i:02}"), 4.0 - f64::from(i) / 10.0)).collect(),
                _ => Vec::new(),
            };
            b.spin_by = if p.target == "xfs" { vec![cost("xfs_buf_find", 2.5)] } else { Vec::new() };
        }
    }
    let page = page(&result);
    let rows = cells(&page, "Kernel code by system call");
    assert_eq!(rows[0][0], "name");
    let column = |name: &str| rows[0].iter().position(|c| c.starts_with(name)).unwrap();
    let (xfs, tmpfs) = (column("xfs"), column("tmpfs"));
    let row = |name: &str| rows.iter().find(|r| r[0] == name).unwrap_or_else(|| panic!("{name}: {rows:?}"));
    // the dearest first, the twelve dearest in all
    assert_eq!(rows[1][0], "unlink");
    assert_eq!(rows.len(), 1 + 12 + 2);
    assert_eq!((row("unlink")[xfs].as_str(), row("unlink")[tmpfs].as_str()), ("9.0", "–"));
    // 10 of the 14 are shown: the rest is 3.0 + 2.9 + 2.8 + 2.7
    assert_eq!((row("the rest")[xfs].as_str(), row("the rest")[tmpfs].as_str()), ("0", "11.4"));
    assert_eq!((row("together")[xfs].as_str(), row("together")[tmpfs].as_str()), ("14.0", "46.9"));
    assert_eq!(cells(&page, "Spinning by the function that wants the lock")[1], ["xfs_buf_find", "2.5"]);
    assert!(!page.contains("Kernel code by part of the kernel"));
}

#[test]
fn the_cpu_time_of_a_recording_is_shown_part_by_part() {
    let page = page(&common::recording());
    let rows = cells(&page, "What the CPUs did");
    let row = |name: &str| rows.iter().find(|r| r[0] == name).map(|r| (r[1].as_str(), r[2].as_str()));
    assert_eq!(row("user code"), Some(("600", "61 %")));
    assert_eq!(row("idle"), Some(("287", "29 %")));
    assert_eq!(row("all CPUs"), Some(("991", "100 %")));
    assert_eq!(row("spinning for locks"), None, "it was not sampled");
    assert!(page.contains("The tasks waited 20.0 s for a CPU"));
}
