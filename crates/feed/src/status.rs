//! How good is a view, and what happened to it?

use homing_domain::{RankId, Sequence};

use crate::protocol::{Coverage, Identity};

/// How good a rank's view is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Verified a short while ago and complete.
    Live,
    /// Verified a short while ago; may miss what was cached before we listened. A lower bound.
    Warming,
    /// Something is missing and is being fetched.
    Repairing,
    /// Not verified: it may be wrong.
    Stale {
        /// Since when.
        since_ms: u64,
        /// Why.
        why: Why,
    },
}

impl State {
    /// The state's name, as metrics and answers spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Warming => "warming",
            Self::Repairing => "repairing",
            Self::Stale { .. } => "stale",
        }
    }
}

/// Why a view is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// There is no subscription.
    Disconnected,
    /// A repair failed for good.
    RepairFailed,
    /// Nothing was heard, and there is nobody to ask.
    Silent,
}

impl Why {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Disconnected => "no connection to the source of its events",
            Self::RepairFailed => "the last repair failed",
            Self::Silent => "nothing was heard for a while, and the source cannot be asked",
        }
    }
}

/// What happened to one rank's view since it was discovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Batches applied.
    pub applied: u64,
    /// Changes in them that stored blocks.
    pub stored: u64,
    /// Changes in them that removed blocks.
    pub removed: u64,
    /// Changes in them that emptied a rank or a tier.
    pub cleared: u64,
    /// Gaps found.
    pub gaps: u64,
    /// Batches that came again, or late, and were not applied.
    pub repeats: u64,
    /// Restarts of the engine.
    pub restarts: u64,
    /// Restarts of the agent.
    pub agent_restarts: u64,
    /// Clears of all tiers.
    pub barriers: u64,
    /// Times that the view was emptied because nothing could repair it.
    pub resets: u64,
    /// Batches that did not fit into the buffer.
    pub dropped: u64,
    /// Batches that were lost before the feed, because they could not be read.
    pub overflows: u64,
    /// Idle sources that were asked whether they still are where we are.
    pub probes: u64,
    /// Repairs begun that ask for batches from the cursor on.
    pub replays: u64,
    /// Repairs begun that ask for all batches there are.
    pub rebuilds: u64,
    /// Repairs begun that ask for a list.
    pub lists: u64,
    /// Tries of repairs that failed.
    pub failed_tries: u64,
    /// Repairs that failed for good.
    pub failed_repairs: u64,
    /// Repairs that ended well.
    pub repaired: u64,
    /// Time that those took in all.
    pub repair_ms: u64,
    /// The longest of them.
    pub repair_ms_max: u64,
    /// Parts of answers that nobody waited for any more.
    pub late_answers: u64,
    /// Parts of answers that named another rank.
    pub foreign_answers: u64,
    /// Repairs begun because the view had drifted, or was doubted.
    pub drifts: u64,
    /// Times that whoever relied on the view doubted it.
    pub doubts: u64,
    /// Times that all that the view held was given up: it began anew, another took its place, or all tiers were cleared.
    pub replaced: u64,
    /// Removals of unknown blocks while the view was complete.
    pub unknown_removals: u64,
    /// Heartbeats heard.
    pub heartbeats: u64,
}

/// All that is known of one rank's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankStatus {
    /// Whose.
    pub rank: RankId,
    /// Which life of its source.
    pub identity: Identity,
    /// How good it is.
    pub state: State,
    /// Whether it can miss something.
    pub coverage: Coverage,
    /// How far its stream was read.
    pub cursor: Option<Sequence>,
    /// The highest number that was heard of.
    pub highest: Option<Sequence>,
    /// When it was last verified.
    pub verified_ms: Option<u64>,
    /// Batches that wait for a repair.
    pub buffered: usize,
    /// How often what was known had to be given up: answers to questions from before that do not count.
    pub epoch: u64,
    /// Whether the subscription is known to be to the life of the source that we know.
    pub is_stream_proven: bool,
    /// From the engine's clock at the last batch to ours when it was applied.
    pub lag_ms: Option<u64>,
    /// What happened.
    pub counters: Counters,
}
