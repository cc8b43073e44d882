//! Which worker keeps which response?
//!
//! Engines keep responses in their own memory: a request that goes on from one (`previous_response_id`), asks for one, or cancels one,
//! is of use only where it is kept.
//!
//! **Invariant:** at most [`MOST`] are known, those that came last. What is forgotten here is not lost: the client can still name the worker.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use homing_domain::{RequestId, WorkerId, excerpt};
use homing_platform::BodyLimits;
use homing_telemetry::RequestEnd;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response};

use crate::bodies;
use crate::gateway::Gateway;
use crate::headers;
use crate::keyring::Key;
use crate::outward::ClientKey;
use crate::pool::Pool;
use crate::record::Record;
use crate::refusal::Refuse;
use crate::relay::Reply;
use crate::said::Answered;

/// Responses whose workers are known.
const MOST: usize = 1 << 16;
/// Names that are longer are not remembered.
const LONGEST_NAME: usize = 128;
/// What is asked about a response has no body, or a small one.
const LONGEST_QUESTION: u64 = 64 << 10;
/// Below this path are the responses.
const PATH: &str = "/v1/responses/";

/// Who keeps which response.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    workers: HashMap<Arc<str>, Place>,
    order: VecDeque<Arc<str>>,
}

/// Where a response is, and whose it is, where keys say so.
#[derive(Clone, Debug)]
struct Place {
    worker: WorkerId,
    tenant: Option<Arc<str>>,
}

impl Kept {
    /// A worker told the name of a response, which is this tenant's.
    pub(crate) fn remember(&self, response: &str, worker: WorkerId, tenant: Option<Arc<str>>) {
        if response.is_empty() || response.len() > LONGEST_NAME {
            return;
        }
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name: Arc<str> = response.into();
        if inner.workers.insert(name.clone(), Place { worker, tenant }).is_none() {
            inner.order.push_back(name);
        }
        if inner.order.len() > MOST
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.workers.remove(&oldest);
        }
    }

    /// Who keeps it.
    pub(crate) fn worker(&self, response: &str) -> Option<WorkerId> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.workers.get(response).map(|place| place.worker)
    }

    /// Whether it is known to be somebody else's.
    pub(crate) fn is_of_another(&self, response: &str, tenant: &str) -> bool {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let owner = inner.workers.get(response).and_then(|place| place.tenant.as_deref());
        owner.is_some_and(|owner| owner != tenant)
    }
}

/// The response that a path asks about.
pub(crate) fn asked(method: &Method, path: &str) -> Option<String> {
    let rest = path.strip_prefix(PATH)?;
    let (name, action) = rest.split_once('/').unwrap_or((rest, ""));
    let known = matches!(
        (method.as_str(), action),
        ("GET" | "DELETE", "") | ("GET", "input_items") | ("POST", "cancel")
    );
    (known && !name.is_empty()).then(|| name.to_owned())
}

impl Gateway {
    /// A worker told the name of a response.
    pub(crate) fn keeps(&self, response: &str, worker: WorkerId, record: &Record) {
        // Without keys a tenant is what a client calls itself, and may call itself otherwise the next time.
        let tenant = record.tenant.clone().filter(|_| self.ring.is_asked());
        self.kept.remember(response, worker, tenant);
    }

    /// Refuses what asks about the response of another tenant, in the words for one that there is not.
    pub(crate) fn may_see(&self, response: &str, key: Option<&Key>) -> Result<(), Refuse> {
        match key {
            Some(key) if self.kept.is_of_another(response, &key.tenant) => Err(Refuse::wrong(
                404,
                format!("no worker is known to keep the response `{}`", excerpt(response)),
            )),
            _ => Ok(()),
        }
    }

