//! What do ranks hold whose engines do not say so? What was routed there lately, and that is a guess.
//!
//! **Invariant:** only what was booked is stored; a question or a dry run leaves nothing.

use homing_domain::{BlockKey, KeyHasher, RankId};
use homing_index::{Approximate, ApproximateConfig, Copies, Index, IndexConfig, IndexError, Reader, Slot};
use homing_profile::Time;
use rustc_hash::FxHashMap;

/// From where a rank's cache is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheView {
    /// From its events.
    Events,
    /// From what was routed there.
    Guess,
    /// It is not.
    #[default]
    Nothing,
}

/// The index of guesses.
#[derive(Debug)]
pub(crate) struct Guess {
    index: Index,
    approximate: Approximate,
    slots: FxHashMap<RankId, Slot>,
}

impl Guess {
    pub(crate) fn new(hasher: KeyHasher, config: ApproximateConfig, max_ranks: usize) -> Self {
        let config_of_index = IndexConfig {
            max_ranks,
            ..IndexConfig::new(hasher)
        };
        Self {
            index: Index::new(config_of_index),
            approximate: Approximate::new(config, hasher),
            slots: FxHashMap::default(),
        }
    }

    pub(crate) fn reader(&self) -> Reader {
        self.index.reader()
    }

    /// Ranks that are guessed.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// A rank is guessed from now on.
    pub(crate) fn add(&mut self, rank: RankId) -> Result<(), IndexError> {
        let slot = self.index.add_rank(rank, Copies::Set)?;
        self.slots.insert(rank, slot);
        Ok(())
    }

    /// A rank is gone, or what it held is.
    pub(crate) fn drop_rank(&mut self, rank: RankId) {
        if let Some(slot) = self.slots.remove(&rank) {
            // What was guessed of it is forgotten with its time, and a slot that is not there is as good as dropped.
            let _ = self.index.drop_rank(slot);
        }
    }

    /// What a rank held is gone, the rank is not.
    pub(crate) fn renew(&mut self, rank: RankId) -> Result<(), IndexError> {
        if let Some(slot) = self.slots.get_mut(&rank) {
            *slot = self.approximate.clear(&mut self.index, *slot)?;
        }
        Ok(())
    }

    /// A prompt went to a rank. Of ranks that are not guessed nothing is kept.
    pub(crate) fn routed(&mut self, rank: RankId, keys: &[BlockKey], now: Time) {
        if let Some(slot) = self.slots.get(&rank) {
            // An error means that the rank is gone, and its blocks with it.
            let _ = self.approximate.routed(&mut self.index, *slot, keys, millis(now));
        }
    }

    /// Time passed.
    pub(crate) fn tick(&mut self, now: Time) {
        // Ranks that are gone took their blocks along.
        let _ = self.approximate.expire(&mut self.index, millis(now));
        self.index.maintain(MAINTENANCE);
    }
}

/// Housekeeping of the index with each tick, in its units of about 100 ns.
const MAINTENANCE: u32 = 5_000;

fn millis(now: Time) -> u64 {
    now.0 / 1_000_000
}
