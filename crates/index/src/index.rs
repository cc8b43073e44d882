//! The writer: one per model and block size. Applies events one after the other, and does its housekeeping in slices.

use std::sync::Arc;

use homing_domain::{ClearScope, KvChange, Label, RankId, Removed, Stored};
use rustc_hash::FxHashSet;
use thiserror::Error;

use crate::bugs::planted;
use crate::config::{Copies, IndexConfig};
use crate::heap::Heap;
use crate::lookup::{Reader, Shared};
use crate::record::RunId;
use crate::runs::Runs;
use crate::slots::{Slot, SlotState, Slots, View};
use crate::spares::{Reserve, Spares, Stock};
use crate::sync::{AtomicU64, Ordering, Published, fence};
use crate::table::Table;
use crate::write::Kind;
use crate::write::clear::Clearing;
use crate::write::forks::Forks;
use crate::write::maintain::Housekeeping;
use crate::write::renumber::Renumbered;

/// Why an operation was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IndexError {
    /// As many ranks are live, or being replaced, as are allowed.
    #[error("no slot is free: {limit} ranks are live or being replaced, and more are not allowed")]
    TooManyRanks {
        /// How many are allowed.
        limit: usize,
    },
    /// The rank is already there.
    #[error("rank {0} is already in the index")]
    RankExists(RankId),
    /// The slot's rank was dropped, cleared or replaced.
    #[error("this slot is not in use any more")]
    NoSuchSlot,
    /// Only a draft can be published.
    #[error("this slot is live already")]
    NotADraft,
}

/// What a store did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreOutcome {
    /// Blocks that nobody held before.
    pub new_blocks: u32,
    /// Blocks whose parent is unknown, kept until it comes.
    pub orphaned: u32,
    /// Orphans that found their parent.
    pub joined: u32,
    /// Blocks that were not kept because there is no room for more.
    pub forgotten: u32,
    /// Labels that named another block of this rank until now.
    pub rebound: u32,
}

/// What a removal did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoveOutcome {
    /// Labels that name nothing here: evidence that the view has drifted.
    pub unknown: u32,
    /// Labels that name nothing here, of a rank that is truncated: they may be what was forgotten, and prove nothing.
    pub unknown_tolerated: u32,
}

/// Whether housekeeping is left to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// Nothing.
    Idle,
    /// Something: call again.
    More,
}

impl Pending {
    /// Whether something is left to be done.
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::More)
    }
}

/// Sizes of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Distinct blocks in runs; a few of them may be held by nobody any more.
    pub blocks: u64,
    /// Places for blocks in runs, in use or not.
    pub block_slots: u64,
    /// Runs.
    pub runs: u64,
    /// Live ranks.
    pub ranks: u64,
    /// (Block, rank) pairs, over live ranks.
    pub entries: u64,
    /// Orphans, over live ranks.
    pub orphans: u64,
    /// Live ranks of which something was forgotten.
    pub truncated_ranks: u64,
    /// Blocks evicted because the index was full, since it was made.
    pub evicted: u64,
    /// Labels that came to name another block, since it was made.
    pub rebound: u64,
    /// Removals of labels that named nothing, since it was made.
    pub unknown_removals: u64,
    /// Bytes in use for all of it.
    pub bytes: u64,
}

/// Sizes of one rank's view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankStats {
    /// Blocks held on any tier.
    pub blocks: u64,
    /// Blocks that wait for their parent.
    pub orphans: u64,
    /// How many of them lie behind a hole that a list told of, as they did where the list was made.
    pub behind_holes: u64,
    /// Whether a bound made the view a lower bound.
    pub truncated: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) evicted: u64,
    pub(crate) rebound: u64,
    pub(crate) unknown_removals: u64,
}

