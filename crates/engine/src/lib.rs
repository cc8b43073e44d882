//! What would an engine do, and when?
//!
//! A model of vLLM and SGLang: a KV pool, a batch scheduler and a model of step times, for each data-parallel rank. It has no
//! clock and no sockets: the simulator drives it in virtual time, the mock server in real time. `docs/engine-model.md` says what
//! is modelled of the real engines and what is not.
//!
//! - [`engine`]: [`Engine`], the state machine that drivers talk to; start here;
//! - [`request`]: what is asked ([`Request`]) and what comes of it ([`Outcome`]);
//! - [`handover`]: how KV leaves it for another engine, and comes from one;
//! - [`config`]: what kind of engine it is;
//! - [`pool`]: the KV cache, and the events that tell of it;
//! - [`text`]: what it says.
//!
//! **Invariant:** the same inputs at the same times give the same outcomes.
//!
//! **Invariant:** the events of a rank, replayed, give the content of its cache whenever all of them were told.
//!
//! **Invariant:** at least one token of a prompt is computed, whatever is cached.
//!
//! **Invariant:** every request that is not cancelled and not lost in a restart is finished after finitely many steps, once its
//! driver has said of all transfers what became of them.
//!
//! Cost: a step takes time in proportion to the sequences in it; memory is in proportion to the blocks that were ever in use at
//! once and to the requests that are not over.
//!
//! It does not model speculative decoding, multimodal content, parallelism within a rank, or the way of KV between engines: only
//! its ends.

#![cfg_attr(
    not(test),
    forbid(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)
)]

mod adapters;
mod bugs;
#[cfg(any(test, feature = "testing"))]
mod check;
pub mod config;
pub mod engine;
pub mod handover;
pub mod pool;
mod rank;
pub mod request;
mod sequence;
mod sglang;
pub mod text;
pub mod time;
mod vllm;

#[cfg(any(test, feature = "testing"))]
pub use bugs::Bug;
pub use config::{ConfigError, EngineConfig, Style};
pub use engine::{AdapterError, AdapterUse, ClearError, Engine, Running};
pub use handover::{Handover, OnFailure, Reserved, Staged};
pub use pool::{Events, Tracing};
pub use request::{
    Admitted, EventBatch, Finish, Finished, Load, Outcome, Output, Placement, Request, RequestNo, SubmitError,
    TraceRecord,
};
pub use text::{Ending, Vocabulary};
pub use time::Time;
