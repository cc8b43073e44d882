//! What is left to be tidied up, and how is it done without anybody waiting? In slices: each does a bounded amount of
//! one kind of work. Every step of the writer does a little of it, so that it keeps up by itself; an idle writer calls
//! [`Index::maintain`] until nothing is pending.

use crate::details::Details;
use crate::index::{Index, Pending};
use crate::record::RunId;
use crate::runs::Runs;
use crate::slots::SlotState;

/// Runs waiting to be joined with the run that follows; more are not remembered.
const MERGES: usize = 4096;
/// Work that every step of the writer does on the side.
const ON_THE_SIDE: u32 = 24;

/// Work of taking slots out of a run, beyond looking at it.
const SWEPT: u32 = 4;

/// How far the housekeeping has come.
#[derive(Debug, Default)]
pub(crate) struct Housekeeping {
    /// Slots whose content is being swept away, and the next run to look at.
    sweeping: Vec<usize>,
    sweep_at: RunId,
    sweep_wanted: bool,
    /// The hand of the eviction clock.
    clock: RunId,
    /// Runs that may have become one with the run that follows them.
    merges: Vec<RunId>,
    /// Something was written since nothing was left to be done.
    pub(crate) written: bool,
}

impl Housekeeping {
    pub(crate) fn sweep_requested(&mut self) {
        self.sweep_wanted = true;
    }

    /// Whether slots are still to be swept.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn is_sweeping(&self) -> bool {
        self.sweep_wanted
    }

    pub(crate) fn merge_requested(&mut self, run: RunId) {
        if self.merges.len() < MERGES {
            self.merges.push(run);
        }
    }

    /// The run to which the hand comes next.
    pub(crate) fn next_on_clock(&mut self, runs: &Runs) -> Option<RunId> {
        let next = runs.next_in_use(self.clock + 1).or_else(|| runs.next_in_use(1));
        self.clock = next.unwrap_or(0);
        next
    }
}

impl Index {
    /// Does about `work` units of housekeeping (a unit is of the order of a hundred nanoseconds) and says whether some
    /// is left.
    pub fn maintain(&mut self, work: u32) -> Pending {
        let pending = self.housekeep(work);
        self.publish_view();
        pending
    }

    pub(crate) fn housekeep_a_little(&mut self) {
        let waiting = !self.untrimmed.is_empty() || self.housekeeping.sweep_wanted || self.heap.is_sparse();
        if waiting || !self.clearings.is_empty() || !self.housekeeping.merges.is_empty() {
            self.housekeep(ON_THE_SIDE);
        }
    }

    fn housekeep(&mut self, work: u32) -> Pending {
        if let Some(run) = self.untrimmed.pop() {
            if self.runs.is_in_use(run) {
                self.runs.meta_mut(run).untrimmed = false;
                self.trim(run);
            }
        } else if self.housekeeping.sweep_wanted {
            self.sweep_slice(work);
        } else if !self.clearings.is_empty() {
            // Before runs are joined or renumbered.
            self.clear_piece(0, work);
        } else if self.renumbered.is_under_way() {
            // Before runs are joined, which leads labels on.
            self.renumber_labels(work);
        } else if let Some(run) = self.housekeeping.merges.pop() {
            if self.runs.is_in_use(run) {
                self.merge(run);
            }
        } else if self.heap.is_sparse() {
            self.compact_heap(work);
        } else if self.runs.leave() {
            // Its memory is back when readers have gone on.
        } else if self.runs.is_sparse() {
            self.compact_runs(work);
        } else if self.labels.is_sparse() {
            self.labels.shrink_step();
        } else if self.names.is_sparse() {
            self.names.shrink_step();
        } else if self.first_keys.is_sparse() {
            self.first_keys.shrink_step();
        } else if self.forks.heads.is_sparse() {
            self.forks.heads.shrink_step();
        } else {
            // What is made ready for writes is given up when there were none since the last time.
            if !std::mem::take(&mut self.housekeeping.written) {
                self.heap.relax();
                self.runs.relax();
                self.labels.relax();
                self.names.relax();
                self.stock.relax();
            }
            return Pending::Idle;
        }
        Pending::More
    }

    /// Takes retired slots out of the runs, one after the other. When all are done the slots are free again.
    pub(crate) fn sweep_slice(&mut self, work: u32) {
        if self.housekeeping.sweeping.is_empty() {
            self.housekeeping.sweeping = self.slots.in_state(SlotState::Retired).collect();
            self.housekeeping.sweep_at = 1;
            if self.housekeeping.sweeping.is_empty() {
                self.housekeeping.sweep_wanted = false;
                return;
            }
        }
        let slots = std::mem::take(&mut self.housekeeping.sweeping);
        let left = self.sweep_runs(&slots, work);
        if left == 0 {
            self.housekeeping.sweeping = slots;
            return;
        }
        for slot in slots {
            let info = self.slots.info_mut(slot);
            debug_assert!(
                info.details.is_empty() && info.own_labels == 0,
                "every run was looked at"
            );
            info.details = Details::default();
            info.state = SlotState::Free;
        }
    }

    /// Takes retired slots out of the sets of runs. Returns the work that is left: 0 if it did not come to the end.
    fn sweep_runs(&mut self, slots: &[usize], mut work: u32) -> u32 {
        let highest = slots.iter().copied().max().unwrap_or(0);
        let mut gone = vec![0; highest / 64 + 1];
        for slot in slots {
            gone[slot / 64] |= 1 << (slot % 64);
        }
        while work > 0 {
            let Some(run) = self.runs.next_in_use(self.housekeeping.sweep_at) else {
                return work;
            };
            self.housekeeping.sweep_at = run;
            work -= 1;
            if self.runs.meta(run).details > 0 {
                for slot in slots {
                    if !self.forget_detail(*slot, run, &mut work) {
                        return 0;
                    }
                }
            }
            self.housekeeping.sweep_at = run + 1;
            let before = self.blocks;
            if self.sweep_run(run, &gone) {
                work = work.saturating_sub(SWEPT);
            }
            self.trim(run);
            work = work.saturating_sub((before - self.blocks) as u32);
        }
        0
    }
}
