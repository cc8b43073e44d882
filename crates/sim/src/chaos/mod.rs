//! Is the whole router right when everything goes wrong?
//!
//! A [`Run`] is a small fleet that is drawn from a seed, with traffic and faults, and everything that happens in it is checked. A
//! [`Campaign`] is many of them, each twice; a [`hunt`] looks for a mistake that is made on purpose.
//!
//! **Invariant:** a run is a function of its seed, of the faults that are allowed, and of the mistake that is planted.
//!
//! Cost: a few dozen milliseconds for each run.

mod bugs;
mod campaign;
mod draw;
mod engines;
mod split;
mod traffic;

pub use bugs::{Bug, bug_named};
pub use campaign::{Campaign, Found, Hunt, Order, hunt, repeat};
pub use draw::{Drawn, Run};
