//! How targets are written: quoting, lists, and the chapter that `perfloss list` and `--help` print.

use crate::error::Error;

/// The target syntax with examples, for the terminal.
pub const SYNTAX_HELP: &str = include_str!("syntax.txt");

/// A character, and whether quotes or a backslash took its special meaning away.
pub(crate) type Char = (char, bool);

/// Reads quotes and backslashes.
pub(crate) fn scan(text: &str) -> Result<Vec<Char>, Error> {
    let mut out = Vec::new();
    let mut quoted = false;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => quoted = !quoted,
            '\\' => match chars.next() {
                Some(next) => out.push((next, true)),
                None => return Err(wrong(text, "a backslash at the end keeps nothing")),
            },
            '\0' => return Err(wrong(text, "a NUL character cannot be in it")),
            _ => out.push((c, quoted)),
        }
    }
    if quoted {
        return Err(wrong(text, "a double quote is not closed"));
    }
    Ok(out)
}

/// Splits the argument of `--on` at its commas, leaving quotes and backslashes in the pieces.
pub(crate) fn split_list(text: &str) -> Result<Vec<&str>, Error> {
    let mut pieces = Vec::new();
    let (mut start, mut quoted, mut kept) = (0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if kept => kept = false,
            '\\' => kept = true,
            '"' => quoted = !quoted,
            ',' if !quoted => {
                pieces.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[start..]);
    if pieces.iter().any(|piece| piece.trim().is_empty()) {
        return Err(wrong(text, "a target is empty; write names separated by single commas"));
    }
    Ok(pieces)
}

/// Without blanks at both ends, unless they are quoted.
pub(crate) fn trim(mut chars: &[Char]) -> &[Char] {
    let blank = |&(c, quoted): &Char| c.is_whitespace() && !quoted;
    while let [first, rest @ ..] = chars
        && blank(first)
    {
        chars = rest;
    }
    while let [rest @ .., last] = chars
        && blank(last)
    {
        chars = rest;
    }
    chars
}

/// Cuts at the first unquoted `at`.
pub(crate) fn cut(chars: &[Char], at: char) -> (&[Char], Option<&[Char]>) {
    match chars.iter().position(|&c| c == (at, false)) {
        Some(position) => (&chars[..position], Some(&chars[position + 1..])),
        None => (chars, None),
    }
}

pub(crate) fn text(chars: &[Char]) -> String {
    chars.iter().map(|&(c, _)| c).collect()
}

/// The text as it has to be written to be read back as it is.
pub(crate) fn quote(text: &str, special: &[char]) -> String {
    let odd_end = |c: Option<char>| c.is_none_or(char::is_whitespace);
    let plain = !text.contains(['"', '\\', ','])
        && !text.contains(special)
        && !odd_end(text.chars().next())
        && !odd_end(text.chars().next_back());
    if plain {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

pub(crate) fn wrong(text: &str, reason: impl Into<String>) -> Error {
    Error::Syntax { text: text.to_owned(), reason: reason.into() }
}
