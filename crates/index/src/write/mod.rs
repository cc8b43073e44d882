//! How does an event change the index?
//!
//! A store is done in two phases. First the *structure*: blocks that nobody held get a place in a run ([`structure`]),
//! which changes no answer, because nobody holds them yet. Then the *coverage*: the rank is noted as a holder, deepest
//! run first ([`store`]), so that readers see the whole event appear when its first block does. A removal goes the other
//! way: coverage shrinks, shallowest run first ([`remove`]), and what nobody holds any more is cut off ([`trim`]).
//!
//! Most ranks hold a plain leading part of a run, and for them [`coverage`] is the truth itself. For the others the
//! truth is in their details; it is changed block by block and then published ([`general`]). Those that differ only in what
//! they call the blocks are in between ([`names`]).

pub(crate) mod ahead;
pub(crate) mod clear;
pub(crate) mod compact;
pub(crate) mod coverage;
pub(crate) mod evict;
pub(crate) mod forks;
pub(crate) mod general;
pub(crate) mod list;
pub(crate) mod maintain;
pub(crate) mod names;
pub(crate) mod remove;
pub(crate) mod renumber;
pub(crate) mod store;
pub(crate) mod structure;
pub(crate) mod trim;

use homing_domain::{CacheGroup, Label, Tier};

use crate::detail::Holding;
use crate::record::RunId;

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) run: RunId,
    pub(crate) offset: u16,
}

const OFFSET_BITS: u32 = 12;

impl Place {
    /// As a table's value. Runs are numbered from 1, so it is never 0.
    pub(crate) fn encode(self) -> u64 {
        u64::from(self.run) << OFFSET_BITS | u64::from(self.offset)
    }

    #[inline]
    pub(crate) fn decode(value: u64) -> Self {
        Self {
            run: (value >> OFFSET_BITS) as RunId,
            offset: (value & ((1 << OFFSET_BITS) - 1)) as u16,
        }
    }
}

/// How all blocks of an event are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) tier: Tier,
    pub(crate) group: CacheGroup,
    pub(crate) copies: u32,
}

impl Kind {
    /// Once, on the device, in the first cache group.
    pub(crate) const PLAIN: Self = Self {
        tier: Tier::Device,
        group: CacheGroup(0),
        copies: 1,
    };

    pub(crate) fn of(self, label: Label) -> Holding {
        Holding {
            label,
            tier: self.tier,
            group: self.group,
        }
    }
}

/// Blocks of an event that lie in one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) run: RunId,
    pub(crate) from: u16,
    pub(crate) to: u16,
}

/// Room that steps use again and again.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    pub(crate) keys: Vec<u64>,
    pub(crate) stretches: Vec<Stretch>,
    /// All stretches from this one on are of blocks that came with this step: their labels are those of the event.
    pub(crate) known: usize,
    pub(crate) ranges: Vec<Stretch>,
    /// Labels of a slot's own: as entries, and for each block of an event.
    pub(crate) names: Vec<names::Name>,
    pub(crate) labels: Vec<Option<u64>>,
    /// Runs whose details changed in this step.
    pub(crate) dirty: Vec<RunId>,
    /// Runs that this step works on: they are not evicted.
    pub(crate) pinned: Vec<RunId>,
}
