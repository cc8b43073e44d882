//! What vLLM counts.

use std::fmt::{self, Write as _};

use homing_domain::AdapterName;

use super::{Family, Rank, Spread, escaped, head};
use crate::app::App;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "vllm:estimated_flops_per_gpu_total",
        help: "Floating-point operations; not estimated here.",
        kind: "counter",
        series: &[("", |_| 0.0)],
    },
    Family {
        name: "vllm:estimated_read_bytes_per_gpu_total",
        help: "Bytes read; not estimated here.",
        kind: "counter",
        series: &[("", |_| 0.0)],
    },
    Family {
        name: "vllm:estimated_write_bytes_per_gpu_total",
        help: "Bytes written; not estimated here.",
        kind: "counter",
        series: &[("", |_| 0.0)],
    },
    Family {
        name: "vllm:num_requests_running",
        help: "Requests that are computed.",
        kind: "gauge",
        series: &[("", |rank| f64::from(rank.load.running))],
    },
    Family {
        name: "vllm:num_requests_waiting",
        help: "Requests that wait.",
        kind: "gauge",
        series: &[("", |rank| f64::from(rank.load.waiting + rank.load.incoming))],
    },
    Family {
        name: "vllm:num_requests_waiting_by_reason",
        help: "Requests that wait, by what they wait for.",
        kind: "gauge",
        series: &[
            (",reason=\"capacity\"", |rank| f64::from(rank.load.waiting)),
            (",reason=\"deferred\"", |rank| f64::from(rank.load.incoming)),
        ],
    },
    Family {
        name: "vllm:engine_sleep_state",
        help: "Whether it sleeps.",
        kind: "gauge",
        series: &[
            (",sleep_state=\"awake\"", |_| 1.0),
            (",sleep_state=\"weights_offloaded\"", |_| 0.0),
            (",sleep_state=\"discard_all\"", |_| 0.0),
        ],
    },
    Family {
        name: "vllm:kv_cache_usage_perc",
        help: "The share of the KV cache in use, from 0 to 1.",
        kind: "gauge",
        series: &[("", |rank| rank.load.blocks.usage())],
    },
    Family {
        name: "vllm:prefix_cache_queries_total",
        help: "Tokens that were looked for in the prefix cache.",
        kind: "counter",
        series: &[("", |rank| rank.load.prefix_queries as f64)],
    },
    Family {
        name: "vllm:prefix_cache_hits_total",
        help: "Tokens that were found in the prefix cache.",
        kind: "counter",
        series: &[("", |rank| rank.load.prefix_hits as f64)],
    },
    Family {
        name: "vllm:external_prefix_cache_queries_total",
        help: "Tokens that were looked for in a cache elsewhere.",
        kind: "counter",
        series: &[("", |rank| rank.load.external_queries as f64)],
    },
    Family {
        name: "vllm:external_prefix_cache_hits_total",
        help: "Tokens that were found in a cache elsewhere.",
        kind: "counter",
        series: &[("", |rank| rank.load.external_hits as f64)],
    },
    Family {
        name: "vllm:mm_cache_queries_total",
        help: "Images that were looked for in their cache.",
        kind: "counter",
        series: &[("", |_| 0.0)],
    },
    Family {
        name: "vllm:mm_cache_hits_total",
        help: "Images that were found in their cache.",
        kind: "counter",
        series: &[("", |_| 0.0)],
    },
    Family {
        name: "vllm:num_preemptions_total",
        help: "Requests that were preempted.",
        kind: "counter",
        series: &[("", |rank| rank.load.preemptions as f64)],
    },
    Family {
        name: "vllm:prompt_tokens_total",
        help: "Tokens of prompts.",
        kind: "counter",
        series: &[("", |rank| rank.tally.prompt_tokens as f64)],
    },
    Family {
        name: "vllm:prompt_tokens_by_source_total",
        help: "Tokens of prompts, by where their KV came from.",
        kind: "counter",
        series: &[
            (",source=\"local_compute\"", |rank| {
                (rank.tally.prompt_tokens - rank.tally.cached_tokens) as f64
            }),
            (",source=\"local_cache_hit\"", |rank| {
                (rank.tally.cached_tokens - rank.tally.taken_tokens) as f64
            }),
            (",source=\"external_kv_transfer\"", |rank| {
                rank.tally.taken_tokens as f64
            }),
        ],
    },
    Family {
        name: "vllm:prompt_tokens_cached_total",
        help: "Tokens of prompts that came from the cache.",
        kind: "counter",
        series: &[("", |rank| rank.tally.cached_tokens as f64)],
    },
    Family {
        name: "vllm:prompt_tokens_cached_by_source_total",
        help: "Tokens of prompts that came from the cache, all counted as the device's.",
        kind: "counter",
        series: &[
            (",source=\"device\"", |rank| rank.tally.cached_tokens as f64),
            (",source=\"host\"", |_| 0.0),
            (",source=\"p2p\"", |_| 0.0),
            (",source=\"disk\"", |_| 0.0),
            (",source=\"external_unspecified\"", |_| 0.0),
        ],
    },
    Family {
        name: "vllm:generation_tokens_total",
        help: "Tokens of answers.",
        kind: "counter",
        series: &[("", |rank| rank.tally.generation_tokens as f64)],
    },
    Family {
        name: "vllm:request_success_total",
        help: "Requests that are over, by how they ended.",
        kind: "counter",
        series: &[
            (",finished_reason=\"stop\"", |rank| rank.tally.stopped as f64),
            (",finished_reason=\"length\"", |rank| rank.tally.full as f64),
            (",finished_reason=\"abort\"", |rank| rank.tally.aborted as f64),
            (",finished_reason=\"error\"", |_| 0.0),
            (",finished_reason=\"repetition\"", |_| 0.0),
        ],
    },
];

