//! Do views stay true over lossy streams? Engines, agents, links that lose and lie, and feeds that must cope.

mod answers;
mod blocks;
mod bounds;
mod cache;
mod campaign;
mod checker;
mod engine;
mod events;
mod faults;
mod final_check;
mod links;
mod log;
mod monkey;
mod router;
mod setup;
mod stream;
mod truth;
mod views;
mod world;

pub use campaign::{BugHunt, Campaign, Order, bug_name, bug_named, hunt, repeat};
pub use checker::{Check, Violation};
pub use faults::{Fault, Happened};
pub use log::Trace;
pub use world::{Outcome, Run, run};
