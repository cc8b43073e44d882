//! What is true, once all that was typed is read?
//!
//! Small structs of domain types. A value of [`Config`] comes from [`crate::resolve()`] only, so whoever holds one knows
//! that every field is in its range and that all checks across fields hold.

use std::time::Duration;

use homing_domain::{BlockSize, Blocks, HashSeed};
use homing_index::Copies;

use crate::knob::{Choice, Value};
use crate::table::KnobId;

macro_rules! choice {
    ($(#[$meta:meta])* $name:ident { $( $(#[doc = $doc:literal])+ $variant:ident = $word:literal, )+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $( $(#[doc = $doc])+ $variant, )+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$( Self::$variant ),+];
            /// Their words, in the same order.
            pub const CHOICES: &'static [Choice] = &[$( Choice {
                name: $word,
                doc: concat!($($doc),+).trim_ascii(),
            } ),+];
        }
    };
}

choice!(
    /// Where knowledge of the engines' caches comes from.
    CacheView {
        /// Engines report what they store and remove, and the index is exact.
        Events = "events",
        /// Engines report nothing; what was routed to a rank is taken to be there for a while.
        Approximate = "approximate",
        /// Nothing is known and nothing is kept.
        None = "none",
    }
);

/// How a repeated announcement can be understood, in the order of [`COPIES_CHOICES`].
const COPIES: [Copies; 2] = [Copies::Counted, Copies::Set];

/// The words for [`Copies`], which belongs to the index.
pub(crate) const COPIES_CHOICES: &[Choice] = &[
    Choice {
        name: "counted",
        doc: "The engine holds one more copy, and will remove each.",
    },
    Choice {
        name: "set",
        doc: "The engine repeats itself; one removal removes the block.",
    },
];

/// All settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Tokens per block.
    pub block_size: BlockSize,
    /// The seed of the block hash.
    pub hash_seed: HashSeed,
    /// What an index may keep.
    pub index: IndexLimits,
    /// The view of engines that report nothing.
    pub approximate: Approximate,
    /// The workload of `homing demo`.
    pub demo: Demo,
}

/// What an index may keep, and how it reads its events.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexLimits {
    /// Where knowledge of caches comes from.
    pub cache_view: CacheView,
    /// Distinct blocks.
    pub capacity: Blocks,
    /// Ranks at once.
    pub max_ranks: u32,
    /// Blocks without a known parent, per rank.
    pub orphans_per_rank: Blocks,
    /// How a repeated announcement is understood.
    pub copies: Copies,
    /// The time over which uses are counted.
    pub heat_window: Duration,
}

/// The view of engines that report nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Approximate {
    /// How long a routed block is taken to be there.
    pub ttl: Duration,
    /// Blocks before pruning.
    pub max_blocks: Blocks,
    /// The share of `max_blocks` that pruning leaves.
    pub prune_target_ratio: f64,
}

/// The workload of `homing demo`.
#[derive(Clone, Debug, PartialEq)]
pub struct Demo {
    /// Workers of the fleet.
    pub workers: u32,
    /// Conversations.
    pub sessions: u32,
    /// Turns of each.
    pub turns: u32,
    /// Blocks that each worker can cache.
    pub cache: Blocks,
    /// What all of it is generated from.
    pub seed: u64,
}

impl Config {
    /// The configuration that `value` describes. The values must have come out of [`crate::Knob::parse`] of their knobs,
    /// which has checked kind and range.
    pub(crate) fn build(value: impl Fn(KnobId) -> Value) -> Self {
        let count = |id| match value(id) {
            Value::Count(count) => count,
            other => unreachable!("{id:?} is {other:?}, not a count"),
        };
        let small = |id| u32::try_from(count(id)).expect("ranges of 32-bit knobs end below 2^32");
        let time = |id| match value(id) {
            Value::Time(time) => time,
            other => unreachable!("{id:?} is {other:?}, not a time"),
        };
        let ratio = |id| match value(id) {
            Value::Ratio(ratio) => ratio,
            other => unreachable!("{id:?} is {other:?}, not a ratio"),
        };
        let choice = |id| match value(id) {
            Value::Choice(place) => place,
            other => unreachable!("{id:?} is {other:?}, not a choice"),
        };
        let Value::Seed(hash_seed) = value(KnobId::HashSeed) else {
            unreachable!("the hash seed is not a seed");
        };
        Self {
            block_size: BlockSize::new(small(KnobId::BlockSize)).expect("the range of block sizes begins above 0"),
            hash_seed,
            index: IndexLimits {
                cache_view: CacheView::ALL[choice(KnobId::CacheView)],
                capacity: Blocks(small(KnobId::Capacity)),
                max_ranks: small(KnobId::MaxRanks),
                orphans_per_rank: Blocks(small(KnobId::OrphansPerRank)),
                copies: COPIES[choice(KnobId::Copies)],
                heat_window: time(KnobId::HeatWindow),
            },
            approximate: Approximate {
                ttl: time(KnobId::ApproximateTtl),
                max_blocks: Blocks(small(KnobId::ApproximateMaxBlocks)),
                prune_target_ratio: ratio(KnobId::ApproximatePruneTargetRatio),
            },
            demo: Demo {
                workers: small(KnobId::DemoWorkers),
                sessions: small(KnobId::DemoSessions),
                turns: small(KnobId::DemoTurns),
                cache: Blocks(small(KnobId::DemoCache)),
                seed: count(KnobId::DemoSeed),
            },
        }
    }
}

impl Default for Config {
    /// Every knob at its default.
    fn default() -> Self {
        Self::build(|id| {
            let knob = id.knob();
            knob.parse(knob.default).expect("a test parses every default")
        })
    }
}
