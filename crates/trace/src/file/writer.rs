//! Writing a trace file as the capture goes.

use std::io::Write;

use zstd::bulk::Compressor;

use super::{HEADER, KIND_END, KIND_RECORDS, MAGIC, MAX_FRAMES, MAX_NAMES, MAX_STRING, VERSION, encode};
use crate::builder::Builder;
use crate::error::Error;
use crate::event::Event;
use crate::ids::TimeNs;
use crate::tables::Definition;

/// A block is written when it is that large before compression. With the largest record it stays below `MAX_RAW`.
const BLOCK: usize = 256 << 10;

/// Writes a trace file. Call [`Writer::append`] as often as wanted and [`Writer::finish`] once: a file that was not
/// finished is read as one that was cut.
pub struct Writer<W: Write> {
    out: W,
    compressor: Compressor<'static>,
    raw: Vec<u8>,
    first: Option<TimeNs>,
    last: TimeNs,
    bytes: u64,
    cut: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a file. `out` gets whole blocks, so it needs no buffer of its own.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn new(mut out: W) -> Result<Writer<W>, Error> {
        let mut head = [0; 12];
        head[..8].copy_from_slice(MAGIC);
        head[8..].copy_from_slice(&VERSION.to_le_bytes());
        out.write_all(&head)?;
        let compressor = Compressor::new(1)?;
        let raw = Vec::with_capacity(BLOCK + (BLOCK >> 2));
        Ok(Writer { out, compressor, raw, first: None, last: TimeNs(0), bytes: head.len() as u64, cut: 0 })
    }

    /// Writes what is new in `builder` and makes it forget the events.
    ///
    /// # Errors
    /// When the output fails.
    pub fn append(&mut self, builder: &mut Builder) -> Result<(), Error> {
        let mut result = Ok(());
        builder.take_definitions(|definition| {
            if result.is_ok() {
                result = self.definition(&definition);
            }
        });
        result?;
        // events may use any of the definitions, which are in this block or an earlier one
        let mut result = Ok(());
        builder.take_events(|event| {
            if result.is_ok() {
                result = self.event(event);
            }
        });
        result
    }

    /// Writes what is left in `builder`, its summary and the end mark, and gives the output back.
    ///
    /// # Errors
    /// When the output fails.
    pub fn finish(mut self, builder: &mut Builder) -> Result<W, Error> {
        self.append(builder)?;
        self.flush(KIND_RECORDS)?;
        let mut summary = *builder.tables().summary();
        summary.truncated_names += self.cut;
        encode::definition(&mut self.raw, &Definition::Summary(summary));
        self.flush(KIND_END)?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// How many bytes were written so far (of whole blocks).
    pub fn bytes_written(&self) -> u64 {
        self.bytes
    }

    fn definition(&mut self, definition: &Definition) -> Result<(), Error> {
        self.cut += match definition {
            Definition::Str(_, text) => u64::from(text.len() > MAX_STRING),
            Definition::Stack(_, frames) => u64::from(frames.len() > MAX_FRAMES),
            Definition::Task(_, task) => u64::from(task.names.len() > MAX_NAMES),
            _ => 0,
        };
        encode::definition(&mut self.raw, definition);
        self.flush_if_full()
    }

    fn event(&mut self, event: &Event) -> Result<(), Error> {
        if self.first.is_none() {
            self.first = Some(event.time);
            self.last = event.time;
        }
        encode::event(&mut self.raw, event, self.last);
        self.last = event.time;
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> Result<(), Error> {
        if self.raw.len() < BLOCK { Ok(()) } else { self.flush(KIND_RECORDS) }
    }

    fn flush(&mut self, kind: u32) -> Result<(), Error> {
        if self.raw.is_empty() {
            return Ok(());
        }
        let payload = self.compressor.compress(&self.raw)?;
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&(self.raw.len() as u32).to_le_bytes());
        header[12..16].copy_from_slice(&kind.to_le_bytes());
        header[16..].copy_from_slice(&self.first.unwrap_or_default().0.to_le_bytes());
        let sum = super::reader::checksum(&header, &payload);
        header[8..12].copy_from_slice(&sum.to_le_bytes());
        self.out.write_all(&header)?;
        self.out.write_all(&payload)?;
        self.bytes += (HEADER + payload.len()) as u64;
        self.raw.clear();
        self.first = None;
        Ok(())
    }
}
