//! Who keeps an index true while events come in?
//!
//! ```text
//! Source (sockets of one rank) -> Lane (decodes and hashes) -> Writer (feed and index of one model)
//!        ^                                                        |
//!        +------------------- questions and cancellations --------+
//! ```
//!
//! - a [`Source`] listens to one rank and answers questions about it; [`EngineSource`] does so over an engine's own
//!   sockets, [`AgentSource`] over the HTTP of an agent, [`PollSource`] by asking again and again;
//! - [`Lanes`] are threads that decode and hash. All that is said of a rank goes through the same one, in order;
//! - a [`Keeper`] has one thread, the only one that writes to its index, and beside it a [`SpareMaker`] that makes memory
//!   ready for it; a [`Still`] is an index that was kept once and is rebuilt from what its keeper recorded.
//!
//! **Invariant:** every queue is bounded, and whatever finds it full waits for room: a source is not read meanwhile, and TCP holds its
//! engine back.
//!
//! **Invariant:** what a rank's source says reaches the feed in the order in which it was said: the end of a
//! subscription after its last batch, and before the first of the next.

mod agent;
mod board;
mod client;
mod clock;
mod engine;
mod fleet;
mod flow;
mod keeper;
mod lane;
mod poll;
mod source;
mod spares;
mod still;
mod tally;
mod writer;

pub use agent::{AgentConfig, AgentSource};
pub use board::Standing;
pub use client::ClientError;
pub use clock::Clock;
pub use engine::{EngineConfig, EngineSource, Events};
pub use fleet::{
    Fleet, FleetError, Member, RegisteredAccess, Sources, Subject, feed_config, index_config, lanes_config,
};
pub use keeper::{Keeper, KeeperConfig, KeeperGone, Snapshot, View, ViewedRank};
pub use lane::{Lanes, LanesConfig};
pub use poll::{PollConfig, PollSource};
pub use source::{Ear, Joining, Source, Speech, Voice};
pub use spares::SpareMaker;
pub use still::Still;
pub use writer::{Hooks, NoticeHook, RecordHook, TickHook, Told};
