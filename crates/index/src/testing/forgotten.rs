//! What did a full index forget? It cannot be told from the events alone, so the index keeps a log of it, and the oracle
//! goes along.
//!
//! **Invariant:** when a store evicts a block, it has not touched the run that the block is in, and when it does so
//! later, the block is a new one. So a store of a full index is the same as evictions, one after the other, followed by a
//! store for which no more room is made.

use homing_domain::{BlockKey, Label, RankId};

/// What an index forgot because it was full, in the order in which it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Blocks that had to make room, and the live ranks that held them.
    pub evicted: Vec<(BlockKey, Vec<RankId>)>,
    /// Blocks of an event that were not kept, and those that waited for them: what the rank called them, and the keys
    /// that they would have had.
    pub refused: Vec<(Label, BlockKey)>,
}
