//! What waits on prefill workers to be fetched, and what is on its way?
//!
//! Room is *held* for the KV of a request when a pair is chosen for it, so that two requests never get the same last room, and is
//! counted until a decode worker has read it, its engine has dropped it, or its worker went.
//!
//! **Invariant:** a hold is released exactly once; a late word about one that was released changes nothing.
//!
//! **Invariant:** when all holds have been released, all sums are zero.

use std::collections::BTreeSet;

use homing_domain::{Blocks, RankId};
use homing_profile::Time;
use rustc_hash::FxHashMap;

use crate::handoff::{Fate, Staged};

/// Room that is held for the KV of one pair, as long as it is and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hold(pub u64);

/// Bounds of what is staged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StagingLimits {
    /// Blocks on one rank. One request that needs more than that is taken where nothing is staged.
    pub most_blocks: u64,
    /// The same as a share of the rank's cache, where its size is known.
    pub most_share: f64,
    /// Holds of all ranks.
    pub most_holds: usize,
}

impl Default for StagingLimits {
    fn default() -> Self {
        Self {
            most_blocks: 1 << 20,
            most_share: 0.5,
            most_holds: 1 << 20,
        }
    }
}

impl StagingLimits {
    /// Blocks that may be staged on a rank with so large a cache.
    pub fn of(&self, capacity: Option<u32>) -> u64 {
        let share = capacity.map_or(u64::MAX, |blocks| (f64::from(blocks) * self.most_share) as u64);
        self.most_blocks.min(share)
    }
}

/// What happened since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagedCounters {
    /// Holds that were taken.
    pub held: u64,
    /// Those for which no KV was staged.
    pub not_staged: u64,
    /// Those that a decode worker read to go on with it.
    pub handed_over: u64,
    /// Those that were read so that they were let go.
    pub drained: u64,
    /// Those that were left to lapse.
    pub lapsed: u64,
    /// Those whose worker went.
    pub gone: u64,
    /// Words about holds that are not there.
    pub strangers: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Held,
    Moving,
    /// Counted until then, whatever is said.
    Lapsing(Time),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    from: RankId,
    to: RankId,
    blocks: u64,
    bytes: u64,
    stage: Stage,
}

/// What a rank has of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagedOn {
    /// Blocks that are staged there, or will be.
    pub blocks: u64,
    /// Bytes that are leaving it.
    pub leaving: u64,
    /// Bytes that are coming to it.
    pub arriving: u64,
}

/// All that is staged.
#[derive(Debug, Default)]
pub struct Staging {
    limits: StagingLimits,
    entries: FxHashMap<Hold, Entry>,
    lapsing: BTreeSet<(Time, Hold)>,
    ranks: FxHashMap<RankId, StagedOn>,
    next: u64,
    counters: StagedCounters,
}

/// What is to be held.
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    /// The prefill worker.
    pub from: RankId,
    /// The decode worker.
    pub to: RankId,
    /// Blocks of the prompt.
    pub blocks: Blocks,
    /// Bytes that have to travel.
    pub bytes: u64,
}

