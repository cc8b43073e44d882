//! What does a trace itself say, before anything serves it?
//!
//! - [`infinite_cache`]: each request with how much of its prompt came before; [`Summary`] adds them up;
//! - [`Accesses::pooled`]: the same with one cache of a given size that is used as well as can be;
//! - [`laid_out`]: when the requests of sessions would arrive;
//! - [`mean_first_token_bound`]: what no fleet of this speed can beat.
//!
//! Engines say nothing here, so answers that later prompts extend are contents of their own ([`crate::Answer::StandIn`]).
//!
//! **Invariant:** a block counts as cached only if all blocks before it do.

mod blocks;
mod bound;
mod infinite;
mod laid_out;
mod pooled;

pub use bound::mean_first_token_bound;
pub use infinite::{InfiniteCache, Sized, Summary, infinite_cache};
pub use laid_out::{LaidOut, laid_out};
pub use pooled::{Accesses, Pooled};

/// The most sessions that an analysis follows at once.
pub const MAX_CONVERSATIONS: usize = 1 << 16;
