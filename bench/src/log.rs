//! What did the engines say? A list of stores and removals, the same for all contenders.

use std::ops::Range;

use crate::catalog::BlockId;

/// What happened to some blocks of a worker.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// They came, after this block or at the beginning.
    Store {
        /// The block before the first.
        parent: Option<BlockId>,
    },
    /// They went.
    Remove,
}

/// One event.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    /// Whose.
    pub worker: usize,
    /// What happened.
    pub change: Change,
    /// To which blocks.
    pub blocks: &'a [BlockId],
}

#[derive(Clone, Debug)]
struct Head {
    worker: u16,
    change: Change,
    blocks: Range<u32>,
}

/// Events in order.
#[derive(Clone, Debug, Default)]
pub struct Log {
    heads: Vec<Head>,
    blocks: Vec<BlockId>,
}

impl Log {
    /// Appends a store.
    pub fn store(&mut self, worker: u16, parent: Option<BlockId>, blocks: &[BlockId]) {
        self.push(worker, Change::Store { parent }, blocks);
    }

    /// Appends a removal.
    pub fn remove(&mut self, worker: u16, blocks: &[BlockId]) {
        self.push(worker, Change::Remove, blocks);
    }

    /// Appends another log.
    pub fn append(&mut self, other: &Self) {
        for op in other.ops(0..other.len()) {
            self.push(op.worker as u16, op.change, op.blocks);
        }
    }

    /// Blocks stored and removed in it.
    pub fn block_ops(&self) -> usize {
        self.blocks.len()
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// The events at these places.
    pub fn ops(&self, places: Range<usize>) -> impl Iterator<Item = Op<'_>> {
        self.heads[places].iter().map(|head| Op {
            worker: usize::from(head.worker),
            change: head.change,
            blocks: &self.blocks[head.blocks.start as usize..head.blocks.end as usize],
        })
    }

    fn push(&mut self, worker: u16, change: Change, blocks: &[BlockId]) {
        if blocks.is_empty() {
            return;
        }
        let start = self.blocks.len() as u32;
        self.blocks.extend_from_slice(blocks);
        let blocks = start..self.blocks.len() as u32;
        self.heads.push(Head { worker, change, blocks });
    }
}