/// What it counts with a NIXL connector; and the blocks that stay, which it does not tell.
pub(super) const NIXL: &[Family] = &[
    Family {
        name: "vllm:nixl_num_failed_transfers_total",
        help: "Transfers of KV that failed.",
        kind: "counter",
        series: &[("", |rank| rank.tally.failed_transfers as f64)],
    },
    Family {
        name: "vllm:nixl_num_kv_expired_reqs_total",
        help: "Requests whose KV nobody fetched in time.",
        kind: "counter",
        series: &[("", |rank| rank.tally.expired as f64)],
    },
    super::STAGED,
];

pub(super) const NIXL_SPREADS: &[Spread] = &[
    Spread {
        name: "vllm:nixl_xfer_time_seconds",
        help: "How long KV took to come.",
        of: |rank| &rank.tally.transfer,
    },
    Spread {
        name: "vllm:nixl_bytes_transferred",
        help: "Bytes of KV that came at once.",
        of: |rank| &rank.tally.transferred,
    },
];

pub(super) const SPREADS: &[Spread] = &[
    Spread {
        name: "vllm:request_prompt_tokens",
        help: "Tokens of a prompt.",
        of: |rank| &rank.tally.prompt,
    },
    Spread {
        name: "vllm:request_generation_tokens",
        help: "Tokens of an answer.",
        of: |rank| &rank.tally.generated,
    },
    Spread {
        name: "vllm:iteration_tokens_total",
        help: "Tokens of a step.",
        of: |rank| &rank.tally.step,
    },
    Spread {
        name: "vllm:request_max_num_generation_tokens",
        help: "Tokens of the first of the answers to a request.",
        of: |rank| &rank.tally.longest,
    },
    Spread {
        name: "vllm:request_params_n",
        help: "Answers that were asked for.",
        of: |rank| &rank.tally.answers,
    },
    Spread {
        name: "vllm:request_params_max_tokens",
        help: "Tokens that were asked for at most.",
        of: |rank| &rank.tally.max_tokens,
    },
    Spread {
        name: "vllm:time_to_first_token_seconds",
        help: "Time until the first token.",
        of: |rank| &rank.tally.first_token,
    },
    Spread {
        name: "vllm:inter_token_latency_seconds",
        help: "Time between tokens.",
        of: |rank| &rank.tally.inter_token,
    },
    Spread {
        name: "vllm:request_time_per_output_token_seconds",
        help: "Mean time between the tokens of a request.",
        of: |rank| &rank.tally.per_token,
    },
    Spread {
        name: "vllm:e2e_request_latency_seconds",
        help: "Time until the last token.",
        of: |rank| &rank.tally.whole,
    },
    Spread {
        name: "vllm:request_queue_time_seconds",
        help: "Time until its turn.",
        of: |rank| &rank.tally.queued,
    },
    Spread {
        name: "vllm:request_inference_time_seconds",
        help: "Time from its turn to the last token.",
        of: |rank| &rank.tally.inference,
    },
    Spread {
        name: "vllm:request_prefill_time_seconds",
        help: "Time from its turn to the first token.",
        of: |rank| &rank.tally.prefill,
    },
    Spread {
        name: "vllm:request_decode_time_seconds",
        help: "Time from the first token to the last.",
        of: |rank| &rank.tally.decode,
    },
    Spread {
        name: "vllm:request_num_preemptions",
        help: "How often a request was preempted.",
        of: |rank| &rank.tally.preemptions,
    },
    Spread {
        name: "vllm:request_prefill_kv_computed_tokens",
        help: "Tokens of a prompt that were not cached.",
        of: |rank| &rank.tally.computed,
    },
];

