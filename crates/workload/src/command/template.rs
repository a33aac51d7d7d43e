//! The language of command templates: words, quotes and placeholders.

use std::ffi::{OsStr, OsString};
use std::fmt;

/// What a placeholder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hole {
    Task,
    Tasks,
    Dir,
    Own,
    Src,
}

impl Hole {
    pub(crate) const ALL: [Hole; 5] = [Hole::Task, Hole::Tasks, Hole::Dir, Hole::Own, Hole::Src];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Hole::Task => "task",
            Hole::Tasks => "tasks",
            Hole::Dir => "dir",
            Hole::Own => "own",
            Hole::Src => "src",
        }
    }

    /// The environment variable with the same value.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Hole::Task => "PERFLOSS_TASK",
            Hole::Tasks => "PERFLOSS_TASKS",
            Hole::Dir => "PERFLOSS_DIR",
            Hole::Own => "PERFLOSS_OWN",
            Hole::Src => "PERFLOSS_SRC",
        }
    }

    fn named(name: &str) -> Option<Hole> {
        Hole::ALL.into_iter().find(|hole| hole.name() == name)
    }
}

/// A template that cannot be used; the text says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// Nothing but blanks.
    #[error("the command is empty")]
    Empty,
    /// `{name}` with a name that stands for nothing.
    #[error("unknown placeholder {{{name}}}: there are {}; write {{{{{name}}}}} for braces", known(*.in_setup))]
    Unknown {
        /// The name between the braces.
        name: String,
        /// Whether it stands in a set-up command, which no task runs.
        in_setup: bool,
    },
    /// A quote is opened and not closed.
    #[error("a {0} is not closed in the command")]
    Unclosed(&'static str),
    /// Something that only a shell understands.
    #[error(
        "{operator:?} is for a shell, and commands run without one: add --shell, or quote it to pass it on"
    )]
    NeedsShell {
        /// The operator.
        operator: String,
    },
}

fn known(in_setup: bool) -> Known {
    Known(in_setup)
}

struct Known(bool);

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_a_task = |hole: &Hole| matches!(hole, Hole::Task | Hole::Own);
        let names = Hole::ALL.iter().filter(|hole| !(self.0 && of_a_task(hole)));
        for (i, hole) in names.enumerate() {
            write!(f, "{}{{{}}}", if i == 0 { "" } else { ", " }, hole.name())?;
        }
        Ok(())
    }
}

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Hole(Hole),
}

/// One argument: pieces that are put together and never split again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) Vec<Piece>);

impl Word {
    fn push(&mut self, c: char) {
        match self.0.last_mut() {
            Some(Piece::Text(text)) => text.push(c),
            _ => self.0.push(Piece::Text(c.into())),
        }
    }

    /// The argument, with every placeholder replaced.
    pub(crate) fn fill<'a>(&self, value: impl Fn(Hole) -> &'a OsStr) -> OsString {
        let mut argument = OsString::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => argument.push(text),
                Piece::Hole(hole) => argument.push(value(*hole)),
            }
        }
        argument
    }

    /// The argument, if it is the same for everybody.
    pub(crate) fn literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }
}

/// What stands at the beginning of `rest`, where braces may mean something.
enum Brace<'a> {
    /// A placeholder's name and the bytes that it takes.
    Name(&'a str, usize),
    /// `{{` or `}}`.
    Doubled(char),
    No,
}

fn brace(rest: &str) -> Brace<'_> {
    for (doubled, c) in [("{{", '{'), ("}}", '}')] {
        if rest.starts_with(doubled) {
            return Brace::Doubled(c);
        }
    }
    let inner = rest.strip_prefix('{').and_then(|r| r.split_once('}'));
    match inner {
        Some((name, _)) if is_name(name) => Brace::Name(name, name.len() + 2),
        _ => Brace::No,
    }
}

/// `{}`, `{print $1}` and `{a,b}` are no placeholders but what commands take.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn hole(name: &str, in_setup: bool) -> Result<Hole, TemplateError> {
    match Hole::named(name) {
        Some(Hole::Task | Hole::Own) if in_setup => None,
        found => found,
    }
    .ok_or_else(|| TemplateError::Unknown { name: name.to_owned(), in_setup })
}

