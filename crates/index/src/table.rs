//! Where is the thing with this hash? A table of 40-bit values that grows and shrinks one small segment at a time.
//!
//! Used twice: from the key of a run's first block to the run (readers probe it), and from a label to a run and an
//! offset (the writer alone). Values are not stored with their keys: a hit is verified by the caller, who must look at
//! the thing anyway. Several values may have the same hash.
//!
//! A directory, indexed by the top bits of the hash, names segments of 256 buckets of 8 slots, a cache line each. An
//! entry lies in its home bucket or, if that is full, in one of the next; a bucket counts the entries that passed it, so
//! that a search knows where to stop and a removal needs no tombstone. A full segment is replaced by two beside it.
//!
//! **Invariant:** entries never move within a segment, and a segment that left the directory is not written any more.
//! So a reader may miss only what came after it began to look, or what a directory newer than its own has; the epoch
//! that it checks at the end tells it of the latter.

use std::sync::Arc;

use crate::sync::{AtomicU64, Ordering};

const BUCKETS: usize = 256;
const WIDTH: usize = 8;
const SLOTS: usize = BUCKETS * WIDTH;
/// A segment that holds more is split.
const SPLIT_ABOVE: u32 = (SLOTS * 85 / 100) as u32;
/// Two halves that together hold less are joined.
const JOIN_BELOW: u32 = (SLOTS / 2) as u32;
const MAX_DEPTH: u32 = 32;

const VALUE_BITS: u32 = 40;
const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;
const TAG_MASK: u64 = 0xffff << VALUE_BITS;
const PASSED_SHIFT: u32 = 56;
const PASSED_MASK: u64 = 0xff << PASSED_SHIFT;

/// One piece of a table.
#[derive(Debug)]
pub(crate) struct Segment {
    slots: Box<[AtomicU64]>,
}

/// A table as readers see it.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    depth: u32,
    segments: Vec<Arc<Segment>>,
}

#[derive(Debug)]
struct Piece {
    segment: Arc<Segment>,
    depth: u32,
    used: u32,
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct Table {
    depth: u32,
    directory: Vec<u32>,
    pieces: Vec<Option<Piece>>,
    spare: Vec<u32>,
    entries: u64,
    /// Where the search for segments to join goes on.
    hand: usize,
    joined: bool,
    /// The number of entries when a whole round found nothing to join: not worth another until there are fewer.
    quiet_at: u64,
    /// Set when the snapshot that readers have is out of date.
    pub(crate) changed: bool,
}

impl Segment {
    fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    #[inline]
    fn bucket(&self, index: usize) -> &[AtomicU64; WIDTH] {
        let (buckets, _) = self.slots.as_chunks::<WIDTH>();
        &buckets[index % BUCKETS]
    }

    /// The first value with this hash that `is_it` accepts.
    #[inline]
    fn find(&self, hash: u64, mut is_it: impl FnMut(u64) -> bool) -> Option<u64> {
        let tag = tag_of(hash);
        let mut index = home_of(hash);
        for _ in 0..BUCKETS {
            let bucket = self.bucket(index);
            let mut passed = 0;
            for (place, slot) in bucket.iter().enumerate() {
                let word = slot.load(Ordering::Acquire);
                if place == 0 {
                    passed = word & PASSED_MASK;
                }
                let value = word & VALUE_MASK;
                if word & TAG_MASK == tag && value != 0 && is_it(value) {
                    return Some(value);
                }
            }
            if passed == 0 {
                return None;
            }
            index += 1;
        }
        None
    }

    fn insert(&self, hash: u64, value: u64) {
        let home = home_of(hash);
        let free = |bucket: &[AtomicU64; WIDTH]| {
            bucket
                .iter()
                .position(|slot| slot.load(Ordering::Relaxed) & VALUE_MASK == 0)
        };
        let mut passed = 0;
        let place = loop {
            if let Some(place) = free(self.bucket(home + passed)) {
                break place;
            }
            passed += 1;
            debug_assert!(passed < BUCKETS, "a segment is split before it is full");
        };
        // Readers who come between see the way before they see the entry.
        for index in home..home + passed {
            let count = &self.bucket(index)[0];
            let word = count.load(Ordering::Relaxed);
            if word & PASSED_MASK != PASSED_MASK {
                count.store(word + (1 << PASSED_SHIFT), Ordering::Release);
            }
        }
        let slot = &self.bucket(home + passed)[place];
        let word = slot.load(Ordering::Relaxed) & PASSED_MASK;
        slot.store(word | tag_of(hash) | value, Ordering::Release);
    }

    /// Where this very value is: the number of buckets passed, and the slot.
    fn locate(&self, hash: u64, value: u64) -> Option<(usize, &AtomicU64)> {
        let wanted = tag_of(hash) | value;
        let home = home_of(hash);
        for passed in 0..BUCKETS {
            let bucket = self.bucket(home + passed);
            if let Some(slot) = bucket
                .iter()
                .find(|slot| slot.load(Ordering::Relaxed) & !PASSED_MASK == wanted)
            {
                return Some((passed, slot));
            }
            if bucket[0].load(Ordering::Relaxed) & PASSED_MASK == 0 {
                return None;
            }
        }
        None
    }

