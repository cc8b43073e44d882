//! Which metrics are there? This is the one place that says so.
//!
//! Names are `homing_<area>_<noun>_<unit>[_total]`; the doc comment of a field is its help text. After an edit, write the
//! reference page anew with `HOMING_BLESS=1 cargo test -p homing-telemetry`; a test fails until that is done.

use crate::declare::{Declaration, metrics};
use crate::labels::{
    AdapterMove, Asked, Asker, BodyRefusal, Change, FieldAction, FoundSeverity, HandoffFate, LegEnd, LegKind, Outcome,
    Prediction, Quota, ReadLimit, RefusedResponseId, RepairKind, RequestEnd, RoutePart, Skip, SourceKind, TokenSource,
    TryFailure, TurnedAway, ViewState, WorkerRole,
};
use crate::metric::{Counter, Gauge, Histogram, PerLabel};

macro_rules! areas {
    ($( $(#[doc = $doc:literal])+ $area:ident: $group:ty, )+) => {
        /// Everything Homing tells about itself. One per process; shared by reference, updated from any thread.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $( $(#[doc = $doc])+ pub $area: $group, )+
        }

        impl Metrics {
            /// Everything that is declared, area by area.
            pub fn declarations() -> impl Iterator<Item = &'static Declaration> {
                [$( <$group>::DECLARATIONS, )+ crate::workers::DECLARATIONS].into_iter().flatten()
            }

            /// The Prometheus text format, version 0.0.4. What is told of each worker is appended by who knows the workers.
            pub fn render(&self) -> String {
                let mut out = String::new();
                $( self.$area.render_into(&mut out); )+
                out
            }
        }
    };
}

areas! {
    /// About the prefix index.
    index: IndexMetrics,
    /// About the views of ranks and their repairs.
    feed: FeedMetrics,
    /// About the decoding of what engines say.
    wire: WireMetrics,
    /// About the sockets that events come over.
    transport: TransportMetrics,
    /// About `homing agent`.
    agent: AgentMetrics,
    /// About `homing index`.
    indexer: IndexerMetrics,
    /// About who exists, and what engines say when they are asked.
    discovery: DiscoveryMetrics,
    /// About HTTP servers: those of `homing serve`, `homing index` and `homing agent`.
    http: HttpMetrics,
    /// About `homing serve`.
    gateway: GatewayMetrics,
}

metrics! {
    /// About the prefix index.
    pub struct IndexMetrics {
        /// Distinct blocks that at least one rank holds.
        distinct_blocks: Gauge = "homing_index_distinct_blocks",
        /// Pairs of a block and a rank that holds it.
        held_entries: Gauge = "homing_index_held_entries",
        /// Runs that the distinct blocks are kept in.
        live_runs: Gauge = "homing_index_live_runs",
        /// Ranks that have a slot.
        live_ranks: Gauge = "homing_index_live_ranks",
        /// Blocks kept aside because their parent is not known on their rank. They count for nothing until it is.
        orphan_blocks: Gauge = "homing_index_orphan_blocks",
        /// Ranks of which blocks were forgotten for want of room. Their answers may be too low, never too high.
        truncated_ranks: Gauge = "homing_index_truncated_ranks",
        /// Memory that the index has taken from the system.
        memory_bytes: Gauge = "homing_index_memory_bytes",
        /// Events applied.
        applied_events: PerLabel<Change, Counter> = "homing_index_applied_events_total",
        /// Blocks forgotten because the capacity was reached.
        evicted_blocks: Counter = "homing_index_evicted_blocks_total",
        /// Labels that came to name another block on the same rank than before.
        label_conflicts: Counter = "homing_index_label_conflicts_total",
        /// Removals of labels that the rank does not hold.
        unknown_removals: Counter = "homing_index_unknown_removals_total",
        /// Lookups answered.
        prefix_lookups: Counter = "homing_index_prefix_lookups_total",
        /// Lookups whose answer is not that of one instant, because writes kept moving under them.
        unsettled_lookups: Counter = "homing_index_unsettled_lookups_total",
        /// Time from keys to answer.
        lookup_duration: Histogram = "homing_index_lookup_duration_seconds",
        /// Time of one uninterrupted piece of the writer's work.
        write_slice: Histogram = "homing_index_write_slice_seconds",
    }
}

