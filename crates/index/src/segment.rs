//! Which values has this hash? One piece of a table: buckets of one cache line each, a control word and seven slots.
//!
//! An entry lies in its home bucket or, if that is full, in one of the next; a bucket counts the entries that passed it,
//! so that a search knows where to stop and a removal needs no tombstone. A slot has, beside its value, the bits of the
//! hash that say where it belongs, so that entries are taken over into other segments without a look at what they mean.
//!
//! **Invariant:** entries never move within a segment. A slot is written before the control word says that it is in use.

use crate::sites::Site;
use crate::sync::{AtomicU64, Ordering};

/// Buckets of a segment.
#[cfg(not(any(shuttle, loom)))]
const BUCKETS: usize = 256;
/// Few, because every word is expensive under the schedule explorer.
#[cfg(any(shuttle, loom))]
const BUCKETS: usize = 2;
/// Slots of a bucket.
const WIDTH: usize = 7;
pub(crate) const SLOTS: usize = BUCKETS * WIDTH;
/// How many entries a segment holds before it is split: between 65 and 80 of a hundred that have room, differently for each
/// number. Entries are spread evenly, so if it were the same for all, all would be split at nearly the same time, many of
/// them within one event.
pub(crate) const fn split_above(number: u32) -> u32 {
    // The scenes under the schedule explorer count on when a segment is split.
    const PERCENT: (usize, usize) = if cfg!(any(shuttle, loom)) { (85, 85) } else { (65, 80) };
    const LEAST: u32 = (SLOTS * PERCENT.0 / 100) as u32;
    const MOST: u32 = (SLOTS * PERCENT.1 / 100) as u32;
    // Numbers that follow each other lie far apart.
    LEAST + (number.wrapping_mul(0x9e37_79b9) >> 16) % (MOST - LEAST + 1)
}
/// One that holds so many is split at once, whatever that takes.
pub(crate) const MUST_SPLIT: u64 = (SLOTS * 95 / 100) as u64;
/// Two halves that together hold less are joined.
pub(crate) const JOIN_BELOW: u64 = (SLOTS / 2) as u64;
/// The directory is indexed by at most so many bits: as many as a slot has.
pub(crate) const MAX_DEPTH: u32 = 18;

/// A slot is, from the lowest bit, a value, the home bucket and the top bits of the hash.
const VALUE_BITS: u32 = 38;
pub(crate) const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;
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
    pub(crate) site: Site,
    /// What the writer notes about it is there.
    pub(crate) number: u32,
}

/// What a hash means for a segment.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) home: usize,
    control: u64,
    /// What a slot has beside its value.
    pub(crate) upper: u64,
}

impl Way {
    /// Bits in the middle choose the bucket, and those below them tell most strangers apart.
    #[inline]
    pub(crate) fn of(hash: u64) -> Self {
        let home = (hash >> 24) & ((1 << HOME_BITS) - 1);
        let upper = (hash >> (64 - MAX_DEPTH) << HOME_BITS | home) << VALUE_BITS;
        Self {
            home: home as usize % BUCKETS,
            control: 0x80 | (hash >> 17 & 0x7f),
            upper,
        }
    }

    /// The way of an entry, from its control byte and its slot.
    fn back(control: u64, slot: u64) -> Self {
        Self {
            home: Self::home_of(slot),
            control,
            upper: slot & !VALUE_MASK,
        }
    }

    /// The home bucket of an entry that is in a slot.
    #[inline]
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

/// Puts a value into the first free slot of a bucket with this control word.
#[inline]
fn put(bucket: &Bucket, control: u64, way: Way, value: u64) {
    let place = first(free(control));
    bucket[1 + place].store(way.upper | value, Ordering::Release);
    bucket[0].store(control | way.control << (8 * place), Ordering::Release);
}

impl Segment {
    #[inline]
    pub(crate) fn bucket(&self, index: usize) -> &Bucket {
        let (buckets, _) = self.site.words().as_chunks::<{ 1 + WIDTH }>();
        &buckets[index % BUCKETS]
    }

