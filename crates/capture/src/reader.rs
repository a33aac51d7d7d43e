//! Empties the rings: small records as they are, large ones with their stacks interned and the mappings of their processes taken
//! while these live.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

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

impl Rings {
    /// Where the small record with that number is.
    fn event_at(&self, cpu: usize, number: u64) -> usize {
        cpu * self.events_per_cpu + (number & (self.events_per_cpu as u64 - 1)) as usize
    }

    /// Where the large record with that number is.
    fn big_at(&self, cpu: usize, number: u64) -> usize {
        cpu * self.bigs_per_cpu + (number & (self.bigs_per_cpu as u64 - 1)) as usize
    }
}

/// Whether a record carries the number that is written last.
fn is_published(seq: u32, number: u64) -> bool {
    seq == (number as u32).wrapping_add(1)
}

/// Records that programs had begun to write when the capture ended, and did not finish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Small ones, by CPU.
    pub events: Vec<u64>,
    /// Large ones. How long the waits were is not known.
    pub stacks: u64,
}

/// How long a program that writes a record when the capture ends is waited for.
pub const PATIENCE: Duration = Duration::from_millis(200);

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
        let safe = self.read_rings();
        Batch { safe, ..std::mem::take(&mut self.batch) }
    }

    /// What is in the rings when nobody writes any more, except programs that were held up while they wrote (a hypervisor took
    /// their CPU). These are waited for, `patience` at most; what they have not finished then is lost, and nothing else.
    pub fn drain_rest(&mut self, patience: Duration) -> (Batch, Unfinished) {
        let end = Instant::now() + patience;
        let mut safe = self.read_rings();
        while self.fullest() > 0.0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            safe = self.read_rings();
        }
        let unfinished = self.skip_unfinished();
        (Batch { safe, ..std::mem::take(&mut self.batch) }, unfinished)
    }

    /// Takes what is published. No record older than the returned time can come later.
    fn read_rings(&mut self) -> u64 {
        let mut safe = sys::monotonic_ns();
        for cpu in 0..self.rings.cpus {
            if !self.read_events(cpu) {
                safe = safe.min(self.last[cpu]);
            }
        }
        for cpu in 0..self.rings.cpus {
            self.read_bigs(cpu);
        }
        safe
    }

    /// Takes small records up to the first that is reserved and not yet written. Whether there was none.
    fn read_events(&mut self, cpu: usize) -> bool {
        let rings = self.rings.clone();
        let head = rings.areas.read(cpu).head;
        let start = self.tails[cpu];
        while self.tails[cpu] != head {
            let tail = self.tails[cpu];
            let at = rings.event_at(cpu, tail);
            if !is_published(rings.events.read_u32_acquire(at, EVENT_SEQ), tail) {
                break;
            }
            let event = rings.events.read(at);
            self.last[cpu] = self.last[cpu].max(event.ts);
            self.own_ids.event(&event);
            if event.kind == ev::FUTEX && event.x & FUTEX_PRIVATE == 0 {
                self.maps_of(event.other, &[], event.ts);
            }
            self.push(cpu, event);
            self.tails[cpu] = tail + 1;
        }
        if self.tails[cpu] != start {
            rings.areas.write_u64_release(cpu, TAIL, self.tails[cpu]);
        }
        self.tails[cpu] == head
    }

    fn push(&mut self, cpu: usize, event: RawEvent) {
        // a gap is told at its end
        let ts = if event.kind == ev::LOST { event.a } else { event.ts };
        self.batch.entries.push(Entry { ts, cpu: cpu as u16, item: Item::Event(event) });
    }

    /// The same of large records.
    fn read_bigs(&mut self, cpu: usize) -> bool {
        let rings = self.rings.clone();
        let head = rings.areas.read(cpu).big_head;
        let start = self.big_tails[cpu];
        while self.big_tails[cpu] != head {
            let tail = self.big_tails[cpu];
            let at = rings.big_at(cpu, tail);
            if !is_published(rings.bigs.read_u32_acquire(at, BIG_SEQ), tail) {
                break;
            }
            let record = rings.bigs.read(at);
            self.take(&record, cpu as u16);
            self.big_tails[cpu] = tail + 1;
        }
        if start != self.big_tails[cpu] {
            rings.areas.write_u64_release(cpu, BIG_TAIL, self.big_tails[cpu]);
        }
        self.big_tails[cpu] == head
    }

    /// Gives up records that are reserved and not written, and takes those behind them.
    fn skip_unfinished(&mut self) -> Unfinished {
        let mut unfinished = Unfinished { events: vec![0; self.rings.cpus], stacks: 0 };
        for cpu in 0..self.rings.cpus {
            while !self.read_events(cpu) {
                let since = self.last[cpu];
                let mut count = 0;
                let rings = self.rings.clone();
                let head = rings.areas.read(cpu).head;
                let mut until = sys::monotonic_ns();
                while self.tails[cpu] != head {
                    let at = rings.event_at(cpu, self.tails[cpu]);
                    if is_published(rings.events.read_u32_acquire(at, EVENT_SEQ), self.tails[cpu]) {
                        until = rings.events.read(at).ts;
                        break;
                    }
                    self.tails[cpu] += 1;
                    count += 1;
                }
                unfinished.events[cpu] += u64::from(count);
                self.push(
                    cpu,
                    RawEvent { ts: since, a: until, tid: count, kind: ev::LOST, ..RawEvent::default() },
                );
            }
            while !self.read_bigs(cpu) {
                self.big_tails[cpu] += 1;
                unfinished.stacks += 1;
            }
        }
        unfinished
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    const CPUS: usize = 2;

    /// Rings as the programs write them, in memory of the test's own.
    fn rings() -> Rings {
        fn array<T: sys::Plain>(len: usize) -> Arc<sys::SharedArray<T>> {
            let file = rustix::fs::memfd_create("rings", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
            rustix::fs::ftruncate(&file, (len * size_of::<T>()).next_multiple_of(4096) as u64)
                .expect("memory");
            Arc::new(sys::SharedArray::new(file.as_fd(), len).expect("memory"))
        }
        let (events_per_cpu, bigs_per_cpu) = (8, 4);
        Rings {
            areas: array(CPUS),
            events: array(CPUS * events_per_cpu),
            bigs: array(CPUS * bigs_per_cpu),
            cpus: CPUS,
            events_per_cpu,
            bigs_per_cpu,
        }
    }

    /// Writes small record `number` at 100 ns times its number.
    fn publish(rings: &Rings, cpu: usize, number: u64) {
        let event =
            RawEvent { ts: number * 100, kind: ev::WORK_END, seq: number as u32 + 1, ..RawEvent::default() };
        rings.events.write(rings.event_at(cpu, number), event);
    }

    fn publish_big(rings: &Rings, cpu: usize, number: u64) {
        let record = RawBig {
            ts: number * 100,
            kind: big::WAIT_KERNEL,
            seq: number as u32 + 1,
            ..sys::from_bytes(&[0; size_of::<RawBig>()]).expect("as many")
        };
        rings.bigs.write(rings.big_at(cpu, number), record);
    }

    fn reader(rings: &Arc<Rings>) -> Reader {
        let Rings { areas, events, bigs, .. } = &**rings;
        let same = Rings { areas: areas.clone(), events: events.clone(), bigs: bigs.clone(), ..**rings };
        Reader::new(same, 0, OwnIds::new(&[]))
    }

    /// Kinds and times of a batch.
    fn seen(batch: &Batch) -> Vec<(u8, u64)> {
        let one = |e: &Entry| match &e.item {
            Item::Event(event) => (event.kind, e.ts),
            Item::Note(note) => (100 + note.kind, e.ts),
        };
        batch.entries.iter().map(one).collect()
    }

    #[test]
    fn a_record_that_is_never_finished_is_lost_and_nothing_behind_it() {
        let rings = Arc::new(rings());
        let mut reader = reader(&rings);
        [1, 2, 5, 7].iter().for_each(|n| publish(&rings, 0, n - 1));
        publish(&rings, 1, 0);
        publish_big(&rings, 0, 1);
        rings.areas.write(0, layout::CpuArea { head: 8, big_head: 3, ..Default::default() });
        rings.areas.write(1, layout::CpuArea { head: 1, ..Default::default() });

        // while the capture runs they may still come
        let batch = reader.drain();
        assert_eq!(seen(&batch), [(ev::WORK_END, 0), (ev::WORK_END, 100), (ev::WORK_END, 0)]);
        assert_eq!(batch.safe, 100);

        let before = sys::monotonic_ns();
        let (batch, unfinished) = reader.drain_rest(Duration::from_millis(5));
        assert!(sys::monotonic_ns() - before >= 5_000_000, "it may still be written");
        assert_eq!(unfinished, Unfinished { events: vec![4, 0], stacks: 2 });
        let gaps: Vec<_> = batch
            .entries
            .iter()
            .filter_map(|e| match &e.item {
                Item::Event(event) if event.kind == ev::LOST => Some((event.tid, event.ts, event.a)),
                _ => None,
            })
            .collect();
        assert_eq!(gaps[..2], [(2, 100, 400), (1, 400, 600)]);
        // the last one has no end but now
        assert!(matches!(gaps[2..], [(1, 600, until)] if until > before));
        let kinds: Vec<u8> = seen(&batch).iter().map(|s| s.0).collect();
        assert_eq!(kinds, [ev::LOST, ev::WORK_END, ev::LOST, ev::WORK_END, ev::LOST, 100 + big::WAIT_KERNEL]);
        assert_eq!(reader.fullest(), 0.0);
    }

    #[test]
    fn a_record_that_is_finished_late_is_waited_for() {
        let rings = Arc::new(rings());
        let mut reader = reader(&rings);
        publish(&rings, 0, 1);
        rings.areas.write(0, layout::CpuArea { head: 2, big_head: 1, ..Default::default() });
        let late = std::thread::spawn({
            let rings = rings.clone();
            move || {
                std::thread::sleep(Duration::from_millis(20));
                publish(&rings, 0, 0);
                publish_big(&rings, 0, 0);
            }
        });
        let (batch, unfinished) = reader.drain_rest(Duration::from_secs(600));
        late.join().expect("writes");
        assert_eq!(unfinished, Unfinished { events: vec![0; CPUS], stacks: 0 });
        assert_eq!(seen(&batch), [(ev::WORK_END, 0), (ev::WORK_END, 100), (100 + big::WAIT_KERNEL, 0)]);
    }
}
