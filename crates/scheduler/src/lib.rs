//! Where should this request go, and why; now, later or not at all?
//!
//! A decision has three steps: *filter* who may serve the request at all, *predict* what it would cost at each of them, *choose*.
//! Policies differ in the last two. [`Scheduler::decide`] changes nothing and takes its chance as an argument, so that a question,
//! a dry run and a decision are the same call; [`Scheduler::commit`] tells the policy that a choice was carried out.
//!
//! - [`ask`]: what is asked, and what a caller may override for one request;
//! - [`fleet`]: who exists, and why someone is not eligible;
//! - [`overlap`]: what of the prompt lies where, from the index and from what is booked;
//! - [`policy`]: the policies, by name, and the trait for others;
//! - [`scheduler`]: filter, predict, choose; [`decision`]: what came out, with its reasons;
//! - [`lengths`]: how long outputs will be; [`calibration`]: how good predictions were;
//! - [`queue`]: who is admitted, who waits in which order, who is refused.
//!
//! **Invariant:** a decision names only a rank that passed the filter.
//!
//! **Invariant:** the same view, ask and draw give the same decision.
//!
//! Cost: by the number of eligible ranks, a few nanoseconds for each; nothing is hashed or allocated per rank.
//!
//! It does no IO, looks nothing up in the index, and books nothing: the router does.

#![cfg_attr(
    not(test),
    forbid(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)
)]

pub mod ask;
mod bits;
mod bugs;
pub mod calibration;
pub mod chance;
pub mod decision;
pub mod fleet;
mod json;
pub mod lengths;
pub mod overlap;
pub mod policy;
pub mod queue;
pub mod scheduler;

pub use ask::{Ask, CacheUse, Keep, Overrides, Phase, Pin, Reuse, Wanted};
pub use bits::Bits;
#[cfg(any(test, feature = "testing"))]
pub use bugs::Bug;
pub use chance::Draw;
pub use decision::{Candidate, Decision, Refusal, Terms};
pub use fleet::{Adapters, Duty, Fleet, Health, Knowledge, Label, RankFacts, Ready, Reason};
pub use overlap::{Depths, Overlap};
pub use policy::predict::Prediction;
pub use policy::{Costs, Policy, Scene};
pub use scheduler::{Among, Busy, Room, Scheduler, View, Weighed};

/// The examples of the page on policies are compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/policies.md")]
struct PoliciesPage;
