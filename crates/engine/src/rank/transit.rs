//! Which KV is on its way out of a rank, and into it?

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use homing_domain::{Blocks, Tokens};

use super::blocks::Found;
use super::{Rank, Slot};
use crate::adapters::Loading;
use crate::bugs::planted;
use crate::config::Style;
use crate::handover::{OnFailure, Reserved, Staged};
use crate::pool::{BlockId, Events, Origin, PoolError, Wanted};
use crate::request::{Admitted, Outcome, RequestNo};
use crate::sequence::Fate;
use crate::time::Time;

/// What a rank holds for others, and what it waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transit {
    /// Blocks of requests that are over.
    staged: BTreeMap<RequestNo, Held>,
    /// When they go.
    leases: BTreeSet<(Time, RequestNo)>,
    staged_blocks: u32,
    /// Sequences whose blocks are there and whose KV is not. Cancelled ones, too.
    pulling: Vec<Slot>,
    incoming_blocks: u32,
    /// Sequences whose KV has come and that wait for a step.
    pub arrived: VecDeque<Slot>,
    /// What the driver was not told yet.
    reserved: Vec<Reserved>,
    external_queries: u64,
    external_hits: u64,
}

#[derive(Clone, Debug)]
struct Held {
    blocks: Vec<BlockId>,
    tokens: u32,
    until: Time,
}

/// How much KV is on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InTransit {
    pub staged: u32,
    pub staged_blocks: u32,
    pub incoming: u32,
    pub incoming_blocks: u32,
    pub external_queries: u64,
    pub external_hits: u64,
}

impl Transit {
    /// Requests that are not over: those whose KV is to come, and those whose KV has come.
    pub(crate) fn requests(&self) -> usize {
        self.pulling.len() + self.arrived.len()
    }

    /// Who holds blocks without running.
    pub(crate) fn holders(&self) -> usize {
        self.requests() + self.staged.len()
    }

    pub(crate) fn has_news(&self) -> bool {
        !self.reserved.is_empty()
    }

    /// When the first lease ends.
    pub(crate) fn lease_ends(&self) -> Option<Time> {
        self.leases.first().map(|(until, _)| *until)
    }

    pub(crate) fn counts(&self) -> InTransit {
        InTransit {
            staged: self.staged.len() as u32,
            staged_blocks: self.staged_blocks,
            incoming: self.pulling.len() as u32,
            incoming_blocks: self.incoming_blocks,
            external_queries: self.external_queries,
            external_hits: self.external_hits,
        }
    }

    pub(crate) fn staged(&self) -> impl Iterator<Item = Staged> + '_ {
        self.staged.iter().map(|(request, held)| Staged {
            request: *request,
            blocks: Blocks(held.blocks.len() as u32),
            tokens: Tokens(held.tokens),
            until: held.until,
        })
    }

    /// Sequences that hold blocks without running.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn sequences(&self) -> impl Iterator<Item = Slot> + '_ {
        self.pulling.iter().chain(&self.arrived).copied()
    }

    /// Blocks of requests that are over, once for each of those.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn staged_blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.staged.values().flat_map(|held| held.blocks.iter().copied())
    }
}

impl Rank {
    /// The blocks of a sequence that is over stay until `until`.
    pub(super) fn stage(&mut self, slot: Slot, until: Time) -> Staged {
        let sequence = &mut self.sequences[slot as usize];
        let blocks = std::mem::take(&mut sequence.blocks);
        if planted!(self.config.bug, StagedIsEvicted) {
            for id in &blocks {
                self.pool.release(*id).expect("a sequence holds its blocks");
            }
        }
        let staged = Staged {
            request: sequence.id,
            blocks: Blocks(blocks.len() as u32),
            tokens: Tokens(sequence.computed),
            until,
        };
        self.transit.staged_blocks += staged.blocks.0;
        self.transit.leases.insert((until, staged.request));
        let held = Held {
            blocks,
            tokens: staged.tokens.0,
            until,
        };
        self.transit.staged.insert(staged.request, held);
        staged
    }

