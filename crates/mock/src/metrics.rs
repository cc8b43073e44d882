//! What does a scraper read? The engine's own names, for each rank.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use homing_config::MockDialect;
use homing_domain::{AdapterName, DpRank};
use homing_engine::{AdapterUse, Load};

use crate::app::App;
use crate::tally::{Histogram, Tally};

/// `/metrics`.
pub(crate) async fn page(State(app): State<Arc<App>>) -> Response {
    let kind = (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    // Writing to text does not fail.
    ([kind], render(&app).unwrap_or_default()).into_response()
}

/// What is known of a rank.
struct Rank {
    labels: String,
    load: Load,
    adapters: AdapterUse,
    tally: Tally,
}

type Number = fn(&Rank) -> f64;
/// Names, what they mean, and where they come from.
type Series = &'static [(&'static str, &'static str, Number)];
type Times = fn(&Rank) -> &Histogram;

const VLLM_GAUGES: [(&str, &str, Number); 4] = [
    (
        "vllm:num_requests_running",
        "Number of requests in model execution batches.",
        |rank| f64::from(rank.load.running),
    ),
    (
        "vllm:num_requests_waiting",
        "Number of requests waiting to be processed.",
        |rank| f64::from(rank.load.waiting),
    ),
    (
        "vllm:kv_cache_usage_perc",
        "KV-cache usage. 1 means 100 percent usage.",
        |rank| rank.load.blocks.usage(),
    ),
    ("vllm:engine_sleep_state", "Engine sleep state.", |_| 0.0),
];

const VLLM_COUNTERS: [(&str, &str, Number); 5] = [
    (
        "vllm:prefix_cache_queries_total",
        "Prefix cache queries, in terms of number of queried tokens.",
        |rank| rank.load.prefix_queries as f64,
    ),
    (
        "vllm:prefix_cache_hits_total",
        "Prefix cache hits, in terms of number of cached tokens.",
        |rank| rank.load.prefix_hits as f64,
    ),
    (
        "vllm:num_preemptions_total",
        "Cumulative number of preemption from the engine.",
        |rank| rank.load.preemptions as f64,
    ),
    (
        "vllm:prompt_tokens_total",
        "Number of prefill tokens processed.",
        |rank| rank.tally.prompt_tokens as f64,
    ),
    (
        "vllm:generation_tokens_total",
        "Number of generation tokens processed.",
        |rank| rank.tally.generation_tokens as f64,
    ),
];

const SGLANG_GAUGES: [(&str, &str, Number); 5] = [
    ("sglang:num_running_reqs", "The number of running requests.", |rank| {
        f64::from(rank.load.running)
    }),
    (
        "sglang:num_queue_reqs",
        "The number of requests in the waiting queue.",
        |rank| f64::from(rank.load.waiting),
    ),
    ("sglang:token_usage", "The token usage.", |rank| {
        rank.load.blocks.usage()
    }),
    ("sglang:num_used_tokens", "The number of used tokens.", |rank| {
        f64::from(rank.load.blocks.active)
    }),
    ("sglang:cache_hit_rate", "The prefix cache hit rate.", |rank| {
        rank.load.prefix_hits as f64 / (rank.load.prefix_queries.max(1)) as f64
    }),
];

const SGLANG_COUNTERS: [(&str, &str, Number); 5] = [
    (
        "sglang:prompt_tokens_total",
        "Number of prefill tokens processed.",
        |rank| rank.tally.prompt_tokens as f64,
    ),
    (
        "sglang:generation_tokens_total",
        "Number of generation tokens processed.",
        |rank| rank.tally.generation_tokens as f64,
    ),
    (
        "sglang:cached_tokens_total",
        "Number of cached prompt tokens.",
        |rank| rank.tally.cached_tokens as f64,
    ),
    ("sglang:num_requests_total", "Number of requests processed.", |rank| {
        (rank.tally.stopped + rank.tally.full) as f64
    }),
    (
        "sglang:num_retractions_total",
        "Number of retracted requests.",
        |rank| rank.load.preemptions as f64,
    ),
];

const TIMES: [(&str, &str, Times); 3] = [
    (
        "time_to_first_token_seconds",
        "Histogram of time to first token in seconds.",
        |rank| &rank.tally.first_token,
    ),
    (
        "inter_token_latency_seconds",
        "Histogram of inter-token latency in seconds.",
        |rank| &rank.tally.inter_token,
    ),
    (
        "e2e_request_latency_seconds",
        "Histogram of e2e request latency in seconds.",
        |rank| &rank.tally.whole,
    ),
];

fn render(app: &App) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let ranks: Vec<Rank> = (0..app.settings.engine.ranks)
        .filter_map(|rank| seen(app, DpRank(rank)))
        .collect();
    let (gauges, counters, prefix): (Series, Series, &str) = match app.dialect() {
        MockDialect::Vllm => (&VLLM_GAUGES, &VLLM_COUNTERS, "vllm"),
        MockDialect::Sglang => (&SGLANG_GAUGES, &SGLANG_COUNTERS, "sglang"),
    };
    for (kind, numbers) in [("gauge", gauges), ("counter", counters)] {
        for (name, help, number) in numbers {
            head(&mut out, name, help, kind)?;
            for rank in &ranks {
                writeln!(out, "{name}{{{}}} {}", rank.labels, number(rank))?;
            }
        }
    }
    for (name, help, times) in TIMES {
        let name = format!("{prefix}:{name}");
        head(&mut out, &name, help, "histogram")?;
        for rank in &ranks {
            histogram(&mut out, &name, &rank.labels, times(rank))?;
        }
    }
    if app.dialect() == MockDialect::Vllm {
        vllm_only(&mut out, app, &ranks)?;
    }
    head(
        &mut out,
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        "gauge",
    )?;
    writeln!(out, "process_start_time_seconds {}", app.core.started())?;
    Ok(out)
}

