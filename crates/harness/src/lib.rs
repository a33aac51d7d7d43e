//! Runs tasks in rounds and counts what they do and what the CPUs did meanwhile.
