//! Prefill there, decode here: what happens next?
//!
//! A request can be served by one worker, or its prompt is computed by a *prefill worker*, whose KV is *staged* there until a
//! *decode worker* has read it and generates. This crate knows when the second way is worth it, who may do it with whom, and what
//! is to be done next while it happens, whatever fails.
//!
//! - [`handoff`]: the plan of one request as a state machine ([`Handoff`]);
//! - [`mod@choose`]: one worker or two, and which two, from what each is predicted to take;
//! - [`mod@format`]: which workers understand each other's KV; [`topology`]: between which it may travel;
//! - [`meeting`]: where and under which number two legs find each other (SGLang);
//! - [`staged`]: what waits on prefill workers to be fetched, and what is on its way;
//! - [`pool`]: whether there are prefill workers for a model, and what follows if not;
//! - [`refused`]: why a request cannot be served so.
//!
//! **Invariant:** for each pair that was chosen both bookings end exactly once, and what became of its KV is said exactly once.
//!
//! **Invariant:** no KV is read twice: a decode leg gets a result only while nobody can have read it.
//!
//! **Invariant:** every request ends, whatever does not answer: each state that waits for an engine has a time limit.
//!
//! It does no IO, reads no clock and draws no numbers; time and entropy are arguments. It books nothing and looks nothing up: the
//! router does.

#![cfg_attr(
    not(test),
    forbid(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)
)]

mod bugs;
pub mod choose;
pub mod format;
pub mod handoff;
mod json;
pub mod meeting;
pub mod pool;
pub mod refused;
pub mod staged;
pub mod topology;

#[cfg(any(test, feature = "testing"))]
pub use bugs::Bug;
pub use choose::{
    Because, Choice as PairChoice, ChooseSettings, Decoder, Judge, Named, Pairing, Prefiller, Scene, Way, Whether,
    Whole, Why, choose, choose_decode,
};
pub use format::{Agreement, KvFormat, Mismatch, Protocol, Reads, Serves, Traits};
pub use handoff::{
    Alone, Choice, Command, Fate, Handoff, HandoffSettings, Input, Leg, Means, Need, Outcome, PrefillFailure,
    Prefilled, Reach, Resume, Seat, Side, Staged, Tried, Turn, With,
};
pub use meeting::{Endpoint, Meeting, room_for};
pub use pool::{Changed, Pool, PoolPhase, Require};
pub use refused::{Denial, Refused, Retry};
pub use staged::{Hold, Holding, StagedCounters, StagedOn, Staging, StagingLimits};
pub use topology::{Derived, Enforce, Fit, Topology};
