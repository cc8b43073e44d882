//! Which slots are in this set? One word for most sets, words by pointer for the rest.
//!
//! The top bits say how to read the others:
//!
//! - `0` a mask of slots 0 to 62, so that a small fleet never needs a pointer;
//! - `100` up to four slot numbers of 15 bits;
//! - `101` up to five slot numbers of 12 bits;
//! - `11` an extent of the heap with one bit per slot.
//!
//! **Invariant:** the empty set is the word 0, so an empty set needs no space; a set is a mask whenever all its members
//! are below 63.

use crate::chunk::prefetch;
use crate::heap::{Addr, Directory, Heap, Kind};
use crate::sync::Ordering;

/// Slots above this number do not exist.
pub(crate) const MAX_SLOTS: usize = NONE as usize;

const MASK_SLOTS: usize = 63;
const FORM_SHIFT: u32 = 62;
const IDS: u64 = 2;
const WORDS: u64 = 3;
/// Set if numbers are short.
const SHORT: u64 = 1 << 61;
const ID_BITS: u32 = 15;
const SHORT_BITS: u32 = 12;
/// As many numbers as fit, of either length.
const MAX_IDS: usize = 4;
const MAX_SHORT: usize = 5;
/// The number that stands for no slot.
const NONE: u64 = (1 << ID_BITS) - 1;
const NO_SHORT: u64 = (1 << SHORT_BITS) - 1;

/// A set of slots as it stands in a run's record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotSet(pub(crate) u64);

enum Form {
    Mask(u64),
    Ids(u64),
    Words { addr: Addr, count: usize },
}

impl SlotSet {
    pub(crate) const EMPTY: Self = Self(0);

