//! Sends requests to engines, agents and gateways: probes, loads, adapters, events over HTTP, telemetry.
//!
//! It follows no redirects and uses no proxy of the environment: servers are near, and another address would be given the key.
//!
//! **Invariant:** a request whose client or call sets a timeout ends within it, connecting and reading included.
//!
//! **Invariant:** a body that is read as a whole has at most [`MAX_BODY_BYTES`]. Longer ones are read in pieces.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use homing_tls::Trust;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::time::Instant;

use crate::connect::{Address, ConnectError, ConnectRules};
use crate::connection::{ConnectionError, HttpConnection};
use crate::pool::ConnectionPool;

/// The longest body that is read as a whole.
const MAX_BODY_BYTES: usize = 64 << 20;

/// What all requests of a client have in common.
#[derive(Clone, Debug)]
pub struct HttpClientConfig {
    /// Headers of every request, such as an API key.
    pub headers: HeaderMap,
    /// The certificates to trust. `None`: `https` addresses are not reached.
    pub trust: Option<Trust>,
    /// Which addresses may be connected to. `None`: any.
    pub rules: Option<ConnectRules>,
    /// The longest time that a connection may take.
    pub connect_timeout: Duration,
    /// The longest time from sending to the end of the answer. `None`: as long as it takes.
    pub timeout: Option<Duration>,
    /// How long idle connections are kept. It is shorter than the 5 s after which uvicorn closes them.
    pub idle_timeout: Duration,
}

impl Default for HttpClientConfig {
    fn default() -> Self {
        Self {
            headers: HeaderMap::new(),
            trust: None,
            rules: None,
            connect_timeout: Duration::from_secs(10),
            timeout: None,
            idle_timeout: Duration::from_secs(4),
        }
    }
}

/// Why a request failed.
#[derive(Debug, Error)]
pub enum HttpClientError {
    /// The address cannot be used.
    #[error("{url:?} is no address for HTTP: {reason}")]
    InvalidUrl {
        /// The address.
        url: String,
        /// Why it cannot be used.
        reason: String,
    },
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection failed before the end of the answer.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The answer did not end in time.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The answer has a status of failure.
    #[error("the answer has status {0}")]
    Status(StatusCode),
    /// The answer is not the JSON that was expected.
    #[error("the answer cannot be read: {0}")]
    Json(#[from] serde_json::Error),
}

impl HttpClientError {
    /// Whether a time limit was reached.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut(_) | Self::Connect(ConnectError::TimedOut(_)))
    }

