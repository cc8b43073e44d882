//! One request on its way to one worker: what is sent, and how much of the answer is read to know that it is one.
//!
//! Engines send a status of 200 before they have computed anything, so an answer counts as begun when its first words came. Until then
//! a failure is nobody's loss.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use homing_discovery::{Admission, Outcome};
use homing_domain::{AdapterName, RankId};
use homing_profile::Time;
use homing_protocol::{Ask, Delivery};
use homing_telemetry::TryFailure;
use hyper::header::HeaderValue;
use hyper::http::response;
use hyper::{HeaderMap, Method, Request, Uri};
use tokio::time::timeout;

use crate::adapters::says_absent;
use crate::booked::Booked;
use crate::events::LONGEST_EVENT;
use crate::flight::Flight;
use crate::gateway::Gateway;
use crate::headers;
use crate::pool::Pool;
use crate::reading::{Begins, Opening, is_events, joined};
use crate::record::Record;
use crate::spans::Form;
use crate::truth::Feature;
use crate::worker::Worker;
use homing_platform::{ConnectionError, HttpConnection};

/// How a request is sent.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) pool: Arc<Pool>,
    /// What is asked of workers: what the client asked, until the answer has to go on elsewhere.
    pub(crate) ask: Arc<Ask>,
    /// Path and query, as the client sent them.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    /// The body as workers get it.
    pub(crate) sent: Bytes,
    pub(crate) record: Arc<Record>,
    pub(crate) id: HeaderValue,
    /// What we counted of the prompt, if we know all of it.
    pub(crate) counted: Option<u32>,
    pub(crate) feature: Feature,
    /// The adapter that it needs.
    pub(crate) adapter: Option<AdapterName>,
    /// When all of it must be over.
    pub(crate) until: Instant,
    pub(crate) laid: Laid,
}

/// To whom it is laid that a worker answers with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Laid {
    ToIt,
    /// It says so because it was given what another worker made.
    ToAnother,
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
    Pieces { begun: Vec<Bytes>, line: HttpConnection },
}

/// What came of one try.
pub(crate) enum Tried {
    Answered(Box<Answer>),
    Failed(Failed),
}

/// A try that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) why: String,
    pub(crate) kind: TryFailure,
    /// What the engine said, if it said something.
    pub(crate) said: Option<(response::Parts, Bytes)>,
}

impl Answer {
    /// How it comes.
    pub(crate) fn form(&self) -> Form {
        match self.body {
            Arriving::Whole(_) => Form::Whole,
            Arriving::Pieces { .. } => Form::Streamed,
        }
    }
}

impl Laid {
    /// What an error says about the worker that answers with it.
    fn outcome(self) -> Outcome {
        match self {
            Self::ToIt => Outcome::ServerError,
            Self::ToAnother => Outcome::Unknown,
        }
    }
}

impl Sending {
    /// Asks one worker. What is booked there is ended with the answer; what is not booked, somebody else ends.
    pub(crate) async fn try_at(&self, worker: &Arc<Worker>, booked: Option<Booked>, rank: RankId) -> Tried {
        let pass = match worker.admit(self.gateway.clock.now()) {
            Admission::Yes(pass) => pass,
            Admission::No => return failed(TryFailure::Closed, "is not to be asked now", None),
        };
        let mut flight = Flight::new(&self.gateway, worker.clone(), booked, rank, pass);
        flight.count(self.counted, self.feature);
        let request = || self.request(worker, rank.dp.0);
        let first_token = self.gateway.config.load().serve.times.first_token;
        let patience = first_token.min(self.until.saturating_duration_since(Instant::now()));
        let sent = self.gateway.clock.now();
        let until = Instant::now() + patience;
        let mut line = match self.pool.take(&worker.id) {
            Some(line) => line,
            None => match self.pool.connect(&worker.address).await {
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
                Ok(Err(ConnectionError::Broken(_) | ConnectionError::Closed)) if line.used => {
                    match self.pool.connect(&worker.address).await {
                        Ok(fresh) => line = fresh,
                        Err(error) => {
                            flight.failed(Outcome::Connect);
                            return failed(TryFailure::Connect, &error.to_string(), None);
                        }
                    }
                }
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
        self.read(flight, line, head, (sent, until)).await
    }

    /// Reads as much of an answer as is needed to know that it is one.
    async fn read(
        &self,
        flight: Flight,
        mut line: HttpConnection,
        head: response::Parts,
        (sent, until): (Time, Instant),
    ) -> Tried {
        let streams = self.ask.delivery == Delivery::Streamed && is_events(&head.headers) && head.status.is_success();
        let most = usize::try_from(self.gateway.config.load().serve.bodies.answer).unwrap_or(usize::MAX);
        let mut begun: Vec<Bytes> = Vec::new();
        let mut size = 0;
        let mut opening = Opening::new(self.ask.endpoint, LONGEST_EVENT);
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
            match opening.begins(piece) {
                Begins::NotYet => {}
                Begins::Yes => {
                    let body = Arriving::Pieces { begun, line };
                    return Tried::Answered(Box::new(Answer { flight, head, body }));
                }
                Begins::Refused(error) => {
                    let status = error.code.unwrap_or_default();
                    if let Some(lacks) = self.lacks_adapter(sent, &flight, status, error.message.as_bytes()) {
                        return lacked(flight, &lacks, None);
                    }
                    // What the client did wrong is for the client to read.
                    let body = Arriving::Pieces { begun, line };
                    return Tried::Answered(Box::new(Answer { flight, head, body }));
                }
                Begins::Error(error) => {
                    let why = format!("said: {}", error.message);
                    flight.failed(self.laid.outcome());
                    return failed(TryFailure::Status, &why, None);
                }
            }
        }
        self.pool.put_back(flight.worker.id, line);
        let whole = joined(begun);
        if head.status.is_server_error() {
            let why = format!("answered with status {}", head.status.as_u16());
            flight.failed(self.laid.outcome());
            return failed(TryFailure::Status, &why, Some((head, whole)));
        }
        if let Some(lacks) = self.lacks_adapter(sent, &flight, head.status.as_u16(), &whole) {
            return lacked(flight, &lacks, Some((head, whole)));
        }
        let body = Arriving::Whole(whole);
        Tried::Answered(Box::new(Answer { flight, head, body }))
    }

    /// The adapter that a worker says it does not have, though it was thought to. Those who place adapters know it now.
    fn lacks_adapter(&self, sent: Time, flight: &Flight, status: u16, said: &[u8]) -> Option<AdapterName> {
        let adapter = self.adapter.as_ref().filter(|_| says_absent(status, said))?;
        let worker = &flight.worker;
        worker
            .lane
            .adapter_lacked(sent, worker.id, adapter)
            .then(|| adapter.clone())
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

/// It answered well, and somebody else has to be asked.
fn lacked(flight: Flight, adapter: &AdapterName, said: Option<(response::Parts, Bytes)>) -> Tried {
    flight.failed(Outcome::Served);
    failed(
        TryFailure::NoAdapter,
        &format!("does not have the adapter `{adapter}`"),
        said,
    )
}

fn failed(kind: TryFailure, why: &str, said: Option<(response::Parts, Bytes)>) -> Tried {
    Tried::Failed(Failed {
        why: why.to_owned(),
        kind,
        said,
    })
}
