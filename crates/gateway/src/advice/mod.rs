//! Where should this request go? For those who have a proxy of their own: they ask, send it there themselves, and tell what became of it.
//!
//! - [`asked`]: what they ask; [`leases`]: what they were told and have not ended yet; [`survey`]: how all ranks are; `openapi`: how to
//!   speak to it.
//!
//! What they say of a request does what the gateway's own requests do: bookings, health, predictions, records and the log are the same.
//!
//! **Invariant:** a booking that nobody speaks of for the time of its lease is ended, so that a proxy that dies holds nothing for ever.

mod asked;
mod leases;
mod openapi;
mod survey;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use homing_discovery::Admission;
use homing_domain::{Blocks, DpRank, RankId, RequestId, Tokens, excerpt};
use homing_protocol::{Family, Switch};
use homing_router::{Elsewhere, Question};
use homing_scheduler::{Decision, Pin};
use serde_json::{Value, json};

use crate::account::{Account, Entry};
use crate::bodies;
use crate::booked::Booked;
use crate::case::{self, Case};
use crate::flight::Flight;
use crate::gateway::Gateway;
use crate::isolation::BodyEdits;
use crate::keyring::Tab;
use crate::lane::Lane;
use crate::outward::ClientKey;
use crate::pool::Pool;
use crate::record::{Record, Try};
use crate::refusal::Refuse;
use crate::table::Table;
use crate::timing;
use crate::tokens::Known;
use crate::truth::Feature;
use crate::worker::Worker;

use asked::{Asked, Book, Done, Output};
use leases::{Considered, Held, Leases, Running};

/// How often leases are looked at.
const SWEEP: Duration = Duration::from_millis(250);
/// What is said of a request that was asked for here.
const ENDPOINT: &str = "route";

/// The router as a service.
#[derive(Debug)]
pub(crate) struct Advice {
    gateway: Arc<Gateway>,
    pool: Arc<Pool>,
    leases: Leases,
}

type Said = Result<Value, Refuse>;

/// All that is answered to proxies.
pub(crate) fn routes(advice: Arc<Advice>) -> Router {
    let most = usize::try_from(advice.gateway.config.load().serve.bodies.request).unwrap_or(usize::MAX);
    Router::new()
        .route("/homing/v1/openapi.json", get(async || Json(openapi::description())))
        .route("/homing/v1/route", post(route))
        .route("/homing/v1/route/{id}/book", post(book))
        .route("/homing/v1/route/{id}/prefill-done", post(prefill_done))
        .route("/homing/v1/route/{id}/output", post(output))
        .route("/homing/v1/route/{id}/done", post(done))
        .route("/homing/v1/loads", post(loads))
        .route("/homing/v1/overlap", post(overlap))
        .fallback(async || {
            answered(Err(Refuse::wrong(
                404,
                "there is nothing here: see /homing/v1/openapi.json",
            )))
        })
        .method_not_allowed_fallback(async || answered(Err(Refuse::wrong(405, "this is asked with another method"))))
        .layer(DefaultBodyLimit::max(most))
        .layer(from_fn_with_state(advice.gateway.clone(), bodies::read_for_routes))
        .with_state(advice)
}

type Given = Result<Bytes, BytesRejection>;

async fn route(State(advice): State<Arc<Advice>>, headers: HeaderMap, body: Given) -> Response {
    let said = match read(body) {
        Ok(body) => advice.route(headers, body).await,
        Err(refuse) => Err(refuse),
    };
    answered(said)
}

async fn book(State(advice): State<Arc<Advice>>, Path(id): Path<String>, body: Given) -> Response {
    answered(read(body).and_then(|body| advice.book(&id, &asked::fields(&body)?)))
}

async fn prefill_done(State(advice): State<Arc<Advice>>, Path(id): Path<String>) -> Response {
    answered(advice.went_on(&id, 1))
}

async fn output(State(advice): State<Arc<Advice>>, Path(id): Path<String>, body: Given) -> Response {
    answered(read(body).and_then(|body| {
        let output: Output = asked::fields(&body)?;
        advice.went_on(&id, output.tokens)
    }))
}

async fn done(State(advice): State<Arc<Advice>>, Path(id): Path<String>, body: Given) -> Response {
    answered(read(body).and_then(|body| advice.done(&id, &asked::fields(&body)?)))
}

async fn loads(State(advice): State<Arc<Advice>>, headers: HeaderMap, body: Given) -> Response {
    let said = match read(body) {
        Ok(body) => advice.loads(headers, body).await,
        Err(refuse) => Err(refuse),
    };
    answered(said)
}

async fn overlap(State(advice): State<Arc<Advice>>, headers: HeaderMap, body: Given) -> Response {
    let said = match read(body) {
        Ok(body) => advice.overlap(headers, body).await,
        Err(refuse) => Err(refuse),
    };
    answered(said)
}

fn read(body: Given) -> Result<Bytes, Refuse> {
    body.map_err(|rejection| Refuse::wrong(rejection.status().as_u16(), rejection.body_text()))
}

