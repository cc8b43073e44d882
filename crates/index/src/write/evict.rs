//! What goes when the index is full? Leaves, by a clock: a hand passes over the runs, and a run that was not written to
//! since it last came by loses blocks from its end, as many as are needed, down to the last one that another run
//! follows. Every rank that held one of them is marked truncated: its view is a lower bound from then on.

use homing_domain::{BlockKey, Label};

use super::Place;
use crate::bugs::planted;
use crate::index::Index;
use crate::record::RunId;
#[cfg(any(test, feature = "testing"))]
use crate::slots::SlotState;

/// The most runs that the hand passes for one step. If none of them can give anything, the new blocks are refused.
const SWEEP: usize = 16_384;

impl Index {
    /// Makes room for so many blocks if it can. Returns how many fit. The runs that this step works on are left alone.
    pub(crate) fn make_room(&mut self, wanted: usize) -> usize {
        let capacity = self.config.capacity;
        let mut passed = 0;
        while self.blocks + wanted as u64 > capacity && passed < SWEEP.min(2 * self.runs.live()) {
            let Some(run) = self.housekeeping.next_on_clock(&self.runs) else {
                break;
            };
            passed += 1;
            if self.work.pinned.contains(&run) {
                continue;
            }
            if std::mem::take(&mut self.runs.meta_mut(run).recent) {
                continue;
            }
            let excess = self.blocks + wanted as u64 - capacity;
            self.evict_tail(run, excess as usize);
        }
        wanted.min(capacity.saturating_sub(self.blocks) as usize)
    }

    /// Forgets up to `count` blocks from the end of a run, on all ranks.
    fn evict_tail(&mut self, run: RunId, count: usize) {
        let len = self.len_of(run);
        let followed = if planted!(self.config, InnerBlockEvicted) {
            0
        } else {
            self.runs.meta(run).kid_reach as usize
        };
        let start = len.saturating_sub(count).max(followed);
        if start == len {
            return;
        }
        self.log_tail(run, start);
        for (slot, cuts) in self.holders(run) {
            let kept = cuts.map(|cut| cut.min(start as u16));
            if kept != cuts {
                if !self.slots.info(slot).details.contains(run) {
                    self.slots.info_mut(slot).blocks -= u64::from(cuts[0] - kept[0]);
                }
                let was_held = self.loses(slot, run, start..len);
                self.slots.info_mut(slot).truncated |= was_held && !planted!(self.config, EvictionUnmarked);
                self.set_cuts(run, slot, kept);
            }
        }
        self.evict_details(run, start, len);
        self.counters.evicted += (len - start) as u64;
        self.cut_tail(run, start);
    }

    /// Whether a slot loses something with these blocks: not what is about to go anyway.
    fn loses(&self, slot: usize, run: RunId, mut offsets: std::ops::Range<usize>) -> bool {
        let holds = |offset| {
            let place = Place {
                run,
                offset: offset as u16,
            };
            !self.holdings(slot, place).is_empty()
        };
        self.clearings.is_empty() || offsets.any(holds)
    }

    fn evict_details(&mut self, run: RunId, start: usize, len: usize) {
        if self.runs.meta(run).details == 0 {
            return;
        }
        let slots: Vec<usize> = self.slots.occupied().collect();
        for slot in slots {
            let was_held = self.loses(slot, run, start..len);
            let Some(mut detail) = self.slots.info_mut(slot).details.remove(run) else {
                continue;
            };
            for offset in start..len {
                let place = Place {
                    run,
                    offset: offset as u16,
                };
                let run_label = self.label_at(place);
                let labels = detail.remove_all(offset, run_label.get());
                let info = self.slots.info_mut(slot);
                if !labels.is_empty() {
                    info.blocks -= 1;
                    info.truncated |= was_held;
                }
                for label in labels.into_iter().filter(|label| *label != run_label) {
                    self.drop_own_label(slot, label, place);
                }
            }
            self.slots.info_mut(slot).details.insert(run, detail);
            let cuts = self.cuts(run, slot);
            self.settle_detail(slot, run, cuts);
        }
    }

    /// Notes which ranks are about to lose which blocks, the last of the run first.
    #[cfg(any(test, feature = "testing"))]
    fn log_tail(&mut self, run: RunId, start: usize) {
        let slots: Vec<usize> = self.slots.in_state(SlotState::Live).collect();
        for offset in (start..self.len_of(run)).rev() {
            let place = Place {
                run,
                offset: offset as u16,
            };
            let holds = |slot: &&usize| !self.holdings(**slot, place).is_empty();
            let ranks = slots
                .iter()
                .filter(holds)
                .map(|slot| self.slots.info(*slot).rank)
                .collect();
            self.forgotten.evicted.push((self.key_at(place), ranks));
        }
    }

    #[cfg(not(any(test, feature = "testing")))]
    #[expect(clippy::unused_self, reason = "the log exists in tests only")]
    fn log_tail(&mut self, _run: RunId, _start: usize) {}

    /// Notes that a block which came, or waited for one that came, was not kept.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn log_refused(&mut self, label: Label, key: BlockKey) {
        self.forgotten.refused.push((label, key));
    }

    /// Notes that a block which came, or waited for one that came, was not kept: tests look at it.
    #[cfg(not(any(test, feature = "testing")))]
    #[expect(clippy::unused_self, reason = "the log exists in tests only")]
    pub(crate) fn log_refused(&mut self, _label: Label, _key: BlockKey) {}

    /// What was forgotten because the index was full, since this was last asked.
    #[cfg(any(test, feature = "testing"))]
    pub fn take_forgotten(&mut self) -> crate::testing::Forgotten {
        std::mem::take(&mut self.forgotten)
    }
}
