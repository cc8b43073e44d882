//! What happens to a whole fleet, in virtual time, with faults?
//!
//! A world is made from a seed and nothing else: no clock, no entropy, no order of a hash map. Running a seed twice gives
//! the same log, so a failure is repeated by its seed. See `docs/simulator.md` for what is simulated and checked.
//!
//! [`feed`] is the world of sources, lossy links and feeds; [`fleet`] that of engines, routers and clients; [`study`]
//! is what is made of the records of a fleet; [`adapters`] is a world of adapters and slots; [`chaos`] draws fleets with faults from seeds and looks for what is wrong.

#![cfg_attr(
    not(test),
    forbid(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)
)]

pub mod adapters;
pub mod chaos;
pub mod feed;
pub mod fleet;
pub mod study;

pub use homing_trace::Rng;

/// How a planted mistake is called on the command line.
pub(crate) fn kebab(bug: &impl std::fmt::Debug) -> String {
    let mut name = String::new();
    for letter in format!("{bug:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}