    fn remove(&self, hash: u64, value: u64) -> bool {
        let Some((passed, slot)) = self.locate(hash, value) else {
            return false;
        };
        slot.store(slot.load(Ordering::Relaxed) & PASSED_MASK, Ordering::Release);
        let home = home_of(hash);
        for index in home..home + passed {
            let count = &self.bucket(index)[0];
            let word = count.load(Ordering::Relaxed);
            // A count that ran over stays: the search is then longer than it must be, never shorter.
            if word & PASSED_MASK != PASSED_MASK {
                count.store(word - (1 << PASSED_SHIFT), Ordering::Release);
            }
        }
        true
    }

    fn values(&self) -> impl Iterator<Item = u64> {
        self.slots
            .iter()
            .map(|slot| slot.load(Ordering::Relaxed) & VALUE_MASK)
            .filter(|value| *value != 0)
    }
}

impl Snapshot {
    /// The first value with this hash that `is_it` accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl FnMut(u64) -> bool) -> Option<u64> {
        self.segments[directory_index(hash, self.depth)].find(hash, is_it)
    }
}

impl Table {
    pub(crate) fn new() -> Self {
        let piece = Piece {
            segment: Arc::new(Segment::new()),
            depth: 0,
            used: 0,
        };
        Self {
            depth: 0,
            directory: vec![0],
            pieces: vec![Some(piece)],
            spare: Vec::new(),
            entries: 0,
            hand: 0,
            joined: false,
            quiet_at: u64::MAX,
            changed: true,
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let segments = self
            .directory
            .iter()
            .map(|piece| self.piece(*piece).segment.clone())
            .collect();
        Snapshot {
            depth: self.depth,
            segments,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.entries
    }

    /// The first value with this hash that `is_it` accepts.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl FnMut(u64) -> bool) -> Option<u64> {
        self.piece(self.directory[directory_index(hash, self.depth)])
            .segment
            .find(hash, is_it)
    }

    /// Loads the home bucket of a hash, so that it is near when it is needed. The result means nothing.
    #[inline]
    pub(crate) fn warm(&self, hash: u64) -> u64 {
        let segment = &self.piece(self.directory[directory_index(hash, self.depth)]).segment;
        segment.bucket(home_of(hash))[0].load(Ordering::Relaxed)
    }

    /// Adds a value. `hash_of` tells the hash of values that are already in.
    pub(crate) fn insert(&mut self, hash: u64, value: u64, hash_of: impl Fn(u64) -> u64) {
        debug_assert!(value != 0 && value <= VALUE_MASK);
        loop {
            let index = directory_index(hash, self.depth);
            let piece = self.piece_mut(self.directory[index]);
            if piece.used < SPLIT_ABOVE || piece.depth == MAX_DEPTH {
                piece.segment.insert(hash, value);
                piece.used += 1;
                self.entries += 1;
                return;
            }
            self.split(index, &hash_of);
        }
    }

    /// Takes this very value out. Says whether it was there.
    pub(crate) fn remove(&mut self, hash: u64, value: u64) -> bool {
        let number = self.directory[directory_index(hash, self.depth)];
        let piece = self.piece_mut(number);
        let found = piece.segment.remove(hash, value);
        if found {
            piece.used -= 1;
            self.entries -= 1;
        }
        found
    }

    /// Puts a value in the place of another with the same hash.
    pub(crate) fn replace(&mut self, hash: u64, old: u64, new: u64) -> bool {
        let piece = self.piece(self.directory[directory_index(hash, self.depth)]);
        let Some((_, slot)) = piece.segment.locate(hash, old) else {
            return false;
        };
        let word = slot.load(Ordering::Relaxed) & !VALUE_MASK;
        slot.store(word | new, Ordering::Release);
        true
    }

    /// Looks at one segment and joins it with its other half if both have become nearly empty. Says whether a round
    /// over all of them is complete.
    pub(crate) fn shrink_step(&mut self, hash_of: impl Fn(u64) -> u64) -> bool {
        if self.hand >= self.directory.len() {
            self.hand = 0;
            self.quiet_at = if std::mem::take(&mut self.joined) { u64::MAX } else { self.entries };
            self.halve_directory();
            return true;
        }
        let number = self.directory[self.hand];
        let depth = self.piece(number).depth;
        self.hand += 1;
        if depth == 0 {
            return false;
        }
        let span = 1_usize << (self.depth - depth);
        let start = (self.hand - 1) / span * span;
        let other = self.directory[start ^ span];
        let (used, other_piece) = (self.piece(number).used, self.piece(other));
        if other_piece.depth == depth && used + other_piece.used < JOIN_BELOW {
            self.join(number, other, (start & !span, 2 * span), &hash_of);
        }
        false
    }

    /// Whether most of the space is unused.
    pub(crate) fn is_sparse(&self) -> bool {
        let slots = (self.pieces.len() - self.spare.len()) as u64 * SLOTS as u64;
        slots > SLOTS as u64 && self.entries * 3 < slots && self.entries < self.quiet_at - self.quiet_at / 8
    }

    /// Bytes of segments and directory.
    pub(crate) fn bytes(&self) -> u64 {
        let pieces = self.pieces.len() - self.spare.len();
        (pieces * (SLOTS * 8 + 64) + self.directory.len() * 4) as u64
    }

    fn split(&mut self, mut index: usize, hash_of: &impl Fn(u64) -> u64) {
        let number = self.directory[index];
        let depth = self.piece(number).depth;
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|piece| [*piece, *piece]).collect();
            self.depth += 1;
            index *= 2;
        }
        let halves = [Segment::new(), Segment::new()];
        let mut used = [0; 2];
        let mut values = [0; SLOTS];
        let mut count = 0;
        for value in self.piece(number).segment.values() {
            values[count] = value;
            count += 1;
        }
        // All hashes first: the loads do not depend on each other, so that they run at once.
        let mut hashes = [0; SLOTS];
        for (hash, value) in hashes.iter_mut().zip(&values[..count]) {
            *hash = hash_of(*value);
        }
        for (hash, value) in hashes.iter().zip(&values[..count]) {
            let half = (hash >> (63 - depth)) as usize & 1;
            halves[half].insert(*hash, *value);
            used[half] += 1;
        }
        let [low, high] = halves;
        let high = self.add_piece(Piece {
            segment: Arc::new(high),
            depth: depth + 1,
            used: used[1],
        });
        *self.piece_mut(number) = Piece {
            segment: Arc::new(low),
            depth: depth + 1,
            used: used[0],
        };
        let half = 1 << (self.depth - depth - 1);
        let start = index / (2 * half) * (2 * half);
        self.directory[start + half..start + 2 * half].fill(high);
        self.quiet_at = u64::MAX;
        self.changed = true;
    }

    fn join(&mut self, number: u32, other: u32, range: (usize, usize), hash_of: &impl Fn(u64) -> u64) {
        let joined = Segment::new();
        let values: Vec<u64> = self
            .piece(number)
            .segment
            .values()
            .chain(self.piece(other).segment.values())
            .collect();
        for value in &values {
            joined.insert(hash_of(*value), *value);
        }
        let depth = self.piece(number).depth - 1;
        *self.piece_mut(number) = Piece {
            segment: Arc::new(joined),
            depth,
            used: values.len() as u32,
        };
        self.pieces[other as usize] = None;
        self.spare.push(other);
        self.directory[range.0..range.0 + range.1].fill(number);
        self.joined = true;
        self.changed = true;
    }

    fn halve_directory(&mut self) {
        while self.depth > 0 && self.pieces.iter().flatten().all(|piece| piece.depth < self.depth) {
            self.directory = self.directory.iter().copied().step_by(2).collect();
            self.depth -= 1;
            self.changed = true;
        }
    }

    fn add_piece(&mut self, piece: Piece) -> u32 {
        if let Some(number) = self.spare.pop() {
            self.pieces[number as usize] = Some(piece);
            return number;
        }
        self.pieces.push(Some(piece));
        self.pieces.len() as u32 - 1
    }

    #[inline]
    fn piece(&self, number: u32) -> &Piece {
        self.pieces[number as usize]
            .as_ref()
            .expect("the directory names pieces that exist")
    }

    fn piece_mut(&mut self, number: u32) -> &mut Piece {
        self.pieces[number as usize]
            .as_mut()
            .expect("the directory names pieces that exist")
    }
}

