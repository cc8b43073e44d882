//! How do workers, their caches and what is known of them meet?

use homing_config::{CacheView, Config};
use homing_domain::{BlockKey, BlockSize, Blocks, ClearScope, KeyHasher, KvChange, Prompt};
use homing_index::{Answer, Reader};
use homing_telemetry::Metrics;

use super::cache::Cache;
use super::view::{Size, View};

/// How long after a request the next one arrives. Time is virtual here: it only goes on when a request comes.
pub const MS_BETWEEN_REQUESTS: u64 = 100;

/// Workers with their caches, and a view of them.
pub struct Fleet {
    hasher: KeyHasher,
    block_size: BlockSize,
    caches: Vec<Cache>,
    /// None if nothing is to be known of the caches; then nothing is stored or looked up.
    view: Option<View>,
    now_ms: u64,
}

/// What the view said about one prompt, compared with the caches.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Leading blocks held, by worker; 0 where nothing is known.
    pub depths: Vec<Blocks>,
    /// How many of them were compared; 0 where nothing is known.
    pub compared: u64,
    /// How many of them are more than what the caches hold.
    pub too_high: u64,
    /// How many are less, and not known to be lower bounds.
    pub too_low: u64,
}

impl Checked {
    /// How many are not what the caches say.
    pub fn wrong(&self) -> u64 {
        self.too_high + self.too_low
    }
}

impl Fleet {
    /// Workers with empty caches, and a view of this kind.
    pub fn new(config: &Config, cache_view: CacheView) -> anyhow::Result<Self> {
        let hasher = KeyHasher::new(config.hash_seed);
        let view = match cache_view {
            CacheView::Events => Some(View::of_events(config, hasher)?),
            CacheView::Approximate => Some(View::of_routed(config, hasher)?),
            CacheView::None => None,
        };
        let cache = |_| Cache::new(hasher, config.demo.cache);
        Ok(Self {
            hasher,
            block_size: config.block_size,
            caches: (0..config.demo.workers).map(cache).collect(),
            view,
            now_ms: 0,
        })
    }

    /// How many workers there are.
    pub fn len(&self) -> usize {
        self.caches.len()
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

    /// Time goes on until the next request.
    pub fn tick(&mut self) {
        self.now_ms += MS_BETWEEN_REQUESTS;
    }

    /// Asks the view who holds how much of a prompt, and compares the answer with every cache.
    pub fn ask(&mut self, keys: &[BlockKey]) -> Checked {
        let workers = self.len();
        let Some(view) = &mut self.view else {
            return Checked {
                depths: vec![Blocks(0); workers],
                compared: 0,
                too_high: 0,
                too_low: 0,
            };
        };
        let depths = view.depths(keys, self.now_ms);
        let (mut too_high, mut too_low) = (0, 0);
        for (worker, (cache, depth)) in self.caches.iter().zip(&depths).enumerate() {
            let truth = cache.leading(keys);
            too_high += u64::from(*depth > truth);
            too_low += u64::from(*depth < truth && !view.is_lower_bound(worker));
        }
        Checked {
            depths,
            compared: workers as u64,
            too_high,
            too_low,
        }
    }

    /// How many leading blocks of a prompt a worker holds in truth.
    pub fn held(&self, worker: usize, keys: &[BlockKey]) -> Blocks {
        self.caches[worker].leading(keys)
    }

    /// Tells the view that a prompt was sent to a worker.
    pub fn routed(&mut self, worker: usize, keys: &[BlockKey]) {
        if let Some(view) = &mut self.view {
            view.routed(worker, keys, self.now_ms);
        }
    }

    /// Lets a worker compute a sequence and say what changed.
    pub fn serve(&mut self, worker: usize, keys: &[BlockKey]) {
        for change in self.caches[worker].serve(keys) {
            self.say(worker, &change);
        }
    }

    /// Lets a worker lose one block.
    pub fn lose(&mut self, worker: usize, key: BlockKey) {
        let change = self.caches[worker].lose(key);
        self.say(worker, &change);
    }

    /// Lets a worker lose all.
    pub fn restart(&mut self, worker: usize) {
        self.caches[worker].restart();
        self.say(worker, &KvChange::Cleared(ClearScope::AllTiers));
    }

    /// How many blocks a worker caches.
    pub fn cached(&self, worker: usize) -> Blocks {
        self.caches[worker].len()
    }

    /// How often a block was routed of late, as far as the view counts that.
    pub fn uses(&self, key: BlockKey) -> u32 {
        self.view.as_ref().map_or(0, |view| view.uses(key, self.now_ms))
    }

    /// A reader and an answer of one's own, for timing. Only for a fleet with a view.
    pub fn reader(&self) -> (Reader, Answer) {
        self.view.as_ref().expect(HAS_A_VIEW).reader()
    }

    /// How large the index is, all maintenance done. Only for a fleet with a view.
    pub fn size(&mut self) -> Size {
        self.view.as_mut().expect(HAS_A_VIEW).size()
    }

    /// All that was counted and measured of the view, for a scraper.
    pub fn into_metrics(self) -> Metrics {
        self.view.map_or_else(Metrics::default, View::into_metrics)
    }

    fn say(&mut self, worker: usize, change: &KvChange) {
        if let Some(view) = &mut self.view {
            view.hear(worker, change);
        }
    }
}

const HAS_A_VIEW: &str = "only a fleet with a view is asked about its index";
