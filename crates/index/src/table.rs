//! Where is the thing with this hash? A table of 38-bit values that grows and shrinks one small segment at a time.
//!
//! Used twice: from the key of a run's first block to the run (readers probe it), and from a label to a run and an
//! offset (the writer alone). Values are not stored with their keys: a hit is verified by the caller, who must look at
//! the thing anyway. Several values may have the same hash.
//!
//! A directory, indexed by the top bits of the hash, names segments of buckets of one cache line each: a control word and
//! seven slots. An entry lies in its home bucket or, if that is full, in one of the next; a bucket counts the entries
//! that passed it, so that a search knows where to stop and a removal needs no tombstone. A slot has, beside its value,
//! the bits of the hash that say where it belongs, so that a full segment is replaced by two beside it without a look at
//! what its values mean.
//!
//! **Invariant:** entries never move within a segment, and a segment that left the directory is not written any more. A
//! slot is written before the control word says that it is in use. So a reader may miss only what came after it began to
//! look, or what a directory newer than its own has; the epoch that it checks at the end tells it of the latter.

use crate::chunk::prefetch;
use crate::sites::{Sharing, Site, Sites};
use crate::sync::{AtomicU64, Ordering};

/// Buckets of a segment.
#[cfg(not(any(shuttle, loom)))]
const BUCKETS: usize = 256;
/// Few, because every word is expensive under the schedule explorer.
#[cfg(any(shuttle, loom))]
const BUCKETS: usize = 2;
/// Slots of a bucket.
const WIDTH: usize = 7;
const SLOTS: usize = BUCKETS * WIDTH;
/// A segment that holds more is split.
const SPLIT_ABOVE: u64 = (SLOTS * 85 / 100) as u64;
/// Two halves that together hold less are joined.
const JOIN_BELOW: u64 = (SLOTS / 2) as u64;
/// The directory is indexed by at most so many bits: as many as a slot has.
const MAX_DEPTH: u32 = 18;

/// A slot is, from the lowest bit, a value, the home bucket and the top bits of the hash.
const VALUE_BITS: u32 = 38;
const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;
const HOME_BITS: u32 = 8;

/// A control word has a byte per slot: 0 if it is free, else the top bit and seven bits of the hash. Its last byte
/// counts the entries that passed.
const EACH: u64 = 0x0001_0101_0101_0101;
const TOPS: u64 = 0x80 * EACH;
const PASSED_SHIFT: u32 = 56;
const PASSED_MASK: u64 = 0xff << PASSED_SHIFT;

/// One line of a segment: the control word and the slots.
type Bucket = [AtomicU64; 1 + WIDTH];
pub(crate) const SEGMENT_WORDS: usize = BUCKETS * (1 + WIDTH);

/// One piece of a table: the entries whose hashes begin with the same bits. A handle: clones are the same segment.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    site: Site,
    /// What the writer notes about it is there.
    number: u32,
}

/// What the writer notes about a segment.
#[derive(Clone, Copy, Debug, Default)]
struct Note {
    /// How many bits of the hash its entries have in common.
    depth: u32,
    used: u64,
}

/// A table as readers see it.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    depth: u32,
    directory: Vec<Segment>,
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct Table {
    depth: u32,
    /// A segment of depth `d` stands here `2^(depth - d)` times in a row.
    directory: Vec<Segment>,
    notes: Vec<Note>,
    /// Numbers of notes that are not in use.
    spare: Vec<u32>,
    sites: Sites,
    entries: u64,
    /// Where the search for segments to join goes on.
    hand: usize,
    joined: bool,
    /// The number of entries when a whole round found nothing to join: not worth another until there are fewer.
    quiet_at: u64,
    /// Set when the snapshot that readers have is out of date.
    pub(crate) changed: bool,
}

/// What a hash means for a segment.
#[derive(Clone, Copy)]
struct Way {
    home: usize,
    control: u64,
    /// What a slot has beside its value.
    upper: u64,
}

impl Way {
    /// Bits in the middle choose the bucket, and those below them tell most strangers apart.
    #[inline]
    fn of(hash: u64) -> Self {
        let home = (hash >> 24) & ((1 << HOME_BITS) - 1);
        let upper = (hash >> (64 - MAX_DEPTH) << HOME_BITS | home) << VALUE_BITS;
        Self {
            home: home as usize % BUCKETS,
            control: 0x80 | (hash >> 17 & 0x7f),
            upper,
        }
    }