metrics! {
    /// About the views of ranks and their repairs.
    pub struct FeedMetrics {
        /// Ranks, by how good their view is.
        tracked_ranks: PerLabel<ViewState, Gauge> = "homing_feed_tracked_ranks",
        /// Batches applied.
        applied_batches: Counter = "homing_feed_applied_batches_total",
        /// Gaps found in the numbers of batches.
        found_gaps: Counter = "homing_feed_found_gaps_total",
        /// Batches that came again, or late, and were not applied.
        repeated_batches: Counter = "homing_feed_repeated_batches_total",
        /// Restarts of engines. What they held before is void.
        engine_restarts: Counter = "homing_feed_engine_restarts_total",
        /// Restarts of agents. What their engines hold is not touched by them.
        agent_restarts: Counter = "homing_feed_agent_restarts_total",
        /// Clears of all tiers.
        barrier_clears: Counter = "homing_feed_barrier_clears_total",
        /// Views emptied because nothing could repair them.
        view_resets: Counter = "homing_feed_view_resets_total",
        /// Batches that came during a repair and did not fit into the buffer (`feed.buffer-blocks`).
        dropped_batches: Counter = "homing_feed_dropped_batches_total",
        /// Batches that were lost because they could not be read.
        lane_overflows: Counter = "homing_feed_lane_overflows_total",
        /// Questions to idle sources whether they still are where we are.
        idle_probes: Counter = "homing_feed_idle_probes_total",
        /// Repairs begun, by what they ask for.
        begun_repairs: PerLabel<RepairKind, Counter> = "homing_feed_begun_repairs_total",
        /// Tries of repairs that failed.
        failed_tries: Counter = "homing_feed_failed_tries_total",
        /// Repairs that failed for good.
        failed_repairs: Counter = "homing_feed_failed_repairs_total",
        /// Parts of answers that nobody waited for any more.
        late_answers: Counter = "homing_feed_late_answers_total",
        /// Parts of answers that named another rank.
        foreign_answers: Counter = "homing_feed_foreign_answers_total",
        /// Times that a router doubted a view, because engines had less cached than it promised.
        view_doubts: Counter = "homing_feed_view_doubts_total",
        /// Repairs begun because the view had drifted, or was doubted.
        drift_repairs: Counter = "homing_feed_drift_repairs_total",
        /// Removals of unknown blocks while the view was complete. They are evidence of drift.
        unknown_removals: Counter = "homing_feed_unknown_removals_total",
        /// Heartbeats heard from sources.
        source_heartbeats: Counter = "homing_feed_source_heartbeats_total",
        /// Time from the beginning of a repair to its good end.
        repair_duration: Histogram = "homing_feed_repair_duration_seconds",
        /// Time from the engine's clock in a batch to ours when it was applied.
        apply_lag: Histogram = "homing_feed_apply_lag_seconds",
    }
}

metrics! {
    /// About the decoding of what engines say.
    pub struct WireMetrics {
        /// Batches decoded, though events in them may have been skipped.
        decoded_batches: Counter = "homing_wire_decoded_batches_total",
        /// Messages of which nothing could be used.
        broken_batches: Counter = "homing_wire_broken_batches_total",
        /// Events left out of their batch, wholly or in part.
        skipped_events: PerLabel<Skip, Counter> = "homing_wire_skipped_events_total",
    }
}

