//! How long did the way to a decision take, and in which part of it?

use std::sync::Arc;
use std::time::{Duration, Instant};

use homing_domain::Role;
use homing_telemetry::{RoutePart, WorkerRole};

use crate::gateway::Gateway;
use crate::lane::{Booked, Deciding, Half};
use crate::record::{Leg, Record, Try};
use crate::spans;
use crate::worker::Worker;

impl Try {
    /// A try that was just decided.
    pub(crate) fn new(worker: &Worker, leg: Leg, booked: &Booked, asked: Instant) -> Self {
        let sent = Instant::now();
        let took = booked.took.lookup + booked.took.decide;
        Self {
            leg,
            why: booked.why(),
            worker: worker.name.clone(),
            predicted_cached: booked.cached().0,
            waited_ms: (sent - asked).as_secs_f64() * 1e3,
            decision: Arc::new(booked.routed.decision.clone()),
            span: spans::fresh(),
            asked,
            took_ns: u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            sent,
            answered: None,
            ended: None,
            failed: None,
        }
    }
}

/// A prompt goes to a worker of its own.
pub(crate) fn prefill(worker: &Worker, half: &Half, (why, asked): (Option<Arc<str>>, Instant)) -> Try {
    let sent = Instant::now();
    Try {
        leg: Leg::Prefill,
        why,
        worker: worker.name.clone(),
        predicted_cached: half.cached.0,
        waited_ms: (sent - asked).as_secs_f64() * 1e3,
        decision: half.decision.clone(),
        span: spans::fresh(),
        asked,
        took_ns: 0,
        sent,
        answered: None,
        ended: None,
        failed: None,
    }
}

/// A request was routed. Tokens and keys are made once, for its first try.
pub(crate) fn routed(gateway: &Gateway, record: &Record, role: Role, this: &Try, took: Deciding) {
    let metrics = &gateway.metrics.gateway;
    let parts = metrics.route_duration.of(match role {
        Role::Prefill => WorkerRole::Prefill,
        Role::Decode => WorkerRole::Decode,
        Role::Both => WorkerRole::Both,
    });
    let mut total = took.lookup + took.decide;
    if record.told().tries.is_empty() {
        parts.of(RoutePart::Tokenize).observe(record.parts.tokenize);
        parts.of(RoutePart::Keys).observe(record.parts.keys);
        total += record.parts.tokenize + record.parts.keys;
    }
    parts.of(RoutePart::Lookup).observe(took.lookup);
    parts.of(RoutePart::Decide).observe(took.decide);
    parts.of(RoutePart::Total).observe(total);
    let waited = (this.sent - this.asked).saturating_sub(Duration::from_nanos(this.took_ns));
    metrics.queue_duration.observe(waited);
}
