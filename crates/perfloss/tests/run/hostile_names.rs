//! Names with blanks, quotes, `$(…)` and newlines are names and nothing else.

use std::fs;
use std::path::Path;

use crate::home::{Home, QUICK, case, open_to_all};

/// What a shell would make of a name shows here.
fn pwned(home: &Home) -> impl Fn() -> bool + use<> {
    let marks = [home.work().join("pwned"), Path::new("/tmp/perfloss-test-pwned").to_owned()];
    move || marks.iter().any(|m| m.exists())
}

const NAMES: &[&str] = &[
    "two words",
    "a 'quoted' \"name\"",
    "$(touch pwned)",
    "`touch pwned`",
    "a;touch pwned;b",
    "new\nline",
    "--on",
    "ünï ✓",
    "back\\slash",
    "{task}%s%n",
];

#[test]
fn test_cases_with_odd_names_are_compiled_and_run() {
    let home = Home::new();
    let pwned = pwned(&home);
    for name in NAMES {
        let file = format!("{name}.c");
        fs::copy(case("counts.c"), home.work().join(&file)).unwrap();
        let named = format!("./{file}");
        let ran = home.measure(&[&named, "-t", "1", "--on", "tmpfs"]);
        let result = ran.json(0);
        assert_eq!(result["points"][0]["workload"].as_str(), Some(*name));
        assert!(!pwned(), "{name:?} was run");
    }
}

#[test]
fn a_test_case_with_an_odd_name_that_cannot_be_compiled_gives_one_line() {
    let home = Home::new();
    for name in NAMES {
        let file = home.file(&format!("{name}.c"), "this is not C\n");
        home.perfloss(&["run", file.to_str().unwrap(), "-t", "1", "--on", "tmpfs"]).one_line(2, &[".c"]);
    }
}

#[test]
fn directories_with_odd_names_are_targets() {
    let home = Home::new();
    let pwned = pwned(&home);
    for name in NAMES {
        let place = home.work().join(name);
        fs::create_dir(&place).unwrap();
        open_to_all(&place);
        let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
        let ran = home.measure(&["create_unlink,cc", "-t", "1", "--on", &format!("./\"{quoted}\"")]);
        ran.json(0);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "{name:?}");
        assert!(!pwned(), "{name:?} was run");
    }
}

#[test]
fn outputs_with_odd_names_are_written_and_shown() {
    let home = Home::new();
    for name in NAMES.iter().filter(|n| !n.starts_with('-')) {
        let mut all = QUICK.to_vec();
        all.extend(["--quiet", "--output", name]);
        let ran = home.perfloss(&all);
        assert_eq!(ran.status, 0, "{ran:?}");
        assert!(home.work().join(name).join("result.json").exists());
        assert_eq!(home.perfloss(&["show", name]).status, 0);
    }
}

#[test]
fn arguments_of_commands_reach_the_program_as_they_are() {
    let home = Home::new();
    let pwned = pwned(&home);
    // The program checks what it gets.
    let check = home.file("check", "#!/bin/sh\n[ \"$#\" = 4 ] && [ \"$1\" = '$(touch pwned)' ] && [ \"$2\" = 'two words' ] && [ \"$3\" = \"it's\" ] && [ \"$4\" = '{0}' ]\n");
    open_to_all(&check);
    let each = format!("{} '$(touch pwned)' \"two words\" it\\'s {{{{0}}}}", check.display());
    home.measure(&["--each", &each, "-t", "1", "--on", "tmpfs"]).json(0);
    assert!(!pwned());
    // With --shell a shell runs it, but what is filled in is quoted.
    let odd = home.work().join("$(touch pwned) 'x'");
    fs::create_dir(&odd).unwrap();
    open_to_all(&odd);
    let on = format!("./{}", odd.file_name().unwrap().to_str().unwrap());
    home.measure(&["--shell", "--each", "touch {dir}/f.{task} && rm {dir}/f.{task}", "-t", "1", "--on", &on])
        .json(0);
    assert!(!pwned());
}

#[test]
fn a_program_below_tmp_stays_visible_when_tmp_is_the_target() {
    let home = Home::new();
    // The home is below /tmp, which the target covers.
    let script = home.file("my script", "#!/bin/sh\nexit 0\n");
    open_to_all(&script);
    let each = format!("'{}' {{task}}", script.display());
    home.measure(&["--each", &each, "-t", "1", "--on", "xfs"]).json(0);
    home.measure(&["--each", "'./my script'", "-t", "1", "--on", "tmpfs"]).json(0);
}
