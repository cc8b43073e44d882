//! What is booked, and what is said about it afterwards?

use std::sync::Arc;

use homing_domain::{AdapterName, BlockKey, RankId, RequestId, Tokens};

/// A rank's place in the arrays of a [`crate::Load`]; used again after the rank was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u32);

impl Place {
    /// As a place in arrays.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// One attempt of a request, as long as it lives and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub(crate) at: u32,
    pub(crate) fence: u64,
}

/// Whether a request's prompt is work for its rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptWork {
    /// What is not cached is computed there.
    #[default]
    Counts,
    /// It is computed elsewhere.
    None,
}

/// What is booked.
#[derive(Clone, Debug)]
pub struct Booking {
    /// The request. While one of this id lives, another is refused.
    pub id: RequestId,
    /// Where.
    pub place: Place,
    /// Tokens of the prompt.
    pub prompt: Tokens,
    /// Those of them that are predicted to be cached.
    pub cached: Tokens,
    /// Keys of its full blocks, or of none of them if no reuse is assumed: then its blocks count as its own.
    pub keys: Arc<[BlockKey]>,
    /// Tokens that it is expected to generate.
    pub expected_output: Tokens,
    /// The adapter that it uses.
    pub adapter: Option<AdapterName>,
    /// Whether the prompt is work here.
    pub work: PromptWork,
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was answered.
    Finished,
    /// It failed.
    Failed,
    /// Nobody waits for it any more.
    Cancelled,
}

/// What a word about a booking did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It changed something.
    News,
    /// It was known already.
    Known,
    /// There is no such booking, or not any more.
    Stranger,
}

/// Why something was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// A request of this id lives.
    #[error("request {0} is booked already; end it before it is booked again")]
    LiveId(RequestId),
    /// There is no rank at the place.
    #[error("there is no rank at place {}", .0.0)]
    NoSuchPlace(Place),
    /// The rank is there already.
    #[error("rank {0} is there already")]
    KnownRank(RankId),
    /// A bound was reached.
    #[error("{what}: there are {limit} already, which is the limit")]
    Full {
        /// Of what.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

/// What happened since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bookings made.
    pub booked: u64,
    /// Those that were answered.
    pub finished: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that were cancelled.
    pub cancelled: u64,
    /// Those of which nothing was heard for the length of a lease.
    pub expired: u64,
    /// Those whose rank was removed.
    pub orphaned: u64,
    /// Words about bookings that are not there.
    pub strangers: u64,
}
