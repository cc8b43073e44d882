//! What does this engine hold, and what changed since? A small process next to an engine answers, for engines that
//! cannot.
//!
//! It listens to the engine's own event stream from its start (a `Keeper` does, with all that it knows about gaps,
//! repeats and restarts), and serves over HTTP: *list*, all that a rank holds as of a position in its stream, and *watch*,
//! the batches from a position on. With both, a router that lost something, or starts, is complete again within moments.
//! `docs/agent.md` says how it is used.
//!
//! - [`ring`]: the last batches of a rank, encoded once for all who watch;
//! - [`life`]: which life of the engine is this? Decided from what the feed notices and what the engine's HTTP server says;
//! - [`shelf`]: both for one rank, between the index's writer and those who read;
//! - `witness`: asks the engine when it was started;
//! - `lists`, `watch`, `http`: what is served.
//!
//! **Invariant:** position, content and identity go together. What is sent under one (incarnation, epoch) is the content
//! of one life of the engine, and its positions are those of one unbroken stream.
//!
//! **Invariant:** memory is bounded by the index, by a ring per rank and by [`lists::MAX_LISTS`] lists, however many
//! routers there are and however slow they are.
//!
//! **Invariant:** the agent vouches for no more than it knows: it sends heartbeats only while its own view is verified.

#![cfg_attr(not(test), forbid(clippy::disallowed_methods))]

mod hooks;
mod http;
pub mod life;
pub mod lists;
pub mod ring;
mod serve;
pub mod shelf;
mod watch;
mod witness;

pub use serve::{Agent, AgentError};
pub use watch::MAX_WATCHERS;
