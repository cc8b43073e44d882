//! What is to be changed at this engine, and what does it cost as it is?
//!
//! An engine is looked at from outside: it is asked what it is, its sockets are listened to as the gateway does it, and, if that is
//! wanted, a prompt of fresh random tokens is sent twice. What was seen is data ([`Observed`]); what it means is decided without a
//! socket ([`judge()`]), so that every defect is a line of a table.
//!
//! - [`Examiner`]: looks at engines; start here;
//! - [`Observed`]: what was seen; [`judge()`]: what that means; [`Finding`]: what was seen, what it costs, what to change;
//! - [`Report`]: all of it, as text and as JSON.
//!
//! **Invariant:** without [`Depth::Prompts`] no prompt is computed, and nothing at the engine changes. With it, two answers of one token
//! are asked for from each rank, and a few blocks of its cache are used.
//!
//! **Invariant:** every question ends within a time limit, and at most so much of an answer is read.
//!
//! **Invariant:** no adapter is loaded to find out whether one could be.

mod examine;
mod finding;
mod http;
mod judge;
mod listen;
mod observed;
mod prompts;
mod report;

pub use examine::{Depth, Examined, Examiner, Patience, prompter};
pub use finding::{Check, Finding, Outcome, Severity};
pub use judge::judge;
pub use observed::{
    Compared, Counts, Kind, Observed, Probed, RankSeen, ReplaySeen, Skew, Subscription, Tokenized, Updating,
};
pub use report::Report;
