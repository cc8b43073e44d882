//! Is this the stream that we read before? Remembers the digests of the last batches that were applied.
//!
//! **Invariant:** numbers rise from the oldest to the newest, and at most [`History::KEPT`] are remembered.

use std::collections::VecDeque;

use homing_domain::{Digest, Sequence};

/// What a number and a digest say about the life of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This very batch was applied.
    Same,
    /// Another batch was applied under this number: it is another life.
    Different,
    /// So far behind what was applied that no link delays it so long: it is another life.
    FarBehind,
    /// Nothing is remembered that would tell.
    Unknown,
}

/// The last batches that were applied.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    applied: VecDeque<(Sequence, Digest)>,
}

impl History {
    /// How many batches are remembered.
    pub(crate) const KEPT: usize = 1024;

    /// Begins with one batch.
    pub(crate) fn at(sequence: Sequence, digest: Digest) -> Self {
        Self {
            applied: VecDeque::from([(sequence, digest)]),
        }
    }

    /// The batch was applied.
    pub(crate) fn push(&mut self, sequence: Sequence, digest: Digest) {
        if self.applied.back().is_some_and(|(newest, _)| *newest >= sequence) {
            // The stream counts anew without our having noticed why; what is remembered would only mislead.
            self.applied.clear();
        }
        if self.applied.len() == Self::KEPT {
            self.applied.pop_front();
        }
        self.applied.push_back((sequence, digest));
    }

    /// The digest of a batch that is remembered.
    pub(crate) fn digest_of(&self, sequence: Sequence) -> Option<Digest> {
        let place = self
            .applied
            .binary_search_by_key(&sequence, |(number, _)| *number)
            .ok()?;
        Some(self.applied[place].1)
    }

    /// What a batch says about the life of the engine.
    pub(crate) fn verdict(&self, sequence: Sequence, digest: Digest) -> Verdict {
        match self.applied.binary_search_by_key(&sequence, |(number, _)| *number) {
            Ok(place) if self.applied[place].1 == digest => Verdict::Same,
            Ok(_) => Verdict::Different,
            Err(_) => match self.applied.back() {
                Some((newest, _)) if newest.0 - sequence.0.min(newest.0) >= Self::KEPT as u64 => Verdict::FarBehind,
                _ => Verdict::Unknown,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_lives_apart_as_long_as_it_remembers() {
        let mut history = History::default();
        assert_eq!(history.verdict(Sequence(0), Digest(1)), Verdict::Unknown);
        for number in 0..2000 {
            history.push(Sequence(number), Digest(number * 7));
        }
        assert_eq!(history.verdict(Sequence(1999), Digest(1999 * 7)), Verdict::Same);
        assert_eq!(history.verdict(Sequence(1999), Digest(3)), Verdict::Different);
        assert_eq!(history.verdict(Sequence(976), Digest(976 * 7)), Verdict::Same);
        assert_eq!(history.verdict(Sequence(975), Digest(975 * 7)), Verdict::FarBehind);
        assert_eq!(history.verdict(Sequence(2000), Digest(1)), Verdict::Unknown);
        assert_eq!(history.applied.len(), History::KEPT);
    }

    #[test]
    fn a_snapshot_far_into_the_stream_is_no_proof_about_what_came_just_before() {
        let history = History::at(Sequence(5000), Digest(1));
        assert_eq!(history.verdict(Sequence(4990), Digest(2)), Verdict::Unknown);
        assert_eq!(history.verdict(Sequence(0), Digest(2)), Verdict::FarBehind);
    }
}
