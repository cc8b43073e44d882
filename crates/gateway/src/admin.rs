//! What operators ask: who is there and how, why requests went where they went, metrics; and what they order: drain a worker.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use homing_discovery::State as Health;
use homing_domain::BlockSize;
use homing_wire::Dialect;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::gateway::Gateway;
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
        .route("/metrics", get(metrics))
        .route("/admin/decisions", get(decisions))
        .route("/admin/fleet", get(fleet))
        .route("/admin/drain", post(drain))
        .route("/admin/undrain", post(undrain))
        .with_state(gateway)
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response {
    if gateway.is_ready() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "no worker takes requests\n").into_response()
    }
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, gateway.metrics.render()).into_response()
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
    let workers: Vec<Value> = table.workers.values().map(|worker| described(worker)).collect();
    let drift: Vec<Value> = Feature::ALL
        .into_iter()
        .map(|feature| {
            let (equal, other) = gateway.drift.counts(feature);
            json!({ "feature": feature.name(), "equal": equal, "other": other })
        })
        .collect();
    let models: Vec<&String> = table.models.keys().collect();
    Json(json!({ "ready": gateway.is_ready(), "models": models, "workers": workers, "prompt_counts": drift }))
}

fn described(worker: &Worker) -> Value {
    let truth = worker.truth.counts();
    let (served, failed) = worker.counts();
    let standing = worker.lane.keeper.standing();
    let ranks: Vec<Value> = worker
        .ranks()
        .map(|rank| {
            let status = standing.rank(rank);
            json!({
                "rank": rank.dp.0,
                "view": status.map_or("none", |status| status.state.name()),
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
        "health": match worker.state() {
            Health::Up => "up",
            Health::Suspect => "suspect",
            Health::Down { .. } => "down",
            Health::HalfOpen { .. } => "half_open",
        },
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
            "predicted_tokens": truth.predicted_tokens,
            "cached_tokens": truth.cached_tokens,
        },
        "diagnosis": diagnosis(worker),
        "remarks": worker.remarks,
        "unlearnt": unlearnt,
    })
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
        let message = format!("there is no worker `{name}`");
        return (StatusCode::NOT_FOUND, Json(json!({ "error": { "message": message } }))).into_response();
    };
    worker.set_draining(draining);
    tracing::info!(worker = %worker.name, draining, "was told by an operator");
    Json(json!({ "url": &*worker.name, "draining": draining, "in_flight": worker.in_flight() })).into_response()
}
