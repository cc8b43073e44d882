//! What happens to a whole fleet under real or generated traffic?
//!
//! A [`World`] has engines as `homing-engine` models them, routers that are `homing-router` with a feed each, links between them, and
//! clients that send a trace. Everything happens at moments of a virtual clock, one after the other; nothing is drawn but from the
//! seed. The engines' timing is not the router's: [`Disparity`] says how it differs.
//!
//! - [`setup`]: what a world is made of; [`faults`]: what goes wrong in it, and when;
//! - [`world`]: the loop, and what comes of it; [`Record`]: what became of each request;
//! - [`split`]: fleets where one worker computes a prompt and another answers; [`link`]: a link that transfers of KV share.
//!
//! **Invariant:** the same setup, traffic and seed give the same records, to the bit.
//!
//! **Invariant:** a router learns only what a real one could: what it is told over links, late and with losses.
//!
//! Cost: about a microsecond for each step of an engine and for each batch of events; memory by requests under way and by the
//! blocks of the caches.

mod calendar;
mod calls;
mod check;
mod ends;
pub mod faults;
pub mod link;
mod lives;
mod log;
mod record;
mod routers;
mod serve;
pub mod setup;
pub mod split;
mod streams;
mod trouble;
mod truth;
mod turns;
mod workers;
pub mod world;

pub use check::{Check, Violation};
pub use faults::{Fault, FaultKind};
pub use link::{Link, LinkError, LinkSpec, TransferNo};
pub use record::{End, Record};
pub use setup::{Disparity, FleetSetup, Links, RouterSetup, WorkerSetup};
pub use split::{SplitCounts, SplitSetup};
pub use world::{Care, Outcome, World, WorldError};
