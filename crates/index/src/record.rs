//! What does a reader see of a run? One cache line.
//!
//! | word | content |
//! |---|---|
//! | 0 | version: odd while the writer is at it, and as long as the record is not in use; 0 if it never was. In the top bits the run that follows at the usual departure, if few do; a hint |
//! | 1, 2 | key of the first block, key of the last |
//! | 3 | number of blocks, the cut-offs of the two inline levels, flags |
//! | 4 | the slots that hold all of it |
//! | 5, 6 | the slots that hold the first so many blocks, for the two inline levels |
//! | 7 | where keys and labels are, and where further levels and lower tiers are |
//!
//! **Invariant:** versions only grow, over every use of a record. A reader who finds the same even version before and
//! after has read one state. A slot is in at most one of the sets, and in none if it does not hold the first block.

use crate::chunk::prefetch;
use crate::heap::Addr;
use crate::sets::SlotSet;
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

pub(crate) const RECORD_WORDS: usize = 8;
/// The version takes the lowest bits of its word; the top bits are a hint.
const VERSION_BITS: u32 = 38;

/// The version of a record that was never in use.
pub(crate) const UNUSED: u64 = 0;

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
pub(crate) struct Record<'a>(pub(crate) &'a [AtomicU64; RECORD_WORDS]);

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

    /// The run that probably follows at the usual departure, from the word that [`Record::version`] returned; 0 if many do.
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
    pub(crate) fn claim(self) {
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

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
