//! What can happen in a world, and to whom?

use homing_domain::{RankId, Sequence};
use homing_feed::{Ask, AskId, Coverage, Reply, Source};

use super::router::Message;

/// Where a rank is in the lists of engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its worker's place.
    pub worker: usize,
    /// Its place in the worker.
    pub rank: usize,
}

impl Place {
    /// Where a rank is: ranks are numbered by their places.
    pub const fn of(rank: RankId) -> Self {
        Self {
            worker: rank.worker.0 as usize,
            rank: rank.dp.0 as usize,
        }
    }
}

/// One router in one life: what is meant for an earlier one is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To {
    /// Its place.
    pub router: usize,
    /// Its life.
    pub life: u64,
}

/// What is to happen.
#[derive(Debug)]
pub enum Event {
    /// A rank of an engine does something.
    Act(Place),
    /// An agent says how far it is.
    Heartbeat(Place),
    /// Something goes wrong.
    Monkey,
    /// A feed is told that time passed.
    Tick(usize),
    /// Views are compared with the truth.
    Check,
    /// A router hears that a rank is there, with what discovery knew then.
    Discover(To, Place, Source),
    /// A router hears what discovery knows of a rank, if the rank is still there.
    Recheck(To, Place),
    /// A rank is there, or there again.
    Return(To, Place),
    /// A router tries to subscribe.
    Connect(To, Place),
    /// A router notices that a subscription is dead.
    Disconnect(To, Place, u64),
    /// Something arrives over a subscription.
    Deliver(To, Place, u64, Message),
    /// A question arrives.
    Asked(To, Ask),
    /// A part of an answer arrives.
    Answer(To, AskId, Reply),
    /// An engine starts anew.
    EngineUp(usize, Speed),
    /// An agent starts anew.
    AgentUp(usize, Coverage),
}

/// How fast an engine is after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// As ever.
    Usual,
    /// It is at this number before anybody hears of it.
    At(u64),
}

/// A clear of a whole worker that only one of its streams tells of.
#[derive(Clone, Copy, Debug)]
pub struct WorkerClear {
    /// The rank whose stream tells of it.
    pub place: Place,
    /// When.
    pub at_ms: u64,
    /// Which life of that stream.
    pub life: u64,
    /// Under which number.
    pub sequence: Sequence,
}
