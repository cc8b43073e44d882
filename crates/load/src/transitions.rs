//! What do transitions of bookings do to the sums? What is counted in when something is booked is counted out exactly once.

use homing_domain::{AdapterName, Tokens};
use homing_profile::{Millis, Time};

use crate::booking::{Booking, PromptWork, Ticket};
use crate::bugs::planted;
use crate::config::Track;
use crate::lanes::WIDTH;
use crate::ledger::{By, Entry, Stage};
use crate::load::Load;
use crate::rank::{Slopes, blocks_of};

impl Load {
    pub(crate) fn entry(&mut self, booking: Booking, fence: u64, now: Time) -> Entry {
        let index = booking.place.index();
        let rank = &self.ranks[index];
        let cached = booking.cached.min(booking.prompt);
        let uncached = booking.prompt.0 - cached.0;
        let mut entry = Entry::new(fence, booking.id, booking.place.0, now);
        entry.met_idle = rank.is_idle();
        entry.prompt = booking.prompt.0;
        entry.expected = booking.expected_output.0;
        entry.adapter = booking.adapter;
        if self.config.output_blocks == Track::On {
            let size = self.config.block_size;
            let whole = u64::from(entry.prompt) + u64::from(entry.expected);
            entry.coming = blocks_of(whole, size) - blocks_of(u64::from(entry.prompt), size);
        }
        if booking.work == PromptWork::None {
            entry.stage = Stage::Awaiting;
        } else {
            entry.uncached = uncached;
            if let Some(cold) = &self.cold[index] {
                entry.prefill = cold.spec.timing.prefill(Tokens(uncached), cached);
                entry.work = (cold.slopes.work_of(entry.prefill).0 * 1_000.0) as u64;
            }
        }
        let predicted = rank.backlog(now) + entry.prefill * rank.present_factor();
        entry.predicted = Millis(predicted.0 / f64::from(rank.residual));
        if self.config.prompt_blocks == Track::On {
            let all = blocks_of(u64::from(booking.prompt.0), self.config.block_size);
            let ready = now + predicted;
            let joined = self.prompts.join(&booking.keys, booking.place.0, ready);
            let own = all.saturating_sub(booking.keys.len() as u64);
            entry.tail = joined.tail;
            entry.private_blocks = own + u64::from(joined.left_out);
            self.ranks[index].prompt_blocks += u64::from(joined.new_blocks) + entry.private_blocks;
            if booking.work != PromptWork::None {
                self.again
                    .saw(&booking.keys, (cached.0 / self.config.block_size.get()) as usize);
            }
            entry.keys = booking.keys;
        }
        entry
    }

    pub(crate) fn count_in(&mut self, at: u32, place: usize, now: Time) {
        let Some(entry) = self.ledger.get(at) else { return };
        if let Some(adapter) = &entry.adapter {
            *self.adapters.entry((entry.place, adapter.clone())).or_default() += 1;
        }
        let (uncached, work, prefill, stage) = (entry.uncached, entry.work, entry.prefill, entry.stage);
        self.ranks[place].coming += entry.coming;
        if stage == Stage::Awaiting {
            self.ranks[place].awaiting += 1;
            self.show(place);
            return;
        }
        if self.ranks[place].pending == 0 {
            self.change_busy(now, 1);
        }
        let rank = &mut self.ranks[place];
        rank.ahead.tokens += u64::from(uncached);
        rank.ahead.work += work;
        rank.pending += 1;
        if uncached > 0 {
            self.usual.saw(prefill);
            rank.typical_prompt += (uncached as f32 - rank.typical_prompt) / 32.0;
        }
        if rank.pending == 1 {
            rank.head = rank.ahead;
            rank.head_since = now;
        }
        self.show(place);
    }

    /// The stage of a live attempt, whose lease begins anew.
    pub(crate) fn hear(&mut self, ticket: Ticket, now: Time) -> Option<Stage> {
        let any_fence = planted!(self.config.bug, FenceIgnored);
        let entry = self
            .ledger
            .get_mut(ticket.at)
            .filter(|entry| entry.fence == ticket.fence || any_fence);
        let Some(entry) = entry else {
            self.counters.strangers += 1;
            return None;
        };
        entry.heard = entry.heard.max(now);
        let stage = entry.stage;
        self.ledger.unlink(&mut self.heard, By::Heard, ticket.at);
        self.ledger.push(&mut self.heard, By::Heard, ticket.at);
        Some(stage)
    }

    pub(crate) fn begin_decoding(&mut self, at: u32, now: Time) {
        let Some(entry) = self.ledger.get_mut(at) else { return };
        let stage = std::mem::replace(&mut entry.stage, Stage::Decoding);
        let (place, tail, tokens) = (
            entry.place as usize,
            entry.tail,
            u64::from(entry.prompt) + u64::from(entry.generated),
        );
        if let Some(tail) = tail {
            self.prompts.computed(tail, place as u32, now);
        }
        if stage == Stage::Awaiting {
            self.ranks[place].awaiting -= 1;
        } else {
            self.learn(at, place, now);
            self.leave_pending(at, place, now);
        }
        let rank = &mut self.ranks[place];
        rank.verified = true;
        rank.decoding += 1;
        rank.context += tokens;
        self.refresh(place, now);
    }

