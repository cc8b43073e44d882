//! How long does a step of this model on this device take?
//!
//! A step of an engine that batches continuously is composed of parts: dense work by the number of tokens in it, attention
//! of each chunk of a prompt by its new and cached tokens, attention of the decoding sequences by their number and context,
//! the LM head by the number of sequences, and the engine's own overhead. A [`Profile`] holds measured times of the parts; a
//! [`Timing`] adds them up, or is one of two simpler models with the same questions.
//!
//! - [`step`]: what is in a step ([`Step`], [`Chunk`], [`DecodeBatch`]), and [`Millis`];
//! - [`timing`]: the questions, and the three models that answer them;
//! - [`time`]: moments, and how far they are apart;
//! - [`profile`]: measured tables; [`builtin`] has those that come with Homing;
//! - [`fit`]: what is assumed where nothing was measured.
//!
//! **Invariant:** a time is finite and never negative, whatever is asked.
//!
//! **Invariant:** inside its tables a profile interpolates linearly; outside it follows a fitted form that meets the table at
//! its edge, so that there is no jump.
//!
//! Cost: a question about a step allocates nothing and takes about a tenth of a microsecond plus as much for each chunk of a
//! prompt; the number of decoding sequences does not matter.
//!
//! It does not know parallelism over devices: a profile is of whatever was measured. Nor does it know how busy an engine is.

#![cfg_attr(
    not(test),
    forbid(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)
)]

pub mod builtin;
pub mod error;
mod file;
pub mod fit;
pub mod profile;
pub mod step;
mod table;
pub mod time;
pub mod timing;

pub use error::ProfileError;
pub use profile::{Check, CopyRates, Profile, Shape};
pub use step::{Chunk, DecodeBatch, GigabytesPerSecond, Millis, Step};
pub use time::Time;
pub use timing::{Constant, DEFAULT_OVERHEAD, Polynomial, Timing};
