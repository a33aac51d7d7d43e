//! Reads from the kernel what every task did: BPF programs, loader, symbols, lock names.
