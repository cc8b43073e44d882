//! How does memory go back? Extents are moved out of chunks that have become mostly empty, records out of the highest
//! chunk, and a run that is followed by one other at its end becomes one with it. None of this changes an answer.

use homing_domain::Label;

use super::ahead::Ahead;
use super::structure::blocks_in;
use super::{Place, Stretch};
use crate::heap::{Addr, Header, Kind};
use crate::index::Index;
use crate::record::{Fields, HAS_CHILDREN, HAS_LOWER, MAX_RUN, Record, RunId};
use crate::sets::SlotSet;
use crate::slots::label_hash;
use crate::sync::Ordering;

/// Words moved for one unit of work.
const WORDS_PER_UNIT: u32 = 64;
/// A longer run is not joined to the one before it: it would take too long at once.
const MERGE_LIMIT: usize = 1024;

impl Index {
    /// Moves extents out of the chunk that is being emptied.
    pub(crate) fn compact_heap(&mut self, work: u32) {
        // What is moved needs room, too.
        self.heap.prepare();
        let mut words = work * WORDS_PER_UNIT;
        while words > 0 {
            let Some((addr, header)) = self.heap.next_to_move(256) else {
                return;
            };
            words = words.saturating_sub(header.words + 8);
            self.move_extent(addr, header);
        }
    }