/// The index of one model at one block size. See the crate's documentation.
#[derive(Debug)]
pub struct Index {
    pub(crate) config: IndexConfig,
    pub(crate) shared: Arc<Shared>,
    pub(crate) heap: Heap,
    pub(crate) runs: Runs,
    /// From the key of a run's first block to the run.
    pub(crate) first_keys: Table,
    /// From a label to the run and the offset of a block that has it as the run's own label.
    pub(crate) labels: Table,
    /// From a slot and a label that is not the run's own to the run and the offset of the block that it calls so.
    pub(crate) names: Table,
    pub(crate) renumbered: Renumbered,
    /// Chunks for log, records and labels that somebody beside the writer makes. Lives on while one holds a handle.
    pub(crate) stock: Arc<Stock>,
    /// Labels that several blocks have as their run's own: different ranks call different blocks so.
    pub(crate) ambiguous: FxHashSet<Label>,
    pub(crate) slots: Slots,
    /// Blocks in runs, and places for them.
    pub(crate) blocks: u64,
    pub(crate) block_slots: u64,
    pub(crate) forks: Forks,
    /// Runs whose tail nobody holds, still to be cut.
    pub(crate) untrimmed: Vec<RunId>,
    /// Tiers of slots that are being cleared. No more than there are slots.
    pub(crate) clearings: Vec<Clearing>,
    pub(crate) housekeeping: Housekeeping,
    pub(crate) counters: Counters,
    pub(crate) work: crate::write::Workspace,
    /// Blocks forgotten since the log was last taken, in the order in which they went; kept in tests only.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) forgotten: crate::testing::Forgotten,
}

impl Index {
    /// An empty index.
    pub fn new(config: IndexConfig) -> Self {
        let config = IndexConfig {
            max_ranks: config.max_ranks.clamp(1, IndexConfig::MAX_RANKS),
            ..config
        };
        let stock = Arc::new(Stock::default());
        let reserve = || Reserve::of(&stock);
        let (mut heap, mut runs) = (Heap::new(reserve()), Runs::new([reserve(), reserve()]));
        let mut first_keys = Table::of_readers();
        let mut slots = Slots::new(config.max_ranks);
        (heap.changed, runs.changed, first_keys.changed, slots.changed) = (false, false, false, false);
        let view = View {
            heap: Arc::new(heap.directory()),
            records: Arc::new(runs.directory()),
            first_keys: Arc::new(first_keys.snapshot()),
            live: Arc::new(slots.live()),
        };
        let shared = Shared {
            view: Published::new(Arc::new(view)),
            epoch: AtomicU64::new(0),
            unsettled: AtomicU64::new(0),
        };
        Self {
            config,
            shared: Arc::new(shared),
            heap,
            runs,
            first_keys,
            labels: Table::of_writer(reserve()),
            names: Table::of_writer(reserve()),
            renumbered: Renumbered::default(),
            stock,
            ambiguous: FxHashSet::default(),
            slots,
            blocks: 0,
            block_slots: 0,
            forks: Forks::default(),
            untrimmed: Vec::new(),
            clearings: Vec::new(),
            housekeeping: Housekeeping::default(),
            counters: Counters::default(),
            work: crate::write::Workspace::default(),
            #[cfg(any(test, feature = "testing"))]
            forgotten: crate::testing::Forgotten::default(),
        }
    }

    /// A reader of this index.
    pub fn reader(&self) -> Reader {
        Reader {
            shared: self.shared.clone(),
        }
    }

    /// For whoever makes chunks beside the writer. As long as one holds it, the writer counts on that.
    pub fn spares(&self) -> Spares {
        Spares::of(&self.stock)
    }

    /// A rank joins, empty and live.
    pub fn add_rank(&mut self, rank: RankId, copies: Copies) -> Result<Slot, IndexError> {
        if self.slots.live_slot_of(rank).is_some() {
            return Err(IndexError::RankExists(rank));
        }
        let slot = self.take_slot(rank, copies, SlotState::Live)?;
        self.publish_view();
        Ok(slot)
    }

    /// A place to fill for a rank, which readers do not see. [`Index::publish`] puts it in the place of what is live.
    pub fn draft(&mut self, rank: RankId, copies: Copies) -> Result<Slot, IndexError> {
        let state = if planted!(self.config, SwapVisibleBeforeFilled) {
            SlotState::Live
        } else {
            SlotState::Draft
        };
        if state == SlotState::Live
            && let Some(old) = self.slots.live_slot_of(rank)
        {
            self.retire(old);
        }
        let slot = self.take_slot(rank, copies, state)?;
        self.publish_view();
        Ok(slot)
    }

    /// The draft becomes what readers see of its rank, and what they saw before is gone, in one step.
    pub fn publish(&mut self, draft: Slot) -> Result<(), IndexError> {
        let index = self.slots.check(draft)?;
        if self.slots.info(index).state != SlotState::Draft {
            return if planted!(self.config, SwapVisibleBeforeFilled) {
                Ok(())
            } else {
                Err(IndexError::NotADraft)
            };
        }
        self.settle_clears(index);
        if let Some(old) = self.slots.live_slot_of(self.slots.info(index).rank) {
            self.retire(old);
        }
        self.slots.set_state(draft, SlotState::Live);
        self.publish_view();
        Ok(())
    }

