//! Empties the rings: small records as they are, large ones with their stacks interned and the mappings of their processes taken
//! while these live.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::layout::{self, LockInfo, RawBig, RawEvent, TaskSeed, big, ev};
use crate::loader::{BIG_SEQ, BIG_TAIL, EVENT_SEQ, Loaded, TAIL};
use crate::machine;
use crate::symbols::ProcessMaps;
use crate::sys;

/// A stack that was seen: its number in the [`Store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RawStack(pub u32);

/// Instead of the number of mappings: a user stack of a process whose mappings could not be read.
const NO_MAPS: u32 = u32::MAX;

/// What entries refer to: stacks, each once, and the mappings of processes.
#[derive(Default)]
pub struct Store {
    rows: Vec<(u32, Box<[u64]>)>,
    maps: HashMap<u32, Arc<ProcessMaps>>,
    by_process: HashMap<u32, u32>,
}

impl Store {
    /// Adds what came with a batch.
    pub fn extend(&mut self, batch: &mut Batch) {
        self.rows.append(&mut batch.stacks);
        for (number, maps) in batch.maps.drain(..) {
            self.by_process.insert(maps.tgid, number);
            self.maps.insert(number, maps);
        }
    }

    /// The addresses of a stack, leaf first.
    pub fn frames(&self, id: RawStack) -> &[u64] {
        self.rows.get(id.0 as usize).map_or(&[], |r| &r.1)
    }

    /// Whether it is a user stack, with or without mappings.
    pub fn is_user(&self, id: RawStack) -> bool {
        self.maps_number(id) != 0
    }

    /// The number of the mappings that a user stack refers to; 0 for kernel stacks.
    pub fn maps_number(&self, id: RawStack) -> u32 {
        self.rows.get(id.0 as usize).map_or(0, |r| r.0)
    }

    /// The mappings of the process that a user stack was taken of.
    pub fn maps(&self, id: RawStack) -> Option<&Arc<ProcessMaps>> {
        self.maps.get(&self.maps_number(id))
    }

    /// The last known mappings of a process.
    pub fn maps_of(&self, tgid: u32) -> Option<&ProcessMaps> {
        self.maps.get(self.by_process.get(&tgid)?).map(|m| &**m)
    }
}

/// The numbers that tasks have in /proc, by the kernel's own numbers.
pub struct OwnIds {
    /// None: they are the same.
    ids: Option<HashMap<u32, u32>>,
    /// /proc is of our namespace: numbers of another one would be those of strangers.
    proc_is_ours: bool,
}

impl OwnIds {
    /// Those of the tasks that are there at the start.
    pub fn new(seeds: &[TaskSeed]) -> OwnIds {
        let proc_is_ours = machine::proc_is_ours();
        let ids = machine::pid_namespace().map(|_| {
            let seen = seeds.iter().filter(|s| s.own_tid != 0 && proc_is_ours);
            seen.map(|s| (s.tid, s.own_tid)).collect()
        });
        OwnIds { ids, proc_is_ours }
    }

    /// The number of a task in /proc, if it is there.
    pub fn get(&self, tid: u32) -> Option<u32> {
        self.ids.as_ref().map_or(Some(tid), |ids| ids.get(&tid).copied())
    }

    /// Follows tasks that come and go.
    fn event(&mut self, event: &RawEvent) {
        let Some(ids) = &mut self.ids else { return };
        let own = (event.a >> 32) as u32;
        match event.kind {
            ev::FORK if own != 0 && self.proc_is_ours => drop(ids.insert(event.tid, own)),
            ev::FORK | ev::EXIT => drop(ids.remove(&event.tid)),
            _ => {}
        }
    }
}

/// What one emptying of the rings brought.
#[derive(Default)]
pub struct Batch {
    pub entries: Vec<Entry>,
    /// No record older than that can come later, except one by a program that was held up.
    pub safe: u64,
    stacks: Vec<(u32, Box<[u64]>)>,
    maps: Vec<(u32, Arc<ProcessMaps>)>,
}

/// A large record, made small.
#[derive(Clone)]
pub struct Note {
    pub kind: u8,
    pub flags: u8,
    pub tid: u32,
    pub tgid: u32,
    pub a: u64,
    pub b: u64,
    pub chance: u32,
    pub state: u32,
    /// None: there was none to take (not even an empty one), or it could not be taken.
    pub stack: Option<RawStack>,
    /// The error number of a stack that could not be taken.
    pub error: i16,
    pub comm: [u8; layout::COMM_LEN],
    /// A lock's description.
    pub lock: Option<Box<LockInfo>>,
    /// A process's command line.
    pub command: Option<Box<str>>,
}

/// One record of either kind.
pub enum Item {
    Event(RawEvent),
    Note(Box<Note>),
}

