//! Which requests are taken, up to which limits?

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use homing_domain::KeyHasher;
use homing_platform::{BodyBudget, BodyLimits, BodyOwner, Caller, ClientAddress};
use homing_telemetry::{Metrics, Outcome};
use tokio::sync::Semaphore;

use crate::dump::{self, Wanted};
use crate::problem::{Problem, json};
use crate::record::Progress;
use crate::shelf::Shelves;
use crate::{health, overlap, ranks};

/// Questions that are answered at once; others wait.
const QUESTIONS: usize = 256;
/// A longer body is read on a thread where it keeps nobody waiting.
const LONG_BODY: usize = 128 << 10;

/// What all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) shelves: Shelves,
    pub(crate) hasher: KeyHasher,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) bodies: Bodies,
    /// One for each question that may be answered at once.
    pub(crate) questions: Semaphore,
    /// One for each dump that may be under way.
    pub(crate) dumps: Arc<Semaphore>,
    /// How the recording is getting on, if there is one.
    pub(crate) recording: Option<Progress>,
}

/// How bodies are read.
#[derive(Debug)]
pub(crate) struct Bodies {
    pub(crate) budget: Arc<BodyBudget>,
    pub(crate) limits: BodyLimits,
}

impl App {
    pub(crate) fn new(shelves: Shelves, hasher: KeyHasher, metrics: Arc<Metrics>, bodies: Bodies) -> Self {
        Self {
            shelves,
            hasher,
            metrics,
            bodies,
            questions: Semaphore::new(QUESTIONS),
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

async fn overlap(State(app): State<Arc<App>>, request: Request) -> Response {
    let answered = try_overlap(&app, request).await;
    let outcome = match &answered {
        Ok(_) => Outcome::Answered,
        Err(problem) => problem.outcome(),
    };
    app.metrics.indexer.overlap_requests.of(outcome).add(1);
    answered.map_or_else(Problem::into_response, |text| json(StatusCode::OK, text))
}

async fn try_overlap(app: &Arc<App>, request: Request) -> Result<String, Problem> {
    let body = app.bodies.read(request).await?;
    let _turn = app.questions.acquire().await.map_err(|_closed| Problem::Closing)?;
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

impl Bodies {
    async fn read(&self, request: Request) -> Result<Bytes, Problem> {
        let address = request.extensions().get::<ClientAddress>();
        // Only tests ask without a connection.
        let client = address.map_or(IpAddr::from(Ipv4Addr::UNSPECIFIED), |address| address.0);
        let read = self
            .budget
            .read(request.into_body(), BodyOwner::Address(client), &self.limits);
        read.await.map_err(Problem::Body)
    }
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

async fn health(State(app): State<Arc<App>>, caller: Option<Extension<Caller>>) -> Response {
    let report = match caller {
        Some(Extension(Caller::Anonymous)) => health::BRIEF.to_owned(),
        Some(Extension(Caller::Authorized)) | None => health::report(&app),
    };
    json(StatusCode::OK, report)
}
