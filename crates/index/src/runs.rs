//! Where does the record of a run lie? In parts of one chunk each; its number is its place. A run is put where the key of
//! its first block says ([`homes`]), in the newest part where that is free: who has the key can then ask for the record at
//! once, where the table of first keys would be a memory access to wait for before. A run that is the first to follow another
//! is put right behind that one, which knows it: the turns of a session lie side by side.
//!
//! **Invariant:** a place is a hint. A run that is not at home is found by the table, and one that is found at home is the
//! right one only if its record says so. A record is in use if its bit is set; run 0 is none.

use std::sync::Arc;

use crate::chunk::{CHUNK_WORDS, Chunk, Words, prefetch};
use crate::record::{MAX_RUNS, RECORD_WORDS, Record, RunId};
use crate::samples::{SAMPLE_WORDS, Samples};
use crate::spares::Reserve;
use crate::sync::AtomicU64;

/// Records of a part.
const PER_PART: usize = CHUNK_WORDS / RECORD_WORDS;
/// Words with a bit for each record of a part.
const MARKS: usize = PER_PART.div_ceil(64);
/// Of all records, in sixteenths: there is another part when more are in use, one is made ready when nearly as many are,
/// and the last part is emptied when the others would be less full than this.
const CROWDED: usize = 15;
const BUSY: usize = 14;
const SPARSE: usize = 13;
/// Records of the next part that are made ready at a time.
const AT_ONCE: usize = 64;
/// Parts in which a run is looked for at most. Each is two more lines to ask for: with four of them a lookup among 100,000 runs
/// took longer, though more runs were found.
const NEWEST: usize = 2;

/// Where a run whose first block has this key is put if it can be, among so many parts: at one of two neighbouring places,
/// the same in all parts, in one of the newest; the newest first. Where there are fewer parts, some of these are no run.
#[inline]
pub(crate) fn homes(key: u64, parts: usize) -> [RunId; 2 * NEWEST] {
    let index = key as usize % PER_PART;
    std::array::from_fn(|place| {
        let part = parts.checked_sub(1 + place / 2);
        part.map_or(0, |part| (part * PER_PART + (index ^ (place % 2))) as RunId)
    })
}

/// The records that exist, as readers see them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordDirectory {
    parts: Vec<(Words, Words)>,
}

impl RecordDirectory {
    #[inline]
    pub(crate) fn get(&self, run: RunId) -> Option<Record<'_>> {
        record_in(&self.parts.get(run as usize / PER_PART)?.0, run)
    }

    /// Where the query that finds this run probably leaves it.
    #[inline]
    pub(crate) fn samples(&self, run: RunId) -> Option<Samples<'_>> {
        samples_in(&self.parts.get(run as usize / PER_PART)?.1, run)
    }

    /// Where a run whose first block has this key is in most cases, as long as there is such a place.
    #[inline]
    pub(crate) fn likely(&self, key: u64) -> Option<RunId> {
        let [likely, ..] = homes(key, 1);
        (self.parts.len() == 1).then_some(likely)
    }

    /// Where a run whose first block has this key may be.
    #[inline]
    pub(crate) fn homes(&self, key: u64) -> impl Iterator<Item = RunId> + use<> {
        let known = 2 * self.parts.len();
        homes(key, self.parts.len()).into_iter().take(known)
    }
}

#[inline]
fn record_in(chunk: &[AtomicU64], run: RunId) -> Option<Record<'_>> {
    let (records, _) = chunk.as_chunks::<RECORD_WORDS>();
    records.get(run as usize % PER_PART).map(Record)
}

#[inline]
fn samples_in(chunk: &[AtomicU64], run: RunId) -> Option<Samples<'_>> {
    let (lines, _) = chunk.as_chunks::<SAMPLE_WORDS>();
    lines.get(run as usize % PER_PART).map(Samples)
}

/// What only the writer knows of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RunMeta {
    /// The key of the block before its first one, unless it begins a sequence.
    pub(crate) before: u64,
    /// Of the head of a fork: the run that it follows, after which of its blocks. 0 if that block is not in the index.
    pub(crate) parent: RunId,
    /// The runs of its fork, as a list. The head has none before it.
    pub(crate) next: RunId,
    pub(crate) prev: RunId,
    /// Of the head of a fork: the forks of the same parent, as a list of their heads.
    pub(crate) next_fork: RunId,
    pub(crate) prev_fork: RunId,
    /// The first fork of those that follow this run.
    pub(crate) first_fork: RunId,
    /// Blocks before the first of this run.
    pub(crate) depth: u32,
    pub(crate) parent_offset: u16,
    /// At least one more than the highest offset that a fork follows.
    pub(crate) kid_reach: u16,
    /// Slots with details about this run.
    pub(crate) details: u16,
    /// Of those, slots that hold blocks beyond their leading part.
    pub(crate) beyond: u16,
    /// It begins a sequence.
    pub(crate) begins: bool,
    /// Written to since the hand of the clock passed.
    pub(crate) recent: bool,
    /// In the list of runs to be cut shorter.
    pub(crate) untrimmed: bool,
}

