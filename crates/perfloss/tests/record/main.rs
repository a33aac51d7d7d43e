//! `record` on programs whose waits are known: end to end, on the real kernel. Needs root, as the capture does.

#![allow(clippy::unwrap_used)]

mod command;
mod container;
mod devices;
mod place;
mod quota;
mod table;
