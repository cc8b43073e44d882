//! How does memory go back? Extents are moved out of chunks that have become mostly empty, records out of the highest
//! chunk, and a run that is followed by one other at its end becomes one with it. None of this changes an answer.

use homing_domain::Label;

use super::Place;
use super::ahead::Ahead;
use super::structure::blocks_in;
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
            // However short it is, its record and where it goes have to be fetched.
            words = words.saturating_sub(header.words + WORDS_PER_UNIT);
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

    /// The labels of a run that becomes the end of another, from `shift` on, lead there.
    fn relabel(&mut self, child: RunId, run: RunId, shift: usize) {
        debug_assert!(
            !self.renumbered.is_under_way(),
            "labels lead to the numbers that runs have"
        );
        let blocks = blocks_in(&self.heap, self.runs.record(child).blocks());
        let count = self.len_of(child);
        let hash_of = |index: usize| (index < count).then(|| label_hash(Label::new(blocks.label(index))));
        let mut ahead = Ahead::new(&self.labels, hash_of);
        for index in 0..count {
            let hash = ahead.turn(&self.labels, index, hash_of);
            let place = |run, offset: usize| Place {
                run,
                offset: offset as u16,
            };
            let (from, to) = (place(child, index), place(run, shift + index));
            let found = self.labels.replace(hash, from.encode(), to.encode());
            debug_assert!(found, "every block of a run has its label in the table");
        }
    }

    /// Makes a run one with the only run that follows it, if that follows its last block and nothing is unusual.
    pub(crate) fn merge(&mut self, run: RunId) {
        let Some(child) = self.only_kid(run) else { return };
        let (meta, child_meta) = (*self.runs.meta(run), *self.runs.meta(child));
        let (len, child_len) = (self.len_of(run), self.len_of(child));
        let is_last = child_meta.parent_offset as usize + 1 == len;
        let fits = child_len <= MERGE_LIMIT && len + child_len <= MAX_RUN;
        if !is_last || !fits || meta.details + child_meta.details > 0 || meta.untrimmed || child_meta.untrimmed {
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
        self.relabel(child, run, len);
        self.adopt_forks(run, child, len as u16);
        // Those who held all of the run hold a leading part of what it becomes, until they are counted again below.
        fields.blocks = blocks;
        fields.last = child_fields.last;
        fields.shape.departure = match child_fields.shape.departure {
            0 => 0,
            departure => len as u16 + departure,
        };
        let grandchild = Record::usual_child(self.runs.record(child).version());
        fields.shape.len = total as u16;
        if self.runs.meta(run).first_fork == 0 {
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
}
