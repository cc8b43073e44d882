//! Why did this request go where it went, and what became of it? The last thousands, for operators.
//!
//! **Invariant:** no text of a prompt or of an answer is in a record.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use homing_domain::RequestId;
use homing_scheduler::Decision;
use homing_telemetry::trace::Context;
use serde_json::{Value, json};

use crate::adapters::LoadWait;
use crate::spans::{Form, Traced};

/// What is known of a request when it was decided.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) id: RequestId,
    pub(crate) at: SystemTime,
    pub(crate) endpoint: &'static str,
    pub(crate) model: Arc<str>,
    pub(crate) session: Option<Arc<str>>,
    pub(crate) tenant: Option<Arc<str>>,
    /// Tokens of the prompt, and how they are known.
    pub(crate) prompt_tokens: u32,
    pub(crate) tokens_from: &'static str,
    /// Why less is known of the prompt than could be, in words.
    pub(crate) unknown: Option<String>,
    /// When all of it was here.
    pub(crate) began: Instant,
    /// What it took until a decision could be asked for.
    pub(crate) parts: Parts,
    /// The trace that it belongs to, if there are traces.
    pub(crate) trace: Option<Traced>,
    told: Mutex<Told>,
}

/// How long it took until a decision could be asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts {
    /// From text to tokens.
    pub(crate) tokenize: Duration,
    /// From tokens to keys.
    pub(crate) keys: Duration,
}

/// What became of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Each try: where, why there, and what came of it.
    pub(crate) tries: Vec<Try>,
    /// Each load of its adapter that it waited for.
    pub(crate) loads: Vec<LoadWait>,
    pub(crate) status: Option<u16>,
    /// The end of it, in a word.
    pub(crate) end: Option<&'static str>,
    pub(crate) cached: Option<u64>,
    pub(crate) engine_prompt_tokens: Option<u64>,
    pub(crate) output_tokens: u64,
    pub(crate) first_token_ms: Option<f64>,
    pub(crate) took_ms: Option<f64>,
}

/// Which part of a request a worker was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leg {
    /// All of it.
    Whole,
    /// Its prompt.
    Prefill,
    /// Its answer.
    Decode,
    /// To fetch what nobody waits for.
    Fetch,
}

impl Leg {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Fetch => "fetch",
        }
    }
}

/// One try of a request.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    pub(crate) leg: Leg,
    /// Why one worker or two, as JSON, where there was a choice.
    pub(crate) why: Option<Arc<str>>,
    pub(crate) worker: Arc<str>,
    pub(crate) predicted_cached: u32,
    pub(crate) waited_ms: f64,
    pub(crate) decision: Arc<Decision>,
    /// Its span.
    pub(crate) span: u64,
    /// When a decision was asked for, how long that took, and when it was there.
    pub(crate) asked: Instant,
    pub(crate) took_ns: u64,
    pub(crate) sent: Instant,
    /// When an answer began, and how it comes.
    pub(crate) answered: Option<(Instant, Form)>,
    /// When it failed.
    pub(crate) ended: Option<Instant>,
    /// Why it failed, if it did.
    pub(crate) failed: Option<String>,
}

/// What a record begins with.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) id: RequestId,
    pub(crate) endpoint: &'static str,
    pub(crate) model: Arc<str>,
    pub(crate) session: Option<Arc<str>>,
    pub(crate) tenant: Option<Arc<str>>,
    pub(crate) prompt_tokens: u32,
    pub(crate) tokens_from: &'static str,
    pub(crate) unknown: Option<String>,
    pub(crate) began: Instant,
    pub(crate) parts: Parts,
    pub(crate) trace: Option<Traced>,
}

