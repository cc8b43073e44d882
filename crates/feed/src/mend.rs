//! One rank: how what is missing is fetched.
//!
//! A *replay* verifies the batch at the cursor and goes on from there, onto the view that readers see. A *rebuild* and a
//! *list* fill a draft beside it. Either way what was heard meanwhile is drained from the buffer before the draft is
//! shown and the rank is steady again, and that is only when the cursor has reached the highest number ever heard.
//!
//! **Invariant:** a rank has one question under way at most. An answer to any other is counted and ignored.
//!
//! **Invariant:** every repair ends: each try has a limit, tries are counted, and repairs in a row are counted.

use homing_domain::{KvBatch, Sequence};
use homing_index::IndexError;

use crate::bugs::planted;
use crate::cursor::Cursor;
use crate::drift::Remedy;
use crate::history::Verdict;
use crate::protocol::{Coverage, Recovery, What};
use crate::rank::{Link, Rank, Work};
use crate::repair::{Goal, Phase, Proof, Repair};
use crate::shared::Shared;
use crate::track::Track;

impl Rank {
    /// Fetches what is missing, by the cheapest way that can suffice.
    pub(crate) fn mend(&mut self, now_ms: u64, shared: &mut Shared) {
        let target = self.target();
        if target.is_doubted || target.cursor.position().is_none() {
            self.restore(now_ms, shared);
        } else {
            self.begin(now_ms, Goal::Replay, shared);
        }
    }

    /// Builds the view anew.
    pub(crate) fn restore(&mut self, now_ms: u64, shared: &mut Shared) {
        if let Some(goal) = self.restoring_goal() {
            self.begin(now_ms, goal, shared);
        }
    }

    pub(crate) fn restoring_goal(&self) -> Option<Goal> {
        match self.source.recovery {
            Recovery::LiveOnly => None,
            Recovery::Replay => Some(Goal::Rebuild),
            Recovery::List => Some(Goal::List),
        }
    }

    /// Begins a repair in the place of what is under way. A draft is kept only by a replay that goes on with it.
    pub(crate) fn begin(&mut self, now_ms: u64, goal: Goal, shared: &mut Shared) {
        self.cancel(shared);
        if goal != Goal::Replay {
            self.drop_draft(shared);
        }
        if self.link != Link::Up {
            self.drop_draft(shared);
            return;
        }
        let counter = match goal {
            Goal::Probe => &mut self.counters.probes,
            Goal::Replay => &mut self.counters.replays,
            Goal::Rebuild => &mut self.counters.rebuilds,
            Goal::List => &mut self.counters.lists,
        };
        *counter += 1;
        self.work = Work::Repairing(Repair::new(shared.new_ask(), goal));
        self.line_up(now_ms, shared);
    }

    /// The repair waits for its turn; a probe need not.
    pub(crate) fn line_up(&mut self, now_ms: u64, shared: &mut Shared) {
        let Work::Repairing(repair) = &self.work else { return };
        let id = repair.id;
        if repair.goal == Goal::Probe {
            self.send(now_ms, shared);
            return;
        }
        self.repairs_in_a_row += 1;
        self.ailing_since_ms.get_or_insert(now_ms);
        if self.repairs_in_a_row > shared.config.repairs_in_a_row {
            self.fail_for_good(now_ms, shared);
        } else {
            shared.enqueue(self.id, id);
        }
    }

    /// It is this repair's turn, if it is still wanted.
    pub(crate) fn turn(&mut self, now_ms: u64, ask: crate::AskId, shared: &mut Shared) {
        let Work::Repairing(repair) = &self.work else { return };
        if repair.id != ask || repair.phase != Phase::Queued {
            return;
        }
        shared.hold(ask);
        if repair.goal == Goal::Rebuild
            && self.draft.is_none()
            && let Err(_out_of_slots) = self.new_draft(shared)
        {
            self.fail_try(now_ms, shared);
            return;
        }
        self.send(now_ms, shared);
    }

    pub(crate) fn send(&mut self, now_ms: u64, shared: &mut Shared) {
        let position = self.target().cursor.position();
        let Work::Repairing(repair) = &mut self.work else {
            return;
        };
        self.has_heard_since_ask = false;
        repair.phase = Phase::Asked {
            since_ms: now_ms,
            heard_ms: now_ms,
        };
        let what = match repair.goal {
            Goal::List => What::List,
            Goal::Probe | Goal::Replay | Goal::Rebuild => What::Replay {
                from: position.or(repair.beyond.map(Sequence::next)).unwrap_or_default(),
            },
        };
        shared.ask(self.id, repair.id, what);
    }