    /// Whether there was no connection.
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Connect(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Origin {
    scheme: Scheme,
    host: String,
    port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scheme {
    Http,
    Https,
}

#[derive(Debug)]
struct Shared {
    config: HttpClientConfig,
    pool: ConnectionPool<Origin>,
}

/// An HTTP client. Clones share their connections.
#[derive(Clone, Debug)]
pub struct HttpClient {
    shared: Arc<Shared>,
}

impl Default for HttpClient {
    fn default() -> Self {
        Self::new(HttpClientConfig::default())
    }
}

impl HttpClient {
    /// A client without connections.
    pub fn new(config: HttpClientConfig) -> Self {
        let pool = ConnectionPool::new(config.idle_timeout, config.connect_timeout);
        Self {
            shared: Arc::new(Shared { config, pool }),
        }
    }

    /// A GET request.
    pub fn get(&self, url: impl Into<String>) -> HttpRequest {
        self.request(Method::GET, url)
    }

    /// A POST request.
    pub fn post(&self, url: impl Into<String>) -> HttpRequest {
        self.request(Method::POST, url)
    }

    /// A PUT request.
    pub fn put(&self, url: impl Into<String>) -> HttpRequest {
        self.request(Method::PUT, url)
    }

    /// A DELETE request.
    pub fn delete(&self, url: impl Into<String>) -> HttpRequest {
        self.request(Method::DELETE, url)
    }

    /// A request of any method.
    pub fn request(&self, method: Method, url: impl Into<String>) -> HttpRequest {
        HttpRequest {
            client: self.clone(),
            method,
            url: url.into(),
            headers: self.shared.config.headers.clone(),
            body: Ok(Bytes::new()),
            timeout: self.shared.config.timeout,
        }
    }
}

/// A request that is not sent yet.
#[derive(Debug)]
#[must_use = "a request does nothing until it is sent"]
pub struct HttpRequest {
    client: HttpClient,
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Result<Bytes, serde_json::Error>,
    timeout: Option<Duration>,
}

impl HttpRequest {
    /// Sets a header. One that cannot be sent over HTTP is left out.
    pub fn header(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Self {
        let name = HeaderName::from_bytes(name.as_ref().as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_ref())) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Sets several headers.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Sets the token of `Authorization: Bearer`.
    pub fn bearer_auth(self, token: impl AsRef<str>) -> Self {
        self.header(header::AUTHORIZATION, format!("Bearer {}", token.as_ref()))
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Ok(body.into());
        self
    }

    /// Sets a body of JSON.
    pub fn json<T: Serialize + ?Sized>(mut self, body: &T) -> Self {
        self.body = serde_json::to_vec(body).map(Bytes::from);
        self.header(header::CONTENT_TYPE, "application/json")
    }

    /// Sets the longest time from sending to the end of the answer.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sends the request and waits for the head of its answer.
    pub async fn send(self) -> Result<HttpResponse, HttpClientError> {
        let (origin, path) = parse_url(&self.url)?;
        let body = self.body?;
        let mut headers = self.headers;
        if !headers.contains_key(header::HOST) {
            let host = HeaderValue::from_str(&origin.authority());
            headers.insert(header::HOST, host.map_err(|error| invalid_url(&self.url, &error))?);
        }
        let request = || {
            let mut request = Request::new(body.clone());
            *request.method_mut() = self.method.clone();
            *request.uri_mut() = path.clone();
            *request.headers_mut() = headers.clone();
            request
        };
        let limit = self.timeout.map(|timeout| TimeLimit {
            timeout,
            end: Instant::now() + timeout,
        });
        // On the heap: callers keep this in futures of their own, which would be larger by some kilobytes each.
        let exchange = Box::pin(exchange(&self.client.shared, &origin, &self.method, request));
        let (head, connection) = within(limit, exchange).await?;
        Ok(HttpResponse {
            status: head.status,
            headers: head.headers,
            connection: Some(connection),
            client: self.client,
            origin,
            limit,
        })
    }
}

/// When an answer must have ended.
#[derive(Clone, Copy, Debug)]
struct TimeLimit {
    timeout: Duration,
    end: Instant,
}

async fn within<T>(
    limit: Option<TimeLimit>,
    work: impl Future<Output = Result<T, HttpClientError>>,
) -> Result<T, HttpClientError> {
    match limit {
        None => work.await,
        Some(limit) => match tokio::time::timeout_at(limit.end, work).await {
            Ok(done) => done,
            Err(_) => Err(HttpClientError::TimedOut(limit.timeout)),
        },
    }
}

async fn exchange(
    shared: &Shared,
    origin: &Origin,
    method: &Method,
    request: impl Fn() -> Request<Bytes>,
) -> Result<(hyper::http::response::Parts, HttpConnection), HttpClientError> {
    // A server may close an idle connection at the moment a request is sent over it. Only a request that may be repeated takes
    // one, and is then sent again over a new connection.
    if method.is_idempotent()
        && let Some(mut connection) = shared.pool.take(origin)
        && let Ok(head) = connection.send(request()).await
    {
        return Ok((head, connection));
    }
    let trust = match origin.scheme {
        Scheme::Http => None,
        Scheme::Https => Some(shared.config.trust.clone().ok_or_else(|| HttpClientError::InvalidUrl {
            url: origin.authority(),
            reason: "this client speaks no TLS".to_owned(),
        })?),
    };
    let address = Address {
        host: origin.host.clone(),
        port: origin.port,
        trust,
        rules: shared.config.rules.clone(),
    };
    let mut connection = shared.pool.connect(&address).await?;
    let head = connection.send(request()).await?;
    Ok((head, connection))
}

/// An answer whose head came.
#[derive(Debug)]
pub struct HttpResponse {
    status: StatusCode,
    headers: HeaderMap,
    connection: Option<HttpConnection>,
    client: HttpClient,
    origin: Origin,
    limit: Option<TimeLimit>,
}

impl HttpResponse {
    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Its headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// An error if the status is one of failure.
    pub fn error_for_status(self) -> Result<Self, HttpClientError> {
        if self.status.is_client_error() || self.status.is_server_error() {
            return Err(HttpClientError::Status(self.status));
        }
        Ok(self)
    }

    /// The next piece of the body; nothing after its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpClientError> {
        let Some(connection) = &mut self.connection else {
            return Ok(None);
        };
        let piece = within(self.limit, async { Ok(connection.piece().await.transpose()?) }).await?;
        if piece.is_none()
            && let Some(connection) = self.connection.take()
        {
            self.client.shared.pool.put_back(self.origin.clone(), connection);
        }
        Ok(piece)
    }

    /// The whole body.
    pub async fn bytes(mut self) -> Result<Bytes, HttpClientError> {
        let mut body = BytesMut::new();
        while let Some(piece) = self.chunk().await? {
            if body.len() + piece.len() > MAX_BODY_BYTES {
                return Err(ConnectionError::Long(MAX_BODY_BYTES).into());
            }
            body.extend_from_slice(&piece);
        }
        Ok(body.freeze())
    }

    /// The whole body as text. What is no UTF-8 is replaced.
    pub async fn text(self) -> Result<String, HttpClientError> {
        let body = self.bytes().await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// The whole body as JSON.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, HttpClientError> {
        let body = self.bytes().await?;
        Ok(serde_json::from_slice(&body)?)
    }
}

impl Origin {
    /// As in the header `Host`: without the port that its scheme has anyway.
    fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match (self.scheme, self.port) {
            (Scheme::Http, 80) | (Scheme::Https, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

fn invalid_url(url: &str, reason: &dyn Display) -> HttpClientError {
    HttpClientError::InvalidUrl {
        url: url.to_owned(),
        reason: reason.to_string(),
    }
}

/// Where a request goes, and what it asks for there.
fn parse_url(url: &str) -> Result<(Origin, Uri), HttpClientError> {
    let uri: Uri = url.parse().map_err(|error| invalid_url(url, &error))?;
    let scheme = match uri.scheme_str() {
        Some("http") => Scheme::Http,
        Some("https") => Scheme::Https,
        _ => return Err(invalid_url(url, &"it begins with neither http:// nor https://")),
    };
    let host = uri.host().unwrap_or_default();
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let origin = Origin {
        scheme,
        host: host.to_owned(),
        port: uri.port_u16().unwrap_or(match scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }),
    };
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = path.parse().map_err(|error| invalid_url(url, &error))?;
    Ok((origin, path))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers every request with these bytes, and counts its connections.
    async fn server(answer: &'static [u8]) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    while stream.read(&mut request).await.is_ok_and(|size| size > 0) {
                        stream.write_all(answer).await.unwrap();
                    }
                });
            }
        });
        (format!("http://{address}/x?y=z"), connections)
    }

    #[tokio::test]
    async fn reading_a_body_to_its_end_keeps_the_connection_for_the_next_request() {
        let (url, connections) = server(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{\"a\":1}").await;
        let client = HttpClient::default();
        for _ in 0..3 {
            let body: serde_json::Value = client.get(&url).send().await.unwrap().json().await.unwrap();
            assert_eq!(body["a"], 1);
        }
        assert_eq!(connections.load(Ordering::Relaxed), 1);
        // A request that must not be repeated does not trust a connection that was idle.
        client.post(&url).json(&1).send().await.unwrap().bytes().await.unwrap();
        assert_eq!(connections.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn an_answer_that_does_not_end_in_time_is_an_error() {
        let (url, _) = server(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello").await;
        let request = HttpClient::default().get(&url).timeout(Duration::from_millis(20));
        let error = request.send().await.unwrap().bytes().await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
    }

    #[tokio::test]
    async fn a_status_of_failure_is_an_error_only_if_asked_for() {
        let (url, _) = server(b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy").await;
        let response = HttpClient::default().get(&url).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let error = response.error_for_status().unwrap_err();
        assert!(matches!(
            error,
            HttpClientError::Status(StatusCode::SERVICE_UNAVAILABLE)
        ));
    }

    #[tokio::test]
    async fn addresses_that_cannot_be_used_are_errors() {
        for url in ["", "gpu-1:8000", "ftp://gpu-1/", "http://", "https://gpu-1/"] {
            let error = HttpClient::default().get(url).send().await.unwrap_err();
            assert!(matches!(error, HttpClientError::InvalidUrl { .. }), "{url}: {error}");
        }
    }

    #[test]
    fn urls_are_split_into_origin_and_path() {
        let (origin, path) = parse_url("http://[::1]:8000/a?b=c").unwrap();
        assert_eq!((origin.host.as_str(), origin.port), ("::1", 8000));
        assert_eq!(
            (origin.authority().as_str(), path.to_string().as_str()),
            ("[::1]:8000", "/a?b=c")
        );
        let (origin, path) = parse_url("https://gpu-1").unwrap();
        assert_eq!(
            (origin.authority().as_str(), origin.port, path.path()),
            ("gpu-1", 443, "/")
        );
    }
}