impl Staging {
    /// With these bounds.
    pub fn new(limits: StagingLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// The bounds.
    pub fn limits(&self) -> &StagingLimits {
        &self.limits
    }

    /// Whether so many blocks more have room on a rank.
    pub fn has_room(&self, rank: RankId, capacity: Option<u32>, blocks: Blocks) -> bool {
        let on = self.on(rank).blocks;
        let fits = on == 0 || on + u64::from(blocks.0) <= self.limits.of(capacity);
        fits && self.entries.len() < self.limits.most_holds
    }

    /// Holds room, whether there is enough or not: whoever chose asked before.
    pub fn hold(&mut self, holding: &Holding) -> Hold {
        let hold = Hold(self.next);
        self.next += 1;
        self.counters.held += 1;
        let blocks = u64::from(holding.blocks.0);
        self.ranks.entry(holding.from).or_default().blocks += blocks;
        let entry = Entry {
            from: holding.from,
            to: holding.to,
            blocks,
            bytes: holding.bytes,
            stage: Stage::Held,
        };
        self.entries.insert(hold, entry);
        hold
    }

    /// The prompt was computed, and this much is staged.
    pub fn staged(&mut self, hold: Hold, staged: &Staged) {
        let Some(entry) = self.entries.get_mut(&hold) else {
            self.counters.strangers += 1;
            return;
        };
        let blocks = u64::from(staged.blocks.0);
        let on = self.ranks.entry(entry.from).or_default();
        on.blocks = on.blocks + blocks - entry.blocks;
        entry.blocks = blocks;
    }

    /// A decode worker is on its way to fetch it.
    pub fn moving(&mut self, hold: Hold, to: RankId) {
        let Some(entry) = self.entries.get_mut(&hold) else {
            self.counters.strangers += 1;
            return;
        };
        if entry.stage != Stage::Held {
            return;
        }
        (entry.stage, entry.to) = (Stage::Moving, to);
        self.ranks.entry(entry.from).or_default().leaving += entry.bytes;
        self.ranks.entry(to).or_default().arriving += entry.bytes;
    }

    /// What became of it.
    pub fn settle(&mut self, hold: Hold, fate: Fate) {
        let known = self.entries.get(&hold).map(|entry| entry.stage);
        let Some(Stage::Held | Stage::Moving) = known else {
            self.counters.strangers += 1;
            return;
        };
        match fate {
            Fate::NotStaged => self.counters.not_staged += 1,
            Fate::HandedOver => self.counters.handed_over += 1,
            Fate::Drained => self.counters.drained += 1,
            Fate::Gone => self.counters.gone += 1,
            Fate::Lapses(at) => {
                self.counters.lapsed += 1;
                self.stop_moving(hold);
                if let Some(entry) = self.entries.get_mut(&hold) {
                    entry.stage = Stage::Lapsing(at);
                    self.lapsing.insert((at, hold));
                }
                return;
            }
        }
        self.release(hold);
    }

    /// Time passed: what its engine has dropped counts no more. Returns how many that were.
    pub fn tick(&mut self, now: Time) -> usize {
        let mut gone = 0;
        while let Some((at, hold)) = self.lapsing.first().copied() {
            if at > now {
                break;
            }
            self.release(hold);
            gone += 1;
        }
        gone
    }

    /// A rank went, and what was staged there with it. Returns how many holds that were.
    pub fn rank_gone(&mut self, rank: RankId) -> usize {
        let on = self.entries.iter().filter(|(_, entry)| entry.from == rank);
        let holds: Vec<Hold> = on.map(|(hold, _)| *hold).collect();
        for hold in &holds {
            self.counters.gone += 1;
            self.release(*hold);
        }
        holds.len()
    }

    /// What a rank has of it.
    pub fn on(&self, rank: RankId) -> StagedOn {
        self.ranks.get(&rank).copied().unwrap_or_default()
    }

    /// Blocks on all ranks.
    pub fn blocks(&self) -> u64 {
        self.entries.values().map(|entry| entry.blocks).sum()
    }

    /// Holds that were not released.
    pub fn holds(&self) -> usize {
        self.entries.len()
    }

    /// When the next of them lapses.
    pub fn next_lapse(&self) -> Option<Time> {
        self.lapsing.first().map(|(at, _)| *at)
    }

    /// What happened.
    pub fn counters(&self) -> StagedCounters {
        self.counters
    }

    /// Whether nothing is held, and every sum is zero.
    pub fn is_at_rest(&self) -> bool {
        self.entries.is_empty() && self.lapsing.is_empty() && self.ranks.is_empty()
    }

    fn stop_moving(&mut self, hold: Hold) {
        let Some(entry) = self.entries.get(&hold).filter(|entry| entry.stage == Stage::Moving) else {
            return;
        };
        let (from, to, bytes) = (entry.from, entry.to, entry.bytes);
        self.change(from, |on| on.leaving -= bytes);
        self.change(to, |on| on.arriving -= bytes);
    }

    fn release(&mut self, hold: Hold) {
        self.stop_moving(hold);
        let Some(entry) = self.entries.remove(&hold) else {
            return;
        };
        if let Stage::Lapsing(at) = entry.stage {
            self.lapsing.remove(&(at, hold));
        }
        self.change(entry.from, |on| on.blocks -= entry.blocks);
    }

    /// Ranks with nothing are not kept.
    fn change(&mut self, rank: RankId, change: impl FnOnce(&mut StagedOn)) {
        let on = self.ranks.entry(rank).or_default();
        change(on);
        if *on == StagedOn::default() {
            self.ranks.remove(&rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    fn holding(from: u32, to: u32, blocks: u32) -> Holding {
        Holding {
            from: RankId::new(from, 0),
            to: RankId::new(to, 0),
            blocks: Blocks(blocks),
            bytes: u64::from(blocks) * 1_000,
        }
    }

    #[test]
    fn room_is_bounded_and_one_large_request_is_taken_where_nothing_is() {
        let mut staging = Staging::new(StagingLimits {
            most_blocks: 100,
            ..StagingLimits::default()
        });
        let rank = RankId::new(1, 0);
        assert!(staging.has_room(rank, None, Blocks(500)));
        let hold = staging.hold(&holding(1, 2, 60));
        assert!(staging.has_room(rank, None, Blocks(40)));
        assert!(!staging.has_room(rank, None, Blocks(41)));
        assert!(!staging.has_room(rank, Some(150), Blocks(20)), "half of its cache");
        staging.settle(hold, Fate::HandedOver);
        assert!(staging.is_at_rest());
    }

    #[test]
    fn what_was_left_counts_until_it_lapses() {
        let mut staging = Staging::default();
        let hold = staging.hold(&holding(1, 2, 10));
        staging.settle(hold, Fate::Lapses(Time(500)));
        staging.settle(hold, Fate::HandedOver);
        assert_eq!((staging.blocks(), staging.counters().strangers), (10, 1));
        assert_eq!((staging.tick(Time(499)), staging.next_lapse()), (0, Some(Time(500))));
        assert_eq!(staging.tick(Time(500)), 1);
        assert!(staging.is_at_rest());
    }

    #[test]
    fn a_rank_that_goes_takes_what_it_had_and_late_words_change_nothing() {
        let mut staging = Staging::default();
        let (one, other) = (staging.hold(&holding(1, 2, 10)), staging.hold(&holding(3, 2, 5)));
        staging.moving(one, RankId::new(2, 0));
        assert_eq!(staging.on(RankId::new(2, 0)).arriving, 10_000);
        assert_eq!(staging.rank_gone(RankId::new(1, 0)), 1);
        staging.settle(one, Fate::HandedOver);
        assert_eq!(staging.on(RankId::new(2, 0)), StagedOn::default());
        staging.settle(other, Fate::Drained);
        assert!(staging.is_at_rest());
    }

    proptest! {
        #[test]
        fn at_the_end_all_sums_are_zero(words in prop::collection::vec((0..6_u8, 0..8_u64, 1..4_u32, 1..50_u32), 0..200)) {
            let mut staging = Staging::default();
            let mut sum: BTreeMap<Hold, u64> = BTreeMap::new();
            for (word, of, rank, blocks) in words {
                let hold = Hold(of);
                match word {
                    0 => {
                        let hold = staging.hold(&holding(rank, 9, blocks));
                        sum.insert(hold, u64::from(blocks));
                    }
                    1 => {
                        let staged = Staged { blocks: Blocks(blocks), expires: None };
                        staging.staged(hold, &staged);
                        sum.entry(hold).and_modify(|sum| *sum = u64::from(blocks));
                    }
                    2 => staging.moving(hold, RankId::new(rank + 4, 0)),
                    3 => {
                        staging.settle(hold, Fate::Lapses(Time::ZERO));
                        staging.tick(Time::ZERO);
                        sum.remove(&hold);
                    }
                    4 => {
                        staging.settle(hold, Fate::HandedOver);
                        sum.remove(&hold);
                    }
                    _ => {
                        staging.settle(hold, Fate::Gone);
                        sum.remove(&hold);
                    }
                }
                prop_assert_eq!(staging.blocks(), sum.values().sum::<u64>());
                let on: u64 = (1..4).map(|rank| staging.on(RankId::new(rank, 0)).blocks).sum();
                prop_assert_eq!(on, staging.blocks());
            }
            for hold in sum.into_keys() {
                staging.settle(hold, Fate::Drained);
            }
            prop_assert!(staging.is_at_rest());
        }
    }
}
