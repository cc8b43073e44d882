//! One view of a rank: what the index holds for it, how far its stream was read into it, and how good it is.

use homing_domain::{KvBatch, Sequence};
use homing_index::{Applied, IndexError, Slot};

use crate::cursor::Cursor;
use crate::history::History;
use crate::protocol::Coverage;
use crate::shared::Shared;

#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) slot: Slot,
    pub(crate) cursor: Cursor,
    pub(crate) history: History,
    pub(crate) coverage: Coverage,
    /// Whether it began with a list. Then that said how complete it is, and number 0 does not: an agent may count anew
    /// beside an engine that runs for long.
    pub(crate) is_listed: bool,
    /// Whether it is known to hold something wrong, so that only another in its place will do.
    pub(crate) is_doubted: bool,
    /// When the last batch that was applied was sent, by the engine's clock.
    pub(crate) sent_ms: Option<u64>,
}

/// What applying a batch showed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evidence {
    /// Removals of blocks that the view does not know, and should.
    pub(crate) unknown_removals: u32,
}

impl Track {
    /// An empty view that knows nothing.
    pub(crate) fn new(slot: Slot) -> Self {
        Self {
            slot,
            cursor: Cursor::Initial,
            history: History::default(),
            coverage: Coverage::Warming,
            is_listed: false,
            is_doubted: false,
            sent_ms: None,
        }
    }

    /// Applies a batch as one step, and moves the cursor to it.
    pub(crate) fn apply(&mut self, batch: &KvBatch, shared: &mut Shared) -> Result<Evidence, IndexError> {
        let begins = self.cursor == Cursor::Initial && !self.is_listed;
        self.is_doubted &= !batch.is_barrier();
        if batch.is_barrier() || (begins && batch.sequence == Sequence(0)) {
            self.coverage = Coverage::Complete;
        } else if begins {
            self.coverage = Coverage::Warming;
        }
        let mut evidence = Evidence::default();
        for change in &batch.changes {
            match shared.index.apply(self.slot, change)? {
                Applied::Cleared(slot) => {
                    self.slot = slot;
                    evidence = Evidence::default();
                }
                Applied::Removed(outcome) => evidence.unknown_removals += outcome.unknown,
                Applied::Stored(_) => {}
            }
        }
        self.read(batch);
        if self.coverage == Coverage::Warming {
            // What it removes may well have been stored before we listened.
            evidence = Evidence::default();
        }
        Ok(evidence)
    }

    /// Moves the cursor over a batch that was sent before everything in it was cleared.
    pub(crate) fn skip(&mut self, batch: &KvBatch) {
        self.coverage = Coverage::Complete;
        self.read(batch);
    }

    /// Whether something in it may have been sent after this time.
    pub(crate) fn may_be_after(&self, ms: u64) -> bool {
        self.sent_ms.map_or(self.is_listed, |sent_ms| sent_ms > ms)
    }

    fn read(&mut self, batch: &KvBatch) {
        self.cursor = Cursor::Live(batch.sequence);
        self.history.push(batch.sequence, batch.digest);
        self.sent_ms = batch.sent_ms;
    }

    /// Everything in it is gone.
    pub(crate) fn empty(&mut self, shared: &mut Shared) -> Result<(), IndexError> {
        self.slot = shared.index.clear(self.slot, homing_domain::ClearScope::AllTiers)?;
        self.is_doubted = false;
        Ok(())
    }
}
