//! What is in a block, and what does each contender call it?
//!
//! A block is a number that stands for its tokens together with all that comes before it. Its tokens are a function of
//! the number, so that queries can be made from tokens without keeping them for two million blocks.

use dynamo_kv_router::protocols::{BlockHashOptions, compute_block_hash_for_seq, compute_next_seq_hash};
use homing_domain::{Extras, HashSeed, KeyHasher};
use kv_index::compute_content_hash;

use crate::rng::mix;

/// Tokens per block.
pub const BLOCK_TOKENS: usize = 16;

/// The number of a block.
pub type BlockId = u32;

/// Numbers from here on are never stored: queries diverge into them.
pub const FOREIGN: BlockId = 1 << 31;

/// One block as each contender names it.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// What an engine calls it: a hash over its whole prefix, as dynamo's positional index demands.
    pub label: u64,
    /// Our content hash.
    #[cfg_attr(not(feature = "ours"), expect(dead_code, reason = "only our own index reads it"))]
    pub ours: u64,
    /// Dynamo's content hash.
    pub dynamo: u64,
    /// smg's content hash.
    pub smg: u64,
}

/// Whether all workers use the same labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// They do, as deterministic engines.
    Shared,
    /// Each has its own, as engines with a random hash seed.
    Private,
}

impl Labels {
    /// How tables and targets call them.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Private => "private",
        }
    }

    /// What `worker` calls `block`.
    #[inline]
    pub fn of(self, block: &Block, worker: usize) -> u64 {
        match self {
            Self::Shared => block.label,
            Self::Private => mix(block.label ^ mix(worker as u64 + 1)),
        }
    }
}

/// All blocks of a workload.
pub struct Catalog {
    blocks: Vec<Block>,
    hasher: KeyHasher,
}

impl Catalog {
    /// No blocks yet.
    pub fn new() -> Self {
        Self {
            blocks: Vec::new(),
            hasher: KeyHasher::new(HashSeed::PUBLIC),
        }
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The names of a block.
    #[inline]
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }

    /// Appends `count` new blocks that follow `parent` and each other to `path`.
    pub fn grow(&mut self, parent: Option<BlockId>, count: usize, path: &mut Vec<BlockId>) {
        let first = self.blocks.len() as BlockId;
        let ids = first..first + count as BlockId;
        assert!(ids.end < FOREIGN, "too many blocks");
        let tokens = tokens_of(ids.clone());
        let contents = compute_block_hash_for_seq(&tokens, BLOCK_TOKENS as u32, BlockHashOptions::default());
        let mut label = parent.map(|parent| self.block(parent).label);
        for (tokens, content) in tokens.chunks_exact(BLOCK_TOKENS).zip(contents) {
            let named = label.map_or(content.0, |parent| compute_next_seq_hash(parent, content));
            label = Some(named);
            self.blocks.push(Block {
                label: named,
                ours: self.hasher.content(tokens, &Extras::default()).0,
                dynamo: content.0,
                smg: compute_content_hash(tokens).0,
            });
        }
        path.extend(ids);
    }
}

/// The tokens of blocks that follow each other.
pub fn tokens_of(ids: impl IntoIterator<Item = BlockId>) -> Vec<u32> {
    ids.into_iter()
        .flat_map(|id| (0..BLOCK_TOKENS as u64).map(move |at| token(id, at)))
        .collect()
}

/// Token ids as a vocabulary of 128 Ki has them.
fn token(id: BlockId, at: u64) -> u32 {
    (mix((u64::from(id) << 8) | at) & 0x1_ffff) as u32
}
