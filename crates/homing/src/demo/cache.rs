//! What does a worker cache, and which events does it emit?
//!
//! A pretended engine: blocks are kept by how recently they were used, the end of a sequence goes before its beginning,
//! and every change is told as real engines tell it. It knows nothing of the index; it is the truth that the index is
//! compared with.

use std::collections::{BTreeMap, HashMap};

use homing_domain::{BlockKey, Blocks, ContentHash, KeyHasher, KvChange, Label, Removed, Stored, StoredBlock};

/// One worker's cache.
#[derive(Debug)]
pub struct Cache {
    hasher: KeyHasher,
    capacity: usize,
    /// When each block was used last, and the other way round.
    used: HashMap<BlockKey, u64>,
    order: BTreeMap<u64, BlockKey>,
    clock: u64,
}

impl Cache {
    /// An empty cache.
    pub fn new(hasher: KeyHasher, capacity: Blocks) -> Self {
        Self {
            hasher,
            capacity: capacity.0 as usize,
            used: HashMap::new(),
            order: BTreeMap::new(),
            clock: 0,
        }
    }

    /// How many leading blocks of `keys` are here.
    pub fn leading(&self, keys: &[BlockKey]) -> Blocks {
        Blocks(keys.iter().take_while(|key| self.used.contains_key(key)).count() as u32)
    }

    /// How many blocks are here.
    pub fn len(&self) -> Blocks {
        Blocks(self.used.len() as u32)
    }

    /// Computes a sequence, reusing what is here and keeping all of it. Returns what changed, in the order it happened.
    pub fn serve(&mut self, keys: &[BlockKey]) -> Vec<KvChange> {
        // A sequence longer than the cache keeps what fits.
        let keys = &keys[..keys.len().min(self.capacity)];
        let missing: Vec<usize> = (0..keys.len())
            .filter(|&at| !self.used.contains_key(&keys[at]))
            .collect();
        self.touch(keys);
        let mut changes = Vec::new();
        let evicted = self.evict(keys.len());
        if !evicted.is_empty() {
            changes.push(KvChange::Removed(Removed::plain(evicted)));
        }
        for run in missing.chunk_by(|a, b| a + 1 == *b) {
            changes.push(KvChange::Stored(self.stored(keys, run[0], run.len())));
        }
        changes
    }

    /// Loses one block, as an engine may at any time.
    pub fn lose(&mut self, key: BlockKey) -> KvChange {
        if let Some(when) = self.used.remove(&key) {
            self.order.remove(&when);
        }
        KvChange::Removed(Removed::plain(vec![label(key)]))
    }

    /// Loses everything: the process was restarted.
    pub fn restart(&mut self) {
        self.used.clear();
        self.order.clear();
    }

    /// Marks blocks as used now, the last first: what is reusable only by one sequence is to be evicted before what
    /// several share.
    fn touch(&mut self, keys: &[BlockKey]) {
        for &key in keys.iter().rev() {
            self.clock += 1;
            if let Some(before) = self.used.insert(key, self.clock) {
                self.order.remove(&before);
            }
            self.order.insert(self.clock, key);
        }
    }

    /// Evicts what was not used for the longest time; never the `protected` blocks that were touched last.
    fn evict(&mut self, protected: usize) -> Vec<Label> {
        let excess = self.used.len().saturating_sub(self.capacity.max(protected));
        let mut evicted = Vec::with_capacity(excess);
        for _ in 0..excess {
            if let Some((_, key)) = self.order.pop_first() {
                self.used.remove(&key);
                evicted.push(label(key));
            }
        }
        evicted
    }

    fn stored(&self, keys: &[BlockKey], first: usize, length: usize) -> Stored {
        let block = |at: usize| StoredBlock {
            label: label(keys[at]),
            content: self.content(keys, at),
        };
        let parent = first.checked_sub(1).map(|before| label(keys[before]));
        Stored::plain(parent, (first..first + length).map(block).collect())
    }

    fn content(&self, keys: &[BlockKey], at: usize) -> ContentHash {
        let parent = at.checked_sub(1).map_or(self.hasher.root(), |before| keys[before]);
        self.hasher.content_of(parent, keys[at])
    }
}

/// Engines have a hash of their own. Here it is any function of the key that is not the key.
fn label(key: BlockKey) -> Label {
    Label::new(key.0.rotate_left(17) ^ 0x6c61_6265_6c21)
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_domain::HashSeed;

    fn cache(capacity: u32) -> Cache {
        Cache::new(KeyHasher::new(HashSeed::PUBLIC), Blocks(capacity))
    }

    fn chain(contents: &[u64]) -> Vec<BlockKey> {
        let hasher = KeyHasher::new(HashSeed::PUBLIC);
        let step = |parent: &mut BlockKey, &content: &u64| {
            *parent = hasher.child(*parent, ContentHash(content));
            Some(*parent)
        };
        contents.iter().scan(hasher.root(), step).collect()
    }

    #[test]
    fn only_what_is_new_is_announced_under_its_parent() {
        let mut cache = cache(10);
        let (short, long) = (chain(&[1, 2]), chain(&[1, 2, 3, 4]));
        cache.serve(&short);
        let changes = cache.serve(&long);
        let [KvChange::Stored(stored)] = changes.as_slice() else {
            panic!("{changes:?}")
        };
        assert_eq!(stored.parent, Some(label(short[1])));
        assert_eq!(stored.blocks.iter().map(|b| b.content.0).collect::<Vec<_>>(), [3, 4]);
        assert!(cache.serve(&long).is_empty());
    }

    #[test]
    fn the_end_of_the_oldest_sequence_goes_first() {
        let mut cache = cache(5);
        let (old, new) = (chain(&[1, 2, 3]), chain(&[7, 8, 9]));
        cache.serve(&old);
        let changes = cache.serve(&new);
        assert_eq!(changes[0], KvChange::Removed(Removed::plain(vec![label(old[2])])));
        assert_eq!(
            (cache.leading(&old), cache.leading(&new), cache.len()),
            (Blocks(2), Blocks(3), Blocks(5))
        );
    }

    #[test]
    fn a_sequence_longer_than_the_cache_keeps_its_beginning() {
        let mut cache = cache(2);
        let long = chain(&[1, 2, 3, 4]);
        cache.serve(&long);
        assert_eq!((cache.leading(&long), cache.len()), (Blocks(2), Blocks(2)));
    }

    #[test]
    fn a_lost_block_is_announced_again_when_it_is_computed_again() {
        let mut cache = cache(9);
        let keys = chain(&[1, 2, 3]);
        cache.serve(&keys);
        cache.lose(keys[1]);
        assert_eq!(cache.leading(&keys), Blocks(1));
        let changes = cache.serve(&keys);
        assert!(
            matches!(changes.as_slice(), [KvChange::Stored(stored)] if stored.blocks.len() == 1),
            "{changes:?}"
        );
        assert_eq!(cache.leading(&keys), Blocks(3));
    }
}
