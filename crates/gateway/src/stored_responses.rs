//! Stored responses: who may continue, read, cancel and delete them, and at which worker.
//!
//! Engines store responses in their own memory. Clients know them by signed ids ([`crate::response_id`]), which say all that is needed:
//! nothing is remembered here.
//!
//! **Invariant:** an engine is asked about a response only if the client's key belongs to the tenant that made it.
//!
//! **Invariant:** to a client, a response of another tenant does not exist.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use homing_domain::{RequestId, WorkerId};
use homing_platform::BodyLimits;
use homing_protocol::{Ask, Endpoint, Feature, Splitter, response_ids};
use homing_telemetry::{RefusedResponseId, RequestEnd};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::http::response;
use hyper::{Method, Request, Response};

use crate::bodies;
use crate::events::LONGEST_EVENT;
use crate::gateway::Gateway;
use crate::headers;
use crate::keyring::Key;
use crate::outward::ClientKey;
use crate::pool::Pool;
use crate::reading::is_events;
use crate::refusal::Refuse;
use crate::relay::Reply;
use crate::response_id::{InvalidId, Owner, ResponseIdKeys, StoredResponse};
use crate::said::Answered;
use crate::table::Table;
use crate::trip::Trip;
use crate::worker::Worker;

/// A question about a response has no body, or a small one.
const MAX_QUESTION_BYTES: u64 = 64 << 10;
/// How much of an id an error repeats, in characters.
const MAX_SHOWN: usize = 128;
/// Responses are below this path.
const PATH: &str = "/v1/responses/";

/// A question about a stored response, by the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResponseQuery {
    /// The id, as the client sent it.
    id: String,
    /// What follows the id: nothing, or a path of one step.
    action: &'static str,
}

impl ResponseQuery {
    /// What a path asks of a response, if it asks something.
    pub(crate) fn of(method: &Method, path: &str) -> Option<Self> {
        let rest = path.strip_prefix(PATH)?;
        let (id, action) = rest.split_once('/').unwrap_or((rest, ""));
        let action = match (method.as_str(), action) {
            ("GET" | "DELETE", "") => "",
            ("GET", "input_items") => "/input_items",
            ("POST", "cancel") => "/cancel",
            _ => return None,
        };
        let id = id.to_owned();
        (!id.is_empty()).then_some(Self { id, action })
    }
}

/// A stored response that a request continues.
#[derive(Clone, Debug)]
pub(crate) struct ContinuedResponse {
    pub(crate) worker: WorkerId,
    pub(crate) engine_id: String,
}

/// Signs the ids of responses that one worker stores for one owner.
#[derive(Clone, Debug)]
pub(crate) struct IdSigner {
    keys: Arc<ResponseIdKeys>,
    owner: Owner,
    worker: Arc<Worker>,
}

impl IdSigner {
    /// The id that clients see for an engine's.
    pub(crate) fn sign(&self, engine_id: &str) -> Option<String> {
        self.keys.sign(self.owner, self.worker.tag, engine_id)
    }

    /// A whole answer as the client gets it.
    fn sign_answer(&self, head: &response::Parts, body: Bytes) -> Bytes {
        let sign = |id: &str| self.sign(id);
        if is_events(&head.headers) {
            return signed_events(&body, &sign);
        }
        response_ids::replace_in_body(&body, &sign).unwrap_or(body)
    }
}

/// All events of a stream that is here, with signed ids.
fn signed_events(body: &Bytes, sign: response_ids::ReplaceId<'_>) -> Bytes {
    let mut splitter = Splitter::new(LONGEST_EVENT);
    splitter.push(body.clone());
    let mut signed = BytesMut::with_capacity(body.len() + body.len() / 8);
    loop {
        match splitter.next_event() {
            Ok(Some(event)) => match response_ids::replace_in_event(&event, sign) {
                Some(replaced) => signed.extend_from_slice(&replaced),
                None => signed.extend_from_slice(event.raw()),
            },
            Ok(None) => break,
            // An event of such a length has no response that could be read.
            Err(_) => return body.clone(),
        }
    }
    signed.extend_from_slice(&splitter.rest());
    signed.freeze()
}

