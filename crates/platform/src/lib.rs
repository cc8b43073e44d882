//! What every service needs around its own work: the HTTP client, with its limits.
//!
//! - [`HttpConnection`]: one HTTP/1.1 connection. The gateway forwards requests over it.
//! - [`ConnectionPool`]: idle connections, by destination.
//! - [`HttpClient`]: requests with a time limit and small answers, to engines, agents and gateways.

#![cfg_attr(not(test), forbid(clippy::disallowed_methods))]

mod client;
mod connect;
mod connection;
mod pool;

pub use client::{HttpClient, HttpClientConfig, HttpClientError, HttpRequest, HttpResponse};
pub use connect::{Address, ConnectError};
pub use connection::{ConnectionError, HttpConnection};
pub use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
pub use hyper::{Method, StatusCode};
pub use pool::ConnectionPool;
