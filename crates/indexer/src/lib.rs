//! Who holds how much of this prefix, asked over HTTP? Feed and index as a service of their own, for those who have a
//! router already. `docs/index-service.md` is written for them.
//!
//! - [`Service`]: listens to the workers of a configuration, or stands on a recording, and answers until it is told to stop;
//! - [`record`]: what was heard, in a file, and the index that is rebuilt from it;
//! - `shelf`: the indexes and who is in them; `query` and `overlap`: the question and its answer; `ranks`, `dump` and
//!   `health`: what else can be asked; `http`: routes, limits and errors.
//!
//! **Invariant:** a lookup waits for nobody: neither for the thread that writes to the index nor for another lookup.
//!
//! **Invariant:** what a client sends is bounded before it is read, and what is wrong with it is said in words.
//!
//! It does not authenticate: whoever can reach it can read what is cached where.

#![cfg_attr(not(test), forbid(clippy::disallowed_methods))]

mod dump;
mod health;
mod http;
mod overlap;
mod problem;
mod query;
mod ranks;
pub mod record;
mod service;
mod shelf;

pub use service::{Service, StartError};