    /// The first value on this way that `is_it` accepts, with the number of buckets passed and the slot.
    #[inline]
    pub(crate) fn search(&self, way: Way, mut is_it: impl FnMut(u64) -> bool) -> Option<(usize, usize, u64)> {
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
    pub(crate) fn insert(&self, way: Way, value: u64) {
        let bucket = self.bucket(way.home);
        let control = bucket[0].load(Ordering::Relaxed);
        if free(control) == 0 {
            self.insert_further(way, value);
        } else {
            put(bucket, control, way, value);
        }
    }

    /// Puts a value into its home bucket and says so, if there is room and nothing on its way that looks alike.
    #[inline]
    pub(crate) fn insert_alone(&self, way: Way, value: u64) -> bool {
        let bucket = self.bucket(way.home);
        let control = bucket[0].load(Ordering::Relaxed);
        let is_alone = control & PASSED_MASK == 0 && alike(control, way.control) == 0 && free(control) != 0;
        if is_alone {
            put(bucket, control, way, value);
        }
        is_alone
    }

    /// As [`Segment::insert`], when the home bucket is full.
    #[cold]
    fn insert_further(&self, way: Way, value: u64) {
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
        put(self.bucket(way.home + passed), control, way, value);
    }

    #[inline]
    pub(crate) fn remove(&self, way: Way, value: u64) -> bool {
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

/// Puts the entries of a full segment into two others that nobody else sees yet, whatever was in those: each into the one
/// that this bit of the hash says, counted from the top. Returns how many entries each of them has.
///
/// A line is copied as it is, and the control words say whose each slot is. Only what is not in its home bucket is put in
/// anew, when all others have their places.
pub(crate) fn split(full: &Segment, halves: [&Segment; 2], bit: u32) -> [u64; 2] {
    let mut used = [0; 2];
    let mut displaced = Vec::with_capacity(SLOTS / 4);
    for index in 0..BUCKETS {
        let line = Line::of(full.bucket(index));
        let (mut high, mut away) = (0, 0);
        for (place, slot) in line.slots.into_iter().enumerate() {
            high |= (slot >> (63 - bit) & 1) << (8 * place);
            away |= u64::from(Way::home_of(slot) != index) << (8 * place);
        }
        let taken = (line.control & TOPS) >> 7;
        let (high, away) = (high & taken, away & taken);
        let low = taken & !high;
        for (half, (segment, mine)) in halves.into_iter().zip([low, high]).enumerate() {
            used[half] += u64::from(mine.count_ones());
            line.put(segment.bucket(index), (mine & !away) * 0xff);
        }
        line.each(away, |control, slot| displaced.push((control, slot)));
    }
    for (control, slot) in displaced {
        let half = halves[(slot >> (63 - bit)) as usize & 1];
        half.insert(Way::back(control, slot), slot & VALUE_MASK);
    }
    used
}

/// Puts the entries of two segments into another that nobody else sees yet, whatever was in it. Returns how many they are.
pub(crate) fn join(halves: [&Segment; 2], joined: &Segment) -> u64 {
    let mut used = 0;
    let mut displaced = Vec::new();
    for index in 0..BUCKETS {
        joined.bucket(index)[0].store(0, Ordering::Relaxed);
        for half in halves {
            let line = Line::of(half.bucket(index));
            line.each((line.control & TOPS) >> 7, |control, slot| {
                used += 1;
                let (bucket, way) = (joined.bucket(index), Way::back(control, slot));
                let control = bucket[0].load(Ordering::Relaxed);
                if way.home == index && free(control) != 0 {
                    put(bucket, control, way, slot & VALUE_MASK);
                } else {
                    displaced.push((way, slot));
                }
            });
        }
    }
    for (way, slot) in displaced {
        joined.insert(way, slot & VALUE_MASK);
    }
    used
}

/// A bucket, read once.
struct Line {
    control: u64,
    slots: [u64; WIDTH],
}

impl Line {
    #[inline]
    fn of(bucket: &Bucket) -> Self {
        Self {
            control: bucket[0].load(Ordering::Relaxed),
            slots: std::array::from_fn(|place| bucket[1 + place].load(Ordering::Relaxed)),
        }
    }

    /// Writes it to another bucket, with those control bytes that the mask has and nothing that passed.
    #[inline]
    fn put(&self, bucket: &Bucket, mask: u64) {
        bucket[0].store(self.control & mask, Ordering::Relaxed);
        for (word, slot) in bucket[1..].iter().zip(self.slots) {
            word.store(slot, Ordering::Relaxed);
        }
    }

    /// Control byte and slot of those whose bytes have a bit.
    #[inline]
    fn each(&self, mut bytes: u64, mut act: impl FnMut(u64, u64)) {
        while bytes != 0 {
            let place = first(bytes);
            bytes &= bytes - 1;
            act(self.control >> (8 * place) & 0xff, self.slots[place]);
        }
    }
}
