//! What operators ask: who is there and how, why requests went where they went, metrics; and what they order: drain a worker.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use homing_config::CacheView;
use homing_discovery::{StallState, State as Health};
use homing_doctor::Severity;
use homing_domain::{BlockSize, RankId, excerpt};
use homing_profile::Time;
use homing_telemetry::FoundSeverity;
use homing_wire::Dialect;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::gateway::Gateway;
use crate::progress::monitor;
use crate::rows::{self, RankRow};
use crate::truth::Feature;
use crate::worker::Worker;

/// Predictions before anything is said about them.
const ENOUGH: u64 = 16;
/// Decisions in one answer, unless fewer are asked for.
const DECISIONS: usize = 100;

/// All that is answered on the admin listener.
pub(crate) fn routes(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/health", get(async || "ok\n"))
        .route("/live", get(async || "ok\n"))
        .route("/ready", get(ready))
        .route("/health/live", get(async || "ok\n"))
        .route("/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/admin/decisions", get(decisions))
        .route("/admin/fleet", get(fleet))
        .route("/admin/drain", post(drain))
        .route("/admin/undrain", post(undrain))
        .with_state(gateway)
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    match gateway.not_ready() {
        None => "ready\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response(),
    }
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    let table = gateway.table.load();
    let severities = [
        (Severity::Note, FoundSeverity::Note),
        (Severity::Warning, FoundSeverity::Warning),
        (Severity::Fault, FoundSeverity::Fault),
    ];
    for (severity, label) in severities {
        let of_one = |worker: &Arc<Worker>| {
            let findings = worker.findings.get().into_iter().flatten();
            findings.filter(|finding| finding.severity == severity).count()
        };
        let count: usize = table.workers.values().map(of_one).sum();
        gateway.metrics.gateway.open_findings.of(label).set(count as u64);
    }
    let mut page = gateway.metrics.render();
    let numbers = rows::numbers(&table, gateway.clock.now());
    let each = numbers
        .iter()
        .map(|(worker, rank, numbers)| (&**worker, *rank, *numbers));
    homing_telemetry::workers::render_into(each, &mut page);
    (kind, page).into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    id: Option<String>,
    worker: Option<String>,
    model: Option<String>,
    session: Option<String>,
    limit: Option<usize>,
}

async fn decisions(State(gateway): State<Arc<Gateway>>, Query(which): Query<Which>) -> Json<Value> {
    let fits = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
    let most = which.limit.unwrap_or(DECISIONS);
    let found = gateway.records.newest(most, |record| {
        let told = record.told();
        let worker = told.tries.last().map_or("", |last| &last.worker);
        fits(&which.id, record.id.as_str())
            && fits(&which.model, &record.model)
            && fits(&which.worker, worker)
            && fits(&which.session, record.session.as_deref().unwrap_or_default())
    });
    let decisions: Vec<Value> = found.iter().map(|record| record.json()).collect();
    Json(json!({ "decisions": decisions }))
}

async fn fleet(State(gateway): State<Arc<Gateway>>) -> Json<Value> {
    let table = gateway.table.load();
    let now = gateway.clock.now();
    let rows = rows::rows(&table, now);
    let workers: Vec<Value> = table
        .workers
        .values()
        .map(|worker| described(worker, &rows, now))
        .collect();
    let drift: Vec<Value> = Feature::ALL
        .into_iter()
        .map(|feature| {
            let (equal, other) = gateway.drift.counts(feature);
            json!({ "feature": feature.name(), "equal": equal, "other": other })
        })
        .collect();
    let models: Vec<&String> = table.models.keys().collect();
    let metrics = &gateway.metrics.gateway;
    let queue = json!({
        "running": metrics.running_requests.get(),
        "waiting": metrics.waiting_requests.get(),
        "staged_blocks": table.lanes().iter().map(|lane| lane.router.staged_blocks()).sum::<u64>(),
    });
    Json(json!({
        "ready": gateway.is_ready(),
        "not_ready": gateway.not_ready(),
        "uptime_ms": now.millis() as u64,
        "models": models,
        "queue": queue,
        "workers": workers,
        "prompt_counts": drift,
    }))
}

