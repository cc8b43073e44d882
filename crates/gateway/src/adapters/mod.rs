//! LoRA adapters: where they are, how requests get to them, and how they get to workers.
//!
//! What is to be done is decided by [`homing_adapters::Manager`], one for each router; here are those who tell it what happens and carry
//! out what it says, over the engines' own endpoints. `serve.adapters` says how much of it is used:
//!
//! - *observe*: where adapters are is shown. Any worker of the model is sent any of them;
//! - *route*: requests go to workers that have their adapter;
//! - *manage*: adapters are also loaded and unloaded. A request whose adapter nobody has waits for a load, and is decided then.
//!
//! **Invariant:** an adapter is not unloaded under a request: whoever sends one holds an [`Inside`] until the answer is over, and is sent
//! elsewhere if the adapter is on its way out.
//!
//! A worker that says of a request that its adapter is not there is believed: it was restarted, or others manage it too. The request goes
//! to another, or waits for a load.
//!
//! **Invariant:** the router is told of a load after it is done, and of an unload before it is begun.

mod admin;
mod catalogue;
mod engine;
mod orders;
mod shelf;
mod wait;

pub(crate) use admin::routes;
pub use catalogue::CatalogueError;
pub(crate) use catalogue::{Catalogue, Entries};
pub(crate) use engine::says_absent;
pub(crate) use orders::Order;
pub(crate) use shelf::{Inside, Shelf, ShelfConfig};
pub(crate) use wait::LoadWait;

/// Orders of operators that wait to be carried out.
pub(crate) const ORDERS: usize = 16;
/// The longest path or address of an adapter, in bytes.
pub(crate) const LONGEST_SOURCE: usize = 4096;
/// Loads that one request waits for, at most; then it is told that it cannot be served.
pub(crate) const MOST_LOADS: usize = 8;

/// Whether engines can be told to load from it: a path, or an address that they understand.
fn is_source(text: &str) -> bool {
    !text.is_empty() && text.len() <= LONGEST_SOURCE && !text.chars().any(char::is_control)
}
