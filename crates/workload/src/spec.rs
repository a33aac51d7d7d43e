//! Naming workloads, and opening what was named.

use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ccase::{CCase, Compiled};
use crate::command::{Command, TemplateError};
use crate::{Failure, Workload, builtin};

/// A workload as the user named it; it can be written down and opened again, in another process too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Spec {
    /// One of [`crate::registry`].
    BuiltIn {
        /// Its name, e.g. `create_unlink:own-dir`.
        name: String,
    },
    /// A will-it-scale test case that was compiled; see [`Spec::of_case`].
    CCase {
        /// What the user calls it.
        name: String,
        /// Its description.
        about: String,
        /// The shared object, as a path that can be opened where the tasks run, e.g. `/proc/self/fd/N`.
        object: PathBuf,
        /// Changes with the source.
        version: u32,
    },
    /// A command template.
    Command(Command),
}

/// A workload cannot be opened; the text says what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// No such name.
    #[error("unknown workload {name:?}{}; `perfloss list` names all of them", nearest.map(|n| format!(" (did you mean {n:?}?)")).unwrap_or_default())]
    Unknown {
        /// What was asked for.
        name: String,
        /// The name of a workload that looks like it.
        nearest: Option<&'static str>,
    },
    /// A C file was named where a name of a built-in workload is expected: it has to be compiled first.
    #[error("{0:?} is a C file: compile it first")]
    Source(String),
    /// The command template cannot be used.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The template's program cannot be run.
    #[error(transparent)]
    Program(Failure),
}

impl FromStr for Spec {
    type Err = SpecError;

    /// Takes the name of a built-in workload. See [`Spec::is_source`] for what else a user may name.
    fn from_str(name: &str) -> Result<Spec, SpecError> {
        match builtin::find(name) {
            Some(_) => Ok(Spec::BuiltIn { name: name.to_owned() }),
            None if Spec::is_source(name) => Err(SpecError::Source(name.to_owned())),
            None => Err(unknown(name)),
        }
    }
}

impl Spec {
    /// Whether a workload named like this is a C file to be compiled ([`crate::ccase::compile`]) rather than a built-in one.
    pub fn is_source(name: &str) -> bool {
        name.ends_with(".c") || name.contains('/')
    }

    /// The workload of a compiled test case whose object can be opened as `object` (see [`Compiled::to_memfd`]).
    pub fn of_case(compiled: &Compiled, object: PathBuf) -> Spec {
        let about = compiled.description.clone();
        Spec::CCase {
            name: compiled.name.clone(),
            about: about.unwrap_or_else(|| "a will-it-scale test case without description".to_owned()),
            object,
            version: compiled.version,
        }
    }

    /// Opens the workload.
    ///
    /// # Errors
    /// If there is none of that name, or a template or its program cannot be used.
    pub fn open(&self) -> Result<Box<dyn Workload>, SpecError> {
        match self {
            Spec::BuiltIn { name } => builtin::find(name).ok_or_else(|| unknown(name)),
            Spec::CCase { name, about, object, version } => Ok(Box::new(CCase {
                name: name.clone(),
                about: about.clone(),
                object: object.clone(),
                version: *version,
            })),
            Spec::Command(command) => Ok(Box::new(command.open()?)),
        }
    }

    /// What the user calls it.
    pub fn name(&self) -> &str {
        match self {
            Spec::BuiltIn { name } | Spec::CCase { name, .. } => name,
            Spec::Command(command) => &command.each,
        }
    }
}

fn unknown(name: &str) -> SpecError {
    let likeness = |known: &&'static str| strsim::jaro_winkler(known, name);
    let nearest = builtin::names()
        .filter(|known| likeness(known) > 0.75)
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    SpecError::Unknown { name: name.to_owned(), nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_answered_with_the_nearest_one() {
        let error = "create_unlnk".parse::<Spec>().expect_err("there is none");
        assert!(error.to_string().contains("did you mean \"create_unlink\"?"), "{error}");
    }

    #[test]
    fn a_name_like_nothing_known_is_answered_without_a_guess() {
        let error = "zzz".parse::<Spec>().expect_err("there is none");
        assert_eq!(error.to_string(), "unknown workload \"zzz\"; `perfloss list` names all of them");
    }

    #[test]
    fn every_registered_name_opens_the_workload_of_that_name() {
        for workload in crate::registry() {
            let spec: Spec = workload.name().parse().expect("registered");
            let text = serde_json::to_string(&spec).expect("serialises");
            let again: Spec = serde_json::from_str(&text).expect("parses");
            assert_eq!(again.open().expect("opens").name(), workload.name());
        }
    }
}
