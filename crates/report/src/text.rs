//! Words and numbers for people: made harmless, rounded to what is known, cut to a width.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Shown for what was not measured.
pub const NONE: &str = "–";

/// Text from anywhere as one harmless line of at most `limit` columns: control characters, directional overrides and
/// invisible characters are replaced, so that a name can neither drive a terminal nor pretend to be another.
pub fn plain(text: &str, limit: usize) -> String {
    let mut out = String::new();
    let mut width = 0;
    for c in text.chars() {
        let c = harmless(c);
        let w = c.width().unwrap_or(0);
        if width + w > limit {
            // Make room for the mark that something is missing.
            while width + 1 > limit {
                match out.pop() {
                    Some(last) => width -= last.width().unwrap_or(0),
                    None => return String::new(),
                }
            }
            out.push('…');
            return out;
        }
        // Marks that combine without end on one column are a way to cover other text.
        if w == 0 && out.chars().rev().take(2).filter(|c| c.width() == Some(0)).count() == 2 {
            continue;
        }
        width += w;
        out.push(c);
    }
    out
}

/// The character itself, or what stands for it when it is not harmless.
fn harmless(c: char) -> char {
    match c {
        '\n' => '␤',
        '\t' => ' ',
        '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => '\u{fffd}',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// Columns that a text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Fills with blanks on the right.
pub fn left(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// Fills with blanks on the left.
pub fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

/// A whole number of at least 0 with commas between the thousands.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Rounded to so many significant digits.
fn significant(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(digits - 1 - value.abs().log10().floor() as i32);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}

/// How numbers of a size are written.
#[derive(Clone, Copy)]
enum Form {
    /// With so many decimals.
    Decimals(usize),
    /// Whole, with commas between the thousands.
    Whole,
    /// With so many digits of which none is a mere place holder, and commas.
    Significant(i32),
    /// As a power of ten.
    Power(usize),
}

/// A number in the form of its size: `steps` name the sizes from which each form holds, largest first; what is smaller than all of
/// them has the form of the last. What is no number is a dash, and what is rounded to 0 has no sign.
fn sized(value: f64, steps: &[(f64, Form)]) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let size = value.abs();
    let step = steps.iter().find(|(from, _)| size >= *from).or(steps.last());
    let text = match step.map_or(Form::Whole, |(_, form)| *form) {
        Form::Decimals(n) => format!("{size:.n$}"),
        Form::Whole => thousands(size),
        Form::Significant(n) => thousands(significant(size, n)),
        Form::Power(n) => format!("{size:.n$e}"),
    };
    let zero = text.chars().all(|c| !c.is_ascii_digit() || c == '0');
    if value < 0.0 && !zero { format!("-{text}") } else { text }
}

/// A rate, four significant digits: `103,600`, `59.3`.
pub fn rate(value: f64) -> String {
    use Form::{Decimals, Power, Significant};
    if value == 0.0 {
        return "0".to_owned();
    }
    let steps = [
        (1e15, Power(2)),
        (1000.0, Significant(4)),
        (100.0, Decimals(0)),
        (10.0, Decimals(1)),
        (1.0, Decimals(2)),
        (0.0005, Decimals(3)),
        (0.0, Power(1)),
    ];
    sized(value, &steps)
}

/// Microseconds, one decimal where it matters: `9.6`, `133`, `21,800`; 0 only for nothing at all.
pub fn micros(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    sized(value, &[(1e15, Form::Power(2)), (99.95, Form::Whole), (0.0, Form::Decimals(1))])
}

/// [`micros`], or a dash for what was not measured.
pub fn micros_or_none(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_owned(), micros)
}

/// Microseconds with their sign, for differences.
pub fn signed_micros(value: f64) -> String {
    let text = micros(value.abs());
    if text == "0" || text == "0.0" || text == NONE {
        text
    } else if value < 0.0 {
        format!("−{text}")
    } else {
        format!("+{text}")
    }
}

/// A share as whole percent: `31 %`, with a decimal below 1.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    let decimals = usize::from(value != 0.0 && value.abs() < 0.95);
    match sized(value, &[(1e9, Form::Power(1)), (0.0, Form::Decimals(decimals))]) {
        none if none == NONE => none,
        text => format!("{text} %"),
    }
}