    pub(crate) fn target(&self) -> &Track {
        self.draft.as_ref().unwrap_or(&self.serving)
    }

    pub(crate) fn new_draft(&mut self, shared: &mut Shared) -> Result<&mut Track, IndexError> {
        self.drop_draft(shared);
        let slot = shared.index.draft(self.id, self.source.copies)?;
        Ok(self.draft.insert(Track::new(slot)))
    }

    pub(crate) fn drop_draft(&mut self, shared: &mut Shared) {
        if let Some(draft) = self.draft.take() {
            // It may be gone already; that is what is wanted.
            let _ = shared.index.drop_rank(draft.slot);
        }
    }

    pub(crate) fn cancel(&mut self, shared: &mut Shared) {
        if let Work::Repairing(repair) = &self.work {
            shared.cancel(repair.id);
        }
        self.work = Work::Steady;
    }

    /// Gives up the repair under way, and its draft.
    pub(crate) fn abandon(&mut self, shared: &mut Shared) {
        self.cancel(shared);
        self.drop_draft(shared);
    }

    pub(crate) fn ask_again(&mut self, now_ms: u64, shared: &mut Shared) {
        let id = shared.new_ask();
        let Work::Repairing(repair) = &mut self.work else {
            return;
        };
        shared.release(repair.id);
        repair.again(id);
        self.line_up(now_ms, shared);
    }

    /// Applies what was heard meanwhile, then shows the draft, unless something is still missing.
    pub(crate) fn drain(&mut self, now_ms: u64, shared: &mut Shared) {
        if !self.is_stream_proven && !self.prove_stream() {
            if self.has_heard_since_ask {
                self.mend(now_ms, shared);
                return;
            }
            // The source has been asked since, and what was heard is in its answer or of a former life.
            self.buffer.clear();
            self.highest = None;
        }
        loop {
            let target = self.target();
            let (cursor, history) = (target.cursor, &target.history);
            let different = |batch: &KvBatch| history.verdict(batch.sequence, batch.digest) == Verdict::Different;
            if self.buffer.stale(cursor).any(different) && !planted!(shared.config.bug, RestartTakenForGap) {
                self.restart(now_ms, None, shared);
                return;
            }
            // A list that contains no batch is followed by the first of all, not by whatever was heard.
            let is_unrelated = |oldest| cursor == Cursor::Initial && oldest != Sequence(0);
            if target.is_listed && self.buffer.oldest().is_some_and(is_unrelated) {
                break;
            }
            match self.buffer.take_next(cursor) {
                Some(batch) => self.apply_to_target(now_ms, batch, shared),
                None => break,
            }
        }
        let reached = |highest| self.target().cursor.has_reached(highest);
        if !self.highest.is_none_or(reached) {
            self.mend(now_ms, shared);
            return;
        }
        self.publish(shared);
        self.settle(now_ms, shared);
    }

    /// Looks for a batch that was heard and that the source has sent in its answer as well.
    fn prove_stream(&mut self) -> bool {
        let target = self.target();
        let is_same = |batch: &KvBatch| target.history.verdict(batch.sequence, batch.digest) == Verdict::Same;
        let is_proven = self.buffer.stale(target.cursor).any(is_same);
        self.is_stream_proven = is_proven;
        is_proven
    }

    pub(crate) fn publish(&mut self, shared: &mut Shared) {
        let Some(draft) = self.draft.take() else { return };
        if shared.index.publish(draft.slot).is_ok() {
            self.serving = draft;
            self.drift.forget();
            self.tell_replaced(shared);
        }
    }

    /// As of when the view is right, now that a repair is done: as of the last batch that was heard meanwhile, for all of
    /// them are applied; and as of the question, if the source had something to say. If it had nothing, that proves
    /// nothing, except of a view that holds nothing.
    fn known_ms(&self, repair: &Repair) -> Option<u64> {
        let Phase::Asked { since_ms, .. } = repair.phase else {
            return self.kept_ms;
        };
        let is_shown = repair.goal == Goal::List || repair.proof == Proof::Given;
        let asked_ms = (is_shown || self.serving.cursor == Cursor::Initial).then_some(since_ms);
        self.kept_ms.max(asked_ms)
    }

