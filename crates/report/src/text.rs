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

/// A whole number with commas between the thousands.
fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    if value < 0.0 && digits != "0" {
        out.push('-');
    }
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

/// A rate, four significant digits: `103,600`, `59.3`.
pub fn rate(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        NONE.to_owned()
    } else if size >= 1e15 {
        format!("{value:.2e}")
    } else if size >= 1000.0 {
        thousands(significant(value, 4))
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 {
        format!("{value:.2}")
    } else if size >= 0.0005 {
        format!("{value:.3}")
    } else if size > 0.0 {
        format!("{value:.1e}")
    } else {
        "0".to_owned()
    }
}

/// Microseconds, one decimal where it matters: `9.6`, `133`, `21,800`.
pub fn micros(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        NONE.to_owned()
    } else if size >= 1e15 {
        format!("{value:.2e}")
    } else if size >= 99.95 {
        thousands(value)
    } else if size == 0.0 {
        "0".to_owned()
    } else if size < 0.05 {
        "0.0".to_owned()
    } else {
        format!("{value:.1}")
    }
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

/// A share as whole percent: `31 %`.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    if !value.is_finite() {
        NONE.to_owned()
    } else if value.abs() >= 1e9 {
        format!("{value:.1e} %")
    } else if value != 0.0 && value.abs() < 0.95 {
        format!("{value:.1} %")
    } else {
        format!("{value:.0} %")
    }
}

/// A ratio, two decimals: `0.57`.
pub fn ratio(value: f64) -> String {
    if !value.is_finite() {
        NONE.to_owned()
    } else if value.abs() >= 1e6 {
        format!("{value:.1e}")
    } else if value.abs() >= 99.95 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

/// A gain, two significant digits: `×4.0`.
pub fn gain(value: f64) -> String {
    if !value.is_finite() {
        NONE.to_owned()
    } else if value.abs() >= 1e6 {
        format!("×{value:.1e}")
    } else if value.abs() >= 9.95 {
        format!("×{value:.0}")
    } else if value.abs() >= 1.95 || value.abs() == 0.0 {
        format!("×{value:.1}")
    } else {
        format!("×{value:.2}")
    }
}

/// Seconds as a person says them: `0.30 s`, `41.3 s`.
pub fn seconds(value: f64) -> String {
    if !value.is_finite() {
        NONE.to_owned()
    } else if value.abs() >= 1e9 {
        format!("{value:.1e} s")
    } else if value.abs() >= 100.0 {
        format!("{} s", thousands(value))
    } else if value.abs() >= 10.0 {
        format!("{value:.1} s")
    } else if value == value.trunc() {
        format!("{value:.0} s")
    } else if value.abs() >= 0.1 {
        format!("{value:.2} s")
    } else {
        format!("{value:.4} s")
    }
}

/// CPU-seconds, as many digits as matter: `287`, `1.25`, `0.034`.
pub fn cpu_seconds(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        NONE.to_owned()
    } else if size >= 1e15 {
        format!("{value:.2e}")
    } else if size >= 1000.0 {
        thousands(value)
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 1.0 || size == 0.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
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
    for word in text[lead..].split(' ') {
        let mut word = word;
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
                line.push_str(&word[..cut]);
                word = &word[cut..];
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
}