/// An engine's error with the client's id in place of the engine's.
fn with_client_id(error: Bytes, engine_id: &str, client_id: &str) -> Bytes {
    if memchr::memmem::find(&error, engine_id.as_bytes()).is_none() {
        return error;
    }
    // Both ids stand in JSON as they are.
    match std::str::from_utf8(&error) {
        Ok(text) => text.replace(engine_id, client_id).into(),
        Err(_) => error,
    }
}

impl Trip {
    /// Signs the ids of an answer of this worker, if answers of this kind have some.
    pub(crate) fn id_signer(&self, worker: &Arc<Worker>) -> Option<IdSigner> {
        (self.asked.endpoint == Endpoint::Responses).then(|| IdSigner {
            keys: self.way.gateway.response_ids.load_full(),
            owner: self.owner,
            worker: worker.clone(),
        })
    }

    /// A whole answer of a worker as the client gets it.
    pub(crate) fn body_for_client(&self, worker: &Arc<Worker>, head: &response::Parts, body: Bytes) -> Bytes {
        let Some(signer) = self.id_signer(worker) else {
            return body;
        };
        if head.status.is_success() {
            return signer.sign_answer(head, body);
        }
        match (&self.plan.previous_response, &self.asked.previous_response) {
            (Some(engine_id), Some(client_id)) => with_client_id(body, engine_id, client_id),
            _ => body,
        }
    }
}

impl Table {
    /// The worker that stores a response, if it is there.
    pub(crate) fn worker_storing(&self, stored: &StoredResponse) -> Option<&Arc<Worker>> {
        self.workers.values().find(|worker| worker.tag == stored.worker)
    }
}

impl Gateway {
    /// The owner of what a client makes. Without keys a tenant is what a client calls itself, so there is one owner only.
    pub(crate) fn owner(key: Option<&Key>) -> Owner {
        key.map_or(Owner::ANONYMOUS, |key| Owner::tenant(&key.tenant))
    }

    /// The response that a request continues, if it continues one.
    pub(crate) fn continued_response(
        &self,
        table: &Table,
        ask: &Ask,
        key: Option<&Key>,
    ) -> Result<Option<ContinuedResponse>, Refuse> {
        const PARAM: &str = "previous_response_id";
        if ask.endpoint != Endpoint::Responses || !ask.has(Feature::PreviousResponse) {
            return Ok(None);
        }
        let Some(id) = &ask.previous_response else {
            return Err(refused(400, "`previous_response_id` must be a text".to_owned(), PARAM));
        };
        let stored = self.verify(id, key, PARAM)?;
        let worker = table.worker_storing(&stored).ok_or_else(|| worker_gone(id, PARAM))?;
        Ok(Some(ContinuedResponse {
            worker: worker.id,
            engine_id: stored.engine_id,
        }))
    }

    /// The response of an id, if it belongs to this client.
    fn verify(&self, id: &str, key: Option<&Key>, param: &str) -> Result<StoredResponse, Refuse> {
        let verified = self.response_ids.load().verify(Self::owner(key), id);
        verified.map_err(|invalid| {
            let reason = match invalid {
                InvalidId::Malformed => RefusedResponseId::Malformed,
                InvalidId::Forged => RefusedResponseId::Forged,
                InvalidId::Foreign => RefusedResponseId::Foreign,
            };
            self.metrics.gateway.refused_response_ids.of(reason).add(1);
            not_found(id, param)
        })
    }

