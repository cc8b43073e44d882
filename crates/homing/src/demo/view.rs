//! What does the router know of the caches? The only part of the demo that keeps an index.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use homing_config::Config;
use homing_domain::{BlockKey, Blocks, KeyHasher, KvChange, RankId, Tier};
use homing_index::{Answer, Applied, Approximate, ApproximateConfig, Heat, Index, IndexConfig, Reader, Slot};
use homing_telemetry::{Change, Metrics};

/// An index, and where its content comes from.
pub struct View {
    index: Index,
    reader: Reader,
    /// Reused by every lookup.
    answer: Answer,
    /// By worker.
    slots: Vec<Slot>,
    source: Source,
    /// What the index took before the first store.
    bytes_when_empty: u64,
    /// What was done so far.
    metrics: Metrics,
}

/// Where the content of an index comes from.
enum Source {
    /// Workers report what they store and remove. What is routed only makes blocks hot.
    Events(Heat),
    /// Workers report nothing; what was routed to them is taken to be there.
    Routed(Approximate),
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
    /// Memory that it took before the first store.
    pub bytes_when_empty: u64,
    /// Events applied so far.
    pub events: u64,
}

impl Size {
    /// Memory for each entry, beyond what an empty index takes.
    pub fn bytes_per_entry(&self) -> f64 {
        self.bytes.saturating_sub(self.bytes_when_empty) as f64 / self.entries.max(1) as f64
    }
}

impl View {
    /// A view that hears events.
    pub fn of_events(config: &Config, hasher: KeyHasher) -> anyhow::Result<Self> {
        Self::new(
            config,
            hasher,
            Source::Events(Heat::new(millis(config.index.heat_window))),
        )
    }

    /// A view that guesses from what was routed.
    pub fn of_routed(config: &Config, hasher: KeyHasher) -> anyhow::Result<Self> {
        let bounds = ApproximateConfig {
            ttl_ms: millis(config.approximate.ttl),
            max_blocks: config.approximate.max_blocks.0 as usize,
            prune_target_ratio: config.approximate.prune_target_ratio,
        };
        Self::new(config, hasher, Source::Routed(Approximate::new(bounds, hasher)))
    }

    fn new(config: &Config, hasher: KeyHasher, source: Source) -> anyhow::Result<Self> {
        let mut index = Index::new(IndexConfig {
            capacity: config.index.capacity.0.into(),
            orphans_per_rank: config.index.orphans_per_rank.0 as usize,
            max_ranks: config.index.max_ranks as usize,
            ..IndexConfig::new(hasher)
        });
        let slot = |number| {
            let slot = index.add_rank(RankId::new(number, 0), config.index.copies);
            slot.with_context(|| format!("worker {number} has no place in the index"))
        };
        Ok(Self {
            slots: (0..config.demo.workers).map(slot).collect::<anyhow::Result<_>>()?,
            reader: index.reader(),
            answer: Answer::default(),
            source,
            bytes_when_empty: index.stats().bytes,
            index,
            metrics: Metrics::default(),
        })
    }

    /// How many leading blocks of a prompt each worker is taken to hold.
    pub fn depths(&mut self, keys: &[BlockKey], now_ms: u64) -> Vec<Blocks> {
        if let Source::Routed(routed) = &mut self.source {
            routed.expire(&mut self.index, now_ms).expect(SLOTS_STAY);
        }
        let begun = Instant::now();
        self.reader.lookup(keys, &mut self.answer);
        self.metrics.index.lookup_duration.observe(begun.elapsed());
        self.metrics.index.prefix_lookups.add(1);
        let depth = |slot: &Slot| self.answer.depth(*slot, Tier::Device);
        self.slots.iter().map(depth).collect()
    }

    /// Whether it hears events and had to forget something of this worker for want of room: it may then be too low,
    /// never too high.
    pub fn is_lower_bound(&self, worker: usize) -> bool {
        let truncated = || {
            self.index
                .rank_stats(self.slots[worker])
                .is_ok_and(|stats| stats.truncated)
        };
        matches!(self.source, Source::Events(_)) && truncated()
    }

    /// A prompt was sent to a worker.
    pub fn routed(&mut self, worker: usize, keys: &[BlockKey], now_ms: u64) {
        match &mut self.source {
            Source::Events(heat) => heat.mark(keys, now_ms),
            Source::Routed(routed) => {
                let begun = Instant::now();
                let done = routed.routed(&mut self.index, self.slots[worker], keys, now_ms);
                done.expect(SLOTS_STAY);
                self.metrics.index.write_slice.observe(begun.elapsed());
                self.index.maintain(MAINTENANCE_PER_WRITE);
            }
        }
    }

    /// A worker's cache changed, and it says so. Whoever guesses does not listen.
    pub fn hear(&mut self, worker: usize, change: &KvChange) {
        if matches!(self.source, Source::Routed(_)) {
            return;
        }
        let begun = Instant::now();
        let applied = self.index.apply(self.slots[worker], change).expect(SLOTS_STAY);
        self.metrics.index.write_slice.observe(begun.elapsed());
        // Background work rides along in small pieces, as a service would do it between events.
        self.index.maintain(MAINTENANCE_PER_WRITE);
        let change = match applied {
            Applied::Stored(_) => Change::Stored,
            Applied::Removed(_) => Change::Removed,
            Applied::Cleared(slot) => {
                self.slots[worker] = slot;
                Change::Cleared
            }
        };
        self.metrics.index.applied_events.of(change).add(1);
    }

    /// How often a block was routed of late. Only a view that hears events counts that.
    pub fn uses(&self, key: BlockKey, now_ms: u64) -> u32 {
        match &self.source {
            Source::Events(heat) => heat.uses(key, now_ms),
            Source::Routed(_) => 0,
        }
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

    fn drain(&mut self) {
        while self.index.maintain(1_000).is_pending() {}
    }
}

/// Why a slot is never refused.
const SLOTS_STAY: &str = "workers keep the slot that they were given last";

/// Units of background work after each write.
const MAINTENANCE_PER_WRITE: u32 = 64;

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
