//! What is kept of ranks besides what schedulers read?

use std::sync::Arc;

use homing_profile::{Millis, Time, Timing};

use crate::config::RankSpec;
use crate::ledger::List;
use crate::pace::Pace;
use crate::rank::Slopes;
use crate::report::Reported;

/// What is kept of a rank besides what schedulers read.
#[derive(Debug)]
pub(crate) struct Cold {
    pub(crate) spec: RankSpec,
    pub(crate) pace: Pace,
    pub(crate) slopes: Slopes,
    pub(crate) reported: Reported,
    pub(crate) all: List,
    pub(crate) pending: List,
    pub(crate) released: Released,
}

/// Blocks and sequences that were released lately, fading.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Released {
    pub(crate) blocks_per_ms: f64,
    pub(crate) sequences_per_ms: f64,
    pub(crate) at: Time,
}

impl Released {
    const MEMORY: Millis = Millis(10_000.0);

    pub(crate) fn fade(&mut self, now: Time) {
        let kept = (-now.since(self.at).0 / Self::MEMORY.0).exp();
        self.blocks_per_ms *= kept;
        self.sequences_per_ms *= kept;
        self.at = self.at.max(now);
    }

    pub(crate) fn add(&mut self, blocks: u64, now: Time) {
        self.fade(now);
        self.blocks_per_ms += blocks as f64 / Self::MEMORY.0;
        self.sequences_per_ms += 1.0 / Self::MEMORY.0;
    }
}

/// How many ranks have prompts to compute, over time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Busy {
    pub(crate) ranks: u32,
    pub(crate) share: f64,
    pub(crate) at: Time,
}

impl Busy {
    const MEMORY: Millis = Millis(5_000.0);

    pub(crate) fn share(&self, now: Time, ranks: usize) -> f64 {
        let kept = (-now.since(self.at).0 / Self::MEMORY.0).exp();
        let present = f64::from(self.ranks) / ranks.max(1) as f64;
        present + (self.share - present) * kept
    }
}

/// Whether two ranks are of one kind, so that what was worked out for one holds for the other.
pub(crate) fn same_timing(one: &Timing, other: &Timing) -> bool {
    match (one, other) {
        (
            Timing::Measured {
                profile: a,
                overhead: x,
            },
            Timing::Measured {
                profile: b,
                overhead: y,
            },
        ) => Arc::ptr_eq(a, b) && x == y,
        (Timing::Polynomial(a), Timing::Polynomial(b)) => a == b,
        (Timing::Constant(a), Timing::Constant(b)) => a == b,
        _ => false,
    }
}