    /// The rank leaves, or the draft is given up.
    pub fn drop_rank(&mut self, slot: Slot) -> Result<(), IndexError> {
        self.slots.check(slot)?;
        self.retire(slot);
        self.publish_view();
        Ok(())
    }

    /// Everything in the scope is gone. Returns the slot to use from now on: emptying all tiers gives the rank a new
    /// one, so that it takes one step whatever it held. One tier is emptied in pieces, see [`Index::is_clearing`].
    pub fn clear(&mut self, slot: Slot, scope: ClearScope) -> Result<Slot, IndexError> {
        let index = self.slots.check(slot)?;
        match scope {
            ClearScope::Only(tier) => {
                self.clear_tier(index, tier);
                self.finish();
                Ok(slot)
            }
            ClearScope::AllTiers => {
                let info = self.slots.info_mut(index);
                let (rank, copies, state) = (info.rank, info.copies, info.state);
                if state == SlotState::Draft {
                    // Nobody sees it, so it can make room for the next.
                    self.retire(slot);
                    let fresh = self.take_slot(rank, copies, state)?;
                    self.publish_view();
                    return Ok(fresh);
                }
                let orphans = std::mem::take(&mut info.orphans);
                // If slots must be swept for it, then before this one is: readers still see it.
                let fresh = self.take_slot(rank, copies, SlotState::Draft)?;
                self.retire(slot);
                self.slots.set_state(fresh, state);
                if planted!(self.config, OrphansSurviveClear) {
                    self.slots.info_mut(fresh.index()).orphans = orphans;
                }
                self.publish_view();
                Ok(fresh)
            }
        }
    }

    /// Applies one change. A clear may give the rank a new slot, which is returned with what else happened.
    pub fn apply(&mut self, slot: Slot, change: &KvChange) -> Result<Applied, IndexError> {
        Ok(match change {
            KvChange::Stored(stored) => Applied::Stored(self.store(slot, stored)?),
            KvChange::Removed(removed) => Applied::Removed(self.remove(slot, removed)?),
            KvChange::Cleared(scope) => Applied::Cleared(self.clear(slot, *scope)?),
        })
    }

    /// Blocks came. Readers see all of them at once, up to [`Index::STEP`] blocks; a longer event is seen in steps.
    pub fn store(&mut self, slot: Slot, stored: &Stored) -> Result<StoreOutcome, IndexError> {
        let index = self.slots.check(slot)?;
        self.settle_clears(index);
        let mut outcome = StoreOutcome::default();
        let mut parent = stored.parent;
        for blocks in stored.blocks.chunks(Self::STEP) {
            let kind = Kind {
                tier: stored.tier,
                group: stored.group,
                copies: 1,
            };
            self.store_step(index, parent, blocks, kind, &mut outcome);
            parent = blocks.last().map(|block| block.label);
            self.finish();
        }
        self.counters.rebound += u64::from(outcome.rebound);
        Ok(outcome)
    }

    /// Blocks went, one copy for each label. Readers see it at once, in steps of [`Index::STEP`] labels.
    pub fn remove(&mut self, slot: Slot, removed: &Removed) -> Result<RemoveOutcome, IndexError> {
        let index = self.slots.check(slot)?;
        self.settle_clears(index);
        let mut unknown = 0;
        for labels in removed.labels.chunks(Self::STEP) {
            unknown += self.remove_step(index, labels, (removed.tier, removed.group));
            self.finish();
        }
        self.counters.unknown_removals += u64::from(unknown);
        let truncated = self.slots.info(index).truncated;
        Ok(if truncated {
            RemoveOutcome {
                unknown: 0,
                unknown_tolerated: unknown,
            }
        } else {
            RemoveOutcome {
                unknown,
                unknown_tolerated: 0,
            }
        })
    }

    /// The most blocks that one step changes.
    pub const STEP: usize = 1024;

    /// Whether a rank holds the block that it calls `label`, its orphans included.
    pub fn knows(&self, slot: Slot, label: Label) -> Result<bool, IndexError> {
        let index = self.slots.check(slot)?;
        let is_named = |place| {
            self.holdings(index, place)
                .iter()
                .any(|(holding, _)| holding.label == label)
        };
        Ok(self.resolve(index, label).is_some_and(is_named) || self.slots.info(index).orphans.contains(label))
    }

