//! The listener of operators: who may ask, and how they are answered.
//!
//! The token of operators opens everything; a token of workers registers what it allows. Probes need no token and are answered with yes or
//! no and nothing more.
//!
//! **Invariant:** nobody registers a worker who does not know a token, not even on the loopback interface.
//!
//! Without a token of operators the listener is on the loopback interface, where other users of the machine and pages in a browser
//! can still reach it. What comes from a page of another place is refused.

use std::net::{IpAddr, Ipv4Addr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, Response, header};
use homing_config::SecretText;
use homing_config::register_tokens::RegisterToken;
use homing_discovery::{Registrar, RegistrarKind};
use homing_platform::door::Door;
use homing_platform::server::{Connection, accept, bearer, error_response};
use homing_telemetry::{Asker, Metrics};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use crate::registrars::Registrars;

/// Where workers register.
const WORKERS: &str = "/admin/workers/";

/// What operators and workers must know. Written when files change, read by every request.
#[derive(Debug)]
pub(crate) struct Tokens {
    pub(crate) operators: ArcSwapOption<SecretText>,
    pub(crate) workers: ArcSwapOption<SecretText>,
    pub(crate) registrars: Registrars,
}

/// What a request may do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    /// Ask, and order what operators order.
    Anything,
    /// Learn yes or no from a probe.
    Probe,
    /// Register workers, as an operator.
    RegisterAny,
    /// Register what this token allows.
    Register(Arc<RegisterToken>),
}

/// Whether a request is a probe, as orchestrators send them.
fn is_probe(method: &Method, path: &str) -> bool {
    const PROBES: [&str; 5] = ["/health", "/live", "/ready", "/health/live", "/health/ready"];
    (method == Method::GET || method == Method::HEAD) && PROBES.contains(&path)
}

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denied {
    Unknown(Asker),
    NoRegistration,
    Elsewhere,
}

impl Tokens {
    pub(crate) fn new(registrars: Registrars) -> Self {
        Self {
            operators: ArcSwapOption::default(),
            workers: ArcSwapOption::default(),
            registrars,
        }
    }

    fn allow(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<Allowed, Denied> {
        let said = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| bearer(value.as_bytes()));
        let (operators, workers) = (self.operators.load(), self.workers.load());
        let knows = |token: &Option<Arc<SecretText>>| {
            let known = token.as_ref().zip(said);
            known.is_some_and(|(token, said)| token.is(said))
        };
        let registers = path.starts_with(WORKERS) && method != Method::GET;
        if knows(&operators) {
            return Ok(if registers {
                Allowed::RegisterAny
            } else {
                Allowed::Anything
            });
        }
        if is_probe(method, path) {
            let is_open = operators.is_none() && !is_foreign(headers);
            return Ok(if is_open { Allowed::Anything } else { Allowed::Probe });
        }
        if registers && let Some(token) = said.and_then(|said| self.registrars.find(said)) {
            return Ok(Allowed::Register(token));
        }
        match (
            registers,
            operators.is_some(),
            workers.is_some() || self.registrars.has_any(),
        ) {
            (true, _, true) if knows(&workers) => Ok(Allowed::Register(self.registrars.common())),
            (true, false, false) => Err(Denied::NoRegistration),
            (true, _, _) => Err(Denied::Unknown(Asker::Worker)),
            (false, true, _) => Err(Denied::Unknown(Asker::Operator)),
            (false, false, _) if is_foreign(headers) => Err(Denied::Elsewhere),
            (false, false, _) => Ok(Allowed::Anything),
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
        // A peer whose address is not known has no rights of this machine.
        let peer = connection
            .stream
            .peer_addr()
            .map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.ip());
        let door = self.door.clone();
        let handler = |request| self.clone().answer(request, peer);
        connection.serve(&door, handler, std::future::pending()).await;
    }

