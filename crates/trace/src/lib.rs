//! What a capture saw: events, stacks, tasks and locks as typed tables, and the trace file.