#[derive(Debug)]
struct Part {
    records: Arc<Chunk>,
    samples: Arc<Chunk>,
    meta: Vec<RunMeta>,
    /// A bit for each record that is in use.
    used: Box<[u64; MARKS]>,
    live: usize,
}

impl Part {
    fn is_used(&self, index: usize) -> bool {
        self.used[index / 64] >> (index % 64) & 1 == 1
    }

    /// A record that is not in use, near this one.
    fn free_near(&self, index: usize) -> Option<usize> {
        // There may be many parts to look in: a full one is passed without a look at its bits.
        if self.live == PER_PART {
            return None;
        }
        let some = |word: usize| Some(!self.used[word]).filter(|free| *free != 0);
        let mut words = (index / 64..MARKS).chain(0..index / 64);
        let found = words.find_map(|word| Some((word, some(word)?)));
        found.map(|(word, free)| word * 64 + free.trailing_zeros() as usize)
    }

    /// The first record in use from this one on.
    fn next_used(&self, index: usize) -> Option<usize> {
        if self.live == 0 || index >= PER_PART {
            return None;
        }
        let first = self.used[index / 64] >> (index % 64) << (index % 64);
        let rest = self.used.iter().enumerate().skip(index / 64 + 1);
        let (word, bits) = std::iter::once((index / 64, first))
            .chain(rest.map(|(word, bits)| (word, *bits)))
            .find(|(_, bits)| *bits != 0)?;
        Some(word * 64 + bits.trailing_zeros() as usize).filter(|index| *index < PER_PART)
    }
}

/// All runs: the writer's side.
#[derive(Debug)]
pub(crate) struct Runs {
    parts: Vec<Part>,
    live: usize,
    /// Where the chunks of the next part come from.
    reserves: [Reserve; 2],
    /// What will be known of the runs of the next part, as far as it is made.
    coming: Vec<RunMeta>,
    /// Chunks of a part that was emptied. Giving one back takes the system a while, so it is one at a time.
    leaving: Vec<Arc<Chunk>>,
    /// Set when the directory that readers have is out of date.
    pub(crate) changed: bool,
}

impl Runs {
    /// With room for the first runs, and the place where more comes from.
    pub(crate) fn new(reserves: [Reserve; 2]) -> Self {
        let mut runs = Self {
            parts: Vec::new(),
            live: 0,
            reserves,
            coming: Vec::new(),
            leaving: Vec::new(),
            changed: true,
        };
        runs.open();
        runs
    }

