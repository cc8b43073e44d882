//! What is said about the pool? Changes of its content as events, and what it did as a trace.

use homing_domain::{
    AdapterName, BlockKey, CacheGroup, CacheSalt, ClearScope, KeyHasher, KvChange, Label, Removed, Stored, StoredBlock,
    Tier,
};

use super::{Counts, PoolConfig};

/// How several blocks that go are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removals {
    /// One event for each, as vLLM does.
    OneByOne,
    /// Joined where nothing is between them, as SGLang does.
    Joined,
}

/// Whether events are made. Without them a pool only counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// None.
    Off,
    /// With what domain events have: labels and content hashes.
    On,
    /// With the tokens of stored blocks as well, for those who write an engine's own bytes.
    WithTokens,
}

/// Whether allocations and evictions are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracing {
    /// No.
    Off,
    /// Each of them.
    On,
}

/// What blocks that come are part of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin<'a> {
    /// The adapter they are computed with.
    pub adapter: Option<&'a AdapterName>,
    /// The salt of their sequence.
    pub salt: Option<&'a CacheSalt>,
    /// Their tokens, from the first of them on; empty where nobody asks for tokens.
    pub tokens: &'a [u32],
}

/// A change of a pool's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What changed.
    pub change: KvChange,
    /// For stored blocks their tokens, with [`Events::WithTokens`] and where they are known; else empty.
    pub tokens: Vec<u32>,
}

/// What a pool did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A place was given to a block.
    Allocated,
    /// A block that nobody used lost its place.
    Evicted,
}

/// A line of the trace of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceLine {
    /// What was done.
    pub act: Act,
    /// To which places.
    pub blocks: Vec<u32>,
    /// How the pool stands afterwards.
    pub counts: Counts,
}

/// What was not yet taken.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    events: Events,
    removals: Removals,
    tracing: Tracing,
    label_mask: u64,
    hasher: KeyHasher,
    changes: Vec<Change>,
    lines: Vec<TraceLine>,
}

/// A block with what comes before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub parent: BlockKey,
    pub key: BlockKey,
}

impl Log {
    pub(crate) fn new(config: &PoolConfig) -> Self {
        Self {
            events: config.events,
            removals: config.removals,
            tracing: config.tracing,
            label_mask: config.label_mask,
            hasher: config.hasher,
            changes: Vec::new(),
            lines: Vec::new(),
        }
    }

    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    pub(crate) fn lines(&mut self) -> impl Iterator<Item = TraceLine> + '_ {
        self.lines.drain(..)
    }

    pub(crate) fn forget(&mut self) {
        self.changes.clear();
        self.lines.clear();
    }

    pub(crate) fn stored(&mut self, tier: Tier, link: Link, origin: Origin<'_>) {
        if self.events == Events::Off {
            return;
        }
        let block = StoredBlock {
            label: self.label(link.key),
            content: self.hasher.content_of(link.parent, link.key),
        };
        let parent = (link.parent != self.hasher.root()).then(|| self.label(link.parent));
        let tokens = match self.events {
            Events::WithTokens => origin.tokens,
            Events::On | Events::Off => &[],
        };
        if let Some(Change {
            change: KvChange::Stored(last),
            tokens: told,
        }) = self.changes.last_mut()
        {
            let follows = parent.is_some() && last.blocks.last().map(|block| block.label) == parent;
            if follows && last.tier == tier && last.adapter.as_ref() == origin.adapter {
                last.blocks.push(block);
                told.extend_from_slice(tokens);
                return;
            }
        }
        self.changes.push(Change {
            change: KvChange::Stored(Stored {
                parent,
                blocks: vec![block],
                tier,
                group: CacheGroup(0),
                adapter: origin.adapter.cloned(),
                salt: origin.salt.cloned(),
            }),
            tokens: tokens.to_vec(),
        });
    }

    pub(crate) fn removed(&mut self, tier: Tier, key: BlockKey) {
        if self.events == Events::Off {
            return;
        }
        let label = self.label(key);
        if self.removals == Removals::Joined
            && let Some(Change {
                change: KvChange::Removed(last),
                ..
            }) = self.changes.last_mut()
            && last.tier == tier
        {
            last.labels.push(label);
            return;
        }
        self.tell(KvChange::Removed(Removed {
            labels: vec![label],
            tier,
            group: CacheGroup(0),
        }));
    }

    pub(crate) fn cleared(&mut self) {
        if self.events != Events::Off {
            self.tell(KvChange::Cleared(ClearScope::AllTiers));
        }
    }

    pub(crate) fn traced(&mut self, act: Act, place: u32, counts: Counts) {
        if self.tracing == Tracing::Off {
            return;
        }
        if let Some(last) = self.lines.last_mut()
            && last.act == act
        {
            last.blocks.push(place);
            last.counts = counts;
            return;
        }
        self.lines.push(TraceLine {
            act,
            blocks: vec![place],
            counts,
        });
    }

    fn tell(&mut self, change: KvChange) {
        self.changes.push(Change {
            change,
            tokens: Vec::new(),
        });
    }

    /// Every key has a label of its own, and every engine may have other labels.
    fn label(&self, key: BlockKey) -> Label {
        Label::new(key.0 ^ self.label_mask)
    }
}
