//! What did an engine say about its cache? The one event type that every dialect is decoded into.

use crate::fleet::{AdapterName, CacheGroup, CacheSalt, RankId, Tier};
use crate::key::{ContentHash, hash_bytes};

/// The number of an event within its source's stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u64);

/// The name that an engine gives to a block. It means something only together with the rank that uses it: two ranks
/// may use different labels for equal blocks and equal labels for different blocks. Every value is legal, 0 included.
///
/// Engines whose labels are longer than 64 bits (digests) are heard through [`Label::from_bytes`], which keeps 64 bits
/// of a hash of them: labels of one rank then collide as rarely as keys do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(u64);

impl Label {
    /// A label that the engine sent as an unsigned number.
    pub const fn new(label: u64) -> Self {
        Self(label)
    }

    /// A label that the engine sent as a signed number; the bits are kept.
    pub const fn from_signed(label: i64) -> Self {
        Self(label.cast_unsigned())
    }

    /// A label that the engine sent as bytes.
    pub fn from_bytes(label: &[u8]) -> Self {
        Self(hash_bytes(label))
    }

    /// The label's 64 bits.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A change of one rank's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEvent {
    /// Its number in the stream of that rank.
    pub id: EventId,
    /// Whose cache changed.
    pub rank: RankId,
    /// What changed.
    pub change: KvChange,
}

/// What changed in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvChange {
    /// Blocks came.
    Stored(Stored),
    /// Blocks went.
    Removed(Removed),
    /// Everything in a scope went.
    Cleared(ClearScope),
}

/// Blocks that follow each other came into a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The block before the first of these; `None` at the beginning of a sequence.
    pub parent: Option<Label>,
    /// The blocks, each the parent of the next.
    pub blocks: Vec<StoredBlock>,
    /// Where they lie.
    pub tier: Tier,
    /// The cache group they belong to.
    pub group: CacheGroup,
    /// The adapter they were computed with. Already part of their content hashes; kept for those who ask.
    pub adapter: Option<AdapterName>,
    /// The salt of their sequence, where the engine tells it. Already part of the first block's content hash.
    pub salt: Option<CacheSalt>,
}

impl Stored {
    /// Blocks on the device, in the first cache group, of the base model: what most events are.
    pub fn plain(parent: Option<Label>, blocks: Vec<StoredBlock>) -> Self {
        Self {
            parent,
            blocks,
            tier: Tier::Device,
            group: CacheGroup(0),
            adapter: None,
            salt: None,
        }
    }
}

/// One block that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBlock {
    /// What the engine calls it.
    pub label: Label,
    /// What is in it.
    pub content: ContentHash,
}

/// Blocks went from a cache. Each names one copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The blocks.
    pub labels: Vec<Label>,
    /// Where they lay.
    pub tier: Tier,
    /// The cache group they belonged to.
    pub group: CacheGroup,
}

impl Removed {
    /// Blocks that went from the device, in the first cache group.
    pub fn plain(labels: Vec<Label>) -> Self {
        Self {
            labels,
            tier: Tier::Device,
            group: CacheGroup(0),
        }
    }
}

/// How much a clear empties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearScope {
    /// Every tier of the rank.
    AllTiers,
    /// One tier of the rank.
    Only(Tier),
}
