//! One rank: its views, what becomes of them, and how good they are.
//!
//! **Invariant:** a batch is applied to the view that readers see only if it follows the batch at the cursor, if it
//! empties everything, or if nothing was ever read; and each batch of one life of the engine at most once.
//!
//! **Invariant:** after a new subscription nothing is applied before the source has shown that it is the one we knew.
//!
//! **Invariant:** when an agent is known to live anew, nothing that is heard over the present subscription is applied before a heartbeat
//! over it, or a batch that the agent has sent as well, has shown that it is of the new life.
//!
//! What is heard is judged in `hear.rs`, what is missing is fetched in `mend.rs`, and answers are judged in `answer.rs`.

use homing_domain::{KvBatch, KvChange, RankId, Sequence};
use homing_index::{IndexError, Slot};

use crate::buffer::Buffer;
use crate::cursor::Cursor;
use crate::drift::Drift;
use crate::protocol::{Coverage, Notice, Recovery, Source};
use crate::repair::{Goal, Repair};
use crate::shared::Shared;
use crate::status::{Counters, RankStatus, State, Why};
use crate::track::Track;

#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) id: RankId,
    pub(crate) source: Source,
    /// What readers see.
    pub(crate) serving: Track,
    /// What is being filled to take its place.
    pub(crate) draft: Option<Track>,
    /// Live batches that wait for a repair.
    pub(crate) buffer: Buffer,
    /// The highest number heard of over this subscription, whether its batch was kept or not.
    pub(crate) highest: Option<Sequence>,
    pub(crate) work: Work,
    pub(crate) link: Link,
    /// Whether the subscription is known to be to the life of the source that we know.
    pub(crate) is_stream_proven: bool,
    /// Whether a batch was heard since the source was last asked.
    pub(crate) has_heard_since_ask: bool,
    /// When the view was last known to be what the source has.
    pub(crate) verified_ms: Option<u64>,
    /// When the last batch was put into the buffer.
    pub(crate) kept_ms: Option<u64>,
    /// When the whole worker was last cleared, as far as that is known: by this rank's stream or another's.
    pub(crate) cleared_ms: Option<u64>,
    pub(crate) repairs_in_a_row: u32,
    /// When the first of the repairs in a row began.
    pub(crate) ailing_since_ms: Option<u64>,
    pub(crate) drift: Drift,
    pub(crate) epoch: u64,
    pub(crate) lag_ms: Option<u64>,
    pub(crate) counters: Counters,
}

/// What is being done.
#[derive(Debug)]
pub(crate) enum Work {
    /// Batches are applied as they come.
    Steady,
    /// Something is missing, or must be verified.
    Repairing(Repair),
    /// A repair failed for good.
    Failed { since_ms: u64 },
}

/// Whether there is a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Down { since_ms: u64 },
    Up,
}

impl Rank {
    pub(crate) fn new(now_ms: u64, id: RankId, source: Source, slot: Slot, shared: &Shared) -> Self {
        Self {
            id,
            source,
            serving: Track::new(slot),
            draft: None,
            buffer: Buffer::new(shared.config.buffer_batches, shared.config.buffer_blocks),
            highest: None,
            work: Work::Steady,
            link: Link::Down { since_ms: now_ms },
            is_stream_proven: true,
            has_heard_since_ask: false,
            verified_ms: None,
            kept_ms: None,
            cleared_ms: None,
            repairs_in_a_row: 0,
            ailing_since_ms: None,
            drift: Drift::default(),
            epoch: 0,
            lag_ms: None,
            counters: Counters::default(),
        }
    }

    /// The rank is there (still, or again).
    pub(crate) fn discovered(&mut self, now_ms: u64, source: Source, shared: &mut Shared) {
        let known = std::mem::replace(&mut self.source, source).identity;
        let is_new = self.link != Link::Up && self.counters == Counters::default();
        if is_new {
            // Nothing was ever heard of it: this is who it is, and not who it became.
            return;
        }
        if known != source.identity && self.link == Link::Up && source.recovery == Recovery::List {
            self.is_stream_proven = false;
        }
        if known.engine != source.identity.engine {
            self.restart(now_ms, None, shared);
        } else if known.agent != source.identity.agent {
            self.agent_restart(now_ms, shared);
        }
    }

