//! What would SGLang compute next?
//!
//! Prompts go first: those that wait are admitted, in their order, while the room that is left covers them and a share of
//! what those who run may still generate. A prompt longer than a chunk is computed in pieces, one such at a time. If there is
//! no prompt to compute, all who run generate a token; if the room does not suffice for that, the one with the shortest answer
//! gives its blocks back and is computed anew later. (With [`Mixing::PrefillWithDecode`] both happen in one step.)
//!
//! One whose KV is elsewhere reserves its pages instead, and decodes once its KV has come.
//!
//! Blocks are published when they are computed: those of a prompt at the end of its step, those of an answer at its end.

use crate::config::{EngineConfig, Mixing, Order, SglangConfig, Style};
use crate::rank::{Rank, Slot};

/// Beyond so many that wait, the order is that of arrival whatever is asked for.
const LONGEST_PREFIX_WAITING: usize = 128;

/// What only SGLang keeps between steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct SglangState {
    /// The sequence whose prompt is computed in pieces.
    pub chunked: Option<Slot>,
    /// The share of the tokens that may still be generated for which room is kept.
    ratio: f64,
    /// Decode steps since events were told.
    silent_steps: u32,
    /// Places of those that wait, in the order in which they are looked at.
    order: Vec<Candidate>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    slot: Slot,
    found: u32,
}

impl SglangState {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let ratio = match &config.style {
            Style::Sglang(style) => style.new_token_ratio,
            Style::Vllm(_) => 0.0,
        };
        Self {
            ratio,
            ..Self::default()
        }
    }

    pub(crate) fn forget(&mut self, slot: Slot) {
        if self.chunked == Some(slot) {
            self.chunked = None;
        }
    }

    /// Whether events are told after a step that only decoded.
    pub(crate) fn tells_after_decode(&mut self, interval: u32) -> bool {
        self.silent_steps += 1;
        self.silent_steps >= interval
    }

    /// Events are told.
    pub(crate) fn told(&mut self) {
        self.silent_steps = 0;
    }
}

pub(crate) fn schedule(rank: &mut Rank, config: &SglangConfig) {
    let mut unlimited = u32::MAX;
    rank.join(&mut unlimited);
    // Those that are admitted below stand behind.
    let decoding = rank.running.len();
    let prefilled = prefill(rank, config);
    if !prefilled || config.mixing == Mixing::PrefillWithDecode {
        decode(rank, config, decoding);
    }
}

/// What is left for prompts in a step.
struct Budget {
    /// Tokens of a chunk.
    chunk: u32,
    /// Tokens of all prompts.
    input: u32,
    /// Tokens of room that are spoken for.
    spoken_for: f64,
}

fn prefill(rank: &mut Rank, config: &SglangConfig) -> bool {
    if rank.waiting.is_empty() && rank.sglang.chunked.is_none() {
        return false;
    }
    let expected = |slot: &Slot| {
        f64::from(
            rank.sequences[*slot as usize]
                .outputs_left()
                .min(config.clip_new_tokens.0),
        )
    };
    let running: f64 = rank.running.iter().map(expected).sum();
    let mut budget = Budget {
        chunk: config.chunk_tokens.0,
        input: config.max_prefill_tokens.0,
        spoken_for: running * rank.sglang.ratio,
    };
    let mut prefilled = false;
    if let Some(slot) = rank.sglang.chunked {
        let new = continue_chunked(rank, slot, budget.chunk);
        prefilled = new > 0;
        if rank.sglang.chunked.is_some() {
            return prefilled;
        }
        budget.take(new, rank.config.block_size.get());
    }
    order(rank, config.order);
    for index in 0..rank.sglang.order.len() {
        let slot = rank.sglang.order[index].slot;
        if rank.running.len() >= rank.config.max_running as usize {
            break;
        }
        if !rank.slots.admits(rank.sequences[slot as usize].adapter) {
            continue;
        }
        if rank.takes(slot) {
            if !reserve(rank, config, slot, &mut budget) {
                break;
            }
            continue;
        }
        if !admit(rank, config, slot, &mut budget) {
            break;
        }
        prefilled = true;
        if rank.sglang.chunked.is_some() {
            break;
        }
    }
    prefilled
}

impl Budget {
    fn take(&mut self, new: u32, page: u32) {
        let pages = new.next_multiple_of(page);
        self.chunk = self.chunk.saturating_sub(pages);
        self.input = self.input.saturating_sub(pages);
    }
}

/// The next piece of a prompt, as much of it as there is room for. The last one makes it a running sequence.
fn continue_chunked(rank: &mut Rank, slot: Slot, chunk: u32) -> u32 {
    let page = rank.config.block_size.get();
    let sequence = &rank.sequences[slot as usize];
    let (left, free_room) = (sequence.remaining(), sequence.room - sequence.computed);
    let room = u64::from(rank.pool.counts().available()) * u64::from(page) + u64::from(free_room);
    let mut new = left.min(chunk).min(room.min(u64::from(u32::MAX)) as u32);
    if new < left {
        new -= new % page;
    }
    if new == 0 || rank.grow(slot, new).is_err() {
        return 0;
    }
    if new == left {
        rank.sglang.chunked = None;
        rank.running.push(slot);
    }
    new
}

