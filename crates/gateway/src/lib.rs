//! HTTP in, engines out: `homing serve`.
//!
//! - [`Service`]: the whole of it, from settings to its end; start here;
//! - `shard`: threads that carry requests; `pool`, `line`, `stall`: their connections to workers and clients;
//! - `gateway`: the way of a request; `case`, `tokens`, `asking`: what the router is asked; `trip`, `reading`: where it goes, and where
//!   next; `relay`, `events`: its answer; `said`, `refusal`: answers of our own; `flight`, `account`: what is told when it ends;
//! - `steward`: who comes and goes; `worker`, `table`: who is there; `lane`: the router of one model and who waits for it;
//! - `door`, `guard`, `head`: whose connections are taken, and what may come over them; `keyring`, `allowance`: who asks, and how much;
//!   `outward`: what workers are told of it; `renew`: keys and certificates that change;
//! - `stored_responses`: responses that engines store; `response_id`, `response_keys`: their signed ids, and the keys that sign them;
//! - `operators`: who may ask `admin`; `admin`, `record`, `truth`, `log`: what operators see.
//!
//! **Invariant:** every request gets exactly one answer, and every booking is ended, whatever client, worker or operator do.
//!
//! **Invariant:** what a client sends reaches the engine as it was sent, but for the fields that a plan changes; what an engine sends
//! reaches the client as it was sent, but for what the plan asked for.
//!
//! Decisions are made by `homing-router`.

#![cfg_attr(not(test), forbid(clippy::disallowed_methods))]

mod account;
mod adapters;
mod admin;
mod advice;
mod allowance;
mod asking;
mod booked;
mod budget;
mod case;
mod checkup;
mod clock;
mod door;
mod error;
mod events;
mod exporter;
mod flight;
mod gateway;
mod guard;
mod handing;
mod head;
mod headers;
mod keyring;
mod lane;
mod listeners;
mod log;
mod models;
mod operators;
mod outward;
mod pool;
mod reading;
mod record;
mod refusal;
mod relay;
mod renew;
mod response_id;
mod response_keys;
mod rows;
mod said;
mod sending;
mod service;
mod settings;
mod shard;
mod spans;
mod stall;
mod steward;
mod stored_responses;
mod table;
mod timing;
mod tokens;
mod trip;
mod truth;
mod worker;

pub use error::StartError;
pub use response_id::BadKeys;
pub use response_keys::ResponseKeyError;
pub use service::Service;
pub use steward::StewardError;
pub use tokens::TokenizerError;
