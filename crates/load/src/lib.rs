//! What is each rank doing, and when will it be free?
//!
//! A request is *booked* on a rank when it is decided, changes when its first token comes, grows with its output and leaves
//! at its end. [`Load`] sums up what the bookings of each rank mean: prompt tokens still to compute and how long they will take,
//! blocks in use, sequences that decode. There is one `Load` for each model and block size, as there is one index.
//!
//! - [`booking`]: what is booked, and what is said of it; [`load`]: all of it;
//! - [`rank`]: what a scheduler reads of one rank, in constant time and without hashing;
//! - [`lanes`]: the same of all ranks at once, for decisions;
//! - [`report`]: what engines say of themselves, of which only what we did not book ourselves counts;
//! - [`pace`]: how fast a rank is, learnt from first tokens;
//! - `usual`: how long prompts take, all in all; `again`: how much of what is computed was computed before;
//! - [`config`]: bounds and defaults.
//!
//! **Invariant:** when all bookings have ended, in whatever order they and their transitions came, all sums are zero.
//!
//! **Invariant:** a [`Ticket`] is of one attempt. A late word about an earlier attempt of the same request changes nothing.
//!
//! **Invariant:** a block of a prompt that several requests of a rank share is counted once there.
//!
//! Cost: booking and ending take time by the number of places where the prompt parts from others, not by its blocks. A rank is
//! read in a few nanoseconds.
//!
//! It decides nothing, reads no clock, and does not know which requests wait to be booked.

#![cfg_attr(
    not(test),
    forbid(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)
)]

mod again;
pub mod booking;
mod bugs;
mod cold;
pub mod config;
pub mod lanes;
mod ledger;
pub mod load;
pub mod pace;
mod prompts;
pub mod rank;
pub mod report;
mod transitions;
mod usual;

pub use booking::{Booking, Counters, End, Heard, LoadError, Place, PromptWork, Ticket};
#[cfg(any(test, feature = "testing"))]
pub use bugs::Bug;
pub use config::{LoadConfig, RankSpec, Track};
pub use lanes::{LaneWeights, Lanes, Row, Since};
pub use load::Load;
pub use rank::{Potential, RankLoad, Standing};
pub use report::Report;