    fn move_extent(&mut self, addr: Addr, header: Header) {
        let to = self.heap.alloc(header.kind, header.words, header.owner);
        let count = header.words as usize;
        for (from, to) in self.heap.words(addr)[1..count]
            .iter()
            .zip(&self.heap.words(to)[1..count])
        {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut fields = self.runs.record(header.owner).fields();
        // Sets are changed in place, so the copy and the change of address must be one write to readers.
        self.runs.record(header.owner).begin();
        match header.kind {
            Kind::Blocks => fields.blocks = to,
            Kind::Extra => fields.extra = to,
            Kind::Set => self.move_set(&mut fields, addr, to),
            Kind::Free => {}
        }
        let record = self.runs.record(header.owner);
        record.put(&fields);
        record.end();
        self.heap.free(addr);
    }

    fn move_set(&mut self, fields: &mut Fields, from: Addr, to: Addr) {
        for set in std::iter::once(&mut fields.full).chain(&mut fields.levels) {
            if set.extent() == Some(from) {
                *set = set.moved_to(to);
                return;
            }
        }
        if fields.extra == 0 {
            return;
        }
        let words = self.heap.header(fields.extra).words as usize;
        for word in &self.heap.words(fields.extra)[1..words] {
            let set = SlotSet(word.load(Ordering::Relaxed));
            if set.extent() == Some(from) {
                word.store(set.moved_to(to).0, Ordering::Relaxed);
            }
        }
    }

    /// Gives a run of the highest chunk a lower number, or drops that chunk if it is empty.
    pub(crate) fn compact_runs(&mut self) {
        let Some(run) = self.runs.highest() else { return };
        let Some(new) = self.take_run(self.runs.record(run).first(), 0) else {
            return;
        };
        self.renumber(run, new);
    }

    /// Gives some run another number though there is no need to, if it could happen now; or goes on with the last.
    #[cfg(any(test, feature = "testing"))]
    pub fn renumber_one(&mut self, which: usize) {
        if self.renumbered.is_some() {
            self.renumber_names(1);
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
        self.relink(old, new, &meta);
        self.renumber_labels(
            Stretch {
                run: old,
                from: 0,
                to: fields.shape.len,
            },
            Place { run: new, offset: 0 },
        );
        self.renumber_details(old, new);
        if let Some(parent_key) = self.dangling.remove(old) {
            self.dangling.insert(new, parent_key);
        }
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

    fn relink(&mut self, old: RunId, new: RunId, meta: &crate::runs::RunMeta) {
        let mut kid = meta.first_kid;
        while kid != 0 {
            self.runs.meta_mut(kid).parent = new;
            kid = self.runs.meta(kid).next;
        }
        if meta.parent != 0 && Record::usual_child(self.runs.record(meta.parent).version()) == old {
            self.set_usual_child(meta.parent, new);
        }
        if meta.next != 0 {
            self.runs.meta_mut(meta.next).prev = new;
        }
        if meta.prev != 0 {
            self.runs.meta_mut(meta.prev).next = new;
        } else if meta.parent != 0 && self.runs.meta(meta.parent).first_kid == old {
            self.runs.meta_mut(meta.parent).first_kid = new;
        }
    }

    /// The labels of blocks lead to where they are now.
    fn renumber_labels(&mut self, from: Stretch, to: Place) {
        let blocks = blocks_in(&self.heap, self.runs.record(from.run).blocks());
        let count = (from.to - from.from) as usize;
        let hash_of =
            |index: usize| (index < count).then(|| label_hash(Label::new(blocks.label(from.from as usize + index))));
        let mut ahead = Ahead::new(&self.labels, hash_of);
        for index in 0..count {
            let hash = ahead.turn(&self.labels, index, hash_of);
            let place = Place {
                run: from.run,
                offset: from.from + index as u16,
            };
            let moved = Place {
                run: to.run,
                offset: to.offset + index as u16,
            };
            let found = self.labels.replace(hash, place.encode(), moved.encode());
            debug_assert!(found, "every block of a run has its label in the table");
        }
    }

    /// Makes a run one with the only run that follows it, if that follows its last block and nothing is unusual.
    pub(crate) fn merge(&mut self, run: RunId) {
        let meta = *self.runs.meta(run);
        let child = meta.first_kid;
        if child == 0 {
            return;
        }
        let child_meta = *self.runs.meta(child);
        let (len, child_len) = (self.len_of(run), self.len_of(child));
        let is_only = child_meta.next == 0 && child_meta.parent_offset as usize + 1 == len;
        let fits = child_len <= MERGE_LIMIT && len + child_len <= MAX_RUN;
        if !is_only || !fits || meta.details + child_meta.details > 0 || meta.untrimmed || child_meta.untrimmed {
            return;
        }
        let (fields, child_fields) = (self.runs.record(run).fields(), self.runs.record(child).fields());
        if (fields.shape.flags | child_fields.shape.flags) & HAS_LOWER != 0 {
            return;
        }
        let holders = self.holders(child);
        if holders.iter().all(|(slot, _)| fields.full.contains(*slot, &self.heap)) {
            self.fuse(run, child, &holders);
        }
    }

    fn fuse(&mut self, run: RunId, child: RunId, holders: &[(usize, super::coverage::Cuts)]) {
        let (len, child_len) = (self.len_of(run), self.len_of(child));
        let mut fields = self.runs.record(run).fields();
        let child_fields = self.runs.record(child).fields();
        let total = len + child_len;
        let (old_blocks, blocks) = (fields.blocks, self.alloc_blocks(run, total + total / 16));
        self.copy_blocks(old_blocks, blocks, len);
        self.append_blocks(child_fields.blocks, blocks, len, child_len);
        self.note_samples(run, blocks, len, total);
        self.renumber_labels(
            Stretch {
                run: child,
                from: 0,
                to: child_len as u16,
            },
            Place {
                run,
                offset: len as u16,
            },
        );
        self.adopt_kids(run, child, len as u16);
        // Those who held all of the run hold a leading part of what it becomes, until they are counted again below.
        fields.blocks = blocks;
        fields.last = child_fields.last;
        fields.shape.departure = match child_fields.shape.departure {
            0 => 0,
            departure => len as u16 + departure,
        };
        let grandchild = Record::usual_child(self.runs.record(child).version());
        fields.shape.len = total as u16;
        if self.runs.meta(run).first_kid == 0 {
            fields.shape.flags &= !HAS_CHILDREN;
        }
        let rest: Vec<(usize, u16)> = holders
            .iter()
            .map(|(slot, cuts)| (*slot, len as u16 + cuts[0]))
            .collect();
        // The child cannot be found any more, so the run must tell what it has: one write.
        self.replace_by_longer(run, fields, len as u16, &rest, child);
        self.set_usual_child(run, grandchild);
        self.release_coverage(child);
        self.free_blocks(child_fields.blocks);
        self.free_blocks(old_blocks);
        self.runs.give_back(child);
    }

    fn adopt_kids(&mut self, run: RunId, child: RunId, shift: u16) {
        let first = self.runs.meta(child).first_kid;
        let mut kid = first;
        while kid != 0 {
            let meta = self.runs.meta_mut(kid);
            meta.parent = run;
            meta.parent_offset += shift;
            kid = meta.next;
        }
        let child_reach = self.runs.meta(child).kid_reach;
        let meta = self.runs.meta_mut(run);
        meta.first_kid = first;
        meta.kid_reach = if first == 0 { 0 } else { child_reach + shift };
    }
}