    /// The blocks of a staged request are given back, the tail first. Returns whether there were any.
    pub(crate) fn unstage(&mut self, id: RequestNo) -> bool {
        let Some(mut held) = self.transit.staged.remove(&id) else {
            return false;
        };
        self.transit.leases.remove(&(held.until, id));
        self.transit.staged_blocks -= held.blocks.len() as u32;
        while let Some(block) = held.blocks.pop() {
            self.pool.release(block).expect("a staged request holds its blocks");
        }
        true
    }

    pub(crate) fn renew(&mut self, id: RequestNo, until: Time) -> bool {
        let Some(held) = self.transit.staged.get_mut(&id) else {
            return false;
        };
        self.transit.leases.remove(&(held.until, id));
        held.until = until;
        self.transit.leases.insert((until, id));
        true
    }

    /// The first lease ends.
    pub(crate) fn lapse(&mut self, out: &mut Outcome) {
        let Some(&(until, id)) = self.transit.leases.first() else {
            return;
        };
        if planted!(self.config.bug, LapseLeaks)
            && let Some(held) = self.transit.staged.get_mut(&id)
            && held.blocks.pop().is_some()
        {
            self.transit.staged_blocks -= 1;
        }
        self.unstage(id);
        out.started = until;
        out.lapsed.push(id);
        self.note_trace(until);
        self.report(until, out);
    }

    /// Tells the driver whose KV it is to bring.
    pub(crate) fn announce(&mut self, now: Time, out: &mut Outcome) {
        out.started = now;
        out.reserved.append(&mut self.transit.reserved);
        self.note_trace(now);
        self.report(now, out);
    }

    /// Whether a sequence that waits is one whose KV is elsewhere.
    pub(crate) fn takes(&self, slot: Slot) -> bool {
        self.sequences[slot as usize].takes
    }

    /// How many blocks the reservation of a sequence takes from those that are to be had.
    pub(crate) fn needed_for(&self, slot: Slot, found: Found) -> u32 {
        let sequence = &self.sequences[slot as usize];
        let on_device = &sequence.keys[..found.device as usize];
        let all = sequence.length.div_ceil(self.config.block_size.get());
        all - found.device + self.pool.inactive_of(on_device).0
    }

    /// Holds blocks for the prompt of a sequence that waits and whose KV is elsewhere. The caller takes it from those that wait.
    pub(crate) fn reserve(&mut self, slot: Slot, found: Found) -> Result<(), PoolError> {
        let block_size = self.config.block_size.get();
        let sequence = &mut self.sequences[slot as usize];
        let reused = found.device;
        let cached = reused * block_size;
        let all = sequence.length.div_ceil(block_size);
        if self.config.events == Events::WithTokens {
            sequence.copy_tokens(0, cached, &mut self.scratch);
        } else {
            self.scratch.clear();
        }
        let wanted = Wanted {
            parent: self.config.hasher.root(),
            keys: &sequence.keys[..reused as usize],
            partial: all - reused,
        };
        let origin = Origin {
            tokens: &self.scratch,
            ..sequence.origin()
        };
        let mut blocks = Vec::with_capacity(all as usize + 1);
        self.pool.use_blocks(wanted, origin, &mut blocks)?;
        sequence.blocks = blocks;
        sequence.room = all * block_size;
        (sequence.computed, sequence.published, sequence.scheduled) = (cached, reused, 0);
        let prompt = sequence.prompt_length();
        self.prefix_queries += u64::from(prompt.0);
        self.prefix_hits += u64::from(cached);
        let transit = &mut self.transit;
        transit.external_queries += u64::from(prompt.0 - cached);
        transit.incoming_blocks += all;
        transit.pulling.push(slot);
        transit.reserved.push(Reserved {
            request: sequence.id,
            prompt,
            missing: Tokens(prompt.0 - cached),
            blocks: Blocks(all),
        });
        Ok(())
    }

