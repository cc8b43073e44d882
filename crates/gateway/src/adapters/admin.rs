//! What operators ask and order about adapters.
//!
//! ```text
//! GET    /admin/adapters
//! POST   /admin/adapters         {"name": "sql", "path": "/adapters/sql", "pinned": false, "model": "llama"}
//! DELETE /admin/adapters/NAME
//! ```
//!
//! **Invariant:** a body is read up to [`MAX_BODY`] bytes, and what cannot be understood changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get};
use axum::{Json, Router};
use bytes::Bytes;
use homing_adapters::{Pinned, Standing, When, check_name};
use homing_config::AdapterMode;
use homing_domain::{WorkerId, excerpt_to};
use homing_protocol::problem::MAX_MESSAGE_BYTES;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::is_source;
use super::orders::{Order, OrderProblem};
use super::shelf::Shown;
use crate::gateway::Gateway;
use crate::lane::Lane;
use crate::table::Table;

/// The longest body, in bytes.
const MAX_BODY: usize = 16 << 10;

#[derive(Clone, Debug)]
struct Desk {
    gateway: Arc<Gateway>,
    orders: mpsc::Sender<Order>,
}

/// All that is answered about adapters.
pub(crate) fn routes(gateway: Arc<Gateway>, orders: mpsc::Sender<Order>) -> Router {
    Router::new()
        .route("/admin/adapters", get(list).post(register))
        .route("/admin/adapters/{*name}", delete(unregister))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Desk { gateway, orders })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    name: String,
    #[serde(alias = "uri")]
    path: Option<String>,
    #[serde(default)]
    pinned: bool,
    model: Option<String>,
}

async fn register(State(desk): State<Desk>, body: Bytes) -> Response {
    let asked: Asked = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(error) => {
            let message = format!("the body must be a JSON object with `name` and `path`: {error}");
            return refused(StatusCode::BAD_REQUEST, &message);
        }
    };
    if !is_managed(&desk.gateway) {
        return problem(&OrderProblem::NotManaged);
    }
    let name = match check_name(&asked.name) {
        Ok(name) => name,
        Err(bad) => return problem(&bad.into()),
    };
    let Some(source) = asked.path.filter(|path| is_source(path)) else {
        return problem(&OrderProblem::Source);
    };
    let (reply, done) = oneshot::channel();
    let order = Order::Register {
        name,
        model: asked.model,
        source: source.into(),
        pinned: if asked.pinned { Pinned::Yes } else { Pinned::No },
        reply,
    };
    answer(&desk, order, done, json!({ "name": asked.name, "registered": true })).await
}

async fn unregister(State(desk): State<Desk>, Path(name): Path<String>) -> Response {
    if !is_managed(&desk.gateway) {
        return problem(&OrderProblem::NotManaged);
    }
    let checked = match check_name(&name) {
        Ok(name) => name,
        Err(bad) => return problem(&bad.into()),
    };
    let (reply, done) = oneshot::channel();
    let order = Order::Unregister { name: checked, reply };
    answer(&desk, order, done, json!({ "name": name, "registered": false })).await
}

type Done = oneshot::Receiver<Result<(), OrderProblem>>;

async fn answer(desk: &Desk, order: Order, done: Done, said: Value) -> Response {
    if desk.orders.send(order).await.is_err() {
        return problem(&OrderProblem::Ending);
    }
    match done.await {
        Ok(Ok(())) => Json(said).into_response(),
        Ok(Err(why)) => problem(&why),
        Err(_) => problem(&OrderProblem::Ending),
    }
}

fn is_managed(gateway: &Gateway) -> bool {
    gateway.config.load().serve.adapters == AdapterMode::Manage
}

fn problem(why: &OrderProblem) -> Response {
    let status = match why {
        OrderProblem::Unknown(..) => StatusCode::NOT_FOUND,
        OrderProblem::NotManaged | OrderProblem::IsModel(_) => StatusCode::CONFLICT,
        OrderProblem::Full(_) | OrderProblem::Unwritten(_) | OrderProblem::Ending => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    };
    refused(status, &why.to_string())
}

