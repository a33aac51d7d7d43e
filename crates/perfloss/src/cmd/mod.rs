//! One file per subcommand: its options (`Args`) and what it does (`run`).

mod choose;
pub mod compare;
pub mod doctor;
pub mod lab;
pub mod list;
pub mod offcpu;
pub mod record;
pub mod run;
pub mod shell;
pub mod show;
