//! Which adapters are on which rank, and how much room is there?
//!
//! A worker is told of before anything is said about it, with its slots, which each of its ranks has. What is said about a worker
//! that is not known, or not any more, changes nothing.
//!
//! **Invariant:** the two views, adapter to ranks and rank to adapters, never disagree.
//!
//! **Invariant:** a worker that has left has no free slots, whatever is heard of it afterwards.
//!
//! Cost: a question takes time by the logarithm of what is known; removing a worker by what it has.
//!
//! It does not know what is wanted where, and it does not decide what goes if there is no room: engines may have more than slots
//! for a moment, and then nothing is free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use homing_domain::{AdapterName, DpRank, RankId, WorkerId};

/// Slots of a rank whose engine does not say how many it has: vLLM's examples and Dynamo's default.
pub const DEFAULT_SLOTS: u32 = 4;

/// What a word about slots did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotsHeard {
    /// They were not known.
    New,
    /// They are as they were.
    Same,
    /// They were others; what is said now holds.
    Changed {
        /// What they were.
        from: u32,
        /// What they are.
        to: u32,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OnRank {
    resident: BTreeSet<AdapterName>,
    /// In use by some request, as its engine said last. It may name adapters that are not resident any more.
    active: BTreeSet<AdapterName>,
}

/// What is where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    ranks: BTreeMap<RankId, OnRank>,
    holders: BTreeMap<AdapterName, BTreeSet<RankId>>,
    slots: BTreeMap<WorkerId, u32>,
}

impl Residency {
    /// A worker is there with so many ranks, and says how many slots each has. Saying it again adds ranks and takes none.
    pub fn worker_up(&mut self, worker: WorkerId, ranks: u16, slots: u32) -> SlotsHeard {
        for dp in 0..ranks.max(1) {
            let rank = RankId { worker, dp: DpRank(dp) };
            self.ranks.entry(rank).or_default();
        }
        match self.slots.insert(worker, slots) {
            None => SlotsHeard::New,
            Some(from) if from == slots => SlotsHeard::Same,
            Some(from) => SlotsHeard::Changed { from, to: slots },
        }
    }

    /// A worker left, and all it had with it. Returns the adapters that it had.
    pub fn worker_gone(&mut self, worker: WorkerId) -> BTreeSet<AdapterName> {
        self.slots.remove(&worker);
        let ranks: Vec<RankId> = self.ranks_of(worker).collect();
        let mut had = BTreeSet::new();
        for rank in ranks {
            let gone = self.ranks.remove(&rank).unwrap_or_default();
            for adapter in gone.resident {
                self.forget_holder(&adapter, rank);
                had.insert(adapter);
            }
        }
        had
    }

    /// A rank has an adapter. Returns whether that is news; of a rank that is not known nothing is.
    pub fn add(&mut self, rank: RankId, adapter: &AdapterName) -> bool {
        let Some(on) = self.ranks.get_mut(&rank) else {
            return false;
        };
        let new = on.resident.insert(adapter.clone());
        if new {
            self.holders.entry(adapter.clone()).or_default().insert(rank);
        }
        new
    }

    /// A rank does not have an adapter any more. Returns whether it had it. The rank is still there, with one slot more.
    pub fn remove(&mut self, rank: RankId, adapter: &AdapterName) -> bool {
        let Some(on) = self.ranks.get_mut(&rank) else {
            return false;
        };
        let had = on.resident.remove(adapter);
        if had {
            self.forget_holder(adapter, rank);
        }
        had
    }

    /// The adapters of which requests are under way on a rank, as its engine says. They say nothing about what is resident.
    pub fn set_active(&mut self, rank: RankId, active: BTreeSet<AdapterName>) {
        if let Some(on) = self.ranks.get_mut(&rank) {
            on.active = active;
        }
    }