    /// The home bucket of an entry that is in a slot.
    fn home_of(slot: u64) -> usize {
        (slot >> VALUE_BITS) as usize % (1 << HOME_BITS) % BUCKETS
    }
}

/// The slots whose control bytes equal this one, as the top bits of their bytes.
#[inline]
fn alike(control: u64, byte: u64) -> u64 {
    // Exact: no borrow runs from one byte into the next.
    let differing = control ^ (byte * EACH);
    let low = 0x7f * EACH;
    !(((differing & low) + low) | differing | low) & TOPS
}

#[inline]
fn free(control: u64) -> u64 {
    !control & TOPS
}

/// The first slot that the bits of [`alike`] or [`free`] name.
#[inline]
fn first(bits: u64) -> usize {
    bits.trailing_zeros() as usize / 8 % WIDTH
}

impl Segment {
    #[inline]
    fn bucket(&self, index: usize) -> &Bucket {
        let (buckets, _) = self.site.words().as_chunks::<{ 1 + WIDTH }>();
        &buckets[index % BUCKETS]
    }

    /// The first value on this way that `is_it` accepts, with the number of buckets passed and the slot.
    #[inline]
    fn search(&self, way: Way, mut is_it: impl FnMut(u64) -> bool) -> Option<(usize, usize, u64)> {
        for passed in 0..BUCKETS {
            let bucket = self.bucket(way.home + passed);
            let control = bucket[0].load(Ordering::Acquire);
            let mut candidates = alike(control, way.control);
            while candidates != 0 {
                let place = first(candidates);
                candidates &= candidates - 1;
                let slot = bucket[1 + place].load(Ordering::Acquire);
                if slot & !VALUE_MASK == way.upper && is_it(slot & VALUE_MASK) {
                    return Some((passed, place, slot & VALUE_MASK));
                }
            }
            if control & PASSED_MASK == 0 {
                return None;
            }
        }
        None
    }

    /// Puts a value into the first free slot on its way.
    #[inline]
    fn insert(&self, way: Way, value: u64) {
        let (mut passed, mut control) = (0, self.bucket(way.home)[0].load(Ordering::Relaxed));
        while free(control) == 0 {
            passed += 1;
            debug_assert!(passed < BUCKETS, "a segment is split before it is full");
            control = self.bucket(way.home + passed)[0].load(Ordering::Relaxed);
        }
        // Readers who come between see the way before they see the entry.
        for index in way.home..way.home + passed {
            let control = &self.bucket(index)[0];
            let word = control.load(Ordering::Relaxed);
            if word & PASSED_MASK != PASSED_MASK {
                control.store(word + (1 << PASSED_SHIFT), Ordering::Release);
            }
        }
        let (bucket, place) = (self.bucket(way.home + passed), first(free(control)));
        bucket[1 + place].store(way.upper | value, Ordering::Release);
        bucket[0].store(control | way.control << (8 * place), Ordering::Release);
    }

    #[inline]
    fn remove(&self, way: Way, value: u64) -> bool {
        let Some((passed, place, _)) = self.search(way, |found| found == value) else {
            return false;
        };
        let control = &self.bucket(way.home + passed)[0];
        control.store(
            control.load(Ordering::Relaxed) & !(0xff << (8 * place)),
            Ordering::Release,
        );
        for index in way.home..way.home + passed {
            let control = &self.bucket(index)[0];
            let word = control.load(Ordering::Relaxed);
            // A count that ran over stays: the search is then longer than it must be, never shorter.
            if word & PASSED_MASK != PASSED_MASK {
                control.store(word - (1 << PASSED_SHIFT), Ordering::Release);
            }
        }
        true
    }
}

/// New segments under construction, which nobody else sees yet.
struct Filling<'a> {
    to: [&'a Segment; 2],
    used: [u64; 2],
    /// Entries whose home bucket was full. They are put in when all others have a place.
    displaced: Vec<(usize, Way, u64)>,
}

