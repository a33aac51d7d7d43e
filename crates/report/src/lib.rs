//! Every way of showing a result.
//!
//! Pure: a result goes in, text or bytes come out. Nothing here reads a file, asks the machine or prints, and nothing
//! knows how the figures were got. Results may come from strangers: every name passes [`text::plain`] or the escaping of
//! its format on the way out, and every loop is bounded by what the reader of the result let in.

pub mod html;
pub mod stacks;
pub mod terminal;
pub mod text;
pub mod verdict;
pub mod view;
