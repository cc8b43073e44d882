//! What SGLang counts.

use super::{Family, Spread};

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "sglang:num_running_reqs",
        help: "The number of running requests.",
        kind: "gauge",
        series: &[("", |rank| f64::from(rank.load.running))],
    },
    Family {
        name: "sglang:num_queue_reqs",
        help: "The number of requests in the waiting queue.",
        kind: "gauge",
        series: &[("", |rank| f64::from(rank.load.waiting))],
    },
    Family {
        name: "sglang:token_usage",
        help: "The token usage.",
        kind: "gauge",
        series: &[("", |rank| rank.load.blocks.usage())],
    },
    Family {
        name: "sglang:num_used_tokens",
        help: "The number of used tokens.",
        kind: "gauge",
        series: &[("", |rank| {
            f64::from(rank.load.blocks.active) * f64::from(rank.block_size)
        })],
    },
    Family {
        name: "sglang:cache_hit_rate",
        help: "The prefix cache hit rate.",
        kind: "gauge",
        series: &[("", |rank| {
            rank.load.prefix_hits as f64 / (rank.load.prefix_queries.max(1)) as f64
        })],
    },
    Family {
        name: "sglang:prompt_tokens_total",
        help: "Number of prefill tokens processed.",
        kind: "counter",
        series: &[("", |rank| rank.tally.prompt_tokens as f64)],
    },
    Family {
        name: "sglang:generation_tokens_total",
        help: "Number of generation tokens processed.",
        kind: "counter",
        series: &[("", |rank| rank.tally.generation_tokens as f64)],
    },
    Family {
        name: "sglang:cached_tokens_total",
        help: "Number of cached prompt tokens.",
        kind: "counter",
        series: &[("", |rank| rank.tally.cached_tokens as f64)],
    },
    Family {
        name: "sglang:num_requests_total",
        help: "Number of requests processed.",
        kind: "counter",
        series: &[("", |rank| (rank.tally.stopped + rank.tally.full) as f64)],
    },
    Family {
        name: "sglang:lora_pool_slots_used",
        help: "Number of LoRA adapter slots in use.",
        kind: "gauge",
        series: &[("", |rank| rank.adapters.resident.len() as f64)],
    },
    Family {
        name: "sglang:lora_pool_slots_total",
        help: "Number of LoRA adapter slots.",
        kind: "gauge",
        series: &[("", |rank| f64::from(rank.adapter_slots))],
    },
    Family {
        name: "sglang:lora_pool_utilization",
        help: "Share of LoRA adapter slots in use.",
        kind: "gauge",
        series: &[("", |rank| {
            rank.adapters.resident.len() as f64 / f64::from(rank.adapter_slots.max(1))
        })],
    },
    Family {
        name: "sglang:num_retractions_total",
        help: "Number of retracted requests.",
        kind: "counter",
        series: &[("", |rank| rank.load.preemptions as f64)],
    },
];

/// What it counts where prompts and answers are computed in different places; and the blocks that stay, which it does not tell.
pub(super) const SPLIT: &[Family] = &[
    Family {
        name: "sglang:num_prefill_bootstrap_queue_reqs",
        help: "The number of requests in the prefill bootstrap queue.",
        kind: "gauge",
        series: &[("", |rank| rank.meeting as f64)],
    },
    Family {
        name: "sglang:num_prefill_inflight_queue_reqs",
        help: "The number of requests in the prefill inflight queue.",
        kind: "gauge",
        series: &[("", |rank| f64::from(rank.load.staged))],
    },
    Family {
        name: "sglang:num_decode_prealloc_queue_reqs",
        help: "The number of requests in the decode prealloc queue.",
        kind: "gauge",
        series: &[("", |rank| f64::from(rank.load.waiting))],
    },
    Family {
        name: "sglang:num_decode_transfer_queue_reqs",
        help: "The number of requests in the decode transfer queue.",
        kind: "gauge",
        series: &[("", |rank| f64::from(rank.load.incoming))],
    },
    super::STAGED,
];

pub(super) const SPREADS: &[Spread] = &[
    Spread {
        name: "sglang:time_to_first_token_seconds",
        help: "Histogram of time to first token in seconds.",
        of: |rank| &rank.tally.first_token,
    },
    Spread {
        name: "sglang:inter_token_latency_seconds",
        help: "Histogram of inter-token latency in seconds.",
        of: |rank| &rank.tally.inter_token,
    },
    Spread {
        name: "sglang:e2e_request_latency_seconds",
        help: "Histogram of end-to-end request latency in seconds.",
        of: |rank| &rank.tally.whole,
    },
];
