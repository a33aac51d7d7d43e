//! The result of a run: the types of result.json, their schema, reading and writing them.
