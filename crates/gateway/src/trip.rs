//! The way of one request: where it goes, what is sent there, and where it goes next if that fails.
//!
//! Engines send a status of 200 before they have computed anything, so an answer counts as begun when its first event came. Until then
//! a failure is nobody's loss: the request goes to another worker, within bounds.
//!
//! **Invariant:** a worker that failed is not tried again for the same request.
//!
//! **Invariant:** however many tries there are, the router has one booking for the request at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use homing_discovery::{Admission, Outcome};
use homing_domain::{RequestId, Tokens};
use homing_protocol::{Ask, Attention, Delivery, Ear, Plan, Splitter, Wanted};
use homing_router::{Question, Turned};
use homing_telemetry::TryFailure;
use hyper::header::HeaderValue;
use hyper::http::response;
use hyper::{HeaderMap, Method, Request, Uri};
use tokio::time::timeout;

use crate::events::LONGEST_EVENT;
use crate::flight::Flight;
use crate::gateway::Gateway;
use crate::headers;
use crate::lane::{Booked, Lane};
use crate::line::Line;
use crate::pool::Pool;
use crate::reading::{Begins, begins, is_events, joined};
use crate::record::{Record, Try};
use crate::refusal::Refuse;
use crate::spans::Form;
use crate::timing;
use crate::truth::Feature;
use crate::worker::Worker;

/// The pause before a retry: up to this, by chance.
const PAUSE: Duration = Duration::from_millis(20);

/// All that is needed to try a request.
#[derive(Debug)]
pub(crate) struct Trip {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) pool: Arc<Pool>,
    /// What the client asked, and its body.
    pub(crate) asked: Arc<Ask>,
    pub(crate) original: Bytes,
    /// What is asked of workers: the same, until the answer has to go on elsewhere.
    pub(crate) ask: Arc<Ask>,
    /// Path and query, as the client sent them.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    /// The body as workers get it.
    pub(crate) sent: Bytes,
    pub(crate) plan: Plan,
    pub(crate) lane: Arc<Lane>,
    pub(crate) question: Question,
    pub(crate) record: Arc<Record>,
    pub(crate) id: HeaderValue,
    /// What we counted of the prompt, if we know all of it.
    pub(crate) counted: Option<u32>,
    /// The same, also when the answer goes on elsewhere.
    pub(crate) prompt: Option<u32>,
    pub(crate) feature: Feature,
    /// Tokens of prompt and answer together, where it is known.
    pub(crate) context: Option<u32>,
    /// What is asked of workers beyond what the client asked.
    pub(crate) wanted: Wanted,
    pub(crate) deadline: Option<Duration>,
    /// When all of it must be over.
    pub(crate) until: Instant,
    pub(crate) tries: u32,
}

/// An answer that has begun.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) flight: Flight,
    pub(crate) head: response::Parts,
    pub(crate) body: Arriving,
}

/// How the rest of an answer comes.
#[derive(Debug)]
pub(crate) enum Arriving {
    /// All of it is here.
    Whole(Bytes),
    /// It comes in pieces; these came, the others are read from the connection.
    Pieces { begun: Vec<Bytes>, line: Line },
}

/// What came of one try.
enum Tried {
    Answered(Box<Answer>),
    Failed(Failed),
}

/// A try that failed.
struct Failed {
    why: String,
    kind: TryFailure,
    /// What the engine said, if it said something.
    said: Option<(response::Parts, Bytes)>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// It is for us to say why.
    Refused(Refuse),
    /// An engine said why.
    Said(Box<response::Parts>, Bytes),
}

