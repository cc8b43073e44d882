//! Which views keep being wrong?
//!
//! Only *less cached than predicted* is evidence: more is usually a sibling that came first. A request that was evicted between
//! decision and admission is evidence too, though innocent, so it takes many of the last ones to doubt a view.
//!
//! **Invariant:** a rank is doubted once, and again only after as many further requests as are remembered.

use homing_load::Place;

/// Requests of a rank that are remembered.
const REMEMBERED: u32 = 16;
/// So many of them with less cached than predicted make its view doubtful.
const TOO_MANY: u32 = 8;

/// The last requests of one rank, the newest in the lowest bit; 1 where less was cached than predicted.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    less: u16,
    count: u32,
}

/// What is remembered of all ranks.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    ranks: Vec<Recent>,
}

/// Whether a view is to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Believed,
    Doubted,
}

impl Trust {
    /// A request of a rank had less in the cache than predicted, or not less.
    pub(crate) fn saw(&mut self, place: Place, less: bool) -> Verdict {
        if self.ranks.len() <= place.index() {
            self.ranks.resize(place.index() + 1, Recent::default());
        }
        let recent = &mut self.ranks[place.index()];
        recent.less = recent.less << 1 | u16::from(less);
        recent.count = (recent.count + 1).min(REMEMBERED);
        if recent.count == REMEMBERED && recent.less.count_ones() >= TOO_MANY {
            *recent = Recent::default();
            return Verdict::Doubted;
        }
        Verdict::Believed
    }

    /// The rank at a place is another now.
    pub(crate) fn forget(&mut self, place: Place) {
        if let Some(recent) = self.ranks.get_mut(place.index()) {
            *recent = Recent::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_doubted_when_half_of_the_last_requests_had_less() {
        let mut trust = Trust::default();
        let mut saw = |less| trust.saw(Place(2), less);
        for turn in 0..64 {
            assert_eq!(saw(turn % 3 == 0), Verdict::Believed, "a third is bad luck");
        }
        let first = (0..32).position(|_| saw(true) == Verdict::Doubted);
        assert!(first.is_some_and(|at| at < 8), "{first:?}");
        let again = (0..32).position(|_| saw(true) == Verdict::Doubted);
        assert_eq!(again, Some(15), "not before as many again");
    }
}
