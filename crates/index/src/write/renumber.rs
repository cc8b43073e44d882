//! How does a run get another number? At once, for readers and for what else leads to it; its labels follow in pieces, since there may be
//! thousands of them.
//!
//! **Invariant:** while labels follow, a label that leads to the old number means the block of the new one, and the old number is given to
//! no other run.

use homing_domain::Label;

use super::ahead::Ahead;
use super::structure::blocks_in;
use super::{Place, Stretch};
use crate::bugs::planted;
use crate::index::Index;
use crate::record::{Fields, Record, RunId};
use crate::sets::SlotSet;
use crate::slots::label_hash;

/// The run whose number changed last, while labels still lead to the old one: there may be thousands, too many for one piece of work.
/// Both numbers are 0 when all lead to the new one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Renumbered {
    pub(crate) old: RunId,
    new: RunId,
    /// The run's own labels of blocks below this one lead to the new number.
    label: u16,
    /// After those, the labels of slots below this one do.
    slot: usize,
}

impl Renumbered {
    pub(crate) fn new(old: RunId, new: RunId) -> Self {
        Self {
            old,
            new,
            ..Self::default()
        }
    }

    /// Whether labels still lead to an old number.
    pub(crate) fn is_under_way(self) -> bool {
        self.old != 0
    }

    /// The block that a label leads to.
    #[inline]
    pub(crate) fn place(self, value: u64) -> Place {
        let place = Place::decode(value);
        if place.run == self.old {
            return Place { run: self.new, ..place };
        }
        place
    }

    /// What else may lead to this block.
    pub(crate) fn before(self, place: Place) -> Option<Place> {
        let moved = self.is_under_way() && place.run == self.new;
        moved.then_some(Place { run: self.old, ..place })
    }
}

impl Index {
    /// Gives a run of the highest chunk a lower number, or drops that chunk if it is empty.
    pub(crate) fn compact_runs(&mut self, work: u32) {
        let Some(run) = self.runs.highest() else { return };
        let Some(new) = self.take_run(self.runs.record(run).first(), 0) else {
            return;
        };
        self.renumber(run, new);
        self.renumber_labels(work);
    }

    /// Gives some run another number though there is no need to, if it could happen now; or goes on with the last.
    #[cfg(any(test, feature = "testing"))]
    pub fn renumber_one(&mut self, which: usize) {
        if self.renumbered.is_under_way() {
            self.renumber_labels(1);
        } else if self.clearings.is_empty() && !self.housekeeping.is_sweeping() && self.runs.live() > 0 {
            let run = self.runs.iter().nth(which % self.runs.live());
            let new = run.and_then(|run| self.take_run(self.runs.record(run).first(), 0));
            if let (Some(run), Some(new)) = (run, new) {
                self.renumber(run, new);
            }
        }
        self.publish_view();
    }

    fn renumber(&mut self, old: RunId, new: RunId) {
        let fields = self.runs.record(old).fields();
        let meta = *self.runs.meta(old);
        *self.runs.meta_mut(new) = meta;
        self.own_extents(&fields, new);
        self.note_samples(new, fields.blocks, 0, fields.shape.len as usize);
        self.relink(old, new);
        self.renumber_details(old, new);
        self.renumbered = Renumbered::new(old, new);
        if meta.untrimmed {
            self.untrimmed
                .iter_mut()
                .filter(|run| **run == old)
                .for_each(|run| *run = new);
        }
        let record = self.runs.record(new);
        record.set_usual_child(Record::usual_child(self.runs.record(old).version()));
        record.put(&fields);
        record.end();
        // A reader that finds the old number now looks again until it finds the new one.
        self.runs.record(old).begin();
        self.first_keys.replace(fields.first, u64::from(old), u64::from(new));
        self.runs.give_back(old);
    }

    fn own_extents(&mut self, fields: &Fields, owner: RunId) {
        self.heap.set_owner(fields.blocks, owner);
        if fields.extra != 0 {
            self.heap.set_owner(fields.extra, owner);
        }
        let mut sets: Vec<SlotSet> = vec![fields.full];
        sets.extend(self.levels(fields).into_iter().map(|(_, set)| set));
        for (full, levels) in self.lower(fields) {
            sets.push(full);
            sets.extend(levels.into_iter().map(|(_, set)| set));
        }
        for addr in sets.into_iter().filter_map(SlotSet::extent) {
            self.heap.set_owner(addr, owner);
        }
    }

    /// A run that slots have details about gets another number. Labels come to lead there in pieces.
    pub(crate) fn renumber_details(&mut self, old: RunId, new: RunId) {
        if self.runs.meta(new).details == 0 {
            return;
        }
        let slots: Vec<usize> = self.slots.occupied().collect();
        for slot in slots {
            if let Some(detail) = self.slots.info_mut(slot).details.remove(old) {
                self.slots.info_mut(slot).details.insert(new, detail);
            }
        }
    }

    /// Lets some more labels lead to the new number of a run, until the work is done or all of them do.
    pub(crate) fn renumber_labels(&mut self, work: u32) {
        let left = self.renumber_run_labels(work as usize);
        self.renumber_names(left);
    }

    /// Returns the work that is left.
    fn renumber_run_labels(&mut self, work: usize) -> usize {
        let Renumbered {
            old, new, label: from, ..
        } = self.renumbered;
        if !self.runs.is_in_use(new) {
            // It went, and its labels with it.
            return work;
        }
        // What it grew by since has its new number.
        let len = self.len_of(new);
        let from = (from as usize).min(len);
        let to = len.min(from + work);
        let blocks = blocks_in(&self.heap, self.runs.record(new).blocks());
        let hash_of = |index: usize| (from + index < to).then(|| label_hash(Label::new(blocks.label(from + index))));
        let mut ahead = Ahead::new(&self.labels, hash_of);
        for index in 0..to - from {
            let hash = ahead.turn(&self.labels, index, hash_of);
            let place = |run| Place {
                run,
                offset: (from + index) as u16,
            };
            self.labels.replace(hash, place(old).encode(), place(new).encode());
        }
        self.renumbered.label = to as u16;
        work - (to - from)
    }

    fn renumber_names(&mut self, work: usize) {
        let mut left = work;
        let mut names = std::mem::take(&mut self.work.names);
        while self.renumbered.is_under_way() && left > 0 {
            let Renumbered {
                old, new, slot: from, ..
            } = self.renumbered;
            let next = self.slots.occupied().find(|slot| *slot >= from);
            let Some(slot) = next.filter(|_| !planted!(self.config, NameLeftBehind)) else {
                self.renumbered = Renumbered::default();
                break;
            };
            self.renumbered.slot = slot + 1;
            let Some(detail) = self.slots.info(slot).details.get(new) else {
                left = left.saturating_sub(1);
                continue;
            };
            let range = Stretch {
                run: new,
                from: 0,
                to: detail.end() as u16,
            };
            self.names_in(slot, detail, range, &mut names);
            for name in &names {
                let before = Place { run: old, ..name.place };
                self.names.replace(name.hash, before.encode(), name.place.encode());
            }
            left = left.saturating_sub(1 + names.len());
        }
        self.work.names = names;
    }
}
