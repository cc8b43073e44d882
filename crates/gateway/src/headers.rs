//! Headers that pass between clients and engines: those of two lists, and no others.
//!
//! What a client sends beyond them means something to this connection, to us, to a browser or to an engine's inside, and what an engine
//! sends beyond them tells of the engine.

use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};

/// Under which name a request is known in receipts and logs.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-homing-request-id");
/// The worker that answered.
pub(crate) const SERVED_BY: HeaderName = HeaderName::from_static("x-homing-served-by");
/// The worker that computed the prompt, if it is another one.
pub(crate) const PREFILLED_BY: HeaderName = HeaderName::from_static("x-homing-prefilled-by");
/// Tokens that were predicted to come from its cache.
pub(crate) const CACHED_TOKENS: HeaderName = HeaderName::from_static("x-homing-cached-tokens");
/// The decision in full.
pub(crate) const DECISION: HeaderName = HeaderName::from_static("x-homing-decision");
/// What engines call a request by, if they are told.
pub(crate) const ENGINE_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The part of a worker that a request is for, as vLLM and SGLang are told.
pub(crate) const RANK: HeaderName = HeaderName::from_static("x-data-parallel-rank");

/// The trace that a request belongs to.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static(homing_telemetry::trace::TRACEPARENT);

/// Headers of requests that engines get. Keys are among them only where the client's key is for the engine
/// ([`crate::outward::Outward`]).
const TO_WORKER: [&str; 10] = [
    "accept",
    "accept-language",
    "anthropic-beta",
    "anthropic-version",
    "authorization",
    "content-type",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-api-key",
];

/// Headers of answers that clients get.
const TO_CLIENT: [&str; 8] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "retry-after",
    "www-authenticate",
    "x-accel-buffering",
];

/// How headers of answers begin that tell a client its limits.
const LIMITS_TO_CLIENT: [&str; 3] = ["anthropic-ratelimit-", "ratelimit", "x-ratelimit-"];
/// Whether a `Connection` header names this one.
fn is_named(connection: &HeaderMap, name: &HeaderName) -> bool {
    let mut lists = connection.get_all(header::CONNECTION).iter();
    lists.any(|list| {
        let words = list.to_str().unwrap_or_default().split(',');
        words
            .map(str::trim)
            .any(|word| word.eq_ignore_ascii_case(name.as_str()))
    })
}

/// The headers of a message that pass. One that `Connection` names belongs to the connection.
fn passed(headers: &HeaderMap, is_listed: impl Fn(&str) -> bool) -> HeaderMap {
    let mut passed = HeaderMap::with_capacity(TO_WORKER.len() + 4);
    let has_named = headers.contains_key(header::CONNECTION);
    for (name, value) in headers {
        if is_listed(name.as_str()) && !(has_named && is_named(headers, name)) {
            passed.append(name.clone(), value.clone());
        }
    }
    passed
}

/// The headers of a request for a worker. The id is ours: those of two clients may be the same. Lengths are set by who sends it, and
/// answers that must be read are not compressed.
pub(crate) fn to_worker(headers: &HeaderMap, host: &HeaderValue, id: &HeaderValue) -> HeaderMap {
    let mut sent = passed(headers, |name| TO_WORKER.contains(&name));
    // How a body is written is said once.
    if let Some(kind) = headers
        .get(header::CONTENT_TYPE)
        .filter(|_| sent.contains_key(header::CONTENT_TYPE))
    {
        sent.insert(header::CONTENT_TYPE, kind.clone());
    }
    sent.insert(header::HOST, host.clone());
    sent.insert(ENGINE_ID, id.clone());
    sent
}

/// The headers of an answer for a client.
pub(crate) fn to_client(headers: &HeaderMap) -> HeaderMap {
    passed(headers, |name| {
        TO_CLIENT.contains(&name) || LIMITS_TO_CLIENT.iter().any(|beginning| name.starts_with(beginning))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let name: HeaderName = name.parse().unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        });
        pairs.collect()
    }

    #[test]
    fn engines_get_headers_of_the_list_and_our_id() {
        let asked = map(&[
            ("authorization", "Bearer k"),
            ("content-type", "application/json"),
            ("content-type", "text/plain"),
            ("user-agent", "curl"),
            ("accept", "*/*"),
            ("traceparent", "00-1-2-01"),
            ("tracestate", "a=b"),
            ("anthropic-version", "2023-06-01"),
            ("connection", "keep-alive, X-Private, tracestate"),
            ("x-private", "2"),
            ("x-custom", "1"),
            ("cookie", "session=1"),
            ("x-request-id", "mine"),
            ("x-data-parallel-rank", "3"),
            ("x-forwarded-for", "10.0.0.1"),
            ("endpoint-load-metrics-format", "json"),
            ("transfer-encoding", "chunked"),
            ("accept-encoding", "gzip"),
            ("x-homing-session", "s"),
            ("host", "gateway"),
            ("content-length", "9"),
        ]);
        let id = HeaderValue::from_static("abc");
        let sent = to_worker(&asked, &HeaderValue::from_static("w:1"), &id);
        let expected = map(&[
            ("authorization", "Bearer k"),
            ("content-type", "application/json"),
            ("user-agent", "curl"),
            ("accept", "*/*"),
            ("traceparent", "00-1-2-01"),
            ("anthropic-version", "2023-06-01"),
            ("host", "w:1"),
            ("x-request-id", "abc"),
        ]);
        assert_eq!(sent, expected);
    }

    #[test]
    fn clients_get_headers_of_the_list() {
        let answered = map(&[
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache"),
            ("retry-after", "2"),
            ("x-ratelimit-remaining-requests", "5"),
            ("server", "uvicorn"),
            ("set-cookie", "a=b"),
            ("x-engine-id", "engine-7"),
            ("x-data-parallel-rank", "1"),
            ("x-request-id", "of-the-engine"),
            ("location", "http://10.0.0.7:8000/v1/completions"),
            ("endpoint-load-metrics", "cpu=1"),
            ("x-homing-served-by", "fake"),
            ("access-control-allow-origin", "*"),
            ("content-length", "9"),
            ("date", "now"),
        ]);
        let expected = map(&[
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache"),
            ("retry-after", "2"),
            ("x-ratelimit-remaining-requests", "5"),
        ]);
        assert_eq!(to_client(&answered), expected);
    }
}
