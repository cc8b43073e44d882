//! Which blocks does nobody hold any more? Tails of runs are cut off as soon as their last holder is gone; a run of
//! which nothing is left is given up.

use homing_domain::Label;

use super::Place;
use super::ahead::Ahead;
use super::structure::blocks_in;
use crate::detail::Detail;
use crate::index::Index;
use crate::record::RunId;
use crate::slots::label_hash;

/// The most blocks that are cut off at once; the rest is done in later slices.
const AT_ONCE: usize = 512;

impl Index {
    /// Cuts off the tail that nobody holds, or some of it and notes the run for later.
    pub(crate) fn trim(&mut self, run: RunId) {
        if !self.runs.is_in_use(run) {
            return;
        }
        let (len, end) = (self.len_of(run), self.held_end(run));
        if end == len {
            return;
        }
        let target = end.max(len.saturating_sub(AT_ONCE));
        self.cut_tail(run, target);
        if target > end && !self.runs.meta(run).untrimmed {
            self.runs.meta_mut(run).untrimmed = true;
            self.untrimmed.push(run);
        }
    }

    /// One more than the highest offset that anybody holds.
    fn held_end(&self, run: RunId) -> usize {
        let leading = self.widest_cut(run) as usize;
        if self.runs.meta(run).beyond == 0 {
            return leading;
        }
        let holders = self.slots.occupied();
        let ends = holders
            .filter_map(|slot| self.slots.info(slot).details.get(run))
            .map(Detail::end);
        ends.max().unwrap_or(0).max(leading)
    }

    /// Drops the blocks from `start` on. Nobody must hold them.
    pub(crate) fn cut_tail(&mut self, run: RunId, start: usize) {
        let len = self.len_of(run);
        self.cut_forks(run, start);
        self.drop_labels(run, start, len);
        self.blocks -= (len - start) as u64;
        if start == 0 {
            self.give_up(run);
            return;
        }
        let last = self.key_at(Place {
            run,
            offset: start as u16 - 1,
        });
        self.shorten(run, start as u16, last.0);
        self.tighten(run);
        if self.runs.meta(run).kid_reach as usize == start {
            self.housekeeping.merge_requested(run);
        }
    }

    /// Takes the labels of blocks out of the table; the buckets of those to come are asked for meanwhile.
    fn drop_labels(&mut self, run: RunId, start: usize, end: usize) {
        let (heap, runs) = (&self.heap, &self.runs);
        let blocks = blocks_in(heap, runs.record(run).blocks());
        let count = end - start;
        let label = |index: usize| (index < count).then(|| Label::new(blocks.label(start + index)));
        let hash_of = |index: usize| label(index).map(label_hash);
        let mut ahead = Ahead::new(&self.labels, hash_of);
        let mut ambiguous = Vec::new();
        for index in 0..count {
            let hash = ahead.turn(&self.labels, index, hash_of);
            let place = Place {
                run,
                offset: (start + index) as u16,
            };
            let mut found = self.labels.remove(hash, place.encode());
            if !found && let Some(before) = self.renumbered.before(place) {
                found = self.labels.remove(hash, before.encode());
            }
            debug_assert!(found, "every block of a run has its label in the table");
            if !self.ambiguous.is_empty() {
                ambiguous.extend(label(index).filter(|label| self.ambiguous.contains(label)));
            }
        }
        for label in ambiguous {
            self.recount(label);
        }
    }

    /// A label that only one block has left is not ambiguous any more.
    fn recount(&mut self, label: Label) {
        let mut count = 0;
        self.labels.find(label_hash(label), |value| {
            count += usize::from(self.label_at(self.renumbered.place(value)) == label);
            count > 1
        });
        if count <= 1 {
            self.ambiguous.remove(&label);
        }
    }

    /// Nothing is left of the run.
    fn give_up(&mut self, run: RunId) {
        debug_assert_eq!(self.runs.meta(run).beyond, 0);
        let fields = self.runs.record(run).fields();
        self.unlink(run);
        // From here on readers see that the record is not in use.
        self.runs.record(run).begin();
        self.first_keys.remove(fields.first, u64::from(run));
        self.release_coverage(run);
        self.free_blocks(fields.blocks);
        self.drop_details(run);
        self.runs.give_back(run);
    }

    /// Details about a run of which nothing is held say nothing.
    fn drop_details(&mut self, run: RunId) {
        if self.runs.meta(run).details == 0 {
            return;
        }
        let slots: Vec<usize> = self.slots.occupied().collect();
        for slot in slots {
            self.slots.info_mut(slot).details.remove(run);
        }
    }

    /// Gives the room behind the last block back.
    fn tighten(&mut self, run: RunId) {
        let fields = self.runs.record(run).fields();
        self.tighten_blocks(fields.blocks, fields.shape.len as usize);
    }
}
