//! What did an engine say about its cache? The one form that every dialect is decoded into.
//!
//! Engines speak in *batches*: one message, one number, any number of changes. A batch is applied as one step.

use std::fmt;

use crate::fleet::{AdapterName, CacheGroup, CacheSalt, Tier};
use crate::key::{BlockKey, ContentHash, hash_bytes};

/// The number of a batch within its source's stream. It says what follows what; it identifies nothing: a restarted
/// engine counts from 0 again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The number after this one; the last one is followed by itself.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A hash of a batch as it came from the engine. Two batches with one number and different digests are from different
/// lives of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest(pub u64);

impl Digest {
    /// The digest of a message's payload.
    pub fn of(payload: &[u8]) -> Self {
        Self(hash_bytes(payload))
    }
}

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

/// All that an engine said about one rank's cache in one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvBatch {
    /// Its number in the stream of that rank.
    pub sequence: Sequence,
    /// A hash of it as it was sent.
    pub digest: Digest,
    /// When the engine sent it, in milliseconds of Unix time, where it says so.
    pub sent_ms: Option<u64>,
    /// What changed, in order.
    pub changes: Vec<KvChange>,
}

impl KvBatch {
    /// Whether it empties every tier, so that nothing said before it matters any more.
    pub fn is_barrier(&self) -> bool {
        let barrier = |change: &KvChange| matches!(change, KvChange::Cleared(ClearScope::AllTiers));
        self.changes.iter().any(barrier)
    }
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

/// What comes before the first block of an item of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedParent {
    /// Nothing: a sequence begins.
    Root,
    /// The block that the rank calls so. If that is not in the list, the item is an orphan. If it is the first block of the
    /// item itself, the block before it has no name any more.
    Label(Label),
    /// A block that the rank does not hold: the item lies behind a hole.
    Key(BlockKey),
}

/// Blocks that follow each other and are held alike: an item of the list of what a rank holds. Lists have parents before
/// children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What comes before the first of them.
    pub parent: ListedParent,
    /// Where they lie.
    pub tier: Tier,
    /// The cache group they belong to.
    pub group: CacheGroup,
    /// How many copies there are of each.
    pub copies: u32,
    /// The blocks, each the parent of the next.
    pub blocks: Vec<StoredBlock>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_of_all_tiers_is_a_barrier() {
        let batch = |scope| KvBatch {
            sequence: Sequence(3),
            digest: Digest::of(b"x"),
            sent_ms: None,
            changes: vec![KvChange::Removed(Removed::plain(vec![])), KvChange::Cleared(scope)],
        };
        assert!(batch(ClearScope::AllTiers).is_barrier());
        assert!(!batch(ClearScope::Only(Tier::Device)).is_barrier());
    }

    #[test]
    fn digests_tell_messages_apart() {
        assert_ne!(Digest::of(b""), Digest::of(b"\0"));
        assert_ne!(Digest::of(b"12345678"), Digest::of(b"12345679"));
    }
}
