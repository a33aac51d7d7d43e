//! From a trace to the root lock and the loss that it causes.
