//! Which blocks are there? A tree of prompts, small enough that engines often hold the same ones.

use std::collections::BTreeMap;

use homing_domain::{BlockKey, ContentHash, HashSeed, KeyHasher, Label, StoredBlock};

use homing_trace::rng::mix;

/// One block of the tree.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// The block before it.
    pub parent: BlockKey,
    /// What is in it.
    pub content: ContentHash,
}

/// All blocks that anybody ever stored.
#[derive(Debug)]
pub struct Blocks {
    /// Makes keys.
    pub hasher: KeyHasher,
    nodes: BTreeMap<BlockKey, Node>,
    /// Their keys, oldest first.
    keys: Vec<BlockKey>,
}

/// How one rank in one life names its blocks: engines differ in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(pub u64);

impl Salt {
    /// The label of a block.
    pub const fn label(self, key: BlockKey) -> Label {
        Label::new(mix(key.0 ^ self.0))
    }
}

impl Blocks {
    /// None yet.
    pub fn new() -> Self {
        Self {
            hasher: KeyHasher::new(HashSeed::PUBLIC),
            nodes: BTreeMap::new(),
            keys: Vec::new(),
        }
    }

    /// The key before the first block.
    pub const fn root(&self) -> BlockKey {
        self.hasher.root()
    }

    /// The block after `parent` that differs from its siblings by `choice`.
    pub fn child(&mut self, parent: BlockKey, choice: u64) -> BlockKey {
        let content = ContentHash(mix(choice + 1));
        let key = self.hasher.child(parent, content);
        if self.nodes.insert(key, Node { parent, content }).is_none() {
            self.keys.push(key);
        }
        key
    }

    /// What is known of a block that somebody stored.
    pub fn node(&self, key: BlockKey) -> Option<Node> {
        self.nodes.get(&key).copied()
    }

    /// The block before it.
    pub fn parent(&self, key: BlockKey) -> Option<BlockKey> {
        self.node(key).map(|node| node.parent)
    }

    /// The block as an engine announces it.
    pub fn stored(&self, key: BlockKey, salt: Salt) -> StoredBlock {
        StoredBlock {
            label: salt.label(key),
            content: self.node(key).map_or(ContentHash(0), |node| node.content),
        }
    }

    /// The block that is named so.
    pub fn named(&self, label: Label, salt: Salt) -> Option<BlockKey> {
        self.nodes.keys().copied().find(|key| salt.label(*key) == label)
    }

    /// All keys from the first block to this one.
    pub fn path(&self, key: BlockKey) -> Vec<BlockKey> {
        let step = |key: &BlockKey| self.parent(*key).filter(|parent| *parent != self.root());
        let mut path: Vec<BlockKey> = std::iter::successors(Some(key), step).collect();
        path.reverse();
        path
    }

    /// One of the blocks, by a number.
    pub fn any(&self, number: u64) -> Option<BlockKey> {
        let place = number as usize % self.keys.len().max(1);
        self.keys.get(place).copied()
    }
}
