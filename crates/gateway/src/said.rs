//! Answers that are ours: receipts, refusals, and what is known without an engine.

use homing_protocol::{Family, Switch};
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};

use crate::headers;
use crate::record::{Leg, Record, Told};
use crate::refusal::Refuse;
use crate::relay::Reply;
use crate::sending::Answer;

/// The longest decision that fits into a header.
const LONGEST_HEADER: usize = 6 << 10;

/// An answer.
pub(crate) type Answered = Response<Reply>;

/// Names the request in its answer.
pub(crate) fn name(headers: &mut HeaderMap, record: &Record) {
    if let Ok(id) = HeaderValue::from_str(record.id.as_str()) {
        headers.insert(headers::REQUEST_ID, id);
    }
}

/// Says who answered, and why.
pub(crate) fn receipts(headers: &mut HeaderMap, record: &Record, answer: &Answer, explain: Switch) {
    name(headers, record);
    if let Ok(worker) = HeaderValue::from_str(&answer.flight.worker.name) {
        headers.insert(headers::SERVED_BY, worker);
    }
    let prefilled = record.prefilled_by();
    let told = record.told();
    let Some(last) = told.tries.last() else { return };
    let cached = prefilled.as_ref().map_or(last.predicted_cached, |(_, cached)| *cached);
    headers.insert(headers::CACHED_TOKENS, HeaderValue::from(cached));
    if let Some(Ok(worker)) = prefilled.map(|(worker, _)| HeaderValue::from_str(&worker)) {
        headers.insert(headers::PREFILLED_BY, worker);
    }
    if explain == Switch::On {
        let decision = explained(&told);
        let short = decision.len() <= LONGEST_HEADER;
        let said = if short {
            decision
        } else {
            format!("{{\"see\":\"/admin/decisions?id={}\"}}", record.id.as_str())
        };
        if let Ok(decision) = HeaderValue::from_str(&said) {
            headers.insert(headers::DECISION, decision);
        }
    }
}

/// The decision, or those of both legs and why there are two.
fn explained(told: &Told) -> String {
    let Some(last) = told.tries.last() else {
        return "{}".to_owned();
    };
    let decision = last.decision.to_json();
    let prefill = told
        .tries
        .iter()
        .rev()
        .find(|this| this.leg == Leg::Prefill && this.failed.is_none());
    let why = last.why.as_deref();
    match (prefill.filter(|_| last.leg == Leg::Decode), why) {
        (Some(prefill), why) => {
            let (why, prefill) = (why.unwrap_or("null"), prefill.decision.to_json());
            format!("{{\"why\":{why},\"prefill\":{prefill},\"decode\":{decision}}}")
        }
        (None, Some(why)) => format!("{{\"why\":{why},\"one_worker\":{decision}}}"),
        (None, None) => decision,
    }
}

pub(crate) fn refused(refuse: &Refuse, family: Family, id: &str) -> Answered {
    let body = refuse.problem.body(family, id);
    let mut response = Response::new(Reply::whole(body));
    *response.status_mut() = StatusCode::from_u16(refuse.problem.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(headers::REQUEST_ID, id);
    }
    if refuse.problem.status == 401 {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = refuse.retry_after_seconds() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A short text.
pub(crate) fn plain(status: StatusCode, text: impl Into<bytes::Bytes>) -> Answered {
    let mut response = Response::new(Reply::whole(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// An object.
pub(crate) fn json_answer(status: StatusCode, value: &serde_json::Value) -> Answered {
    let mut response = Response::new(Reply::whole(value.to_string()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
