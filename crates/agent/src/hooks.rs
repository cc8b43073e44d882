//! How does the shelf follow the index? By hooks on the writer's thread: whatever happens to a view is on its shelf before
//! the writer does anything else.

use std::collections::HashMap;
use std::sync::Arc;

use homing_domain::RankId;
use homing_feed::{Feed, Input, Notice, Part};
use homing_keeper::{Hooks, Told};

use crate::shelf::Shelf;

/// The shelves of the ranks of one index.
pub(crate) type Shelves = HashMap<RankId, Arc<Shelf>>;

/// Hooks that keep them.
pub(crate) fn hooks(shelves: Shelves) -> Hooks {
    let shelves = Arc::new(shelves);
    let (told, noticed, ticked) = (shelves.clone(), shelves.clone(), shelves);
    Hooks {
        record: Some(Box::new(move |_, done| {
            if let Told::Input(input) = done {
                hear(&told, input);
            }
        })),
        notice: Some(Box::new(move |happened, feed| notice(&noticed, &happened, feed))),
        tick: Some(Box::new(move |now_ms, feed| tick(&ticked, now_ms, feed))),
    }
}

/// Before the feed is told.
fn hear(shelves: &Shelves, input: &Input) {
    let with = |rank: &RankId, act: &dyn Fn(&Shelf)| {
        if let Some(shelf) = shelves.get(rank) {
            act(shelf);
        }
    };
    match input {
        Input::Connected(rank) => with(rank, &Shelf::connected),
        Input::Disconnected(rank) => with(rank, &Shelf::disconnected),
        Input::Heard { rank, batch } => with(rank, &|shelf| shelf.heard(batch)),
        Input::Reply(reply) => {
            if let Part::Batch(batch) = &reply.part {
                with(&reply.rank, &|shelf| shelf.heard(batch));
            }
        }
        _ => {}
    }
}

/// After the feed was told, in the order in which it happened.
fn notice(shelves: &Shelves, happened: &Notice, feed: &Feed) {
    match happened {
        Notice::Applied { rank, batch } => {
            if let Some(shelf) = shelves.get(rank) {
                shelf.applied(batch);
            }
        }
        Notice::Replaced(rank) => {
            if let Some(shelf) = shelves.get(rank) {
                let restarts = feed.status(0, *rank).map_or(0, |status| status.counters.restarts);
                shelf.replaced(feed.position(*rank), restarts);
            }
        }
    }
}

fn tick(shelves: &Shelves, now_ms: u64, feed: &Feed) {
    for status in feed.statuses(now_ms) {
        if let Some(shelf) = shelves.get(&status.rank) {
            shelf.ticked(&status);
        }
    }
}