impl Trip {
    /// Tries until an answer begins, or nothing is left to try.
    pub(crate) async fn begin(&mut self) -> Result<Answer, NoAnswer> {
        let mut failed: Option<Failed> = None;
        self.lane.adapter_asked(&self.question);
        loop {
            let asked = Instant::now();
            let mut booked = match self.lane.route(self.question.clone()).await {
                Ok(booked) => booked,
                Err(Turned::Loads { adapter, rank, .. }) if self.await_adapter(rank.worker, &adapter).await => continue,
                Err(turned) => return Err(self.nowhere(failed, &turned)),
            };
            let Some(worker) = self.gateway.table.load().workers.get(&booked.rank().worker).cloned() else {
                // It left between the decision and now.
                self.question.wanted.tried.push(booked.rank().worker);
                continue;
            };
            match self.lane.adapter_enter(worker.id, self.question.adapter.as_ref()) {
                Ok(inside) => booked.inside = inside,
                // It went between the decision and now.
                Err(_) => continue,
            }
            self.note(&worker, &booked, asked);
            match self.try_at(&worker, booked).await {
                Tried::Answered(answer) => {
                    self.record.answered(match answer.body {
                        Arriving::Whole(_) => Form::Whole,
                        Arriving::Pieces { .. } => Form::Streamed,
                    });
                    return Ok(*answer);
                }
                Tried::Failed(this) => {
                    let metrics = &self.gateway.metrics.gateway;
                    metrics.failed_tries.of(this.kind).add(1);
                    let why = self.gateway.told(&this.why);
                    self.record.failed(&why);
                    tracing::info!(request = %self.question.id, worker = %worker.name, %why, "a try failed");
                    self.question.wanted.tried.push(worker.id);
                    let closed = this.kind == TryFailure::Closed;
                    failed = Some(this);
                    if closed {
                        continue;
                    }
                    self.tries += 1;
                    if self.tries >= self.gateway.config.load().serve.retries.tries {
                        break;
                    }
                    if !self.gateway.budget.spend() {
                        metrics.unspent_retries.add(1);
                        break;
                    }
                    tokio::time::sleep(PAUSE.mul_f64(fastrand::f64())).await;
                }
            }
        }
        Err(Self::failed(failed))
    }

    fn nowhere(&self, failed: Option<Failed>, turned: &Turned) -> NoAnswer {
        if failed.is_some() {
            return Self::failed(failed);
        }
        NoAnswer::Refused(Refuse::turned(turned, self.deadline))
    }

    fn failed(failed: Option<Failed>) -> NoAnswer {
        match failed {
            Some(Failed {
                said: Some((head, body)),
                ..
            }) => NoAnswer::Said(Box::new(head), body),
            Some(Failed { why, kind, .. }) => {
                let status = match kind {
                    TryFailure::Silent => 504,
                    TryFailure::Closed => 503,
                    _ => 502,
                };
                NoAnswer::Refused(Refuse::failed(
                    status,
                    format!("no worker answered: the last one {why}"),
                ))
            }
            None => NoAnswer::Refused(Refuse::unavailable("no worker is left to try")),
        }
    }

    fn note(&self, worker: &Worker, booked: &Booked, asked: Instant) {
        let this = Try::new(worker, booked, asked);
        timing::routed(&self.gateway, &self.record, worker.spec.role, &this, booked.took);
        self.record.told().tries.push(this);
    }

    async fn try_at(&self, worker: &Arc<Worker>, booked: Booked) -> Tried {
        let rank = booked.rank();
        let pass = match worker.admit(self.gateway.clock.now()) {
            Admission::Yes(pass) => pass,
            Admission::No => return failed(TryFailure::Closed, "is not to be asked now", None),
        };
        let mut flight = Flight::new(&self.gateway, worker.clone(), booked, pass);
        flight.count(self.counted, self.feature);
        let request = || self.request(worker, rank.dp.0);
        let first_token = self.gateway.config.load().serve.times.first_token;
        let patience = first_token.min(self.until.saturating_duration_since(Instant::now()));
        let until = Instant::now() + patience;
        let mut line = match self.pool.take(worker.id) {
            Some(line) => line,
            None => match self.pool.dial(&worker.address).await {
                Ok(line) => line,
                Err(error) => {
                    flight.failed(Outcome::Connect);
                    return failed(TryFailure::Connect, &error.to_string(), None);
                }
            },
        };
        let head = loop {
            let left = until.saturating_duration_since(Instant::now());
            match timeout(left, line.send(request())).await {
                Ok(Ok(head)) => break head,
                // The worker closed an idle connection just as we took it: that says nothing about it.
                Ok(Err(_)) if line.used => match self.pool.dial(&worker.address).await {
                    Ok(fresh) => line = fresh,
                    Err(error) => {
                        flight.failed(Outcome::Connect);
                        return failed(TryFailure::Connect, &error.to_string(), None);
                    }
                },
                Ok(Err(error)) => {
                    flight.failed(Outcome::Reset);
                    return failed(TryFailure::Broken, &error.to_string(), None);
                }
                Err(_) => {
                    flight.failed(Outcome::FirstByteTimeout);
                    return failed(TryFailure::Silent, &format!("said nothing for {patience:?}"), None);
                }
            }
        };
        self.read(flight, line, head, until).await
    }

