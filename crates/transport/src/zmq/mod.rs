//! How do we listen to an engine's ZMQ socket, and how do we pretend to be one?
//!
//! With a ZMTP 3 of our own, because connection boundaries must be in order with messages and no library promises that
//! (ADR 8, `docs/adr/0008-zmq.md`). It speaks to libzmq 4.2 and later.
//!
//! - [`Subscriber`]: a SUB that connects or binds;
//! - [`replay`]: a DEALER that asks an engine's ROUTER for what was missed;
//! - [`Publisher`] and [`Router`]: the other side of both, for engines that we pretend to be;
//! - [`Endpoint`]: `tcp://host:port` and `ipc://path`;
//! - [`Message`]: what was received, in frames;
//! - [`protocol`]: the bytes, without IO.
//!
//! **What is not here:** other mechanisms than NULL (no CURVE, PLAIN or GSSAPI), ZMTP 1 and 2, inproc,
//! pgm, vmci and websockets, abstract names of ipc sockets (`ipc://@name`).

mod bound;
mod config;
mod connection;
mod dialled;
mod endpoint;
mod error;
mod ipc;
mod line;
mod message;
mod peers;
pub mod protocol;
mod publisher;
mod replay;
mod router;
mod stream;
mod subscriber;
mod talk;

pub use config::{AddressFilter, Backoff, Exposure, Heartbeat, Limits, Patience, ReplayConfig, SubscribeConfig};
pub use endpoint::{Endpoint, EndpointError, Host};
pub use error::{ConnectionError, ReplayError, SetupError, ZmtpError};
pub use message::Message;
pub use publisher::{PublishConfig, Published, Publisher};
pub use replay::{Replay, replay};
pub use router::{Question, ReplyTo, Router, RouterConfig};
pub use subscriber::{ConnectionId, Subscriber, SubscriberEvent};
