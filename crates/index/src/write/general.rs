//! The general way to change what one slot holds: block by block, in its details, and then published. Slower than the
//! plain way, and right in all cases: holes, copies, lower tiers, cache groups, labels of its own, orphans that join,
//! and labels that come to name another block.

use homing_domain::{BlockKey, Label, StoredBlock, Tier};

use super::Place;
use super::coverage::Cuts;
use crate::bugs::planted;
use crate::detail::{Detail, Holding, Taken};
use crate::index::{Index, StoreOutcome};
use crate::orphans::{Awaited, Orphan};
use crate::record::RunId;

/// Labels that one slot may have for one block. An engine that gives one content ever new labels would otherwise take
/// memory without end; further ones are not kept, and the slot is marked truncated.
const MAX_NAMES: usize = 64;

impl Index {
    /// Copies came to `place`. If its label named another block, that one is gone; what waited for it joins.
    pub(crate) fn place_one(
        &mut self,
        slot: usize,
        place: Place,
        (holding, count): (Holding, u32),
        outcome: &mut StoreOutcome,
    ) {
        if let Some(before) = self.resolve(slot, holding.label)
            && before != place
        {
            self.unbind(slot, before, holding.label);
            outcome.rebound += 1;
        }
        if self.slots.info_mut(slot).orphans.take(holding.label).is_some() {
            outcome.rebound += 1;
        }
        self.hold(slot, place, holding, count);
        if !self.slots.info(slot).orphans.is_empty() {
            self.join_orphans(slot, place, holding.label, outcome);
        }
    }

    /// Everything that waited for `label`, directly or through other orphans, gets its place.
    fn join_orphans(&mut self, slot: usize, place: Place, label: Label, outcome: &mut StoreOutcome) {
        let mut placed = vec![(label, place)];
        while let Some((label, place)) = placed.pop() {
            let key = self.key_at(place);
            let orphans = &mut self.slots.info_mut(slot).orphans;
            let mut children = orphans.take_children(Awaited::Label(label));
            children.extend(orphans.take_children(Awaited::Key(key)));
            for (child, orphan) in children {
                if let Some(child_place) = self.join(slot, place, child, &orphan, outcome) {
                    placed.push((child, child_place));
                }
            }
        }
    }

    fn join(
        &mut self,
        slot: usize,
        parent: Place,
        label: Label,
        orphan: &Orphan,
        outcome: &mut StoreOutcome,
    ) -> Option<Place> {
        let key = self.config.hasher.child(self.key_at(parent), orphan.content);
        self.work.keys.clear();
        self.work.keys.push(key.0);
        let (new, placed) = self.lay(
            Some(parent),
            &[StoredBlock {
                label,
                content: orphan.content,
            }],
        );
        outcome.new_blocks += new as u32;
        if placed == 0 {
            self.slots.info_mut(slot).truncated = true;
            outcome.forgotten += 1;
            self.forget_with_orphans(slot, label, key);
            return None;
        }
        let stretch = self.work.stretches[0];
        let place = Place {
            run: stretch.run,
            offset: stretch.from,
        };
        self.publish_view();
        outcome.joined += 1;
        for (holding, count) in &orphan.holdings {
            let count = if planted!(self.config, OrphanJoinedTwice) {
                count + 1
            } else {
                *count
            };
            self.hold(slot, place, *holding, count);
        }
        Some(place)
    }

    /// There was no room for a block: it is forgotten, with all that waits for it.
    pub(crate) fn forget_with_orphans(&mut self, slot: usize, label: Label, key: BlockKey) {
        let hasher = self.config.hasher;
        let mut forgotten = vec![(label, key)];
        while let Some((label, key)) = forgotten.pop() {
            self.log_refused(label, key);
            let orphans = &mut self.slots.info_mut(slot).orphans;
            let mut children = orphans.take_children(Awaited::Label(label));
            children.extend(orphans.take_children(Awaited::Key(key)));
            let keyed = children.into_iter();
            forgotten.extend(keyed.map(|(label, orphan)| (label, hasher.child(key, orphan.content))));
        }
    }

    /// Adds copies to a slot's details.
    pub(crate) fn hold(&mut self, slot: usize, place: Place, holding: Holding, count: u32) {
        let run_label = self.label_at(place);
        let mut copies = self.slots.info(slot).copies;
        if planted!(self.config, SetInsteadOfCounts) {
            copies = crate::Copies::Set;
        }
        let count = if copies == crate::Copies::Set { 1 } else { count };
        let offset = place.offset as usize;
        let detail = self.open_detail(slot, place.run);
        let is_new = !detail.binds(offset, holding.label, run_label.get());
        if is_new && detail.labels_at(offset, run_label.get()).len() >= MAX_NAMES {
            self.slots.info_mut(slot).truncated = true;
            return;
        }
        let was_held = detail.holds(offset);
        let newly_bound = detail.add(offset, holding, count, copies, run_label.get());
        if !was_held {
            self.slots.info_mut(slot).blocks += 1;
        }
        if newly_bound && holding.label != run_label {
            self.add_own_label(slot, holding.label, place);
        }
    }

