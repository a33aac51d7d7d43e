//! Where events come from, for who reads them.

use crate::error::Error;
use crate::event::Event;
use crate::tables::Tables;

/// A stream of events in order of time, in batches, with the tables that their handles refer to.
pub trait Source {
    /// The tables, as far as they are known: they grow from batch to batch.
    fn tables(&self) -> &Tables;

    /// Replaces the contents of `events` by the next batch (which may be empty); false at the end.
    ///
    /// # Errors
    /// What the underlying reader fails with; a cut file is not an error, but an end (see [`crate::Reader::end`]).
    fn next_batch(&mut self, events: &mut Vec<Event>) -> Result<bool, Error>;
}