fn refused(status: StatusCode, message: &str) -> Response {
    let message = excerpt_to(message, MAX_MESSAGE_BYTES);
    (status, Json(json!({ "error": { "message": message } }))).into_response()
}

/// Adapter by worker, for each model: what a dashboard draws.
async fn list(State(desk): State<Desk>) -> Json<Value> {
    let table = desk.gateway.table.load();
    let models: Vec<Value> = table.lanes().into_iter().map(|lane| of_lane(lane, &table)).collect();
    let config = desk.gateway.config.load();
    Json(json!({
        "mode": config.serve.adapters.name(),
        "method": config.adapters.method.name(),
        "models": models,
    }))
}

fn of_lane(lane: &Arc<Lane>, table: &Table) -> Value {
    let shown = lane.shelf.shown(lane.now());
    let names: BTreeMap<WorkerId, &str> = table.workers.iter().map(|(id, worker)| (*id, &*worker.name)).collect();
    let adapters: Vec<Value> = shown
        .adapters
        .iter()
        .map(|standing| adapter(standing, &shown, &names))
        .collect();
    let residency = shown.manager.residency();
    let workers = table.workers.values().filter(|worker| Arc::ptr_eq(&worker.lane, lane));
    let workers: Vec<Value> = workers
        .map(|worker| {
            let first = homing_domain::RankId::new(worker.id.0, 0);
            let on = residency.on_worker(worker.id);
            let active = |adapter: &&homing_domain::AdapterName| {
                residency
                    .ranks_of(worker.id)
                    .any(|rank| residency.is_active(rank, adapter))
            };
            json!({
                "worker": &*worker.name,
                "slots": residency.slots(first),
                "free_slots": residency.free(first),
                "adapters": on.iter().map(homing_domain::AdapterName::as_str).collect::<Vec<_>>(),
                "active": on.iter().filter(active).map(homing_domain::AdapterName::as_str).collect::<Vec<_>>(),
            })
        })
        .collect();
    let counts = shown.manager.counts();
    json!({
        "model": lane.subject.model.as_str(),
        "block_size": lane.subject.block_size.get(),
        "slots": residency.all_slots(),
        "loaded": residency.all_loaded(),
        "load_ms": shown.manager.load_time().0,
        "moves": {
            "loads": counts.loads, "failed_loads": counts.failed_loads,
            "unloads": counts.unloads, "failed_unloads": counts.failed_unloads,
            "under_way": shown.manager.under_way(),
        },
        "adapters": adapters,
        "workers": workers,
    })
}

fn adapter(standing: &Standing, shown: &Shown, names: &BTreeMap<WorkerId, &str>) -> Value {
    let name = |worker: &WorkerId| names.get(worker).copied().unwrap_or("gone").to_owned();
    let demand = shown.manager.demand().of(&standing.adapter);
    let residency = shown.manager.residency();
    let loading = standing
        .openings
        .iter()
        .filter(|opening| matches!(opening.when, When::Loading(_)));
    let workers: Vec<WorkerId> = {
        let mut all: Vec<WorkerId> = residency.ranks().map(|rank| rank.worker).collect();
        all.dedup();
        all
    };
    let failures = workers.iter().filter_map(|worker| {
        let failure = shown.manager.failure(*worker, &standing.adapter)?;
        Some(json!({ "worker": name(worker), "why": &*failure.why }))
    });
    json!({
        "name": standing.adapter.as_str(),
        "source": standing.source.as_deref(),
        "pinned": standing.pinned == Pinned::Yes,
        "requests_per_second": demand.requests,
        "tokens_per_second": demand.tokens,
        "on": standing.on.iter().map(name).collect::<Vec<_>>(),
        "planned": standing.planned.iter().map(name).collect::<Vec<_>>(),
        "loading": loading.map(|opening| name(&opening.worker)).collect::<Vec<_>>(),
        "failures": failures.collect::<Vec<_>>(),
    })
}
