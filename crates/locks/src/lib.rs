//! The kernel's sleeping locks and their adaptive variants, in user space.