impl<'a> Filling<'a> {
    fn new(to: [&'a Segment; 2]) -> Self {
        Self {
            to,
            used: [0; 2],
            displaced: Vec::new(),
        }
    }

    /// Takes all entries of a segment over, each into the one of the two that the given bit of the hash says, counted
    /// from the top; all into the first if there is none.
    fn take(&mut self, from: &Segment, bit: Option<u32>) {
        for bucket in (0..BUCKETS).map(|index| from.bucket(index)) {
            let control = bucket[0].load(Ordering::Relaxed);
            for place in 0..WIDTH {
                let byte = control >> (8 * place) & 0xff;
                if byte == 0 {
                    continue;
                }
                let slot = bucket[1 + place].load(Ordering::Relaxed);
                let half = bit.map_or(0, |bit| (slot >> (63 - bit)) as usize & 1);
                let way = Way {
                    home: Way::home_of(slot),
                    control: byte,
                    upper: slot & !VALUE_MASK,
                };
                self.used[half] += 1;
                let to = self.to[half].bucket(way.home);
                let word = to[0].load(Ordering::Relaxed);
                if free(word) == 0 {
                    self.displaced.push((half, way, slot & VALUE_MASK));
                    continue;
                }
                let place = first(free(word));
                to[1 + place].store(slot, Ordering::Relaxed);
                to[0].store(word | byte << (8 * place), Ordering::Relaxed);
            }
        }
    }

    /// How many entries the two have.
    fn finish(self) -> [u64; 2] {
        for (half, way, value) in self.displaced {
            self.to[half].insert(way, value);
        }
        self.used
    }
}

impl Snapshot {
    /// Asks for the home bucket of a hash, so that it is near when it is needed.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let segment = &self.directory[directory_index(hash, self.depth)];
        prefetch(segment.bucket(Way::of(hash).home));
    }

    /// The first value with this hash that `is_it` accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl FnMut(u64) -> bool) -> Option<u64> {
        let segment = &self.directory[directory_index(hash, self.depth)];
        segment.search(Way::of(hash), is_it).map(|(_, _, value)| value)
    }
}

impl Table {
    /// A table that only the writer looks at: its segments lie together, in chunks of which parts are used again.
    pub(crate) fn of_writer() -> Self {
        Self::with(Sites::new(Sharing::WriterOnly))
    }

    /// A table that readers have snapshots of: the memory of a segment lives as long as one of them.
    pub(crate) fn of_readers() -> Self {
        Self::with(Sites::new(Sharing::Readers))
    }

    fn with(mut sites: Sites) -> Self {
        let first = Segment {
            site: sites.take(),
            number: 0,
        };
        Self {
            depth: 0,
            directory: vec![first],
            notes: vec![Note::default()],
            spare: Vec::new(),
            sites,
            entries: 0,
            hand: 0,
            joined: false,
            quiet_at: u64::MAX,
            changed: true,
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            depth: self.depth,
            directory: self.directory.clone(),
        }
    }

