//! The figures of a replay as one JSON object. `docs/replay.md` says what each means.

use homing_sim::study::{Quantiles, Tally};
use serde_json::{Value, json};

use super::Told;
use super::plan::Plan;
use super::run::{PolicyRuns, Run};
use super::stats::interval;

/// The object.
pub fn object(plan: &Plan, told: &Told) -> Value {
    let policies: Vec<Value> = told.policies.iter().map(|runs| policy(plan, runs)).collect();
    let summary = &plan.survey.summary;
    let mut object = json!({
        "command": "replay",
        "trace": {
            "name": plan.source.name(),
            "requests": summary.requests,
            "span_s": summary.span.millis() / 1e3,
            "prompt_tokens": summary.prompt_tokens,
            "output_tokens": summary.output_tokens,
            "cached_share_of_blocks": summary.cached_share_of_blocks(),
            "workers_filled": plan.survey.workers_filled(),
        },
        "traffic": {
            "copies": plan.mix.copies,
            "last_copy_kept": plan.mix.last_kept,
            "requests": plan.requests(),
            "load_asked": plan.asked,
            "load": plan.mix.load,
            "warmup_s": plan.counted.since.millis() / 1e3,
            "counted_until_s": plan.counted.until.map(|until| until.millis() / 1e3),
            "working_set_blocks": plan.working_set,
        },
        "fleet": fleet(plan),
        "slo": {"ttft_ms": finite(plan.slo.ttft.0), "itl_ms": finite(plan.slo.itl.0)},
        "bounds": {
            "mean_ttft_ms": plan.yardstick.mean_ttft().map(|mean| mean.0),
            "shortest_first_ms": plan.yardstick.shortest_first.map(|mean| mean.0),
            "alone_ms": plan.yardstick.alone.map(|mean| mean.0),
        },
        "policies": policies,
        "elapsed_s": told.elapsed.as_secs_f64(),
        "peak_rss_mib": told.peak_rss_mib,
    });
    if let Some(found) = &told.best_found {
        object["best_found"] = json!({
            "tries": found.tries,
            "begun_with": found.begun_with,
            "seed": plan.setup.seed,
            "requests": plan.requests(),
        });
    }
    object
}

fn fleet(plan: &Plan) -> Value {
    let setup = &plan.setup;
    let faults: Vec<Value> = setup
        .faults
        .iter()
        .map(
            |fault| json!({"kind": fault.kind.name(), "at_s": fault.at.millis() / 1e3, "lasts_s": fault.lasts.0 / 1e3}),
        )
        .collect();
    json!({
        "workers": setup.workers.count,
        "prefill": setup.split.as_ref().map(|split| split.prefill),
        "decode": setup.split.as_ref().map(|split| setup.workers.count - split.prefill),
        "blocks": setup.workers.engine.blocks.0,
        "block_size": setup.workers.engine.block_size.get(),
        "profile": plan.profiles.0,
        "believed_profile": plan.profiles.1,
        "routers": setup.routers.count,
        "event_lag_ms": setup.links.event_lag.0,
        "start_within_ms": setup.routers.config.start_within.0,
        "seed": setup.seed,
        "faults": faults,
    })
}

fn policy(plan: &Plan, runs: &PolicyRuns) -> Value {
    let tally = &runs.tally;
    let (counts, of) = (&tally.counts, plan.yardstick.ladder);
    let bound = plan.yardstick.mean_ttft().map_or(0.0, |mean| mean.0);
    let mut object = json!({
        "policy": runs.policy,
        "completed": counts.completed,
        "failed": counts.failed,
        "given_up": counts.given_up,
        "warmup": counts.warmup,
        "late": counts.late,
        "retries": counts.retries,
        "ttft_ms": quantiles(&tally.ttft),
        "itl_ms": quantiles(&tally.itl),
        "e2e_ms": quantiles(&tally.e2e),
        "queued_ms": quantiles(&tally.queued),
        "queued_share": share(counts.queued, counts.completed),
        "goodput_rps": mean(runs, |run| run.tally.per_second(run.tally.counts.good)),
        "good_share": share(counts.good, counts.completed + counts.failed + counts.given_up),
        "requests_per_s": mean(runs, |run| run.tally.per_second(run.tally.counts.completed)),
        "output_tokens_per_s": mean(runs, |run| run.tally.per_second(run.tally.counts.output_tokens)),
        "cached_share": tally.cached_share(),
        "ladder": {
            "infinite_cache": of.infinite_cache,
            "pooled_capacity": of.pooled_capacity,
            "predicted": tally.predicted_share(),
            "actual": tally.cached_share(),
        },
        "imbalance": mean(runs, |run| run.tally.imbalance()),
        "work_imbalance": mean(runs, |run| run.tally.work_imbalance()),
        "preemptions": runs.runs.iter().map(|run| run.outcome.preemptions).sum::<u64>(),
        "ttft_error_median": tally.error.at(0.5),
        "overpromised_share": tally.overpromised_share(),
        "mean_ttft_over_bound": (bound > 0.0).then(|| tally.ttft.mean() / bound),
    });
    if plan.setup.split.is_some() {
        let sum = |of: fn(&Run) -> u64| runs.runs.iter().map(of).sum::<u64>();
        object["staged_blocks_left"] = json!(sum(|run| run.outcome.staged_blocks_left));
        object["pairs"] = json!(sum(|run| run.outcome.split.pairs));
        object["whole"] = json!(sum(|run| run.outcome.split.whole));
        object["kv_moved_gb"] = json!(sum(|run| run.outcome.split.bytes) as f64 / 1e9);
        object["kv_lapsed"] = json!(sum(|run| run.outcome.split.lapsed));
    }
    object["seeds"] = runs.runs.iter().map(seed).collect();
    if runs.runs.len() > 1 {
        object["ci95"] = json!({
            "ttft_ms_p50": interval(runs, |tally| tally.ttft.at(0.5)),
            "ttft_ms_p99": interval(runs, |tally| tally.ttft.at(0.99)),
            "goodput_rps": interval(runs, |tally| tally.per_second(tally.counts.good)),
        });
    }
    object
}

fn seed(run: &Run) -> Value {
    let tally = &run.tally;
    json!({
        "seed": run.seed,
        "ttft_ms": quantiles(&tally.ttft),
        "itl_ms": quantiles(&tally.itl),
        "goodput_rps": tally.per_second(tally.counts.good),
        "cached_share": tally.cached_share(),
        "hash": format!("{:016x}", run.outcome.hash),
    })
}

/// The mean of a figure over all seeds.
pub fn mean(runs: &PolicyRuns, figure: impl Fn(&Run) -> f64) -> f64 {
    runs.runs.iter().map(figure).sum::<f64>() / runs.runs.len() as f64
}

/// The share of requests that were within the objectives.
pub fn good_share(tally: &Tally) -> f64 {
    let counts = &tally.counts;
    share(counts.good, counts.completed + counts.failed + counts.given_up)
}

fn quantiles(of: &Quantiles) -> Value {
    json!({"mean": of.mean(), "p50": of.at(0.5), "p90": of.at(0.9), "p99": of.at(0.99)})
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// JSON has no word for what has no limit.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