    pub(crate) fn directory(&self) -> RecordDirectory {
        let parts = self.parts.iter().map(|part| [&part.records, &part.samples]);
        RecordDirectory {
            parts: parts
                .map(|chunks| chunks.map(|chunk| Words::of(chunk, 0..CHUNK_WORDS)).into())
                .collect(),
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    #[inline]
    pub(crate) fn is_in_use(&self, run: RunId) -> bool {
        run != 0 && self.has_mark(run)
    }

    fn has_mark(&self, run: RunId) -> bool {
        let part = self.parts.get(run as usize / PER_PART);
        part.is_some_and(|part| part.is_used(run as usize % PER_PART))
    }

    /// The first run in use from this number on.
    pub(crate) fn next_in_use(&self, from: RunId) -> Option<RunId> {
        let from = from.max(1) as usize;
        let (first, index) = (from / PER_PART, from % PER_PART);
        let starts = std::iter::once(index).chain(std::iter::repeat(0));
        let mut found = (first..self.parts.len()).zip(starts);
        found.find_map(|(part, index)| Some((part * PER_PART + self.parts[part].next_used(index)?) as RunId))
    }

    /// All runs in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = RunId> {
        std::iter::successors(self.next_in_use(1), |run| self.next_in_use(run + 1))
    }

    pub(crate) fn bytes(&self) -> u64 {
        let reserved: usize = self.reserves.iter().map(Reserve::len).sum();
        let chunks = (2 * self.parts.len() + self.leaving.len() + reserved) * CHUNK_WORDS * 8;
        let known = (self.parts.len() * PER_PART + self.coming.capacity()) * size_of::<RunMeta>();
        (chunks + known + self.parts.len() * MARKS * 8) as u64
    }

    /// A record that is not in use, for a run that begins with this key: right behind the run `after` if that is not 0, else at
    /// home, else anywhere. Its version is odd until it is published. `None` when there are as many runs as can be numbered.
    pub(crate) fn take(&mut self, first: u64, after: RunId) -> Option<RunId> {
        if self.is_fuller_than(CROWDED) && self.parts.len() * PER_PART < MAX_RUNS {
            self.open();
        }
        // A part that is being emptied gets none.
        let parts = self.parts.len() - usize::from(self.is_sparse());
        let behind = Some(after + 1).filter(|run| after != 0 && (*run as usize) < parts * PER_PART);
        let mut places = behind.into_iter().chain(homes(first, parts));
        let run = places.find(|run| !self.has_mark(*run));
        let run = run.or_else(|| self.elsewhere(first, parts))?;
        let (part, index) = (run as usize / PER_PART, run as usize % PER_PART);
        let part = &mut self.parts[part];
        part.used[index / 64] |= 1 << (index % 64);
        part.live += 1;
        part.meta[index] = RunMeta {
            recent: true,
            ..RunMeta::default()
        };
        self.record(run).claim();
        self.live += 1;
        Some(run)
    }

    /// A record that is not in use, in the newest of these parts that has one.
    fn elsewhere(&self, first: u64, parts: usize) -> Option<RunId> {
        let index = first as usize % PER_PART;
        let in_part = |part: usize| Some(part * PER_PART + self.parts[part].free_near(index)?);
        (0..parts).rev().find_map(in_part).map(|run| run as RunId)
    }

    /// Gives up what was made ready: nothing is going on.
    pub(crate) fn relax(&mut self) {
        self.reserves.iter_mut().for_each(Reserve::release);
        self.coming = Vec::new();
    }

    /// Does a little of the work of making room for more runs, if it will be needed soon.
    pub(crate) fn prepare(&mut self) {
        if self.is_fuller_than(BUSY) {
            self.reserves.iter_mut().for_each(Reserve::prepare);
            self.make_ready(AT_ONCE);
        }
    }

    /// Makes so many more of the next part's entries.
    fn make_ready(&mut self, count: usize) {
        let len = PER_PART.min(self.coming.len() + count);
        self.coming.reserve_exact(PER_PART - self.coming.len());
        self.coming.resize(len, RunMeta::default());
    }

    /// The record is not in use any more. Its version must have been made odd.
    pub(crate) fn give_back(&mut self, run: RunId) {
        debug_assert_eq!(self.record(run).version() % 2, 1);
        *self.meta_mut(run) = RunMeta::default();
        let index = run as usize % PER_PART;
        let part = &mut self.parts[run as usize / PER_PART];
        part.used[index / 64] &= !(1 << (index % 64));
        part.live -= 1;
        self.live -= 1;
    }

    #[inline]
    pub(crate) fn record(&self, run: RunId) -> Record<'_> {
        record_in(&self.parts[run as usize / PER_PART].records, run).expect("every part has all its records")
    }

