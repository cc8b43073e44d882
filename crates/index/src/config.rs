//! What does the index allow itself?

use homing_domain::KeyHasher;

use crate::sets::MAX_SLOTS;

/// How a repeated store of a block is understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Copies {
    /// It is another copy, and each copy is removed on its own: what engines with physical copies do.
    #[default]
    Counted,
    /// It says again what is known: what engines do that announce their content anew.
    Set,
}

/// Bounds and constants of an index.
#[derive(Clone, Copy, Debug)]
pub struct IndexConfig {
    /// Makes keys. Queries must use the same.
    pub hasher: KeyHasher,
    /// Distinct blocks that are kept. Beyond it leaves are evicted: the tails of runs that were not written to for
    /// longest, by a clock over runs; their ranks are marked truncated.
    pub capacity: u64,
    /// Orphans that are kept per rank. Beyond it they are not, and the rank is marked truncated.
    pub orphans_per_rank: usize,
    /// Ranks that may be live at once.
    pub max_ranks: usize,
    /// A mistake to make on purpose, for tests that must find it.
    #[cfg(any(test, feature = "testing"))]
    pub bug: Option<crate::Bug>,
    /// Clear no more of a tier at once than a run or so, for tests that look between the pieces.
    #[cfg(any(test, feature = "testing"))]
    pub small_pieces: bool,
}

impl IndexConfig {
    /// The work of clearing a tier that is done at once.
    #[cfg_attr(
        not(any(test, feature = "testing")),
        expect(clippy::unused_self, reason = "tests can ask for less")
    )]
    pub(crate) const fn first_piece(&self) -> u32 {
        #[cfg(any(test, feature = "testing"))]
        if self.small_pieces {
            return 1;
        }
        100
    }

    /// The most ranks that can be asked for: each may need a second slot while it is replaced.
    pub const MAX_RANKS: usize = MAX_SLOTS / 2;

    /// Defaults: 2^26 blocks, 4,096 orphans per rank, 1,024 ranks.
    pub const fn new(hasher: KeyHasher) -> Self {
        Self {
            hasher,
            capacity: 1 << 26,
            orphans_per_rank: 4096,
            max_ranks: 1024,
            #[cfg(any(test, feature = "testing"))]
            bug: None,
            #[cfg(any(test, feature = "testing"))]
            small_pieces: false,
        }
    }
}