    async fn answer(self, mut request: Request<hyper::body::Incoming>, peer: IpAddr) -> Response<Body> {
        let allowed = self
            .tokens
            .allow(request.method(), request.uri().path(), request.headers());
        let registrar = match &allowed {
            Ok(Allowed::RegisterAny) => Some(Registrar::operator(peer)),
            Ok(Allowed::Register(token)) => Some(Registrar {
                token: token.clone(),
                kind: RegistrarKind::Worker,
                peer,
            }),
            Ok(Allowed::Anything | Allowed::Probe) | Err(_) => None,
        };
        if let Some(registrar) = registrar {
            if let Some(refusal) = self.limit(&registrar) {
                return refusal;
            }
            request.extensions_mut().insert(registrar);
        }
        match allowed {
            Ok(allowed) => {
                let response = match TowerToHyperService::new(self.routes).call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                };
                match allowed {
                    Allowed::Probe => without_detail(&response),
                    Allowed::Anything | Allowed::RegisterAny | Allowed::Register(_) => response,
                }
            }
            Err(denied) => self.deny(denied),
        }
    }

    /// Refuses what comes from a worker's token too often.
    fn limit(&self, registrar: &Registrar) -> Option<Response<Body>> {
        if registrar.kind == RegistrarKind::Operator {
            return None;
        }
        let wait = self.tokens.registrars.count_use(registrar, Instant::now()).err()?;
        self.metrics.discovery.limited_registrations.add(1);
        let mut response = error_response(
            429,
            "too many registrations with this token from this address: see `discovery.registrations-per-minute`",
        );
        let seconds = header::HeaderValue::from(wait.as_secs().saturating_add(1));
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
        Some(response)
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
                (
                    403,
                    "no registration is taken: neither `serve.register-token` nor `serve.register-tokens` is set",
                )
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

/// The answer where there is nothing.
pub(crate) async fn unknown_path() -> Response<Body> {
    error_response(
        404,
        "there is nothing at this path: see the page on operating for what operators can ask",
    )
}

/// The answer to another method than a path has.
pub(crate) async fn unknown_method() -> Response<Body> {
    error_response(405, "this path is asked with another method")
}

/// The answer to a probe without a token: the status and no detail.
fn without_detail(response: &Response<Body>) -> Response<Body> {
    let text = if response.status().is_success() {
        "ok\n"
    } else {
        "not ready\n"
    };
    let mut short = Response::new(Body::from(text));
    *short.status_mut() = response.status();
    let kind = header::HeaderValue::from_static("text/plain; charset=utf-8");
    short.headers_mut().insert(header::CONTENT_TYPE, kind);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATOR: &str = "Bearer the-token-of-operators";
    const WORKER: &str = "Bearer the-token-of-workers";

    fn tokens(operators: bool, workers: bool) -> Tokens {
        let secret = |is: bool, text: &str| is.then(|| Arc::new(SecretText::new(&text[7..]).unwrap()));
        let tokens = Tokens::new(Registrars::new(1));
        tokens.operators.store(secret(operators, OPERATOR));
        tokens.workers.store(secret(workers, WORKER));
        tokens
    }

    fn allowed(tokens: &Tokens, request: &str, headers: &[(&str, &str)]) -> Result<&'static str, Denied> {
        let (method, path) = request.split_once(' ').unwrap();
        let headers = headers.iter().map(|(name, value)| {
            let name: header::HeaderName = name.parse().unwrap();
            (name, value.parse().unwrap())
        });
        let found = tokens.allow(&method.parse().unwrap(), path, &headers.collect());
        found.map(|allowed| match allowed {
            Allowed::Anything => "anything",
            Allowed::Probe => "probe",
            Allowed::RegisterAny => "register any",
            Allowed::Register(_) => "register",
        })
    }

    #[test]
    fn who_knows_what_may_do_what() {
        use Asker::{Operator, Worker};
        let (o, w) = (("authorization", OPERATOR), ("authorization", WORKER));
        let (none, both) = (tokens(false, false), tokens(true, true));
        let put = "PUT /admin/workers/a";
        for (tokens, request, said, expected) in [
            (&none, "GET /metrics", None, Ok("anything")),
            (&none, "POST /admin/drain", None, Ok("anything")),
            (&none, put, None, Err(Denied::NoRegistration)),
            (&none, put, Some(w), Err(Denied::NoRegistration)),
            (&both, "GET /live", None, Ok("probe")),
            (&both, "GET /health/ready", None, Ok("probe")),
            (&both, "HEAD /health/live", None, Ok("probe")),
            (&both, "GET /health/ready", Some(w), Ok("probe")),
            (&both, "GET /health/ready", Some(o), Ok("anything")),
            (&none, "GET /ready", None, Ok("anything")),
            (&both, "GET /health/", None, Err(Denied::Unknown(Operator))),
            (&both, "GET /health/live/x", None, Err(Denied::Unknown(Operator))),
            (&both, "POST /live", None, Err(Denied::Unknown(Operator))),
            (&both, "GET /metrics", None, Err(Denied::Unknown(Operator))),
            (&both, "GET /metrics", Some(w), Err(Denied::Unknown(Operator))),
            (&both, "GET /metrics", Some(o), Ok("anything")),
            (&both, put, None, Err(Denied::Unknown(Worker))),
            (&both, put, Some(w), Ok("register")),
            (&both, put, Some(o), Ok("register any")),
            (&both, "DELETE /admin/workers/a", Some(w), Ok("register")),
            (&both, "GET /admin/workers/a", Some(w), Err(Denied::Unknown(Operator))),
            (&tokens(false, true), put, Some(w), Ok("register")),
            (&tokens(false, true), put, Some(o), Err(Denied::Unknown(Worker))),
            (&tokens(false, true), "GET /metrics", None, Ok("anything")),
            (&tokens(true, false), put, Some(o), Ok("register any")),
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
