//! What the index must answer, and ways to find out whether it does.
//!
//! [`Oracle`] is the specification: half a page that is slow and obviously right. [`Step`] is one operation of an
//! arbitrary sequence, and [`Pair`] applies a sequence to an index and to an oracle and compares them. What a full index
//! may forget is up to it: it says what it was ([`Forgotten`]), and the oracle insists that it was allowed.

mod bytes;
mod forgotten;
mod oracle;
mod pair;
mod steps;
mod verify;

pub use forgotten::Forgotten;
pub use oracle::{Oracle, Truth};
pub use pair::{Mismatch, Pair};
pub use steps::{Script, Step};
