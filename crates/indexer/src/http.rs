//! Which requests are taken, up to which limits?

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use homing_domain::KeyHasher;
use homing_telemetry::{Metrics, Outcome};
use tokio::sync::Semaphore;

use crate::dump::{self, Wanted};
use crate::problem::{Problem, json};
use crate::record::Progress;
use crate::shelf::Shelves;
use crate::{health, overlap, ranks};

/// How long the body of a question may take to come.
const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// Questions whose bodies are held at once; others wait before theirs are read.
const BODIES: usize = 256;
/// A longer body is read on a thread where it keeps nobody waiting.
const LONG_BODY: usize = 128 << 10;

/// What all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) shelves: Shelves,
    pub(crate) hasher: KeyHasher,
    pub(crate) metrics: Arc<Metrics>,
    /// The longest body, in bytes.
    pub(crate) max_body: u64,
    /// One for each body that may be held.
    pub(crate) bodies: Semaphore,
    /// One for each dump that may be under way.
    pub(crate) dumps: Arc<Semaphore>,
    /// How the recording is getting on, if there is one.
    pub(crate) recording: Option<Progress>,
}

impl App {
    pub(crate) fn new(shelves: Shelves, hasher: KeyHasher, metrics: Arc<Metrics>, max_body: u64) -> Self {
        Self {
            shelves,
            hasher,
            metrics,
            max_body,
            bodies: Semaphore::new(BODIES),
            dumps: Arc::new(Semaphore::new(dump::MOST)),
            recording: None,
        }
    }
}

/// All routes.
pub(crate) fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/overlap", post(overlap))
        .route("/v1/ranks", get(ranks))
        .route("/v1/dump", get(dump))
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .fallback(|| async { Problem::NotFound })
        .method_not_allowed_fallback(|| async { Problem::Method })
        .with_state(app)
}

async fn overlap(State(app): State<Arc<App>>, body: Body) -> Response {
    let answered = try_overlap(&app, body).await;
    let outcome = match &answered {
        Ok(_) => Outcome::Answered,
        Err(problem) => problem.outcome(),
    };
    app.metrics.indexer.overlap_requests.of(outcome).add(1);
    answered.map_or_else(Problem::into_response, |text| json(StatusCode::OK, text))
}

async fn try_overlap(app: &Arc<App>, body: Body) -> Result<String, Problem> {
    let _room = app.bodies.acquire().await.map_err(|_closed| Problem::Closing)?;
    let body = read(body, app.max_body).await?;
    let started = Instant::now();
    let answered = if body.len() <= LONG_BODY {
        answer(app, &body)
    } else {
        let app = app.clone();
        let answering = tokio::task::spawn_blocking(move || answer(&app, &body));
        answering.await.unwrap_or(Err(Problem::Closing))
    };
    app.metrics.indexer.overlap_duration.observe(started.elapsed());
    answered
}

fn answer(app: &App, body: &[u8]) -> Result<String, Problem> {
    overlap::answer(&app.shelves, &app.hasher, body, &app.metrics)
}

async fn read(body: Body, limit: u64) -> Result<Bytes, Problem> {
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let read = tokio::time::timeout(BODY_PATIENCE, axum::body::to_bytes(body, most)).await;
    let read = read.map_err(|_elapsed| Problem::TooSlow {
        seconds: BODY_PATIENCE.as_secs(),
    })?;
    read.map_err(|error| {
        if is_too_long(&error) {
            Problem::TooLarge { limit }
        } else {
            Problem::CutOff
        }
    })
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

async fn ranks(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    Ok(json(StatusCode::OK, ranks::all(&app.shelves).await?))
}

async fn dump(State(app): State<Arc<App>>, wanted: Result<Query<Wanted>, QueryRejection>) -> Result<Response, Problem> {
    let Query(wanted) = wanted.map_err(|rejection| Problem::BadParameter(rejection.body_text()))?;
    dump::begin(&app, wanted)
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let kind = (header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    ([kind], app.metrics.render()).into_response()
}

async fn health(State(app): State<Arc<App>>) -> Response {
    json(StatusCode::OK, health::report(&app))
}