pub(crate) fn answered(said: Said) -> Response {
    let refuse = match said {
        Ok(said) => return Json(said).into_response(),
        Err(refuse) => refuse,
    };
    let status = StatusCode::from_u16(refuse.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = [(header::CONTENT_TYPE, "application/json")];
    let mut response = (status, kind, refuse.problem.body(Family::OpenAi, "")).into_response();
    if let Some(seconds) = refuse.retry_after_seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// A prompt that was understood.
struct Understood {
    lane: Arc<Lane>,
    question: Question,
    record: Arc<Record>,
    entry: Entry,
    counted: Option<u32>,
    feature: Feature,
    lease: Duration,
    /// What the caller must do to the body that it sends.
    edits: BodyEdits,
}

impl Advice {
    pub(crate) fn new(gateway: Arc<Gateway>, pool: Arc<Pool>) -> Self {
        Self {
            gateway,
            pool,
            leases: Leases::default(),
        }
    }

    /// Ends what nobody speaks of any more, until it is dropped.
    pub(crate) async fn sweep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(SWEEP);
        loop {
            ticks.tick().await;
            let expired = self.leases.expire(Instant::now());
            self.gateway.metrics.gateway.lapsed_requests.add(expired);
        }
    }

    async fn route(&self, headers: HeaderMap, body: Bytes) -> Said {
        let id = RequestId::new(format!("{:032x}", fastrand::u128(..)).as_str());
        if self.gateway.ending.load(Relaxed) {
            return Err(Refuse::unavailable("this router ends"));
        }
        let mut asked = Asked::read(id, self.for_workers(headers), body)?;
        let edits = asked.isolate(&self.gateway)?;
        if self.leases.is_full() {
            return Err(Refuse::unavailable("too many requests are not ended yet"));
        }
        let began = asked.arrived.began;
        let understood = self.understand(&asked, edits).await?;
        if asked.book == Switch::On {
            let (worker, booked) = self.seat(&understood).await?;
            return self.begin(understood, &worker, booked, began);
        }
        let (lane, question) = (&understood.lane, &understood.question);
        let decision = lane
            .consider(question)
            .map_err(|refusal| Refuse::turned(&refusal.into(), None))?;
        let worker = self.worker(decision.chosen.rank)?;
        let cached = cached(lane, question, &decision);
        let said = described(&understood, &worker, &decision, cached, Booking::Not);
        let id = question.id.as_str().to_owned();
        let lease = understood.lease;
        let considered = Considered {
            understood,
            rank: decision.chosen.rank,
            began,
        };
        self.leases.hold(&id, Held::Considered(Box::new(considered)), lease)?;
        Ok(said)
    }

    /// Headers as a worker may see them that is asked for tokens: the token that lets a proxy ask us is not for workers.
    fn for_workers(&self, mut headers: HeaderMap) -> HeaderMap {
        self.gateway.outward.prepare(&mut headers, ClientKey::Ours);
        headers
    }

    /// What is known of a prompt.
    async fn understand(&self, asked: &Asked, edits: BodyEdits) -> Result<Understood, Refuse> {
        let gateway = &self.gateway;
        let table = gateway.table.load_full();
        let (case, known) = self.case(asked, &table).await?;
        let tokenized = Instant::now();
        let (lane, question) = case.question(&known)?;
        let record = case.record(ENDPOINT, &known, &question, tokenized);
        let entry = case.entry(&lane, &question, Tab::default());
        let most = gateway.config.load().serve.route_lease;
        Ok(Understood {
            counted: known.counted(),
            feature: case.feature(),
            lane,
            question,
            record,
            entry,
            lease: asked.lease.map_or(most, |lease| lease.min(most)),
            edits,
        })
    }

    /// A prompt as the gateway's own requests are looked at, and its tokens.
    async fn case<'a>(&'a self, asked: &'a Asked, table: &'a Table) -> Result<(Case<'a>, Known), Refuse> {
        let (model, served) = case::served(table, &asked.ask)?;
        let case = Case {
            gateway: &self.gateway,
            table,
            arrived: &asked.arrived,
            ask: &asked.ask,
            hints: &asked.hints,
            model,
            served,
            media: &asked.media,
            // Callers send their requests to engines themselves, with ids of the engines, which name no worker.
            stored_at: None,
        };
        let known = match &asked.tokens {
            Some(tokens) => Known::told(tokens.clone()),
            None => case.tokens(&self.pool).await,
        };
        Ok((case, known))
    }

    /// A place at a worker that may be asked.
    async fn seat(&self, understood: &Understood) -> Result<(Arc<Worker>, Booked), Refuse> {
        let mut question = understood.question.clone();
        loop {
            let booked = understood.lane.route(question.clone()).await;
            let booked = booked.map_err(|turned| Refuse::turned(&turned, understood.entry.deadline))?;
            match self.worker(booked.rank()) {
                Ok(worker) => return Ok((worker, booked)),
                // It left between the decision and now.
                Err(_) => question.wanted.tried.push(booked.rank().worker),
            }
        }
    }

    fn worker(&self, rank: RankId) -> Result<Arc<Worker>, Refuse> {
        let worker = self.gateway.table.load().workers.get(&rank.worker).cloned();
        worker.ok_or_else(|| Refuse::unavailable("the worker has just left"))
    }

    /// A request is on its way.
    fn begin(&self, understood: Understood, worker: &Arc<Worker>, booked: Booked, began: Instant) -> Said {
        let Admission::Yes(pass) = worker.admit(self.gateway.clock.now()) else {
            return Err(Refuse::unavailable(format!(
                "worker {} is not to be asked now",
                worker.name
            )));
        };
        let decision = booked.routed.decision.clone();
        let said = described(&understood, worker, &decision, booked.cached(), Booking::Made);
        let this = Try::new(worker, crate::record::Leg::Whole, &booked, began);
        timing::routed(&self.gateway, &understood.record, worker.spec.role, &this, booked.took);
        understood.record.told().tries.push(this);
        // Its tokens pass by here: a worker's silence towards proxies says nothing.
        let rank = booked.rank();
        let mut flight = Flight::new(&self.gateway, worker.clone(), Some(booked), rank, pass);
        flight.count(understood.counted, understood.feature);
        let id = understood.question.id.as_str().to_owned();
        let running = Running {
            flight,
            account: Account::open(&self.gateway, understood.record, understood.entry, began),
            prompt: understood.question.prompt.0,
            generated: 0,
        };
        self.leases
            .hold(&id, Held::Running(Box::new(running)), understood.lease)?;
        Ok(said)
    }

    /// Books what was considered, there or elsewhere. What cannot be booked so can be booked otherwise.
    fn book(&self, id: &str, book: &Book) -> Said {
        let considered = self.leases.considered(id)?;
        match self.place(&considered, book) {
            Ok((worker, booked)) => self.begin(considered.understood, &worker, booked, considered.began),
            Err(refuse) => {
                let lease = considered.understood.lease;
                self.leases.hold(id, Held::Considered(Box::new(considered)), lease)?;
                Err(refuse)
            }
        }
    }

    /// A booking at the worker that was told, or at the one that is named.
    fn place(&self, considered: &Considered, book: &Book) -> Result<(Arc<Worker>, Booked), Refuse> {
        let mut rank = considered.rank;
        if let Some(name) = &book.worker {
            let table = self.gateway.table.load();
            let worker = table.worker(name);
            let worker = worker.ok_or_else(|| Refuse::wrong(400, format!("there is no worker `{}`", excerpt(name))))?;
            rank = RankId {
                worker: worker.id,
                dp: DpRank(book.rank.unwrap_or(0)),
            };
        }
        let worker = self.worker(rank)?;
        let lane = &considered.understood.lane;
        // What the same would say that chooses there.
        let mut question = considered.understood.question.clone();
        question.wanted.pinned = Some(Pin {
            worker: rank.worker,
            dp: Some(rank.dp),
        });
        let decision = lane
            .consider(&question)
            .map_err(|refusal| Refuse::turned(&refusal.into(), None))?;
        let cached = book
            .cached_tokens
            .map_or_else(|| cached(lane, &question, &decision), Tokens);
        let choice = Elsewhere { question, rank, cached };
        let booked = lane.book(&choice, decision);
        Ok((worker, booked.map_err(|turned| Refuse::turned(&turned, None))?))
    }

    /// So many tokens came.
    fn went_on(&self, id: &str, generated: u32) -> Said {
        self.leases.running(id, |running| running.output(generated))?;
        Ok(json!({ "id": id }))
    }

    fn done(&self, id: &str, done: &Done) -> Said {
        let held = self.leases.end(id)?;
        if let Held::Running(running) = held {
            running.end(done);
        }
        Ok(json!({ "id": id }))
    }
}

/// Tokens that a decision expects in the cache.
fn cached(lane: &Lane, question: &Question, decision: &Decision) -> Tokens {
    let blocks = Blocks(decision.chosen.depths.anywhere());
    lane.subject.block_size.reused(question.prompt, blocks)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Booking {
    Made,
    Not,
}

fn described(understood: &Understood, worker: &Worker, decision: &Decision, cached: Tokens, booking: Booking) -> Value {
    let record = &understood.record;
    let reasons: Value = serde_json::from_str(&decision.to_json()).unwrap_or_default();
    json!({
        "id": record.id.as_str(),
        "booked": booking == Booking::Made,
        "lease_ms": u64::try_from(understood.lease.as_millis()).unwrap_or(u64::MAX),
        "model": &*record.model,
        "worker": who(worker, decision.chosen.rank),
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": cached.0,
        "block_size": understood.lane.subject.block_size.get(),
        "tokens_from": record.tokens_from,
        "unknown": record.unknown,
        "body_edits": { "remove": understood.edits.remove, "cache_salt": understood.edits.cache_salt },
        "decision": reasons,
    })
}

fn who(worker: &Worker, rank: RankId) -> Value {
    json!({ "number": worker.id.0, "url": &*worker.name, "rank": rank.dp.0 })
}