    pub(crate) fn connected(&mut self, now_ms: u64, shared: &mut Shared) {
        self.link = Link::Up;
        self.is_stream_proven = true;
        self.repairs_in_a_row = 0;
        match (self.source.recovery, self.serving.cursor) {
            (Recovery::LiveOnly, Cursor::Initial) => self.verify(now_ms),
            // Whether this is the engine that we knew cannot be told, and what it did meanwhile neither.
            (Recovery::LiveOnly, _) => {
                self.reset(now_ms, None, shared);
                self.verify(now_ms);
            }
            _ => self.mend(now_ms, shared),
        }
    }

    pub(crate) fn disconnected(&mut self, now_ms: u64, shared: &mut Shared) {
        if self.link == Link::Up {
            self.link = Link::Down { since_ms: now_ms };
            self.abandon(shared);
            // What was heard over this subscription may be from another life than what comes over the next. Nothing is
            // lost by forgetting it: the source will be asked.
            self.buffer.clear();
            self.highest = None;
        }
    }

    pub(crate) fn note_heard(&mut self, sequence: Sequence) {
        self.highest = self.highest.max(Some(sequence));
    }

    pub(crate) fn has_heard_all(&self) -> bool {
        self.highest
            .is_none_or(|highest| self.serving.cursor.has_reached(highest))
    }

    /// The view is what the source had at this time, or later.
    pub(crate) fn verify(&mut self, at_ms: u64) {
        self.verified_ms = self.verified_ms.max(Some(at_ms));
    }

    /// Applies a batch that was just heard to the view that readers see.
    pub(crate) fn accept(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        self.verify(now_ms);
        self.absorb(now_ms, batch, shared);
    }

    /// Applies a batch to the view that readers see. If it was not just heard, it says nothing about now.
    pub(crate) fn absorb(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        self.note_heard(batch.sequence);
        self.lag_ms = batch.sent_ms.map(|sent| now_ms.saturating_sub(sent));
        if self.is_before_clear(&batch) {
            if batch.is_barrier() && self.serving.empty(shared).is_err() {
                self.rebuild_slot(now_ms, shared);
                return;
            }
            self.serving.skip(&batch);
            // Those who follow the view need its number, and must not apply what is in it either.
            let changes = Vec::new();
            self.applied(KvBatch { changes, ..batch }, shared);
            return;
        }
        let Ok(evidence) = self.serving.apply(&batch, shared) else {
            self.rebuild_slot(now_ms, shared);
            return;
        };
        self.note_clear(&batch, shared);
        self.applied(batch, shared);
        if evidence.unknown_removals > 0 {
            self.counters.unknown_removals += u64::from(evidence.unknown_removals);
            self.drift
                .unknown_removals(now_ms, evidence.unknown_removals, &shared.config);
        }
    }

    fn applied(&mut self, batch: KvBatch, shared: &mut Shared) {
        self.count(&batch);
        if batch.is_barrier() {
            self.counters.barriers += 1;
            self.counters.replaced += 1;
            self.drift.forget();
        }
        let rank = self.id;
        shared.notice(|| Notice::Applied { rank, batch });
    }

    pub(crate) fn count(&mut self, batch: &KvBatch) {
        self.counters.applied += 1;
        for change in &batch.changes {
            let counter = match change {
                KvChange::Stored(_) => &mut self.counters.stored,
                KvChange::Removed(_) => &mut self.counters.removed,
                KvChange::Cleared(_) => &mut self.counters.cleared,
            };
            *counter += 1;
        }
    }

    /// The index refused: only possible if it has run out of slots. The rank takes another.
    fn rebuild_slot(&mut self, now_ms: u64, shared: &mut Shared) {
        if self.retake_slot(shared).is_ok() {
            self.restart(now_ms, None, shared);
        } else {
            self.work = Work::Failed { since_ms: now_ms };
        }
    }

    pub(crate) fn retake_slot(&mut self, shared: &mut Shared) -> Result<(), IndexError> {
        // It may be gone already; that is what is wanted.
        let _ = shared.index.drop_rank(self.serving.slot);
        self.serving.slot = shared.index.add_rank(self.id, self.source.copies)?;
        Ok(())
    }

    /// The engine lives anew: what it held is gone, and so is what we believed of it.
    pub(crate) fn restart(&mut self, now_ms: u64, batch: Option<KvBatch>, shared: &mut Shared) {
        self.counters.restarts += 1;
        self.void(shared);
        match (self.source.recovery, batch) {
            (Recovery::LiveOnly, Some(batch)) => self.accept(now_ms, batch, shared),
            (Recovery::LiveOnly, None) => {}
            (_, batch) => {
                if let Some(batch) = batch {
                    self.keep(now_ms, batch, shared);
                }
                self.restore(now_ms, shared);
            }
        }
    }

