//! How targets are written: quoting, lists, and the chapter that `perfloss list` and `--help` print.

use crate::error::Error;

/// The target syntax with examples, for the terminal.
pub const SYNTAX_HELP: &str = "\
A target is the place that a workload runs in:

  NAME                    a file system made for the run: xfs, ext4, btrfs, tmpfs, f2fs, ...
  NAME:OPTION+OPTION      the same with options, each NAME=VALUE, separated by +
  overlay:TARGET          overlay; lower, upper and work directories are on the target that follows
  /some/dir  ./dir        an existing directory; anything with a slash (works without root)

--on takes several, separated by commas, and may be repeated. Options of every file system:

  size=SIZE               size of the image (default 4G, less where there is less memory or disk)
  mount=OPTIONS           mount options; may be repeated; several separated by commas need quotes
  mkfs=ARGUMENTS          arguments for mkfs, split at spaces; may be repeated; no shell sees them
  device=/dev/NAME        format this block device instead of an image; needs --allow-format

`perfloss list` shows the options of each file system. Sizes are 512, 64k, 300M, 2G.

Double quotes keep a comma, a plus or a space together, and a backslash keeps the next character: put the
whole argument in single quotes for the shell.

  --on xfs,ext4,btrfs,tmpfs
  --on xfs,xfs:agcount=32,xfs:agcount=32+size=8G
  --on ext4:journal=off --on overlay:ext4:journal=off
  --on 'xfs:mkfs=-m reflink=0 -i size=1024'
  --on 'xfs:mount=\"noatime,logbsize=256k\"+agcount=8'
  --on xfs:mount=noatime+mount=logbsize=256k
  --on /mnt/data,'\"/mnt/a, b\"'
";

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
