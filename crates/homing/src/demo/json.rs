//! What did the demo measure, for a script?

use homing_config::Config;
use serde_json::{Value, json};

use super::Report;
use super::placement::Served;

/// One JSON object.
pub fn object(config: &Config, report: &Report) -> String {
    let Report {
        size,
        speed,
        restart,
        hole,
        ..
    } = report;
    let object = json!({
        "seed": config.demo.seed,
        "fleet": {
            "workers": config.demo.workers,
            "cache_blocks": config.demo.cache.0,
            "block_size_tokens": config.block_size.get(),
        },
        "round_robin": served(&report.round_robin),
        "homing": served(&report.homing),
        "index": {
            "distinct_blocks": size.blocks,
            "entries": size.entries,
            "runs": size.runs,
            "bytes": size.bytes,
            "bytes_when_empty": size.bytes_when_empty,
            "bytes_per_entry": size.bytes_per_entry(),
            "events_applied": size.events,
            "lookups_per_second": speed.lookups_per_second,
            "prompts_per_second_from_tokens": speed.prompts_per_second,
            "mean_prompt_blocks": speed.mean_blocks.0,
        },
        "restart": {
            "worker": restart.worker,
            "lost_blocks": restart.lost.0,
            "depth_before": restart.before.0,
            "depth_after": restart.after.0,
            "depth_served_again": restart.again.0,
        },
        "hole": {
            "worker": hole.worker,
            "at_block": hole.at,
            "depth_before": hole.before.0,
            "depth_cut": hole.cut.0,
            "depth_repaired": hole.repaired.0,
        },
        "checked_answers": report.checked_answers(),
        "wrong_answers": report.wrong_answers(),
    });
    object.to_string()
}

fn served(served: &Served) -> Value {
    let workers: Vec<Value> = served
        .per_worker
        .iter()
        .map(|share| {
            json!({
                "requests": share.requests,
                "prompt_blocks": share.prompt_blocks,
                "cached_blocks": share.cached,
                "holds_blocks": share.holds.0,
            })
        })
        .collect();
    json!({
        "requests": served.requests,
        "prompt_tokens": served.prompt_tokens,
        "prompt_blocks": served.prompt_blocks,
        "cached_blocks": served.cached,
        "share_cached": served.share_cached(),
        "mean_blocks_before_first_token": served.mean_work_ahead(),
        "workers": workers,
    })
}
