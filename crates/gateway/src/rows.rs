//! How busy is each rank? As the router and the engines say, for operators.
//!
//! Cost: the state of every router is copied once. Asked for by people and scrapers, not by requests.

use std::collections::HashMap;
use std::sync::Arc;

use homing_domain::RankId;
use homing_profile::Time;
use homing_telemetry::workers::WorkerNumbers;

use crate::table::Table;

/// How busy one rank is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RankRow {
    /// Requests that its engine computes, as it said last.
    pub(crate) running: u32,
    /// Requests that wait there, as it said last.
    pub(crate) waiting: u32,
    /// Requests that are booked there.
    pub(crate) booked: u32,
    /// Tokens of prompts that are booked there and not computed yet.
    pub(crate) pending_tokens: u64,
    /// How long those take.
    pub(crate) backlog_ms: f64,
    /// Blocks in use, of ours.
    pub(crate) used_blocks: u64,
    /// The share of its cache in use, from 0 to 1.
    pub(crate) usage: f64,
}

/// All ranks of a table.
pub(crate) fn rows(table: &Table, now: Time) -> HashMap<RankId, RankRow> {
    let mut rows = HashMap::new();
    let mut seen = Vec::new();
    for worker in table.workers.values() {
        let lane = Arc::as_ptr(&worker.lane);
        if seen.contains(&lane) {
            continue;
        }
        seen.push(lane);
        for rank in worker.lane.router.state(now).ranks {
            let reported = rank.reported;
            let row = RankRow {
                running: reported.map_or(0, |report| report.running),
                waiting: reported.map_or(0, |report| report.waiting),
                booked: rank.load.requests(),
                pending_tokens: rank.load.pending_tokens(),
                backlog_ms: rank.backlog.0,
                used_blocks: rank.load.used_blocks(),
                usage: rank.load.usage(),
            };
            rows.insert(rank.load.rank(), row);
        }
    }
    rows
}

/// All ranks of a table, as metrics tell them: the worker, the rank, and its numbers. What is of a whole worker is with rank 0.
pub(crate) fn numbers(table: &Table, now: Time) -> Vec<(Arc<str>, u16, WorkerNumbers)> {
    let rows = rows(table, now);
    let mut all = Vec::new();
    for worker in table.workers.values() {
        for rank in worker.ranks() {
            let row = rows.get(&rank).copied().unwrap_or_default();
            let mut numbers = WorkerNumbers {
                running: row.running.into(),
                waiting: row.waiting.into(),
                booked: row.booked.into(),
                pending_tokens: row.pending_tokens as f64,
                backlog: row.backlog_ms / 1e3,
                used_blocks: row.used_blocks as f64,
                serving: if worker.is_out() || worker.is_stalled() || worker.is_draining() {
                    0.0
                } else {
                    1.0
                },
                ..WorkerNumbers::default()
            };
            if rank.dp.0 == 0 {
                let (served, failed) = worker.counts();
                let truth = worker.truth.counts();
                numbers.served = served as f64;
                numbers.failed = failed as f64;
                numbers.predicted_tokens = truth.predicted_tokens as f64;
                numbers.cached_tokens = truth.cached_tokens as f64;
            }
            all.push((worker.name.clone(), rank.dp.0, numbers));
        }
    }
    all
}