    #[inline]
    fn form(self) -> Form {
        match self.0 >> FORM_SHIFT {
            0 | 1 => Form::Mask(self.0),
            IDS => Form::Ids(self.0),
            _ => Form::Words {
                addr: self.0 as u32,
                count: (self.0 >> 32) as usize & 0xffff,
            },
        }
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// The extent that holds the words, if there is one.
    pub(crate) fn extent(self) -> Option<Addr> {
        match self.form() {
            Form::Words { addr, .. } => Some(addr),
            _ => None,
        }
    }

    /// The same set after its words have moved.
    pub(crate) fn moved_to(self, addr: Addr) -> Self {
        Self(self.0 & !u64::from(u32::MAX) | u64::from(addr))
    }

    /// Asks for the words, if there are any.
    #[inline]
    pub(crate) fn prefetch(self, heap: &Directory) {
        if let Some(words) = self.extent().and_then(|addr| heap.words(addr)) {
            words.get(1).into_iter().for_each(prefetch);
        }
    }

    /// Adds to `out` what is both in this set and in `alive`. `None` if a reader ran into words that are gone.
    #[inline]
    pub(crate) fn meet(self, alive: &[u64], out: &mut [u64], heap: &Directory) -> Option<()> {
        match self.form() {
            Form::Mask(mask) => {
                if let (Some(alive), Some(out)) = (alive.first(), out.first_mut()) {
                    *out |= mask & alive;
                }
            }
            Form::Ids(ids) => {
                for id in ids_in(ids) {
                    if let (Some(alive), Some(out)) = (alive.get(id / 64), out.get_mut(id / 64)) {
                        *out |= alive & (1 << (id % 64));
                    }
                }
            }
            Form::Words { addr, count } => {
                let words = heap.words(addr)?.get(1..=count)?;
                for ((word, alive), out) in words.iter().zip(alive).zip(out) {
                    *out |= word.load(Ordering::Relaxed) & alive;
                }
            }
        }
        Some(())
    }

    pub(crate) fn contains(self, slot: usize, heap: &Heap) -> bool {
        match self.form() {
            Form::Mask(mask) => slot < MASK_SLOTS && mask >> slot & 1 == 1,
            Form::Ids(ids) => ids_in(ids).any(|id| id == slot),
            Form::Words { addr, count } => {
                slot / 64 < count && heap.words(addr)[1 + slot / 64].load(Ordering::Relaxed) >> (slot % 64) & 1 == 1
            }
        }
    }

    pub(crate) fn members(self, heap: &Heap) -> Vec<usize> {
        match self.form() {
            Form::Mask(mask) => bits_in(mask, 0).collect(),
            Form::Ids(ids) => ids_in(ids).collect(),
            Form::Words { addr, count } => {
                let words = heap.words(addr)[1..=count].iter().enumerate();
                words
                    .flat_map(|(index, word)| bits_in(word.load(Ordering::Relaxed), index * 64))
                    .collect()
            }
        }
    }

    /// The set with one more member. Writes into shared words: call it within a write of the run's record.
    pub(crate) fn with(self, slot: usize, heap: &mut Heap, owner: u32) -> Self {
        match self.form() {
            Form::Mask(mask) if slot < MASK_SLOTS => Self(mask | 1 << slot),
            Form::Words { addr, count } if slot / 64 < count => {
                let word = &heap.words(addr)[1 + slot / 64];
                word.store(word.load(Ordering::Relaxed) | 1 << (slot % 64), Ordering::Relaxed);
                self
            }
            _ => {
                let mut members = self.members(heap);
                if !members.contains(&slot) {
                    members.push(slot);
                }
                self.release(heap);
                Self::of(&members, heap, owner)
            }
        }
    }

    /// The set with one member less.
    pub(crate) fn without(self, slot: usize, heap: &mut Heap, owner: u32) -> Self {
        match self.form() {
            Form::Mask(mask) if slot < MASK_SLOTS => Self(mask & !(1 << slot)),
            Form::Mask(_) => self,
            Form::Ids(ids) => {
                let rest: Vec<usize> = ids_in(ids).filter(|id| *id != slot).collect();
                Self::of(&rest, heap, owner)
            }
            Form::Words { addr, count } => {
                if slot / 64 >= count {
                    return self;
                }
                let word = &heap.words(addr)[1 + slot / 64];
                word.store(word.load(Ordering::Relaxed) & !(1 << (slot % 64)), Ordering::Relaxed);
                let words = heap.words(addr)[1..=count]
                    .iter()
                    .map(|word| word.load(Ordering::Relaxed));
                let (left, beyond) = words.enumerate().fold((0, 0), |(left, beyond), (index, word)| {
                    let above = if index == 0 { word >> MASK_SLOTS } else { word };
                    (left + word.count_ones() as usize, beyond | above)
                });
                if left > MAX_SHORT && beyond != 0 {
                    return self;
                }
                let rest = self.members(heap);
                self.release(heap);
                Self::of(&rest, heap, owner)
            }
        }
    }

    /// The members of both.
    pub(crate) fn join(self, other: Self, heap: &mut Heap, owner: u32) -> Self {
        if self.is_empty() || other.is_empty() {
            return Self(self.0 | other.0);
        }
        if let (Form::Mask(a), Form::Mask(b)) = (self.form(), other.form()) {
            return Self(a | b);
        }
        let members = other.members(heap);
        other.release(heap);
        members.into_iter().fold(self, |set, slot| set.with(slot, heap, owner))
    }

    /// Gives the words back.
    pub(crate) fn release(self, heap: &mut Heap) {
        if let Some(addr) = self.extent() {
            heap.free(addr);
        }
    }

    pub(crate) fn of(members: &[usize], heap: &mut Heap, owner: u32) -> Self {
        let Some(highest) = members.iter().copied().max() else {
            return Self::EMPTY;
        };
        if highest < MASK_SLOTS {
            return Self(members.iter().fold(0, |mask, slot| mask | 1 << slot));
        }
        if let Some(ids) = ids_of(members, highest) {
            return Self(IDS << FORM_SHIFT | ids);
        }
        let count = highest / 64 + 1;
        let addr = heap.alloc(Kind::Set, count as u32 + 1, owner);
        for word in &heap.words(addr)[1..=count] {
            word.store(0, Ordering::Relaxed);
        }
        for slot in members {
            let word = &heap.words(addr)[1 + slot / 64];
            word.store(word.load(Ordering::Relaxed) | 1 << (slot % 64), Ordering::Relaxed);
        }
        Self(WORDS << FORM_SHIFT | (count as u64) << 32 | u64::from(addr))
    }
}

/// The members as numbers, if they fit.
fn ids_of(members: &[usize], highest: usize) -> Option<u64> {
    let (flag, none, bits, most) = if members.len() <= MAX_IDS {
        (0, NONE, ID_BITS, MAX_IDS)
    } else if members.len() <= MAX_SHORT && highest < NO_SHORT as usize {
        (SHORT, NO_SHORT, SHORT_BITS, MAX_SHORT)
    } else {
        return None;
    };
    Some((0..most).fold(flag, |ids, place| {
        let id = members.get(place).map_or(none, |slot| *slot as u64);
        ids | id << (place as u32 * bits)
    }))
}

#[inline]
fn ids_in(ids: u64) -> impl Iterator<Item = usize> {
    let (none, bits, most) = if ids & SHORT == 0 {
        (NONE, ID_BITS, MAX_IDS)
    } else {
        (NO_SHORT, SHORT_BITS, MAX_SHORT)
    };
    (0..most as u32)
        .map(move |place| ids >> (place * bits) & none)
        .filter(move |id| *id != none)
        .map(|id| id as usize)
}

/// The positions of the bits that are set, counted from `base`.
pub(crate) fn bits_in(mut word: u64, base: usize) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as usize;
        word &= word - 1;
        Some(base + bit)
    })
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn equals_a_set(steps in prop_oneof![
            prop::collection::vec((any::<bool>(), prop_oneof![0_usize..70, 0_usize..400, 4090_usize..4100]), 0..80),
            // Many members below the border and few above it, which come and go.
            prop::collection::vec(prop_oneof![3 => (Just(true), 0_usize..12), 1 => (any::<bool>(), 61_usize..66)], 0..80),
        ]) {
            let mut heap = Heap::new(crate::spares::Reserve::default());
            let mut set = SlotSet::EMPTY;
            let mut model = BTreeSet::<usize>::new();
            let alive = [u64::MAX; 65];
            for (insert, slot) in steps {
                if insert {
                    set = set.with(slot, &mut heap, 1);
                    model.insert(slot);
                } else {
                    set = set.without(slot, &mut heap, 1);
                    model.remove(&slot);
                }
                let expected: Vec<usize> = model.iter().copied().collect();
                let mut members = set.members(&heap);
                members.sort_unstable();
                prop_assert_eq!(&members, &expected);
                let mut out = [0; 65];
                set.meet(&alive, &mut out, &heap.directory()).unwrap();
                let met: Vec<usize> = out.iter().enumerate().flat_map(|(i, word)| bits_in(*word, i * 64)).collect();
                prop_assert_eq!(&met, &expected);
                prop_assert_eq!(set.is_empty(), model.is_empty());
                let is_small = model.iter().all(|slot| *slot < MASK_SLOTS);
                prop_assert_eq!(matches!(set.form(), Form::Mask(_)), is_small);
                for slot in (0..400).chain(4090..4100) {
                    prop_assert_eq!(set.contains(slot, &heap), model.contains(&slot));
                }
                let needed = set.extent().map_or(0, |addr| heap.header(addr).words);
                prop_assert_eq!(heap.live_words(), u64::from(needed));
            }
        }
    }
}
