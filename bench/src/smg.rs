//! smg's `ChainIndex`, called directly: one writer with a block map per worker, lookups by `score_into` into a buffer
//! that is kept.

use std::sync::Arc;

use kv_index::{ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock, compute_content_hash};

use crate::catalog::{BLOCK_TOKENS, Catalog, Labels};
use crate::contender::{Index, Reader};
use crate::log::{Change, Op};

/// Its writing side.
pub struct Smg {
    index: Arc<ChainIndex>,
    workers: Vec<(u32, ChainBlockMap)>,
}

/// An event, as its methods take it.
pub enum Event {
    /// For `apply_stored`.
    Store(usize, Option<SequenceHash>, Vec<StoredBlock>),
    /// For `apply_removed`.
    Remove(usize, Vec<SequenceHash>),
}

impl Smg {
    /// An empty index with its workers interned.
    pub fn new(workers: usize) -> Self {
        let index = ChainIndex::with_max_workers(workers);
        let workers = (0..workers)
            .map(|worker| {
                let id = index.intern_worker(&worker.to_string());
                (id.expect("the index was made for this many"), ChainBlockMap::new())
            })
            .collect();
        Self {
            index: Arc::new(index),
            workers,
        }
    }
}

impl Index for Smg {
    type Event = Event;
    type Input = Vec<ContentHash>;
    type Reader = SmgReader;

    fn event(&self, op: Op<'_>, catalog: &Catalog, labels: Labels) -> Event {
        let name = |id: &u32| SequenceHash(labels.of(catalog.block(*id), op.worker));
        match op.change {
            Change::Store { parent } => {
                let blocks = op.blocks.iter().map(|id| StoredBlock {
                    seq_hash: name(id),
                    content_hash: ContentHash(catalog.block(*id).smg),
                });
                Event::Store(op.worker, parent.as_ref().map(name), blocks.collect())
            }
            Change::Remove => Event::Remove(op.worker, op.blocks.iter().map(name).collect()),
        }
    }

    fn apply(&mut self, events: Vec<Event>) {
        for event in &events {
            match event {
                Event::Store(worker, parent, blocks) => {
                    let (id, map) = &mut self.workers[*worker];
                    // What it refuses is missing from its answers, and the oracle finds it there.
                    let _ = self.index.apply_stored(*id, blocks, *parent, map);
                }
                Event::Remove(worker, labels) => {
                    let (id, map) = &mut self.workers[*worker];
                    self.index.apply_removed(*id, labels, map);
                }
            }
        }
    }

    fn reader(&self) -> SmgReader {
        SmgReader {
            index: Arc::clone(&self.index),
            scores: Vec::new(),
            hashes: Vec::new(),
        }
    }

    fn input(&self, tokens: &[u32]) -> Vec<ContentHash> {
        tokens.chunks_exact(BLOCK_TOKENS).map(compute_content_hash).collect()
    }
}

/// Its reading side.
pub struct SmgReader {
    index: Arc<ChainIndex>,
    scores: Vec<(u32, u32)>,
    hashes: Vec<ContentHash>,
}

impl SmgReader {
    fn score(index: &ChainIndex, hashes: &[ContentHash], scores: &mut Vec<(u32, u32)>) -> u64 {
        scores.clear();
        index.score_into(
            hashes,
            |hash| hash.0,
            false,
            |worker, score| scores.push((worker, score)),
        );
        scores.len() as u64
    }
}

impl Reader for SmgReader {
    type Input = Vec<ContentHash>;

    fn lookup(&mut self, input: &Self::Input) -> u64 {
        Self::score(&self.index, input, &mut self.scores)
    }

    fn lookup_tokens(&mut self, tokens: &[u32]) -> u64 {
        self.hashes.clear();
        self.hashes
            .extend(tokens.chunks_exact(BLOCK_TOKENS).map(compute_content_hash));
        Self::score(&self.index, &self.hashes, &mut self.scores)
    }

    fn depths(&mut self, input: &Self::Input, depths: &mut [u32]) {
        depths.fill(0);
        // Worker ids were interned in order, so they are the places.
        let mut report = |worker: u32, score| depths[worker as usize] = score;
        self.index.score_into(input, |hash| hash.0, false, &mut report);
    }
}
