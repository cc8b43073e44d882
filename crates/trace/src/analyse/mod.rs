//! What does a trace itself say, before anything serves it?
//!
//! - [`infinite_cache`]: each request with how much of its prompt came before; [`Summary`] adds them up;
//! - [`Accesses::pooled`]: the same with one cache of a given size that is used as well as can be;
//! - [`LoadPlan`]: how many copies of a trace are so much load for a fleet;
//! - [`mean_first_token_bound`]: what no fleet of this speed can beat.
//!
//! Engines say nothing here, so answers that later prompts extend are contents of their own ([`crate::Answer::StandIn`]).
//!
//! **Invariant:** a block counts as cached only if all blocks before it do.

mod blocks;
mod bound;
mod infinite;
mod load;
mod pooled;

pub use bound::mean_first_token_bound;
pub use infinite::{InfiniteCache, Sized, Summary, infinite_cache};
pub use load::LoadPlan;
pub use pooled::{Accesses, Pooled};

/// The most sessions that an analysis follows at once.
pub const MAX_CONVERSATIONS: usize = 1 << 16;
