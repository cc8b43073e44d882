//! What does a reader see of a run? One cache line.
//!
//! | word | content |
//! |---|---|
//! | 0 | version: odd while the writer is at it, and as long as the record is not in use; 0 if it never was. In the top bits the run that follows at the usual departure, a hint |
//! | 1, 2 | key of the first block, key of the last |
//! | 3 | number of blocks, the cut-offs of the two inline levels, flags |
//! | 4 | the slots that hold all of it |
//! | 5, 6 | the slots that hold the first so many blocks, for the two inline levels |
//! | 7 | where keys and labels are, and where further levels and lower tiers are |
//!
//! **Invariant:** versions only grow, over every use of a record. A reader who finds the same even version before and
//! after has read one state. A slot is in at most one of the sets, and in none if it does not hold the first block.

use std::sync::Arc;

use crate::chunk::{CHUNK_WORDS, Chunk, prefetch};
use crate::heap::Addr;
use crate::sets::SlotSet;
use crate::spares::Reserve;
use crate::sync::{AtomicU64, Ordering, fence};

/// Number of a run. 0 is none.
pub(crate) type RunId = u32;

/// No run is longer; an offset fits 12 bits.
#[cfg(not(shuttle))]
pub(crate) const MAX_RUN: usize = 1 << 12;
/// No run is longer: an extent must fit the small chunks used under the schedule explorer.
#[cfg(shuttle)]
pub(crate) const MAX_RUN: usize = 12;

/// There are no more runs than this; a run and an offset fit a table's value.
pub(crate) const MAX_RUNS: usize = 1 << 26;

const RECORD_WORDS: usize = 8;
/// The version takes the lowest bits of its word; the top bits are a hint.
const VERSION_BITS: u32 = 38;

/// The version of a record that was never in use.
pub(crate) const UNUSED: u64 = 0;
const PER_CHUNK: usize = CHUNK_WORDS / RECORD_WORDS;

/// Some run follows a block of this one.
pub(crate) const HAS_CHILDREN: u16 = 1;
/// Coverage for lower tiers differs from that for the device and is in the extra extent.
pub(crate) const HAS_LOWER: u16 = 2;

/// The flags take the lowest bits of the last part of the shape word, and the usual departure the others.
const FLAG_BITS: u32 = 2;

/// The shape word, decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) len: u16,
    pub(crate) cuts: [u16; 2],
    pub(crate) flags: u16,
    /// After how many blocks the first run that follows this one leaves it: others often leave there too. A hint.
    pub(crate) departure: u16,
}

impl Shape {
    #[inline]
    pub(crate) fn decode(word: u64) -> Self {
        let last = (word >> 48) as u16;
        Self {
            len: word as u16,
            cuts: [(word >> 16) as u16, (word >> 32) as u16],
            flags: last & ((1 << FLAG_BITS) - 1),
            departure: last >> FLAG_BITS,
        }
    }

    fn encode(self) -> u64 {
        let last = u64::from(self.departure << FLAG_BITS | self.flags);
        u64::from(self.len) | u64::from(self.cuts[0]) << 16 | u64::from(self.cuts[1]) << 32 | last << 48
    }
}

/// The content of a record, decoded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fields {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) shape: Shape,
    pub(crate) full: SlotSet,
    pub(crate) levels: [SlotSet; 2],
    pub(crate) blocks: Addr,
    pub(crate) extra: Addr,
}

/// One run's line.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a>(&'a [AtomicU64; RECORD_WORDS]);