fn described(worker: &Worker, rows: &HashMap<RankId, RankRow>, now: Time) -> Value {
    let truth = worker.truth.counts();
    let (served, failed) = worker.counts();
    let standing = worker.lane.keeper.standing();
    let ranks: Vec<Value> = worker
        .ranks()
        .map(|rank| {
            let status = standing.rank(rank);
            let row = rows.get(&rank).copied().unwrap_or_default();
            json!({
                "rank": rank.dp.0,
                "view": match (status, worker.spec.cache_view) {
                    (Some(status), _) => status.state.name(),
                    (None, CacheView::Approximate) => "guess",
                    (None, _) => "none",
                },
                "running": row.running,
                "waiting": row.waiting,
                "booked": row.booked,
                "pending_tokens": row.pending_tokens,
                "backlog_ms": row.backlog_ms,
                "used_blocks": row.used_blocks,
                "usage": row.usage,
            })
        })
        .collect();
    let unlearnt: Vec<String> = worker
        .facts
        .unlearnt
        .iter()
        .map(|unlearnt| format!("{}: {}", unlearnt.fact, unlearnt.why))
        .collect();
    json!({
        "number": worker.id.0,
        "url": &*worker.name,
        "model": worker.spec.model.as_str(),
        "block_size": worker.spec.block_size.get(),
        "dialect": format!("{:?}", worker.spec.dialect).to_lowercase(),
        "version": worker.facts.version,
        "health": health_of(worker),
        "stall": stall_of(worker, now),
        "draining": worker.is_draining(),
        "in_flight": worker.in_flight(),
        "served": served,
        "failed": failed,
        "ranks": ranks,
        "truth": {
            "state": if truth.compared() == 0 && truth.unsaid > 0 { "unavailable" } else { "available" },
            "equal": truth.equal,
            "less": truth.less,
            "more": truth.more,
            "unsaid": truth.unsaid,
            "prompt_tokens": truth.prompt_tokens,
            "predicted_tokens": truth.predicted_tokens,
            "cached_tokens": truth.cached_tokens,
        },
        "checked": worker.findings.get().is_some(),
        "findings": worker.findings.get().cloned().unwrap_or_default(),
        "diagnosis": diagnosis(worker),
        "remarks": worker.remarks,
        "unlearnt": unlearnt,
    })
}

/// Whether a worker serves, in a word. A worker that hangs is `stalled` until it goes on, goes down or is tried again.
fn health_of(worker: &Worker) -> &'static str {
    match worker.state() {
        Health::Down { .. } => "down",
        Health::HalfOpen { .. } => "half_open",
        Health::Up | Health::Suspect if worker.is_stalled() => "stalled",
        Health::Suspect => "suspect",
        Health::Up if worker.progress.worst() != StallState::Progressing => "suspect",
        Health::Up => "up",
    }
}

/// Which stall a worker shows, and since when.
fn stall_of(worker: &Worker, now: Time) -> Value {
    let state = worker.progress.worst();
    let (name, since) = match state {
        StallState::Progressing => return Value::Null,
        StallState::Suspected { since } => ("suspected", since),
        StallState::Ejected { since, .. } => ("ejected", since),
    };
    json!({ "state": name, "reason": monitor::reason(state), "for_ms": now.since(since).0 as u64 })
}

/// What is wrong with what we know of a worker, in words.
fn diagnosis(worker: &Worker) -> Option<String> {
    let truth = worker.truth.counts();
    let name = &worker.name;
    if truth.compared() == 0 && truth.unsaid > 0 {
        let flag = match worker.spec.dialect {
            Dialect::Sglang => "--enable-cache-report",
            _ => "--enable-prompt-tokens-details",
        };
        return Some(format!(
            "worker {name} does not say how many tokens came from its cache; start it with {flag}"
        ));
    }
    if truth.compared() < ENOUGH || truth.less * 2 < truth.compared() {
        return None;
    }
    let ours = worker.spec.block_size.get();
    let theirs = worker.facts.block_size.map(BlockSize::get);
    let why = match theirs {
        Some(theirs) if theirs % ours != 0 => format!("block size {ours} here, {theirs} there"),
        _ => format!("{} of {} predictions were too high", truth.less, truth.compared()),
    };
    Some(format!("worker {name} seldom serves the prefix we predict: {why}"))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    worker: String,
}

async fn drain(State(gateway): State<Arc<Gateway>>, Query(named): Query<Named>) -> Response {
    set_draining(&gateway, &named.worker, true)
}

async fn undrain(State(gateway): State<Arc<Gateway>>, Query(named): Query<Named>) -> Response {
    set_draining(&gateway, &named.worker, false)
}

fn set_draining(gateway: &Gateway, name: &str, draining: bool) -> Response {
    let table = gateway.table.load();
    let Some(worker) = table.worker(name) else {
        let message = format!("there is no worker `{}`", excerpt(name));
        return (StatusCode::NOT_FOUND, Json(json!({ "error": { "message": message } }))).into_response();
    };
    worker.set_draining(draining);
    tracing::info!(worker = %worker.name, draining, "was told by an operator");
    Json(json!({ "url": &*worker.name, "draining": draining, "in_flight": worker.in_flight() })).into_response()
}
