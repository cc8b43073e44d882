//! What do the metrics say? Follows the counters of feed and index, which belong to one thread, into those that
//! everybody can read. Several keepers follow into the same metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use homing_domain::RankId;
use homing_feed::{Counters, Feed, RankStatus, State};
use homing_index::Stats;
use homing_telemetry::{Change, Metrics, RepairKind, Skip, ViewState};
use homing_wire::Decoded;

/// What was told already.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    ranks: BTreeMap<RankId, Counters>,
    states: [u64; ViewState::ALL.len()],
    index: Stats,
    unsettled: u64,
}

/// A message was decoded.
pub(crate) fn decoded(decoded: &Decoded, metrics: &Metrics) {
    metrics.wire.decoded_batches.add(1);
    for (reason, count) in decoded.skipped.iter() {
        metrics
            .wire
            .skipped_events
            .of(Skip::ALL[reason as usize])
            .add(u64::from(count));
    }
}

impl Tally {
    /// Its counters end here; what they told stays told.
    pub(crate) fn left(&mut self, rank: RankId) {
        self.ranks.remove(&rank);
    }

    pub(crate) fn follow(&mut self, feed: &Feed, now_ms: u64, metrics: &Metrics) {
        let mut states = [0; ViewState::ALL.len()];
        for status in feed.statuses(now_ms) {
            let state = match status.state {
                State::Live => ViewState::Live,
                State::Warming => ViewState::Warming,
                State::Repairing => ViewState::Repairing,
                State::Stale { .. } => ViewState::Stale,
            };
            states[state as usize] += 1;
            let told = self.ranks.entry(status.rank).or_default();
            log_losses(told, &status);
            tell_rank(told, &status.counters, metrics);
            if status.counters.applied > told.applied
                && let Some(lag_ms) = status.lag_ms
            {
                metrics.feed.apply_lag.observe(Duration::from_millis(lag_ms));
            }
            *told = status.counters;
        }
        for state in ViewState::ALL {
            let place = state as usize;
            metrics
                .feed
                .tracked_ranks
                .of(state)
                .shift(self.states[place], states[place]);
        }
        self.states = states;
        self.tell_index(feed, metrics);
    }

    fn tell_index(&mut self, feed: &Feed, metrics: &Metrics) {
        let (told, stats, to) = (self.index, feed.index().stats(), &metrics.index);
        to.distinct_blocks.shift(told.blocks, stats.blocks);
        to.held_entries.shift(told.entries, stats.entries);
        to.live_runs.shift(told.runs, stats.runs);
        to.live_ranks.shift(told.ranks, stats.ranks);
        to.orphan_blocks.shift(told.orphans, stats.orphans);
        to.truncated_ranks.shift(told.truncated_ranks, stats.truncated_ranks);
        to.memory_bytes.shift(told.bytes, stats.bytes);
        to.evicted_blocks.add(stats.evicted - told.evicted);
        to.label_conflicts.add(stats.rebound - told.rebound);
        to.unknown_removals.add(stats.unknown_removals - told.unknown_removals);
        let unsettled = feed.reader().unsettled();
        to.unsettled_lookups.add(unsettled - self.unsettled);
        (self.index, self.unsettled) = (stats, unsettled);
    }
}

/// Says what made a view worse.
fn log_losses(told: &Counters, status: &RankStatus) {
    let now = &status.counters;
    if now.resets > told.resets {
        tracing::warn!(
            rank = %status.rank,
            resets = now.resets - told.resets,
            gaps = now.gaps - told.gaps,
            unreadable = now.overflows - told.overflows,
            doubts = now.doubts - told.doubts,
            "view emptied: batches were lost and could not be had again, or it was doubted twice"
        );
    }
    if now.dropped > told.dropped {
        tracing::warn!(
            rank = %status.rank,
            batches = now.dropped - told.dropped,
            "batches dropped during a repair and asked for again: feed.buffer-blocks is reached, or the source is not connected"
        );
    }
}

fn tell_rank(told: &Counters, now: &Counters, metrics: &Metrics) {
    let to = &metrics.feed;
    to.applied_batches.add(now.applied - told.applied);
    let events = &metrics.index.applied_events;
    events.of(Change::Stored).add(now.stored - told.stored);
    events.of(Change::Removed).add(now.removed - told.removed);
    events.of(Change::Cleared).add(now.cleared - told.cleared);
    to.found_gaps.add(now.gaps - told.gaps);
    to.repeated_batches.add(now.repeats - told.repeats);
    to.engine_restarts.add(now.restarts - told.restarts);
    to.agent_restarts.add(now.agent_restarts - told.agent_restarts);
    to.barrier_clears.add(now.barriers - told.barriers);
    to.view_resets.add(now.resets - told.resets);
    to.dropped_batches.add(now.dropped - told.dropped);
    to.lane_overflows.add(now.overflows - told.overflows);
    to.idle_probes.add(now.probes - told.probes);
    to.begun_repairs.of(RepairKind::Replay).add(now.replays - told.replays);
    to.begun_repairs
        .of(RepairKind::Rebuild)
        .add(now.rebuilds - told.rebuilds);
    to.begun_repairs.of(RepairKind::List).add(now.lists - told.lists);
    to.failed_tries.add(now.failed_tries - told.failed_tries);
    to.failed_repairs.add(now.failed_repairs - told.failed_repairs);
    to.late_answers.add(now.late_answers - told.late_answers);
    to.foreign_answers.add(now.foreign_answers - told.foreign_answers);
    to.view_doubts.add(now.doubts - told.doubts);
    to.drift_repairs.add(now.drifts - told.drifts);
    to.unknown_removals.add(now.unknown_removals - told.unknown_removals);
    to.source_heartbeats.add(now.heartbeats - told.heartbeats);
    let ended = now.repaired - told.repaired;
    for _ in 0..ended {
        // Those that ended within one tick are told apart by their mean only.
        to.repair_duration
            .observe(Duration::from_millis((now.repair_ms - told.repair_ms) / ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use homing_telemetry::LabelValue;
    use homing_wire::SkipReason;

    #[test]
    fn reasons_have_the_same_names_in_the_same_order() {
        let names: Vec<&str> = SkipReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names, Skip::VALUES);
    }
}
