//! What does one rank do? Its cache, those who wait and those who run, and the step that it is in.
//!
//! A step has a beginning, where it is chosen what is computed and blocks are given out, and an end, where tokens appear and
//! events are told. Which sequences take part is chosen in [`crate::vllm`] or [`crate::sglang`]; all else is here.
//!
//! **Invariant:** a block in use is referenced by exactly the sequences and the staged requests that list it.
//!
//! **Invariant:** between steps a sequence waits or runs, or is the one whose prompt is computed in pieces, or its KV comes from
//! elsewhere and it does not run yet.

mod blocks;
mod telling;
mod transit;

use std::collections::VecDeque;
use std::sync::Arc;

use homing_domain::{DpRank, Tokens};
use homing_profile::{Chunk, DecodeBatch, Millis, Step};

use crate::adapters::Slots;
use crate::bugs::planted;
use crate::config::{EngineConfig, Order, PrefixCaching, Style};
use crate::pool::Pool;
use crate::request::{Admitted, Finished, Outcome, Output, RequestNo, TraceRecord};
use crate::sequence::{Fate, Sequence};
use crate::sglang::SglangState;
use crate::time::Time;
use crate::{sglang, vllm};
pub(crate) use transit::Transit;

/// A sequence's place in a rank.
pub(crate) type Slot = u32;

/// A step that is being computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    started: Time,
    pub ends: Time,
}

#[derive(Clone, Debug)]
pub(crate) struct Rank {
    pub config: Arc<EngineConfig>,
    pub pool: Pool,
    dp: DpRank,
    pub sequences: Vec<Sequence>,
    free_slots: Vec<Slot>,
    /// Ordered by who comes first.
    pub waiting: VecDeque<Slot>,
    waiting_tokens: u64,
    /// In the order of their admission.
    pub running: Vec<Slot>,
    pub sglang: SglangState,
    pub slots: Slots,
    /// KV for and from other engines.
    pub transit: Transit,
    /// The sequences of the present step, and what it computes.
    batch: Vec<Slot>,
    chunks: Vec<Chunk>,
    decode: DecodeBatch,
    /// What makes the present step longer than its computation: loads of adapters, blocks from lower tiers.
    extra: Millis,
    pub flight: Option<Flight>,
    /// When the next step can begin, if there was something left to do after the last one.
    pub ready: Option<Time>,
    /// Events are told without waiting for a step.
    pub urgent: bool,
    /// The cache is emptied when the present step ends.
    pub clear_after_step: bool,
    admitted: Vec<Admitted>,
    preempted: Vec<RequestNo>,
    trace: Vec<TraceRecord>,
    next_batch: homing_domain::Sequence,
    /// Which life of the engine it is: the digests of two lives differ.
    life: u64,
    preemptions: u64,
    /// Steps of this life.
    steps: u64,
    prefix_queries: u64,
    prefix_hits: u64,
    scratch: Vec<u32>,
    nothing: Arc<[u32]>,
}

impl Rank {
    pub(crate) fn new(config: &Arc<EngineConfig>, dp: DpRank, life: u64) -> Self {
        let mut rank = Self {
            pool: Pool::new(config.pool()),
            dp,
            sequences: Vec::new(),
            free_slots: Vec::new(),
            waiting: VecDeque::new(),
            waiting_tokens: 0,
            running: Vec::new(),
            sglang: SglangState::new(config),
            slots: Slots::new(config.adapters.slots),
            transit: Transit::default(),
            batch: Vec::new(),
            chunks: Vec::new(),
            decode: DecodeBatch::default(),
            extra: Millis::ZERO,
            flight: None,
            ready: None,
            urgent: false,
            clear_after_step: false,
            admitted: Vec::new(),
            preempted: Vec::new(),
            trace: Vec::new(),
            next_batch: homing_domain::Sequence(0),
            life,
            preemptions: 0,
            steps: 0,
            prefix_queries: 0,
            prefix_hits: 0,
            scratch: Vec::new(),
            nothing: Arc::from([]),
            config: Arc::clone(config),
        };
        if matches!(config.style, Style::Sglang(_)) {
            // Its first batch says that nothing is there.
            rank.pool.tell_cleared();
            rank.urgent = rank.pool.has_changes();
        }
        rank
    }

    pub(crate) fn has_work(&self) -> bool {
        let stands = self.sglang.chunked.is_some() || !self.transit.arrived.is_empty();
        !self.running.is_empty() || !self.waiting.is_empty() || stands
    }

    /// Requests that are computed or wait.
    pub(crate) fn requests(&self) -> usize {
        let chunked = usize::from(self.sglang.chunked.is_some());
        self.running.len() + self.waiting.len() + chunked + self.transit.requests()
    }