/// A record with its time and CPU.
pub struct Entry {
    pub ts: u64,
    pub cpu: u16,
    pub item: Item,
}

/// Reads the rings.
pub struct Reader {
    rings: Arc<Rings>,
    tails: Vec<u64>,
    big_tails: Vec<u64>,
    /// Time of the last record taken from each CPU's ring.
    last: Vec<u64>,
    /// Stacks by mappings and frames. No hash decides alone: stacks are compared.
    ids: HashMap<(u32, Box<[u64]>), RawStack>,
    /// By process: the number of its mappings, and these.
    current: HashMap<u32, (u32, Arc<ProcessMaps>)>,
    generations: u32,
    read_at: HashMap<u32, u64>,
    unreadable: HashSet<u32>,
    /// By process: when it was first wanted.
    first_seen: HashMap<u32, u64>,
    /// How long a process must have been there before its mappings are read: reading takes longer than a short-lived one's stacks.
    patience_ns: u64,
    own_ids: OwnIds,
    /// User stacks of processes whose mappings could not be read any more.
    pub late_maps: u64,
    batch: Batch,
}

/// The shared memory of the rings.
pub struct Rings {
    pub areas: Arc<sys::SharedArray<layout::CpuArea>>,
    pub events: Arc<sys::SharedArray<RawEvent>>,
    pub bigs: Arc<sys::SharedArray<RawBig>>,
    pub cpus: usize,
    pub events_per_cpu: usize,
    pub bigs_per_cpu: usize,
}

impl Rings {
    pub fn of(loaded: &Loaded) -> Rings {
        Rings {
            areas: loaded.areas.clone(),
            events: loaded.events.clone(),
            bigs: loaded.bigs.clone(),
            cpus: loaded.cpus,
            events_per_cpu: loaded.events_per_cpu,
            bigs_per_cpu: loaded.bigs_per_cpu,
        }
    }
}

/// Of a futex operation: the word is not shared with other processes.
const FUTEX_PRIVATE: u16 = 128;

/// After a jump into code that was mapped since, mappings are read again, but not more often.
const REREAD_NS: u64 = 100_000_000;

impl Reader {
    pub fn new(rings: Rings, patience_ns: u64, own_ids: OwnIds) -> Reader {
        let cpus = rings.cpus;
        Reader {
            rings: Arc::new(rings),
            tails: vec![0; cpus],
            big_tails: vec![0; cpus],
            last: vec![0; cpus],
            ids: HashMap::new(),
            current: HashMap::new(),
            generations: 0,
            read_at: HashMap::new(),
            unreadable: HashSet::new(),
            first_seen: HashMap::new(),
            patience_ns,
            own_ids,
            late_maps: 0,
            batch: Batch::default(),
        }
    }

    /// What is in the rings now.
    pub fn drain(&mut self) -> Batch {
        let mut safe = sys::monotonic_ns();
        let rings = self.rings.clone();
        for cpu in 0..rings.cpus {
            let head = rings.areas.read(cpu).head;
            let mut tail = self.tails[cpu];
            let base = cpu * rings.events_per_cpu;
            let mask = rings.events_per_cpu as u64 - 1;
            while tail != head {
                let at = base + (tail & mask) as usize;
                if rings.events.read_u32_acquire(at, EVENT_SEQ) != (tail as u32).wrapping_add(1) {
                    // reserved, not yet written
                    safe = safe.min(self.last[cpu]);
                    break;
                }
                let event = rings.events.read(at);
                self.last[cpu] = self.last[cpu].max(event.ts);
                self.own_ids.event(&event);
                let ts = match event.kind {
                    // a gap is told at its end
                    ev::LOST => event.a,
                    ev::FUTEX if event.x & FUTEX_PRIVATE == 0 => {
                        self.maps_of(event.other, &[], event.ts);
                        event.ts
                    }
                    _ => event.ts,
                };
                self.batch.entries.push(Entry { ts, cpu: cpu as u16, item: Item::Event(event) });
                tail += 1;
            }
            if tail != self.tails[cpu] {
                self.tails[cpu] = tail;
                rings.areas.write_u64_release(cpu, TAIL, tail);
            }
        }
        for cpu in 0..rings.cpus {
            let head = rings.areas.read(cpu).big_head;
            let base = cpu * rings.bigs_per_cpu;
            let mask = rings.bigs_per_cpu as u64 - 1;
            let start = self.big_tails[cpu];
            while self.big_tails[cpu] != head {
                let tail = self.big_tails[cpu];
                let at = base + (tail & mask) as usize;
                if rings.bigs.read_u32_acquire(at, BIG_SEQ) != (tail as u32).wrapping_add(1) {
                    break;
                }
                let record = rings.bigs.read(at);
                self.take(&record, cpu as u16);
                self.big_tails[cpu] = tail + 1;
            }
            if start != self.big_tails[cpu] {
                rings.areas.write_u64_release(cpu, BIG_TAIL, self.big_tails[cpu]);
            }
        }
        let mut batch = std::mem::take(&mut self.batch);
        batch.safe = safe;
        batch
    }

