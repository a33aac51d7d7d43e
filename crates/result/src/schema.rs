//! The JSON schemas of what this crate writes, generated from the types.

use crate::{ComparisonReport, RunResult};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

/// Schema of `result.json`.
pub fn result_schema() -> Schema {
    generate::<RunResult>("perfloss result", crate::SCHEMA)
}

/// Schema of the JSON of `perfloss compare`.
pub fn comparison_schema() -> Schema {
    generate::<ComparisonReport>("perfloss comparison", crate::COMPARISON_SCHEMA)
}

/// The schema of what is written: readers accept more (absent fields, unknown ones).
fn generate<T: JsonSchema>(title: &str, id: &str) -> Schema {
    let mut schema =
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    schema.insert("$id".to_owned(), format!("urn:{}", id.replace('/', ":")).into());
    schema
}