metrics! {
    /// About the sockets that events come over.
    pub struct TransportMetrics {
        /// Connections to sources of events that stand.
        open_connections: Gauge = "homing_transport_open_connections",
        /// Connections to sources of events that were lost.
        lost_connections: Counter = "homing_transport_lost_connections_total",
        /// Bytes received.
        received_bytes: Counter = "homing_transport_received_bytes_total",
        /// Messages received.
        received_messages: Counter = "homing_transport_received_messages_total",
        /// Messages not taken because they were longer than is allowed.
        oversized_messages: Counter = "homing_transport_oversized_messages_total",
        /// Requests to replay sockets.
        replay_requests: Counter = "homing_transport_replay_requests_total",
        /// Time for which a source was not read because a limit was reached, by the limit.
        read_pauses: PerLabel<ReadLimit, Histogram> = "homing_transport_read_pause_duration_seconds",
    }
}

metrics! {
    /// About `homing agent`.
    pub struct AgentMetrics {
        /// Lists sent to the end.
        served_lists: Counter = "homing_agent_served_lists_total",
        /// Lists that were sent from what was being made for somebody else already.
        shared_lists: Counter = "homing_agent_shared_lists_total",
        /// Lists that could not be made, or were not taken in time.
        failed_lists: Counter = "homing_agent_failed_lists_total",
        /// Time for which the index was held to list a rank. Events wait meanwhile, and none is lost.
        listing_hold: Histogram = "homing_agent_listing_hold_seconds",
        /// Bytes of lists, as they were sent.
        list_bytes: Counter = "homing_agent_list_bytes_total",
        /// Those who watch now.
        active_watchers: Gauge = "homing_agent_active_watchers",
        /// Those whose watch was ended because they were slower than the ring is long.
        slow_watchers: Counter = "homing_agent_slow_watchers_total",
        /// Bytes of watches, as they were sent.
        watch_bytes: Counter = "homing_agent_watch_bytes_total",
        /// Batches kept for those who ask from a position.
        ring_batches: Gauge = "homing_agent_ring_batches",
        /// Bytes that those take.
        ring_bytes: Gauge = "homing_agent_ring_bytes",
        /// Watches refused because the ring no longer had, or never had, their beginning.
        gone_answers: Counter = "homing_agent_gone_answers_total",
    }
}

metrics! {
    /// About `homing index`.
    pub struct IndexerMetrics {
        /// Requests for overlap.
        overlap_requests: PerLabel<Outcome, Counter> = "homing_indexer_overlap_requests_total",
        /// Time from a request for overlap, read, to its answer, written.
        overlap_duration: Histogram = "homing_indexer_overlap_duration_seconds",
        /// Bytes written to the recording.
        recorded_bytes: Counter = "homing_indexer_recorded_data_bytes_total",
    }
}

metrics! {
    /// About who exists, and what engines say when they are asked.
    pub struct DiscoveryMetrics {
        /// Workers that exist.
        known_workers: Gauge = "homing_discovery_known_workers",
        /// Workers that a source tells of and that are not taken; the log says why.
        refused_workers: Gauge = "homing_discovery_refused_workers",
        /// Workers that came. One that left and came again is counted again.
        came_workers: Counter = "homing_discovery_came_workers_total",
        /// Workers that left.
        left_workers: Counter = "homing_discovery_left_workers_total",
        /// Times that a source could not tell who exists. What it told before holds meanwhile.
        source_failures: PerLabel<SourceKind, Counter> = "homing_discovery_source_failures_total",
        /// Registrations that hold.
        held_leases: Gauge = "homing_discovery_held_leases",
        /// Registrations that were not renewed in time.
        expired_leases: Counter = "homing_discovery_expired_leases_total",
        /// Registrations and removals that were refused although their token is known; the log says why.
        refused_registrations: Counter = "homing_discovery_refused_registrations_total",
        /// Registrations and removals that were refused because their token was used too often from one address.
        limited_registrations: Counter = "homing_discovery_limited_registrations_total",
        /// Questions to workers what they are.
        asked_probes: PerLabel<Asked, Counter> = "homing_discovery_asked_probes_total",
        /// Questions to workers how they are.
        asked_pings: PerLabel<Asked, Counter> = "homing_discovery_asked_pings_total",
        /// Questions to workers how busy they are.
        asked_polls: PerLabel<Asked, Counter> = "homing_discovery_asked_polls_total",
        /// Time from such a question to its answer, read.
        poll_duration: Histogram = "homing_discovery_poll_duration_seconds",
    }
}

