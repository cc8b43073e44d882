//! The listener of operators: who may ask, and how they are answered.
//!
//! Whoever knows the token of operators may ask for everything; whoever knows that of workers may register one. `/health`, `/live` and
//! `/ready` are for anybody.
//!
//! **Invariant:** nobody registers a worker who does not know a token, not even on the loopback interface.
//!
//! Without a token of operators the listener is on the loopback interface, where other users of the machine and pages in a browser
//! can still reach it. What comes from a page of another place is refused.

use std::net::{IpAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, Response, header};
use homing_config::SecretText;
use homing_platform::door::Door;
use homing_platform::server::{Connection, accept, bearer, error_response};
use homing_telemetry::{Asker, Metrics};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

/// Where workers register.
const WORKERS: &str = "/admin/workers/";

/// What operators and workers must know. Written when files change, read by every request.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    pub(crate) operators: ArcSwapOption<SecretText>,
    pub(crate) workers: ArcSwapOption<SecretText>,
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denied {
    Unknown(Asker),
    NoRegistration,
    Elsewhere,
}

impl Tokens {
    fn allow(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Denied> {
        if method == Method::GET && matches!(path, "/health" | "/live" | "/ready") {
            return Ok(());
        }
        let said = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| bearer(value.as_bytes()));
        let (operators, workers) = (self.operators.load(), self.workers.load());
        let knows = |token: &Option<Arc<SecretText>>| {
            let known = token.as_ref().zip(said);
            known.is_some_and(|(token, said)| token.is(said))
        };
        if knows(&operators) {
            return Ok(());
        }
        let registers = path.starts_with(WORKERS) && method != Method::GET;
        match (registers, operators.is_some(), workers.is_some()) {
            (true, _, true) if knows(&workers) => Ok(()),
            (true, false, false) => Err(Denied::NoRegistration),
            (true, _, _) => Err(Denied::Unknown(Asker::Worker)),
            (false, true, _) => Err(Denied::Unknown(Asker::Operator)),
            (false, false, _) if is_foreign(headers) => Err(Denied::Elsewhere),
            (false, false, _) => Ok(()),
        }
    }
}

/// Whether a page of another place sends this: its name leads here, or it says where it is from.
fn is_foreign(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(header::HOST).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_here = name.is_empty()
        || name == "localhost"
        || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let origin = text(header::ORIGIN);
    let other = origin.is_some_and(|origin| origin.split_once("://").is_none_or(|(_, from)| from != host));
    !is_here || other
}

/// All that is needed to answer operators.
#[derive(Clone, Debug)]
pub(crate) struct Operators {
    pub(crate) door: Arc<Door>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) routes: Router,
    pub(crate) metrics: Arc<Metrics>,
    /// How long a client may take nothing of its answer.
    pub(crate) write_timeout: Duration,
}

