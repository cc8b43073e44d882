//! Which LoRA adapters are where, and where should they be?
//!
//! An engine serves as many adapters as it has slots. A request that names one goes where it is; loading it elsewhere takes time,
//! and takes a slot from another. This crate knows what is where ([`Residency`]), how much each adapter is asked for ([`Demand`]),
//! works out where each should be ([`placement`]), and says step by step how to get there ([`Manager`]).
//!
//! - [`name`]: what an adapter may be called;
//! - [`residency`]: what is where, in two views that never disagree;
//! - [`demand`]: how much of each adapter is asked for;
//! - [`placement`]: how many of each, and on which workers;
//! - [`manager`]: loads and unloads, with time limits, retries and back-off.
//!
//! **Invariant:** *resident* (an engine can serve it at once) and *active* (some request uses it now) are kept apart: an adapter is
//! routed to by the first, and not taken away because of the second.
//!
//! **Invariant:** the same inputs in the same order give the same plan on every machine: workers are known by their stable names,
//! and ties are broken by names.
//!
//! Time is an argument. It does no IO and starts no thread; who drives it carries out its commands and says what came of them.

#![cfg_attr(
    not(test),
    forbid(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)
)]

pub mod demand;
pub mod manager;
pub mod name;
pub mod placement;
pub mod residency;

pub use demand::{Demand, DemandConfig, Rate};
pub use manager::{
    Act, Command, Entered, Failure, Host, JobId, Manager, ManagerConfig, Opening, Pinned, Standing, When,
};
pub use name::{BadName, check_name};
pub use placement::{Method, Plan};
pub use residency::{Residency, SharedResidency, SlotsHeard};
