//! Which event do these bytes from this engine mean?
//!
//! - [`envelope`]: the frames of a message, live or replayed, without naming a socket;
//! - [`decode`]: what an engine says about its cache, as a [`homing_domain::KvBatch`], one decoder per rank;
//! - [`encode`]: the other way, for engines that we pretend to be;
//! - [`frame`]: our own form of batches and of lists of what a rank holds.
//!
//! `docs/wire-formats.md` says which engines and versions are understood, and specifies our own frames.
//!
//! **Invariant:** no bytes make this crate panic, and none make it allocate more than a small multiple of their own
//! length: lengths that are only claimed are never believed.
//!
//! **Invariant:** what is left out is counted by reason. Nothing is dropped in silence, and one bad event costs no other.
//!
//! It opens no socket, and it knows nothing of gaps, repeats and restarts: that is `feed`.

#![cfg_attr(
    not(test),
    forbid(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)
)]

pub mod decode;
pub mod dialect;
pub mod encode;
pub mod envelope;
pub mod error;
pub mod frame;
mod msgpack;
pub mod skipped;
#[cfg(feature = "testing")]
pub mod testing;

pub use decode::{Decoded, Decoder, DecoderConfig};
pub use dialect::{Dialect, UnknownDialect};
pub use error::WireError;
pub use frame::{Frame, FrameError, FrameReader};
pub use skipped::{BlockSizeRefusal, SkipReason, Skipped};
