//! How far was a rank's stream read, and what does the next number mean?

use homing_domain::Sequence;

/// How far a stream was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cursor {
    /// Nothing was read yet.
    #[default]
    Initial,
    /// Everything up to here was applied.
    Live(Sequence),
    /// A barrier on another stream emptied the view. What that stream sends next is welcome whatever its number, as long
    /// as it lies above what was read before.
    Invalidated {
        /// How far the stream had been read.
        before: Option<Sequence>,
    },
}

/// What a number means to a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The first that was ever seen.
    Initial,
    /// The one that was expected.
    Contiguous,
    /// Something is missing.
    Gap {
        /// The first that is missing.
        expected: Sequence,
    },
    /// It was seen before, or is older than what was.
    Stale,
    /// The first after a barrier of another stream.
    FreshAfterBarrier,
}

impl Cursor {
    /// What `sequence` means now.
    pub fn observe(self, sequence: Sequence) -> Observation {
        match self {
            Self::Initial => Observation::Initial,
            Self::Live(last) if sequence <= last => Observation::Stale,
            Self::Live(last) if sequence == last.next() => Observation::Contiguous,
            Self::Live(last) => Observation::Gap { expected: last.next() },
            Self::Invalidated { before: Some(before) } if sequence <= before => Observation::Stale,
            Self::Invalidated { .. } => Observation::FreshAfterBarrier,
        }
    }

    /// The last number that was read, barrier or not.
    pub fn position(self) -> Option<Sequence> {
        match self {
            Self::Initial => None,
            Self::Live(last) => Some(last),
            Self::Invalidated { before } => before,
        }
    }

    /// Whether everything up to `sequence` was read.
    pub fn has_reached(self, sequence: Sequence) -> bool {
        self.position().is_some_and(|position| position >= sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seq(number: u64) -> Sequence {
        Sequence(number)
    }

    #[test]
    fn a_cursor_tells_what_a_number_means() {
        let live = Cursor::Live(seq(5));
        assert_eq!(Cursor::Initial.observe(seq(9)), Observation::Initial);
        assert_eq!(live.observe(seq(6)), Observation::Contiguous);
        assert_eq!(live.observe(seq(5)), Observation::Stale);
        assert_eq!(live.observe(seq(0)), Observation::Stale);
        assert_eq!(live.observe(seq(8)), Observation::Gap { expected: seq(6) });
    }

    #[test]
    fn after_a_barrier_elsewhere_only_what_is_above_is_fresh() {
        let invalidated = Cursor::Invalidated { before: Some(seq(5)) };
        assert_eq!(invalidated.observe(seq(5)), Observation::Stale);
        assert_eq!(invalidated.observe(seq(9)), Observation::FreshAfterBarrier);
        let never_read = Cursor::Invalidated { before: None };
        assert_eq!(never_read.observe(seq(0)), Observation::FreshAfterBarrier);
    }

    #[test]
    fn the_last_number_of_all_is_not_followed() {
        let end = Cursor::Live(seq(u64::MAX));
        assert_eq!(end.observe(seq(u64::MAX)), Observation::Stale);
    }
}
