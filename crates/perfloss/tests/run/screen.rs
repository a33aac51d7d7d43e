//! What a person sees: the table, colour, progress, help.

use std::fs;

use crate::home::{Home, Ran, perfloss};

const SHORT: &[&str] =
    &["-t", "1,2", "--on", "tmpfs,xfs", "-s", "0.1", "--rounds", "2", "--retries", "0", "--no-capture"];

/// A shell script on a terminal of its own with so many columns; `$P` is perfloss. What the terminal got.
fn on_a_terminal(home: &Home, columns: u32, script: &str) -> Ran {
    let script = format!("stty cols {columns} rows 40; P={}; {script}", perfloss());
    let log = home.work().join("typescript");
    let mut command = home.command("script", &["-qec", &script, log.to_str().unwrap()]);
    command.env("TERM", "xterm-256color");
    let mut ran = home.start(command).end();
    home.nothing_is_left();
    ran.stdout = fs::read_to_string(log).unwrap();
    ran
}

fn run_words() -> String {
    format!("run create_unlink {}", SHORT.join(" "))
}

/// Without escape sequences.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            // CSI … letter
            for c in rest.by_ref() {
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[test]
fn in_a_pipe_there_is_no_colour_no_progress_line_and_no_more_than_100_columns() {
    let home = Home::new();
    let mut all = vec!["run", "create_unlink"];
    all.extend(SHORT);
    let ran = home.perfloss(&all);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(!ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'), "{ran:?}");
    assert!(!ran.stderr.contains('\r') && ran.stderr.lines().count() == 1, "the estimate only: {ran:?}");
    for line in ran.stdout.lines() {
        assert!(line.chars().count() <= 100, "{line:?}");
        assert_eq!(line, line.trim_end(), "no blanks at the end");
    }
    for word in ["ops/s", "of best", "scaling", "CPU-us per op", "idle", "report.html"] {
        assert!(ran.stdout.contains(word), "no {word:?}: {}", ran.stdout);
    }
}

#[test]
fn a_terminal_shows_progress_with_the_time_left_and_takes_it_away_again() {
    let home = Home::new();
    let ran = on_a_terminal(&home, 100, &format!("$P {}", run_words()));
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.stdout.contains(" left"), "{}", ran.stdout);
    assert!(ran.stdout.contains("rounds"), "{}", ran.stdout);
    // The line is cleared before the table: what stays on the screen has no progress.
    let after = ran.stdout.rsplit(" left").next().unwrap();
    assert!(after.contains("\u{1b}[2K") || after.contains("\u{1b}[K"), "not cleared: {after:?}");
    assert!(after.contains("ops/s"));
    assert!(after.contains("\u{1b}["), "a terminal has colour");
}

#[test]
fn a_terminal_of_80_columns_is_not_overrun() {
    let home = Home::new();
    for columns in [80, 100, 200] {
        let ran = on_a_terminal(&home, columns, &format!("$P {} --quiet", run_words()));
        assert_eq!(ran.status, 0, "{ran:?}");
        for line in plain(&ran.stdout).lines().filter(|l| !l.starts_with("Script ")) {
            let width = line.trim_end().chars().count();
            assert!(width <= columns.min(120) as usize, "{columns}: {width} {line:?}");
        }
    }
}

#[test]
fn no_color_and_dumb_terminals_are_respected() {
    let home = Home::new();
    for setting in ["NO_COLOR=1", "TERM=dumb"] {
        let ran = on_a_terminal(&home, 100, &format!("{setting} $P {} --quiet", run_words()));
        assert_eq!(ran.status, 0, "{ran:?}");
        assert!(!ran.stdout.contains('\u{1b}'), "{setting}: {:?}", ran.stdout);
    }
}

#[test]
fn quiet_is_quiet_and_json_is_alone_on_standard_output() {
    let home = Home::new();
    let mut all = vec!["run", "create_unlink"];
    all.extend(SHORT);
    all.extend(["--json", "--quiet"]);
    let ran = home.perfloss(&all);
    assert_eq!(ran.stderr, "");
    assert_eq!(ran.json(0)["schema"], "perfloss.result/1");
    // Not quiet: the estimate goes to standard error, and standard output is still JSON alone.
    let ran = home.perfloss(&all[..all.len() - 1]);
    ran.json(0);
    assert!(!ran.stderr.is_empty());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let home = Home::new();
    let script = format!("{} {} --quiet | head -1", perfloss(), run_words());
    let ran = home.start(home.command("bash", &["-o", "pipefail", "-c", &script])).end();
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let script = format!("{} {} --quiet --json > /dev/full", perfloss(), run_words());
    let ran = home.start(home.command("bash", &["-c", &script])).end();
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    assert_ne!(ran.status, 0);
    home.nothing_is_left();
}

#[test]
fn help_names_every_flag_that_scripts_rely_on_and_fits_the_terminal() {
    let home = Home::new();
    let ran = home.perfloss(&["run", "--help"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""));
    for flag in [
        "-t, --tasks",
        "--on",
        "-s, --seconds",
        "--rounds",
        "--mode",
        "--output",
        "--seed",
        "--json",
        "--quiet",
        "--no-capture",
        "--medium",
        "--each",
        "--setup",
        "Exit status",
        "130",
    ] {
        assert!(ran.stdout.contains(flag), "no {flag:?}");
    }
    for line in ran.stdout.lines() {
        assert!(line.chars().count() <= 100, "{line:?}");
    }
}
