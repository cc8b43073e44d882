//! Where is the thing with this hash? A table of 38-bit values that grows and shrinks one small segment at a time.
//!
//! Used from the key of a run's first block to the run (readers probe it), and by the writer alone from labels to blocks and from a
//! block to what follows it. Values are not stored with their keys: a hit is verified by the caller, who must look at
//! the thing anyway. Several values may have the same hash.
//!
//! A directory, indexed by the top bits of the hash, names segments ([`crate::segment`]). A full one is replaced by two
//! beside it, and two that are nearly empty by one. Hashes that begin with the same bits cannot be told apart by that: what finds
//! no room because of it is kept in a map beside, which is empty unless somebody makes labels or keys for the purpose, or
//! thousands of ranks call different blocks the same.
//!
//! **Invariant:** a segment that left the directory is not written any more. So a reader may miss only what came after it
//! began to look, or what a directory newer than its own has; the epoch that it checks at the end tells it of the latter.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::chunk::{prefetch, prefetch_early};
use crate::segment::{JOIN_BELOW, MAX_DEPTH, MUST_SPLIT, SLOTS, Segment, VALUE_MASK, Way, join, split, split_above};
use crate::sites::{Sharing, Sites};
use crate::spares::Reserve;
use crate::sync::Ordering;

/// What the writer notes about a segment.
#[derive(Clone, Copy, Debug)]
struct Note {
    /// How many bits of the hash its entries have in common.
    depth: u32,
    /// It is split when it holds so many.
    limit: u32,
    used: u64,
}

impl Note {
    fn new(number: u32, depth: u32) -> Self {
        Self {
            depth,
            limit: split_above(number),
            used: 0,
        }
    }

    #[inline]
    fn is_full(self) -> bool {
        self.used >= u64::from(self.limit)
    }
}

/// Places of a directory that are handled at a time: all at once takes longer than anybody should wait.
/// Few in tests, so that they see tables between the pieces.
const AT_ONCE: usize = if cfg!(any(test, feature = "testing")) { 2 } else { 1024 };

/// A directory in the making.
#[derive(Debug)]
enum Coming {
    Nothing,
    /// Twice as long.
    Twice(Vec<Segment>),
    /// Half as long.
    Half(Vec<Segment>),
}

/// Values for which their segment has no room, by hash.
type Crowd = FxHashMap<u64, Vec<u64>>;

/// A table as readers see it.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    depth: u32,
    directory: Vec<Segment>,
    crowd: Arc<Crowd>,
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
    crowd: Arc<Crowd>,
    entries: u64,
    /// The directory in the making that will be twice or half as long, as far as it has come.
    coming: Coming,
    /// A directory that was replaced: it is given up a little at a time.
    leaving: Vec<Segment>,
    /// Where the search for segments to join goes on.
    hand: usize,
    /// Where the search for segments in the highest chunk goes on.
    high_hand: usize,
    joined: bool,
    /// The number of entries when a whole round found nothing to join: not worth another until there are fewer.
    quiet_at: u64,
    /// Set when the snapshot that readers have is out of date.
    pub(crate) changed: bool,
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
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u64) -> bool) -> Option<u64> {
        let segment = &self.directory[directory_index(hash, self.depth)];
        match segment.search(Way::of(hash), &mut is_it) {
            Some((_, _, value)) => Some(value),
            None => find_in(&self.crowd, hash, is_it),
        }
    }
}

impl Table {
    /// A table that only the writer looks at: its segments lie together, in chunks of which parts are used again.
    pub(crate) fn of_writer(reserve: Reserve) -> Self {
        Self::with(Sites::new(Sharing::WriterOnly, reserve))
    }

    /// A table that readers may have snapshots of: the memory of a segment lives as long as one of them. Begins with one segment.
    pub(crate) fn of_readers() -> Self {
        Self::with(Sites::new(Sharing::Readers, Reserve::default()))
    }

