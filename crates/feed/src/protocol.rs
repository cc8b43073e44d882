//! What is said to the feed, and what does it ask for?

use homing_domain::{Digest, KvBatch, Listed, RankId, Sequence, WorkerId};
use homing_index::Copies;

/// Which life of which source. Positions compare only within one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The life of the engine, as far as it is known from outside its stream: a start time, an id. Where nothing is
    /// known it stays the same, and digests tell lives apart.
    pub engine: u64,
    /// The life of the agent's view of it; 0 where there is no agent.
    pub agent: u64,
}

/// What a source can do for a view that has lost something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Nothing: what is lost is lost.
    LiveOnly,
    /// It sends the batches of a while again.
    Replay,
    /// It lists what the rank holds, and sends the batches of a while again.
    List,
}

/// What an all-tier clear on a rank's stream empties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClearReach {
    /// That rank.
    #[default]
    Rank,
    /// Every rank of its worker. Which batches of the others came before it is known by when they were sent, if the
    /// source says so; if not, what is heard later counts as later. The engine's clock must not go back, also not when it
    /// restarts.
    Worker,
}

/// Where a rank's batches come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Which life of it.
    pub identity: Identity,
    /// What it can do after a loss.
    pub recovery: Recovery,
    /// What its clears empty.
    pub clear_reach: ClearReach,
    /// How it means a block that it announces again.
    pub copies: Copies,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A rank exists, and this is its source. Its subscription is about to be made.
    Discovered {
        /// Which.
        rank: RankId,
        /// Where its batches come from.
        source: Source,
    },
    /// A rank is gone.
    Left(RankId),
    /// A worker is gone with all its ranks.
    WorkerLeft(WorkerId),
    /// The subscription to a rank's live stream stands: what it sends from now on is heard, unless it is lost.
    Connected(RankId),
    /// The subscription is gone. Comes before anything that a later subscription brings.
    Disconnected(RankId),
    /// A batch came on the live stream.
    Heard {
        /// Whose.
        rank: RankId,
        /// What it said.
        batch: KvBatch,
    },
    /// The source says how far it is.
    Heartbeat {
        /// Whose.
        rank: RankId,
        /// Which life of it speaks.
        identity: Identity,
        /// Its newest batch, if there is one.
        newest: Option<(Sequence, Digest)>,
    },
    /// Batches up to this number came and had to be dropped before they were read.
    Overflowed {
        /// Whose.
        rank: RankId,
        /// The highest number among them, if it was read.
        highest: Option<Sequence>,
    },
    /// Whoever relied on a rank's view found less than it promised, again and again: it is wrong, though nothing that was heard
    /// says so.
    Doubted(RankId),
    /// An answer to an [`Ask`], or a part of it.
    Reply(Reply),
    /// Time passed. To be said a few times per second.
    Tick,
}

/// Names one question. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

/// A question to a rank's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its name, to be given back with every part of the answer.
    pub id: AskId,
    /// Whose source is asked.
    pub rank: RankId,
    /// What for.
    pub what: What,
}

/// What a source is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// All batches from this number on, as far as they are still there; the oldest ones if that is older.
    Replay {
        /// The first that is wanted.
        from: Sequence,
    },
    /// What the rank holds.
    List,
}

/// What is to be done outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Ask this, and report the answer.
    Ask(Ask),
    /// The answer is not wanted any more.
    Cancel(AskId),
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Which question it answers.
    pub ask: AskId,
    /// Whose state it tells, as the answer itself says.
    pub rank: RankId,
    /// What it says.
    pub part: Part,
}

/// What a part of an answer says.
#[derive(Clone, Debug)]
pub enum Part {
    /// A batch of a replay. They come in the order of their numbers.
    Batch(KvBatch),
    /// The replay is over. Only what was contiguous counts.
    ReplayEnd,
    /// A list begins.
    ListHead(ListHead),
    /// Items of a list, parents before children.
    ListItems(Vec<Listed>),
    /// The list is over and had so many items.
    ListEnd {
        /// Items that were sent.
        items: u64,
    },
    /// The source says that it no longer has what was asked for, or that it never can have it.
    Gone,
    /// No answer: the source could not be reached, or did not make sense.
    Failed,
}

/// The beginning of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListHead {
    /// Which life of the source it is the content of.
    pub identity: Identity,
    /// The last batch that is contained, if any.
    pub position: Option<(Sequence, Digest)>,
    /// Whether the source knows all that the rank holds.
    pub coverage: Coverage,
    /// Whether a bound made the source forget something.
    pub truncated: bool,
}

/// Whether a view can miss something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// It was there from the beginning, or has been told everything.
    Complete,
    /// It may miss what was cached before it listened: a lower bound.
    Warming,
}

/// What happened to the view that readers see, for those who pass it on.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The batch was applied to it.
    Applied {
        /// Whose view.
        rank: RankId,
        /// What was applied.
        batch: KvBatch,
    },
    /// It was replaced by another, or emptied: what comes next does not continue what came before.
    Replaced(RankId),
}
