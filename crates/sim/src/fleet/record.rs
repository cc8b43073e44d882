//! What became of a request?

use homing_domain::{RankId, Tokens};
use homing_profile::{Millis, Time};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With its whole answer.
    Answered,
    /// It was refused, or tried too often.
    Failed,
    /// Its client gave up.
    GivenUp,
}

/// A request that is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Its number, in the order of arrival.
    pub number: u64,
    /// Which router it came to last.
    pub router: u32,
    /// Where it was served last, if it was let go.
    pub rank: Option<RankId>,
    /// When it came.
    pub arrived: Time,
    /// How long it waited in the router, all attempts together.
    pub queued: Millis,
    /// From its arrival to its first token, as the client sees it.
    pub first_token: Option<Millis>,
    /// From its arrival to its end.
    pub whole: Millis,
    /// Tokens of its prompt.
    pub prompt: Tokens,
    /// Tokens generated.
    pub output: Tokens,
    /// Tokens of its prompt that came from the cache, of the last attempt.
    pub cached: Tokens,
    /// Those that were predicted to, when it was let go last.
    pub predicted_cached: Tokens,
    /// The time to its first token that was predicted when it was let go last, from then on.
    pub predicted_first_token: Millis,
    /// The time to its first token from when it was let go last.
    pub served_first_token: Option<Millis>,
    /// Attempts.
    pub attempts: u32,
    /// How it ended.
    pub end: End,
}

impl Record {
    /// The mean time between its tokens, if it has several.
    pub fn between_tokens(&self) -> Option<Millis> {
        let first = self.first_token?;
        let gaps = self.output.0.checked_sub(1).filter(|gaps| *gaps > 0)?;
        Some(Millis((self.whole.0 - first.0) / f64::from(gaps)))
    }

    /// Mixes it into a hash of all records.
    pub(crate) fn mix_into(&self, hash: u64) -> u64 {
        let of = |millis: Option<Millis>| millis.map_or(0, |millis| millis.0.to_bits());
        let parts = [
            self.number,
            self.rank.map_or(0, |rank| u64::from(rank.worker.0) + 1),
            self.arrived.0,
            of(self.first_token),
            of(Some(self.whole)),
            of(Some(self.queued)),
            u64::from(self.output.0) << 32 | u64::from(self.cached.0),
            of(Some(self.predicted_first_token)),
            self.end as u64,
        ];
        parts.into_iter().fold(hash, mixed)
    }
}

/// A hash with one thing more in it.
pub(crate) const fn mixed(hash: u64, part: u64) -> u64 {
    let mixed = (hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}
