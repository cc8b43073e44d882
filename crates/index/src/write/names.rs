//! What does a slot call blocks that the run calls otherwise? Engines whose hashes begin with a random number agree on no
//! label: the first who stores a block gives the run its labels, and all others bring their own.
//!
//! The labels are in the slot's details, in the order of the blocks; **one table for all slots** leads from a slot and a
//! label to the block. A hit is verified in the details, so the table stores no label. Most of these slots hold plain
//! leading parts like any other, and are handled as such: all labels of a step are entered or taken out one after the
//! other, with their buckets asked for before.
//!
//! **Invariant:** the table has an entry for every own label in the details of a slot that is in use, and no other.

use homing_domain::{Label, StoredBlock};

use super::ahead::Ahead;
use super::{Place, Stretch};
use crate::bugs::planted;
use crate::detail::Detail;
use crate::index::Index;
use crate::record::RunId;
use crate::slots::{SlotInfo, label_hash, own_hash};

/// Work of giving up a detail, beyond its labels, each of which is a unit.
const DETAIL: u32 = 6;

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    pub(super) hash: u64,
    label: Label,
    pub(super) place: Place,
}

impl Name {
    fn new(slot: usize, label: Label, place: Place) -> Self {
        Self {
            hash: own_hash(slot, label),
            label,
            place,
        }
    }
}

impl Index {
    /// Where the block is that this slot, and not the run, calls `label`.
    #[inline]
    pub(crate) fn find_own(&self, slot: usize, label: Label) -> Option<Place> {
        let info = self.slots.info(slot);
        if info.own_labels == 0 {
            return None;
        }
        let mut found = None;
        self.names.find(own_hash(slot, label), |value| {
            found = named(info, self.renumbered.place(value), label);
            found.is_some()
        });
        found
    }

    pub(crate) fn add_own_label(&mut self, slot: usize, label: Label, place: Place) {
        self.names.insert(own_hash(slot, label), place.encode());
        self.slots.info_mut(slot).own_labels += 1;
    }

    pub(crate) fn drop_own_label(&mut self, slot: usize, label: Label, place: Place) {
        self.take_out(slot, Name::new(slot, label, place));
    }

    #[inline]
    fn take_out(&mut self, slot: usize, name: Name) {
        let mut found = self.names.remove(name.hash, name.place.encode());
        if !found && let Some(before) = self.renumbered.before(name.place) {
            found = self.names.remove(name.hash, before.encode());
        }
        debug_assert!(found, "every own label is in the table");
        self.slots.info_mut(slot).own_labels -= u64::from(found);
    }

    /// If the slot's leading parts of these runs become longer by blocks that it may call as it likes, notes what it calls
    /// them. Else changes nothing.
    pub(crate) fn name(&mut self, slot: usize, blocks: &[StoredBlock], stretches: &[Stretch]) -> bool {
        if !stretches.iter().all(|stretch| self.extends_lead(slot, *stretch)) {
            return false;
        }
        let (mut names, mut labels) = (
            std::mem::take(&mut self.work.names),
            std::mem::take(&mut self.work.labels),
        );
        self.own_labels_of(slot, blocks, stretches, &mut names, &mut labels);
        let unseen = planted!(self.config, NameTakenUnseen);
        let free =
            (unseen || self.are_free(slot, blocks, stretches, &labels)) && self.enter(slot, &names, stretches, &labels);
        if free {
            let mut rest = &labels[..];
            for stretch in stretches {
                let (these, others) = rest.split_at((stretch.to - stretch.from) as usize);
                rest = others;
                self.extend_lead(slot, *stretch, these);
            }
        }
        (self.work.names, self.work.labels) = (names, labels);
        free
    }

    fn extends_lead(&self, slot: usize, stretch: Stretch) -> bool {
        let detail = self.slots.info(slot).details.get(stretch.run);
        self.cut(stretch.run, slot) == stretch.from && detail.is_none_or(Detail::is_lead)
    }