impl Record<'_> {
    /// The version, before the fields are read.
    #[inline]
    pub(crate) fn version(self) -> u64 {
        self.0[0].load(Ordering::Acquire)
    }

    /// Whether the version is still the same, after the fields (and whatever they lead to) were read.
    #[inline]
    pub(crate) fn is_still(self, version: u64) -> bool {
        fence(Ordering::Acquire);
        self.0[0].load(Ordering::Relaxed) == version
    }

    /// The run that probably follows at the usual departure, from the word that [`Record::version`] returned.
    #[inline]
    pub(crate) fn usual_child(version: u64) -> RunId {
        (version >> VERSION_BITS) as RunId
    }

    /// Asks for the record's line.
    #[inline]
    pub(crate) fn prefetch(self) {
        prefetch(self.0);
    }

    #[inline]
    pub(crate) fn fields(self) -> Fields {
        let word = |index: usize| self.0[index].load(Ordering::Relaxed);
        let places = word(7);
        Fields {
            first: word(1),
            last: word(2),
            shape: Shape::decode(word(3)),
            full: SlotSet(word(4)),
            levels: [SlotSet(word(5)), SlotSet(word(6))],
            blocks: places as u32,
            extra: (places >> 32) as u32,
        }
    }

    #[inline]
    pub(crate) fn first(self) -> u64 {
        self.0[1].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn shape(self) -> Shape {
        Shape::decode(self.0[3].load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn blocks(self) -> Addr {
        self.0[7].load(Ordering::Relaxed) as u32
    }

    /// A record that was never in use gets an odd version, as one has that is not in use any more.
    fn claim(self) {
        if self.version() == UNUSED {
            self.0[0].store(UNUSED + 1, Ordering::Relaxed);
        }
    }

    /// The writer begins to change the record, or anything that readers reach only through it.
    pub(crate) fn begin(self) {
        let version = self.0[0].load(Ordering::Relaxed);
        debug_assert_eq!(version % 2, 0, "writes do not nest");
        self.0[0].store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Notes which run follows at the usual departure. Within a write.
    pub(crate) fn set_usual_child(self, run: RunId) {
        let version = self.0[0].load(Ordering::Relaxed) & ((1 << VERSION_BITS) - 1);
        debug_assert_eq!(version % 2, 1);
        self.0[0].store(version | u64::from(run) << VERSION_BITS, Ordering::Relaxed);
    }

    pub(crate) fn put(self, fields: &Fields) {
        let put = |index: usize, word: u64| self.0[index].store(word, Ordering::Relaxed);
        put(1, fields.first);
        put(2, fields.last);
        put(3, fields.shape.encode());
        put(4, fields.full.0);
        put(5, fields.levels[0].0);
        put(6, fields.levels[1].0);
        put(7, u64::from(fields.blocks) | u64::from(fields.extra) << 32);
    }

    /// The writer is done.
    pub(crate) fn end(self) {
        let version = self.0[0].load(Ordering::Relaxed);
        debug_assert_eq!(version % 2, 1);
        self.0[0].store(version + 1, Ordering::Release);
    }
}

/// The records that exist, as readers see them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordDirectory {
    chunks: Vec<Arc<Chunk>>,
}

impl RecordDirectory {
    #[inline]
    pub(crate) fn get(&self, run: RunId) -> Option<Record<'_>> {
        record_in(self.chunks.get(run as usize / PER_CHUNK)?, run)
    }
}

#[inline]
fn record_in(chunk: &Chunk, run: RunId) -> Option<Record<'_>> {
    let (records, _) = chunk.as_chunks::<RECORD_WORDS>();
    records.get(run as usize % PER_CHUNK).map(Record)
}

/// What only the writer knows of a run.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "four marks that do not exclude each other")]
pub(crate) struct RunMeta {
    /// The run that this one follows, after which of its blocks; 0 at the beginning of a sequence, or if dangling.
    pub(crate) parent: RunId,
    /// Runs that follow this one, as a list through their own `next` and `prev`.
    pub(crate) first_kid: RunId,
    pub(crate) next: RunId,
    pub(crate) prev: RunId,
    /// Blocks before the first of this run.
    pub(crate) depth: u32,
    pub(crate) parent_offset: u16,
    /// At least one more than the highest offset that a child follows.
    pub(crate) kid_reach: u16,
    /// Slots with details about this run.
    pub(crate) details: u16,
    /// Of those, slots that hold blocks beyond their leading part.
    pub(crate) beyond: u16,
    /// The block before this run is not in the index.
    pub(crate) dangling: bool,
    /// Written to since the hand of the clock passed.
    pub(crate) recent: bool,
    /// In the list of runs to be cut shorter.
    pub(crate) untrimmed: bool,
    pub(crate) in_use: bool,
}

#[derive(Debug)]
struct Part {
    chunk: Arc<Chunk>,
    /// Of the records that were ever in use.
    meta: Vec<RunMeta>,
    /// Records that were in use and are not any more.
    free: Vec<u16>,
}

/// All runs: the writer's side.
#[derive(Debug)]
pub(crate) struct Runs {
    parts: Vec<Part>,
    live: usize,
    reserve: Reserve,
    /// Set when the directory that readers have is out of date.
    pub(crate) changed: bool,
}

