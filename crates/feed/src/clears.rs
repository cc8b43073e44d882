//! One rank: what a clear of its whole worker means for it, when it came on the stream of a sibling.
//!
//! **Invariant:** once it is known when the worker was cleared, no batch that was sent before that is applied any more; it
//! moves the cursor and nothing else.
//!
//! Streams overtake each other, so a clear may be read long before or long after what its siblings sent around it. The
//! engine's clock says what came first, where batches carry it. Where they do not, a clear counts as of when it is read.

use homing_domain::KvBatch;

use crate::cursor::Cursor;
use crate::protocol::{ClearReach, Coverage, Recovery};
use crate::rank::{Link, Rank, Work};
use crate::repair::Goal;
use crate::shared::{Shared, WorkerClear};

impl Rank {
    /// Whether the whole worker was cleared after this batch was sent.
    pub(crate) fn is_before_clear(&self, batch: &KvBatch) -> bool {
        batch.sent_ms.is_some() && batch.sent_ms < self.cleared_ms
    }

    /// If this batch cleared the whole worker, all of it is told.
    pub(crate) fn note_clear(&mut self, batch: &KvBatch, shared: &mut Shared) {
        if batch.is_barrier() && self.source.clear_reach == ClearReach::Worker {
            self.cleared_ms = self.cleared_ms.max(batch.sent_ms);
            shared.worker_clears.push(WorkerClear {
                worker: self.id.worker,
                rank: self.id,
                sent_ms: batch.sent_ms,
            });
        }
    }

    /// A barrier on a sibling's stream emptied this rank as well.
    pub(crate) fn cleared_by_sibling(&mut self, now_ms: u64, sent_ms: Option<u64>, shared: &mut Shared) {
        match sent_ms {
            None => self.cleared_now(now_ms, shared),
            Some(_) if sent_ms <= self.cleared_ms => {}
            Some(sent_ms) => self.cleared_at(now_ms, sent_ms, shared),
        }
    }

    /// What was sent before the clear and is heard after it cannot be told from what was sent after it.
    fn cleared_now(&mut self, now_ms: u64, shared: &mut Shared) {
        self.abandon(shared);
        self.buffer.clear();
        self.empty_serving(shared);
        self.serving.cursor = Cursor::Invalidated {
            before: self.serving.cursor.position(),
        };
        self.serving.coverage = Coverage::Complete;
        if self.link == Link::Up && !self.has_heard_all() && self.source.recovery != Recovery::LiveOnly {
            self.mend(now_ms, shared);
        }
    }

    /// What was sent before the clear is not applied any more, so what is under way can go on. What was sent before it and
    /// what was sent after it may be in the view together, if it is told late: then the view must be built anew.
    fn cleared_at(&mut self, now_ms: u64, sent_ms: u64, shared: &mut Shared) {
        self.cleared_ms = Some(sent_ms);
        if self.serving.may_be_after(sent_ms) {
            self.serving.is_doubted = true;
        } else {
            self.empty_serving(shared);
            if self.serving.cursor != Cursor::Initial {
                self.serving.coverage = Coverage::Complete;
            }
        }
        let is_doubted = self.serving.is_doubted || self.serving.cursor == Cursor::Initial;
        let begins_again = match (&self.work, &mut self.draft) {
            (Work::Repairing(_), Some(draft)) if draft.may_be_after(sent_ms) => true,
            (Work::Repairing(_), Some(draft)) => draft.empty(shared).is_err(),
            (Work::Repairing(repair), None) => {
                repair.goal == Goal::List || (is_doubted && repair.goal != Goal::Rebuild)
            }
            (Work::Steady, _) => is_doubted,
            (Work::Failed { .. }, _) => false,
        };
        match self.source.recovery {
            Recovery::LiveOnly if is_doubted => self.reset(now_ms, None, shared),
            Recovery::Replay | Recovery::List if begins_again => self.restore(now_ms, shared),
            _ => {}
        }
    }

    fn empty_serving(&mut self, shared: &mut Shared) {
        self.epoch += 1;
        self.drift.forget();
        if self.serving.empty(shared).is_err() {
            let _ = self.retake_slot(shared);
        }
        self.tell_replaced(shared);
    }
}
