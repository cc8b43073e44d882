//! What did the demo measure, for a script?

use homing_config::{CacheView, Config};
use serde_json::{Value, json};

use super::fleet::MS_BETWEEN_REQUESTS;
use super::hot::Hot;
use super::placement::Served;
use super::view::Size;
use super::{Exact, Guess, Informed, Report};

/// One JSON object. Fields of another view of the caches are left out.
pub fn object(config: &Config, report: &Report) -> String {
    let mut object = json!({
        "seed": config.demo.seed,
        "cache_view": CacheView::CHOICES[config.index.cache_view as usize].name,
        "fleet": {
            "workers": config.demo.workers,
            "cache_blocks": config.demo.cache.0,
            "block_size_tokens": config.block_size.get(),
        },
        "ms_between_requests": MS_BETWEEN_REQUESTS,
        "round_robin": served(&report.round_robin),
        "checked_answers": report.checked_answers(),
        "wrong_answers": report.wrong_answers(),
    });
    match &report.informed {
        Informed::Events(exact) => add_exact(&mut object, exact),
        Informed::Approximate(guess) => add_guess(&mut object, config, guess),
        Informed::None(by_load) => object["by_load"] = served(by_load),
    }
    object.to_string()
}

fn add_exact(object: &mut Value, exact: &Exact) {
    let Exact {
        speed, restart, hole, ..
    } = exact;
    object["homing"] = served(&exact.homing);
    let mut index = size(&exact.size);
    index["events_applied"] = json!(exact.size.events);
    index["lookups_per_second"] = json!(speed.lookups_per_second);
    index["prompts_per_second_from_tokens"] = json!(speed.prompts_per_second);
    index["mean_prompt_blocks"] = json!(speed.mean_blocks.0);
    object["index"] = index;
    object["hot_prefixes"] = exact.hot.iter().map(hot).collect();
    object["restart"] = json!({
        "worker": restart.worker,
        "lost_blocks": restart.lost.0,
        "depth_before": restart.before.0,
        "depth_after": restart.after.0,
        "depth_served_again": restart.again.0,
    });
    object["hole"] = json!({
        "worker": hole.worker,
        "at_block": hole.at,
        "depth_before": hole.before.0,
        "depth_cut": hole.cut.0,
        "depth_repaired": hole.repaired.0,
    });
}

fn add_guess(object: &mut Value, config: &Config, guess: &Guess) {
    let guessed = &guess.guessed;
    let mut approximate = served(guessed);
    approximate["ttl_ms"] = json!(config.approximate.ttl.as_millis() as u64);
    approximate["answers"] = json!(guessed.checked);
    approximate["answers_too_high"] = json!(guessed.too_high);
    approximate["answers_too_low"] = json!(guessed.too_low);
    approximate["blocks_not_there_where_sent"] = json!(guessed.missed);
    approximate["blocks_not_known_where_sent"] = json!(guessed.unknown);
    approximate["index"] = size(&guess.size);
    object["approximate"] = approximate;
    object["homing"] = served(&guess.homing);
}

fn size(size: &Size) -> Value {
    json!({
        "distinct_blocks": size.blocks,
        "entries": size.entries,
        "runs": size.runs,
        "bytes": size.bytes,
        "bytes_when_empty": size.bytes_when_empty,
        "bytes_per_entry": size.bytes_per_entry(),
    })
}

fn hot(hot: &Hot) -> Value {
    json!({
        "system_prompt": hot.system_prompt,
        "blocks": hot.blocks.0,
        "recent_uses": hot.uses,
    })
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