fn seen(app: &App, rank: DpRank) -> Option<Rank> {
    let model = escaped(app.settings.model.as_str());
    let labels = match app.dialect() {
        MockDialect::Vllm => format!("engine=\"{}\",model_name=\"{model}\"", rank.0),
        MockDialect::Sglang => format!("dp_rank=\"{}\",model_name=\"{model}\"", rank.0),
    };
    app.core.look(rank, |load, adapters, tally| Rank {
        labels,
        load: *load,
        adapters: adapters.clone(),
        tally: tally.clone(),
    })
}

fn vllm_only(out: &mut String, app: &App, ranks: &[Rank]) -> fmt::Result {
    let name = "vllm:request_success_total";
    head(out, name, "Count of successfully processed requests.", "counter")?;
    for rank in ranks {
        for (reason, count) in [("stop", rank.tally.stopped), ("length", rank.tally.full), ("abort", 0)] {
            writeln!(out, "{name}{{{},finished_reason=\"{reason}\"}} {count}", rank.labels)?;
        }
    }
    let name = "vllm:lora_requests_info";
    head(out, name, "Running stats on lora requests.", "gauge")?;
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
    head(out, name, "Information of the LLMEngine CacheConfig.", "gauge")?;
    let engine = &app.settings.engine;
    for rank in ranks {
        let (size, blocks) = (engine.block_size.get(), engine.blocks.0);
        writeln!(
            out,
            "{name}{{{},block_size=\"{size}\",enable_prefix_caching=\"True\",num_gpu_blocks=\"{blocks}\"}} 1",
            rank.labels
        )?;
    }
    Ok(())
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) -> fmt::Result {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

fn histogram(out: &mut String, name: &str, labels: &str, times: &Histogram) -> fmt::Result {
    for (end, count) in times.cumulative() {
        writeln!(out, "{name}_bucket{{{labels},le=\"{end:?}\"}} {count}")?;
    }
    writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", times.count)?;
    writeln!(
        out,
        "{name}_count{{{labels}}} {}\n{name}_sum{{{labels}}} {}",
        times.count, times.sum
    )
}

fn joined(names: &[AdapterName]) -> String {
    let names: Vec<String> = names.iter().map(|name| escaped(name.as_str())).collect();
    names.join(",")
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