    /// A new sequence waits.
    pub(crate) fn add(&mut self, sequence: Sequence) -> Slot {
        let slot = if let Some(slot) = self.free_slots.pop() {
            self.sequences[slot as usize] = sequence;
            slot
        } else {
            self.sequences.push(sequence);
            self.sequences.len() as Slot - 1
        };
        self.enqueue(slot);
        slot
    }

    /// A sequence goes. If the present step computes it, it goes when that ends.
    pub(crate) fn cancel(&mut self, slot: Slot) {
        let sequence = &mut self.sequences[slot as usize];
        if self.flight.is_some() && sequence.scheduled > 0 {
            sequence.fate = Fate::Vanishes;
            return;
        }
        if let Some(place) = self.waiting.iter().position(|waiting| *waiting == slot) {
            self.dequeue(place);
        } else if self.cancel_in_transit(slot) {
            return;
        } else {
            self.running.retain(|running| *running != slot);
            self.sglang.forget(slot);
            self.leave(slot);
        }
        self.free(slot);
    }

    /// Begins a step at `now`. Returns when it ends, or `None` if there is nothing to compute.
    pub(crate) fn begin(&mut self, now: Time, slowdown: f64) -> Option<Time> {
        self.extra = Millis::ZERO;
        let config = Arc::clone(&self.config);
        let preemptions = self.preemptions;
        self.choose();
        if self.batch.is_empty() {
            self.yield_to_arrived();
            if self.preemptions > preemptions {
                // The last that ran gave way to blocks in transit: others may have room now.
                self.choose();
            }
        }
        self.note_trace(now);
        if self.batch.is_empty() {
            return None;
        }
        let step = Step {
            prefill: &self.chunks,
            decode: self.decode,
        };
        self.steps += 1;
        let noise = config.disturbance.noise(self.life, self.steps);
        let time = (config.timing.step(&step) + self.extra + config.disturbance.overhead) * slowdown * noise;
        // A step takes some time, so that a driver who jumps from end to end gets on.
        let ends = (now + time).max(Time(now.0.saturating_add(1)));
        self.flight = Some(Flight { started: now, ends });
        Some(ends)
    }

    /// Chooses what the next step computes.
    fn choose(&mut self) {
        let config = Arc::clone(&self.config);
        match &config.style {
            Style::Vllm(style) => vllm::schedule(self, style),
            Style::Sglang(style) => sglang::schedule(self, style),
        }
        self.collect();
    }

    /// Ends the present step.
    pub(crate) fn complete(&mut self, out: &mut Outcome) {
        let Some(flight) = self.flight.take() else { return };
        out.started = flight.started;
        out.prefilled = self.chunks.iter().map(|chunk| u64::from(chunk.new.0)).sum();
        out.decoded = self.decode.sequences;
        let mut over = false;
        for index in 0..self.batch.len() {
            over |= self.computed(self.batch[index], out);
        }
        if over {
            self.let_go(flight.ends, out);
        }
        if std::mem::take(&mut self.clear_after_step) && self.transit.holders() == 0 {
            self.preempt_all();
            self.pool.clear().expect("nobody holds a block");
        }
        self.note_trace(flight.ends);
        let tell = match &self.config.style {
            Style::Vllm(_) => true,
            Style::Sglang(style) => {
                let prefilled = !self.chunks.is_empty() || !self.admitted.is_empty();
                prefilled || self.sglang.tells_after_decode(style.event_interval) || !self.has_work()
            }
        };
        self.report(flight.ends, out);
        if tell {
            self.sglang.told();
            out.events = self.events(flight.ends);
        }
        out.admitted.append(&mut self.admitted);
        out.preempted.append(&mut self.preempted);
        self.ready = self.has_work().then_some(flight.ends);
    }

    /// Tells what there is to tell without a step.
    pub(crate) fn tell(&mut self, now: Time, out: &mut Outcome) {
        self.urgent = false;
        out.started = now;
        self.note_trace(now);
        self.report(now, out);
        out.events = self.events(now);
    }

    /// Gives every running sequence's blocks back and lets it wait.
    pub(crate) fn preempt_all(&mut self) {
        while let Some(slot) = self.running.pop() {
            self.preempt(slot);
        }
        if let Some(slot) = self.sglang.chunked.take() {
            self.preempt(slot);
        }
    }

