//! The place that a workload runs in: a file system made for the run, or a directory.
//!
//! A [`Spec`] is a target as the user names it (the syntax is in [`SYNTAX_HELP`]). [`Spec::check`] says whether it is
//! possible here before anything runs; [`enter`] makes it in a mount namespace of the caller's, on `/tmp`;
//! [`enter_plain`] uses a directory without any privilege. Whatever a run would leave in directories of the machine
//! is named by a [`Cleanup`] before it is created; all else vanishes with the namespace, even after SIGKILL.
//!
//! Only this crate mounts. It starts no tasks (only mkfs), prints nothing and knows no workloads.
//!
//! # How targets are written
//!
#![doc = concat!("```text\n", include_str!("syntax.txt"), "```")]

mod check;
mod cleanup;
mod error;
mod facts;
mod fs;
mod image;
mod keep;
mod machine;
mod place;
mod root;
mod scratch;
mod size;
mod spec;
mod syntax;
mod sys;
mod tool;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use check::{Available, OptionHelp, available};
pub use cleanup::Cleanup;
pub use error::{Error, ErrorKind};
pub use facts::Facts;
pub use machine::Caps;
pub use place::{Layout, Namespace, Place, WriteSources, enter, enter_plain};
pub use scratch::Scratch;
pub use size::parse as parse_size;
pub use spec::{Remedy, Spec, parse_list};
pub use syntax::SYNTAX_HELP;

/// Size of an image in bytes where nothing else is said and there is room for it: 4 GiB, sparse.
pub const DEFAULT_SIZE: u64 = 4 << 30;

/// The command-line flag that stands for [`Settings::allow_format`]; error lines name it.
pub const ALLOW_FORMAT_FLAG: &str = "--allow-format";

/// The command-line flag that stands for [`Settings::force_format`]; error lines name it.
pub const FORCE_FORMAT_FLAG: &str = "--force-format";

/// How the names of everything begin that is created in directories of the machine.
pub const PREFIX: &str = ".perfloss-";

/// How file systems are made, for all targets of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The directory for images; in memory if `None`.
    pub medium: Option<PathBuf>,
    /// Size of an image in bytes where the target names none; [`DEFAULT_SIZE`], or less where there is less, if `None`.
    pub size: Option<u64>,
    /// A block device that a target names may be formatted.
    pub allow_format: bool,
    /// It may be formatted even if it holds something. A device in use is refused all the same.
    pub force_format: bool,
}
