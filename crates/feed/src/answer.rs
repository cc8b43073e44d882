//! One rank: what an answer to its question says.
//!
//! A replay counts as far as it is contiguous, and only after it has shown the batch at the cursor. What brings nothing is
//! asked once more before it is believed. A list fills a draft, and counts only if it is whole.

use homing_domain::{KvBatch, Listed};

use crate::bugs::planted;
use crate::cursor::{Cursor, Observation};
use crate::history::{History, Verdict};
use crate::protocol::{ListHead, Part, Reply};
use crate::rank::{Rank, Work};
use crate::repair::{Goal, Phase, Proof, Stuck};
use crate::shared::Shared;

impl Rank {
    /// A part of an answer came.
    pub(crate) fn reply(&mut self, now_ms: u64, reply: Reply, shared: &mut Shared) {
        let Work::Repairing(repair) = &mut self.work else {
            self.counters.late_answers += 1;
            return;
        };
        if repair.id != reply.ask && !planted!(shared.config.bug, NoEpochCheck) {
            self.counters.late_answers += 1;
            return;
        }
        if reply.rank != self.id && !planted!(shared.config.bug, ForeignAnswerAccepted) {
            self.counters.foreign_answers += 1;
            self.fail_try(now_ms, shared);
            return;
        }
        if let Phase::Asked { heard_ms, .. } = &mut repair.phase {
            *heard_ms = now_ms;
        }
        let is_list = repair.goal == Goal::List;
        match reply.part {
            Part::Batch(batch) if !is_list => self.replayed(now_ms, batch, shared),
            Part::ReplayEnd if !is_list => self.replay_ended(now_ms, shared),
            Part::ListHead(head) if is_list => self.list_begins(now_ms, head, shared),
            Part::ListItems(items) if is_list => self.list_goes_on(now_ms, &items, shared),
            Part::ListEnd { items } if is_list => self.list_ended(now_ms, items, shared),
            Part::Gone => self.gone(now_ms, shared),
            _ => self.fail_try(now_ms, shared),
        }
    }

    fn replayed(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        let Work::Repairing(repair) = &mut self.work else {
            return;
        };
        let known = self.serving.history.verdict(batch.sequence, batch.digest);
        if self.draft.is_some() && known == Verdict::Different && !planted!(shared.config.bug, RestartTakenForGap) {
            // What is being built is of another life than what is shown.
            self.restart(now_ms, None, shared);
            return;
        }
        let target = self.draft.as_ref().unwrap_or(&self.serving);
        let observation = target.cursor.observe(batch.sequence);
        if target.cursor.position().is_none() {
            if repair.goal == Goal::Probe {
                // There is something after all. It is read into a draft: half of it would look like all of it.
                self.restore(now_ms, shared);
                return;
            }
            if repair.beyond.is_some_and(|lost| batch.sequence <= lost) {
                return;
            }
            repair.proof = Proof::Given;
        } else if batch.is_barrier() && observation != Observation::Stale {
            // Whatever is missing before it, it is gone with the rest.
            repair.proof = Proof::Given;
        } else {
            match target.history.verdict(batch.sequence, batch.digest) {
                Verdict::Different if !planted!(shared.config.bug, RestartTakenForGap) => {
                    self.restart(now_ms, None, shared);
                    return;
                }
                Verdict::Different | Verdict::Same if target.cursor.position() == Some(batch.sequence) => {
                    if repair.proof == Proof::Missing {
                        repair.proof = Proof::Given;
                    }
                    return;
                }
                _ => {}
            }
            match (observation, repair.proof) {
                (Observation::Stale, _) | (_, Proof::Broken) => return,
                (Observation::Contiguous | Observation::FreshAfterBarrier, Proof::Given) => {}
                _ => {
                    repair.proof = Proof::Broken;
                    return;
                }
            }
        }
        if repair.goal == Goal::Probe && repair.applied == 0 {
            self.counters.gaps += 1;
        }
        repair.applied += 1;
        self.apply_to_target(now_ms, batch, shared);
    }