/// The top bits choose the segment.
#[inline]
fn directory_index(hash: u64, depth: u32) -> usize {
    // Two shifts, because a shift by 64 is none.
    (hash >> 1 >> (63 - depth)) as usize
}

/// The lowest bits choose the bucket.
#[inline]
fn home_of(hash: u64) -> usize {
    hash as usize % BUCKETS
}

/// The bits above those tell most strangers apart.
#[inline]
fn tag_of(hash: u64) -> u64 {
    ((hash >> 8) & 0xffff) << VALUE_BITS
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
        let mut table = Table::new();
        for value in 1..=20_000 {
            table.insert(spread(value), value, spread);
        }
        assert!(table.depth >= 3);
        let full = table.bytes();
        assert!((1..=20_000).all(|value| table.find(spread(value), |found| found == value).is_some()));
        for value in 101..=20_000 {
            assert!(table.remove(spread(value), value));
        }
        while !table.shrink_step(spread) {}
        while !table.shrink_step(spread) {}
        assert!(table.bytes() * 4 < full, "{} of {full} bytes", table.bytes());
        assert!((1..=100).all(|value| contains(&table, value)));
        assert!(!contains(&table, 101));
        assert_eq!(table.len(), 100);
    }

    #[test]
    fn a_crowd_in_one_bucket_is_found_and_leaves_no_trace() {
        let mut table = Table::new();
        for value in 1..=300 {
            table.insert(7, value, |_| 7);
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
            let crowded = |value: u64| (value % 3) | (value << 8);
            let mut table = Table::new();
            let mut model = BTreeSet::new();
            for (insert, value) in steps {
                if insert && model.insert(value) {
                    table.insert(crowded(value), value, crowded);
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
