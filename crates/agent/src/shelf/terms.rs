//! In which words is a shelf spoken to?

use bytes::Bytes;
use homing_config::HttpUrl;
use homing_domain::{RankId, Sequence};
use homing_keeper::Subject;
use homing_wire::frame::{Heartbeat, Position};
use thiserror::Error;

use crate::life::Question;
use crate::ring::Mark;

/// Whose shelf it is.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The rank.
    pub rank: RankId,
    /// The address of its worker.
    pub worker: HttpUrl,
    /// The index that it is in.
    pub subject: Subject,
}

/// Changes whenever those who watch must begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(pub(super) u64);

/// What the witness is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Ask the engine when it was started.
    Ask(Question),
    /// Tell the feed that the engine lives anew.
    Renew,
}

/// Who speaks, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// Of which generation this is true.
    pub generation: Generation,
    /// Incarnation, epoch, position.
    pub beat: Heartbeat,
    /// The oldest batch in the ring.
    pub oldest: Option<Position>,
}

/// What a watch begins with.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Where it goes on.
    pub mark: Mark,
    /// Where what was asked for ends, if something was.
    pub until: Option<Mark>,
    /// Who speaks, and where it was then.
    pub standing: Standing,
}

/// What a watch is told next.
#[derive(Debug)]
pub enum Reading {
    /// Frames, and where to go on.
    Frames(Vec<Bytes>, Mark),
    /// All was read. This is where the stream is; the frame vouches for it if the agent does.
    AllRead(Bytes),
    /// What was read does not go on.
    Ended,
    /// The reader was slower than the ring is long.
    TooSlow,
}

/// What is asked of a watch beyond what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Only what comes.
    Now,
    /// Everything from this number on.
    Sequence(Sequence),
}

/// Whether a watch goes on when what was asked for has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// It does.
    Yes,
    /// It does not.
    No,
}

/// Why something cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Not now.
    #[error("this rank cannot be served now: {0}")]
    NotReady(&'static str),
    /// What was asked for could only be confirmed, and it cannot.
    #[error("nothing new is known of this rank, and whether that is still so cannot be said: {0}")]
    NotVerified(&'static str),
    /// The ring has lost it.
    #[error("batch {from} is no longer here: {}; take a list", .oldest.map_or("none is".to_owned(), |at| format!("the oldest is {}", at.sequence)))]
    Gone {
        /// What was asked for.
        from: Sequence,
        /// The oldest there is.
        oldest: Option<Position>,
    },
    /// It is not there yet.
    #[error("batch {from} has not come yet: {}", .newest.map_or("none has".to_owned(), |at| format!("the newest is {}", at.sequence)))]
    Beyond {
        /// What was asked for.
        from: Sequence,
        /// The newest there is.
        newest: Option<Position>,
    },
}
