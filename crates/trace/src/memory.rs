//! A whole trace in memory.

use crate::builder::Builder;
use crate::error::Error;
use crate::event::Event;
use crate::source::Source;
use crate::tables::Tables;

/// A trace in memory: tables and events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    pub(crate) tables: Tables,
    pub(crate) events: Vec<Event>,
}

impl Trace {
    /// What the handles stand for.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The events, in order of time.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Reads a whole source into memory.
    ///
    /// # Errors
    /// What the source fails with.
    pub fn read(source: &mut impl Source) -> Result<Trace, Error> {
        let mut events = Vec::new();
        let mut batch = Vec::new();
        while source.next_batch(&mut batch)? {
            events.extend_from_slice(&batch);
        }
        Ok(Trace { tables: source.tables().clone(), events })
    }

    /// A source that gives this trace's events.
    pub fn source(&self) -> TraceSource<'_> {
        TraceSource { trace: self, next: 0 }
    }

    /// A builder that has this trace's tables and events, all of them yet to be written.
    pub fn into_builder(self) -> Builder {
        Builder::from_trace(self)
    }
}

/// The events of a [`Trace`], batch by batch.
#[derive(Debug)]
pub struct TraceSource<'a> {
    trace: &'a Trace,
    next: usize,
}

impl Source for TraceSource<'_> {
    fn tables(&self) -> &Tables {
        &self.trace.tables
    }

    fn next_batch(&mut self, events: &mut Vec<Event>) -> Result<bool, Error> {
        const BATCH: usize = 4096;
        events.clear();
        let rest = &self.trace.events[self.next.min(self.trace.events.len())..];
        let batch = &rest[..rest.len().min(BATCH)];
        events.extend_from_slice(batch);
        self.next += batch.len();
        Ok(!batch.is_empty())
    }
}
