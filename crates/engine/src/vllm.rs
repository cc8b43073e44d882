//! What would vLLM compute next?
//!
//! Those who run go first, each with as much as is left to compute of it, up to the tokens of a step. If one cannot get its
//! blocks, the one that was admitted last (or that has the lowest priority) gives all of its own back and is computed anew
//! later. Only if that was not necessary are others admitted, from the head of the queue; the first that does not fit holds up
//! those behind it, except that one whose adapter finds no slot is passed over.
//!
//! Before those of the queue go those whose KV has come from elsewhere; one of the queue whose KV is elsewhere only reserves its
//! blocks.
//!
//! Blocks are published when they are scheduled, so requests of one step share what it computes.

use crate::config::{ChunkedPrefill, Order, Reserve, VllmConfig};
use crate::rank::Rank;

pub(crate) fn schedule(rank: &mut Rank, config: &VllmConfig) {
    let mut budget = config.max_batched_tokens.0;
    if run(rank, config, &mut budget) == Pressure::None {
        admit(rank, config, budget);
    }
}

/// Whether someone had to give its blocks back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressure {
    None,
    Preempted,
}

fn run(rank: &mut Rank, config: &VllmConfig, budget: &mut u32) -> Pressure {
    let mut pressure = Pressure::None;
    let mut index = 0;
    while index < rank.running.len() && *budget > 0 {
        let slot = rank.running[index];
        let new = rank.sequences[slot as usize].remaining().min(*budget);
        if rank.grow(slot, new).is_ok() {
            let target = rank.sequences[slot as usize].computed + new;
            rank.publish(slot, target);
            *budget -= new;
            index += 1;
            continue;
        }
        pressure = Pressure::Preempted;
        let victim = victim(rank, config.order);
        let removed = rank.running.remove(victim);
        // What was given to it in this step goes to others.
        *budget += rank.sequences[removed as usize].scheduled;
        rank.preempt(removed);
        if victim < index {
            index -= 1;
        }
    }
    pressure
}

/// The place of the running sequence that gives way. There is one.
fn victim(rank: &Rank, order: Order) -> usize {
    let last = rank.running.len() - 1;
    if order != Order::Priority {
        return last;
    }
    let urgency = |place: &usize| {
        let sequence = &rank.sequences[rank.running[*place] as usize];
        (sequence.priority, sequence.arrival)
    };
    (0..=last).max_by_key(urgency).unwrap_or(last)
}

fn admit(rank: &mut Rank, config: &VllmConfig, mut budget: u32) {
    let limit = rank.config.max_running as usize;
    let watermark = (config.watermark * f64::from(rank.config.blocks.0)) as u32;
    rank.join(&mut budget);
    let mut place = 0;
    while budget > 0 && rank.running.len() < limit && place < rank.waiting.len() {
        let slot = rank.waiting[place];
        if !rank.slots.admits(rank.sequences[slot as usize].adapter) {
            place += 1;
            continue;
        }
        let block_size = rank.config.block_size.get();
        let found = rank.found(slot);
        if rank.takes(slot) {
            let alone = rank.running.is_empty() && rank.transit.requests() == 0;
            let spared = if alone { 0 } else { watermark };
            let needed = rank.needed_for(slot, found) + spared;
            if needed > rank.pool.counts().available() || rank.reserve(slot, found).is_err() {
                return;
            }
            rank.dequeue(place);
            continue;
        }
        let sequence = &rank.sequences[slot as usize];
        let cached = found.blocks() * block_size;
        let left = sequence.length - cached;
        if config.chunked_prefill == ChunkedPrefill::Off && left > budget {
            return;
        }
        let new = left.min(budget);
        let reserved = match config.reserve {
            Reserve::WholePrompt => sequence.length,
            Reserve::Chunk => cached + new,
        };
        let on_device = &sequence.keys[..found.device as usize];
        let needed = reserved.div_ceil(block_size) - found.device + rank.pool.inactive_of(on_device).0;
        // Nobody would ever make room for one that is alone.
        let spared = if rank.running.is_empty() { 0 } else { watermark };
        if needed + spared > rank.pool.counts().available() || rank.admit(slot, found, new).is_err() {
            return;
        }
        rank.dequeue(place);
        rank.running.push(slot);
        rank.publish(slot, cached + new);
        budget -= new;
    }
}