    /// The ranks that have an adapter.
    pub fn holders(&self, adapter: &AdapterName) -> impl Iterator<Item = RankId> + '_ {
        self.holders.get(adapter).into_iter().flatten().copied()
    }

    /// Whether a rank has an adapter.
    pub fn has(&self, rank: RankId, adapter: &AdapterName) -> bool {
        self.ranks.get(&rank).is_some_and(|on| on.resident.contains(adapter))
    }

    /// Whether every rank of a worker has an adapter.
    pub fn on_all_of(&self, worker: WorkerId, adapter: &AdapterName) -> bool {
        let mut ranks = self.ranks_of(worker).peekable();
        ranks.peek().is_some() && ranks.all(|rank| self.has(rank, adapter))
    }

    /// Whether some rank of a worker has an adapter.
    pub fn on_some_of(&self, worker: WorkerId, adapter: &AdapterName) -> bool {
        self.ranks_of(worker).any(|rank| self.has(rank, adapter))
    }

    /// Whether requests with an adapter are under way on a rank, as its engine said last.
    pub fn is_active(&self, rank: RankId, adapter: &AdapterName) -> bool {
        self.ranks.get(&rank).is_some_and(|on| on.active.contains(adapter))
    }

    /// The adapters of a rank.
    pub fn on(&self, rank: RankId) -> impl Iterator<Item = &AdapterName> {
        self.ranks.get(&rank).into_iter().flat_map(|on| &on.resident)
    }

    /// The adapters that any rank of a worker has.
    pub fn on_worker(&self, worker: WorkerId) -> BTreeSet<AdapterName> {
        self.ranks_of(worker).flat_map(|rank| self.on(rank)).cloned().collect()
    }

    /// All adapters that some rank has.
    pub fn adapters(&self) -> impl Iterator<Item = &AdapterName> {
        self.holders.keys()
    }

    /// All ranks, whether they have an adapter or not.
    pub fn ranks(&self) -> impl Iterator<Item = RankId> + '_ {
        self.ranks.keys().copied()
    }

    /// The ranks of a worker.
    pub fn ranks_of(&self, worker: WorkerId) -> impl Iterator<Item = RankId> + '_ {
        let (first, last) = (RankId::new(worker.0, 0), RankId::new(worker.0, u16::MAX));
        self.ranks.range(first..=last).map(|(rank, _)| *rank)
    }

    /// Ranks with a free slot.
    pub fn with_room(&self) -> impl Iterator<Item = RankId> + '_ {
        self.ranks().filter(|rank| self.free(*rank) > 0)
    }

    /// The slots of a rank; none if it is not known.
    pub fn slots(&self, rank: RankId) -> u32 {
        if self.ranks.contains_key(&rank) {
            self.slots.get(&rank.worker).copied().unwrap_or(0)
        } else {
            0
        }
    }

    /// Free slots of a rank, never less than none; none if it is not known.
    pub fn free(&self, rank: RankId) -> u32 {
        self.slots(rank).saturating_sub(self.loaded(rank))
    }

    /// How many adapters a rank has.
    pub fn loaded(&self, rank: RankId) -> u32 {
        self.ranks.get(&rank).map_or(0, |on| on.resident.len() as u32)
    }

    /// How much of a rank's slots is taken, from 0 to 1; all of it if it has none.
    pub fn usage(&self, rank: RankId) -> f64 {
        match self.slots(rank) {
            0 => 1.0,
            slots => (f64::from(self.loaded(rank)) / f64::from(slots)).min(1.0),
        }
    }

    /// The slots of all ranks.
    pub fn all_slots(&self) -> u64 {
        self.ranks().map(|rank| u64::from(self.slots(rank))).sum()
    }

    /// How many adapters all ranks have, each counted where it is.
    pub fn all_loaded(&self) -> u64 {
        self.ranks().map(|rank| u64::from(self.loaded(rank))).sum()
    }

    /// Whether no rank has any.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    fn forget_holder(&mut self, adapter: &AdapterName, rank: RankId) {
        if let Some(ranks) = self.holders.get_mut(adapter) {
            ranks.remove(&rank);
            if ranks.is_empty() {
                self.holders.remove(adapter);
            }
        }
    }
}

/// The same for many threads: who reads has a copy that does not change under his eyes, and does not wait for who writes longer
/// than it takes to hand it out.
#[derive(Debug, Default)]
pub struct SharedResidency {
    /// Replaced as a whole by writers, one after the other.
    now: RwLock<Arc<Residency>>,
}

impl SharedResidency {
    /// What is where at this moment.
    pub fn snapshot(&self) -> Arc<Residency> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes it: all of the change is seen, or nothing of it.
    pub fn change<R>(&self, change: impl FnOnce(&mut Residency) -> R) -> R {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut now))
    }
}