/// Splits a template into words as a shell would, without a shell's expansions.
pub(crate) fn words(template: &str, in_setup: bool) -> Result<Vec<Word>, TemplateError> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut quote: Option<char> = None;
    let mut rest = template;
    while let Some(c) = rest.chars().next() {
        let next = rest[c.len_utf8()..].chars().next();
        let mut taken = c.len_utf8();
        match (quote, c) {
            (None, ' ' | '\t') => words.extend(word.take()),
            // Newlines around the command are fine, one inside would be two commands.
            (None, '\n' | '\r') if rest.trim().is_empty() => break,
            (None, '\n' | '\r') if words.is_empty() && word.is_none() => {}
            (None, '\n' | '\r') => return Err(needs_shell("newline")),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), _) if c == open => quote = None,
            (None, '\\') => match next {
                Some('\n') => taken += 1,
                Some(escaped) => {
                    word.get_or_insert_default().push(escaped);
                    taken += escaped.len_utf8();
                }
                // As shells take it.
                None => word.get_or_insert_default().push(c),
            },
            (Some('"'), '\\') if matches!(next, Some('$' | '`' | '"' | '\\' | '\n')) => {
                taken += 1;
                if let Some(escaped) = next.filter(|&c| c != '\n') {
                    word.get_or_insert_default().push(escaped);
                }
            }
            (None, '|' | '&' | ';' | '<' | '>' | '(' | ')' | '`') => {
                return Err(needs_shell(&operator(rest)));
            }
            (None, '$') if next.is_some_and(|n| n.is_ascii_alphabetic() || "_({".contains(n)) => {
                return Err(needs_shell(&operator(rest)));
            }
            _ => {
                let word = word.get_or_insert_default();
                match brace(rest) {
                    Brace::Name(name, length) => {
                        word.0.push(Piece::Hole(hole(name, in_setup)?));
                        taken = length;
                    }
                    Brace::Doubled(brace) => {
                        word.push(brace);
                        taken = 2;
                    }
                    Brace::No => word.push(c),
                }
            }
        }
        rest = &rest[taken..];
    }
    match quote {
        Some('"') => return Err(TemplateError::Unclosed("double quote")),
        Some(_) => return Err(TemplateError::Unclosed("single quote")),
        None => words.extend(word),
    }
    match words.is_empty() {
        true => Err(TemplateError::Empty),
        false => Ok(words),
    }
}

fn needs_shell(operator: &str) -> TemplateError {
    TemplateError::NeedsShell { operator: operator.to_owned() }
}

/// The operator at the beginning of `rest`, as it is shown.
fn operator(rest: &str) -> String {
    let long = ["&&", "||", ">>", "<<", "$(", "${"];
    match long.iter().find(|o| rest.starts_with(**o)) {
        Some(operator) => (*operator).to_owned(),
        None if rest.starts_with('$') => {
            let name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
            rest.chars().take(1).chain(rest.chars().skip(1).take_while(name)).collect()
        }
        None => rest.chars().take(1).collect(),
    }
}

/// Where in a shell script a placeholder stands, which decides how a reference to a variable is written there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Context {
    /// Ends with the script, or with the `)` or backquote that it is for.
    Plain(Option<char>),
    Single,
    Double,
    /// `$((…))`, in which quotes are not taken off.
    Arithmetic,
}

/// Turns a template into a script for `sh -c`: placeholders become quoted references to environment variables, so that their values
/// are never read as code. Here-documents are not understood: a reference in one keeps its quotes.
pub(crate) fn script(template: &str, in_setup: bool) -> Result<String, TemplateError> {
    let mut script = String::with_capacity(template.len() + 64);
    let mut contexts = vec![Context::Plain(None)];
    let mut rest = template;
    let mut previous = '\n';
    while let Some(c) = rest.chars().next() {
        let context = contexts.last().copied().unwrap_or(Context::Plain(None));
        let plain = matches!(context, Context::Plain(_));
        let next = rest[c.len_utf8()..].chars().next();
        let mut taken = c.len_utf8();
        match c {
            '\'' if context == Context::Single => drop(contexts.pop()),
            _ if context == Context::Single && !"{}".contains(c) => {}
            '\\' => taken += next.map_or(0, char::len_utf8),
            '\'' if plain => contexts.push(Context::Single),
            '"' if context == Context::Double => drop(contexts.pop()),
            '"' if plain => contexts.push(Context::Double),
            '#' if plain && (previous.is_whitespace() || ";&|(".contains(previous)) => {
                taken = rest.find('\n').unwrap_or(rest.len());
            }
            '$' if rest.starts_with("$((") => {
                contexts.push(Context::Arithmetic);
                taken = 3;
            }
            '$' if next == Some('(') => {
                contexts.push(Context::Plain(Some(')')));
                taken = 2;
            }
            // A variable of the shell's own.
            '$' if next == Some('{') => taken = rest.find('}').map_or(rest.len(), |end| end + 1),
            '`' if context == Context::Plain(Some('`')) => drop(contexts.pop()),
            '`' => contexts.push(Context::Plain(Some('`'))),
            // A subshell inside a substitution.
            '(' if context != Context::Double && contexts.len() > 1 => {
                contexts.push(Context::Plain(Some(')')))
            }
            ')' if context == Context::Plain(Some(')')) => drop(contexts.pop()),
            ')' if context == Context::Arithmetic && next == Some(')') => {
                contexts.pop();
                taken = 2;
            }
            '{' | '}' => {
                let length = match brace(rest) {
                    Brace::Name(name, length) => {
                        let variable = hole(name, in_setup)?.variable();
                        let (before, after) = match context {
                            Context::Plain(_) => ("\"", "\""),
                            Context::Single => ("'\"", "\"'"),
                            Context::Double | Context::Arithmetic => ("", ""),
                        };
                        script.push_str(&format!("{before}${{{variable}}}{after}"));
                        length
                    }
                    Brace::Doubled(brace) => {
                        script.push(brace);
                        2
                    }
                    Brace::No => {
                        script.push(c);
                        1
                    }
                };
                rest = &rest[length..];
                previous = '}';
                continue;
            }
            _ => {}
        }
        script.push_str(&rest[..taken]);
        previous = rest[..taken].chars().next_back().unwrap_or(c);
        rest = &rest[taken..];
    }
    match script.trim().is_empty() {
        true => Err(TemplateError::Empty),
        false => Ok(script),
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