    /// Which labels are not those of the runs: for each block, and as entries.
    fn own_labels_of(
        &self,
        slot: usize,
        blocks: &[StoredBlock],
        stretches: &[Stretch],
        names: &mut Vec<Name>,
        labels: &mut Vec<Option<u64>>,
    ) {
        names.clear();
        labels.clear();
        for stretch in stretches {
            let held = self.blocks_of(stretch.run);
            let of_run = held.labels(stretch.from as usize, stretch.to as usize);
            let offsets = stretch.from..stretch.to;
            for ((offset, label), block) in offsets.zip(of_run).zip(&blocks[labels.len()..]) {
                let is_own = label != block.label.get();
                labels.push(is_own.then(|| block.label.get()));
                if is_own {
                    let place = Place {
                        run: stretch.run,
                        offset,
                    };
                    names.push(Name::new(slot, block.label, place));
                }
            }
        }
    }

    /// Whether none of the labels names another block of this slot: neither as the run's label, of a block that comes with
    /// this event or was there, nor as its own.
    fn are_free(&self, slot: usize, blocks: &[StoredBlock], stretches: &[Stretch], own: &[Option<u64>]) -> bool {
        let is_run_label = |value: u64, label: Label| {
            let place = self.renumbered.place(value);
            let comes = || stretches.iter().any(|stretch| stretch.run == place.run);
            self.label_at(place) == label && (comes() || self.binds(slot, place, label))
        };
        let own_are_free = || {
            let hash_of = |index: usize| blocks.get(index).map(|block| label_hash(block.label));
            let mut ahead = Ahead::new(&self.labels, hash_of);
            blocks.iter().enumerate().all(|(index, block)| {
                let hash = ahead.turn(&self.labels, index, hash_of);
                let taken = |value| is_run_label(value, block.label);
                own[index].is_none() || self.labels.find(hash, taken).is_none()
            })
        };
        let others_are_free = || {
            let hash_of = |index: usize| blocks.get(index).map(|block| own_hash(slot, block.label));
            let mut ahead = Ahead::new(&self.names, hash_of);
            blocks.iter().enumerate().all(|(index, block)| {
                ahead.turn(&self.names, index, hash_of);
                own[index].is_some() || self.find_own(slot, block.label).is_none()
            })
        };
        (own.iter().all(Option::is_none) || own_are_free())
            && (self.slots.info(slot).own_labels == 0 || own.iter().all(Option::is_some) || others_are_free())
    }

    /// Enters labels that come with one event, of blocks in these stretches. If one of them is there already, or twice, none
    /// is.
    fn enter(&mut self, slot: usize, names: &[Name], stretches: &[Stretch], labels: &[Option<u64>]) -> bool {
        let hash_of = |index: usize| names.get(index).map(|name| name.hash);
        let mut ahead = Ahead::new(&self.names, hash_of);
        self.slots.info_mut(slot).own_labels += names.len() as u64;
        for (index, name) in names.iter().enumerate() {
            let hash = ahead.turn(&self.names, index, hash_of);
            let (info, renumbered) = (self.slots.info(slot), self.renumbered);
            let is_same = |value| {
                let place = renumbered.place(value);
                named(info, place, name.label).is_some() || label_in(stretches, labels, place) == Some(name.label.get())
            };
            if self.names.insert_noting(hash, name.place.encode(), is_same) {
                self.leave(slot, &names[..=index]);
                self.slots.info_mut(slot).own_labels -= (names.len() - index - 1) as u64;
                return false;
            }
        }
        true
    }

    /// Takes labels out, one after the other.
    fn leave(&mut self, slot: usize, names: &[Name]) {
        let hash_of = |index: usize| names.get(index).map(|name| name.hash);
        let mut ahead = Ahead::new(&self.names, hash_of);
        for (index, name) in names.iter().enumerate() {
            ahead.turn(&self.names, index, hash_of);
            self.take_out(slot, *name);
        }
    }

