//! Dynamo's two indexes: the concurrent compressed radix tree, and the positional index in binary mode.
//!
//! The tree can be written only from its own worker loop, so it runs on a thread of its own and is fed through the
//! channel it asks for; a flush tells when all is done. The positional index is written directly. Both are read
//! directly on the caller's thread, in the synchronous form.

use std::sync::Arc;
use std::thread::JoinHandle;

use dynamo_kv_router::indexer::WorkerTask;
use dynamo_kv_router::indexer::positional::{LevelIndex, SearchMode};
use dynamo_kv_router::protocols::{
    BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent, WorkerWithDpRank, compute_block_hash_for_seq,
};
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, PositionalIndexer, SyncIndexer};
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use crate::catalog::{BLOCK_TOKENS, Catalog, Labels};
use crate::contender::{Index, Reader};
use crate::log::{Change, Op};

/// The concurrent compressed radix tree.
pub struct Tree {
    radix: Arc<ConcurrentRadixTreeCompressed>,
    tasks: flume::Sender<WorkerTask>,
    writer: Option<JoinHandle<()>>,
}

impl Tree {
    /// An empty tree and its writer.
    pub fn new() -> Self {
        let tree = Arc::new(ConcurrentRadixTreeCompressed::new());
        let (tasks, received) = flume::unbounded();
        let written = Arc::clone(&tree);
        let writer = std::thread::spawn(move || written.worker(received, None).expect("the tree's writer runs"));
        Self {
            radix: tree,
            tasks,
            writer: Some(writer),
        }
    }

    /// How many leading blocks each worker holds.
    #[cfg_attr(not(feature = "ours"), expect(dead_code, reason = "only decisions ask for it"))]
    pub fn matches(&self, contents: &[LocalBlockHash]) -> OverlapScores {
        self.radix.find_matches(contents, false)
    }

    fn send(&self, task: WorkerTask) {
        assert!(self.tasks.send(task).is_ok(), "the tree's writer is alive");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.send(WorkerTask::Terminate);
        if let Some(writer) = self.writer.take() {
            assert!(writer.join().is_ok(), "the tree's writer ended well");
        }
    }
}

impl Index for Tree {
    type Event = RouterEvent;
    type Input = Vec<LocalBlockHash>;
    type Reader = DynamoReader<ConcurrentRadixTreeCompressed>;

    fn event(&self, op: Op<'_>, catalog: &Catalog, labels: Labels) -> RouterEvent {
        router_event(op, catalog, labels)
    }

    fn apply(&mut self, events: Vec<RouterEvent>) {
        for event in events {
            self.send(WorkerTask::Event(event));
        }
        let (done, wait) = oneshot::channel();
        self.send(WorkerTask::Flush(done));
        assert!(wait.blocking_recv().is_ok(), "the tree's writer flushes");
    }

    fn reader(&self) -> Self::Reader {
        DynamoReader(Arc::clone(&self.radix))
    }

    fn input(&self, tokens: &[u32]) -> Self::Input {
        content_hashes(tokens)
    }
}

/// The positional index in binary mode.
pub struct Positional {
    index: Arc<PositionalIndexer>,
    blocks: FxHashMap<WorkerWithDpRank, LevelIndex>,
}

impl Positional {
    /// An empty index. 32 is the step that its own tests use.
    pub fn new() -> Self {
        Self {
            index: Arc::new(PositionalIndexer::new_with_mode(32, SearchMode::Binary)),
            blocks: FxHashMap::default(),
        }
    }
}

impl Index for Positional {
    type Event = RouterEvent;
    type Input = Vec<LocalBlockHash>;
    type Reader = DynamoReader<PositionalIndexer>;

    fn event(&self, op: Op<'_>, catalog: &Catalog, labels: Labels) -> RouterEvent {
        router_event(op, catalog, labels)
    }

    fn apply(&mut self, events: Vec<RouterEvent>) {
        for event in events {
            // What it refuses is missing from its answers, and the oracle finds it there.
            let _ = self.index.apply_event(&mut self.blocks, event, None);
        }
    }

    fn reader(&self) -> Self::Reader {
        DynamoReader(Arc::clone(&self.index))
    }

    fn input(&self, tokens: &[u32]) -> Self::Input {
        content_hashes(tokens)
    }
}

/// The reading side of either.
pub struct DynamoReader<T>(Arc<T>);

impl<T: SyncIndexer> Reader for DynamoReader<T> {
    type Input = Vec<LocalBlockHash>;

    fn lookup(&mut self, input: &Self::Input) -> u64 {
        count(&self.0.find_matches(input, false))
    }

    fn lookup_tokens(&mut self, tokens: &[u32]) -> u64 {
        count(&self.0.find_matches(&content_hashes(tokens), false))
    }

    fn depths(&mut self, input: &Self::Input, depths: &mut [u32]) {
        depths.fill(0);
        for (worker, depth) in self.0.find_matches(input, false).scores {
            depths[worker.worker_id as usize] = depth;
        }
    }
}

fn count(scores: &OverlapScores) -> u64 {
    scores.scores.len() as u64
}

fn content_hashes(tokens: &[u32]) -> Vec<LocalBlockHash> {
    compute_block_hash_for_seq(tokens, BLOCK_TOKENS as u32, BlockHashOptions::default())
}

fn router_event(op: Op<'_>, catalog: &Catalog, labels: Labels) -> RouterEvent {
    let name = |id: &u32| ExternalSequenceBlockHash(labels.of(catalog.block(*id), op.worker));
    let data = match op.change {
        Change::Store { parent } => KvCacheEventData::Stored(KvCacheStoreData {
            parent_hash: parent.as_ref().map(name),
            start_position: None,
            blocks: op
                .blocks
                .iter()
                .map(|id| KvCacheStoredBlockData {
                    block_hash: name(id),
                    tokens_hash: LocalBlockHash(catalog.block(*id).dynamo),
                    mm_extra_info: None,
                })
                .collect(),
        }),
        Change::Remove => KvCacheEventData::Removed(KvCacheRemoveData {
            block_hashes: op.blocks.iter().map(name).collect(),
        }),
    };
    let event = KvCacheEvent {
        event_id: 0,
        data,
        dp_rank: 0,
    };
    RouterEvent::new(op.worker as u64, event)
}