    /// Passes a question about a stored response to the worker that stores it.
    pub(crate) async fn ask_about_response(
        &self,
        pool: &Arc<Pool>,
        request: Request<Incoming>,
        query: &ResponseQuery,
        id: &RequestId,
        key: Option<&Key>,
    ) -> Result<Answered, Refuse> {
        let stored = self.verify(&query.id, key, "response_id")?;
        let worker = self.table.load().worker_storing(&stored).cloned();
        let worker = worker.ok_or_else(|| worker_gone(&query.id, "response_id"))?;
        let config = self.config.load_full();
        let most = usize::try_from(config.serve.bodies.answer).unwrap_or(usize::MAX);
        let failed =
            |why: String| Refuse::failed(502, format!("worker {} stores this response and {why}", worker.name));
        let (mut head, body) = request.into_parts();
        self.outward.prepare(&mut head.headers, ClientKey::of(key));
        let limits = BodyLimits {
            max_bytes: MAX_QUESTION_BYTES,
            ..bodies::limits(&config.serve)
        };
        let owner = bodies::owner(key, bodies::client(&head.extensions));
        let body = self.bodies.read(body, owner, &limits).await?;
        let mut target = format!("{PATH}{}{}", stored.engine_id, query.action);
        if let Some(query) = head.uri.query() {
            target = format!("{target}?{query}");
        }
        let mut sent = Request::new(body);
        *sent.method_mut() = head.method;
        *sent.uri_mut() = worker.target(&target);
        *sent.headers_mut() = headers::to_worker(&head.headers, &worker.host, &id_header(id));
        let signer = IdSigner {
            keys: self.response_ids.load_full(),
            owner: Self::owner(key),
            worker: worker.clone(),
        };
        let asking = async {
            // A new connection: such questions are rare, and an idle one may be closed already.
            let mut line = pool
                .connect(&worker.address)
                .await
                .map_err(|error| failed(error.to_string()))?;
            let head = line.send(sent).await.map_err(|error| failed(error.to_string()))?;
            let body = line.whole(most).await.map_err(|error| failed(error.to_string()))?;
            pool.put_back(worker.id, line);
            let body = if head.status.is_success() {
                signer.sign_answer(&head, body)
            } else {
                with_client_id(body, &stored.engine_id, &query.id)
            };
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

/// The same words for every id that is not the client's, so that nothing is learnt of other tenants.
fn not_found(id: &str, param: &str) -> Refuse {
    let shown: String = id.chars().take(MAX_SHOWN).collect();
    refused(404, format!("there is no response `{shown}`"), param)
}

/// The id is the client's. Other workers are not asked: what they store under the engine's id is another response.
fn worker_gone(id: &str, param: &str) -> Refuse {
    refused(
        404,
        format!("the worker that stored the response `{id}` is gone"),
        param,
    )
}

fn refused(status: u16, message: String, param: &str) -> Refuse {
    let mut refuse = Refuse::wrong(status, message);
    refuse.problem = refuse.problem.of(param);
    refuse
}

fn id_header(id: &RequestId) -> HeaderValue {
    // Hexadecimal digits are one.
    HeaderValue::from_str(id.as_str()).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_known_by_method_and_path() {
        let asks = |method: Method, path| ResponseQuery::of(&method, path);
        let about_r = |action| {
            let id = "r".to_owned();
            Some(ResponseQuery { id, action })
        };
        assert_eq!(asks(Method::GET, "/v1/responses/r"), about_r(""));
        assert_eq!(asks(Method::DELETE, "/v1/responses/r"), about_r(""));
        assert_eq!(asks(Method::POST, "/v1/responses/r/cancel"), about_r("/cancel"));
        assert_eq!(
            asks(Method::GET, "/v1/responses/r/input_items"),
            about_r("/input_items")
        );
        assert_eq!(asks(Method::POST, "/v1/responses/r"), None);
        assert_eq!(asks(Method::GET, "/v1/responses/"), None);
        assert_eq!(asks(Method::GET, "/v1/responses/r/../../metrics"), None);
    }

    #[test]
    fn an_engines_error_names_the_id_that_the_client_knows() {
        let error = Bytes::from_static(b"{\"message\":\"Response with id 'resp_1' not found.\"}");
        let shown = with_client_id(error.clone(), "resp_1", "resp_signed");
        assert_eq!(shown, "{\"message\":\"Response with id 'resp_signed' not found.\"}");
        assert_eq!(with_client_id(error.clone(), "resp_2", "resp_signed"), error);
    }

    #[test]
    fn ids_of_a_stream_that_is_here_are_signed() {
        let body = Bytes::from_static(b"data: {\"response\":{\"id\":\"a\"}}\n\ndata: {\"delta\":\"a\"}\n\ndata: [DO");
        let signed = signed_events(&body, &|id| Some(format!("resp_{id}")));
        assert_eq!(
            signed,
            "data: {\"response\":{\"id\":\"resp_a\"}}\n\ndata: {\"delta\":\"a\"}\n\ndata: [DO"
        );
    }
}
