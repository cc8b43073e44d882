//! Which headers go through? All but those that belong to one connection, and our own.

use hyper::HeaderMap;
use hyper::header::{self, HeaderName, HeaderValue};

/// How our own headers begin.
pub(crate) const OURS: &str = "x-homing-";
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

/// Whether a header belongs to one connection and not to what is sent over it.
fn is_of_the_connection(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}

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

/// What goes on of the headers of a message.
fn passed(headers: &HeaderMap, also_not: &[HeaderName]) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(headers.len() + 4);
    let named = headers.contains_key(header::CONNECTION);
    for (name, value) in headers {
        let stays = is_of_the_connection(name)
            || name.as_str().starts_with(OURS)
            || also_not.contains(name)
            || named && is_named(headers, name);
        if !stays {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// The headers of a request for a worker. Lengths are set by who sends it, and answers that must be read are not compressed.
pub(crate) fn to_worker(headers: &HeaderMap, host: &HeaderValue, id: &HeaderValue) -> HeaderMap {
    let also_not = [
        header::HOST,
        header::CONTENT_LENGTH,
        header::EXPECT,
        header::ACCEPT_ENCODING,
    ];
    let mut kept = passed(headers, &also_not);
    kept.insert(header::HOST, host.clone());
    if !kept.contains_key(ENGINE_ID) {
        kept.insert(ENGINE_ID, id.clone());
    }
    kept
}

/// The headers of an answer for a client.
pub(crate) fn to_client(headers: &HeaderMap) -> HeaderMap {
    passed(headers, &[header::CONTENT_LENGTH, header::DATE])
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
    fn unknown_headers_arrive_and_those_of_the_connection_do_not() {
        let asked = map(&[
            ("authorization", "Bearer k"),
            ("x-custom", "1"),
            ("connection", "keep-alive, X-Private"),
            ("x-private", "2"),
            ("transfer-encoding", "chunked"),
            ("x-homing-session", "s"),
            ("host", "gateway"),
            ("content-length", "9"),
        ]);
        let id = HeaderValue::from_static("abc");
        let sent = to_worker(&asked, &HeaderValue::from_static("w:1"), &id);
        let expected = map(&[
            ("authorization", "Bearer k"),
            ("x-custom", "1"),
            ("host", "w:1"),
            ("x-request-id", "abc"),
        ]);
        assert_eq!(sent, expected);
    }

    #[test]
    fn a_client_that_names_its_request_is_followed() {
        let asked = map(&[("x-request-id", "mine")]);
        let sent = to_worker(
            &asked,
            &HeaderValue::from_static("w"),
            &HeaderValue::from_static("ours"),
        );
        assert_eq!(sent[ENGINE_ID], "mine");
    }
}
