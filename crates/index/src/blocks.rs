//! Where in its extent does a block of a run lie? After the header come groups of eight blocks: their keys, then their
//! labels. The last group may be smaller, so that no word is wasted.
//!
//! A run grows and shrinks at its end, and so does its extent: only the labels of the last group move then. Eight keys
//! are a cache line long, so that a search among keys brings no labels along.
//!
//! **Invariant:** where a key lies does not depend on how much room there is: readers, who look at keys only, need not
//! read the header. Labels are the writer's.

use crate::chunk::prefetch;
use crate::sync::{AtomicU64, Ordering};

/// Blocks of a group.
const GROUP: usize = 8;
/// So many blocks ahead their labels are asked for where they are compared.
const ASKED: usize = 8 * GROUP;

/// Words of an extent with room for so many blocks.
pub(crate) const fn words_of(room: usize) -> u32 {
    1 + 2 * room as u32
}

/// Blocks that an extent of so many words has room for.
pub(crate) const fn room_of(words: u32) -> usize {
    (words as usize - 1) / 2
}

/// Where the key of a block lies in the words of an extent.
#[inline]
pub(crate) const fn key_word(offset: usize) -> usize {
    1 + offset + (offset & !(GROUP - 1))
}

/// How far behind its key the label of a block lies.
#[inline]
fn distance(offset: usize, room: usize) -> usize {
    (room - (offset & !(GROUP - 1))).min(GROUP)
}

/// Keys and labels of a run, the writer's view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks<'a> {
    words: &'a [AtomicU64],
    room: usize,
}

impl<'a> Blocks<'a> {
    /// The blocks in an extent that begins with these words.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64], extent: u32) -> Self {
        Self {
            words: &words[..extent as usize],
            room: room_of(extent),
        }
    }

    #[inline]
    pub(crate) fn key(self, offset: usize) -> u64 {
        self.words[key_word(offset)].load(Ordering::Relaxed)
    }

    #[inline]
    fn label_word(self, offset: usize) -> &'a AtomicU64 {
        &self.words[key_word(offset) + distance(offset, self.room)]
    }

    #[inline]
    pub(crate) fn label(self, offset: usize) -> u64 {
        self.label_word(offset).load(Ordering::Relaxed)
    }

    /// The labels of the blocks from `start` on and before `end`. Those to come are asked for.
    #[inline]
    pub(crate) fn labels(self, start: usize, end: usize) -> impl Iterator<Item = u64> {
        (start..end.min(start + ASKED))
            .step_by(GROUP)
            .for_each(|offset| self.ask_for_label(offset));
        (start..end).map(move |offset| {
            if offset.is_multiple_of(GROUP) {
                self.ask_for_label(offset + ASKED);
            }
            self.label(offset)
        })
    }

    /// How many of these labels are those of the blocks from `start` on and before `end`, in order.
    #[inline]
    pub(crate) fn count_labels(self, start: usize, end: usize, labels: impl Iterator<Item = u64>) -> usize {
        let mut labels = labels;
        let mut offset = start;
        while offset < end {
            let stop = ((offset | (GROUP - 1)) + 1).min(end);
            self.ask_for_label(offset + ASKED);
            let word = key_word(offset) + distance(offset, self.room);
            for stored in &self.words[word..word + stop - offset] {
                match labels.next() {
                    Some(label) if label == stored.load(Ordering::Relaxed) => offset += 1,
                    _ => return offset - start,
                }
            }
        }
        offset - start
    }

    /// How many of these labels are those of the blocks before `end`, from the last to the first.
    #[inline]
    pub(crate) fn count_labels_down(self, end: usize, labels: impl Iterator<Item = u64>) -> usize {
        let mut labels = labels;
        let mut offset = end;
        while offset > 0 {
            let stop = (offset - 1) & !(GROUP - 1);
            self.ask_for_label(stop.saturating_sub(ASKED));
            let word = key_word(stop) + distance(stop, self.room);
            for stored in self.words[word..word + offset - stop].iter().rev() {
                match labels.next() {
                    Some(label) if label == stored.load(Ordering::Relaxed) => offset -= 1,
                    _ => return end - offset,
                }
            }
        }
        end
    }

    /// Asks for the label of a block, if there is one.
    #[inline]
    fn ask_for_label(self, offset: usize) {
        if let Some(word) = self.words.get(key_word(offset) + GROUP) {
            prefetch(word);
        }
    }

    /// Writes keys and labels from `start` on.
    pub(crate) fn put(self, start: usize, blocks: impl Iterator<Item = (u64, u64)>) {
        for (offset, (key, label)) in (start..).zip(blocks) {
            self.words[key_word(offset)].store(key, Ordering::Relaxed);
            self.label_word(offset).store(label, Ordering::Relaxed);
        }
    }

    /// Copies the first `count` blocks to the same places of another extent.
    pub(crate) fn copy_to(self, to: Blocks<'_>, count: usize) {
        let whole = count.min(self.room).min(to.room) / GROUP * GROUP;
        let words = 1..1 + 2 * whole;
        for (from, to) in self.words[words.clone()].iter().zip(&to.words[words]) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        to.put(
            whole,
            (whole..count).map(|offset| (self.key(offset), self.label(offset))),
        );
    }
}