    pub(crate) fn learn(&mut self, at: u32, place: usize, now: Time) {
        let Some(entry) = self.ledger.get(at) else { return };
        let Some(cold) = self.cold[place].as_mut() else { return };
        if entry.uncached == 0 {
            return;
        }
        let rank = &self.ranks[place];
        if entry.met_idle {
            // Whoever came behind it may have been computed with it, which says nothing about the rank.
            if rank.pending == 1 && rank.decoding == 0 {
                cold.pace.saw_idle(entry.prefill, now.since(entry.booked));
            }
        } else {
            cold.pace.saw_busy(entry.predicted, now.since(entry.booked));
        }
    }

    pub(crate) fn leave_pending(&mut self, at: u32, place: usize, now: Time) {
        let (Some(cold), Some(entry)) = (self.cold[place].as_mut(), self.ledger.get(at)) else {
            return;
        };
        let rank = &mut self.ranks[place];
        rank.pending -= 1;
        rank.ahead.tokens -= u64::from(entry.uncached);
        rank.ahead.work -= entry.work;
        let was_head = cold.pending.first() == Some(at);
        self.ledger.unlink(&mut cold.pending, By::Pending, at);
        if was_head {
            rank.head = self.ledger.batch(cold.pending, cold.spec.chunk);
            rank.head_since = now;
        }
        if rank.pending == 0 {
            self.change_busy(now, -1);
        }
    }

    pub(crate) fn release(&mut self, at: u32, now: Time) {
        let Some(entry) = self.ledger.get(at) else { return };
        let (place, stage) = (entry.place as usize, entry.stage);
        match stage {
            Stage::Prefill => self.leave_pending(at, place, now),
            Stage::Awaiting => self.ranks[place].awaiting -= 1,
            Stage::Decoding => (),
        }
        if let Some(cold) = self.cold[place].as_mut() {
            self.ledger.unlink(&mut cold.all, By::Rank, at);
        }
        self.ledger.unlink(&mut self.heard, By::Heard, at);
        let Some(entry) = self.ledger.take(at) else { return };
        self.ids.remove(&entry.id);
        let freed = entry.tail.map_or(0, |tail| self.prompts.leave(tail, entry.place));
        let rank = &mut self.ranks[place];
        if entry.stage == Stage::Decoding {
            rank.decoding -= 1;
            rank.context -= u64::from(entry.prompt) + u64::from(entry.generated);
        } else {
            // What was generated before a first token is not counted as context.
            debug_assert_eq!(entry.generated, 0);
        }
        let blocks = u64::from(freed) + entry.private_blocks;
        rank.prompt_blocks -= blocks;
        rank.output_blocks -= entry.output_blocks;
        rank.output_parts -= entry.output_parts;
        rank.coming -= entry.coming;
        if let Some(cold) = self.cold[place].as_mut() {
            cold.released.add(blocks + entry.output_blocks, now);
        }
        if let Some(adapter) = entry.adapter {
            self.drop_adapter(&(entry.place, adapter));
        }
        self.refresh_if_outdated(place, now);
        self.show(place);
    }

    pub(crate) fn drop_adapter(&mut self, of: &(u32, AdapterName)) {
        if let Some(count) = self.adapters.get_mut(of) {
            *count -= 1;
            if *count == 0 {
                self.adapters.remove(of);
            }
        }
    }

    pub(crate) fn change_busy(&mut self, now: Time, by: i32) {
        self.busy.share = self.busy.share(now, self.taken);
        self.busy.at = self.busy.at.max(now);
        self.busy.ranks = self.busy.ranks.saturating_add_signed(by);
    }

    pub(crate) fn refresh_if_outdated(&mut self, place: usize, now: Time) {
        let batch = self.ranks[place].batch();
        if self.cold[place]
            .as_ref()
            .is_some_and(|cold| cold.slopes.outdated(batch))
        {
            self.refresh(place, now);
        }
    }

    /// Works out what a scheduler reads from the profile and from what was learnt.
    pub(crate) fn refresh(&mut self, place: usize, now: Time) {
        let rank = &mut self.ranks[place];
        let Some(cold) = self.cold[place].as_mut() else { return };
        let batch = rank.batch();
        if cold.slopes.outdated(batch) {
            cold.slopes = Slopes::of(&cold.spec.timing, cold.spec.chunk, rank.typical_prompt, batch);
        }
        let median = self.medians.get(rank.kind()).copied().unwrap_or(1.0);
        let (factor, residual) = (cold.pace.factor(median), cold.pace.residual());
        (rank.factor, rank.residual) = (factor as f32, residual as f32);
        rank.token_ms = (cold.slopes.token_ms * factor * residual) as f32;
        rank.typical_ms = (cold.slopes.typical_ms * factor * residual) as f32;
        rank.step_ms = (cold.slopes.step_ms * factor * residual) as f32;
        rank.decode_ms = (cold.slopes.decode_ms * factor) as f32;
        rank.per_sequence_ms = cold.slopes.per_sequence_ms as f32;
        rank.per_context_ms = cold.slopes.per_context_ms as f32;
        cold.released.fade(now);
        // Without observations, all that is in use is assumed to be released within the turnover.
        let turnover = self.config.turnover.0.max(1.0);
        let least_blocks = rank.used_blocks().max(1) as f64 / turnover;
        let least_sequences = f64::from(rank.all_requests().max(1)) / turnover;
        rank.block_ms = (1.0 / cold.released.blocks_per_ms.max(least_blocks)) as f32;
        rank.sequence_ms = (1.0 / cold.released.sequences_per_ms.max(least_sequences)) as f32;
        self.show(place);
    }

    /// Tells the lanes what changed of a rank.
    pub(crate) fn show(&mut self, place: usize) {
        if let Some(lanes) = self.lanes.get_mut(place / WIDTH) {
            lanes.set(place % WIDTH, &self.ranks[place], self.base);
        }
    }
}
