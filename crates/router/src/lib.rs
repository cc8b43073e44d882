//! Index, feed, load and scheduler as one thing with a few verbs.
//!
//! A [`Router`] decides for one model at one block size. The gateway and the simulator talk to nothing else:
//!
//! - [`Router::ask`]: a request wants to go somewhere. It goes, waits or is refused ([`Verdict`]);
//! - [`Router::book`]: a choice that was made elsewhere; [`Router::prefill_done`], [`Router::output`], [`Router::done`]: what
//!   became of a request; [`Router::cancel`]: nobody waits for it any more;
//! - [`Router::rank_up`], [`Router::rank_changed`], [`Router::worker_changed`], [`Router::rank_gone`], [`Router::report`], [`Router::views`]: who exists, what
//!   engines say of themselves, and how good the views of their caches are;
//! - [`Router::tick`]: time passed. [`Router::next_effect`]: what is to be done outside;
//! - [`Router::consider`], [`Router::potential_loads`], [`Router::overlap`], [`Router::state`]: questions that change nothing.
//!
//! Events do not pass through here. One writer, a [`homing_feed::Feed`] on a thread of its own or in the simulator's loop, applies
//! them to the index that a router was given a [`homing_index::Reader`] of, and [`Router::views`] is told how good its views are. So
//! lookups wait neither for events nor for each other, and only the decision itself, from the filter to the booking, is in a
//! critical section.
//!
//! **Invariant:** what decides also books, in one critical section: two requests never get the same last place.
//!
//! **Invariant:** each request that was asked for ends exactly once: with a verdict, or, if it had to wait, with one effect or its
//! cancellation.
//!
//! **Invariant:** questions and dry runs change nothing, neither the policy's memory nor its chance.
//!
//! Time and seed are arguments. It does no IO and starts no thread.

#![cfg_attr(
    not(test),
    forbid(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)
)]

mod across;
mod admission;
mod apart;
mod bugs;
mod candidates;
mod carry;
mod config;
mod core;
mod desk;
mod guess;
mod pair;
mod question;
mod router;
mod state;
mod trust;

pub use across::{Across, TwoKeyed};
pub use apart::{Apart, ApartConfig, Halves, Naming, Policies, PrefillHalf, prefill_id};
#[cfg(any(test, feature = "testing"))]
pub use bugs::Bug;
pub use config::RouterConfig;
pub use guess::CacheView;
pub use question::{Effect, Elsewhere, Ended, NewRank, Question, Routed, Turned, Verdict};
pub use router::{Router, RouterError};
pub use state::{RankState, State};