    fn with(mut sites: Sites) -> Self {
        let first = Segment {
            site: sites.take(),
            number: 0,
        };
        Self {
            depth: 0,
            directory: vec![first],
            notes: vec![Note::new(0, 0)],
            spare: Vec::new(),
            sites,
            crowd: Arc::default(),
            entries: 0,
            coming: Coming::Nothing,
            leaving: Vec::new(),
            hand: 0,
            high_hand: 0,
            joined: false,
            quiet_at: u64::MAX,
            changed: true,
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            depth: self.depth,
            directory: self.directory.clone(),
            crowd: self.crowd.clone(),
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
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u64) -> bool) -> Option<u64> {
        match self.segment(hash).search(Way::of(hash), &mut is_it) {
            Some((_, _, value)) => Some(value),
            None => find_in(&self.crowd, hash, is_it),
        }
    }

    /// Asks for the home bucket of a hash, so that it is near when it is needed.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch_early(self.segment(hash).bucket(Way::of(hash).home));
    }

    /// Adds a value.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, value: u64) {
        debug_assert!(value <= VALUE_MASK);
        let mut note = self.segment(hash).number as usize;
        while self.notes[note].is_full() && self.notes[note].depth < MAX_DEPTH && self.may_split(note) {
            self.split(directory_index(hash, self.depth));
            note = self.segment(hash).number as usize;
        }
        self.entries += 1;
        if self.notes[note].used >= SLOTS as u64 {
            Arc::make_mut(&mut self.crowd).entry(hash).or_default().push(value);
            self.changed = true;
            return;
        }
        self.segment(hash).insert(Way::of(hash), value);
        self.notes[note].used += 1;
    }

    /// Adds a value, and says whether there is another with the same hash that `is_alike` accepts.
    #[inline]
    pub(crate) fn insert_noting(&mut self, hash: u64, value: u64, mut is_alike: impl FnMut(u64) -> bool) -> bool {
        let (segment, way) = (&self.directory[directory_index(hash, self.depth)], Way::of(hash));
        let note = &mut self.notes[segment.number as usize];
        if !note.is_full() && self.crowd.is_empty() && segment.insert_alone(way, value) {
            note.used += 1;
            self.entries += 1;
            return false;
        }
        let noted = segment.search(way, &mut is_alike).is_some() || find_in(&self.crowd, hash, is_alike).is_some();
        self.insert(hash, value);
        noted
    }

    /// Takes this very value out. Says whether it was there.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u64, value: u64) -> bool {
        let segment = &self.directory[directory_index(hash, self.depth)];
        let found = segment.remove(Way::of(hash), value);
        if found {
            self.notes[segment.number as usize].used -= 1;
            self.entries -= 1;
            return true;
        }
        let crowded = self.take_from_crowd(hash, value);
        self.entries -= u64::from(crowded);
        crowded
    }

    fn take_from_crowd(&mut self, hash: u64, value: u64) -> bool {
        let values = self.crowd.get(&hash);
        let Some(place) = values.and_then(|values| values.iter().position(|other| *other == value)) else {
            return false;
        };
        let crowd = Arc::make_mut(&mut self.crowd);
        if let Some(values) = crowd.get_mut(&hash) {
            values.swap_remove(place);
            if values.is_empty() {
                crowd.remove(&hash);
            }
        }
        self.changed = true;
        true
    }

    /// Puts a value in the place of another with the same hash.
    pub(crate) fn replace(&mut self, hash: u64, old: u64, new: u64) -> bool {
        let (segment, way) = (self.segment(hash), Way::of(hash));
        let Some((passed, place, _)) = segment.search(way, |found| found == old) else {
            let crowded = self.take_from_crowd(hash, old);
            if crowded {
                Arc::make_mut(&mut self.crowd).entry(hash).or_default().push(new);
            }
            return crowded;
        };
        segment.bucket(way.home + passed)[1 + place].store(way.upper | new, Ordering::Release);
        true
    }

    /// Looks at one segment and joins it with its other half if both have become nearly empty, or moves one so that a
    /// chunk becomes empty. Says whether a round over all of them is complete.
    pub(crate) fn shrink_step(&mut self) -> bool {
        if !self.leaving.is_empty() {
            let left = self.leaving.len().saturating_sub(AT_ONCE);
            self.leaving.truncate(left);
            if left == 0 {
                self.leaving = Vec::new();
            }
            return false;
        }
        if self.sites.is_sparse() {
            self.move_high();
            return false;
        }
        if self.hand >= self.directory.len() {
            if self.halve_some() {
                return false;
            }
            self.hand = 0;
            self.quiet_at = if std::mem::take(&mut self.joined) {
                u64::MAX
            } else {
                self.entries
            };
            return true;
        }
        let Note { depth, used, .. } = self.notes[self.directory[self.hand].number as usize];
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
        !self.leaving.is_empty()
            || self.sites.is_sparse()
            || segments > 1 && self.entries * 3 < (segments * SLOTS) as u64 && fewer
    }

    fn segments(&self) -> usize {
        self.notes.len() - self.spare.len()
    }

    /// Bytes of segments and directory.
    pub(crate) fn bytes(&self) -> u64 {
        let coming = match &self.coming {
            Coming::Nothing => 0,
            Coming::Twice(coming) | Coming::Half(coming) => coming.capacity(),
        };
        let places = self.directory.len() + coming + self.leaving.len();
        let crowd: usize = self.crowd.values().map(|values| 48 + values.capacity() * 8).sum();
        self.sites.bytes() + (places * size_of::<Segment>() + crowd) as u64
    }

    /// A segment with whatever was in it.
    fn add_segment(&mut self, depth: u32) -> Segment {
        let number = self.spare.pop().unwrap_or(self.notes.len() as u32);
        let note = Note::new(number, depth);
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

    /// Whether a full segment can be split now. If the directory must grow first, that is done in pieces, and the segment
    /// takes a few more entries meanwhile.
    #[cold]
    fn may_split(&mut self, note: usize) -> bool {
        let Note { depth, used, .. } = self.notes[note];
        while depth == self.depth {
            let doubled = self.double_some();
            if !doubled && used < MUST_SPLIT {
                return false;
            }
        }
        true
    }

    /// Makes a part of a directory that is twice as long. Says whether it took the place of the old one.
    fn double_some(&mut self) -> bool {
        if !matches!(self.coming, Coming::Twice(_)) {
            self.give_up_coming();
            self.coming = Coming::Twice(Vec::with_capacity(2 * self.directory.len()));
        }
        let Coming::Twice(coming) = &mut self.coming else {
            return false;
        };
        let start = coming.len() / 2;
        let part = &self.directory[start..self.directory.len().min(start + AT_ONCE)];
        coming.extend(part.iter().flat_map(|segment| [segment.clone(), segment.clone()]));
        let is_done = coming.len() == 2 * self.directory.len();
        if is_done {
            self.depth += 1;
            self.take_over();
        }
        is_done
    }

    /// Makes a part of a directory that is half as long, if no segment needs all bits. Says whether there is more to do.
    fn halve_some(&mut self) -> bool {
        if self.depth == 0 || matches!(self.coming, Coming::Twice(_)) {
            return false;
        }
        if matches!(self.coming, Coming::Nothing) {
            self.coming = Coming::Half(Vec::new());
        }
        let (notes, depth) = (&self.notes, self.depth);
        let Coming::Half(coming) = &mut self.coming else {
            return false;
        };
        let start = 2 * coming.len();
        let part = &self.directory[start..self.directory.len().min(start + AT_ONCE)];
        if part.iter().any(|segment| notes[segment.number as usize].depth == depth) {
            self.give_up_coming();
            return false;
        }
        coming.extend(part.iter().step_by(2).cloned());
        if 2 * coming.len() == self.directory.len() {
            self.depth -= 1;
            self.take_over();
        }
        true
    }

    /// What was in the making becomes the directory.
    fn take_over(&mut self) {
        let (Coming::Twice(coming) | Coming::Half(coming)) = std::mem::replace(&mut self.coming, Coming::Nothing)
        else {
            return;
        };
        self.leaving.append(&mut self.directory);
        self.directory = coming;
        self.hand = 0;
        self.changed = true;
    }

    fn give_up_coming(&mut self) {
        if let Coming::Twice(mut coming) | Coming::Half(mut coming) =
            std::mem::replace(&mut self.coming, Coming::Nothing)
        {
            self.leaving.append(&mut coming);
        }
    }

    /// Puts a segment into `count` places of the directory, and of the one in the making.
    fn assign(&mut self, start: usize, count: usize, segment: &Segment) {
        self.directory[start..start + count].fill(segment.clone());
        match &mut self.coming {
            Coming::Nothing => {}
            Coming::Twice(coming) => {
                let end = coming.len().min(2 * (start + count));
                coming[end.min(2 * start)..end].fill(segment.clone());
            }
            // One that stands once does not fit, or one half of it would be lost.
            Coming::Half(coming) if count > 1 => {
                let end = coming.len().min(start / 2 + count / 2);
                coming[end.min(start / 2)..end].fill(segment.clone());
            }
            Coming::Half(_) => self.give_up_coming(),
        }
        self.changed = true;
    }

    /// Replaces the segment at this place of the directory by two. It needs fewer bits than the directory has.
    fn split(&mut self, index: usize) {
        let full = self.directory[index].clone();
        let depth = self.notes[full.number as usize].depth;
        let (low, high) = (self.add_segment(depth + 1), self.add_segment(depth + 1));
        let used = split(&full, [&low, &high], depth);
        self.notes[low.number as usize].used = used[0];
        self.notes[high.number as usize].used = used[1];
        let span = 1 << (self.depth - depth - 1);
        let start = index / (2 * span) * (2 * span);
        self.assign(start, span, &low);
        self.assign(start + span, span, &high);
        self.drop_segment(&full);
        self.quiet_at = u64::MAX;
    }

    /// Makes one segment of the two that begin at `start` and `start + span`.
    fn join(&mut self, start: usize, span: usize) {
        let (low, high) = (self.directory[start].clone(), self.directory[start + span].clone());
        let joined = self.add_segment(self.notes[low.number as usize].depth - 1);
        self.notes[joined.number as usize].used = join([&low, &high], &joined);
        self.assign(start, 2 * span, &joined);
        self.drop_segment(&low);
        self.drop_segment(&high);
        self.joined = true;
    }

    /// Looks for a segment that lies in the highest chunk and moves it, so that the chunk becomes empty.
    fn move_high(&mut self) {
        let start = self.high_hand % self.directory.len();
        let end = self.directory.len().min(start + AT_ONCE);
        let found = (start..end).find(|index| self.sites.is_high(&self.directory[*index].site));
        self.high_hand = found.unwrap_or(end);
        let Some(index) = found else { return };
        let segment = self.directory[index].clone();
        let site = self.sites.take();
        for (from, to) in segment.site.words().iter().zip(site.words()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let moved = Segment {
            site,
            number: segment.number,
        };
        let span = 1_usize << (self.depth - self.notes[segment.number as usize].depth);
        self.assign(index / span * span, span, &moved);
        self.sites.give_back(&segment.site);
    }
}

/// The first value of a crowd with this hash that `is_it` accepts.
#[inline]
fn find_in(crowd: &Crowd, hash: u64, mut is_it: impl FnMut(u64) -> bool) -> Option<u64> {
    if crowd.is_empty() {
        return None;
    }
    crowd.get(&hash)?.iter().copied().find(|value| is_it(*value))
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
        const MANY: u64 = 20_000;
        let mut table = Table::of_writer(Reserve::default());
        let mut between = (0, 0);
        for value in 1..=MANY {
            table.insert(spread(value), value);
            between.0 += u32::from(matches!(table.coming, Coming::Twice(_)));
            if value % 1000 == 0 || matches!(table.coming, Coming::Twice(_)) && value % 50 == 0 {
                assert!((value.saturating_sub(5000).max(1)..=value).all(|value| contains(&table, value)));
            }
        }
        assert!(
            table.depth >= 4 && between.0 > 5,
            "{} at depth {}",
            between.0,
            table.depth
        );
        let full = table.bytes();
        assert!((1..=MANY).all(|value| table.find(spread(value), |found| found == value).is_some()));
        for value in 101..=MANY {
            assert!(table.remove(spread(value), value));
        }
        for _ in 0..2 {
            while !table.shrink_step() {
                between.1 += u32::from(matches!(table.coming, Coming::Half(_)));
                assert!((1..=100).all(|value| table.find(spread(value), |found| found == value).is_some()));
            }
        }
        assert!(between.1 > 2, "{between:?}");
        table.relax();
        assert!(table.bytes() * 4 < full, "{} of {full} bytes", table.bytes());
        assert!((1..=100).all(|value| contains(&table, value)));
        assert!(!contains(&table, 101));
        assert_eq!(table.len(), 100);
    }

    /// Segments are split and joined while a directory is in the making.
    #[test]
    fn a_directory_in_the_making_is_kept_up_to_date() {
        let mut table = Table::of_writer(Reserve::default());
        let mut seen = (false, false);
        for value in 1..=40_000 {
            table.insert(spread(value), value);
            if value > 10_000 && value % 3 == 0 {
                assert!(table.remove(spread(value - 9000), value - 9000));
                table.shrink_step();
            }
            seen.0 |= matches!(table.coming, Coming::Twice(_));
        }
        let left: Vec<u64> = (1..=40_000)
            .filter(|value| table.find(spread(*value), |found| found == *value).is_some())
            .collect();
        assert_eq!(left.len() as u64, table.len());
        for value in left.iter().filter(|value| **value % 64 != 0) {
            assert!(table.remove(spread(*value), *value));
        }
        // Every other piece of a shorter directory meets new entries.
        for value in 100_000..110_000 {
            table.insert(spread(value), value);
            table.shrink_step();
            seen.1 |= matches!(table.coming, Coming::Half(_));
        }
        assert_eq!(seen, (true, true));
        assert!((100_000..110_000).all(|value| contains(&table, value)));
        assert!(
            left.iter()
                .filter(|value| **value % 64 == 0)
                .all(|value| contains(&table, *value))
        );
    }

    #[test]
    fn a_crowd_that_no_bit_tells_apart_is_found_and_leaves_no_trace() {
        let mut table = Table::of_readers();
        let hash = 7 << 50;
        for value in 1..=4000 {
            assert_eq!(table.insert_noting(hash, value, |_| true), value > 1);
        }
        assert!(table.replace(hash, 4000, 5000));
        let snapshot = table.snapshot();
        for value in (1..4000).chain([5000]) {
            assert_eq!(table.find(hash, |found| found == value), Some(value));
            assert_eq!(snapshot.find(hash, |found| found == value), Some(value));
        }
        assert_eq!(table.find(hash, |found| found == 4000), None);
        // Those that had room go first: the rest is still found, and still alike to what comes.
        for value in 1..4000 {
            assert!(table.remove(hash, value) && !table.remove(hash, value));
        }
        assert!(table.insert_noting(hash, 1, |found| found == 5000));
        assert!(table.remove(hash, 5000) && table.remove(hash, 1));
        assert_eq!((table.len(), table.crowd.len()), (0, 0));
    }

    #[test]
    fn a_crowd_in_one_bucket_is_found_and_leaves_no_trace() {
        let mut table = Table::of_writer(Reserve::default());
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
            let mut table = Table::of_writer(Reserve::default());
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
