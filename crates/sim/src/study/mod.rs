//! What does a run of the fleet say, and against what is it judged?
//!
//! - [`Tally`] adds up the records of a run; [`Quantiles`] and [`Series`] are what it adds them up in;
//! - [`Survey`] looks at a trace before anything serves it, [`Mix`] makes a load of it, and [`Yardstick`] is what no policy can beat
//!   ([`Reuse`] finds it);
//! - [`tune`] searches for settings, [`local`] for an assignment; both are told by the caller what a try is worth.
//!
//! **Invariant:** the memory of a tally does not grow with the number of requests; that of a survey and of a yardstick
//! by some bytes for each.
//!
//! **Invariant:** equal runs give equal figures, to the bit.

pub mod local;
mod mix;
mod quantiles;
mod series;
mod survey;
mod tally;
pub mod tune;
mod yardstick;

pub use mix::{Mix, MixError, Mixed};
pub use quantiles::Quantiles;
pub use series::{CELLS, Series};
pub use survey::{Survey, Work};
pub use tally::{Counted, Counts, Slo, Tally};
pub use yardstick::{Ladder, Reuse, Yardstick};
