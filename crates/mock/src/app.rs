//! Which requests are taken? Routes, and what all of them share.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use homing_config::MockDialect;
use homing_domain::DpRank;
use serde_json::json;

use crate::core::Core;
use crate::problem::{Problem, json_answer};
use crate::settings::Settings;
use crate::{
    adapters, completions, control, embeddings as embedding, kv, messages as message, metrics, responses as response,
    sglang,
};

/// How long the body of a request may take to come.
const BODY_PATIENCE: Duration = Duration::from_secs(30);

/// One worker.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) core: Arc<Core>,
    pub(crate) settings: Arc<Settings>,
    /// From where its adapters came.
    pub(crate) sources: adapters::Sources,
    /// When it was made, in seconds of Unix time.
    pub(crate) created: u64,
    answers: AtomicU64,
}

/// What is known of a request besides its body.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    pub(crate) id: String,
    pub(crate) rank: Option<DpRank>,
}

impl App {
    pub(crate) fn new(core: Arc<Core>, settings: Arc<Settings>) -> Self {
        Self {
            core,
            settings,
            sources: adapters::Sources::default(),
            created: crate::core::unix_seconds() as u64,
            answers: AtomicU64::new(fastrand::u64(..) << 20),
        }
    }

    pub(crate) fn dialect(&self) -> MockDialect {
        self.settings.mock.dialect
    }

    /// Takes a request for an answer: waits while it is to stall, fails if it is to fail, reads its body.
    pub(crate) async fn take(&self, headers: &HeaderMap, body: Body) -> Result<(Envelope, Bytes), Problem> {
        self.core.faults.flowing().await;
        if self.core.faults.now().fail {
            return Err(Problem::Failed);
        }
        let body = self.read(body).await?;
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let id = text("x-request-id").map_or_else(|| self.number(), str::to_owned);
        let rank = text("x-data-parallel-rank").and_then(|rank| rank.parse().ok());
        Ok((
            Envelope {
                id,
                rank: rank.map(DpRank),
            },
            body,
        ))
    }

    /// Reads a body, up to the limit.
    pub(crate) async fn read(&self, body: Body) -> Result<Bytes, Problem> {
        let limit = self.settings.mock.max_request_bytes;
        let read = axum::body::to_bytes(body, usize::try_from(limit).unwrap_or(usize::MAX));
        match tokio::time::timeout(BODY_PATIENCE, read).await {
            Err(_) => Err(Problem::bad("the request did not come to an end")),
            Ok(Ok(body)) => Ok(body),
            Ok(Err(error)) if is_too_long(&error) => Err(Problem::TooLong(limit)),
            Ok(Err(_)) => Err(Problem::bad("the request was cut off")),
        }
    }

    fn number(&self) -> String {
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        format!("{:016x}{number:016x}", self.created)
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Gives an answer, or says in the dialect's way why there is none.
pub(crate) async fn answered(app: &App, answer: impl Future<Output = Result<Response, Problem>>) -> Response {
    answer.await.unwrap_or_else(|problem| problem.answer(app.dialect()))
}

/// All routes of a worker.
pub(crate) fn routes(app: Arc<App>) -> Router {
    let common = Router::new()
        .route("/v1/completions", post(completion))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/embeddings", post(embeddings))
        .route("/v1/models", get(control::models))
        .route("/tokenize", post(control::tokenize))
        .route("/detokenize", post(control::detokenize))
        .route("/health", get(control::health))
        .route("/ping", get(control::health).post(control::health))
        .route("/version", get(control::version))
        .route("/metrics", get(metrics::page))
        .route("/mock/faults", get(control::faults).post(control::set_faults))
        .route("/mock/restart", post(control::restart))
        .route("/mock/kv", get(kv::page));
    let own = match app.dialect() {
        MockDialect::Vllm => Router::new()
            .route("/v1/responses", post(responses))
            .route("/v1/responses/{id}", get(response::kept))
            .route("/v1/responses/{id}/cancel", post(response::kept))
            .route("/load", get(control::load))
            .route("/server_info", get(kv::vllm_info))
            .route("/v1/messages", post(messages))
            .route("/reset_prefix_cache", post(control::reset_prefix_cache))
            .route("/kv_event_sources", get(control::kv_event_sources))
            .merge(updating(&app)),
        MockDialect::Sglang => Router::new()
            .route("/generate", post(generate))
            .route("/server_info", get(sglang::server_info))
            .route("/get_server_info", get(sglang::server_info))
            .route("/get_load", get(sglang::load))
            .route("/v1/loads", get(sglang::loads))
            .route("/model_info", get(sglang::model_info))
            .route("/get_model_info", get(sglang::model_info))
            .route("/flush_cache", get(sglang::flush).post(sglang::flush))
            .route("/load_lora_adapter", post(adapters::load))
            .route("/unload_lora_adapter", post(adapters::unload)),
    };
    common
        .merge(own)
        .fallback(|| async { json_answer(StatusCode::NOT_FOUND, &json!({"detail": "Not Found"})) })
        .method_not_allowed_fallback(|| async {
            json_answer(StatusCode::METHOD_NOT_ALLOWED, &json!({"detail": "Method Not Allowed"}))
        })
        .layer(axum::middleware::map_response_with_state(app.clone(), dated))
        .with_state(app)
}

/// Adapters that come and go while it runs: vLLM does not know these routes unless it was told to.
fn updating(app: &App) -> Router<Arc<App>> {
    if !app.settings.mock.lora_updating.is_on() {
        return Router::new();
    }
    Router::new()
        .route("/v1/load_lora_adapter", post(adapters::load))
        .route("/v1/unload_lora_adapter", post(adapters::unload))
}

/// Says what its clock shows, where that is not the time.
async fn dated(State(app): State<Arc<App>>, mut answer: Response) -> Response {
    let ahead = app.settings.mock.clock_ahead;
    if !ahead.is_zero() {
        let date = httpdate::fmt_http_date(SystemTime::now() + ahead);
        if let Ok(date) = HeaderValue::from_str(&date) {
            answer.headers_mut().insert(header::DATE, date);
        }
    }
    answer
}

macro_rules! endpoint {
    ($name:ident = $path:path) => {
        async fn $name(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> Response {
            answered(&app, async {
                let (envelope, body) = app.take(&headers, body).await?;
                $path(&app, envelope, &body).await
            })
            .await
        }
    };
}

endpoint!(completion = completions::completion);
endpoint!(chat = completions::chat);
endpoint!(embeddings = embedding::embeddings);
endpoint!(responses = response::responses);
endpoint!(messages = message::messages);
endpoint!(generate = sglang::generate);
