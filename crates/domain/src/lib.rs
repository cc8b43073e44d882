//! What are workers, ranks, tokens, blocks, tiers, roles and events, and how is a block named?
//!
//! Every other crate speaks in these words. Nothing here does IO, reads a clock or draws randomness.
//!
//! - [`units`]: counts that must not be mixed up ([`Tokens`], [`Blocks`], [`BlockSize`]);
//! - [`fleet`]: who exists ([`WorkerId`], [`RankId`], [`Role`], [`Tier`], names of models and adapters);
//! - [`event`]: what engines say about their caches ([`KvBatch`]);
//! - [`key`]: how tokens become block keys ([`KeyHasher`]);
//! - [`excerpt`](mod@excerpt): input in messages.

pub mod event;
pub mod excerpt;
pub mod fleet;
pub mod key;
mod planted;
pub mod units;

pub use event::{
    ClearScope, Digest, KvBatch, KvChange, Label, Listed, ListedParent, Removed, Sequence, Stored, StoredBlock,
};
pub use excerpt::{excerpt, excerpt_to};
pub use fleet::{AdapterName, CacheGroup, CacheSalt, DpRank, ModelName, RankId, RequestId, Role, Tier, WorkerId};
pub use key::{AdapterHash, BlockKey, ContentHash, Extras, HashSeed, KeyHasher, Media, MediaId, Prompt, Window};
pub use units::{BlockSize, Blocks, Tokens};
