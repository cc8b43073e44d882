//! What is probably cached on an engine that does not tell? The router stores what it routed; it counts for a time to
//! live after it was last routed, and if there is too much the least recently routed goes. A guess, and called one.
//!
//! **Invariant:** of a sequence the deeper block never outlives the shallower one on the same rank, because a routed
//! prompt renews all its blocks, the last first.

use homing_domain::{BlockKey, ClearScope, KeyHasher, Label, Removed, Stored, StoredBlock};
use rustc_hash::FxHashMap;

use crate::{Index, IndexError, Slot};

/// Bounds of an approximate view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ApproximateConfig {
    /// How long a block counts after it was last routed.
    pub ttl_ms: u64,
    /// (Block, rank) pairs that are kept.
    pub max_blocks: usize,
    /// To which share of that it is pruned when there are more.
    pub prune_target_ratio: f64,
}

impl Default for ApproximateConfig {
    /// 120 s, 2^20 blocks, 0.8.
    fn default() -> Self {
        Self {
            ttl_ms: 120_000,
            max_blocks: 1 << 20,
            prune_target_ratio: 0.8,
        }
    }
}

/// One block on one rank, in a list from the least to the most recently routed.
#[derive(Clone, Copy, Debug)]
struct Entry {
    slot: Slot,
    key: BlockKey,
    routed_ms: u64,
    older: u32,
    newer: u32,
}

const NONE: u32 = u32::MAX;

