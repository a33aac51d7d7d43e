//! Reading a trace file, block by block.

use std::io::Read;

use zstd::bulk::Decompressor;

use super::decode::{Damage, Decoder};
use super::{HEADER, KIND_END, KIND_RECORDS, MAGIC, MAX_PAYLOAD, MAX_RAW, VERSION};
use crate::error::Error;
use crate::event::Event;
use crate::ids::TimeNs;
use crate::source::Source;
use crate::tables::{Definition, Tables};

/// Tables larger than this are refused, unless another limit is set.
const TABLE_LIMIT: usize = 1 << 30;

/// How the file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has not been read to its end yet.
    NotYet,
    /// It was finished by its writer.
    Complete,
    /// It ends before its end mark: whoever wrote it was interrupted, or it was cut.
    Cut,
    /// A block is damaged (and why); everything before it was read.
    Damaged(&'static str),
}

/// Reads a trace file. It keeps the tables and one block in memory.
pub struct Reader<R: Read> {
    input: R,
    decompressor: Decompressor<'static>,
    payload: Vec<u8>,
    raw: Vec<u8>,
    tables: Tables,
    table_bytes: usize,
    table_limit: usize,
    blocks: u64,
    end: End,
}

/// The checksum of a block: of its header without the checksum, and its payload.
pub(super) fn checksum(header: &[u8; HEADER], payload: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&header[..8]);
    sum.update(&header[12..]);
    sum.update(payload);
    sum.finalize()
}

impl<R: Read> Reader<R> {
    /// Opens a file.
    ///
    /// # Errors
    /// When it is no trace file, was written by a newer version, or cannot be read.
    pub fn new(mut input: R) -> Result<Reader<R>, Error> {
        let mut head = [0; 12];
        if read_up_to(&mut input, &mut head)? < head.len() || &head[..8] != MAGIC {
            return Err(Error::NotATrace);
        }
        let found = u32_at(&head, 8);
        if found == 0 || found > VERSION {
            return Err(Error::Version { found, known: VERSION });
        }
        Ok(Reader {
            input,
            decompressor: Decompressor::new()?,
            payload: Vec::new(),
            raw: Vec::new(),
            tables: Tables::default(),
            table_bytes: 0,
            table_limit: TABLE_LIMIT,
            blocks: 0,
            end: End::NotYet,
        })
    }

    /// Refuses tables of more than about `bytes` (1 GiB otherwise).
    pub fn limit_tables(&mut self, bytes: usize) {
        self.table_limit = bytes;
    }

    /// How the file ended.
    pub fn end(&self) -> End {
        self.end
    }

    /// The tables, after everything was read.
    pub fn into_tables(self) -> Tables {
        self.tables
    }

    /// Reads the next block's bytes into `raw`. `Ok(None)` when the file ends here.
    fn block(&mut self) -> Result<Option<(u32, TimeNs)>, Error> {
        let mut header = [0; HEADER];
        if read_up_to(&mut self.input, &mut header)? < HEADER {
            self.end = End::Cut;
            return Ok(None);
        }
        let payload_len = u32_at(&header, 0) as usize;
        let raw_len = u32_at(&header, 4) as usize;
        if payload_len > MAX_PAYLOAD || raw_len > MAX_RAW {
            self.end = End::Damaged("a block is too large");
            return Ok(None);
        }
        self.payload.resize(payload_len, 0);
        if read_up_to(&mut self.input, &mut self.payload)? < payload_len {
            self.end = End::Cut;
            return Ok(None);
        }
        if checksum(&header, &self.payload) != u32_at(&header, 8) {
            self.end = End::Damaged("a block's checksum is wrong");
            return Ok(None);
        }
        self.raw.resize(raw_len, 0);
        match self.decompressor.decompress_to_buffer(&self.payload, &mut self.raw[..]) {
            Ok(n) if n == raw_len => {}
            _ => {
                self.end = End::Damaged("a block cannot be decompressed");
                return Ok(None);
            }
        }
        let first = u64::from(u32_at(&header, 16)) | u64::from(u32_at(&header, 20)) << 32;
        Ok(Some((u32_at(&header, 12), TimeNs(first))))
    }