    /// Sizes.
    pub fn stats(&self) -> Stats {
        let live: Vec<_> = self
            .slots
            .in_state(SlotState::Live)
            .map(|index| self.slots.info(index))
            .collect();
        Stats {
            blocks: self.blocks,
            block_slots: self.block_slots,
            runs: self.runs.live() as u64,
            ranks: live.len() as u64,
            entries: live.iter().map(|info| info.blocks).sum(),
            orphans: live.iter().map(|info| info.orphans.len() as u64).sum(),
            truncated_ranks: live.iter().filter(|info| info.truncated).count() as u64,
            evicted: self.counters.evicted,
            rebound: self.counters.rebound,
            unknown_removals: self.counters.unknown_removals,
            bytes: self.bytes(),
        }
    }

    /// Sizes of one rank's view.
    pub fn rank_stats(&self, slot: Slot) -> Result<RankStats, IndexError> {
        let info = self.slots.info(self.slots.check(slot)?);
        Ok(RankStats {
            blocks: info.blocks,
            orphans: info.orphans.len() as u64,
            behind_holes: info.orphans.behind_holes() as u64,
            truncated: info.truncated,
        })
    }

    fn bytes(&self) -> u64 {
        let slots = self
            .slots
            .occupied()
            .map(|index| self.slots.info(index).details.bytes());
        let slots: u64 = slots.sum();
        let tables = [&self.first_keys, &self.labels, &self.names, &self.forks.heads];
        let tables: u64 = tables.map(Table::bytes).into_iter().sum();
        self.heap.reserved_words() * 8 + self.runs.bytes() + tables + self.stock.bytes() + slots
    }

    fn take_slot(&mut self, rank: RankId, copies: Copies, state: SlotState) -> Result<Slot, IndexError> {
        if let Ok(slot) = self.slots.take(rank, copies, state) {
            return Ok(slot);
        }
        // Every slot is live or waits to be swept. Sweeping now is slow and rare, and better than a refusal.
        while self.slots.in_state(SlotState::Retired).next().is_some() {
            self.sweep_slice(u32::MAX);
        }
        self.slots.take(rank, copies, state)
    }

    fn retire(&mut self, slot: Slot) {
        let state = if planted!(self.config, SlotReusedUnswept) {
            SlotState::Free
        } else {
            SlotState::Retired
        };
        self.slots.set_state(slot, state);
        self.forget_clears(slot.index());
        self.housekeeping.sweep_requested();
    }

    /// The end of every step: views that changed are published, and a little housekeeping is done, so that it keeps up
    /// even if nobody calls [`Index::maintain`].
    pub(crate) fn finish(&mut self) {
        self.housekeep_a_little();
        self.housekeeping.written = true;
        self.heap.prepare();
        self.runs.prepare();
        self.publish_view();
    }

    /// Tells readers of new directories, tables and live slots, if there are any.
    pub(crate) fn publish_view(&mut self) {
        if !(self.heap.changed || self.runs.changed || self.first_keys.changed || self.slots.changed) {
            return;
        }
        let mut view = View::clone(&self.shared.view.load());
        if std::mem::take(&mut self.heap.changed) {
            view.heap = Arc::new(self.heap.directory());
        }
        if std::mem::take(&mut self.runs.changed) {
            view.records = Arc::new(self.runs.directory());
        }
        if std::mem::take(&mut self.first_keys.changed) {
            view.first_keys = Arc::new(self.first_keys.snapshot());
        }
        if std::mem::take(&mut self.slots.changed) {
            view.live = Arc::new(self.slots.live());
        }
        self.shared.view.store(Arc::new(view));
        // After the view: a reader that sees this epoch sees that view.
        if !planted!(self.config, EpochNotRaised) {
            self.shared.epoch.fetch_add(2, Ordering::Release);
        }
    }

    /// What changes from here on must be seen together: readers wait or look again.
    pub(crate) fn begin_together(&mut self) {
        self.shared.epoch.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    pub(crate) fn end_together(&mut self) {
        self.shared.epoch.fetch_add(1, Ordering::Release);
    }
}

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Blocks came.
    Stored(StoreOutcome),
    /// Blocks went.
    Removed(RemoveOutcome),
    /// A scope was emptied; this is the slot to use from now on.
    Cleared(Slot),
}
