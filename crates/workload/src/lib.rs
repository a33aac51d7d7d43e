//! What one task does over and over: built in, a will-it-scale C test case, or a command template.
