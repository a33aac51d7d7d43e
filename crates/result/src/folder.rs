//! The folder of a result: made at the start, updated as the run goes, always valid.

use crate::read::shown;
use crate::{ReadError, RunResult, read};
use serde::Serialize;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a result could not be written. Every message is one line with the way out.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The folder exists and is not empty.
    #[error("{path}: already there and not empty; name another folder (--output)")]
    NotEmpty {
        /// The folder.
        path: String,
    },
    /// Something else has that name.
    #[error("{path}: not a directory; name another folder (--output)")]
    NotADirectory {
        /// The path.
        path: String,
    },
    /// A read-only file system or missing permission.
    #[error("{path}: cannot write there ({error}); name a folder that you may write to (--output)")]
    NotWritable {
        /// The path.
        path: String,
        /// What the system said.
        error: io::Error,
    },
    /// No space or no quota left.
    #[error("{path}: no space left ({error}); make room or name a folder elsewhere (--output)")]
    Full {
        /// The path.
        path: String,
        /// What the system said.
        error: io::Error,
    },
    /// Anything else that the system refused.
    #[error("{path}: cannot write: {error}")]
    Io {
        /// The path.
        path: String,
        /// What the system said.
        error: io::Error,
    },
    /// A file name that would leave the folder.
    #[error("{name}: not a plain file name")]
    BadName {
        /// The name.
        name: String,
    },
    /// A value that JSON cannot hold, such as a number that is not finite where one is needed.
    #[error("the result cannot be written so that it could be read again: {why}")]
    Unreadable {
        /// What is wrong, and where.
        why: String,
    },
}

impl WriteError {
    /// Sorts what the system said by its way out.
    fn from_io(path: &Path, error: io::Error) -> Self {
        let path = shown(path);
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable { path, error }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path, error },
            io::ErrorKind::NotADirectory => Self::NotADirectory { path },
            _ => Self::Io { path, error },
        }
    }
}

/// The folder of a result. Files in it are replaced whole: a reader sees the old one or the new one.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder (and those above it), private to the user (0700), and proves that it can be written to, so that a
    /// run does not measure for minutes to fail at the end. An empty folder that is there is taken.
    ///
    /// # Errors
    /// When it exists and is not empty, is no directory, or cannot be written to.
    pub fn create(path: &Path) -> Result<Self, WriteError> {
        match fs::read_dir(path) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(WriteError::NotEmpty { path: shown(path) });
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(path)
                    .map_err(|error| WriteError::from_io(path, error))?;
            }
            Err(error) => return Err(WriteError::from_io(path, error)),
        }
        let folder = Self { path: path.to_owned() };
        // A probe of a page's size: an empty file can be made on a full disk.
        let probe = folder.path.join(".probe");
        let tried = write_private(&probe, &[b' '; 4096]);
        // The probe's own failure is what matters; a leftover of nothing is no second error.
        let removed = fs::remove_file(&probe);
        tried.map_err(|error| WriteError::from_io(path, error))?;
        removed.map_err(|error| WriteError::from_io(path, error))?;
        Ok(folder)
    }

    /// An existing folder of a result, to add converted files to.
    ///
    /// # Errors
    /// When it is no readable result.
    pub fn open(path: &Path) -> Result<(Self, RunResult), ReadError> {
        let result = read(path)?;
        Ok((Self { path: path.to_owned() }, result))
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes `result.json` anew.
    ///
    /// # Errors
    /// When the disk refuses, or the result holds what JSON cannot.
    pub fn update(&self, result: &RunResult) -> Result<(), WriteError> {
        let bytes = write_json(result)?;
        crate::parse(&bytes, "result.json")
            .map_err(|error| WriteError::Unreadable { why: error.to_string() })?;
        self.write("result.json", &bytes)
    }

    /// Writes a file of the folder, whole or not at all: to a temporary file beside it, synced, then renamed.
    ///
    /// # Errors
    /// When the name is not a plain one, or the disk refuses; then the file that was there stays as it was.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), WriteError> {
        let plain = Path::new(name).file_name().is_some_and(|only| only == name && !name.starts_with('.'));
        if !plain {
            return Err(WriteError::BadName { name: shown(Path::new(name)) });
        }
        let to = self.path.join(name);
        let temporary = self.path.join(format!(".{name}.{}.tmp", std::process::id()));
        let done = write_private(&temporary, bytes)
            .and_then(|()| fs::rename(&temporary, &to))
            .and_then(|()| File::open(&self.path)?.sync_all());
        if let Err(error) = done {
            // Only a leftover: the first error is the one to tell.
            let _ = fs::remove_file(&temporary);
            return Err(WriteError::from_io(&to, error));
        }
        Ok(())
    }
}

/// Writes a new file that only the user may read, and syncs it.
fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Any value of this crate as JSON: indented, with a newline at the end.
///
/// # Errors
/// When it holds what JSON cannot.
pub fn write_json<T: Serialize>(value: &T) -> Result<Vec<u8>, WriteError> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|error| WriteError::Unreadable { why: error.to_string() })?;
    bytes.push(b'\n');
    Ok(bytes)
}