    fn records(&mut self, first: TimeNs, events: &mut Vec<Event>) -> Result<(), Damage> {
        let raw = std::mem::take(&mut self.raw);
        let mut decoder = Decoder::new(&raw, first);
        let result = loop {
            match decoder.events(events) {
                Ok(Some(definition)) => {
                    if let Err(damage) = self.define(definition) {
                        break Err(damage);
                    }
                }
                Ok(None) => break Ok(()),
                Err(damage) => break Err(damage),
            }
        };
        let defined = decoder.highest.defined(&self.tables);
        self.raw = raw;
        if !defined {
            // without their definitions the events mean nothing
            events.clear();
            return result.and(Err(&"an event refers to something undefined"));
        }
        result
    }

    fn define(&mut self, definition: Definition) -> Result<(), Damage> {
        let tables = &mut self.tables;
        self.table_bytes += match &definition {
            Definition::Str(_, text) => text.len() + 16,
            Definition::Symbol(..) | Definition::Cgroup(..) => 8,
            Definition::Stack(_, frames) => frames.len() * 4 + 16,
            // a task that changes is counted again for its names only
            Definition::Task(id, task) => {
                task.names.len() * 16 + if tables.has_task(*id) { 0 } else { size_of_val(task) }
            }
            Definition::Lock(_, lock) => size_of_val(lock),
            Definition::Meta(_) | Definition::Summary(_) => 0,
        };
        if self.table_bytes > self.table_limit {
            return Err(&"its tables are too large");
        }
        match definition {
            Definition::Meta(meta) => tables.meta = meta,
            Definition::Summary(summary) => tables.summary = summary,
            Definition::Str(id, text) => add(&mut tables.strings, id.index(), text.into())?,
            Definition::Symbol(id, symbol) => add(&mut tables.symbols, id.index(), symbol)?,
            Definition::Stack(id, frames) => add(&mut tables.stacks, id.index(), frames.into())?,
            Definition::Cgroup(id, path) => add(&mut tables.cgroups, id.index(), path)?,
            Definition::Task(id, task) => put(&mut tables.tasks, id.index(), task)?,
            Definition::Lock(id, lock) => put(&mut tables.locks, id.index(), lock)?,
        }
        Ok(())
    }
}

impl<R: Read> Source for Reader<R> {
    fn tables(&self) -> &Tables {
        &self.tables
    }

    fn next_batch(&mut self, events: &mut Vec<Event>) -> Result<bool, Error> {
        events.clear();
        if self.end != End::NotYet {
            return Ok(false);
        }
        if let Some((kind, first)) = self.block()? {
            match self.records(first, events) {
                Err(&why) => self.end = End::Damaged(why),
                Ok(()) if kind == KIND_END => self.end = End::Complete,
                Ok(()) if kind == KIND_RECORDS => {}
                Ok(()) => self.end = End::Damaged("a block is of an unknown kind"),
            }
        }
        if let End::Damaged(why) = self.end
            && self.blocks == 0
            && events.is_empty()
        {
            return Err(Error::Damaged(why));
        }
        self.blocks += 1;
        Ok(!events.is_empty() || self.end == End::NotYet)
    }
}

/// Reads until `buffer` is full or the input ends; how much was read.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, Error> {
    let mut done = 0;
    while done < buffer.len() {
        match input.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Adds row `index`, which must be the next.
fn add<T>(table: &mut Vec<T>, index: usize, row: T) -> Result<(), Damage> {
    if index != table.len() {
        return Err(&"a definition is out of order");
    }
    table.push(row);
    Ok(())
}

/// Adds row `index`, which must be the next, or replaces it.
fn put<T>(table: &mut Vec<T>, index: usize, row: T) -> Result<(), Damage> {
    match table.get_mut(index) {
        Some(old) => *old = row,
        None => add(table, index, row)?,
    }
    Ok(())
}