    /// Entries.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn len(&self) -> u64 {
        self.entries
    }

    #[inline]
    fn segment(&self, hash: u64) -> &Segment {
        &self.directory[directory_index(hash, self.depth)]
    }

    /// The first value with this hash that `is_it` accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl FnMut(u64) -> bool) -> Option<u64> {
        self.segment(hash)
            .search(Way::of(hash), is_it)
            .map(|(_, _, value)| value)
    }

    /// Asks for the home bucket of a hash, so that it is near when it is needed.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch(self.segment(hash).bucket(Way::of(hash).home));
    }

    /// Adds a value.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, value: u64) {
        debug_assert!(value <= VALUE_MASK);
        let mut note = self.note(hash);
        while self.notes[note].used >= SPLIT_ABOVE && self.notes[note].depth < MAX_DEPTH {
            self.split(directory_index(hash, self.depth));
            note = self.note(hash);
        }
        self.segment(hash).insert(Way::of(hash), value);
        self.notes[note].used += 1;
        self.entries += 1;
    }

    /// Adds a value, and says whether there is another with the same hash that `is_alike` accepts.
    #[inline]
    pub(crate) fn insert_noting(&mut self, hash: u64, value: u64, is_alike: impl FnMut(u64) -> bool) -> bool {
        let noted = self.segment(hash).search(Way::of(hash), is_alike).is_some();
        self.insert(hash, value);
        noted
    }

    #[inline]
    fn note(&self, hash: u64) -> usize {
        self.segment(hash).number as usize
    }

    /// Takes this very value out. Says whether it was there.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u64, value: u64) -> bool {
        let found = self.segment(hash).remove(Way::of(hash), value);
        if found {
            let note = self.note(hash);
            self.notes[note].used -= 1;
            self.entries -= 1;
        }
        found
    }

    /// Puts a value in the place of another with the same hash.
    pub(crate) fn replace(&mut self, hash: u64, old: u64, new: u64) -> bool {
        let (segment, way) = (self.segment(hash), Way::of(hash));
        let Some((passed, place, _)) = segment.search(way, |found| found == old) else {
            return false;
        };
        segment.bucket(way.home + passed)[1 + place].store(way.upper | new, Ordering::Release);
        true
    }

    /// Looks at one segment and joins it with its other half if both have become nearly empty, or moves one so that a
    /// chunk becomes empty. Says whether a round over all of them is complete.
    pub(crate) fn shrink_step(&mut self) -> bool {
        if self.sites.is_sparse() {
            self.move_highest();
            return false;
        }
        if self.hand >= self.directory.len() {
            self.hand = 0;
            self.quiet_at = if std::mem::take(&mut self.joined) {
                u64::MAX
            } else {
                self.entries
            };
            self.halve_directory();
            return true;
        }
        let Note { depth, used } = self.notes[self.directory[self.hand].number as usize];
        let span = 1_usize << (self.depth - depth);
        let start = self.hand / span * span;
        self.hand = start + span;
        if depth == 0 {
            return false;
        }
        let other = self.notes[self.directory[start ^ span].number as usize];
        if other.depth == depth && used + other.used < JOIN_BELOW {
            self.join(start & !span, span);
        }
        false
    }

    /// Gives up what was made ready: nothing is going on.
    pub(crate) fn relax(&mut self) {
        self.sites.relax();
    }

    /// Whether most of the space is unused.
    pub(crate) fn is_sparse(&self) -> bool {
        let fewer = self.entries < self.quiet_at - self.quiet_at / 8;
        let segments = self.segments();
        self.sites.is_sparse() || segments > 1 && self.entries * 3 < (segments * SLOTS) as u64 && fewer
    }

    fn segments(&self) -> usize {
        self.notes.len() - self.spare.len()
    }

    /// Bytes of segments and directory.
    pub(crate) fn bytes(&self) -> u64 {
        self.sites.bytes() + (self.directory.len() * size_of::<Segment>()) as u64
    }

    fn add_segment(&mut self, depth: u32) -> Segment {
        let note = Note { depth, used: 0 };
        let number = self.spare.pop().unwrap_or(self.notes.len() as u32);
        if number as usize == self.notes.len() {
            self.notes.push(note);
        } else {
            self.notes[number as usize] = note;
        }
        Segment {
            site: self.sites.take(),
            number,
        }
    }

    fn drop_segment(&mut self, segment: &Segment) {
        self.spare.push(segment.number);
        self.sites.give_back(&segment.site);
    }

    /// Replaces the segment at this place of the directory by two.
    fn split(&mut self, mut index: usize) {
        let full = self.directory[index].clone();
        let depth = self.notes[full.number as usize].depth;
        if depth == self.depth {
            self.directory = self
                .directory
                .iter()
                .flat_map(|segment| [segment.clone(), segment.clone()])
                .collect();
            self.depth += 1;
            index *= 2;
        }
        let (low, high) = (self.add_segment(depth + 1), self.add_segment(depth + 1));
        let mut filling = Filling::new([&low, &high]);
        filling.take(&full, Some(depth));
        let used = filling.finish();
        self.notes[low.number as usize].used = used[0];
        self.notes[high.number as usize].used = used[1];
        let span = 1 << (self.depth - depth - 1);
        let start = index / (2 * span) * (2 * span);
        self.directory[start..start + span].fill(low);
        self.directory[start + span..start + 2 * span].fill(high);
        self.drop_segment(&full);
        self.quiet_at = u64::MAX;
        self.changed = true;
    }

    /// Makes one segment of the two that begin at `start` and `start + span`.
    fn join(&mut self, start: usize, span: usize) {
        let (low, high) = (self.directory[start].clone(), self.directory[start + span].clone());
        let joined = self.add_segment(self.notes[low.number as usize].depth - 1);
        let mut filling = Filling::new([&joined, &joined]);
        filling.take(&low, None);
        filling.take(&high, None);
        self.notes[joined.number as usize].used = filling.finish()[0];
        self.directory[start..start + 2 * span].fill(joined);
        self.drop_segment(&low);
        self.drop_segment(&high);
        self.joined = true;
        self.changed = true;
    }

    /// Moves the segment that lies highest, so that the chunk it lies in becomes empty.
    fn move_highest(&mut self) {
        let highest = self
            .directory
            .iter()
            .enumerate()
            .max_by_key(|(_, segment)| segment.site.number());
        let Some((index, segment)) = highest.map(|(index, segment)| (index, segment.clone())) else {
            return;
        };
        let site = self.sites.take();
        for (from, to) in segment.site.words().iter().zip(site.words()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let moved = Segment {
            site,
            number: segment.number,
        };
        let span = 1_usize << (self.depth - self.notes[segment.number as usize].depth);
        let start = index / span * span;
        self.directory[start..start + span].fill(moved);
        self.sites.give_back(&segment.site);
        self.changed = true;
    }

    fn halve_directory(&mut self) {
        let is_shallow = |segment: &Segment, depth: u32| self.notes[segment.number as usize].depth < depth;
        while self.depth > 0 && self.directory.iter().all(|segment| is_shallow(segment, self.depth)) {
            self.directory = self.directory.iter().step_by(2).cloned().collect();
            self.depth -= 1;
            self.changed = true;
        }
    }
}