impl Runs {
    /// With room for the first runs, and the place where more comes from.
    pub(crate) fn new(reserve: Reserve) -> Self {
        let mut runs = Self {
            parts: Vec::new(),
            live: 0,
            reserve,
            changed: true,
        };
        runs.open();
        // Run 0 means "none".
        runs.parts[0].meta.push(RunMeta::default());
        runs
    }

    pub(crate) fn directory(&self) -> RecordDirectory {
        RecordDirectory {
            chunks: self.parts.iter().map(|part| part.chunk.clone()).collect(),
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// All numbers in use are below this, and those above 0 that are below it have been in use.
    pub(crate) fn bound(&self) -> RunId {
        let last = self.parts.len() - 1;
        (last * PER_CHUNK + self.parts[last].meta.len()) as RunId
    }

    pub(crate) fn bytes(&self) -> u64 {
        ((self.parts.len() + self.reserve.len()) * (CHUNK_WORDS * 8 + PER_CHUNK * size_of::<RunMeta>())) as u64
    }

    /// A record that is not in use, in the lowest part that has one. Its version is odd until it is published.
    /// `None` when there are as many runs as can be numbered.
    pub(crate) fn take(&mut self) -> Option<RunId> {
        let has_room = |part: &Part| !part.free.is_empty() || part.meta.len() < PER_CHUNK;
        let number = match self.parts.iter().position(has_room) {
            Some(number) => number,
            None if self.parts.len() * PER_CHUNK < MAX_RUNS => {
                self.open();
                self.parts.len() - 1
            }
            None => return None,
        };
        let part = &mut self.parts[number];
        let index = part.free.pop().map_or(part.meta.len(), usize::from);
        let meta = RunMeta {
            recent: true,
            in_use: true,
            ..RunMeta::default()
        };
        if index == part.meta.len() {
            part.meta.push(meta);
        } else {
            part.meta[index] = meta;
        }
        let run = (number * PER_CHUNK + index) as RunId;
        self.record(run).claim();
        self.live += 1;
        Some(run)
    }

    /// Gives up what was made ready: nothing is going on.
    pub(crate) fn relax(&mut self) {
        self.reserve.release();
    }

    /// Does a little of the work of making room for more runs, if it will be needed soon.
    pub(crate) fn prepare(&mut self) {
        let last = self.parts.last();
        if last.is_some_and(|part| part.free.is_empty() && part.meta.len() > PER_CHUNK / 2) {
            self.reserve.prepare();
        }
    }

    /// The record is not in use any more. Its version must have been made odd.
    pub(crate) fn give_back(&mut self, run: RunId) {
        debug_assert_eq!(self.record(run).version() % 2, 1);
        *self.meta_mut(run) = RunMeta::default();
        self.parts[run as usize / PER_CHUNK]
            .free
            .push((run as usize % PER_CHUNK) as u16);
        self.live -= 1;
    }

    #[inline]
    pub(crate) fn record(&self, run: RunId) -> Record<'_> {
        record_in(&self.parts[run as usize / PER_CHUNK].chunk, run).expect("every part has all its records")
    }

    /// Asks for what is known of a run.
    #[inline]
    pub(crate) fn prefetch(&self, run: RunId) {
        self.record(run).prefetch();
        prefetch(self.meta(run));
    }

    #[inline]
    pub(crate) fn meta(&self, run: RunId) -> &RunMeta {
        &self.parts[run as usize / PER_CHUNK].meta[run as usize % PER_CHUNK]
    }

    #[inline]
    pub(crate) fn meta_mut(&mut self, run: RunId) -> &mut RunMeta {
        &mut self.parts[run as usize / PER_CHUNK].meta[run as usize % PER_CHUNK]
    }

    /// Whether the highest part could be emptied into the others with room to spare.
    pub(crate) fn is_sparse(&self) -> bool {
        let rest = self.parts.len().saturating_sub(1) * PER_CHUNK;
        self.parts.len() > 1 && self.live * 8 < rest * 7
    }

    /// Some run in the highest part, or `None` after an empty part was dropped.
    pub(crate) fn highest(&mut self) -> Option<RunId> {
        let part = self.parts.len() - 1;
        let found = self.parts[part].meta.iter().position(|meta| meta.in_use);
        if found.is_none() && part > 0 {
            self.parts.pop();
            self.changed = true;
        }
        found.map(|index| (part * PER_CHUNK + index) as RunId)
    }

    fn open(&mut self) {
        // Capacity now, content as it is needed: filling all of it takes longer than anybody should wait.
        let part = Part {
            chunk: Arc::new(self.reserve.take()),
            meta: Vec::with_capacity(PER_CHUNK),
            free: Vec::new(),
        };
        self.parts.push(part);
        self.changed = true;
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_reader_notices_a_write() {
        let mut runs = Runs::new(Reserve::default());
        let run = runs.take().unwrap();
        let record = runs.record(run);
        assert_eq!(record.version() % 2, 1);
        record.put(&Fields {
            first: 5,
            ..Fields::default()
        });
        record.end();
        let version = record.version();
        assert_eq!((version % 2, record.first()), (0, 5));
        assert!(record.is_still(version));
        record.begin();
        assert!(!record.is_still(version));
        record.end();
        assert!(!record.is_still(version));
    }

    #[test]
    fn versions_grow_over_uses_of_a_record() {
        let mut runs = Runs::new(Reserve::default());
        let run = runs.take().unwrap();
        runs.record(run).end();
        let version = runs.record(run).version();
        runs.record(run).begin();
        runs.give_back(run);
        assert_eq!(runs.take(), Some(run));
        runs.record(run).end();
        assert!(runs.record(run).version() > version);
    }

    #[test]
    fn shapes_survive_their_encoding() {
        let shape = Shape {
            len: 4096,
            cuts: [1, 4095],
            flags: HAS_CHILDREN | HAS_LOWER,
            departure: 4096,
        };
        assert_eq!(Shape::decode(shape.encode()), shape);
    }
}

/// The protocol under the memory model, not only under every order of steps:
/// `RUSTFLAGS="--cfg loom" cargo test -p homing-index --lib loom`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    type Words = [AtomicU64; RECORD_WORDS];

    /// A record in use whose fields all say `content`.
    fn words(content: u32) -> loom::sync::Arc<Words> {
        let words = loom::sync::Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        Record(&words).put(&fields(content));
        words
    }

    fn fields(content: u32) -> Fields {
        Fields {
            first: u64::from(content),
            last: u64::from(content),
            full: SlotSet(u64::from(content)),
            blocks: content,
            ..Fields::default()
        }
    }

    fn write(words: &Words, content: u32) {
        Record(words).begin();
        Record(words).put(&fields(content));
        Record(words).end();
    }

    /// What a reader takes for true: the contents of records, read one after the other and found unchanged at the end.
    fn read<const N: usize>(records: [&Words; N]) -> Option<[u64; N]> {
        let seen = records.map(|words| (Record(words).version(), Record(words).first(), Record(words).blocks()));
        let settled = records
            .iter()
            .zip(&seen)
            .all(|(words, (version, ..))| version.is_multiple_of(2) && Record(words).is_still(*version));
        if !settled {
            return None;
        }
        Some(seen.map(|(_, first, blocks)| {
            assert_eq!(first, u64::from(blocks), "a torn read was taken for true");
            first
        }))
    }

    #[test]
    fn loom_no_torn_read_is_taken_for_true() {
        loom::model(|| {
            let record = words(1);
            let shared = record.clone();
            let writer = loom::thread::spawn(move || {
                write(&shared, 2);
                write(&shared, 3);
            });
            if let Some([content]) = read([&record]) {
                assert!((1..=3).contains(&content));
            }
            writer.join().unwrap();
            assert_eq!(read([&record]), Some([3]));
        });
    }

    #[test]
    fn loom_a_store_over_two_runs_is_seen_as_a_whole() {
        loom::model(|| {
            let (shallow, deep) = (words(1), words(1));
            let shared = (shallow.clone(), deep.clone());
            // A store shows the deeper run first.
            let writer = loom::thread::spawn(move || {
                write(&shared.1, 2);
                write(&shared.0, 2);
            });
            if let Some([shallow, deep]) = read([&shallow, &deep]) {
                assert!(shallow == 1 || deep == 2, "half of a store was seen");
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn loom_a_removal_over_two_runs_is_seen_as_a_whole() {
        loom::model(|| {
            let (shallow, deep) = (words(2), words(2));
            let shared = (shallow.clone(), deep.clone());
            // A removal shows the shallower run first.
            let writer = loom::thread::spawn(move || {
                write(&shared.0, 1);
                write(&shared.1, 1);
            });
            if let Some([shallow, deep]) = read([&shallow, &deep]) {
                assert!(shallow == 1 || deep == 2, "half of a removal was seen");
            }
            writer.join().unwrap();
        });
    }
}