    fn take(&mut self, record: &RawBig, cpu: u16) {
        if record.kind == big::SKIP {
            return;
        }
        let mut note = self.note(record);
        match record.kind {
            big::LOCK => {
                let mut bytes = [0u8; layout::MAX_FRAMES * 8];
                for (to, word) in bytes.chunks_exact_mut(8).zip(record.ip) {
                    to.copy_from_slice(&word.to_ne_bytes());
                }
                note.lock = sys::from_bytes::<LockInfo>(&bytes).map(Box::new);
            }
            big::COMM if record.flags & layout::COMM_EXEC != 0 => {
                note.command = record.command().map(String::into_boxed_str);
                self.current.remove(&record.tgid);
                self.unreadable.remove(&record.tgid);
                self.first_seen.remove(&record.tgid);
            }
            _ => {}
        }
        self.batch.entries.push(Entry { ts: record.ts, cpu, item: Item::Note(Box::new(note)) });
    }

    /// A large record made small: its stack is interned.
    pub fn note(&mut self, record: &RawBig) -> Note {
        let stack = match record.kind {
            big::LOCK | big::COMM => None,
            big::WAIT_USER | big::OUT_USER | big::SAMPLE_USER => {
                self.user_stack(record.tgid, record.stack(), record.ts)
            }
            _ => self.intern(0, record.stack()),
        };
        Note {
            kind: record.kind,
            flags: record.flags,
            tid: record.tid,
            tgid: record.tgid,
            a: record.a,
            b: record.b,
            chance: record.chance,
            state: record.state,
            stack,
            error: record.frames.min(0),
            comm: record.comm,
            lock: None,
            command: None,
        }
    }

    fn intern(&mut self, maps: u32, frames: &[u64]) -> Option<RawStack> {
        if frames.is_empty() {
            return None;
        }
        let key = (maps, Box::from(frames));
        if let Some(id) = self.ids.get(&key) {
            return Some(*id);
        }
        let id = RawStack(self.ids.len() as u32);
        self.batch.stacks.push(key.clone());
        self.ids.insert(key, id);
        Some(id)
    }

    fn user_stack(&mut self, tgid: u32, frames: &[u64], now: u64) -> Option<RawStack> {
        if frames.is_empty() {
            return None;
        }
        let maps = self.maps_of(tgid, frames, now).unwrap_or(NO_MAPS);
        self.intern(maps, frames)
    }

    /// The mappings of a process as they are now, or were when it was last seen with code that they cover.
    fn maps_of(&mut self, tgid: u32, frames: &[u64], now: u64) -> Option<u32> {
        let known = self.current.get(&tgid);
        if let Some((number, maps)) = known {
            let covered = frames.iter().take(2).all(|f| maps.find(*f).is_some());
            let lately = self.read_at.get(&tgid).is_some_and(|t| now.saturating_sub(*t) < REREAD_NS);
            if covered || lately {
                return Some(*number);
            }
        } else if self.unreadable.contains(&tgid) {
            return None;
        } else if self.patience_ns > 0 {
            let first = *self.first_seen.entry(tgid).or_insert(now);
            if now.saturating_sub(first) < self.patience_ns {
                self.late_maps += u64::from(first == now);
                return None;
            }
        }
        let known = known.map(|k| k.0);
        self.read_at.insert(tgid, now);
        let own = self.own_ids.get(tgid).ok_or(std::io::ErrorKind::NotFound.into());
        match own.and_then(|own| ProcessMaps::read(tgid, own)) {
            Ok(maps) if !maps.mappings.is_empty() => {
                self.generations += 1;
                let maps = Arc::new(maps);
                self.batch.maps.push((self.generations, maps.clone()));
                self.current.insert(tgid, (self.generations, maps));
                Some(self.generations)
            }
            // it is gone, or a kernel thread
            _ => {
                self.late_maps += 1;
                if known.is_none() {
                    self.unreadable.insert(tgid);
                }
                known
            }
        }
    }

    /// Records that are waiting in the rings, as parts of the fullest ring's size.
    pub fn fullest(&self) -> f64 {
        (0..self.rings.cpus)
            .map(|cpu| {
                let area = self.rings.areas.read(cpu);
                let small =
                    area.head.saturating_sub(self.tails[cpu]) as f64 / self.rings.events_per_cpu as f64;
                let large =
                    area.big_head.saturating_sub(self.big_tails[cpu]) as f64 / self.rings.bigs_per_cpu as f64;
                small.max(large)
            })
            .fold(0.0, f64::max)
    }
}