/// The top bits choose the segment.
#[inline]
fn directory_index(hash: u64, depth: u32) -> usize {
    // Two shifts, because a shift by 64 is none.
    (hash >> 1 >> (63 - depth)) as usize
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn spread(value: u64) -> u64 {
        (value.wrapping_mul(0x9e37_79b9_7f4a_7c15)) ^ (value << 40)
    }

    fn contains(table: &Table, value: u64) -> bool {
        let by_writer = table.find(spread(value), |found| found == value).is_some();
        let by_reader = table.snapshot().find(spread(value), |found| found == value).is_some();
        assert_eq!(by_writer, by_reader);
        by_writer
    }

    #[test]
    fn grows_and_shrinks_without_losing_anything() {
        let mut table = Table::of_writer();
        for value in 1..=20_000 {
            table.insert(spread(value), value);
        }
        assert!(table.depth >= 3);
        let full = table.bytes();
        assert!((1..=20_000).all(|value| table.find(spread(value), |found| found == value).is_some()));
        for value in 101..=20_000 {
            assert!(table.remove(spread(value), value));
        }
        while !table.shrink_step() {}
        while !table.shrink_step() {}
        assert!(table.bytes() * 4 < full, "{} of {full} bytes", table.bytes());
        assert!((1..=100).all(|value| contains(&table, value)));
        assert!(!contains(&table, 101));
        assert_eq!(table.len(), 100);
    }

    #[test]
    fn a_crowd_in_one_bucket_is_found_and_leaves_no_trace() {
        let mut table = Table::of_writer();
        for value in 1..=300 {
            table.insert(7, value);
        }
        assert_eq!(table.find(7, |value| value == 300), Some(300));
        assert!(table.replace(7, 300, 301));
        assert_eq!(table.find(7, |value| value == 300), None);
        assert_eq!(table.find(7, |value| value == 301), Some(301));
    }

    proptest! {
        #[test]
        fn equals_a_set(steps in prop::collection::vec((any::<bool>(), 1_u64..60), 0..400)) {
            // Few homes, so that buckets run over.
            let crowded = |value: u64| (value % 3) << 24 | value << 58;
            let mut table = Table::of_writer();
            let mut model = BTreeSet::new();
            for (insert, value) in steps {
                if insert && model.insert(value) {
                    table.insert(crowded(value), value);
                } else if !insert {
                    prop_assert_eq!(table.remove(crowded(value), value), model.remove(&value));
                }
                for value in 1..60 {
                    let found = table.find(crowded(value), |found| found == value).is_some();
                    prop_assert_eq!(found, model.contains(&value));
                }
            }
        }
    }
}
