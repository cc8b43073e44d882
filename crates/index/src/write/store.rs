//! Blocks came: who holds them now?

use homing_domain::{BlockKey, Label, StoredBlock};

use super::{Kind, Place, Stretch};
use crate::Copies;
use crate::bugs::planted;
use crate::index::{Index, StoreOutcome};
use crate::orphans::{Awaited, Kept};
use crate::slots::label_hash;

impl Index {
    /// Stores at most [`Index::STEP`] blocks of one event.
    pub(crate) fn store_step(
        &mut self,
        slot: usize,
        parent: Option<Label>,
        blocks: &[StoredBlock],
        kind: Kind,
        outcome: &mut StoreOutcome,
    ) {
        self.work.pinned.clear();
        let Some(label) = parent else {
            return self.store_after(slot, None, blocks, kind, outcome);
        };
        if let Some(place) = self.resolve(slot, label) {
            return self.store_after(slot, Some(place), blocks, kind, outcome);
        }
        if planted!(self.config, OrphanAtRoot) {
            return self.store_after(slot, None, blocks, kind, outcome);
        }
        let awaited = self.slots.info(slot).orphans.awaited_after(label, &self.config.hasher);
        self.store_without_parent(slot, awaited, blocks, kind, outcome);
    }

    /// The parent is known: `None` is the beginning of a sequence.
    fn store_after(
        &mut self,
        slot: usize,
        parent: Option<Place>,
        blocks: &[StoredBlock],
        kind: Kind,
        outcome: &mut StoreOutcome,
    ) {
        let parent_key = self.chain_keys(parent, blocks);
        let (new, placed) = self.lay(parent, blocks);
        outcome.new_blocks += new as u32;
        // Before anybody is said to hold the new runs, readers must be able to find them.
        if !planted!(self.config, CoverageBeforeView) {
            self.publish_view();
        }
        let mut stretches = std::mem::take(&mut self.work.stretches);
        let held = &blocks[..placed];
        if kind == Kind::PLAIN && self.makes_longer(slot, held, &stretches) {
            if planted!(self.config, StoreShallowFirst) {
                stretches.reverse();
            }
            for stretch in stretches.iter().rev() {
                self.extend_cut(slot, *stretch);
            }
        } else {
            let mut rest = held;
            for stretch in &stretches {
                for offset in stretch.from..stretch.to {
                    let place = Place {
                        run: stretch.run,
                        offset,
                    };
                    self.place_one(slot, place, (kind.of(rest[0].label), kind.copies), outcome);
                    rest = &rest[1..];
                }
            }
            self.publish_details(slot);
        }
        self.work.stretches = stretches;
        if placed < blocks.len() {
            self.refuse(slot, parent_key, (blocks, placed), kind, outcome);
        }
    }

    /// The chain keys of blocks after `parent`, into the workspace. Returns the key that they follow.
    fn chain_keys(&mut self, parent: Option<Place>, blocks: &[StoredBlock]) -> BlockKey {
        let hasher = self.config.hasher;
        let parent_key = parent.map_or(hasher.root(), |place| self.key_at(place));
        let mut key = parent_key;
        self.work.keys.clear();
        self.work.keys.extend(blocks.iter().map(|block| {
            key = hasher.child(key, block.content);
            key.0
        }));
        parent_key
    }

    /// Whether the slot simply holds more leading blocks after this: the case that must be fast. If it calls them otherwise
    /// than the runs do, that is noted.
    fn makes_longer(&mut self, slot: usize, blocks: &[StoredBlock], stretches: &[Stretch]) -> bool {
        let info = self.slots.info(slot);
        if !info.orphans.is_empty() || !self.work.dirty.is_empty() {
            return false;
        }
        if !self.ambiguous.is_empty() && blocks.iter().any(|block| self.ambiguous.contains(&block.label)) {
            return false;
        }
        info.own_labels == 0 && self.is_plain(slot, blocks, stretches) || self.name(slot, blocks, stretches)
    }

