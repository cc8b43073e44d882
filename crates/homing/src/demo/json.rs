//! What was measured, for a script?

use homing_config::Config;
use serde_json::{Value, json};

use super::times::Times;
use super::{End, Happened, Outcome, Report};

/// All of it in one object.
pub fn object(config: &Config, report: &Report) -> Value {
    let demo = &config.demo;
    let (failed, wrong) = report.failed_and_wrong();
    json!({
        "seed": demo.seed,
        "duration_ms": millis(demo.duration.as_secs_f64()),
        "workers": demo.workers,
        "users": demo.users,
        "cache_tokens": u64::from(demo.cache.0) * u64::from(config.block_size.get()),
        "profile": config.mock.profile,
        "speedup": config.mock.speedup,
        "interrupted": report.end == End::Interrupted,
        "phases": report.phases.iter().map(phase).collect::<Vec<_>>(),
        "failed": failed,
        "failure": report.failure(),
        "answers": {
            "compared": report.compared.answers,
            "moved": report.compared.moved,
            "wrong": wrong,
        },
    })
}

fn phase(outcome: &Outcome) -> Value {
    let Outcome {
        phase, tally, counters, ..
    } = outcome;
    let first = Times::of(&tally.first).map(|times| {
        json!({
            "mean": times.mean,
            "p50": times.p50,
            "p90": times.p90,
            "p99": times.p99,
        })
    });
    let mut object = json!({
        "name": phase.name(),
        "policy": outcome.policy,
        "took_ms": millis(outcome.took.as_secs_f64()),
        "completed": tally.completed,
        "failed": tally.failed,
        "cached_share": tally.cached_share(),
        "prompt_tokens": tally.prompt_tokens,
        "cached_tokens": tally.cached_tokens,
        "ttft_ms": first,
        "retried": counters.retried,
        "migrated": counters.migrated,
        "events": counters.events,
        "repairs": counters.repairs,
        "predictions": { "right": counters.right, "all": counters.predicted },
        "served_by_worker": tally.served,
    });
    match outcome.happened {
        Happened::Nothing => {}
        Happened::Killed { worker, answering } => {
            object["killed"] = json!({ "worker": worker, "answering": answering });
        }
        Happened::Added { worker, after } => {
            object["added"] = json!({ "worker": worker, "ready_after_ms": millis(after.as_secs_f64()) });
        }
    }
    object
}

fn millis(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}