    /// Takes one copy from a slot's details. Says whether there was one.
    pub(crate) fn unhold(&mut self, slot: usize, place: Place, holding: Holding) -> bool {
        let run_label = self.label_at(place);
        let offset = place.offset as usize;
        let detail = self.open_detail(slot, place.run);
        let taken = detail.remove(offset, holding, run_label.get());
        if taken == Taken::Nothing {
            return false;
        }
        let is_held = detail.holds(offset);
        if !is_held {
            self.slots.info_mut(slot).blocks -= 1;
        }
        if taken == Taken::LastCopy && holding.label != run_label {
            self.drop_own_label(slot, holding.label, place);
        }
        true
    }

    /// The label names nothing any more: all copies under it are gone.
    fn unbind(&mut self, slot: usize, place: Place, label: Label) {
        let run_label = self.label_at(place);
        let offset = place.offset as usize;
        let detail = self.open_detail(slot, place.run);
        detail.remove_label(offset, label, run_label.get());
        let is_held = detail.holds(offset);
        if !is_held {
            self.slots.info_mut(slot).blocks -= 1;
        }
        if label != run_label {
            self.drop_own_label(slot, label, place);
        }
    }

    /// Whatever the slot called by this label is gone, orphan or not.
    pub(crate) fn forget_label(&mut self, slot: usize, label: Label) {
        if let Some(place) = self.resolve(slot, label) {
            self.unbind(slot, place, label);
        }
        self.slots.info_mut(slot).orphans.take(label);
    }

    /// The runs of which a slot holds something.
    pub(crate) fn runs_of(&self, slot: usize) -> Vec<RunId> {
        let details = &self.slots.info(slot).details;
        let all = self.runs.iter();
        all.filter(|run| details.contains(*run) || self.cut(*run, slot) > 0)
            .collect()
    }

    /// The details of a slot about a run, made from its plain leading part if there were none. The run is noted as
    /// changed: [`Index::publish_details`] must follow.
    pub(crate) fn open_detail(&mut self, slot: usize, run: RunId) -> &mut Detail {
        if !self.slots.info(slot).details.contains(run) {
            let cut = self.cut(run, slot);
            self.runs.meta_mut(run).details += 1;
            let detail = Box::new(Detail::prefix(cut as usize));
            self.slots.info_mut(slot).details.insert(run, detail);
        }
        let detail = self.slots.info_mut(slot).details.get_mut(run).expect("inserted above");
        if !std::mem::replace(&mut detail.dirty, true) {
            self.work.dirty.push(run);
            self.work.pinned.push(run);
        }
        detail
    }

    /// Readers come to see what the details of the changed runs say: losses shallowest first, then gains deepest first.
    pub(crate) fn publish_details(&mut self, slot: usize) {
        let dirty = std::mem::take(&mut self.work.dirty);
        let mut changes: Vec<(RunId, Cuts, Cuts, u32)> = dirty
            .iter()
            .map(|run| {
                let cuts = self.cuts_of_detail(slot, *run);
                (*run, self.cuts(*run, slot), cuts, self.runs.meta(*run).depth)
            })
            .collect();
        changes.sort_unstable_by_key(|(_, _, _, depth)| *depth);
        let loses = |before: &Cuts, after: &Cuts| before.iter().zip(after).any(|(before, after)| after < before);
        // The order shows one choice of tiers the whole event at once, but not all choices of tiers at the same time.
        let differ = |cuts: &Cuts| cuts.iter().any(|cut| *cut != cuts[0]);
        let together = changes.len() > 1
            && changes
                .iter()
                .any(|(_, before, after, _)| differ(before) || differ(after));
        if together {
            self.begin_together();
        }
        for (run, before, after, _) in &changes {
            if loses(before, after) {
                self.set_cuts(*run, slot, *after);
            }
        }
        for (run, before, after, _) in changes.iter().rev() {
            if before != after && !loses(before, after) {
                self.set_cuts(*run, slot, *after);
            }
        }
        if together {
            self.end_together();
        }
        for (run, _, after, _) in &changes {
            self.settle_detail(slot, *run, *after);
            self.trim(*run);
        }
        self.work.dirty = dirty;
        self.work.dirty.clear();
    }

    fn cuts_of_detail(&self, slot: usize, run: RunId) -> Cuts {
        let Some(detail) = self.slots.info(slot).details.get(run) else {
            return self.cuts(run, slot);
        };
        let cuts = detail.cuts();
        if planted!(self.config, HoleIgnored) {
            return [detail.end() as u16; Tier::COUNT];
        }
        if planted!(self.config, HoleNotRestored) {
            let before = self.cuts(run, slot);
            let known = detail.counted_beyond;
            return if known {
                std::array::from_fn(|tier| cuts[tier].min(before[tier]))
            } else {
                cuts
            };
        }
        cuts
    }

    /// Details that say no more than the leading part are dropped; others are counted where trimming looks for them.
    pub(crate) fn settle_detail(&mut self, slot: usize, run: RunId, cuts: Cuts) {
        let Some(detail) = self.slots.info_mut(slot).details.get_mut(run) else {
            return;
        };
        let is_beyond = detail.end() > cuts[Tier::COUNT - 1] as usize;
        detail.dirty = false;
        let was_beyond = std::mem::replace(&mut detail.counted_beyond, is_beyond);
        let is_simple = detail.is_simple() && !is_beyond;
        let meta = self.runs.meta_mut(run);
        meta.beyond = meta.beyond + u16::from(is_beyond) - u16::from(was_beyond);
        if is_simple {
            meta.details -= 1;
            self.slots.info_mut(slot).details.remove(run);
        } else {
            self.slots.info_mut(slot).details.recount(run);
        }
    }
}