impl Record {
    pub(crate) fn new(begun: Begun) -> Self {
        Self {
            id: begun.id,
            at: SystemTime::now(),
            endpoint: begun.endpoint,
            model: begun.model,
            session: begun.session,
            tenant: begun.tenant,
            prompt_tokens: begun.prompt_tokens,
            tokens_from: begun.tokens_from,
            unknown: begun.unknown,
            began: begun.began,
            parts: begun.parts,
            trace: begun.trace,
            told: Mutex::default(),
        }
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last try failed.
    pub(crate) fn failed(&self, why: &str) {
        if let Some(last) = self.told().tries.last_mut() {
            last.failed = Some(why.to_owned());
            last.ended = Some(Instant::now());
        }
    }

    /// The last try is answered.
    pub(crate) fn answered(&self, form: Form) {
        if let Some(last) = self.told().tries.last_mut() {
            last.answered = Some((Instant::now(), form));
        }
    }

    /// One try more. Returns its place.
    pub(crate) fn tried(&self, this: Try) -> usize {
        let mut told = self.told();
        told.tries.push(this);
        told.tries.len() - 1
    }

    /// A try ended, and why it failed if it did.
    pub(crate) fn ended(&self, place: usize, failed: Option<String>) {
        if let Some(this) = self.told().tries.get_mut(place) {
            this.failed = failed;
            this.ended = Some(Instant::now());
        }
    }

    /// An answer to a try began.
    pub(crate) fn began(&self, place: usize, form: Form) {
        if let Some(this) = self.told().tries.get_mut(place) {
            this.answered = Some((Instant::now(), form));
        }
    }

    /// The worker that computed the prompt, if it is another than the one that answers.
    pub(crate) fn prefilled_by(&self) -> Option<(Arc<str>, u32)> {
        let told = self.told();
        let prefill = told
            .tries
            .iter()
            .rev()
            .find(|this| this.leg == Leg::Prefill && this.failed.is_none())?;
        let last = told.tries.last()?;
        (last.leg == Leg::Decode || last.leg == Leg::Prefill)
            .then(|| (prefill.worker.clone(), prefill.predicted_cached))
    }

    /// What the worker of the last try is told about the trace.
    pub(crate) fn traceparent(&self) -> Option<String> {
        let traced = self.trace?;
        let span = self.told().tries.last().map_or(traced.own.span, |last| last.span);
        Some(Context { span, ..traced.own }.header())
    }

    pub(crate) fn json(&self) -> Value {
        let told = self.told().clone();
        let at = self.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let tries: Vec<Value> = told.tries.iter().map(|this| this.json(self.began)).collect();
        json!({
            "id": self.id.as_str(),
            "at_ms": u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            "endpoint": self.endpoint,
            "model": &*self.model,
            "session": self.session.as_deref(),
            "tenant": self.tenant.as_deref(),
            "prompt_tokens": self.prompt_tokens,
            "tokens_from": self.tokens_from,
            "unknown": self.unknown,
            "status": told.status,
            "end": told.end.unwrap_or("running"),
            "cached_tokens": told.cached,
            "engine_prompt_tokens": told.engine_prompt_tokens,
            "output_tokens": told.output_tokens,
            "first_token_ms": told.first_token_ms,
            "took_ms": told.took_ms,
            "waited_for_loads": told.loads.iter().map(LoadWait::json).collect::<Vec<_>>(),
            "tries": tries,
        })
    }
}

impl Try {
    /// `began`: when the request came.
    pub(crate) fn json(&self, began: Instant) -> Value {
        let until = self.ended.or(self.answered.map(|(at, _)| at));
        let took = until.map(|until| (until - self.sent).as_secs_f64() * 1e3);
        let why = self
            .why
            .as_deref()
            .and_then(|why| serde_json::from_str::<Value>(why).ok());
        json!({
            "worker": &*self.worker,
            "leg": self.leg.name(),
            "sent_ms": self.sent.saturating_duration_since(began).as_secs_f64() * 1e3,
            "took_ms": took,
            "why": why,
            "predicted_cached_tokens": self.predicted_cached,
            "waited_ms": self.waited_ms,
            "failed": self.failed,
            "decision": serde_json::from_str::<Value>(&self.decision.to_json()).unwrap_or_default(),
        })
    }
}

/// The last records.
#[derive(Debug)]
pub(crate) struct Records {
    last: Mutex<VecDeque<Arc<Record>>>,
    most: usize,
}

impl Records {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            last: Mutex::default(),
            most,
        }
    }

    pub(crate) fn push(&self, record: Arc<Record>) {
        if self.most == 0 {
            return;
        }
        let mut last = self.last();
        while last.len() >= self.most {
            last.pop_front();
        }
        last.push_back(record);
    }

    /// The newest that fit, newest first.
    pub(crate) fn newest(&self, most: usize, fits: impl Fn(&Record) -> bool) -> Vec<Arc<Record>> {
        let last = self.last();
        let found = last.iter().rev().filter(|record| fits(record));
        found.take(most).cloned().collect()
    }

    fn last(&self) -> MutexGuard<'_, VecDeque<Arc<Record>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str) -> Arc<Record> {
        Arc::new(Record::new(Begun {
            id: RequestId::new(id),
            endpoint: "chat",
            model: "m".into(),
            session: None,
            tenant: None,
            prompt_tokens: 3,
            tokens_from: "tokenizer",
            unknown: None,
            began: Instant::now(),
            parts: Parts::default(),
            trace: None,
        }))
    }

    #[test]
    fn the_newest_are_kept() {
        let records = Records::new(2);
        for id in ["a", "b", "c"] {
            records.push(record(id));
        }
        let ids = |records: Vec<Arc<Record>>| -> Vec<String> {
            records.iter().map(|record| record.id.as_str().to_owned()).collect()
        };
        assert_eq!(ids(records.newest(9, |_| true)), ["c", "b"]);
        assert_eq!(ids(records.newest(9, |record| record.id.as_str() == "a")), [""; 0]);
    }
}
