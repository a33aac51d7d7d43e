//! One file per subcommand: its options (`Args`) and what it does (`run`).

pub mod compare;
pub mod doctor;
pub mod list;
pub mod run;
pub mod show;