/// A ratio, two decimals: `0.57`.
pub fn ratio(value: f64) -> String {
    sized(value, &[(1e6, Form::Power(1)), (99.95, Form::Decimals(0)), (0.0, Form::Decimals(2))])
}

/// A count that may have a part, as CPUs under a quota do: `24`, `1.50`.
pub fn quantity(value: f64) -> String {
    ratio(value).trim_end_matches(".00").to_owned()
}

/// A gain, two significant digits: `×4.0`.
pub fn gain(value: f64) -> String {
    use Form::{Decimals, Power};
    match sized(value, &[(1e6, Power(1)), (9.95, Decimals(0)), (1.95, Decimals(1)), (0.0, Decimals(2))]) {
        none if none == NONE => none,
        text => format!("×{text}"),
    }
}

/// Seconds as a person says them: `0.30 s`, `41.3 s`.
pub fn seconds(value: f64) -> String {
    use Form::{Decimals, Power, Whole};
    let below_ten = if value == value.trunc() { 0 } else { 2 };
    let steps = [
        (1e9, Power(1)),
        (100.0, Whole),
        (10.0, Decimals(1)),
        (0.1, Decimals(below_ten)),
        (0.0, Decimals(if value == 0.0 { 0 } else { 4 })),
    ];
    match sized(value, &steps) {
        none if none == NONE => none,
        text => format!("{text} s"),
    }
}

/// CPU-seconds, as many digits as matter: `287`, `1.25`, `0.034`.
pub fn cpu_seconds(value: f64) -> String {
    use Form::{Decimals, Power, Whole};
    let below_one = if value == 0.0 { 2 } else { 3 };
    let steps = [
        (1e15, Power(2)),
        (100.0, Whole),
        (10.0, Decimals(1)),
        (1.0, Decimals(2)),
        (0.0, Decimals(below_one)),
    ];
    sized(value, &steps)
}

/// A time in the unit that suits it: `1.25 s`, `34.0 ms`, `12.1 us`.
pub fn time(seconds: f64) -> String {
    match seconds.abs() {
        s if !s.is_finite() => NONE.to_owned(),
        s if s >= 0.9995 => format!("{} s", cpu_seconds(seconds)),
        s if s >= 999.5e-6 => format!("{} ms", micros(seconds * 1e3)),
        _ => format!("{} us", micros(seconds * 1e6)),
    }
}

/// A count: `4,672`.
pub fn count(value: u64) -> String {
    thousands(value as f64)
}

/// A count of tasks in words: `1 task`, `24 tasks`.
pub fn tasks(count: u32) -> String {
    match count {
        1 => "1 task".to_owned(),
        n => format!("{n} tasks"),
    }
}

/// The pieces between which a line may end: words, but a number stays with its unit and a dot with what it ends.
fn words(text: &str) -> impl Iterator<Item = &str> {
    const UNITS: [&str; 5] = ["us", "s", "CPU-us", "CPU-s", "ops/s"];
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let whole = rest.take()?;
        let mut end = whole.find(' ').unwrap_or(whole.len());
        while end < whole.len() {
            let next = &whole[end + 1..];
            let next = &next[..next.find(' ').unwrap_or(next.len())];
            let unit = next.starts_with('%')
                || UNITS.contains(&next.trim_end_matches([',', '.', ':', ')']))
                    && whole[..end].ends_with(|c: char| c.is_ascii_digit());
            if !unit && next != "·" {
                break;
            }
            end += 1 + next.len();
        }
        rest = whole.get(end + 1..);
        Some(&whole[..end])
    })
}