    /// The KV of a sequence has come: it waits for a step, or goes if it was cancelled.
    pub(crate) fn arrive(&mut self, slot: Slot) {
        self.no_longer_pulled(slot);
        let sequence = &mut self.sequences[slot as usize];
        if sequence.fate == Fate::Vanishes {
            self.give_back(slot);
            self.free(slot);
            return;
        }
        sequence.takes = false;
        sequence.taken = sequence.length - 1 - sequence.computed;
        self.transit.external_hits += u64::from(sequence.length - sequence.computed);
        sequence.computed = sequence.length - 1;
        let computed = sequence.computed;
        if planted!(self.config.bug, TakenIsComputedAnew) {
            sequence.computed = sequence.published * self.config.block_size.get();
        }
        self.transit.arrived.push_back(slot);
        if matches!(self.config.style, Style::Vllm(_)) {
            self.publish(slot, computed);
        }
    }

    /// The KV of a sequence does not come.
    pub(crate) fn miss(&mut self, slot: Slot, then: OnFailure) {
        self.no_longer_pulled(slot);
        if !planted!(self.config.bug, FailureLeaks) {
            self.give_back(slot);
        }
        let sequence = &mut self.sequences[slot as usize];
        sequence.takes = false;
        if then == OnFailure::End || sequence.fate == Fate::Vanishes {
            self.free(slot);
            return;
        }
        sequence.rewind();
        self.enqueue(slot);
    }

    /// A sequence that holds blocks without running is cancelled. Returns whether it was one.
    pub(super) fn cancel_in_transit(&mut self, slot: Slot) -> bool {
        if let Some(place) = self.transit.arrived.iter().position(|arrived| *arrived == slot) {
            self.transit.arrived.remove(place);
            self.give_back(slot);
            self.free(slot);
            return true;
        }
        if !self.transit.pulling.contains(&slot) {
            return false;
        }
        let id = self.sequences[slot as usize].id;
        let untold = self.transit.reserved.iter().position(|reserved| reserved.request == id);
        if let Some(place) = untold {
            self.transit.reserved.remove(place);
        }
        if untold.is_some() {
            self.miss(slot, OnFailure::End);
        } else {
            self.sequences[slot as usize].fate = Fate::Vanishes;
            if planted!(self.config.bug, CancelFreesTarget) {
                self.transit.incoming_blocks -= self.sequences[slot as usize].blocks.len() as u32;
                self.give_back(slot);
            }
        }
        true
    }

    /// Sequences whose KV has come run, as many as may. `budget`: tokens that this step can still compute.
    pub(crate) fn join(&mut self, budget: &mut u32) {
        let limit = self.config.max_running as usize;
        let mut place = 0;
        let apart = usize::from(self.sglang.chunked.is_some());
        while *budget > 0 && self.running.len() + apart < limit && place < self.transit.arrived.len() {
            let slot = self.transit.arrived[place];
            let adapter = self.sequences[slot as usize].adapter;
            if !self.slots.admits(adapter) {
                place += 1;
                continue;
            }
            self.transit.arrived.remove(place);
            if self.slots.join(adapter) == Loading::Needed {
                self.extra += self.config.adapters.load;
            }
            self.running.push(slot);
            let sequence = &mut self.sequences[slot as usize];
            let cached = sequence.length - 1;
            sequence.cached = Some(cached);
            self.admitted.push(Admitted {
                request: sequence.id,
                prompt: sequence.prompt_length(),
                cached: Tokens(cached),
                taken: Tokens(sequence.taken),
            });
            if matches!(self.config.style, Style::Vllm(_)) {
                let new = self.sequences[slot as usize].remaining().min(*budget);
                self.grow(slot, new).expect("its blocks are there");
                let target = self.sequences[slot as usize].computed + new;
                self.publish(slot, target);
                *budget -= new;
            }
        }
    }

    /// A prompt that is computed in pieces and gets no further gives way to sequences that hold blocks and cannot run beside it.
    pub(super) fn yield_to_arrived(&mut self) {
        if self.transit.arrived.is_empty() || !self.running.is_empty() {
            return;
        }
        if let Some(slot) = self.sglang.chunked.take() {
            self.preempt(slot);
        }
    }

    fn no_longer_pulled(&mut self, slot: Slot) {
        self.transit.pulling.retain(|pulled| *pulled != slot);
        self.transit.incoming_blocks -= self.sequences[slot as usize].blocks.len() as u32;
    }
}