/// In which order those that wait are looked at.
fn order(rank: &mut Rank, order: Order) {
    let mut candidates = std::mem::take(&mut rank.sglang.order);
    candidates.clear();
    let by_prefix = order == Order::LongestPrefix && rank.waiting.len() <= LONGEST_PREFIX_WAITING;
    let candidate = |&slot: &Slot| Candidate {
        slot,
        found: if by_prefix { rank.found(slot).blocks() } else { 0 },
    };
    // No more can be admitted than may run.
    let limit = if by_prefix {
        usize::MAX
    } else {
        rank.config.max_running as usize
    };
    candidates.extend(rank.waiting.iter().take(limit).map(candidate));
    if by_prefix {
        candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.found));
    }
    rank.sglang.order = candidates;
}

fn admit(rank: &mut Rank, config: &SglangConfig, slot: Slot, budget: &mut Budget) -> bool {
    let page = rank.config.block_size.get();
    let found = rank.found(slot);
    let sequence = &rank.sequences[slot as usize];
    let left = sequence.length - found.blocks() * page;
    let answer = sequence.outputs_left().min(config.clip_new_tokens.0);
    let on_device = &sequence.keys[..found.device as usize];
    let available = rank.pool.counts().available() - rank.pool.inactive_of(on_device).0;
    let room = f64::from(available) * f64::from(page) - budget.spoken_for;
    let charge = u64::from(left.next_multiple_of(page)) + u64::from(answer);
    // One that is alone need not leave room for anyone.
    let alone = rank.running.is_empty();
    if !alone && (charge as f64 >= room || left > budget.input) {
        return false;
    }
    let mut new = left.min(budget.chunk);
    if new < left {
        new -= new % page;
    }
    if new == 0 || rank.admit(slot, found, new).is_err() {
        return false;
    }
    budget.take(new, page);
    budget.spoken_for += f64::from(answer);
    let place = rank.waiting.iter().position(|waiting| *waiting == slot);
    rank.dequeue(place.expect("it waits"));
    if new == left {
        rank.running.push(slot);
    } else {
        rank.sglang.chunked = Some(slot);
    }
    true
}

/// Holds pages for one whose KV is elsewhere.
fn reserve(rank: &mut Rank, config: &SglangConfig, slot: Slot, budget: &mut Budget) -> bool {
    let page = rank.config.block_size.get();
    let found = rank.found(slot);
    let answer = rank.sequences[slot as usize]
        .outputs_left()
        .min(config.clip_new_tokens.0);
    let room = f64::from(rank.pool.counts().available()) * f64::from(page) - budget.spoken_for;
    let charge = u64::from(rank.needed_for(slot, found)) * u64::from(page) + u64::from(answer);
    let alone = rank.running.is_empty() && rank.transit.requests() == 0;
    if !alone && charge as f64 >= room || rank.reserve(slot, found).is_err() {
        return false;
    }
    budget.spoken_for += f64::from(answer);
    let place = rank.waiting.iter().position(|waiting| *waiting == slot);
    rank.dequeue(place.expect("it waits"));
    true
}

/// The first `decoding` of those who run generate a token each.
fn decode(rank: &mut Rank, config: &SglangConfig, mut decoding: usize) {
    if decoding == 0 {
        return;
    }
    let grows = |rank: &Rank, slot: Slot| {
        let sequence = &rank.sequences[slot as usize];
        u32::from(sequence.computed == sequence.room)
    };
    let mut needed: u32 = rank.running[..decoding].iter().map(|&slot| grows(rank, slot)).sum();
    let mut retracted = false;
    while needed > rank.pool.counts().available() {
        retracted = true;
        let more_than_decode = rank.running.len() > decoding;
        let arrived = !rank.transit.arrived.is_empty();
        if decoding > 1 {
            let place = shortest_answer(rank, decoding);
            let slot = rank.running.remove(place);
            needed -= grows(rank, slot);
            decoding -= 1;
            rank.preempt(slot);
        } else if let Some(slot) = rank.sglang.chunked.take() {
            rank.preempt(slot);
        } else if let Some(slot) = rank.running.pop_if(|_| more_than_decode) {
            // It was admitted in this very step.
            rank.preempt(slot);
        } else if let Some(slot) = rank.running.pop_if(|_| arrived) {
            // Others hold blocks and cannot run beside it.
            rank.preempt(slot);
            return;
        } else {
            return;
        }
    }
    for index in 0..decoding {
        let slot = rank.running[index];
        rank.grow(slot, 1).expect("room was made");
    }
    let state = &mut rank.sglang;
    if retracted {
        state.ratio = config.new_token_ratio;
    } else {
        let fall = (config.new_token_ratio - config.min_new_token_ratio) / f64::from(config.ratio_decay_steps);
        state.ratio = (state.ratio - fall).max(config.min_new_token_ratio.min(config.new_token_ratio));
    }
}

/// The place of the one that gives way: the shortest answer; among equals the longest prompt.
fn shortest_answer(rank: &Rank, decoding: usize) -> usize {
    let cost = |place: &usize| {
        let sequence = &rank.sequences[rank.running[*place] as usize];
        (sequence.generated(), std::cmp::Reverse(sequence.prompt_length()))
    };
    (0..decoding).min_by_key(cost).unwrap_or(0)
}
