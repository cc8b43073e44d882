//! Is my view of this rank right, and if not, what repairs it?
//!
//! An engine publishes what its cache gains and loses as a stream of numbered batches over links that lose, repeat and
//! delay them, and restarts without saying so. A [`Feed`] turns such streams into an index that is right, or says that
//! it is not. It is a state machine: what happens is told to it ([`Feed::step`]), what it needs from outside it asks
//! for ([`Feed::next_command`]), and time is an argument.
//!
//! What everything leans on:
//!
//! - *A number is no identity.* A restarted engine counts from 0 again and may pass our cursor before we notice. So a
//!   source is always asked from the cursor itself: if it answers with the batch that we applied last, it is the one
//!   we know; if with another under that number, it is not; if with neither, nothing is proven.
//! - *Silence is not health.* A view is [`State::Live`] only if it was verified a short while ago, by a batch, a
//!   heartbeat or a question.
//! - *Subscribe first*, then ask for what came before, keep what is heard meanwhile, and merge by number.
//! - *A view is not emptied while it is repaired.* A draft is filled beside it and takes its place in one step. Only a
//!   restart of the engine voids it, at once.
//! - *A clear of all tiers is a barrier*: whatever was missing before it does not matter any more.

#![cfg_attr(
    not(test),
    forbid(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)
)]

mod answer;
mod buffer;
mod bugs;
mod clears;
mod config;
mod cursor;
mod drift;
mod feed;
mod hear;
mod history;
mod mend;
mod protocol;
mod rank;
mod repair;
mod shared;
mod status;
mod track;

#[cfg(any(test, feature = "testing"))]
pub use bugs::Bug;
pub use config::FeedConfig;
pub use cursor::{Cursor, Observation};
pub use feed::Feed;
pub use protocol::{
    Ask, AskId, ClearReach, Command, Coverage, Identity, Input, ListHead, Notice, Part, Recovery, Reply, Source, What,
};
pub use status::{Counters, RankStatus, State, Why};