    /// Reads as much of an answer as is needed to know that it is one.
    async fn read(&self, flight: Flight, mut line: Line, head: response::Parts, until: Instant) -> Tried {
        let streams = self.ask.delivery == Delivery::Streamed && is_events(&head.headers) && head.status.is_success();
        let most = usize::try_from(self.gateway.config.load().serve.bodies.answer).unwrap_or(usize::MAX);
        let mut begun: Vec<Bytes> = Vec::new();
        let mut size = 0;
        let mut splitter = Splitter::new(LONGEST_EVENT);
        let mut ear = Ear::new(self.ask.endpoint, Attention::Facts);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let piece = match timeout(left, line.piece()).await {
                Ok(Some(Ok(piece))) => piece,
                Ok(Some(Err(error))) => {
                    flight.failed(Outcome::Reset);
                    return failed(TryFailure::Broken, &error.to_string(), None);
                }
                Ok(None) if streams => {
                    flight.failed(Outcome::Reset);
                    return failed(TryFailure::Broken, "ended its answer before it began", None);
                }
                Ok(None) => break,
                Err(_) => {
                    flight.failed(Outcome::FirstByteTimeout);
                    return failed(TryFailure::Silent, "did not go on with its answer", None);
                }
            };
            size += piece.len();
            begun.push(piece.clone());
            if !streams {
                if size > most && !head.status.is_success() {
                    flight.failed(Outcome::Reset);
                    return failed(TryFailure::Broken, "answered with an error without end", None);
                }
                if size > most {
                    let body = Arriving::Pieces { begun, line };
                    return Tried::Answered(Box::new(Answer { flight, head, body }));
                }
                continue;
            }
            match begins(&mut splitter, &mut ear, piece) {
                Begins::NotYet => {}
                Begins::Yes => {
                    let body = Arriving::Pieces { begun, line };
                    return Tried::Answered(Box::new(Answer { flight, head, body }));
                }
                Begins::Error(error) => {
                    let why = format!("said: {}", error.message);
                    flight.failed(Outcome::ServerError);
                    return failed(TryFailure::Status, &why, None);
                }
            }
        }
        self.pool.put_back(flight.worker.id, line);
        let whole = joined(begun);
        if head.status.is_server_error() {
            let why = format!("answered with status {}", head.status.as_u16());
            flight.failed(Outcome::ServerError);
            return failed(TryFailure::Status, &why, Some((head, whole)));
        }
        let body = Arriving::Whole(whole);
        Tried::Answered(Box::new(Answer { flight, head, body }))
    }

    /// The request as a worker gets it.
    fn request(&self, worker: &Worker, dp: u16) -> Request<Bytes> {
        let mut request = Request::new(self.sent.clone());
        let target = worker.target(&self.target);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = target;
        *request.headers_mut() = headers::to_worker(&self.headers, &worker.host, &self.id);
        if worker.spec.ranks > 1 {
            request.headers_mut().insert(headers::RANK, HeaderValue::from(dp));
        }
        if let Some(parent) = self.record.traceparent().and_then(|parent| parent.try_into().ok()) {
            request.headers_mut().insert(headers::TRACEPARENT, parent);
        }
        request
    }

    /// What is left to be generated goes on elsewhere: `generated` tokens are part of its prompt now.
    pub(crate) fn go_on(&mut self, ask: Ask, sent: Bytes, generated: u32, number: u32) {
        self.sent = sent;
        if ask.endpoint != self.ask.endpoint {
            ask.endpoint.path().clone_into(&mut self.target);
        }
        self.ask = Arc::new(ask);
        self.counted = None;
        self.tries = 0;
        let id = format!("{}-{number}", self.record.id.as_str());
        self.question.id = RequestId::new(id.as_str());
        self.question.prompt = Tokens(self.question.prompt.0.saturating_add(generated));
        self.question.most_output = Tokens(self.question.most_output.0.saturating_sub(generated).max(1));
    }
}

impl Worker {
    /// Where a request goes below the worker's own address.
    pub(crate) fn target(&self, path: &str) -> Uri {
        let base = self.spec.url.path();
        let target = if base.is_empty() {
            Uri::try_from(path)
        } else {
            Uri::try_from(format!("{base}{path}"))
        };
        // What came as a target is one.
        target.unwrap_or_default()
    }
}

fn failed(kind: TryFailure, why: &str, said: Option<(response::Parts, Bytes)>) -> Tried {
    Tried::Failed(Failed {
        why: why.to_owned(),
        kind,
        said,
    })
}