    /// Asks the worker that keeps a response about it.
    pub(crate) async fn kept(
        &self,
        pool: &Arc<Pool>,
        request: Request<Incoming>,
        response: &str,
        id: &RequestId,
        key: Option<&Key>,
    ) -> Result<Answered, Refuse> {
        let unknown = || {
            let message = format!("no worker is known to keep the response `{}`", excerpt(response));
            Refuse::wrong(404, message)
        };
        self.may_see(response, key)?;
        let worker = self.kept.worker(response).ok_or_else(unknown)?;
        let worker = self.table.load().workers.get(&worker).cloned().ok_or_else(unknown)?;
        let config = self.config.load_full();
        let most = usize::try_from(config.serve.bodies.answer).unwrap_or(usize::MAX);
        let failed = |why: String| Refuse::failed(502, format!("worker {} keeps this response and {why}", worker.name));
        let (mut head, body) = request.into_parts();
        self.outward.prepare(&mut head.headers, ClientKey::of(key));
        let limits = BodyLimits {
            max_bytes: LONGEST_QUESTION,
            ..bodies::limits(&config.serve)
        };
        let body = self
            .bodies
            .read(body, bodies::owner(key, bodies::client(&head.extensions)), &limits)
            .await?;
        let target = head.uri.path_and_query().map_or(PATH, |target| target.as_str());
        let mut sent = Request::new(body);
        *sent.method_mut() = head.method;
        *sent.uri_mut() = worker.target(target);
        *sent.headers_mut() = headers::to_worker(&head.headers, &worker.host, &id_header(id));
        let asking = async {
            // A connection that nobody used yet: it is asked seldom, and a used one may be closed already.
            let mut line = pool
                .connect(&worker.address)
                .await
                .map_err(|error| failed(error.to_string()))?;
            let head = line.send(sent).await.map_err(|error| failed(error.to_string()))?;
            let body = line.whole(most).await.map_err(|error| failed(error.to_string()))?;
            pool.put_back(worker.id, line);
            let mut answer = Response::new(Reply::whole(self.filtered(&head.headers, body)));
            *answer.status_mut() = head.status;
            *answer.headers_mut() = headers::to_client(&head.headers);
            answer.headers_mut().insert(headers::REQUEST_ID, id_header(id));
            if let Ok(name) = HeaderValue::from_str(&worker.name) {
                answer.headers_mut().insert(headers::SERVED_BY, name);
            }
            Ok(answer)
        };
        let answered = tokio::time::timeout(config.serve.times.first_token, asking).await;
        let answered = answered.map_err(|_| failed("does not answer".to_owned()))?;
        if answered.is_ok() {
            self.metrics.gateway.ended_requests.of(RequestEnd::Served).add(1);
        }
        answered
    }
}

fn id_header(id: &RequestId) -> HeaderValue {
    // Hexadecimal digits are one.
    HeaderValue::from_str(id.as_str()).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten() {
        let kept = Kept::default();
        for number in 0..=MOST {
            kept.remember(&format!("resp_{number}"), WorkerId(1), None);
        }
        kept.remember(&"x".repeat(LONGEST_NAME + 1), WorkerId(1), None);
        assert_eq!(kept.worker("resp_0"), None);
        assert_eq!(kept.worker("resp_1"), Some(WorkerId(1)));
        assert_eq!(kept.0.lock().unwrap().workers.len(), MOST);
    }

    #[test]
    fn a_response_is_its_tenants() {
        let kept = Kept::default();
        kept.remember("ours", WorkerId(1), Some("acme".into()));
        kept.remember("anybodys", WorkerId(1), None);
        let of_another = |response, tenant| kept.is_of_another(response, tenant);
        assert!(of_another("ours", "other") && !of_another("ours", "acme"));
        assert!(!of_another("anybodys", "other") && !of_another("unknown", "other"));
    }

    #[test]
    fn what_a_path_asks_about() {
        let asks = |method: Method, path| asked(&method, path);
        assert_eq!(asks(Method::GET, "/v1/responses/r"), Some("r".to_owned()));
        assert_eq!(asks(Method::DELETE, "/v1/responses/r"), Some("r".to_owned()));
        assert_eq!(asks(Method::POST, "/v1/responses/r/cancel"), Some("r".to_owned()));
        assert_eq!(asks(Method::GET, "/v1/responses/r/input_items"), Some("r".to_owned()));
        assert_eq!(asks(Method::POST, "/v1/responses/r"), None);
        assert_eq!(asks(Method::GET, "/v1/responses/"), None);
        assert_eq!(asks(Method::GET, "/v1/responses/r/../../metrics"), None);
    }
}
