//! Every way of showing a result.
