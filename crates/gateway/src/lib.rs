//! HTTP in, engines out: `homing serve`.
//!
//! - [`Service`]: the whole of it, from settings to its end; start here;
//! - `shard`: threads that carry requests; `pool`, `line`: their connections to workers;
//! - `gateway`: the way of a request; `case`, `tokens`, `asking`: what the router is asked; `trip`, `reading`: where it goes, and where
//!   next; `relay`, `events`: its answer; `said`, `refusal`: answers of our own; `flight`, `account`: what is told when it ends;
//! - `steward`: who comes and goes; `worker`, `table`: who is there; `lane`: the router of one model and who waits for it;
//! - `bodies`: reads bodies of requests within the memory for them;
//! - `keyring`, `allowance`: which key a request has, and how much it may use (connections and heads are checked by `homing-platform`);
//!   `outward`, `headers`, `request_ids`, `isolation`: what of a client reaches a worker, and of a worker a client; `renew`: keys and
//!   certificates that change;
//! - `stored_responses`: responses that engines store; `response_id`, `response_keys`: their signed ids, and the keys that sign them;
//! - `operators`: who may ask `admin`; `admin`, `record`, `truth`, `log`: what operators see.
//!
//! **Invariant:** every request gets exactly one answer, and every booking is ended, whatever client, worker or operator do.
//!
//! **Invariant:** the body of a client reaches the engine as it was sent, but for the fields that a plan changes and those that belong to
//! engines; the body of an answer reaches the client as it was sent, but for what the plan asked for and fields of engines.
//!
//! Decisions are made by `homing-router`.

mod account;
mod adapters;
mod admin;
mod advice;
mod allowance;
mod asking;
mod bodies;
mod booked;
mod budget;
mod case;
mod checkup;
mod clock;
mod error;
mod events;
mod exporter;
mod flight;
mod gateway;
mod handing;
mod headers;
mod isolation;
mod keyring;
mod lane;
mod listeners;
mod log;
mod models;
mod operators;
mod outward;
mod pool;
mod progress;
mod reading;
mod record;
mod refusal;
mod registrars;
mod relay;
mod renew;
mod request_ids;
mod response_id;
mod response_keys;
mod rows;
mod said;
mod sending;
mod service;
mod settings;
mod shard;
mod spans;
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