    /// The slot holds more leading blocks of a run; `labels` says what it calls them if not as the run does.
    fn extend_lead(&mut self, slot: usize, stretch: Stretch, labels: &[Option<u64>]) {
        let is_known = self.slots.info(slot).details.contains(stretch.run);
        if !is_known && labels.iter().all(Option::is_none) {
            return;
        }
        let details = &mut self.slots.info_mut(slot).details;
        if !is_known {
            self.runs.meta_mut(stretch.run).details += 1;
            details.insert(stretch.run, Box::new(Detail::prefix(stretch.from as usize)));
        }
        if let Some(detail) = details.get_mut(stretch.run) {
            detail.extend_lead(labels);
        }
        details.recount(stretch.run);
    }

    /// The slot holds only the first blocks of a run any more, plainly: up to where the range begins.
    pub(crate) fn cut_lead(&mut self, slot: usize, range: Stretch) {
        let Some(detail) = self.slots.info(slot).details.get(range.run) else {
            return;
        };
        let mut names = std::mem::take(&mut self.work.names);
        self.names_in(slot, detail, range, &mut names);
        self.leave(slot, &names);
        self.work.names = names;
        self.cut_detail(slot, range.run, range.from as usize);
    }

    /// Drops what a slot's detail says from an offset on, and all of it if nothing is left to be said.
    fn cut_detail(&mut self, slot: usize, run: RunId, start: usize) {
        let details = &mut self.slots.info_mut(slot).details;
        let Some(detail) = details.get_mut(run) else { return };
        detail.cut(start);
        if detail.end() == 0 || detail.is_simple() {
            let beyond = std::mem::take(&mut detail.counted_beyond);
            details.remove(run);
            let meta = self.runs.meta_mut(run);
            meta.details -= 1;
            meta.beyond -= u16::from(beyond);
        } else {
            details.recount(run);
        }
    }

    /// The entries for what a slot's detail calls the blocks of a range.
    pub(super) fn names_in(&self, slot: usize, detail: &Detail, range: Stretch, names: &mut Vec<Name>) {
        names.clear();
        let mut add = |offset: u16, label: Label| {
            let place = Place { run: range.run, offset };
            names.push(Name::new(slot, label, place));
        };
        if detail.is_lead() {
            for offset in range.from..range.to {
                if let Some(label) = detail.own_label(offset as usize) {
                    add(offset, Label::new(label));
                }
            }
            return;
        }
        let held = self.blocks_of(range.run);
        for offset in range.from..range.to {
            let run_label = held.label(offset as usize);
            let labels = detail.labels_at(offset as usize, run_label);
            let own = labels.into_iter().filter(|label| label.get() != run_label);
            own.for_each(|label| add(offset, label));
        }
    }

    /// Forgets what a slot that is not in use any more holds of a run beyond its leading part, as far as there is work to be
    /// spent on it. Says whether that was all.
    pub(crate) fn forget_detail(&mut self, slot: usize, run: RunId, work: &mut u32) -> bool {
        let Some(detail) = self.slots.info(slot).details.get(run) else {
            return true;
        };
        let end = detail.end();
        let start = end.saturating_sub((*work).max(1) as usize);
        let mut names = std::mem::take(&mut self.work.names);
        let range = Stretch {
            run,
            from: start as u16,
            to: end as u16,
        };
        self.names_in(slot, detail, range, &mut names);
        self.leave(slot, &names);
        self.work.names = names;
        self.cut_detail(slot, run, start);
        *work = work.saturating_sub(DETAIL + (end - start) as u32);
        !self.slots.info(slot).details.contains(run)
    }
}

/// The block at `place`, if the slot calls it by this label of its own.
fn named(info: &SlotInfo, place: Place, label: Label) -> Option<Place> {
    let detail = info.details.get(place.run)?;
    detail.calls(place.offset as usize, label).then_some(place)
}

/// The own label with which a block comes that lies in one of the stretches.
fn label_in(stretches: &[Stretch], labels: &[Option<u64>], place: Place) -> Option<u64> {
    let mut passed = 0;
    for stretch in stretches {
        if stretch.run == place.run && (stretch.from..stretch.to).contains(&place.offset) {
            return labels[passed + (place.offset - stretch.from) as usize];
        }
        passed += (stretch.to - stretch.from) as usize;
    }
    None
}
