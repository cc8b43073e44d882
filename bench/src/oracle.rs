//! What is the right answer? For each worker the set of blocks it holds; nothing cleverer.

use rustc_hash::FxHashSet;

use crate::catalog::BlockId;
use crate::log::{Change, Log};

/// The blocks that each worker holds. A block's number stands for its whole prefix, so a set of numbers is exact.
pub struct Oracle {
    held: Vec<FxHashSet<BlockId>>,
}

impl Oracle {
    /// Workers that hold nothing.
    pub fn new(workers: u16) -> Self {
        Self {
            held: vec![FxHashSet::default(); usize::from(workers)],
        }
    }

    /// Does what the log says.
    pub fn apply(&mut self, log: &Log) {
        for op in log.ops(0..log.len()) {
            let held = &mut self.held[op.worker];
            match op.change {
                Change::Store { .. } => held.extend(op.blocks),
                Change::Remove => op.blocks.iter().for_each(|block| {
                    held.remove(block);
                }),
            }
        }
    }

    /// How many leading blocks of the path each worker holds.
    pub fn depths(&self, path: &[BlockId]) -> Vec<u32> {
        let leading = |held: &FxHashSet<BlockId>| path.iter().take_while(|block| held.contains(block)).count();
        self.held.iter().map(|held| leading(held) as u32).collect()
    }
}
