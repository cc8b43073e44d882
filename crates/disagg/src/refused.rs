//! Why can a request not be served by two workers, and may it be asked again?

use homing_domain::{ModelName, RankId};
use homing_scheduler::Refusal;

use crate::handoff::Side;

/// Whether it makes sense to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Soon: what is in the way passes by itself.
    Soon,
    /// Not as it is.
    Never,
}

/// A request goes nowhere, in words for whoever asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Denial {
    /// Whether it makes sense to ask again.
    pub retry: Retry,
    /// Why.
    pub words: String,
}

/// Why there is no pair, or why it may not be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// Two workers are required, and there is no prefill worker.
    #[error("model {0} is served by prefill and decode workers together, and there is no prefill worker at present")]
    NoPrefillWorker(ModelName),
    /// Too much waits on the prefill workers.
    #[error("prefill workers are busy: {limit} is {most}, and {queued} prompt tokens are queued on the least busy one")]
    Busy {
        /// The name of the limit.
        limit: &'static str,
        /// Prompt tokens that are queued.
        queued: u64,
        /// The maximum.
        most: u64,
    },
    /// Too much KV waits on prefill workers to be fetched.
    #[error(
        "prefill workers hold too much that was not fetched: {limit} allows {most} blocks, and {staged} are staged on the least full one"
    )]
    StagedFull {
        /// The name of the limit.
        limit: &'static str,
        /// Blocks that are staged.
        staged: u64,
        /// The maximum.
        most: u64,
    },
    /// The transfer has to stay within a part of the network, and nobody knows where a prefill worker is.
    #[error("KV may travel only within one {label}, and that of prefill worker {rank} is not known")]
    UnknownPlace {
        /// The label's name.
        label: String,
        /// The rank.
        rank: RankId,
    },
    /// No two of those who could serve fit together.
    #[error(
        "no prefill worker fits a decode worker: of {pairs} pairs {format} differ in their KV, {topology} are in different places"
    )]
    NoPair {
        /// Pairs that were looked at.
        pairs: u32,
        /// Those that differ in model, KV type, block size, layout or connector.
        format: u32,
        /// Those between which KV may not travel.
        topology: u32,
    },
    /// Whoever asks must name the worker.
    #[error("workers are chosen by whoever asks, and no {} worker was named", .0.name())]
    NotNamed(Side),
    /// Nobody can serve one of the two parts.
    #[error("no {} worker: {refusal}", .side.name())]
    Nobody {
        /// Which part.
        side: Side,
        /// Why.
        refusal: Refusal,
    },
}

impl Refused {
    /// Whether it makes sense to ask again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::NotNamed(_) => Retry::Never,
            _ => Retry::Soon,
        }
    }

    /// In words for whoever asked.
    pub fn denial(&self) -> Denial {
        Denial {
            retry: self.retry(),
            words: self.to_string(),
        }
    }
}