    pub(crate) fn apply_to_target(&mut self, now_ms: u64, batch: KvBatch, shared: &mut Shared) {
        let is_before_clear = self.is_before_clear(&batch);
        let Some(draft) = &mut self.draft else {
            self.absorb(now_ms, batch, shared);
            return;
        };
        if is_before_clear {
            draft.skip(&batch);
        } else if draft.apply(&batch, shared).is_err() {
            // Out of slots.
            self.fail_try(now_ms, shared);
            return;
        } else if batch.sent_ms.is_some() {
            // Without a time it could be older than all that is known of the siblings.
            self.note_clear(&batch, shared);
        }
        self.note_heard(batch.sequence);
        self.count(&batch);
    }

    fn replay_ended(&mut self, now_ms: u64, shared: &mut Shared) {
        let position = self.target().cursor.position();
        let Work::Repairing(repair) = &mut self.work else {
            return;
        };
        let is_stuck_again = repair.stuck_at == Some(Stuck(position));
        match repair.proof {
            Proof::Given => self.drain(now_ms, shared),
            // The source has nothing at all, and says so for the second time.
            Proof::Missing if position.is_none() && is_stuck_again => self.nothing_to_get(now_ms, shared),
            _ if is_stuck_again => self.gone(now_ms, shared),
            _ => {
                // Answers get lost, too: ask once more before it is believed.
                repair.stuck_at = Some(Stuck(position));
                self.ask_again(now_ms, shared);
            }
        }
    }

    /// The source keeps no batches: what is not in the buffer is lost, and is not waited for. If that came after what is in
    /// the buffer, that is of no use either.
    fn nothing_to_get(&mut self, now_ms: u64, shared: &mut Shared) {
        if self.highest != self.buffer.newest() {
            self.buffer.clear();
            self.highest = None;
        }
        self.drain(now_ms, shared);
    }

    /// The source does not have what we need any more.
    fn gone(&mut self, now_ms: u64, shared: &mut Shared) {
        let position = self.target().cursor.position();
        let Work::Repairing(repair) = &mut self.work else {
            return;
        };
        match (repair.goal, position) {
            (Goal::List, _) => self.fail_try(now_ms, shared),
            (Goal::Rebuild, None) => self.nothing_to_get(now_ms, shared),
            (Goal::Rebuild, Some(position)) => {
                // A hole within what it still has: what is behind it is all that can be had.
                repair.beyond = Some(position.next());
                repair.stuck_at = None;
                self.drop_draft(shared);
                self.ask_again(now_ms, shared);
            }
            (Goal::Probe | Goal::Replay, _) => {
                self.drop_draft(shared);
                self.restore(now_ms, shared);
            }
        }
    }

    fn list_begins(&mut self, now_ms: u64, head: ListHead, shared: &mut Shared) {
        if head.identity != self.source.identity {
            // The source changed while it was asked; who it is now will be told.
            self.fail_try(now_ms, shared);
            return;
        }
        let Ok(draft) = self.new_draft(shared) else {
            self.fail_try(now_ms, shared);
            return;
        };
        draft.coverage = head.coverage;
        draft.is_listed = true;
        if let Some((sequence, digest)) = head.position {
            draft.cursor = Cursor::Live(sequence);
            draft.history = History::at(sequence, digest);
        }
        if head.truncated {
            let slot = draft.slot;
            let _ = shared.index.mark_truncated(slot);
        }
    }

    fn list_goes_on(&mut self, now_ms: u64, items: &[Listed], shared: &mut Shared) {
        let (Work::Repairing(repair), Some(draft)) = (&mut self.work, &self.draft) else {
            self.fail_try(now_ms, shared);
            return;
        };
        repair.items += items.len() as u64;
        for item in items {
            // The draft is ours, so its slot is in use.
            let _ = shared.index.restore(draft.slot, item);
        }
    }

    fn list_ended(&mut self, now_ms: u64, items: u64, shared: &mut Shared) {
        let Work::Repairing(repair) = &self.work else { return };
        if repair.items != items || self.draft.is_none() {
            self.fail_try(now_ms, shared);
            return;
        }
        if planted!(shared.config.bug, SwapBeforeDrain) {
            self.publish(shared);
            self.settle(now_ms, shared);
        }
        self.drain(now_ms, shared);
    }
}
