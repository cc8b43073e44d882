//! Ids of requests: engines get ours, clients see their own.
//!
//! Engines take `x-request-id` for the name of a request among all that they run. Two clients that choose the same id would collide
//! there, so what a client sends stays here and is sent back with the answer.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Request};

use crate::gateway::Gateway;
use crate::headers::{ENGINE_ID, REQUEST_ID};
use crate::pool::Pool;
use crate::said::Answered;

/// The longest id of a client that is sent back, in bytes.
const MAX_ID: usize = 256;

impl Gateway {
    /// The answer to one request. Every request gets one.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        pool: &Arc<Pool>,
        request: Request<Incoming>,
        client: IpAddr,
    ) -> Answered {
        let own = client_id(request.headers());
        let mut answered = self.answer_request(pool, request, client).await;
        set_client_id(answered.headers_mut(), own);
        answered
    }
}

/// The id that a client gave its request.
fn client_id(headers: &HeaderMap) -> Option<HeaderValue> {
    let id = headers.get(ENGINE_ID)?;
    (1..=MAX_ID).contains(&id.len()).then(|| id.clone())
}

/// Names an answer as its client named the request; else as we did.
fn set_client_id(headers: &mut HeaderMap, own: Option<HeaderValue>) {
    if let Some(id) = own.or_else(|| headers.get(REQUEST_ID).cloned()) {
        headers.insert(ENGINE_ID, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_id_of_its_client() {
        let long = "x".repeat(MAX_ID + 1);
        for (sent, ours, seen) in [
            (Some("mine"), Some("abc"), Some("mine")),
            (None, Some("abc"), Some("abc")),
            (Some(long.as_str()), Some("abc"), Some("abc")),
            (Some("mine"), None, Some("mine")),
            (None, None, None),
        ] {
            let value = |text: &str| HeaderValue::from_str(text).unwrap();
            let asked = HeaderMap::from_iter(sent.map(|id| (ENGINE_ID, value(id))));
            let mut answer = HeaderMap::from_iter(ours.map(|id| (REQUEST_ID, value(id))));
            set_client_id(&mut answer, client_id(&asked));
            assert_eq!(answer.get(ENGINE_ID), seen.map(value).as_ref());
        }
    }
}
