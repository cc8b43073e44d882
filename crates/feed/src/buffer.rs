//! What was heard while a repair is under way?
//!
//! **Invariant:** at most as many batches, and blocks in them, are kept as the limits say. On overflow the newest go, so
//! that the contiguous head survives, and the highest number ever heard stays known.

use std::collections::BTreeMap;

use homing_domain::{KvBatch, KvChange, Sequence};

use crate::cursor::Cursor;

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is kept.
    Kept,
    /// It was kept already.
    Repeat,
    /// There is no room for it, or it took the place of another: something was dropped.
    Dropped,
    /// Another batch with its number is kept: they are from different lives of the engine. Nothing was changed.
    Conflict,
}

/// Batches in the order of their numbers.
#[derive(Debug)]
pub(crate) struct Buffer {
    batches: BTreeMap<Sequence, KvBatch>,
    blocks: usize,
    max_batches: usize,
    max_blocks: usize,
}

impl Buffer {
    pub(crate) fn new(max_batches: usize, max_blocks: usize) -> Self {
        Self {
            batches: BTreeMap::new(),
            blocks: 0,
            max_batches,
            max_blocks,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.batches.len()
    }

    /// The lowest number that is kept.
    pub(crate) fn oldest(&self) -> Option<Sequence> {
        self.batches.first_key_value().map(|(sequence, _)| *sequence)
    }

    /// The highest number that is kept.
    pub(crate) fn newest(&self) -> Option<Sequence> {
        self.batches.last_key_value().map(|(sequence, _)| *sequence)
    }

    pub(crate) fn clear(&mut self) {
        self.batches.clear();
        self.blocks = 0;
    }

    pub(crate) fn push(&mut self, batch: KvBatch) -> Pushed {
        if let Some(kept) = self.batches.get(&batch.sequence) {
            return if kept.digest == batch.digest {
                Pushed::Repeat
            } else {
                Pushed::Conflict
            };
        }
        self.blocks += size(&batch);
        self.batches.insert(batch.sequence, batch);
        let mut pushed = Pushed::Kept;
        while self.batches.len() > self.max_batches || self.blocks > self.max_blocks {
            let Some((_, newest)) = self.batches.pop_last() else {
                break;
            };
            self.blocks -= size(&newest);
            pushed = Pushed::Dropped;
        }
        pushed
    }

    /// Takes the next batch that is of use to a cursor, if it is there; what is stale before it is dropped.
    /// For a cursor that has read nothing, that is the first.
    pub(crate) fn take_next(&mut self, cursor: Cursor) -> Option<KvBatch> {
        use crate::cursor::Observation::{Contiguous, FreshAfterBarrier, Gap, Initial, Stale};
        loop {
            let first = self.batches.first_entry()?;
            match cursor.observe(*first.key()) {
                Stale => self.blocks -= size(&first.remove()),
                Contiguous | FreshAfterBarrier | Initial => {
                    let batch = first.remove();
                    self.blocks -= size(&batch);
                    return Some(batch);
                }
                Gap { .. } => return None,
            }
        }
    }

    /// The batches that a cursor will call stale.
    pub(crate) fn stale(&self, cursor: Cursor) -> impl Iterator<Item = &KvBatch> {
        let upto = cursor.position();
        self.batches
            .values()
            .take_while(move |batch| Some(batch.sequence) <= upto)
    }

    /// Drops what lies at or below a number.
    pub(crate) fn prune(&mut self, upto: Sequence) {
        while let Some(first) = self.batches.first_entry()
            && *first.key() <= upto
        {
            self.blocks -= size(&first.remove());
        }
    }
}

/// What a batch costs to keep, in blocks: an empty one is not free.
fn size(batch: &KvBatch) -> usize {
    let blocks = |change: &KvChange| match change {
        KvChange::Stored(stored) => stored.blocks.len(),
        KvChange::Removed(removed) => removed.labels.len(),
        KvChange::Cleared(_) => 1,
    };
    1 + batch.changes.iter().map(blocks).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_domain::{Digest, Label, Removed};

    fn batch(number: u64, labels: usize) -> KvBatch {
        KvBatch {
            sequence: Sequence(number),
            digest: Digest(number),
            sent_ms: None,
            changes: vec![KvChange::Removed(Removed::plain(vec![Label::new(1); labels]))],
        }
    }

    fn holding(numbers: impl IntoIterator<Item = u64>) -> Buffer {
        let mut buffer = Buffer::new(1024, 1 << 20);
        for number in numbers {
            assert_eq!(buffer.push(batch(number, 1)), Pushed::Kept);
        }
        buffer
    }

    #[test]
    fn a_drain_takes_what_follows_and_leaves_the_rest() {
        let mut buffer = holding(1..=40);
        let next = buffer.take_next(Cursor::Live(Sequence(35)));
        assert_eq!(next.map(|batch| batch.sequence), Some(Sequence(36)));
        assert_eq!(
            buffer.batches.keys().map(|key| key.0).collect::<Vec<_>>(),
            [37, 38, 39, 40]
        );
    }

    #[test]
    fn a_hole_among_what_is_stale_is_no_gap() {
        let mut buffer = holding([13, 14, 18, 19]);
        assert_eq!(buffer.take_next(Cursor::Live(Sequence(20))), None);
        assert_eq!(buffer.len(), 0);
    }

    #[test]
    fn on_overflow_the_newest_go() {
        let mut buffer = Buffer::new(3, 1 << 20);
        for (number, expected) in [
            (5, Pushed::Kept),
            (9, Pushed::Kept),
            (7, Pushed::Kept),
            (6, Pushed::Dropped),
        ] {
            assert_eq!(buffer.push(batch(number, 1)), expected);
        }
        assert_eq!(buffer.batches.keys().map(|key| key.0).collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!(buffer.push(batch(8, 1)), Pushed::Dropped);
        assert_eq!(buffer.push(batch(5, 1)), Pushed::Repeat);
    }

    #[test]
    fn blocks_are_bounded_as_well() {
        let mut buffer = Buffer::new(100, 10);
        assert_eq!(buffer.push(batch(1, 8)), Pushed::Kept);
        assert_eq!(buffer.push(batch(2, 1)), Pushed::Dropped);
        assert_eq!((buffer.len(), buffer.blocks), (1, 9));
        buffer.clear();
        assert_eq!(buffer.push(batch(3, 10)), Pushed::Dropped);
        assert_eq!((buffer.len(), buffer.blocks), (0, 0));
    }

    #[test]
    fn two_batches_with_one_number_are_a_conflict() {
        let mut buffer = holding([4]);
        let other = KvBatch {
            digest: Digest(99),
            ..batch(4, 1)
        };
        assert_eq!(buffer.push(other), Pushed::Conflict);
    }
}
