//! How do workers and index meet? The only part of the demo that uses `homing-index`.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use homing_config::{CacheView, Config};
use homing_domain::{BlockKey, BlockSize, Blocks, ClearScope, KeyHasher, KvChange, Prompt, RankId, Tier};
use homing_index::{Answer, Applied, Index, IndexConfig, Reader, Slot};
use homing_telemetry::{Change, Metrics};

use super::cache::Cache;

/// Workers with their caches, and an index that hears their events.
pub struct Fleet {
    hasher: KeyHasher,
    block_size: BlockSize,
    workers: Vec<Worker>,
    index: Index,
    reader: Reader,
    /// Reused by every lookup.
    answer: Answer,
    /// What the index took before the first event.
    bytes_when_empty: u64,
    /// What was done so far.
    metrics: Metrics,
}

struct Worker {
    cache: Cache,
    slot: Slot,
}

/// How large the index is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Distinct blocks.
    pub blocks: u64,
    /// Pairs of block and worker.
    pub entries: u64,
    /// Runs that the blocks are kept in.
    pub runs: u64,
    /// Memory.
    pub bytes: u64,
    /// Memory that it took before the first event.
    pub bytes_when_empty: u64,
    /// Events applied so far.
    pub events: u64,
}

/// What the index said about one prompt, compared with the caches.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Leading blocks held, by worker.
    pub depths: Vec<Blocks>,
    /// How many of them are not what the caches say; see [`Fleet::ask`].
    pub wrong: u64,
}

impl Size {
    /// Memory for each entry, beyond what an empty index takes.
    pub fn bytes_per_entry(&self) -> f64 {
        self.bytes.saturating_sub(self.bytes_when_empty) as f64 / self.entries.max(1) as f64
    }
}

impl Fleet {
    /// Workers with empty caches.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        ensure!(
            config.index.cache_view == CacheView::Events,
            "the demo shows the view that comes from events: leave `index.cache-view` at `events`"
        );
        let hasher = KeyHasher::new(config.hash_seed);
        let mut index = Index::new(IndexConfig {
            capacity: config.index.capacity.0.into(),
            orphans_per_rank: config.index.orphans_per_rank.0 as usize,
            max_ranks: config.index.max_ranks as usize,
            ..IndexConfig::new(hasher)
        });
        let worker = |number| {
            let slot = index.add_rank(RankId::new(number, 0), config.index.copies);
            Ok(Worker {
                cache: Cache::new(hasher, config.demo.cache),
                slot: slot.with_context(|| format!("worker {number} has no place in the index"))?,
            })
        };
        let workers = (0..config.demo.workers).map(worker).collect::<anyhow::Result<_>>()?;
        Ok(Self {
            hasher,
            block_size: config.block_size,
            workers,
            reader: index.reader(),
            bytes_when_empty: index.stats().bytes,
            index,
            answer: Answer::default(),
            metrics: Metrics::default(),
        })
    }

    /// How many workers there are.
    pub fn len(&self) -> usize {
        self.workers.len()
    }

    /// The keys of a text's full blocks.
    pub fn keys(&self, tokens: &[u32]) -> Vec<BlockKey> {
        let mut keys = Vec::new();
        self.append_keys(tokens, &mut keys);
        keys
    }

    /// The same, into room that the caller reuses.
    pub fn append_keys(&self, tokens: &[u32], keys: &mut Vec<BlockKey>) {
        self.hasher.keys(&Prompt::text(tokens, self.block_size), keys);
    }

    /// Asks the index who holds how much of a prompt, and compares the answer with every cache.
    pub fn ask(&mut self, keys: &[BlockKey]) -> Checked {
        let begun = Instant::now();
        self.reader.lookup(keys, &mut self.answer);
        self.metrics.index.lookup_duration.observe(begun.elapsed());
        self.metrics.index.prefix_lookups.add(1);
        let depths: Vec<Blocks> = self
            .workers
            .iter()
            .map(|worker| self.answer.depth(worker.slot, Tier::Device))
            .collect();
        let wrong = self.workers.iter().zip(&depths).filter(|(worker, depth)| {
            let truth = worker.cache.leading(keys);
            // A view that had to forget for want of room may be too low, never too high.
            let lower_bound = self.index.rank_stats(worker.slot).is_ok_and(|stats| stats.truncated);
            if lower_bound { **depth > truth } else { **depth != truth }
        });
        let wrong = wrong.count() as u64;
        Checked { depths, wrong }
    }

    /// Lets a worker compute a sequence and tells the index what changed.
    pub fn serve(&mut self, worker: usize, keys: &[BlockKey]) {
        let changes = self.workers[worker].cache.serve(keys);
        for change in &changes {
            self.apply(worker, change);
        }
    }

    /// Lets a worker lose one block.
    pub fn lose(&mut self, worker: usize, key: BlockKey) {
        let change = self.workers[worker].cache.lose(key);
        self.apply(worker, &change);
    }

    /// Lets a worker lose all.
    pub fn restart(&mut self, worker: usize) {
        self.workers[worker].cache.restart();
        self.apply(worker, &KvChange::Cleared(ClearScope::AllTiers));
    }

    /// How many blocks a worker caches.
    pub fn cached(&self, worker: usize) -> Blocks {
        self.workers[worker].cache.len()
    }

    /// A reader and an answer of one's own, for timing.
    pub fn reader(&self) -> (Reader, Answer) {
        (self.reader.clone(), Answer::default())
    }

    /// How large the index is, all maintenance done.
    pub fn size(&mut self) -> Size {
        self.drain();
        let stats = self.index.stats();
        Size {
            blocks: stats.blocks,
            entries: stats.entries,
            runs: stats.runs,
            bytes: stats.bytes,
            bytes_when_empty: self.bytes_when_empty,
            events: Change::ALL
                .map(|change| self.metrics.index.applied_events.of(change).get())
                .iter()
                .sum(),
        }
    }

    /// All that was counted and measured here, for a scraper.
    pub fn into_metrics(mut self) -> Metrics {
        self.drain();
        let (stats, index) = (self.index.stats(), &self.metrics.index);
        index.distinct_blocks.set(stats.blocks);
        index.held_entries.set(stats.entries);
        index.live_runs.set(stats.runs);
        index.live_ranks.set(stats.ranks);
        index.orphan_blocks.set(stats.orphans);
        index.truncated_ranks.set(stats.truncated_ranks);
        index.memory_bytes.set(stats.bytes);
        index.evicted_blocks.follow(stats.evicted);
        index.label_conflicts.follow(stats.rebound);
        index.unknown_removals.follow(stats.unknown_removals);
        index.unsettled_lookups.follow(self.reader.unsettled());
        self.metrics
    }

    fn apply(&mut self, worker: usize, change: &KvChange) {
        let slot = self.workers[worker].slot;
        let begun = Instant::now();
        let applied = self
            .index
            .apply(slot, change)
            .expect("workers keep the slot that they were given last");
        self.metrics.index.write_slice.observe(begun.elapsed());
        // Background work rides along in small pieces, as a service would do it between events.
        self.index.maintain(MAINTENANCE_PER_EVENT);
        let change = match applied {
            Applied::Stored(_) => Change::Stored,
            Applied::Removed(_) => Change::Removed,
            Applied::Cleared(slot) => {
                self.workers[worker].slot = slot;
                Change::Cleared
            }
        };
        self.metrics.index.applied_events.of(change).add(1);
    }

    fn drain(&mut self) {
        while self.index.maintain(1_000).is_pending() {}
    }
}

/// Units of background work after each event.
const MAINTENANCE_PER_EVENT: u32 = 64;
