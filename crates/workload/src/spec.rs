//! Naming workloads, and opening what was named.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Workload, builtin};

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
}

/// A workload cannot be opened; the text says what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// No such name.
    #[error("unknown workload {name:?}{}; `perfloss list` names all of them", nearest.map(|n| format!(", did you mean {n:?}?")).unwrap_or_default())]
    Unknown {
        /// What was asked for.
        name: String,
        /// The name of a workload that looks like it.
        nearest: Option<&'static str>,
    },
}

impl FromStr for Spec {
    type Err = SpecError;

    /// Takes the name of a built-in workload.
    fn from_str(name: &str) -> Result<Spec, SpecError> {
        match builtin::find(name) {
            Some(_) => Ok(Spec::BuiltIn { name: name.to_owned() }),
            None => Err(unknown(name)),
        }
    }
}

impl Spec {
    /// Opens the workload.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn open(&self) -> Result<Box<dyn Workload>, SpecError> {
        match self {
            Spec::BuiltIn { name } => builtin::find(name).ok_or_else(|| unknown(name)),
        }
    }

    /// What the user calls it.
    pub fn name(&self) -> &str {
        match self {
            Spec::BuiltIn { name } => name,
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
