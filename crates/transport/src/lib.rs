//! How do events of engines reach us?
//!
//! Over sockets, and this crate holds the sockets: bytes come in, messages and the ends of connections go out, in the
//! order in which they happened. What a message means is said by the decoders of `homing-wire`, and what follows from
//! a lost one by `homing-feed`.
//!
//! **Invariant:** the end of a connection is told after its last message and before the first message of the next one.
//! Whoever reads on may therefore take everything between two such events as one unbroken stream.
//!
//! **Invariant:** nothing that a peer sends makes memory grow beyond the limits in the configuration, or panics.
//!
//! - [`http`]: a bound on the connections of services;
//! - [`zmq`]: ZMTP 3 for subscribing to engines and asking them for a replay, and for publishing and answering as they do.

#![cfg_attr(not(any(test, feature = "testing")), forbid(clippy::disallowed_methods))]

pub mod http;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod zmq;
