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
use homing_domain::{RequestId, Tokens, WorkerId};
use homing_protocol::{Ask, Plan, Wanted};
use homing_router::{Question, Turned};
use homing_scheduler::{Phase, Pin};
use homing_telemetry::TryFailure;
use hyper::http::response;

use crate::booked::Booked;
use crate::handing::{Begun, Handing};
use crate::lane::Lane;
use crate::record::{Leg, Try};
use crate::refusal::Refuse;
use crate::response_id::Owner;
use crate::sending::{Answer, Failed, Sending, Tried};
use crate::timing;
use crate::worker::Worker;

/// The pause before a retry: up to this, by chance.
const PAUSE: Duration = Duration::from_millis(20);

/// All that is needed to try a request.
#[derive(Debug)]
pub(crate) struct Trip {
    /// How it is sent.
    pub(crate) way: Sending,
    /// What the client asked, and its body.
    pub(crate) asked: Arc<Ask>,
    pub(crate) original: Bytes,
    /// The owner of responses that engines store for it.
    pub(crate) owner: Owner,
    pub(crate) plan: Plan,
    pub(crate) lane: Arc<Lane>,
    pub(crate) question: Question,
    /// What we counted of the prompt, also when the answer goes on elsewhere.
    pub(crate) prompt: Option<u32>,
    /// Tokens of prompt and answer together, where it is known.
    pub(crate) context: Option<u32>,
    /// What is asked of workers beyond what the client asked.
    pub(crate) wanted: Wanted,
    pub(crate) deadline: Option<Duration>,
    pub(crate) tries: u32,
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
        if self.question.apart.is_some() {
            let begun = Handing::begin(self).await;
            match begun {
                // What it says was said by the worker that computed the prompt, which knows it by heart now.
                Begun::Ended(worker) => self.by_one(worker),
                Begun::Answer(answer) => {
                    self.way.sent = Bytes::new();
                    return Ok(*answer);
                }
                Begun::Nothing(no) => return Err(no),
            }
        }
        let mut failed: Option<Failed> = None;
        self.lane.adapter_asked(&self.question);
        loop {
            let asked = Instant::now();
            let mut booked = match self.lane.route(self.question.clone()).await {
                Ok(booked) => booked,
                Err(Turned::Loads { adapter, rank, .. }) if self.await_adapter(rank.worker, &adapter).await => continue,
                Err(turned) => return Err(self.nowhere(failed, &turned)),
            };
            let Some(worker) = self
                .way
                .gateway
                .table
                .load()
                .workers
                .get(&booked.rank().worker)
                .cloned()
            else {
                // It left between the decision and now.
                self.question.wanted.tried.push(booked.rank().worker);
                continue;
            };
            let rank = booked.rank();
            match self.lane.adapter_enter(worker.id, self.question.adapter.as_ref()) {
                Ok(inside) => booked.inside = inside,
                // It went between the decision and now.
                Err(_) => continue,
            }
            self.note(&worker, &booked, asked);
            match self.try_until_lost(&worker, booked, rank).await {
                Tried::Answered(answer) => {
                    // If it has to go on elsewhere, something else is sent there.
                    self.way.sent = Bytes::new();
                    self.way.record.answered(answer.form());
                    return Ok(*answer);
                }
                Tried::Failed(this) => {
                    let metrics = &self.way.gateway.metrics.gateway;
                    metrics.failed_tries.of(this.kind).add(1);
                    let why = self.way.gateway.told(&this.why);
                    self.way.record.failed(&why);
                    tracing::info!(request = %self.question.id, worker = %worker.name, %why, "a try failed");
                    // Who lacks the adapter may load it, and the router knows that it does.
                    if this.kind != TryFailure::NoAdapter {
                        self.question.wanted.tried.push(worker.id);
                    }
                    let kind = this.kind;
                    failed = Some(this);
                    if let Some(down) = self.pinned_to_lost() {
                        return Err(down);
                    }
                    if kind == TryFailure::Closed {
                        continue;
                    }
                    self.tries += 1;
                    // It was moved at once, and that was paid for.
                    if matches!(kind, TryFailure::Stalled | TryFailure::Down) {
                        continue;
                    }
                    if self.tries >= self.way.gateway.config.load().serve.retries.tries {
                        break;
                    }
                    if !self.way.gateway.budget.spend() {
                        metrics.unspent_retries.add(1);
                        break;
                    }
                    tokio::time::sleep(PAUSE.mul_f64(fastrand::f64())).await;
                }
            }
        }
        Err(Self::failed(failed))
    }

    /// One worker serves the whole of it.
    fn by_one(&mut self, worker: WorkerId) {
        self.question.apart = None;
        self.question.phase = Phase::Prefill;
        self.question.id = RequestId::new(format!("{}/one", self.question.id.as_str()).as_str());
        self.question.wanted.pinned = Some(Pin { worker, dp: None });
        // The rank was one of the worker that was to answer.
        self.question.wanted.dp = None;
    }

    fn nowhere(&self, failed: Option<Failed>, turned: &Turned) -> NoAnswer {
        if failed.is_some() {
            return Self::failed(failed);
        }
        if let Some(down) = self.pinned_to_lost() {
            return down;
        }
        NoAnswer::Refused(Refuse::turned(turned, self.deadline))
    }

    pub(crate) fn failed(failed: Option<Failed>) -> NoAnswer {
        match failed {
            Some(Failed {
                said: Some((head, body)),
                ..
            }) => NoAnswer::Said(Box::new(head), body),
            Some(Failed { why, kind, .. }) => {
                let status = match kind {
                    TryFailure::Silent => 504,
                    TryFailure::Closed | TryFailure::Stalled | TryFailure::Down => 503,
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
        let this = Try::new(worker, Leg::Whole, booked, asked);
        timing::routed(
            &self.way.gateway,
            &self.way.record,
            worker.spec.role,
            &this,
            booked.took,
        );
        self.way.record.told().tries.push(this);
    }

    /// What is left to be generated goes on elsewhere: `generated` tokens are part of its prompt now.
    pub(crate) fn go_on(&mut self, ask: Ask, sent: Bytes, generated: u32, number: u32) {
        self.way.sent = sent;
        if ask.endpoint != self.way.ask.endpoint {
            ask.endpoint.path().clone_into(&mut self.way.target);
        }
        self.way.ask = Arc::new(ask);
        self.way.counted = None;
        self.tries = 0;
        let id = format!("{}-{number}", self.way.record.id.as_str());
        self.question.id = RequestId::new(id.as_str());
        self.question.prompt = Tokens(self.question.prompt.0.saturating_add(generated));
        self.question.most_output = Tokens(self.question.most_output.0.saturating_sub(generated).max(1));
    }
}