    #[inline]
    pub(crate) fn samples(&self, run: RunId) -> Samples<'_> {
        samples_in(&self.parts[run as usize / PER_PART].samples, run).expect("every record has its samples")
    }

    /// Asks for what is known of a run.
    #[inline]
    pub(crate) fn prefetch(&self, run: RunId) {
        self.record(run).prefetch();
        prefetch(self.meta(run));
    }

    #[inline]
    pub(crate) fn meta(&self, run: RunId) -> &RunMeta {
        &self.parts[run as usize / PER_PART].meta[run as usize % PER_PART]
    }

    #[inline]
    pub(crate) fn meta_mut(&mut self, run: RunId) -> &mut RunMeta {
        &mut self.parts[run as usize / PER_PART].meta[run as usize % PER_PART]
    }

    fn is_fuller_than(&self, sixteenths: usize) -> bool {
        self.live * 16 >= self.parts.len() * PER_PART * sixteenths
    }

    /// Whether the highest part could be emptied into the others with room to spare.
    pub(crate) fn is_sparse(&self) -> bool {
        let rest = self.parts.len().saturating_sub(1) * PER_PART;
        self.parts.len() > 1 && self.live * 16 < rest * SPARSE
    }

    /// Gives a chunk of an emptied part back, if there is one.
    pub(crate) fn leave(&mut self) -> bool {
        self.leaving.pop().is_some()
    }

    /// Some run in the highest part, or `None` after an empty part was dropped.
    pub(crate) fn highest(&mut self) -> Option<RunId> {
        let part = self.parts.len() - 1;
        let found = self.parts[part].next_used(0);
        if found.is_none() && part > 0 {
            let emptied = self.parts.pop();
            self.leaving = emptied
                .into_iter()
                .flat_map(|part| [part.records, part.samples])
                .collect();
            self.changed = true;
        }
        found.map(|index| (part * PER_PART + index) as RunId)
    }

    fn open(&mut self) {
        self.make_ready(PER_PART);
        let [records, samples] = self.reserves.each_mut().map(|reserve| Arc::new(reserve.take()));
        let mut part = Part {
            records,
            samples,
            meta: std::mem::take(&mut self.coming),
            used: Box::new([0; MARKS]),
            live: 0,
        };
        // What is not there must not be taken: the number 0, and bits beyond the last record.
        part.used[0] = u64::from(self.parts.is_empty());
        if !PER_PART.is_multiple_of(64) {
            part.used[MARKS - 1] |= !0 << (PER_PART % 64);
        }
        self.parts.push(part);
        self.changed = true;
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;
    use crate::record::Fields;

    #[test]
    fn a_reader_notices_a_write() {
        let mut runs = Runs::new(Default::default());
        let run = runs.take(1, 0).unwrap();
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
        let mut runs = Runs::new(Default::default());
        let run = runs.take(1, 0).unwrap();
        runs.record(run).end();
        let version = runs.record(run).version();
        runs.record(run).begin();
        runs.give_back(run);
        assert_eq!(runs.take(1, 0), Some(run));
        runs.record(run).end();
        assert!(runs.record(run).version() > version);
    }

    #[test]
    fn runs_are_at_home_and_stay_there_when_there_are_more() {
        let mut rng = 7_u64;
        let mut key = move || {
            rng = rng
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (rng ^ rng >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd)
        };
        let mut runs = Runs::new(Default::default());
        let mut all = Vec::new();
        // Of a third of a part, and of four parts that came one after the other.
        for (count, at_least) in [(PER_PART / 3, 90), (3 * PER_PART + PER_PART / 2, 30)] {
            while all.len() < count {
                let first = key();
                let run = runs.take(first, 0).unwrap();
                runs.record(run).end();
                all.push((first, run));
            }
            let directory = runs.directory();
            let at_home = |(first, run): &&(u64, RunId)| directory.homes(*first).any(|home| home == *run);
            let share = all.iter().filter(at_home).count() * 100 / all.len();
            assert!(share >= at_least, "{share}% of {count}");
        }
        let mut numbers: Vec<_> = all.iter().map(|(_, run)| *run).collect();
        numbers.sort_unstable();
        assert_eq!(runs.iter().collect::<Vec<_>>(), numbers);
        // Most go, and the others move out of the highest part until it is gone, and the next.
        for (_, run) in all.iter().skip(PER_PART) {
            runs.record(*run).begin();
            runs.give_back(*run);
        }
        let parts = runs.parts.len();
        while runs.is_sparse() {
            let Some(run) = runs.highest() else { continue };
            let new = runs.take(u64::from(run), 0).unwrap();
            assert!(new < run);
            runs.record(new).end();
            runs.record(run).begin();
            runs.give_back(run);
        }
        assert!(runs.parts.len() < parts && runs.live() == PER_PART);
        assert!(!runs.is_in_use(RunId::MAX) && !runs.is_in_use(0));
    }

    #[test]
    fn every_record_but_the_first_can_be_taken_wherever_the_keys_belong() {
        let mut runs = Runs::new(Default::default());
        for _ in 1..PER_PART * CROWDED / 16 {
            assert!(runs.take(0, 0).is_some());
        }
        assert_eq!((runs.parts.len(), runs.live()), (1, PER_PART * CROWDED / 16 - 1));
        let part = &mut runs.parts[0];
        part.used.fill(!0);
        assert_eq!(part.free_near(7), None);
        part.used[5] = !(1 << 9);
        assert_eq!(part.free_near(6 * 64), Some(5 * 64 + 9));
        assert_eq!(part.free_near(0), Some(5 * 64 + 9));
    }
}
