//! What is a pool told, and what does it answer?

use homing_domain::{BlockKey, Blocks, KeyHasher, Tokens};
use thiserror::Error;

use super::log::{Events, Removals, Tracing};
use super::tiers::TierConfig;

/// What happens when a block gets the key of one that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyRule {
    /// Both stay, and each is told, as vLLM does.
    Physical,
    /// One stays, and who held the other holds it from now on, as SGLang does.
    Shared,
}

/// What a pool is.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// How many blocks it holds.
    pub capacity: Blocks,
    /// What happens to equal blocks.
    pub copies: CopyRule,
    /// Names blocks.
    pub hasher: KeyHasher,
    /// Makes the labels of events from keys: engines with different masks call equal blocks differently.
    pub label_mask: u64,
    /// How removals are told.
    pub removals: Removals,
    /// Whether changes are told.
    pub events: Events,
    /// Whether allocations and evictions are recorded.
    pub tracing: Tracing,
    /// Where blocks go that leave the device, nearest first.
    pub tiers: Vec<TierConfig>,
    /// A mistake that is made on purpose.
    #[cfg(any(test, feature = "testing"))]
    pub bug: Option<crate::Bug>,
}

/// A block in a pool. It names one use of a place: when the place is given to another block, the name means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockId {
    pub(super) place: u32,
    pub(super) life: u32,
}

/// What is asked for together.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The key before the first of `keys`.
    pub parent: BlockKey,
    /// Full blocks, each the parent of the next.
    pub keys: &'a [BlockKey],
    /// How many partial blocks besides.
    pub partial: u32,
}

/// How a pool stands, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Places without a block.
    pub free: u32,
    /// Blocks in use.
    pub active: u32,
    /// Blocks that can be used again or evicted.
    pub inactive: u32,
    /// All places.
    pub total: u32,
}

impl Counts {
    /// Places that a new block could get.
    pub fn available(&self) -> u32 {
        self.free + self.inactive
    }

    /// The share of places in use, from 0 to 1.
    pub fn usage(&self) -> f64 {
        f64::from(self.active) / f64::from(self.total.max(1))
    }
}

/// What it takes to compute a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefillCost {
    /// Blocks that it needs beyond the leading ones that are there.
    pub new_blocks: Blocks,
    /// Tokens that are computed: at least one.
    pub new_tokens: Tokens,
}

/// Why an operation was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PoolError {
    /// There is no room, even if everything that nobody uses were evicted.
    #[error("{needed} blocks are needed, {available} can be had")]
    Full {
        /// How many places are needed.
        needed: u32,
        /// How many there are.
        available: u32,
    },
    /// There is no such block, or no longer.
    #[error("{0:?} is not in the pool")]
    Unknown(BlockId),
    /// Nobody uses the block.
    #[error("{0:?} is not in use")]
    NotActive(BlockId),
    /// The block has a key already.
    #[error("{0:?} is full already")]
    NotPartial(BlockId),
    /// Several use the partial block, so it cannot become one sequence's full one.
    #[error("{0:?} is a partial block of several sequences")]
    SharedPartial(BlockId),
    /// Some blocks are in use, so the pool cannot be emptied.
    #[error("{0} blocks are in use")]
    InUse(u32),
}

/// Whether someone uses a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Yes.
    Active,
    /// No.
    Inactive,
}
