//! One rank: what is heard of it, and what that means for its view.
//!
//! A batch that follows the cursor is applied. One that does not is kept, and what is missing is asked for. One at or below
//! the cursor is a repeat, or the sign of another life.

use homing_domain::{Digest, KvBatch, Sequence};

use crate::buffer::Pushed;
use crate::bugs::planted;
use crate::cursor::{Cursor, Observation};
use crate::history::Verdict;
use crate::protocol::{Identity, Recovery, Source};
use crate::rank::{Link, Rank, Work};
use crate::repair::Goal;
use crate::shared::Shared;

impl Rank {
    pub(crate) fn heard(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        if self.link != Link::Up {
            self.counters.dropped += 1;
            return;
        }
        if self.is_probing() {
            self.abandon(shared);
        }
        if !self.is_stream_proven {
            self.heard_unproven(now_ms, batch, shared);
            return;
        }
        match self.work {
            Work::Steady => self.heard_steady(now_ms, batch, shared),
            Work::Repairing(_) => self.heard_while_repairing(now_ms, batch, shared),
            Work::Failed { .. } => self.heard_after_failure(now_ms, batch, shared),
        }
    }

    /// The batch may be of a former life, whose last batches are still under way: the source is asked whether it has sent it.
    fn heard_unproven(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        if self.serving.history.verdict(batch.sequence, batch.digest) == Verdict::Same {
            self.is_stream_proven = true;
            self.counters.repeats += 1;
            return;
        }
        self.keep(now_ms, batch, shared);
        if !matches!(self.work, Work::Repairing(_)) {
            self.mend(now_ms, shared);
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
            Verdict::Different | Verdict::FarBehind if !planted!(shared.config.bug, RestartTakenForGap) => {
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
                let again = planted!(shared.config.bug, RepeatCountedTwice) && verdict == Verdict::Same;
                if again || planted!(shared.config.bug, StaleApplied) {
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
    pub(crate) fn keep(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        let sequence = batch.sequence;
        self.kept_ms = Some(now_ms);
        self.has_heard_since_ask = true;
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
        if !(planted!(shared.config.bug, DroppedTailForgotten) && pushed == Pushed::Dropped) {
            self.note_heard(sequence);
        }
    }

    pub(crate) fn heartbeat(
        &mut self,
        now_ms: u64,
        identity: Identity,
        newest: Option<(Sequence, Digest)>,
        shared: &mut Shared,
    ) {
        self.counters.heartbeats += 1;
        if identity != self.source.identity {
            let source = Source {
                identity,
                ..self.source
            };
            self.discovered(now_ms, source, shared);
            // It came over the subscription itself.
            self.is_stream_proven = true;
            return;
        }
        self.is_stream_proven = true;
        let is_idle = matches!(self.work, Work::Steady) || self.is_probing();
        if self.link != Link::Up || !is_idle {
            if let Some((sequence, _)) = newest {
                self.note_heard(sequence);
            }
            return;
        }
        let Some((sequence, digest)) = newest else {
            if self.serving.cursor.position().is_none() {
                self.verify(now_ms);
            } else {
                self.begin(now_ms, Goal::Replay, shared);
            }
            return;
        };
        if self.serving.cursor.observe(sequence) != Observation::Stale {
            self.counters.gaps += 1;
            self.note_heard(sequence);
            self.mend(now_ms, shared);
            return;
        }
        match self.serving.history.verdict(sequence, digest) {
            Verdict::Different | Verdict::FarBehind if !planted!(shared.config.bug, RestartTakenForGap) => {
                self.restart(now_ms, None, shared);
            }
            Verdict::Same if self.serving.cursor == Cursor::Live(sequence) => self.verify(now_ms),
            _ => {}
        }
    }

    /// Batches were lost between the socket and us.
    pub(crate) fn overflowed(&mut self, now_ms: u64, highest: Option<Sequence>, shared: &mut Shared) {
        self.counters.overflows += 1;
        if let Some(sequence) = highest
            && !planted!(shared.config.bug, DroppedTailForgotten)
        {
            self.note_heard(sequence);
            self.has_heard_since_ask = true;
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
}
