//! Which bounds and defaults hold?

use homing_domain::{BlockSize, RankId, Tokens};
use homing_profile::{Millis, Timing};

/// Whether something is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// It is.
    On,
    /// It stays zero.
    Off,
}

/// What holds for all ranks.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// Tokens in a block.
    pub block_size: BlockSize,
    /// A booking of which nothing is heard for so long is released.
    pub lease: Millis,
    /// For so long a report of an engine counts, ever less.
    pub report_fade: Millis,
    /// Bookings at once; a further one is refused.
    pub max_bookings: usize,
    /// Ranks at once; a further one is refused.
    pub max_ranks: usize,
    /// Whether blocks of prompts are counted.
    pub prompt_blocks: Track,
    /// Whether blocks of outputs are counted.
    pub output_blocks: Track,
    /// In so long all blocks in use are assumed to be released where nothing was observed yet.
    pub turnover: Millis,
    /// A mistake to make on purpose, for tests that must find it.
    #[cfg(any(test, feature = "testing"))]
    pub bug: Option<crate::Bug>,
}

impl LoadConfig {
    /// The defaults for a block size.
    pub const fn new(block_size: BlockSize) -> Self {
        Self {
            block_size,
            lease: Millis(300_000.0),
            report_fade: Millis(10_000.0),
            max_bookings: 1 << 20,
            max_ranks: 8_192,
            prompt_blocks: Track::On,
            output_blocks: Track::On,
            turnover: Millis(10_000.0),
            #[cfg(any(test, feature = "testing"))]
            bug: None,
        }
    }
}

/// What is known of a rank before it did anything.
#[derive(Clone, Debug)]
pub struct RankSpec {
    /// Which.
    pub rank: RankId,
    /// How long its steps take.
    pub timing: Timing,
    /// Blocks that its cache has room for; none if that is not known, and then nobody waits for room.
    pub capacity: Option<u32>,
    /// Sequences that it runs at once; none if that is not known.
    pub max_sequences: Option<u32>,
    /// Tokens that it computes in a step.
    pub chunk: Tokens,
}

impl RankSpec {
    /// A rank without known limits, with steps of 8,192 tokens.
    pub const fn new(rank: RankId, timing: Timing) -> Self {
        Self {
            rank,
            timing,
            capacity: None,
            max_sequences: None,
            chunk: Tokens(8_192),
        }
    }
}
