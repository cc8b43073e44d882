//! What every service needs around its own work: HTTP clients and servers, with their limits.
//!
//! Clients:
//!
//! - [`HttpConnection`]: one HTTP/1.1 connection. The gateway forwards requests over it.
//! - [`ConnectionPool`]: idle connections, by destination.
//! - [`HttpClient`]: requests with a time limit and small answers, to engines, agents and gateways.
//! - [`ChunkScanner`]: the framing of bodies in chunks, for servers.
//!
//! Servers:
//!
//! - [`door`], [`connections`]: count connections, in all and by address, and speak TLS;
//! - [`guard`], [`head`]: check heads of requests before the HTTP library sees them;
//! - [`stall`]: ends a connection that takes nothing of its answer;
//! - [`body`], [`budget`]: read bodies into one buffer each, within a budget for all of them ([`memory`]);
//! - [`server`]: all of these together, with a token.
//!
//! **Invariant:** nothing here depends on what a request asks for.

pub mod body;
pub mod budget;
mod chunks;
mod client;
mod connect;
mod connection;
pub mod connections;
mod credentials;
pub mod door;
pub mod guard;
pub mod head;
pub mod memory;
mod pool;
pub mod server;
pub mod stall;

pub use body::{BodyError, BodyLimits};
pub use budget::{BodyBudget, BodyOwner, BudgetExceeded};
pub use chunks::ChunkScanner;
pub use client::{HttpClient, HttpClientConfig, HttpClientError, HttpRequest, HttpResponse};
pub use connect::{Address, ConnectError, ConnectRules};
pub use connection::{ConnectionError, HttpConnection};
pub use connections::{Access, WhenFull};
pub use credentials::CredentialsError;
pub use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
pub use hyper::{Method, StatusCode};
pub use pool::ConnectionPool;
pub use server::{Caller, ClientAddress, HttpServer};
