//! Serves HTTP/1.1 behind the limits of a listener.
//!
//! - [`Connection`]: one connection, with any handler of requests;
//! - [`HttpServer`]: a listener with routes, TLS and a token, for services beside the gateway.
//!
//! **Invariant:** where a token is asked for, only `GET /health` is answered without it, and the handler knows it ([`Caller`]).

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use homing_config::HttpServer as Settings;
use homing_telemetry::Metrics;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connections::{Access, WhenFull};
use crate::credentials::{Credentials, CredentialsError, Token};
use crate::door::{Door, Entered};
use crate::guard::{Ticketed, Watch, is_last};
use crate::stall::Stall;

/// The longest head, unless more is allowed: at least what the library reads at once.
const BUFFER: usize = 64 << 10;
/// Headers that the library takes unless it is told otherwise.
const LIBRARY_HEADERS: usize = 100;
/// The pause after a connection could not be accepted: usually there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Connections above a limit that may ask for health and metrics.
const RESERVED: usize = 8;
/// Answered without a token, and above a connection limit.
const HEALTH: &str = "/health";
/// How a token stands in `Authorization`.
const BEARER: &[u8] = b"bearer ";

/// The address that a request is counted for, as an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// Whether a request had the token that is asked for, as an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// It had it, or none is asked for.
    Authorized,
    /// It had none, and asks for what is open: it is told no details.
    Anonymous,
}

/// The token in an `Authorization` header.
pub fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then_some(token.trim_ascii())
}

/// An answer that only says what is wrong.
pub fn error_response(status: u16, message: &str) -> Response<Body> {
    let body = serde_json::json!({ "error": { "message": message } }).to_string();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Waits for the next connection.
pub async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A connection that was accepted.
#[derive(Debug)]
pub struct Connection {
    /// Its socket.
    pub stream: TcpStream,
    /// Counts it.
    pub entered: Entered,
    /// How long the client may take nothing of an answer.
    pub write_timeout: Duration,
}

impl Connection {
    /// Answers its requests with `handler`, until it ends or another connection takes its place. After `stop` no further request is
    /// taken.
    pub async fn serve<H, F>(self, door: &Door, handler: H, stop: impl Future<Output = ()>)
    where
        H: Fn(Request<Incoming>) -> F,
        F: Future<Output = Response<Body>>,
    {
        let Self {
            stream,
            entered,
            write_timeout,
        } = self;
        let serving = async {
            let wrap = |io| Stall::new(io, write_timeout);
            let Some(guard) = door.open(stream, &entered, wrap).await else {
                return;
            };
            let (entered, handler) = (&entered, &handler);
            let service = service_fn(async move |mut request: Request<Incoming>| {
                let is_last = is_last(request.headers()) || entered.access() == Access::HealthOnly;
                let mut response = if let Some(response) = refusal(entered, &request) {
                    response
                } else {
                    request.extensions_mut().insert(ClientAddress(entered.client()));
                    handler(request).await
                };
                if is_last {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, close);
                }
                let watch = entered.watch().clone();
                Ok::<_, Infallible>(response.map(|body| Ticketed::new(body, watch)))
            });
            let mut http = http1::Builder::new();
            // What is longer, or takes longer, the guard refuses.
            http.max_buf_size(door.most_header_bytes().max(BUFFER));
            if door.most_headers() > LIBRARY_HEADERS {
                http.max_headers(door.most_headers());
            }
            let mut connection = pin!(http.serve_connection(TokioIo::new(guard), service));
            let mut stop = pin!(stop);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = stop.as_mut() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::trace!(%error, "a connection ended");
            }
        };
        tokio::select! {
            () = entered.watch().displaced() => {}
            () = serving => {}
        }
    }
}

/// The answer to a request that the handler does not get.
fn refusal(entered: &Entered, request: &Request<Incoming>) -> Option<Response<Body>> {
    let watch: &Watch = entered.watch();
    if let Some(fault) = watch.fault(request.method()) {
        return Some(error_response(fault.status(), fault.message()));
    }
    if entered.access() == Access::HealthOnly && !is_health(request.method(), request.uri().path()) {
        let mut response = error_response(
            503,
            "there are too many connections: only health and metrics are answered on this one",
        );
        let soon = HeaderValue::from_static("1");
        response.headers_mut().insert(header::RETRY_AFTER, soon);
        return Some(response);
    }
    None
}