    /// Nothing can repair the view: it begins again, empty and saying so. What was heard before does not count any more.
    pub(crate) fn reset(&mut self, now_ms: u64, batch: Option<KvBatch>, shared: &mut Shared) {
        self.counters.resets += 1;
        let heard = self.highest;
        self.void(shared);
        self.highest = heard;
        if let Some(batch) = batch {
            self.accept(now_ms, batch, shared);
        }
    }

    /// Whoever relied on the view found less than it promised. A complete view is built anew with the next tick, unless that was
    /// done a short while ago; one that says itself that it is not right is left to its repair.
    pub(crate) fn doubted(&mut self) {
        self.counters.doubts += 1;
        self.drift.doubted();
    }

    /// What the source tells of what it holds is not so: what is stored from now on counts, and nothing before. The stream is
    /// read on where it was.
    pub(crate) fn begin_empty(&mut self, now_ms: u64, shared: &mut Shared) {
        self.counters.resets += 1;
        if self.serving.empty(shared).is_err() {
            self.rebuild_slot(now_ms, shared);
            return;
        }
        self.serving.coverage = Coverage::Warming;
        self.tell_replaced(shared);
    }

    pub(crate) fn void(&mut self, shared: &mut Shared) {
        self.abandon(shared);
        self.epoch += 1;
        self.buffer.clear();
        self.highest = None;
        self.repairs_in_a_row = 0;
        self.drift.forget();
        if self.serving.empty(shared).is_err() {
            // Out of slots: free this one first.
            let _ = self.retake_slot(shared);
        }
        self.serving = Track::new(self.serving.slot);
        self.tell_replaced(shared);
    }

    /// All that the view held was given up.
    pub(crate) fn tell_replaced(&mut self, shared: &mut Shared) {
        self.counters.replaced += 1;
        let rank = self.id;
        shared.notice(|| Notice::Replaced(rank));
    }

    /// The agent lives anew, the engine does not: its positions mean something else now, the content is what it was.
    /// The old view serves until the new one is in place.
    fn agent_restart(&mut self, now_ms: u64, shared: &mut Shared) {
        self.counters.agent_restarts += 1;
        self.abandon(shared);
        self.epoch += 1;
        self.buffer.clear();
        self.highest = None;
        self.repairs_in_a_row = 0;
        self.serving.cursor = Cursor::Initial;
        self.serving.is_listed = false;
        self.serving.history = crate::history::History::default();
        if self.link == Link::Up {
            self.restore(now_ms, shared);
        }
    }

    /// The rank is gone.
    pub(crate) fn leave(mut self, shared: &mut Shared) {
        self.abandon(shared);
        let _ = shared.index.drop_rank(self.serving.slot);
    }

    pub(crate) fn is_probing(&self) -> bool {
        matches!(&self.work, Work::Repairing(repair) if repair.goal == Goal::Probe)
    }

    pub(crate) fn state(&self, now_ms: u64, shared: &Shared) -> State {
        let stale = |since_ms, why| State::Stale { since_ms, why };
        match (self.link, &self.work) {
            (Link::Down { since_ms }, _) => stale(since_ms, Why::Disconnected),
            (Link::Up, Work::Failed { since_ms }) => stale(*since_ms, Why::RepairFailed),
            (Link::Up, Work::Repairing(repair)) if repair.goal != Goal::Probe => State::Repairing,
            (Link::Up, _) => {
                let within = shared.config.verify_within_ms;
                let verified = self.verified_ms.unwrap_or(0);
                match self.serving.coverage {
                    _ if now_ms.saturating_sub(verified) > within => stale(verified + within, Why::Silent),
                    Coverage::Complete => State::Live,
                    Coverage::Warming => State::Warming,
                }
            }
        }
    }

    pub(crate) fn status(&self, now_ms: u64, shared: &Shared) -> RankStatus {
        RankStatus {
            rank: self.id,
            identity: self.source.identity,
            state: self.state(now_ms, shared),
            coverage: self.serving.coverage,
            cursor: self.serving.cursor.position(),
            highest: self.highest,
            verified_ms: self.verified_ms,
            buffered: self.buffer.len(),
            epoch: self.epoch,
            is_stream_proven: self.is_stream_proven,
            lag_ms: self.lag_ms,
            counters: self.counters,
        }
    }
}
