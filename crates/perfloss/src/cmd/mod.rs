//! One file per subcommand: its options (`Args`) and what it does (`run`).