/// An extent with room for `from` blocks becomes one with room for `to`: the labels of its last group go to where they
/// will be looked for. `count` blocks are in use, and the words of both are there.
pub(crate) fn regroup(words: &[AtomicU64], count: usize, from: usize, to: usize) {
    let group = from.min(to) & !(GROUP - 1);
    let mut labels = [0; GROUP];
    for (label, offset) in labels.iter_mut().zip(group..count) {
        *label = words[key_word(offset) + distance(offset, from)].load(Ordering::Relaxed);
    }
    for (label, offset) in labels.iter().zip(group..count) {
        words[key_word(offset) + distance(offset, to)].store(*label, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(shuttle, loom))))]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(u64::MAX)).collect()
    }

    /// Key and label of every block, by offset.
    fn block(offset: usize) -> (u64, u64) {
        (offset as u64, 1000 + offset as u64)
    }

    fn assert_has(blocks: Blocks<'_>, count: usize) {
        for offset in 0..count {
            assert_eq!((blocks.key(offset), blocks.label(offset)), block(offset), "{blocks:?}");
        }
    }

    #[test]
    fn blocks_stay_themselves_when_their_extent_grows_shrinks_or_moves() {
        for from in 1..40_usize {
            for to in 1..40 {
                let words = words(words_of(from.max(to)) as usize);
                let count = from.min(to);
                Blocks::new(&words, words_of(from)).put(0, (0..count).map(block));
                assert_has(Blocks::new(&words, words_of(from)), count);
                regroup(&words, count, from, to);
                let blocks = Blocks::new(&words, words_of(to));
                assert_has(blocks, count);
                blocks.put(count, (count..to).map(block));
                assert_has(blocks, to);
                let other = self::words(words_of(from + 3) as usize);
                let copy = Blocks::new(&other, words_of(from + 3));
                blocks.copy_to(copy, count);
                assert_has(copy, count);
            }
        }
    }

    #[test]
    fn labels_are_counted_as_far_as_they_are_the_same() {
        for room in 1..40 {
            let words = words(words_of(room) as usize);
            let blocks = Blocks::new(&words, words_of(room));
            blocks.put(0, (0..room).map(block));
            let label = |offset: usize| block(offset).1;
            for start in 0..room {
                for wrong in start..=room {
                    let named = |offset| if offset == wrong { 7 } else { label(offset) };
                    assert_eq!(
                        blocks.count_labels(start, room, (start..room + 3).map(named)),
                        wrong - start
                    );
                    assert_eq!(
                        blocks.count_labels(start, wrong, (start..room).map(label)),
                        wrong - start
                    );
                    assert_eq!(
                        blocks.count_labels(start, room, (start..wrong).map(label)),
                        wrong - start
                    );
                    // The block at `start` is called otherwise, if it is one of them.
                    let named = |offset| if offset == start { 7 } else { label(offset) };
                    let same = if start < wrong { wrong - start - 1 } else { wrong };
                    assert_eq!(blocks.count_labels_down(wrong, (0..wrong).rev().map(named)), same);
                    assert_eq!(
                        blocks.count_labels_down(wrong, (start..wrong).rev().map(label)),
                        wrong - start
                    );
                }
            }
        }
    }

    #[test]
    fn no_word_is_used_twice_and_none_is_wasted() {
        for room in 1..40 {
            let mut used: Vec<usize> = (0..room)
                .flat_map(|offset| [key_word(offset), key_word(offset) + distance(offset, room)])
                .collect();
            used.sort_unstable();
            assert_eq!(used, (1..words_of(room) as usize).collect::<Vec<_>>());
        }
    }
}