/// What has labels of its own.
pub(super) fn more(out: &mut String, app: &App, ranks: &[Rank]) -> fmt::Result {
    let model = escaped(app.settings.model.as_str());
    rejections(out, &model, app)?;
    let name = "vllm:lora_requests_info";
    head(out, name, "Adapters of the requests.", "gauge")?;
    for rank in ranks {
        writeln!(
            out,
            "{name}{{max_lora=\"{}\",running_lora_adapters=\"{}\",waiting_lora_adapters=\"{}\"}} {}",
            app.settings.engine.adapters.slots,
            joined(&rank.adapters.running),
            joined(&rank.adapters.waiting),
            crate::core::unix_seconds()
        )?;
    }
    let name = "vllm:cache_config_info";
    head(out, name, "How the cache was set up.", "gauge")?;
    let engine = &app.settings.engine;
    for rank in ranks {
        let (size, blocks) = (engine.block_size.get(), engine.blocks.0);
        let caching = if app.settings.mock.prefix_caching.is_on() {
            "True"
        } else {
            "False"
        };
        writeln!(
            out,
            "{name}{{{},block_size=\"{size}\",enable_prefix_caching=\"{caching}\",num_gpu_blocks=\"{blocks}\"}} 1",
            rank.labels
        )?;
    }
    Ok(())
}

fn rejections(out: &mut String, model: &str, app: &App) -> fmt::Result {
    let refused = app.core.refused();
    let help = "Requests that were refused because too many wait.";
    for (name, kind, of_requests, of_tokens) in [
        ("vllm:admission_rejections_total", "counter", refused as f64, 0.0),
        (
            "vllm:admission_rejections_created",
            "gauge",
            app.core.started(),
            app.core.started(),
        ),
    ] {
        head(out, name, help, kind)?;
        writeln!(
            out,
            "{name}{{model_name=\"{model}\",reason=\"max_num_queued_reqs\"}} {of_requests}"
        )?;
        writeln!(
            out,
            "{name}{{model_name=\"{model}\",reason=\"max_num_queued_tokens\"}} {of_tokens}"
        )?;
    }
    Ok(())
}

fn joined(names: &[AdapterName]) -> String {
    let names: Vec<String> = names.iter().map(|name| escaped(name.as_str())).collect();
    names.join(",")
}
