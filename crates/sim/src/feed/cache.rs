//! What does a cache hold? The naive model: copies of blocks per tier.
//!
//! The same model is the truth of an engine and what an agent knows of it. An agent that came late may know blocks whose
//! parent it never heard of; it cannot name their place, and lists them as orphans.

use std::collections::{BTreeMap, BTreeSet};

use homing_domain::{BlockKey, CacheGroup, Listed, ListedParent, Tier};
use homing_index::Copies;

use super::blocks::{Blocks, Salt};

/// A block on a tier.
pub type Entry = (BlockKey, Tier);

/// What a rank's cache holds.
#[derive(Clone, Debug)]
pub struct Cache {
    copies: BTreeMap<Entry, u32>,
    /// Blocks whose place in the tree is known to the owner of this model.
    placed: BTreeSet<BlockKey>,
    counting: Copies,
}

impl Cache {
    /// An empty one.
    pub fn new(counting: Copies) -> Self {
        Self {
            copies: BTreeMap::new(),
            placed: BTreeSet::new(),
            counting,
        }
    }

    /// Blocks per tier, with the number of copies.
    pub const fn entries(&self) -> &BTreeMap<Entry, u32> {
        &self.copies
    }

    /// Whether it holds a block on any tier.
    pub fn holds(&self, key: BlockKey) -> bool {
        Tier::ALL.iter().any(|tier| self.copies.contains_key(&(key, *tier)))
    }

    /// One more copy came.
    pub fn store(&mut self, blocks: &Blocks, entry: Entry) {
        let count = self.copies.entry(entry).or_insert(0);
        *count = match self.counting {
            Copies::Counted => *count + 1,
            Copies::Set => 1,
        };
        let parent = blocks.parent(entry.0).unwrap_or(blocks.root());
        if parent == blocks.root() || self.placed.contains(&parent) {
            self.place(blocks, entry.0);
        }
    }

    fn place(&mut self, blocks: &Blocks, key: BlockKey) {
        if !self.placed.insert(key) {
            return;
        }
        let is_child = |child: &BlockKey| blocks.parent(*child) == Some(key);
        let children: BTreeSet<BlockKey> = self.copies.keys().map(|entry| entry.0).filter(is_child).collect();
        for child in children {
            self.place(blocks, child);
        }
    }

    /// One copy went, if there was one.
    pub fn remove(&mut self, entry: Entry) {
        if let Some(count) = self.copies.get_mut(&entry) {
            *count -= 1;
            if *count == 0 {
                self.copies.remove(&entry);
            }
        }
    }

    /// A tier is empty now.
    pub fn clear_tier(&mut self, tier: Tier) {
        self.copies.retain(|entry, _| entry.1 != tier);
    }

    /// Everything is gone.
    pub fn clear(&mut self) {
        *self = Self::new(self.counting);
    }

    /// What it holds, parents before children, at most so many items; and whether that is all.
    pub fn list(&self, blocks: &Blocks, salt: Salt, limit: usize) -> (Vec<Listed>, bool) {
        let mut walk = Walk {
            cache: self,
            blocks,
            salt,
            items: Vec::new(),
            done: BTreeSet::new(),
        };
        let held: BTreeSet<BlockKey> = self.copies.keys().map(|entry| entry.0).collect();
        let is_top = |key: &&BlockKey| blocks.parent(**key).is_none_or(|parent| !held.contains(&parent));
        for key in held.iter().filter(is_top) {
            walk.subtree(*key, &held);
        }
        for (entry, copies) in &self.copies {
            if !walk.done.contains(entry) {
                walk.item(*entry, *copies);
            }
        }
        let complete = walk.items.len() <= limit;
        // What is left out is at the end: no parent of what stays.
        walk.items.truncate(limit);
        (walk.items, complete)
    }
}

/// A walk over the tree that makes a list.
struct Walk<'a> {
    cache: &'a Cache,
    blocks: &'a Blocks,
    salt: Salt,
    items: Vec<Listed>,
    done: BTreeSet<Entry>,
}

impl Walk<'_> {
    fn subtree(&mut self, key: BlockKey, held: &BTreeSet<BlockKey>) {
        let first = Tier::ALL.iter().find_map(|tier| {
            let copies = self.cache.copies.get(&(key, *tier))?;
            Some(((key, *tier), *copies))
        });
        if let Some((entry, copies)) = first {
            self.item(entry, copies);
        }
        let blocks = self.blocks;
        for child in held.iter().filter(|child| blocks.parent(**child) == Some(key)) {
            self.subtree(*child, held);
        }
    }

    fn item(&mut self, entry: Entry, copies: u32) {
        let (key, tier) = entry;
        self.done.insert(entry);
        let block = self.blocks.stored(key, self.salt);
        let parent = self.blocks.parent(key).unwrap_or(self.blocks.root());
        if let Some(last) = self.items.last_mut() {
            let follows = last.blocks.last().map(|last| last.label) == Some(self.salt.label(parent));
            if follows && last.tier == tier && last.copies == copies && self.cache.placed.contains(&key) {
                last.blocks.push(block);
                return;
            }
        }
        let parent = if parent == self.blocks.root() {
            ListedParent::Root
        } else if self.cache.holds(parent) || !self.cache.placed.contains(&key) {
            ListedParent::Label(self.salt.label(parent))
        } else {
            ListedParent::Key(parent)
        };
        self.items.push(Listed {
            parent,
            tier,
            group: CacheGroup(0),
            copies,
            blocks: vec![block],
        });
    }
}
