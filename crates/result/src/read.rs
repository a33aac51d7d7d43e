//! Reading a result that anybody may have written.
//!
//! Bounds: the size of the file, the depth of nesting (serde_json stops at 128), and, by JSON itself, finite numbers.
//! Text is kept as it is, control characters included, because names of files and commands may hold them; whoever
//! shows it has to make it harmless.

use crate::{RunResult, SCHEMA};
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Largest `result.json` that is read, bytes.
pub const MAX_FILE_BYTES: u64 = 256 << 20;

/// Why a result could not be read. Every message is one line that names the file.
#[derive(Debug, Error)]
pub enum ReadError {
    /// There is nothing there.
    #[error("{path}: no such result; a result is a folder with a result.json, or that file itself")]
    Missing {
        /// What was asked for.
        path: String,
    },
    /// The folder is there, its `result.json` is not.
    #[error("{path}: no result.json in this folder; was it written by perfloss?")]
    NotAResult {
        /// The folder.
        path: String,
    },
    /// The system refused.
    #[error("{path}: cannot read: {error}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A device, pipe or socket.
    #[error("{path}: not a regular file")]
    NotAFile {
        /// The file.
        path: String,
    },
    /// Beyond [`MAX_FILE_BYTES`].
    #[error("{path}: larger than {limit} bytes; a result.json never is")]
    TooLarge {
        /// The file.
        path: String,
        /// The limit.
        limit: u64,
    },
    /// Ends in the middle.
    #[error("{path}: cut off after {bytes} bytes; get the whole file")]
    CutOff {
        /// The file.
        path: String,
        /// Its length.
        bytes: usize,
    },
    /// Not JSON, or not of the form of a result.
    #[error("{path}: not a perfloss result: {why}")]
    Malformed {
        /// The file.
        path: String,
        /// What is wrong, and where.
        why: String,
    },
    /// JSON without the name of a result's schema.
    #[error("{path}: not a perfloss result: \"schema\" is missing or is not {SCHEMA}")]
    NoSchema {
        /// The file.
        path: String,
    },
    /// A version that this build does not read.
    #[error(
        "{path}: written in format {found}, this perfloss reads {SCHEMA}; use the perfloss that wrote it, or a newer one"
    )]
    OtherVersion {
        /// The file.
        path: String,
        /// The version found.
        found: String,
    },
}

/// The `result.json` of a result that is named by its folder or by that file.
///
/// # Errors
/// When there is neither.
pub fn result_file(path: &Path) -> Result<PathBuf, ReadError> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_dir() => {
            let file = path.join("result.json");
            match std::fs::metadata(&file) {
                Ok(_) => Ok(file),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    Err(ReadError::NotAResult { path: shown(path) })
                }
                Err(error) => Err(ReadError::Io { path: shown(&file), error }),
            }
        }
        Ok(_) => Ok(path.to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(ReadError::Missing { path: shown(path) })
        }
        Err(error) => Err(ReadError::Io { path: shown(path), error }),
    }
}

/// Reads a result that is named by its folder or by its `result.json`.
///
/// # Errors
/// When it cannot be read, is too large, cut off, not a result, or of another version.
pub fn read(path: &Path) -> Result<RunResult, ReadError> {
    let path = result_file(path)?;
    let io = |error| ReadError::Io { path: shown(&path), error };
    let file = File::open(&path).map_err(io)?;
    if !file.metadata().map_err(io)?.is_file() {
        return Err(ReadError::NotAFile { path: shown(&path) });
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ReadError::TooLarge { path: shown(&path), limit: MAX_FILE_BYTES });
    }
    parse(&bytes, &shown(&path))
}

/// Reads a result from bytes; `name` stands for the file in messages.
///
/// # Errors
/// When the bytes are cut off, not a result, or of another version.
pub fn parse(bytes: &[u8], name: &str) -> Result<RunResult, ReadError> {
    /// Only the version, so that a newer format is called that and not malformed.
    #[derive(Deserialize)]
    struct Version {
        schema: Option<serde_json::Value>,
    }
    let path = || name.to_owned();
    let wrong = |error: serde_json::Error| {
        if error.is_eof() || (error.is_syntax() && ends_at(bytes, error.line(), error.column())) {
            ReadError::CutOff { path: path(), bytes: bytes.len() }
        } else {
            ReadError::Malformed { path: path(), why: one_line(&error.to_string()) }
        }
    };
    let version: Version = serde_json::from_slice(bytes).map_err(wrong)?;
    match version.schema.as_ref().and_then(|s| s.as_str()) {
        Some(SCHEMA) => {}
        Some(other) if other.starts_with("perfloss.result/") => {
            return Err(ReadError::OtherVersion { path: path(), found: one_line(other) });
        }
        _ => return Err(ReadError::NoSchema { path: path() }),
    }
    serde_json::from_slice(bytes).map_err(wrong)
}

/// Whether a place in the text is its very end: there a number or word that is cut off is "invalid", not "eof".
fn ends_at(bytes: &[u8], line: usize, column: usize) -> bool {
    let before = bytes.iter().filter(|b| **b == b'\n').count();
    let last = bytes.iter().rev().take_while(|b| **b != b'\n').count();
    line == before + 1 && column == last && last > 0
}

/// A path for a message: one line, no control characters.
pub(crate) fn shown(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

/// Text from a stranger for a message: one bounded line without control characters.
fn one_line(text: &str) -> String {
    const LIMIT: usize = 300;
    let mut line: String =
        text.chars().take(LIMIT).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(LIMIT).is_some() {
        line.push('…');
    }
    line
}
