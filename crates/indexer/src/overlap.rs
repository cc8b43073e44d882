//! Who holds how much of this prefix? From a question to its answer, on the thread of whoever asks.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use homing_domain::{BlockKey, KeyHasher, Prompt, Tier};
use homing_feed::Coverage;
use homing_index::Answer;
use homing_keeper::Standing;
use homing_telemetry::Metrics;
use serde::Serialize;

use crate::problem::Problem;
use crate::query::{Prefix, Query};
use crate::shelf::{Seat, Shelf, Shelves, state_name};

/// The answer as it is written.
#[derive(Debug, Serialize)]
struct Overlap<'a> {
    model: &'a str,
    block_size: u32,
    /// Full blocks of the prefix.
    blocks: usize,
    settled: bool,
    took_us: f64,
    ranks: Vec<RankOverlap<'a>>,
}

#[derive(Debug, Serialize)]
struct RankOverlap<'a> {
    worker: &'a str,
    dp_rank: u16,
    state: &'static str,
    complete: bool,
    blocks: Leading,
}

/// Leading blocks that are on this tier or a nearer one.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Leading {
    device: u32,
    host: u32,
    disk: u32,
    external: u32,
}

impl Leading {
    fn on(&mut self, tier: Tier) -> &mut u32 {
        match tier {
            Tier::Device => &mut self.device,
            Tier::Host => &mut self.host,
            Tier::Disk => &mut self.disk,
            Tier::External => &mut self.external,
        }
    }
}

thread_local! {
    /// Room for keys and for an answer, so that a question needs no new memory.
    static ROOM: RefCell<(Vec<BlockKey>, Answer)> = RefCell::default();
}

/// Answers a question that came as JSON, with JSON.
pub(crate) fn answer(shelves: &Shelves, hasher: &KeyHasher, body: &[u8], metrics: &Metrics) -> Result<String, Problem> {
    let query = Query::parse(body)?;
    let shelf = shelves.find(query.model.as_deref(), query.block_size)?;
    // A question that panicked would leave the room borrowed; nothing in here does.
    ROOM.with_borrow_mut(|(keys, answer)| {
        let started = Instant::now();
        let keys = keys_of(&query, shelf, hasher, keys);
        let between = Instant::now();
        shelf.kept.reader().lookup(keys, answer);
        let done = Instant::now();
        metrics.index.prefix_lookups.add(1);
        metrics.index.lookup_duration.observe(done - between);
        Ok(written(shelf, keys.len(), answer, done - started))
    })
}

fn keys_of<'a>(query: &'a Query, shelf: &Shelf, hasher: &KeyHasher, room: &'a mut Vec<BlockKey>) -> &'a [BlockKey] {
    match &query.prefix {
        Prefix::Keys(keys) => keys,
        Prefix::Prompt(asked) => {
            let prompt = Prompt {
                tokens: &asked.tokens,
                block_size: shelf.subject.block_size,
                window: asked.window,
                adapter: asked.adapter.as_ref(),
                salt: asked.salt.as_ref(),
                media: &asked.media,
            };
            shelf.kept.reader().keys_of(hasher, &prompt, room);
            room
        }
    }
}

fn written(shelf: &Shelf, blocks: usize, answer: &Answer, took: Duration) -> String {
    let leading = leading(&shelf.seats, answer);
    let standing = shelf.kept.standing();
    let ranks = shelf.seats.iter().zip(leading);
    let overlap = Overlap {
        model: shelf.subject.model.as_str(),
        block_size: shelf.subject.block_size.get(),
        blocks,
        settled: answer.is_settled(),
        took_us: (took.as_nanos() as f64 / 100.0).round() / 10.0,
        ranks: ranks
            .map(|(seat, blocks)| rank_overlap(seat, blocks, &standing))
            .collect(),
    };
    serde_json::to_string(&overlap).unwrap_or_else(|error| unreachable!("texts and numbers are JSON: {error}"))
}

fn rank_overlap<'a>(seat: &'a Seat, blocks: Leading, standing: &Standing) -> RankOverlap<'a> {
    let status = standing.rank(seat.rank);
    RankOverlap {
        worker: &seat.worker,
        dp_rank: seat.rank.dp.0,
        state: state_name(status),
        complete: status.is_some_and(|status| status.coverage == Coverage::Complete),
        blocks,
    }
}

/// What each seat's rank holds. Levels name slots; each slot is in one level of a tier at most.
fn leading(seats: &[Seat], answer: &Answer) -> Vec<Leading> {
    let mut leading = vec![Leading::default(); seats.len()];
    for tier in Tier::ALL {
        for level in answer.levels(tier) {
            let depth = level.depth().0;
            let ranks = level.slots().filter_map(|slot| answer.rank_in(slot));
            for (rank, _) in ranks {
                if let Ok(place) = seats.binary_search_by_key(&rank, |seat| seat.rank) {
                    *leading[place].on(tier) = depth;
                }
            }
        }
    }
    leading
}
