//! What do adapters cost a fleet, and what does it help to put them where they are wanted?
//!
//! A world of engines with slots, a router, and requests that name adapters whose popularity shifts. It runs with the very manager that
//! the gateway has ([`homing_adapters::Manager`]), in one of its two ways, or without: then any worker is sent anything, and loads what
//! it lacks in place of what it used the longest ago. A load takes as long and fails as often in all of them.
//!
//! **Invariant:** equal setups give equal outcomes.

mod calls;
mod host;
mod managed;
mod mix;
mod report;
mod setup;
mod world;

pub use mix::Mix;
pub use report::{Comparison, Figures, Ratio, Settled, compare};
pub use setup::{Lose, Outcome, Placement, Setup};
pub use world::run;