/// Breaks a text into lines of at most `columns`, where it can be between the parts that ` · ` separates.
pub fn wrap_parts(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in text.split(" · ") {
        match lines.last_mut() {
            Some(line) if width(line) + 3 + width(part) <= columns => {
                line.push_str(" · ");
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    lines.iter().flat_map(|line| wrap(line, columns, 0)).collect()
}

/// Breaks a text into lines of at most `columns`; lines after the first begin with `indent` blanks, which count.
pub fn wrap(text: &str, columns: usize, indent: usize) -> Vec<String> {
    let columns = columns.max(indent + 8);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    let mut empty = true;
    // Leading blanks of the text are its own indentation.
    let lead = text.len() - text.trim_start_matches(' ').len();
    line.push_str(&text[..lead]);
    used += lead;
    for mut word in words(&text[lead..]) {
        loop {
            let w = width(word);
            let gap = usize::from(!empty);
            if used + gap + w <= columns {
                if gap == 1 {
                    line.push(' ');
                }
                line.push_str(word);
                used += gap + w;
                empty = false;
                break;
            }
            if empty {
                // A word that is longer than a line is cut.
                let mut cut = 0;
                let mut room = columns - used;
                for c in word.chars() {
                    let w = c.width().unwrap_or(0);
                    if w > room {
                        break;
                    }
                    room -= w;
                    cut += c.len_utf8();
                }
                let cut = cut.max(word.chars().next().map_or(0, char::len_utf8));
                line.push_str(word[..cut].trim_end());
                word = word[cut..].trim_start();
            }
            lines.push(std::mem::take(&mut line));
            line.push_str(&" ".repeat(indent));
            used = indent;
            empty = true;
            if word.is_empty() {
                break;
            }
        }
    }
    if !line.trim().is_empty() {
        lines.push(line);
    }
    lines
}

/// A command line that a shell reads back as these arguments.
pub fn shell(arguments: &[String]) -> String {
    let quoted: Vec<String> = arguments
        .iter()
        .map(|argument| {
            let simple = !argument.is_empty()
                && argument.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c));
            if simple {
                argument.clone()
            } else if argument.chars().any(char::is_control) {
                let mut out = String::from("$'");
                for c in argument.chars() {
                    match c {
                        '\n' => out.push_str("\\n"),
                        '\t' => out.push_str("\\t"),
                        '\'' => out.push_str("\\'"),
                        '\\' => out.push_str("\\\\"),
                        c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
                        c => out.push(c),
                    }
                }
                out.push('\'');
                out
            } else {
                format!("'{}'", argument.replace('\'', "'\\''"))
            }
        })
        .collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_drive_the_terminal_or_hide() {
        assert_eq!(plain("a\u{1b}[31mb\nc\td", 80), "a\u{fffd}[31mb␤c d");
        assert_eq!(plain("x\u{202e}gpj.exe\u{200b}", 80), "x\u{fffd}gpj.exe\u{fffd}");
        assert_eq!(plain("\u{9b}2J", 80), "\u{fffd}2J");
        let zalgo = plain(&format!("e{}", "\u{301}".repeat(1000)), 80);
        assert!(zalgo.chars().count() < 5);
    }

    #[test]
    fn long_names_are_cut_to_the_width_also_when_wide() {
        assert_eq!(plain("abcdef", 4), "abc…");
        assert_eq!(plain("漢字漢字", 5), "漢字…");
        assert_eq!(plain("漢字漢字", 4), "漢…");
        assert_eq!(plain("abc", 0), "");
        for limit in 0..12 {
            assert!(width(&plain("漢a字b漢c", limit)) <= limit);
        }
    }

    #[test]
    fn rates_have_four_digits_and_commas() {
        for (value, text) in [
            (103_612.0, "103,600"),
            (1_234_567.0, "1,235,000"),
            (999.6, "1000"),
            (59.31, "59.3"),
            (1.8, "1.80"),
            (0.0421, "0.042"),
            (0.0, "0"),
            (1e300, "1.00e300"),
            (f64::INFINITY, "–"),
            (f64::NAN, "–"),
            (1e-300, "1.0e-300"),
        ] {
            assert_eq!(rate(value), text);
        }
    }

    #[test]
    fn micros_tell_small_from_zero() {
        for (value, text) in
            [(9.64, "9.6"), (0.0, "0"), (0.01, "0.0"), (99.97, "100"), (21_812.3, "21,812"), (-3.25, "-3.2")]
        {
            assert_eq!(micros(value), text);
        }
        assert_eq!(signed_micros(-3.0), "−3.0");
        assert_eq!(signed_micros(0.01), "0.0");
        assert_eq!(micros_or_none(None), "–");
    }

    #[test]
    fn wrapped_lines_keep_the_width_and_every_word() {
        let text = "the quick brown fox jumps over averyveryverylongwordindeed and 漢字漢字漢字 too";
        for columns in 10..60 {
            let lines = wrap(text, columns, 2);
            assert!(lines.iter().all(|l| width(l) <= columns), "{columns}: {lines:?}");
            let squeezed: String = lines.concat().split(' ').collect();
            assert_eq!(squeezed, text.split(' ').collect::<String>());
        }
    }

    #[test]
    fn a_line_ends_between_parts_and_never_between_a_number_and_its_unit() {
        let text = "Paths  unlink: xfs_iunlink < xfs_remove 17 % · create: xfs_dialloc 23 %, for 12.3 us";
        for columns in 16..80 {
            for line in wrap(text, columns, 2) {
                let start = line.trim_start();
                assert!(!["%", "·", "us"].iter().any(|w| start.starts_with(w)), "{columns}: {line}");
            }
        }
        assert_eq!(
            wrap_parts("a b · 8 rounds x 1 s · seed 44539", 26),
            ["a b · 8 rounds x 1 s", "seed 44539"]
        );
        assert_eq!(wrap_parts("one part of many words", 12), ["one part of", "many words"]);
    }

    #[test]
    fn sizes_are_written_alike_on_both_sides_of_zero() {
        for text in [rate, micros, percent, ratio, seconds, cpu_seconds] {
            for value in [1e20, 123_456.0, 99.97, 12.3, 1.5, 0.7] {
                assert_eq!(text(-value), format!("-{}", text(value)));
            }
            assert_eq!(text(f64::NAN), NONE);
            assert!(!text(-1e-9).contains('-') || text(-1e-9).contains('e'), "{}", text(-1e-9));
        }
        assert_eq!(
            (percent(0.31), percent(0.004), percent(0.0)),
            ("31 %".into(), "0.4 %".into(), "0 %".into())
        );
        assert_eq!((gain(4.02), gain(1.046), gain(23.4)), ("×4.0".into(), "×1.05".into(), "×23".into()));
        assert_eq!(
            (seconds(0.3), seconds(2.0), seconds(41.31)),
            ("0.30 s".into(), "2 s".into(), "41.3 s".into())
        );
        assert_eq!((cpu_seconds(287.4), cpu_seconds(0.0344)), ("287".into(), "0.034".into()));
        assert_eq!((quantity(24.0), quantity(1.5)), ("24".into(), "1.50".into()));
    }

    #[test]
    fn a_quoted_command_is_read_back_by_the_shell() {
        let arguments: Vec<String> =
            ["printf", "%s|", "a b", "it's", "$(id)", "", "new\nline", "back\\slash\tq'", "é\u{1b}"]
                .iter()
                .map(|s| (*s).to_owned())
                .collect();
        let out = std::process::Command::new("bash")
            .args(["-c", &shell(&arguments)])
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8(out.stdout).unwrap(),
            "a b|it's|$(id)||new\nline|back\\slash\tq'|é\u{1b}|"
        );
    }

    #[test]
    fn times_are_in_the_unit_that_suits_them() {
        for (seconds, text) in [
            (287.4, "287 s"),
            (1.25, "1.25 s"),
            (0.034, "34.0 ms"),
            (1e-3, "1.0 ms"),
            (12.1e-6, "12.1 us"),
            (0.0, "0 us"),
            (f64::INFINITY, NONE),
        ] {
            assert_eq!(time(seconds), text);
        }
    }
}
