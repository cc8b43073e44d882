//! What would a client see of an engine? The model of `homing-engine` behind real HTTP and real event sockets.
//!
//! `docs/mock.md` says what it answers, in which ways it can be made to fail, and what it does not do.
//!
//! - [`Service`]: engines, bound to their addresses; start here;
//! - `core`: the task that drives the model in real time;
//! - `feed`: publisher, ring and replay socket of a rank; `told`: the bytes of the dialect;
//! - `app`: the routes; `ask`, `speech` and `speaker`: from a question to text; `wording`, `responses` and `messages`: in whose words;
//! - `kv`: prompts that are computed in one place and answered in another;
//! - [`tokenizer`]: that of a model, or the built-in one, a token for each byte.
//!
//! **Invariant:** an answer is a function of its prompt and seed, whatever else goes on.
//!
//! **Invariant:** every queue has a bound, and no request makes it panic.

#![cfg_attr(not(test), forbid(clippy::disallowed_methods))]

mod adapters;
mod app;
mod ask;
mod clock;
mod completions;
mod control;
mod core;
mod embeddings;
mod faults;
mod feed;
mod kv;
mod logprobs;
mod messages;
mod metrics;
mod problem;
mod refusal;
mod responses;
mod service;
mod settings;
mod sglang;
mod speaker;
mod speech;
mod state;
mod tally;
pub mod tokenizer;
mod told;
mod tools;
mod trace;
mod wire;
mod wording;

pub use faults::Faults;
pub use service::{Place, Service};
pub use settings::StartError;