    pub(crate) fn settle(&mut self, now_ms: u64, shared: &mut Shared) {
        if let Work::Repairing(repair) = &self.work {
            shared.release(repair.id);
            self.verified_ms = self.verified_ms.max(self.known_ms(repair));
            if repair.goal != Goal::Probe {
                let took_ms = now_ms.saturating_sub(self.ailing_since_ms.unwrap_or(now_ms));
                self.counters.repaired += 1;
                self.counters.repair_ms += took_ms;
                self.counters.repair_ms_max = self.counters.repair_ms_max.max(took_ms);
            }
        }
        self.work = Work::Steady;
        self.ailing_since_ms = None;
        self.repairs_in_a_row = 0;
    }

    /// This try brought nothing. After a pause comes the next, unless there were enough.
    pub(crate) fn fail_try(&mut self, now_ms: u64, shared: &mut Shared) {
        let goal = self.restoring_goal();
        let had_draft = self.draft.is_some();
        let Work::Repairing(repair) = &mut self.work else {
            return;
        };
        self.counters.failed_tries += 1;
        shared.cancel(repair.id);
        repair.failures += 1;
        if repair.failures >= shared.config.repair_tries {
            self.fail_for_good(now_ms, shared);
            return;
        }
        let pause = shared.config.backoff_base_ms << (repair.failures - 1).min(16);
        repair.phase = Phase::BackingOff {
            until_ms: now_ms + shared.jittered(pause),
        };
        if had_draft && let Some(goal) = goal {
            repair.goal = goal;
            repair.beyond = None;
            repair.stuck_at = None;
        }
        self.drop_draft(shared);
    }

    /// The view and its cursor stay as they are, and are stale.
    pub(crate) fn fail_for_good(&mut self, now_ms: u64, shared: &mut Shared) {
        self.counters.failed_repairs += 1;
        self.abandon(shared);
        self.buffer.clear();
        self.repairs_in_a_row = 0;
        self.work = Work::Failed { since_ms: now_ms };
    }

    /// Time passed.
    pub(crate) fn tick(&mut self, now_ms: u64, shared: &mut Shared) {
        let config = shared.config;
        if self.link != Link::Up {
            return;
        }
        match &self.work {
            Work::Repairing(repair) => match repair.phase {
                Phase::Asked { since_ms, heard_ms } => {
                    let is_silent = now_ms.saturating_sub(heard_ms) >= config.repair_timeout_ms;
                    if is_silent || now_ms.saturating_sub(since_ms) >= config.repair_limit_ms {
                        self.fail_try(now_ms, shared);
                    }
                }
                Phase::BackingOff { until_ms } if now_ms >= until_ms => self.ask_again(now_ms, shared),
                Phase::BackingOff { .. } | Phase::Queued => {}
            },
            Work::Failed { since_ms } if now_ms.saturating_sub(*since_ms) >= config.retry_after_ms => {
                self.mend(now_ms, shared);
            }
            Work::Failed { .. } => {}
            Work::Steady => self.look_after(now_ms, shared),
        }
    }

    /// Nothing is known to be missing. Is that so?
    pub(crate) fn look_after(&mut self, now_ms: u64, shared: &mut Shared) {
        let can_be_judged = self.serving.coverage == Coverage::Complete || self.drift.is_suspended();
        if can_be_judged && let Ok(stats) = shared.index.rank_stats(self.serving.slot) {
            // What a list placed behind holes may wait for ever.
            let waiting = stats.orphans - stats.behind_holes;
            self.drift.orphans(now_ms, if stats.truncated { 0 } else { waiting });
            if self.drift.is_due(now_ms, &shared.config) {
                self.counters.drifts += 1;
                let remedy = self.drift.repair_begins(now_ms, &shared.config);
                match (self.source.recovery, remedy) {
                    (Recovery::LiveOnly, _) => self.reset(now_ms, None, shared),
                    (_, Remedy::BeginEmpty) => self.begin_empty(now_ms, shared),
                    (Recovery::Replay | Recovery::List, Remedy::Rebuild) => {
                        // A view that began empty holds nothing wrong.
                        self.serving.is_doubted = !self.drift.is_suspended();
                        self.restore(now_ms, shared);
                    }
                }
                return;
            }
        }
        let verified_ms = self.verified_ms.unwrap_or(0);
        let is_due = now_ms.saturating_sub(verified_ms) >= shared.config.verify_within_ms / 2;
        if is_due && self.source.recovery != Recovery::LiveOnly {
            self.begin(now_ms, Goal::Probe, shared);
        }
    }
}