    /// Whether the slot holds leading parts of these runs under the runs' own labels, before and after this.
    fn is_plain(&self, slot: usize, blocks: &[StoredBlock], stretches: &[Stretch]) -> bool {
        let info = self.slots.info(slot);
        let mut rest = blocks;
        stretches.iter().enumerate().all(|(number, stretch)| {
            let (these, others) = rest.split_at((stretch.to - stretch.from) as usize);
            rest = others;
            let held = self.blocks_of(stretch.run);
            let cut = self.cut(stretch.run, slot);
            let extends = match info.copies {
                Copies::Counted => cut == stretch.from,
                Copies::Set => cut >= stretch.from,
            };
            extends
                && !info.details.contains(stretch.run)
                && (number >= self.work.known || {
                    let labels = these.iter().map(|block| block.label.get());
                    held.count_labels(stretch.from as usize, stretch.to as usize, labels) == these.len()
                })
        })
    }

    fn extend_cut(&mut self, slot: usize, stretch: Stretch) {
        let cut = self.cut(stretch.run, slot);
        if stretch.to > cut {
            self.set_cut(stretch.run, slot, stretch.to);
            self.slots.info_mut(slot).blocks += u64::from(stretch.to - cut);
        }
    }

    /// The parent is unknown on this rank. A block whose own label is known is another copy of that block, and what
    /// follows it has a parent; all before wait.
    pub(crate) fn store_without_parent(
        &mut self,
        slot: usize,
        parent: Awaited,
        blocks: &[StoredBlock],
        kind: Kind,
        outcome: &mut StoreOutcome,
    ) {
        let mut parent = parent;
        for (index, block) in blocks.iter().enumerate() {
            let holding = (kind.of(block.label), kind.copies);
            if let Some(place) = self.resolve(slot, block.label) {
                // Readers see this block together with those that follow.
                self.place_one(slot, place, holding, outcome);
                return self.store_after(slot, Some(place), &blocks[index + 1..], kind, outcome);
            }
            let limit = self.config.orphans_per_rank;
            let info = self.slots.info_mut(slot);
            match info.orphans.add(parent, block.content, holding, info.copies, limit) {
                Kept::Yes => outcome.orphaned += 1,
                Kept::No => {
                    outcome.forgotten += 1;
                    info.truncated = true;
                }
            }
            parent = info.orphans.awaited_after(block.label, &self.config.hasher);
        }
    }

    /// There was no room for the block at `placed`: it is forgotten, and so are those that follow it. Each takes along what
    /// waits for it before the next one's turn comes, because a label that waits for one may be given to a later one.
    fn refuse(
        &mut self,
        slot: usize,
        parent_key: BlockKey,
        (blocks, placed): (&[StoredBlock], usize),
        kind: Kind,
        outcome: &mut StoreOutcome,
    ) {
        self.slots.info_mut(slot).truncated = true;
        let hasher = self.config.hasher;
        let mut key = parent_key;
        let mut refused: Vec<(Label, BlockKey)> = Vec::new();
        for block in blocks {
            key = hasher.child(key, block.content);
            refused.push((block.label, key));
        }
        refused.drain(..placed);
        if planted!(self.config, RefusedOutOfTurn) {
            refused.reverse();
        }
        for (label, key) in refused {
            match self.resolve(slot, label) {
                // The slot held it all along, behind a hole: what comes after it may be held too, so it is no leaf.
                Some(place) if self.key_at(place) == key => {
                    self.place_one(slot, place, (kind.of(label), kind.copies), outcome);
                }
                _ => {
                    outcome.forgotten += 1;
                    // A label that was to name a refused block names nothing any more.
                    if !planted!(self.config, RefusedLabelKept) {
                        self.forget_label(slot, label);
                    }
                    self.forget_with_orphans(slot, label, key);
                }
            }
        }
        self.publish_details(slot);
    }

    /// Where the block is that this slot calls `label`.
    pub(crate) fn resolve(&self, slot: usize, label: Label) -> Option<Place> {
        if let Some(place) = self.find_own(slot, label) {
            return Some(place);
        }
        let found = self.labels.find(label_hash(label), |value| {
            let place = self.renumbered.place(value);
            self.label_at(place) == label
                && (planted!(self.config, ForeignLabelHonoured) || self.binds(slot, place, label))
        });
        found.map(|value| self.renumbered.place(value))
    }

    /// Whether this slot calls the block at `place` by `label`.
    pub(crate) fn binds(&self, slot: usize, place: Place, label: Label) -> bool {
        match self.slots.info(slot).details.get(place.run) {
            Some(detail) => detail.binds(place.offset as usize, label, self.label_at(place).get()),
            None => self.label_at(place) == label && place.offset < self.cut(place.run, slot),
        }
    }
}
