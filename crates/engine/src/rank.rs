//! What does one rank do? Its cache, those who wait and those who run, and the step that it is in.
//!
//! A step has a beginning, where it is chosen what is computed and blocks are given out, and an end, where tokens appear and
//! events are told. Which sequences take part is chosen in [`crate::vllm`] or [`crate::sglang`]; all else is here.
//!
//! **Invariant:** a block in use is referenced by exactly the sequences that list it.
//!
//! **Invariant:** between steps a sequence waits or runs, or is the one whose prompt is computed in pieces.

use std::collections::VecDeque;
use std::sync::Arc;

use homing_domain::{Digest, DpRank, KvBatch, Tokens};
use homing_profile::{Chunk, DecodeBatch, Millis, Step};

use crate::adapters::{Loading, Slots};
use crate::bugs::planted;
use crate::config::{EngineConfig, Order, PrefixCaching, Style};
use crate::pool::{Change, Events, Origin, Pool, PoolError, Wanted};
use crate::request::{Admitted, EventBatch, Finished, Load, Outcome, Output, RequestNo, TraceRecord};
use crate::sequence::{Fate, Sequence};
use crate::sglang::SglangState;
use crate::time::Time;
use crate::{sglang, vllm};

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
        !self.running.is_empty() || !self.waiting.is_empty() || self.sglang.chunked.is_some()
    }

    /// Requests that are computed or wait.
    pub(crate) fn requests(&self) -> usize {
        self.running.len() + self.waiting.len() + usize::from(self.sglang.chunked.is_some())
    }

    pub(crate) fn load(&self) -> Load {
        Load {
            running: self.running.len() as u32 + u32::from(self.sglang.chunked.is_some()),
            waiting: self.waiting.len() as u32,
            waiting_tokens: self.waiting_tokens,
            blocks: self.pool.counts(),
            preemptions: self.preemptions,
            prefix_queries: self.prefix_queries,
            prefix_hits: self.prefix_hits,
        }
    }

    /// A new sequence waits.
    pub(crate) fn add(&mut self, sequence: Sequence) -> Slot {
        let slot = match self.free_slots.pop() {
            Some(slot) => {
                self.sequences[slot as usize] = sequence;
                slot
            }
            None => {
                self.sequences.push(sequence);
                self.sequences.len() as Slot - 1
            }
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
        match &config.style {
            Style::Vllm(style) => vllm::schedule(self, style),
            Style::Sglang(style) => sglang::schedule(self, style),
        }
        self.collect();
        self.note_trace(now);
        if self.batch.is_empty() {
            return None;
        }
        let step = Step {
            prefill: &self.chunks,
            decode: self.decode,
        };
        let time = (config.timing.step(&step) + self.extra) * slowdown;
        // A step takes some time, so that a driver who jumps from end to end gets on.
        let ends = (now + time).max(Time(now.0.saturating_add(1)));
        self.flight = Some(Flight { started: now, ends });
        Some(ends)
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
            self.let_go(out);
        }
        if self.clear_after_step {
            self.clear_after_step = false;
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
        if planted!(self.config, PreemptionForgets) {
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

    /// Makes room for the next `new` tokens of a running sequence, which are computed in this step.
    #[inline]
    pub(crate) fn grow(&mut self, slot: Slot, new: u32) -> Result<(), PoolError> {
        let sequence = &mut self.sequences[slot as usize];
        let target = sequence.computed + new;
        if target > sequence.room {
            let block_size = self.config.block_size.get();
            let partial = (target - sequence.room).div_ceil(block_size);
            let wanted = Wanted {
                parent: self.config.hasher.root(),
                keys: &[],
                partial,
            };
            self.pool.use_blocks(wanted, Origin::default(), &mut sequence.blocks)?;
            sequence.room += partial * block_size;
        }
        sequence.scheduled = new;
        Ok(())
    }

    /// What of a sequence that waits is in the cache.
    pub(crate) fn found(&self, slot: Slot) -> Found {
        let sequence = &self.sequences[slot as usize];
        let mut limit = sequence.reusable_blocks(self.config.block_size.get());
        if planted!(self.config, NothingComputed) {
            limit = (sequence.length / self.config.block_size.get()) as usize;
        }
        let keys = &sequence.keys[..limit.min(sequence.keys.len())];
        let device = self.pool.leading(keys).0;
        let below = keys[device as usize..].iter();
        let below = below.take_while(|key| self.pool.find(**key).is_some() || self.pool.offloaded_at(**key).is_some());
        Found {
            device,
            below: below.count() as u32,
        }
    }

    /// Admits a sequence that waits: it uses what was found of it, and `new` tokens are computed in this step. The caller takes
    /// it from those that wait.
    pub(crate) fn admit(&mut self, slot: Slot, found: Found, new: u32) -> Result<(), PoolError> {
        let block_size = self.config.block_size.get();
        let reused = found.blocks();
        let cached = reused * block_size;
        let sequence = &mut self.sequences[slot as usize];
        let partial = (cached + new).div_ceil(block_size) - reused;
        let keys = &sequence.keys[..reused as usize];
        let onboard = onboard_time(&self.config, &self.pool, &keys[found.device as usize..]);
        if self.config.events == Events::WithTokens {
            sequence.copy_tokens(0, cached, &mut self.scratch);
        } else {
            self.scratch.clear();
        }
        let mut blocks = Vec::with_capacity((reused + partial) as usize + 1);
        let wanted = Wanted {
            parent: self.config.hasher.root(),
            keys,
            partial,
        };
        let origin = Origin {
            tokens: &self.scratch,
            ..sequence.origin()
        };
        self.pool.use_blocks(wanted, origin, &mut blocks)?;
        self.extra += onboard;
        sequence.blocks = blocks;
        sequence.room = (reused + partial) * block_size;
        (sequence.computed, sequence.published, sequence.scheduled) = (cached, reused, new);
        if self.slots.join(sequence.adapter) == Loading::Needed {
            self.extra += self.config.adapters.load;
        }
        if sequence.cached.is_none() {
            let prompt = sequence.prompt_length();
            sequence.cached = Some(cached);
            self.prefix_queries += u64::from(prompt.0);
            self.prefix_hits += u64::from(cached);
            self.admitted.push(Admitted {
                request: sequence.id,
                prompt,
                cached: Tokens(cached),
            });
        }
        Ok(())
    }

    /// Makes the blocks of a sequence's first `tokens` tokens, as far as they are full, blocks that others can use.
    #[inline]
    pub(crate) fn publish(&mut self, slot: Slot, tokens: u32) {
        let block_size = self.config.block_size.get();
        let sequence = &mut self.sequences[slot as usize];
        if self.config.prefix_caching == PrefixCaching::Off {
            return;
        }
        while (sequence.published + 1) * block_size <= tokens {
            let index = sequence.published as usize;
            let parent = match index {
                0 => self.config.hasher.root(),
                _ => sequence.keys[index - 1],
            };
            self.scratch.clear();
            if self.config.events == Events::WithTokens {
                let first = sequence.published * block_size;
                sequence.copy_tokens(first, first + block_size, &mut self.scratch);
            }
            let origin = Origin {
                tokens: &self.scratch,
                ..sequence.origin()
            };
            let (id, key) = (sequence.blocks[index], sequence.keys[index]);
            let kept = self.pool.promote(id, parent, key, origin);
            sequence.blocks[index] = kept.expect("the block is the sequence's own and not full");
            sequence.published += 1;
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
    fn let_go(&mut self, out: &mut Outcome) {
        for index in 0..self.batch.len() {
            let slot = self.batch[index];
            let sequence = &mut self.sequences[slot as usize];
            match sequence.fate {
                Fate::GoesOn => continue,
                Fate::Finishes(reason) => out.finished.push(Finished {
                    request: sequence.id,
                    reason,
                    prompt: sequence.prompt_length(),
                    cached: Tokens(sequence.cached.unwrap_or(0)),
                    generated: sequence.generated(),
                    preemptions: sequence.preemptions,
                }),
                Fate::Vanishes if planted!(self.config, CancelLeaks) => drop(sequence.blocks.pop()),
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

    /// Blocks and adapter of a sequence are given back, the tail first, so that prefixes live longer.
    fn leave(&mut self, slot: Slot) {
        let sequence = &mut self.sequences[slot as usize];
        while let Some(id) = sequence.blocks.pop() {
            self.pool.release(id).expect("a sequence holds its blocks");
        }
        self.slots.leave(sequence.adapter);
    }

    fn free(&mut self, slot: Slot) {
        self.sequences[slot as usize].empty(&self.nothing);
        self.free_slots.push(slot);
    }

    fn report(&mut self, at: Time, out: &mut Outcome) {
        (out.rank, out.at, out.load) = (self.dp, at, self.load());
        out.trace.append(&mut self.trace);
    }

    fn note_trace(&mut self, at: Time) {
        let (rank, block_size) = (self.dp, self.config.block_size.get());
        self.trace.extend(self.pool.take_trace().map(|line| TraceRecord {
            at,
            rank,
            act: line.act,
            blocks: line.blocks,
            block_size,
            counts: line.counts,
        }));
    }

    fn events(&mut self, at: Time) -> Option<EventBatch> {
        if !self.pool.has_changes() {
            return None;
        }
        let sequence = self.next_batch;
        if !planted!(self.config, NumberRepeated) || sequence.0 % 2 == 0 {
            self.next_batch = sequence.next();
        }
        let mut name = [0; 24];
        for (part, value) in [self.life, u64::from(self.dp.0), sequence.0].into_iter().enumerate() {
            name[8 * part..8 * (part + 1)].copy_from_slice(&value.to_le_bytes());
        }
        let changes = self.pool.take_changes().into_iter();
        let (changes, tokens) = changes.map(|Change { change, tokens }| (change, tokens)).unzip();
        Some(EventBatch {
            batch: KvBatch {
                sequence,
                digest: Digest::of(&name),
                sent_ms: Some(at.millis() as u64),
                changes,
            },
            tokens,
        })
    }
}

/// How many leading blocks of a sequence need not be computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// On the device.
    pub device: u32,
    /// After those: below it, or behind some that are.
    pub below: u32,
}

impl Found {
    pub(crate) fn blocks(self) -> u32 {
        self.device + self.below
    }
}

/// How long the blocks that are not on the device take to get there.
fn onboard_time(config: &EngineConfig, pool: &Pool, keys: &[homing_domain::BlockKey]) -> Millis {
    let block = config.block_size.tokens_in(homing_domain::Blocks(1));
    let time = |key| {
        let tier = pool.offloaded_at(key).filter(|_| pool.find(key).is_none())?;
        Some(config.timing.transfer(block, tier.onboard))
    };
    keys.iter()
        .filter_map(|key| time(*key))
        .fold(Millis::ZERO, |sum, time| sum + time)
}