impl Operators {
    /// Answers until it is dropped.
    pub(crate) async fn run(self, listener: StdListener) {
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "operators cannot be answered");
                return;
            }
        };
        // They end with us.
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (stream, from) = accept(&listener).await;
            if let Some((entered, stream)) = self.door.enter(stream, from) {
                let connection = Connection {
                    stream,
                    entered,
                    write_timeout: self.write_timeout,
                };
                connections.spawn(self.clone().connection(connection));
            }
            while connections.try_join_next().is_some() {}
        }
    }

    async fn connection(self, connection: Connection) {
        let handler = |request| self.clone().answer(request);
        connection.serve(&self.door, handler, std::future::pending()).await;
    }

    async fn answer(self, request: Request<hyper::body::Incoming>) -> Response<Body> {
        match self
            .tokens
            .allow(request.method(), request.uri().path(), request.headers())
        {
            Ok(()) => match TowerToHyperService::new(self.routes).call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
            Err(denied) => self.deny(denied),
        }
    }

    fn deny(&self, denied: Denied) -> Response<Body> {
        let unauthorized = &self.metrics.gateway.unauthorized_requests;
        let (status, message) = match denied {
            Denied::Unknown(asker) => {
                unauthorized.of(asker).add(1);
                (401, "a token is needed, as `Authorization: Bearer TOKEN`")
            }
            Denied::NoRegistration => {
                unauthorized.of(Asker::Worker).add(1);
                (403, "no registration is taken: `serve.register-token` is not set")
            }
            Denied::Elsewhere => {
                unauthorized.of(Asker::Operator).add(1);
                (
                    403,
                    "requests from pages of other places are not answered without a token",
                )
            }
        };
        let mut response = error_response(status, message);
        if status == 401 {
            let how = header::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, how);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATOR: &str = "Bearer the-token-of-operators";
    const WORKER: &str = "Bearer the-token-of-workers";

    fn tokens(operators: bool, workers: bool) -> Tokens {
        let secret = |is: bool, text: &str| is.then(|| Arc::new(SecretText::new(&text[7..]).unwrap()));
        let tokens = Tokens::default();
        tokens.operators.store(secret(operators, OPERATOR));
        tokens.workers.store(secret(workers, WORKER));
        tokens
    }

    fn allowed(tokens: &Tokens, request: &str, headers: &[(&str, &str)]) -> Result<(), Denied> {
        let (method, path) = request.split_once(' ').unwrap();
        let headers = headers.iter().map(|(name, value)| {
            let name: header::HeaderName = name.parse().unwrap();
            (name, value.parse().unwrap())
        });
        tokens.allow(&method.parse().unwrap(), path, &headers.collect())
    }

    #[test]
    fn who_knows_what_may_do_what() {
        use Asker::{Operator, Worker};
        let (o, w) = (("authorization", OPERATOR), ("authorization", WORKER));
        let (none, both) = (tokens(false, false), tokens(true, true));
        let put = "PUT /admin/workers/a";
        for (tokens, request, said, expected) in [
            (&none, "GET /metrics", None, Ok(())),
            (&none, "POST /admin/drain", None, Ok(())),
            (&none, put, None, Err(Denied::NoRegistration)),
            (&none, put, Some(w), Err(Denied::NoRegistration)),
            (&both, "GET /live", None, Ok(())),
            (&both, "POST /live", None, Err(Denied::Unknown(Operator))),
            (&both, "GET /metrics", None, Err(Denied::Unknown(Operator))),
            (&both, "GET /metrics", Some(w), Err(Denied::Unknown(Operator))),
            (&both, "GET /metrics", Some(o), Ok(())),
            (&both, put, None, Err(Denied::Unknown(Worker))),
            (&both, put, Some(w), Ok(())),
            (&both, put, Some(o), Ok(())),
            (&both, "DELETE /admin/workers/a", Some(w), Ok(())),
            (&both, "GET /admin/workers/a", Some(w), Err(Denied::Unknown(Operator))),
            (&tokens(false, true), put, Some(w), Ok(())),
            (&tokens(false, true), put, Some(o), Err(Denied::Unknown(Worker))),
            (&tokens(false, true), "GET /metrics", None, Ok(())),
            (&tokens(true, false), put, Some(o), Ok(())),
            (&tokens(true, false), put, Some(w), Err(Denied::Unknown(Worker))),
        ] {
            let headers: Vec<(&str, &str)> = said.into_iter().collect();
            assert_eq!(allowed(tokens, request, &headers), expected, "{request} {said:?}");
        }
    }

    #[test]
    fn a_page_of_another_place_cannot_order_anything() {
        let none = tokens(false, false);
        for (headers, is_allowed) in [
            (&[("host", "127.0.0.1:8081")][..], true),
            (&[("host", "localhost:8081")], true),
            (&[("host", "[::1]:8081")], true),
            (&[("host", "::1")], true),
            (&[], true),
            (&[("host", "evil.example:8081")], false),
            (&[("host", "127.0.0.1:8081"), ("origin", "https://evil.example")], false),
            (&[("host", "127.0.0.1:8081"), ("origin", "null")], false),
            (&[("host", "127.0.0.1:8081"), ("origin", "http://127.0.0.1:8081")], true),
        ] {
            let found = allowed(&none, "POST /admin/drain", headers).is_ok();
            assert_eq!(found, is_allowed, "{headers:?}");
        }
    }
}
