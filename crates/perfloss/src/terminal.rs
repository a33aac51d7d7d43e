//! What kind of terminal there is, if any.

use std::io::IsTerminal;

/// Columns where nothing tells: a pipe or a file.
const DEFAULT_WIDTH: usize = 100;

/// Columns of the terminal on standard output; a fixed number where it is none.
pub fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
    size.map(|s| usize::from(s.ws_col)).filter(|&c| c > 0).or(columns).unwrap_or(DEFAULT_WIDTH)
}

/// Whether standard output takes colour: a terminal, and the user has not said no (`NO_COLOR`, `TERM=dumb`).
pub fn color() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
    std::io::stdout().is_terminal() && !no_color && !dumb
}