/// Whether a request is answered above a connection limit.
fn is_health(method: &Method, path: &str) -> bool {
    const PATHS: [&str; 6] = [HEALTH, "/health/live", "/health/ready", "/live", "/ready", "/metrics"];
    method == Method::GET && PATHS.contains(&path)
}

/// A listener with routes, TLS and a token.
#[derive(Clone, Debug)]
pub struct HttpServer {
    door: Arc<Door>,
    routes: Router,
    credentials: Arc<Credentials>,
    write_timeout: Duration,
    metrics: Arc<Metrics>,
}

impl HttpServer {
    /// A server with these settings. Its certificate and its token are read, and read again as often as `renew` says.
    pub fn new(
        settings: &Settings,
        routes: Router,
        renew: Duration,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, CredentialsError> {
        let credentials = Credentials::read(settings, renew)?;
        let door = Door::new(
            settings.connections as usize,
            WhenFull::MakeRoom { reserved: RESERVED },
            settings.door.clone(),
            credentials.identity(),
            metrics,
        );
        Ok(Self {
            door,
            routes,
            credentials: Arc::new(credentials),
            write_timeout: settings.write_timeout,
            metrics: metrics.clone(),
        })
    }

    /// How it is spoken to.
    pub fn scheme(&self) -> &'static str {
        if self.credentials.identity().is_some() {
            "https"
        } else {
            "http"
        }
    }

    /// Whether a token is asked for.
    pub fn asks_for_token(&self) -> bool {
        self.credentials.token().is_set()
    }

    /// Answers until `stop` is done, and then what is under way.
    pub async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(());
        let mut connections = JoinSet::new();
        let renewing = tokio::spawn(self.credentials.clone().keep_renewing());
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                (stream, from) = accept(&listener) => {
                    if let Some((entered, stream)) = self.door.enter(stream, from) {
                        connections.spawn(self.clone().connection(stream, entered, stopped.clone()));
                    }
                    while connections.try_join_next().is_some() {}
                }
                () = stop.as_mut() => break,
            }
        }
        drop(listener);
        stopping.send_replace(());
        while connections.join_next().await.is_some() {}
        renewing.abort();
    }

    async fn connection(self, stream: TcpStream, entered: Entered, mut stopped: watch::Receiver<()>) {
        let stop = async move {
            // An error means that nobody can tell any more.
            let _ = stopped.changed().await;
        };
        let connection = Connection {
            stream,
            entered,
            write_timeout: self.write_timeout,
        };
        let door = self.door.clone();
        connection.serve(&door, |request| self.answer(request), stop).await;
    }

    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        let is_open = request.method() == Method::GET && request.uri().path() == HEALTH;
        let caller = match (is_authorized(self.credentials.token(), request.headers()), is_open) {
            (true, _) => Caller::Authorized,
            (false, true) => Caller::Anonymous,
            (false, false) => return self.unauthorized(),
        };
        request.extensions_mut().insert(caller);
        match TowerToHyperService::new(self.routes.clone()).call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn unauthorized(&self) -> Response<Body> {
        self.metrics.http.unauthorized_requests.add(1);
        let mut response = error_response(401, "a token is needed, as `Authorization: Bearer TOKEN`");
        let how = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, how);
        response
    }
}

fn is_authorized(token: &Token, headers: &HeaderMap) -> bool {
    let sent = headers.get(header::AUTHORIZATION);
    token.allows(sent.and_then(|value| bearer(value.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_its_header_only_in_one_form() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b"abc"), None);
    }

    #[test]
    fn only_questions_about_health_pass_above_a_limit() {
        assert!(is_health(&Method::GET, "/health") && is_health(&Method::GET, "/metrics"));
        assert!(!is_health(&Method::POST, "/health") && !is_health(&Method::GET, "/admin/fleet"));
    }
}
