//! What were the last batches of a rank? Encoded once, shared by all who read them.
//!
//! A reader holds nothing but a *mark*: how many batches had been pushed before the one it wants next. Marks go on rising
//! when the ring is emptied, so that an old one is never taken for a new one.
//!
//! **Invariant:** numbers rise from the oldest to the newest.
//!
//! **Invariant:** at most so many batches and bytes as the limits say, except that the newest batch is always there.

use std::collections::VecDeque;

use bytes::Bytes;
use homing_domain::Sequence;
use homing_wire::frame::Position;

/// What a batch costs beyond its frame.
const OVERHEAD: u64 = size_of::<Entry>() as u64 + 32;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct RingLimits {
    /// Batches.
    pub batches: usize,
    /// Bytes that they take.
    pub bytes: u64,
}

/// A reader's place: the number of batches that were ever pushed before the one it reads next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// One batch.
#[derive(Clone, Debug)]
struct Entry {
    at: Position,
    frame: Bytes,
}

/// The last batches of a rank.
#[derive(Debug)]
pub struct Ring {
    limits: RingLimits,
    entries: VecDeque<Entry>,
    bytes: u64,
    /// The mark of the oldest entry.
    oldest: u64,
}

/// Why a reader cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// How large a ring is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSize {
    /// Batches.
    pub batches: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Ring {
    /// An empty one.
    pub fn new(limits: RingLimits) -> Self {
        Self {
            limits,
            entries: VecDeque::new(),
            bytes: 0,
            oldest: 0,
        }
    }

    /// The oldest batch.
    pub fn oldest(&self) -> Option<Position> {
        self.entries.front().map(|entry| entry.at)
    }

    /// The newest batch.
    pub fn newest(&self) -> Option<Position> {
        self.entries.back().map(|entry| entry.at)
    }

    /// How large it is.
    pub fn size(&self) -> RingSize {
        RingSize {
            batches: self.entries.len() as u64,
            bytes: self.bytes,
        }
    }

    /// The place after the newest batch.
    pub fn end(&self) -> Mark {
        Mark(self.oldest + self.entries.len() as u64)
    }

    /// The place of the first batch with this number or a higher one; `None` if the number is below all that are kept, or
    /// above.
    pub fn find(&self, from: Sequence) -> Option<Mark> {
        let place = self.entries.partition_point(|entry| entry.at.sequence < from);
        let is_known = self.oldest()?.sequence <= from && place < self.entries.len();
        is_known.then(|| Mark(self.oldest + place as u64))
    }

    /// Takes the next batch, which must have a higher number than the newest; forgets the oldest ones for it.
    pub fn push(&mut self, at: Position, frame: Bytes) {
        debug_assert!(self.newest().is_none_or(|newest| newest.sequence < at.sequence));
        self.bytes += frame.len() as u64 + OVERHEAD;
        self.entries.push_back(Entry { at, frame });
        let is_full = |ring: &Self| ring.entries.len() > ring.limits.batches || ring.bytes > ring.limits.bytes;
        while self.entries.len() > 1 && is_full(self) {
            self.pop();
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.oldest = self.end().0;
        self.entries = VecDeque::new();
        self.bytes = 0;
    }

    /// Frames from a mark on, and the mark after them: at least one if there is one, and no more once there are `bytes`
    /// of them. Nothing at the end.
    pub fn read(&self, from: Mark, bytes: usize) -> Result<(Vec<Bytes>, Mark), Lost> {
        let place = from.0.checked_sub(self.oldest).ok_or(Lost)?;
        let place = usize::try_from(place).map_err(|_| Lost)?;
        let mut read = 0;
        let is_wanted = |frame: &&Bytes| {
            let had = read;
            read += frame.len();
            had < bytes
        };
        let frames = self.entries.iter().skip(place).map(|entry| &entry.frame);
        let frames: Vec<Bytes> = frames.take_while(is_wanted).cloned().collect();
        let next = Mark(from.0 + frames.len() as u64);
        Ok((frames, next))
    }

    fn pop(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= entry.frame.len() as u64 + OVERHEAD;
            self.oldest += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_domain::Digest;
    use proptest::prelude::*;

    fn at(sequence: u64) -> Position {
        Position {
            sequence: Sequence(sequence),
            digest: Digest(sequence * 7),
        }
    }

    fn frame(sequence: u64) -> Bytes {
        Bytes::from(format!("{sequence} "))
    }

    fn ring(batches: usize) -> Ring {
        let bytes = u64::MAX;
        Ring::new(RingLimits { batches, bytes })
    }

    #[test]
    fn what_is_found_begins_there_and_goes_to_the_end() {
        let mut ring = ring(3);
        assert_eq!(ring.find(Sequence(0)), None);
        for sequence in [4, 5, 6, 9] {
            ring.push(at(sequence), frame(sequence));
        }
        assert_eq!(ring.oldest(), Some(at(5)));
        assert_eq!(ring.find(Sequence(4)), None, "it is forgotten");
        assert_eq!(ring.find(Sequence(10)), None, "it is to come");
        let (frames, end) = ring.read(ring.find(Sequence(7)).unwrap(), 100).unwrap();
        assert_eq!((frames, end), (vec![frame(9)], ring.end()), "a barrier may jump");
        let (frames, next) = ring.read(ring.find(Sequence(5)).unwrap(), 1).unwrap();
        assert_eq!((frames.len(), ring.read(next, 100).unwrap().0.len()), (1, 2));
    }

    #[test]
    fn the_newest_is_kept_whatever_it_takes() {
        let mut ring = Ring::new(RingLimits { batches: 9, bytes: 1 });
        ring.push(at(1), frame(1));
        ring.push(at(2), frame(2));
        assert_eq!((ring.size().batches, ring.newest()), (1, Some(at(2))));
    }

    #[test]
    fn marks_from_before_it_was_emptied_are_lost() {
        let mut ring = ring(3);
        ring.push(at(1), frame(1));
        let begin = ring.find(Sequence(1)).unwrap();
        let end = ring.end();
        ring.clear();
        assert_eq!(ring.read(begin, 100), Err(Lost));
        assert_eq!(ring.read(end, 100).unwrap().0.len(), 0);
        ring.push(at(0), frame(0));
        assert_eq!(ring.read(end, 100).unwrap().0, [frame(0)]);
        assert!(ring.size().bytes > 0);
    }

    proptest! {
        /// Readers of any speed: each sees every batch once and in order, or is told that it lost some.
        #[test]
        fn readers_see_all_or_are_told(
            limit in 1_usize..8,
            steps in prop::collection::vec((0_u64..4, 0_usize..6), 1..60),
        ) {
            let mut ring = ring(limit);
            let (mut pushed, mut reader, mut seen) = (0, ring.end(), 0);
            for (pushes, bytes) in steps {
                for _ in 0..pushes {
                    ring.push(at(pushed), frame(pushed));
                    pushed += 1;
                }
                prop_assert_eq!(ring.size().batches, pushed.min(limit as u64));
                if let Ok((frames, next)) = ring.read(reader, bytes) {
                    for got in frames {
                        prop_assert_eq!(got, frame(seen));
                        seen += 1;
                    }
                    reader = next;
                } else {
                    prop_assert!(seen < pushed - limit as u64);
                    (reader, seen) = (ring.end(), pushed);
                }
            }
        }
    }
}