metrics! {
    /// About HTTP servers: those of `homing serve`, `homing index` and `homing agent`.
    pub struct HttpMetrics {
        /// Memory reserved for bodies of requests that have not ended.
        held_body_bytes: Gauge = "homing_http_held_body_bytes",
        /// Memory that all of these may take together.
        body_budget_bytes: Gauge = "homing_http_body_budget_bytes",
        /// Requests that were refused because of their body, by reason.
        refused_bodies: PerLabel<BodyRefusal, Counter> = "homing_http_refused_bodies_total",
        /// Idle connections that were closed at a connection limit to make room for a new one.
        displaced_connections: Counter = "homing_http_displaced_connections_total",
        /// Connections that were accepted above a connection limit, for health checks and metrics only.
        reserved_connections: Counter = "homing_http_reserved_connections_total",
        /// Requests to `homing index` and `homing agent` without the token that they ask for.
        unauthorized_requests: Counter = "homing_http_unauthorized_requests_total",
    }
}

metrics! {
    /// About `homing serve`.
    pub struct GatewayMetrics {
        /// Requests that ended, by how.
        ended_requests: PerLabel<RequestEnd, Counter> = "homing_gateway_ended_requests_total",
        /// Clients and operators that are connected.
        open_connections: Gauge = "homing_gateway_open_connections",
        /// Connections that were turned away, or ended because of what came over them.
        refused_connections: PerLabel<TurnedAway, Counter> = "homing_gateway_refused_connections_total",
        /// Requests whose sender did not know what was asked for.
        unauthorized_requests: PerLabel<Asker, Counter> = "homing_gateway_unauthorized_requests_total",
        /// Requests that were refused because a key or a tenant had used what it may.
        limited_requests: PerLabel<Quota, Counter> = "homing_gateway_limited_requests_total",
        /// Requests with fields that belong to engines, by what was done with them.
        engine_fields: PerLabel<FieldAction, Counter> = "homing_gateway_engine_field_requests_total",
        /// Requests that name a stored response which is not their tenant's, or none at all.
        refused_response_ids: PerLabel<RefusedResponseId, Counter> = "homing_gateway_refused_response_ids_total",
        /// Requests that are under way.
        running_requests: Gauge = "homing_gateway_running_requests",
        /// Requests that wait to be let go.
        waiting_requests: Gauge = "homing_gateway_waiting_requests",
        /// Workers that take requests.
        known_workers: Gauge = "homing_gateway_known_workers",
        /// Tries of requests that failed, by why.
        failed_tries: PerLabel<TryFailure, Counter> = "homing_gateway_failed_tries_total",
        /// Requests to workers where two may serve one, by the part that was asked for and what came of it.
        legs: PerLabel<LegKind, PerLabel<LegEnd, Counter>> = "homing_gateway_asked_legs_total",
        /// Time until such a request was answered: prefill and fetch in full, others until their answer began.
        leg_duration: PerLabel<LegKind, Histogram> = "homing_gateway_leg_duration_seconds",
        /// KV that was computed for another worker, by what became of it.
        handoffs: PerLabel<HandoffFate, Counter> = "homing_gateway_settled_handoffs_total",
        /// Blocks that wait on prefill workers to be fetched, or will.
        staged_blocks: Gauge = "homing_gateway_staged_blocks",
        /// Tries that were not made because retries had become too many.
        unspent_retries: Counter = "homing_gateway_unspent_retries_total",
        /// Requests that were moved from a stalled worker, or from one that went down, before their client got anything.
        moved_requests: Counter = "homing_gateway_moved_requests_total",
        /// Workers that are suspected of a stall: requests go elsewhere where they can.
        suspected_workers: Gauge = "homing_gateway_suspected_workers",
        /// Workers that are ejected because they make no progress.
        stalled_workers: Gauge = "homing_gateway_stalled_workers",
        /// Workers that would be ejected if not more than half of the workers for the same model looked stalled. Above 0: panic.
        unejected_workers: Gauge = "homing_gateway_unejected_workers",
        /// Times that a worker was ejected because it made no progress.
        ejected_workers: Counter = "homing_gateway_ejected_workers_total",
        /// Answers that went on at another worker.
        migrated_answers: Counter = "homing_gateway_migrated_answers_total",
        /// Requests of proxies that nothing was heard of for the time of their lease.
        lapsed_requests: Counter = "homing_gateway_lapsed_requests_total",
        /// Answers that broke off.
        broken_answers: Counter = "homing_gateway_broken_answers_total",
        /// Requests by how their tokens are known.
        token_sources: PerLabel<TokenSource, Counter> = "homing_gateway_token_sources_total",
        /// Tokens of prompts.
        prompt_tokens: Counter = "homing_gateway_prompt_tokens_total",
        /// Tokens of prompts that were predicted to come from caches, where engines say how many did.
        predicted_tokens: Counter = "homing_gateway_predicted_tokens_total",
        /// Tokens of prompts that came from caches, as engines say.
        cached_tokens: Counter = "homing_gateway_cached_tokens_total",
        /// Tokens that were generated.
        output_tokens: Counter = "homing_gateway_output_tokens_total",
        /// Predictions of cached tokens, by how they turned out.
        judged_predictions: PerLabel<Prediction, Counter> = "homing_gateway_judged_predictions_total",
        /// Prompts that have another number of tokens at the engine than here: templates or tokenizers differ.
        drifted_prompts: Counter = "homing_gateway_drifted_prompts_total",
        /// Views that are made anew because predictions from them kept being too high.
        doubted_views: Counter = "homing_gateway_doubted_views_total",
        /// Lines of the request log that were dropped because the disk was too slow.
        dropped_log_lines: Counter = "homing_gateway_dropped_log_lines_total",
        /// Findings about workers that take requests, by how much they matter.
        open_findings: PerLabel<FoundSeverity, Gauge> = "homing_gateway_open_findings",
        /// Time from a whole request to its decision, by the role of the worker and in parts, without the time it waited to be let go.
        route_duration: PerLabel<WorkerRole, PerLabel<RoutePart, Histogram>> = "homing_gateway_route_duration_seconds",
        /// Time from a decision being asked for to being let go: next to nothing unless the request waited.
        queue_duration: Histogram = "homing_gateway_queue_duration_seconds",
        /// Time from a whole request to the first token of its answer.
        first_token: Histogram = "homing_gateway_first_token_seconds",
        /// Time between two pieces of a streamed answer, for each token in the second.
        inter_token: Histogram = "homing_gateway_inter_token_seconds",
        /// Time from a whole request to the end of its answer.
        request_duration: Histogram = "homing_gateway_request_duration_seconds",
        /// Adapters that are known by name.
        known_adapters: Gauge = "homing_gateway_known_adapters",
        /// Adapters on ranks, each counted on every rank that has it.
        resident_adapters: Gauge = "homing_gateway_resident_adapters",
        /// Slots for adapters on all ranks.
        adapter_slots: Gauge = "homing_gateway_adapter_slots",
        /// Loads and unloads of adapters that workers were told to do, by what came of them.
        adapter_moves: PerLabel<AdapterMove, Counter> = "homing_gateway_adapter_moves_total",
        /// How long a load of an adapter took that succeeded.
        adapter_load: Histogram = "homing_gateway_adapter_load_seconds",
        /// How long requests waited for a load of their adapter.
        adapter_wait: Histogram = "homing_gateway_adapter_wait_seconds",
        /// Spans that were sent to the collector of traces.
        sent_spans: Counter = "homing_gateway_sent_spans_total",
        /// Spans that were dropped because the queue was full or the collector did not take them.
        dropped_spans: Counter = "homing_gateway_dropped_spans_total",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MetricKind;
    use crate::declare::Label;
    use std::collections::BTreeSet;

    const AREAS: &[&str] = &[
        "agent",
        "discovery",
        "feed",
        "gateway",
        "http",
        "index",
        "indexer",
        "transport",
        "wire",
        "worker",
    ];
    const UNITS: &[&str] = &[
        "adapters",
        "answers",
        "batches",
        "blocks",
        "bodies",
        "bytes",
        "clears",
        "conflicts",
        "connections",
        "doubts",
        "entries",
        "events",
        "failures",
        "findings",
        "handoffs",
        "gaps",
        "heartbeats",
        "ids",
        "leases",
        "legs",
        "lines",
        "lists",
        "lookups",
        "messages",
        "moves",
        "overflows",
        "pings",
        "polls",
        "predictions",
        "probes",
        "prompts",
        "ranks",
        "removals",
        "repairs",
        "requests",
        "resets",
        "restarts",
        "retries",
        "runs",
        "seconds",
        "slots",
        "sources",
        "spans",
        "tokens",
        "tries",
        "views",
        "watchers",
        "workers",
    ];

    fn breach(declaration: &Declaration) -> Option<&'static str> {
        let mut words: Vec<&str> = declaration.name.split('_').collect();
        if words
            .iter()
            .any(|word| word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_lowercase()))
        {
            return Some("words are lower case");
        }
        let total = words.last() == Some(&"total");
        if total != (declaration.kind == MetricKind::Counter) {
            return Some("counters, and only they, end in _total");
        }
        if total {
            words.pop();
        }
        if words.len() < 4 || words[0] != "homing" {
            return Some("homing_<area>_<noun>_<unit>");
        }
        if !AREAS.contains(&words[1]) {
            return Some("unknown area");
        }
        if !words.last().is_some_and(|unit| UNITS.contains(unit)) {
            return Some("unknown unit");
        }
        if !declaration.help.ends_with('.') || declaration.help.contains(['\n', '|']) {
            return Some("help is a sentence");
        }
        // Those of workers name them, and there are at most so many.
        let of_workers = words[1] == "worker";
        let few = |(_, values): Label| of_workers || !values.is_empty() && values.len() <= 16;
        if declaration.labels().all(few) {
            None
        } else {
            Some("labels take a few values")
        }
    }

    #[test]
    fn names_keep_the_rules() {
        let mut names = BTreeSet::new();
        for declaration in Metrics::declarations() {
            assert_eq!(breach(declaration), None, "{}", declaration.name);
            assert!(names.insert(declaration.name), "{} is declared twice", declaration.name);
        }
    }

    #[test]
    fn no_unit_is_listed_that_nobody_uses() {
        let names: Vec<_> = Metrics::declarations()
            .map(|metric| metric.name.trim_end_matches("_total"))
            .collect();
        for unit in UNITS {
            assert!(names.iter().any(|name| name.ends_with(unit)), "{unit}");
        }
    }

    #[test]
    fn names_that_break_the_rules_are_found() {
        let good = Declaration {
            name: "homing_index_prefix_lookups_total",
            kind: MetricKind::Counter,
            help: "Help.",
            label: None,
            second: None,
        };
        assert_eq!(breach(&good), None);
        for name in [
            "homing_index_lookups_total",
            "homing_index_prefix_lookups",
            "homing_elsewhere_prefix_lookups_total",
            "homing_index_prefix_things_total",
            "homing_Index_prefix_lookups_total",
            "vllm_index_prefix_lookups_total",
        ] {
            assert!(breach(&Declaration { name, ..good }).is_some(), "{name}");
        }
        assert!(
            breach(&Declaration {
                help: "no sentence",
                ..good
            })
            .is_some()
        );
        assert!(
            breach(&Declaration {
                label: Some(("user", &[])),
                ..good
            })
            .is_some()
        );
    }
}
