//! How good is the view of each rank, and what happened to it? `GET /v1/ranks`.

use std::collections::BTreeMap;

use homing_feed::{Counters, Coverage, RankStatus, State};
use homing_index::RankStats;
use homing_keeper::ViewedRank;
use serde::Serialize;

use crate::problem::Problem;
use crate::shelf::{NOT_LISTENED_TO, Seat, Shelf, Shelves, state_name};

#[derive(Debug, Serialize)]
struct Ranks<'a> {
    ranks: Vec<Row<'a>>,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    worker: &'a str,
    worker_number: u32,
    dp_rank: u16,
    model: &'a str,
    block_size: u32,
    dialect: &'static str,
    role: &'static str,
    labels: BTreeMap<&'a str, &'a str>,
    source: &'static str,
    state: &'static str,
    /// Since when it is stale, in milliseconds of Unix time.
    since_ms: Option<u64>,
    /// Why it is stale.
    why: Option<&'static str>,
    trouble: Option<String>,
    complete: bool,
    cursor: Option<u64>,
    highest_heard: Option<u64>,
    verified_ms_ago: Option<u64>,
    lag_ms: Option<u64>,
    blocks: u64,
    orphans: u64,
    truncated: bool,
    buffered: usize,
    epoch: u64,
    identity: Identity,
    counters: CountersTwin,
}

#[derive(Debug, Default, Serialize)]
struct Identity {
    engine: u64,
    agent: u64,
}

macro_rules! twin {
    ($( $field:ident ),+ $(,)?) => {
        /// [`Counters`] as they are written.
        #[derive(Debug, Default, Serialize)]
        struct CountersTwin {
            $( $field: u64, )+
        }

        impl From<Counters> for CountersTwin {
            fn from(counters: Counters) -> Self {
                // All of them: a new one does not compile until it is written.
                let Counters { $( $field, )+ } = counters;
                Self { $( $field, )+ }
            }
        }
    };
}

twin!(
    applied,
    stored,
    removed,
    cleared,
    gaps,
    repeats,
    restarts,
    agent_restarts,
    barriers,
    resets,
    dropped,
    overflows,
    probes,
    replays,
    rebuilds,
    lists,
    failed_tries,
    failed_repairs,
    repaired,
    repair_ms,
    repair_ms_max,
    late_answers,
    foreign_answers,
    drifts,
    doubts,
    replaced,
    unknown_removals,
    heartbeats,
);

/// All ranks of all indexes, as JSON.
pub(crate) async fn all(shelves: &Shelves) -> Result<String, Problem> {
    let mut ranks = Vec::new();
    for shelf in shelves.iter() {
        let view = shelf.kept.view().await.map_err(|_gone| Problem::Closing)?;
        for seat in &shelf.seats {
            let viewed = view.ranks.iter().find(|viewed| viewed.status.rank == seat.rank);
            ranks.push(rank(shelf, seat, viewed, view.now_ms));
        }
    }
    ranks.sort_by_key(|rank| (rank.worker_number, rank.dp_rank));
    let ranks = Ranks { ranks };
    Ok(serde_json::to_string(&ranks).unwrap_or_else(|error| unreachable!("texts and numbers are JSON: {error}")))
}

fn rank<'a>(shelf: &'a Shelf, seat: &'a Seat, viewed: Option<&ViewedRank>, now_ms: u64) -> Row<'a> {
    let status = viewed.map(|viewed| &viewed.status);
    let sizes = viewed.map_or_else(RankStats::default, |viewed| viewed.stats);
    let (since_ms, why) = stale(status);
    let labels = seat.spec.labels.iter();
    Row {
        worker: &seat.worker,
        worker_number: seat.rank.worker.0,
        dp_rank: seat.rank.dp.0,
        model: shelf.subject.model.as_str(),
        block_size: shelf.subject.block_size.get(),
        dialect: seat.spec.dialect.name(),
        role: homing_config::role_name(seat.spec.role),
        labels: labels.map(|label| (label.key.as_str(), label.value.as_str())).collect(),
        source: seat.source(),
        state: state_name(status),
        since_ms,
        why,
        trouble: viewed.and_then(|viewed| viewed.trouble.clone()),
        complete: status.is_some_and(|status| status.coverage == Coverage::Complete),
        cursor: status.and_then(|status| status.cursor).map(|cursor| cursor.0),
        highest_heard: status.and_then(|status| status.highest).map(|highest| highest.0),
        verified_ms_ago: status
            .and_then(|status| status.verified_ms)
            .map(|verified| now_ms.saturating_sub(verified)),
        lag_ms: status.and_then(|status| status.lag_ms),
        blocks: sizes.blocks,
        orphans: sizes.orphans,
        truncated: sizes.truncated,
        buffered: status.map_or(0, |status| status.buffered),
        epoch: status.map_or(0, |status| status.epoch),
        identity: status.map_or_else(Identity::default, |status| Identity {
            engine: status.identity.engine,
            agent: status.identity.agent,
        }),
        counters: status.map_or_else(CountersTwin::default, |status| status.counters.into()),
    }
}

/// Since when and why it is stale.
pub(crate) fn stale(status: Option<&RankStatus>) -> (Option<u64>, Option<&'static str>) {
    match status.map(|status| status.state) {
        None => (None, Some(NOT_LISTENED_TO)),
        Some(State::Stale { since_ms, why }) => (Some(since_ms), Some(why.words())),
        Some(_) => (None, None),
    }
}
