//! How is one tier of a rank emptied? In pieces, run by run, as if its blocks had been removed one after the other: until the
//! last piece readers see some of them. The pieces are housekeeping; the rank's next event waits until the last is done.
//!
//! **Invariant:** while a tier is being cleared its slot gets nothing new, and no run changes its number or becomes one
//! with another, so that what lies before the next run to be looked at is clear.

use homing_domain::Tier;

use super::Place;
use crate::bugs::planted;
use crate::detail::{Detail, Holding};
use crate::index::Index;
use crate::record::RunId;
use crate::slots::Slot;

/// Runs that are passed for one unit of work.
const RUNS_PER_UNIT: u32 = 4;

/// A tier of a slot that is being cleared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clearing {
    slot: usize,
    tier: Tier,
    /// The next run to look at.
    at: RunId,
}

impl Index {
    /// Whether a tier of this rank is still being cleared, so that readers see some of it. [`Index::maintain`] goes on with
    /// it; so does the rank's next event, until it is done.
    pub fn is_clearing(&self, slot: Slot) -> bool {
        self.slots.check(slot).is_ok() && self.clearings.iter().any(|clearing| clearing.slot == slot.index())
    }

    /// Everything that a slot holds of one tier goes, beginning now.
    pub(crate) fn clear_tier(&mut self, slot: usize, tier: Tier) {
        self.settle_clears(slot);
        self.slots.info_mut(slot).orphans.retain(|holding| holding.tier != tier);
        self.clearings.push(Clearing { slot, tier, at: 1 });
        self.clear_piece(self.clearings.len() - 1, self.config.first_piece());
    }

    /// Ends what is being cleared of a slot.
    pub(crate) fn settle_clears(&mut self, slot: usize) {
        if self.clearings.is_empty() || planted!(self.config, ClearNotAwaited) {
            return;
        }
        while let Some(number) = self.clearings.iter().position(|clearing| clearing.slot == slot) {
            self.clear_piece(number, u32::MAX);
        }
    }

    /// The slot is not in use any more.
    pub(crate) fn forget_clears(&mut self, slot: usize) {
        self.clearings.retain(|clearing| clearing.slot != slot);
    }

    /// Does about `work` units of one clearing, and strikes it off if that was all.
    pub(crate) fn clear_piece(&mut self, number: usize, work: u32) {
        let Clearing { slot, tier, mut at } = self.clearings[number];
        self.work.pinned.clear();
        let mut left = work.saturating_mul(RUNS_PER_UNIT);
        let mut next = self.runs.next_in_use(at);
        while let Some(run) = next.filter(|_| left > 0) {
            let taken = self.clear_run(slot, run, tier);
            left = left.saturating_sub(1 + taken.saturating_mul(RUNS_PER_UNIT));
            at = run + 1;
            next = self.runs.next_in_use(at);
        }
        self.clearings[number].at = at;
        if next.is_none() {
            self.clearings.swap_remove(number);
        }
        self.publish_details(slot);
    }

    /// Takes what a slot holds of a run on one tier. Returns the work that it was.
    fn clear_run(&mut self, slot: usize, run: RunId, tier: Tier) -> u32 {
        if self.slots.info(slot).details.contains(run) {
            return self.clear_detail(slot, run, tier);
        }
        let cut = self.cut(run, slot);
        if cut == 0 || tier != Tier::Device {
            return 0;
        }
        let before = self.blocks;
        self.set_cut(run, slot, 0);
        self.slots.info_mut(slot).blocks -= u64::from(cut);
        self.trim(run);
        2 + ((before - self.blocks) / 4) as u32
    }

    fn clear_detail(&mut self, slot: usize, run: RunId, tier: Tier) -> u32 {
        let detail = self.open_detail(slot, run);
        let before = detail.offsets().len();
        let gone = detail.clear_tier(tier);
        let after = detail.offsets().len();
        self.slots.info_mut(slot).blocks -= (before - after) as u64;
        for (offset, label) in gone {
            let place = Place {
                run,
                offset: offset as u16,
            };
            let run_label = self.label_at(place);
            let names = |detail: &Detail| detail.binds(offset, label, run_label.get());
            let is_bound = self.slots.info(slot).details.get(run).is_some_and(names);
            if label != run_label && !is_bound {
                self.drop_own_label(slot, label, place);
            }
        }
        4 + before as u32
    }

    /// Whether what a slot holds of a run on a tier is about to go.
    fn is_going(&self, slot: usize, run: RunId, tier: Tier) -> bool {
        let same = |clearing: &Clearing| (clearing.slot, clearing.tier) == (slot, tier) && clearing.at <= run;
        self.clearings.iter().any(same)
    }

    /// Everything that a slot holds of a block, but for what is about to go.
    pub(crate) fn holdings(&self, slot: usize, place: Place) -> Vec<(Holding, u32)> {
        let run_label = self.label_at(place);
        let mut holdings = match self.slots.info(slot).details.get(place.run) {
            Some(detail) => detail.holdings_at(place.offset as usize, run_label.get()),
            None if place.offset < self.cut(place.run, slot) => vec![(super::Kind::PLAIN.of(run_label), 1)],
            None => Vec::new(),
        };
        if !self.clearings.is_empty() {
            holdings.retain(|(holding, _)| !self.is_going(slot, place.run, holding.tier));
        }
        holdings
    }
}
