//! One rank: what is heard of it, and what that means for its view.
//!
//! **Invariant:** a batch is applied to the view that readers see only if it follows the batch at the cursor, if it
//! empties everything, or if nothing was ever read; and each batch of one life of the engine at most once.
//!
//! **Invariant:** after a new subscription nothing is applied before the source has shown that it is the one we knew.
//!
//! What is done when something is missing is in `mend.rs`.

use homing_domain::{KvBatch, RankId, Sequence};
use homing_index::{IndexError, Slot};

use crate::buffer::{Buffer, Pushed};
use crate::bugs::planted;
use crate::cursor::{Cursor, Observation};
use crate::drift::Drift;
use crate::history::Verdict;
use crate::protocol::{Coverage, Identity, Notice, Recovery, Source};
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
    /// The highest number heard of in this life of the source, whether its batch was kept or not.
    pub(crate) highest: Option<Sequence>,
    pub(crate) work: Work,
    pub(crate) link: Link,
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
        if known.engine != source.identity.engine {
            self.restart(now_ms, None, shared);
        } else if known.agent != source.identity.agent {
            self.agent_restart(now_ms, shared);
        }
    }

    pub(crate) fn connected(&mut self, now_ms: u64, shared: &mut Shared) {
        self.link = Link::Up;
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

    pub(crate) fn heard(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        if self.link != Link::Up {
            self.counters.dropped += 1;
            return;
        }
        if self.is_probing() {
            self.abandon(shared);
        }
        match self.work {
            Work::Steady => self.heard_steady(now_ms, batch, shared),
            Work::Repairing(_) => self.heard_while_repairing(now_ms, batch, shared),
            Work::Failed { .. } => self.heard_after_failure(now_ms, batch, shared),
        }
    }

    /// The view is not known to be right, nor to be that of the engine which speaks now: only a barrier counts as it is.
    fn heard_after_failure(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        self.repairs_in_a_row = 0;
        self.work = Work::Steady;
        let is_new = self.serving.cursor.observe(batch.sequence) != Observation::Stale;
        if self.source.recovery == Recovery::LiveOnly || (batch.is_barrier() && is_new) {
            self.heard_steady(now_ms, batch, shared);
            if self.has_heard_all() {
                return;
            }
        } else {
            self.keep(now_ms, batch, shared);
        }
        self.mend(now_ms, shared);
    }

    fn heard_steady(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        let observation = self.serving.cursor.observe(batch.sequence);
        let is_live_only = self.source.recovery == Recovery::LiveOnly;
        match observation {
            Observation::Initial if is_live_only && self.highest >= Some(batch.sequence) => {
                // Late: the view began again after it.
                self.counters.repeats += 1;
            }
            Observation::Contiguous | Observation::FreshAfterBarrier => self.accept(now_ms, batch, shared),
            Observation::Initial if is_live_only || batch.is_barrier() || self.begins_with(&batch) => {
                self.accept(now_ms, batch, shared);
            }
            Observation::Initial => {
                self.keep(now_ms, batch, shared);
                self.restore(now_ms, shared);
            }
            Observation::Gap { .. } if batch.is_barrier() => {
                self.counters.gaps += 1;
                self.accept(now_ms, batch, shared);
            }
            Observation::Gap { .. } => {
                self.counters.gaps += 1;
                if is_live_only {
                    self.reset(now_ms, Some(batch), shared);
                } else {
                    self.keep(now_ms, batch, shared);
                    self.begin(now_ms, Goal::Replay, shared);
                }
            }
            Observation::Stale => self.heard_stale(now_ms, batch, shared),
        }
    }

    /// Whether nothing was sent before this batch that the view could lack. An agent's first batch says nothing about
    /// what its engine held before; only its list does.
    fn begins_with(&self, batch: &KvBatch) -> bool {
        batch.sequence == Sequence(0) && (self.source.recovery != Recovery::List || self.serving.is_listed)
    }

    /// A batch at or below the cursor: a repeat, or the sign of another life.
    fn heard_stale(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        let verdict = self.serving.history.verdict(batch.sequence, batch.digest);
        let is_live = matches!(self.serving.cursor, Cursor::Live(_));
        let is_live_only = self.source.recovery == Recovery::LiveOnly;
        match verdict {
            Verdict::Different | Verdict::FarBehind if !planted!(shared.config, RestartTakenForGap) => {
                self.restart(now_ms, Some(batch), shared);
            }
            Verdict::Unknown if is_live && is_live_only && batch.sequence == Sequence(0) => {
                // Late, or from another life, and nobody to ask: neither what is there nor the batch can be relied on.
                self.counters.repeats += 1;
                self.reset(now_ms, None, shared);
            }
            Verdict::Unknown if is_live && !is_live_only => {
                // Late, or from another life: the batch at the cursor will tell.
                self.counters.repeats += 1;
                self.begin(now_ms, Goal::Replay, shared);
            }
            _ => {
                self.counters.repeats += 1;
                let again = planted!(shared.config, RepeatCountedTwice) && verdict == Verdict::Same;
                if again || planted!(shared.config, StaleApplied) {
                    let cursor = self.serving.cursor;
                    self.accept(now_ms, batch, shared);
                    self.serving.cursor = cursor;
                }
            }
        }
    }

    fn heard_while_repairing(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        // What readers see decides, not how far the draft is.
        let is_new = self.serving.cursor.observe(batch.sequence) != Observation::Stale;
        if batch.is_barrier() && is_new {
            self.barrier(now_ms, batch, shared);
        } else {
            self.keep(now_ms, batch, shared);
        }
    }

    /// Everything is empty now, whatever was missing before.
    fn barrier(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        self.abandon(shared);
        self.epoch += 1;
        self.buffer.prune(batch.sequence);
        self.accept(now_ms, batch, shared);
        self.drain(now_ms, shared);
    }

    /// Keeps a batch until the repair under way is done.
    fn keep(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        let sequence = batch.sequence;
        self.kept_ms = Some(now_ms);
        let pushed = self.buffer.push(batch);
        match pushed {
            Pushed::Kept => {}
            Pushed::Repeat => self.counters.repeats += 1,
            Pushed::Dropped => self.counters.dropped += 1,
            Pushed::Conflict => {
                // The engine lives anew, and an answer under way may be of either life: ask again.
                self.buffer.clear();
                self.highest = Some(sequence);
                if matches!(self.work, Work::Repairing(_)) {
                    self.drop_draft(shared);
                    self.mend(now_ms, shared);
                }
                return;
            }
        }
        if !(planted!(shared.config, DroppedTailForgotten) && pushed == Pushed::Dropped) {
            self.note_heard(sequence);
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
    fn accept(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
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
        self.counters.applied += 1;
        if batch.is_barrier() {
            self.counters.barriers += 1;
            self.drift.forget();
        }
        let rank = self.id;
        shared.notice(|| Notice::Applied { rank, batch });
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

    fn void(&mut self, shared: &mut Shared) {
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

    pub(crate) fn heartbeat(
        &mut self,
        now_ms: u64,
        identity: Identity,
        newest: Option<(Sequence, homing_domain::Digest)>,
        shared: &mut Shared,
    ) {
        self.counters.heartbeats += 1;
        if identity != self.source.identity {
            let source = Source {
                identity,
                ..self.source
            };
            self.discovered(now_ms, source, shared);
            return;
        }
        let is_idle = matches!(self.work, Work::Steady) || self.is_probing();
        if self.link != Link::Up || !is_idle {
            if let Some((sequence, _)) = newest {
                self.note_heard(sequence);
            }
            return;
        }
        match newest {
            None if self.serving.cursor.position().is_none() => self.verify(now_ms),
            None => self.begin(now_ms, Goal::Replay, shared),
            Some((sequence, digest)) if self.serving.cursor.observe(sequence) == Observation::Stale => {
                match self.serving.history.verdict(sequence, digest) {
                    Verdict::Different | Verdict::FarBehind if !planted!(shared.config, RestartTakenForGap) => {
                        self.restart(now_ms, None, shared);
                    }
                    Verdict::Same if self.serving.cursor == Cursor::Live(sequence) => self.verify(now_ms),
                    _ => {}
                }
            }
            Some((sequence, _)) => {
                self.counters.gaps += 1;
                self.note_heard(sequence);
                self.mend(now_ms, shared);
            }
        }
    }

    /// Batches were lost between the socket and us.
    pub(crate) fn overflowed(&mut self, now_ms: u64, highest: Option<Sequence>, shared: &mut Shared) {
        self.counters.overflows += 1;
        if let Some(sequence) = highest
            && !planted!(shared.config, DroppedTailForgotten)
        {
            self.note_heard(sequence);
        }
        if self.is_probing() {
            self.abandon(shared);
        }
        if self.link == Link::Up && matches!(self.work, Work::Steady) {
            if self.source.recovery == Recovery::LiveOnly {
                self.reset(now_ms, None, shared);
            } else {
                self.mend(now_ms, shared);
            }
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
            lag_ms: self.lag_ms,
            counters: self.counters,
        }
    }
}