/// Keeps what was routed in an [`Index`]. The index may hold other ranks that report events.
#[derive(Debug)]
pub struct Approximate {
    config: ApproximateConfig,
    hasher: KeyHasher,
    by_block: FxHashMap<(Slot, BlockKey), u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl Approximate {
    /// An empty view. The hasher must be the index's.
    pub fn new(config: ApproximateConfig, hasher: KeyHasher) -> Self {
        Self {
            config,
            hasher,
            by_block: FxHashMap::default(),
            entries: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
        }
    }

    /// (Block, rank) pairs kept now.
    pub fn len(&self) -> usize {
        self.by_block.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.by_block.is_empty()
    }

    /// A prompt with these keys was routed to a rank at `now_ms`, a time that does not go back.
    pub fn routed(&mut self, index: &mut Index, slot: Slot, keys: &[BlockKey], now_ms: u64) -> Result<(), IndexError> {
        // What is on the rank already is a prefix: find where it ends.
        let known = keys.partition_point(|key| self.by_block.contains_key(&(slot, *key)));
        let mut parent = if known == 0 {
            self.hasher.root()
        } else {
            keys[known - 1]
        };
        let blocks = keys[known..].iter().map(|key| {
            let content = self.hasher.content_of(parent, *key);
            parent = *key;
            StoredBlock {
                label: Label::new(key.0),
                content,
            }
        });
        let stored = Stored::plain(
            known.checked_sub(1).map(|last| Label::new(keys[last].0)),
            blocks.collect(),
        );
        if !stored.blocks.is_empty() {
            index.store(slot, &stored)?;
        }
        for key in keys.iter().rev() {
            self.touch(slot, *key, now_ms);
        }
        self.expire(index, now_ms)
    }

    /// Drops what was routed too long ago, and the oldest of what is too much.
    pub fn expire(&mut self, index: &mut Index, now_ms: u64) -> Result<(), IndexError> {
        let target = if self.len() > self.config.max_blocks {
            (self.config.max_blocks as f64 * self.config.prune_target_ratio) as usize
        } else {
            self.config.max_blocks
        };
        while let Some(entry) = self.entries.get(self.oldest as usize).copied() {
            let is_expired = entry.routed_ms.saturating_add(self.config.ttl_ms) <= now_ms;
            if !is_expired && self.len() <= target {
                break;
            }
            self.forget(self.oldest);
            match index.remove(entry.slot, &Removed::plain(vec![Label::new(entry.key.0)])) {
                // A rank that left took its blocks along.
                Ok(_) | Err(IndexError::NoSuchSlot) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Everything that was routed to a rank is gone. Returns the slot to use from now on.
    pub fn clear(&mut self, index: &mut Index, slot: Slot) -> Result<Slot, IndexError> {
        let gone: Vec<u32> = self
            .by_block
            .iter()
            .filter(|((s, _), _)| *s == slot)
            .map(|(_, entry)| *entry)
            .collect();
        for entry in gone {
            self.forget(entry);
        }
        index.clear(slot, ClearScope::AllTiers)
    }

    fn touch(&mut self, slot: Slot, key: BlockKey, routed_ms: u64) {
        let number = if let Some(number) = self.by_block.get(&(slot, key)).copied() {
            self.unlink(number);
            number
        } else {
            let number = self.free.pop().unwrap_or(self.entries.len() as u32);
            let entry = Entry {
                slot,
                key,
                routed_ms,
                older: NONE,
                newer: NONE,
            };
            if number as usize == self.entries.len() {
                self.entries.push(entry);
            } else {
                self.entries[number as usize] = entry;
            }
            self.by_block.insert((slot, key), number);
            number
        };
        let newest = self.newest;
        let entry = &mut self.entries[number as usize];
        (entry.routed_ms, entry.older, entry.newer) = (routed_ms, newest, NONE);
        match self.entries.get_mut(newest as usize) {
            Some(before) => before.newer = number,
            None => self.oldest = number,
        }
        self.newest = number;
    }

    fn forget(&mut self, number: u32) {
        self.unlink(number);
        let entry = self.entries[number as usize];
        self.by_block.remove(&(entry.slot, entry.key));
        self.free.push(number);
    }

    fn unlink(&mut self, number: u32) {
        let Entry { older, newer, .. } = self.entries[number as usize];
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::{Answer, Copies, IndexConfig};
    use homing_domain::{ContentHash, HashSeed, RankId, Tier};

    struct World {
        index: Index,
        view: Approximate,
        slot: Slot,
        hasher: KeyHasher,
    }

    fn world(config: ApproximateConfig) -> World {
        let hasher = KeyHasher::new(HashSeed::PUBLIC);
        let mut index = Index::new(IndexConfig::new(hasher));
        let slot = index.add_rank(RankId::new(0, 0), Copies::Set).expect("there are slots");
        World {
            index,
            view: Approximate::new(config, hasher),
            slot,
            hasher,
        }
    }

    fn chain(hasher: &KeyHasher, sequence: u64, length: u64) -> Vec<BlockKey> {
        let mut key = hasher.root();
        (0..length)
            .map(|block| {
                key = hasher.child(key, ContentHash(sequence * 1000 + block));
                key
            })
            .collect()
    }

    fn depth(world: &World, keys: &[BlockKey]) -> u32 {
        let mut answer = Answer::default();
        world.index.reader().lookup(keys, &mut answer);
        answer.depth(world.slot, Tier::Device).0
    }

    #[test]
    fn what_was_routed_counts_until_its_time_is_over() {
        let mut world = world(ApproximateConfig {
            ttl_ms: 100,
            ..ApproximateConfig::default()
        });
        let long = chain(&world.hasher, 1, 8);
        world.view.routed(&mut world.index, world.slot, &long, 0).unwrap();
        world.view.routed(&mut world.index, world.slot, &long[..3], 60).unwrap();
        assert_eq!(depth(&world, &long), 8);
        world.view.expire(&mut world.index, 100).unwrap();
        assert_eq!(depth(&world, &long), 3, "the first three were routed again");
        world.view.expire(&mut world.index, 160).unwrap();
        assert_eq!(depth(&world, &long), 0);
        assert!(world.view.is_empty());
        assert_eq!(world.index.stats().blocks, 0);
    }

    #[test]
    fn too_much_is_pruned_to_the_target_oldest_first() {
        let config = ApproximateConfig {
            max_blocks: 20,
            prune_target_ratio: 0.5,
            ..ApproximateConfig::default()
        };
        let mut world = world(config);
        let sequences: Vec<_> = (0..3).map(|sequence| chain(&world.hasher, sequence, 8)).collect();
        for (time, keys) in sequences.iter().enumerate() {
            world
                .view
                .routed(&mut world.index, world.slot, keys, time as u64)
                .unwrap();
        }
        assert_eq!(world.view.len(), 10);
        assert_eq!(
            sequences.iter().map(|keys| depth(&world, keys)).collect::<Vec<_>>(),
            [0, 2, 8]
        );
    }

    #[test]
    fn a_rank_that_left_takes_its_blocks_along() {
        let mut world = world(ApproximateConfig {
            ttl_ms: 10,
            ..ApproximateConfig::default()
        });
        let keys = chain(&world.hasher, 1, 4);
        world.view.routed(&mut world.index, world.slot, &keys, 0).unwrap();
        world.slot = world.view.clear(&mut world.index, world.slot).unwrap();
        assert_eq!((depth(&world, &keys), world.view.len()), (0, 0));
        world.view.routed(&mut world.index, world.slot, &keys, 1).unwrap();
        world.index.drop_rank(world.slot).unwrap();
        world.view.expire(&mut world.index, 100).unwrap();
        assert!(world.view.is_empty());
    }
}
