//! What else can be asked of an engine? What it serves, tokens, its cache, adapters, and faults.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use homing_config::MockDialect;
use homing_domain::DpRank;
use homing_engine::Running;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::{App, answered};
use crate::ask::{messages, parse};
use crate::completions::Tail;
use crate::faults::Change;
use crate::problem::{Problem, json_answer};
use crate::wire::or_default;

/// What version each dialect claims to be: those that were looked at.
pub(crate) const fn version_of(dialect: MockDialect) -> &'static str {
    match dialect {
        MockDialect::Vllm => "0.32.0",
        MockDialect::Sglang => "0.5.23",
    }
}

#[derive(Deserialize)]
struct TokenizeBody {
    model: Option<String>,
    prompt: Option<String>,
    messages: Option<Value>,
    tools: Option<Value>,
    #[serde(default, deserialize_with = "or_default")]
    return_token_strs: bool,
    #[serde(flatten)]
    tail: Tail,
}

#[derive(Deserialize)]
struct DetokenizeBody {
    tokens: Vec<u32>,
}

#[derive(Deserialize)]
pub(crate) struct ResetQuery {
    #[serde(default)]
    reset_running_requests: bool,
}

/// `/v1/models`: the model, then its adapters.
pub(crate) async fn models(State(app): State<Arc<App>>) -> Response {
    let model = app.settings.model.as_str();
    let limit = app.settings.engine.max_model_len.0;
    let owner = app.settings.mock.dialect.name();
    let card = |name: &str, root: &str, parent: Option<&str>, limit: Option<u32>| {
        let permission = json!({
            "id": format!("modelperm-{name}"), "object": "model_permission", "created": app.created,
            "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true, "allow_search_indices": false,
            "allow_view": true, "allow_fine_tuning": false, "organization": "*", "group": null, "is_blocking": false,
        });
        json!({
            "id": name, "object": "model", "created": app.created, "owned_by": owner, "root": root,
            "parent": parent, "max_model_len": limit, "permission": [permission],
        })
    };
    let mut data = vec![card(model, model, None, Some(limit))];
    data.extend(app.core.adapters().iter().map(|adapter| {
        let path = app.sources.path(adapter);
        let root = path.as_deref().unwrap_or(adapter.as_str());
        card(adapter.as_str(), root, Some(model), None)
    }));
    json_answer(StatusCode::OK, &json!({"object": "list", "data": data}))
}

/// `/tokenize`.
pub(crate) async fn tokenize(State(app): State<Arc<App>>, body: Body) -> Response {
    answered(&app, async {
        let body: TokenizeBody = parse(&app.read(body).await?)?;
        app.adapter(body.model.as_deref())?;
        let codec = &app.settings.codec;
        let tokens = match (&body.prompt, &body.messages) {
            (Some(text), None) => codec.encode(text)?,
            (None, Some(chat)) => {
                let all = messages(chat)?;
                codec.chat(all, body.tools.as_ref(), body.tail.end(&app, all)?)?
            }
            _ => {
                return Err(Problem::Form {
                    message: "1 validation error: either prompt or messages is needed".to_owned(),
                    place: "body.prompt".to_owned(),
                });
            }
        };
        let names = body
            .return_token_strs
            .then(|| tokens.iter().map(|token| codec.name(*token)).collect::<Vec<_>>());
        let limit = app.settings.engine.max_model_len.0;
        let answer = json!({"count": tokens.len(), "max_model_len": limit, "tokens": tokens, "token_strs": names});
        Ok(json_answer(StatusCode::OK, &answer))
    })
    .await
}

/// `/detokenize`.
pub(crate) async fn detokenize(State(app): State<Arc<App>>, body: Body) -> Response {
    answered(&app, async {
        let body: DetokenizeBody = parse(&app.read(body).await?)?;
        let text = app.settings.codec.decode(&body.tokens);
        let key = match app.dialect() {
            MockDialect::Vllm => "prompt",
            MockDialect::Sglang => "text",
        };
        Ok(json_answer(StatusCode::OK, &json!({ key: text })))
    })
    .await
}

/// `/health` and `/ping`: nothing, with status 200.
pub(crate) async fn health() -> StatusCode {
    StatusCode::OK
}

/// `/version`.
pub(crate) async fn version(State(app): State<Arc<App>>) -> Response {
    json_answer(StatusCode::OK, &json!({"version": version_of(app.dialect())}))
}

/// `/reset_prefix_cache`.
pub(crate) async fn reset_prefix_cache(State(app): State<Arc<App>>, Query(query): Query<ResetQuery>) -> Response {
    let running = if query.reset_running_requests {
        Running::Preempt
    } else {
        Running::Keep
    };
    let success = app.core.clear(running).is_ok();
    json_answer(StatusCode::OK, &json!({ "success": success }))
}

/// `/kv_event_sources`: where each rank tells of its cache.
pub(crate) async fn kv_event_sources(State(app): State<Arc<App>>) -> Response {
    let source = |feed: &crate::feed::Feed| {
        let (events, replay) = (feed.events(), feed.replay());
        json!({
            "enable_kv_cache_events": events.is_some(),
            "publisher": if events.is_some() { "zmq" } else { "null" },
            "endpoint": events.map(|endpoint| endpoint.to_string()),
            "replay_endpoint": replay.map(|endpoint| endpoint.to_string()),
            "buffer_steps": feed.places().ring_batches,
            "hwm": feed.places().high_water,
            "max_queue_size": feed.places().high_water,
            "topic": String::from_utf8_lossy(&feed.places().topic),
        })
    };
    let sources = app.core.feeds().iter().enumerate();
    let sources: serde_json::Map<String, Value> =
        sources.map(|(rank, feed)| (rank.to_string(), source(feed))).collect();
    json_answer(StatusCode::OK, &Value::Object(sources))
}

/// `/load`: how many requests it has.
pub(crate) async fn load(State(app): State<Arc<App>>) -> Response {
    let of_rank = |rank| app.core.look(DpRank(rank), |load, _, _| load.running + load.waiting);
    let all: u32 = (0..app.settings.engine.ranks).filter_map(of_rank).sum();
    json_answer(StatusCode::OK, &json!({ "server_load": all }))
}

/// `/mock/faults`: what goes wrong on purpose.
pub(crate) async fn faults(State(app): State<Arc<App>>) -> Response {
    json_answer(StatusCode::OK, &json!(app.core.faults.now()))
}

/// `/mock/faults`, changed.
pub(crate) async fn set_faults(State(app): State<Arc<App>>, body: Body) -> Response {
    answered(&app, async {
        let change: Change = parse(&app.read(body).await?)?;
        Ok(json_answer(StatusCode::OK, &json!(app.core.change(&change))))
    })
    .await
}

/// `/mock/restart`: a new life at the same addresses.
pub(crate) async fn restart(State(app): State<Arc<App>>) -> Response {
    match app.core.restart().await {
        Ok(()) => json_answer(
            StatusCode::OK,
            &json!({"process_start_time_seconds": app.core.started()}),
        ),
        Err(error) => json_answer(
            StatusCode::INTERNAL_SERVER_ERROR,
            &json!({"detail": format!("the sockets of events did not come back: {error}")}),
        ),
    }
}