    /// A sequence that was taken off the running ones gives its blocks back and waits again.
    pub(crate) fn preempt(&mut self, slot: Slot) {
        self.leave(slot);
        let sequence = &mut self.sequences[slot as usize];
        sequence.restart();
        #[cfg(any(test, feature = "testing"))]
        if planted!(self.config.bug, PreemptionForgets) {
            sequence.forget_outputs(self.config.block_size.get());
        }
        self.preemptions += 1;
        self.preempted.push(sequence.id);
        self.enqueue(slot);
    }

    /// The sequence at `place` of those that wait stops waiting.
    pub(crate) fn dequeue(&mut self, place: usize) {
        if let Some(slot) = self.waiting.remove(place) {
            self.waiting_tokens -= u64::from(self.sequences[slot as usize].length);
        }
    }

    fn enqueue(&mut self, slot: Slot) {
        let by_priority = self.config.order() == Order::Priority;
        let rank_of = |slot: Slot| {
            let sequence = &self.sequences[slot as usize];
            (if by_priority { sequence.priority } else { 0 }, sequence.arrival)
        };
        let own = rank_of(slot);
        self.waiting_tokens += u64::from(self.sequences[slot as usize].length);
        match self.waiting.back() {
            Some(&last) if rank_of(last) > own => {
                let place = self.waiting.partition_point(|&other| rank_of(other) < own);
                self.waiting.insert(place, slot);
            }
            _ => self.waiting.push_back(slot),
        }
    }

    /// Lists what the present step computes.
    fn collect(&mut self) {
        self.batch.clear();
        self.chunks.clear();
        self.decode = DecodeBatch::default();
        for &slot in self.sglang.chunked.iter().chain(&self.running) {
            let sequence = &self.sequences[slot as usize];
            match sequence.scheduled {
                0 => continue,
                1 => self.decode = self.decode.and(Tokens(sequence.computed + 1)),
                new => self.chunks.push(Chunk {
                    new: Tokens(new),
                    cached: Tokens(sequence.computed),
                }),
            }
            self.batch.push(slot);
        }
    }

    /// What was scheduled of a sequence is computed. Returns whether it goes.
    #[inline]
    fn computed(&mut self, slot: Slot, out: &mut Outcome) -> bool {
        let sequence = &mut self.sequences[slot as usize];
        let prefill = sequence.scheduled > 1 || sequence.generated() == Tokens(0);
        sequence.computed += std::mem::take(&mut sequence.scheduled);
        if sequence.fate == Fate::Vanishes {
            return true;
        }
        let whole = sequence.remaining() == 0;
        if whole && sequence.limit == 0 {
            sequence.fate = Fate::Finishes(crate::Finish::Length);
        } else if whole {
            let token = sequence.generate(&self.config.vocabulary);
            out.tokens.push(Output {
                request: sequence.id,
                token,
            });
            if self.config.prefix_caching == PrefixCaching::On {
                let block_size = self.config.block_size.get();
                sequence.name_block(block_size, &self.config.hasher, &mut self.scratch);
            }
        }
        let (goes, computed) = (sequence.fate != Fate::GoesOn, sequence.computed);
        if (goes || prefill) && matches!(self.config.style, Style::Sglang(_)) {
            self.publish(slot, computed);
        }
        goes
    }

    /// Sequences that are over go.
    fn let_go(&mut self, at: Time, out: &mut Outcome) {
        for index in 0..self.batch.len() {
            let slot = self.batch[index];
            let sequence = &mut self.sequences[slot as usize];
            match sequence.fate {
                Fate::GoesOn => continue,
                Fate::Finishes(reason) => {
                    out.finished.push(Finished {
                        request: sequence.id,
                        reason,
                        prompt: sequence.prompt_length(),
                        cached: Tokens(sequence.cached.unwrap_or(0)),
                        generated: sequence.generated(),
                        preemptions: sequence.preemptions,
                    });
                    if let Some(lease) = sequence.lease.filter(|_| reason == crate::Finish::Length) {
                        out.staged.push(self.stage(slot, at + lease));
                    }
                }
                Fate::Vanishes if planted!(self.config.bug, CancelLeaks) => drop(sequence.blocks.pop()),
                Fate::Vanishes => (),
            }
            self.sglang.forget(slot);
            self.leave(slot);
        }
        let sequences = &self.sequences;
        self.running
            .retain(|slot| sequences[*slot as usize].fate == Fate::GoesOn);
        for index in 0..self.batch.len() {
            let slot = self.batch[index];
            if self.sequences[slot as usize].fate != Fate::GoesOn {
                self.free(slot);
            }
        }
    }

    fn free(&mut self, slot: Slot) {
        self.sequences[slot as usize].empty(&self.nothing);
        self.free_slots.push(slot);
    }
}
