//! Where does a block live? Blocks that follow each other are kept in runs; a run grows at its end and is never split by
//! a store: a sequence that departs from it in the middle continues in another run, found by the key of its first block.
//!
//! **Invariant:** a key is at one place at most. Before a block is given a place it is looked for after its parent, in
//! the same run; among the first blocks of runs; and, while there are runs whose parent block is missing, again for each
//! block that follows.

use homing_domain::{BlockKey, Label, StoredBlock};

use super::{Place, Stretch};
use crate::bugs::planted;
use crate::heap::{Addr, Header, Heap, Kind};
use crate::index::Index;
use crate::record::{Fields, HAS_CHILDREN, MAX_RUN, RunId, Runs, Shape};
use crate::slots::label_hash;
use crate::sync::{AtomicU64, Ordering};

/// How many labels ahead their buckets are asked for.
pub(crate) const AHEAD: usize = 32;

impl Index {
    pub(crate) fn len_of(&self, run: RunId) -> usize {
        self.runs.record(run).shape().len as usize
    }

    /// Keys and labels of a run, as long as there is room.
    pub(crate) fn blocks_of(&self, run: RunId) -> (&[AtomicU64], &[AtomicU64]) {
        self.blocks_at(self.runs.record(run).blocks())
    }

    fn blocks_at(&self, addr: Addr) -> (&[AtomicU64], &[AtomicU64]) {
        let words = self.heap.words(addr);
        let room = room_of(Header::decode(words[0].load(Ordering::Relaxed)).words);
        (&words[1..=room], &words[1 + room..=2 * room])
    }

    pub(crate) fn key_at(&self, place: Place) -> BlockKey {
        BlockKey(self.blocks_of(place.run).0[place.offset as usize].load(Ordering::Relaxed))
    }

    /// The run's own label of a block.
    #[inline]
    pub(crate) fn label_at(&self, place: Place) -> Label {
        run_label(&self.runs, &self.heap, place)
    }

    pub(crate) fn run_starting_with(&self, key: u64) -> Option<RunId> {
        let found = self
            .first_keys
            .find(key, |run| self.runs.record(run as RunId).first() == key)?;
        Some(found as RunId)
    }

    /// Gives each of the keys in the workspace a place after `parent`, with the labels of `blocks` for those that are
    /// new, and leaves the places as stretches in the workspace. Returns how many blocks are new, and how many have a
    /// place at all: fewer than asked for only if the index is full.
    pub(crate) fn lay(&mut self, parent: Option<Place>, blocks: &[StoredBlock]) -> (usize, usize) {
        let keys = std::mem::take(&mut self.work.keys);
        let mut stretches = std::mem::take(&mut self.work.stretches);
        stretches.clear();
        self.work.pinned.extend(parent.map(|place| place.run));
        let mut at = parent.map(|place| (place.run, place.offset as usize + 1));
        let (mut done, mut new) = (0, 0);
        while done < keys.len() {
            let found = self.find_next(at, keys[done]);
            let stretch = if let Some((run, offset)) = found {
                let count = self.count_matching(run, offset, &keys[done..]);
                if offset == 0 && self.runs.meta(run).dangling {
                    self.link(run, at);
                }
                Stretch {
                    run,
                    from: offset as u16,
                    to: (offset + count) as u16,
                }
            } else {
                let wanted = self.new_blocks_from(&keys, done);
                let room = self.make_room(wanted);
                let Some(stretch) = self.add_blocks(at, &keys[done..done + room], &blocks[done..]) else {
                    break;
                };
                new += (stretch.to - stretch.from) as usize;
                stretch
            };
            done += (stretch.to - stretch.from) as usize;
            at = Some((stretch.run, stretch.to as usize));
            self.work.pinned.push(stretch.run);
            stretches.push(stretch);
        }
        self.work.keys = keys;
        self.work.stretches = stretches;
        (new, done)
    }

    /// Where the block with this key is, if it follows `at` and has a place.
    fn find_next(&self, at: Option<(RunId, usize)>, key: u64) -> Option<(RunId, usize)> {
        let Some((run, offset)) = at else {
            return self.run_starting_with(key).map(|run| (run, 0));
        };
        let shape = self.runs.record(run).shape();
        if offset < shape.len as usize && self.blocks_of(run).0[offset].load(Ordering::Relaxed) == key {
            return Some((run, offset));
        }
        if shape.flags & HAS_CHILDREN == 0 {
            return None;
        }
        self.run_starting_with(key).map(|run| (run, 0))
    }

    /// How many keys go along with the run from `offset` on. The first does.
    fn count_matching(&self, run: RunId, offset: usize, keys: &[u64]) -> usize {
        let len = self.len_of(run);
        let stored = &self.blocks_of(run).0[offset..len];
        let reach = stored.len().min(keys.len());
        let same = |index: usize| stored[index].load(Ordering::Relaxed) == keys[index];
        if same(reach - 1) {
            return reach;
        }
        let (mut low, mut high) = (0, reach - 1);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if same(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low + 1
    }

    /// How many keys from `start` on are new. While runs dangle, one of them may begin with any of the keys.
    fn new_blocks_from(&self, keys: &[u64], start: usize) -> usize {
        if self.dangling.is_empty() || planted!(self.config, DanglingForgotten) {
            return keys.len() - start;
        }
        let known = keys[start + 1..]
            .iter()
            .position(|key| self.run_starting_with(*key).is_some());
        known.map_or(keys.len() - start, |count| count + 1)
    }

    /// Puts new blocks at the end of the run that `at` is the end of, or into a run of their own.
    fn add_blocks(&mut self, at: Option<(RunId, usize)>, keys: &[u64], blocks: &[StoredBlock]) -> Option<Stretch> {
        if keys.is_empty() {
            return None;
        }
        let labels = |count: usize| blocks[..count].iter().map(|block| block.label.get());
        let stretch = match at {
            Some((run, offset)) if offset == self.len_of(run) && offset < MAX_RUN => {
                let count = keys.len().min(MAX_RUN - offset);
                self.append(run, &keys[..count], labels(count));
                Stretch {
                    run,
                    from: offset as u16,
                    to: (offset + count) as u16,
                }
            }
            _ => {
                let count = keys.len().min(MAX_RUN);
                let run = self.create(&keys[..count], labels(count))?;
                self.link(run, at);
                Stretch {
                    run,
                    from: 0,
                    to: count as u16,
                }
            }
        };
        self.index_labels(stretch, blocks);
        self.link_after(stretch, keys);
        self.blocks += u64::from(stretch.to - stretch.from);
        Some(stretch)
    }

    /// Runs that missed one of these blocks follow it now.
    fn link_after(&mut self, stretch: Stretch, keys: &[u64]) {
        if self.dangling.is_empty() || planted!(self.config, DanglingForgotten) {
            return;
        }
        for (offset, key) in (stretch.from..stretch.to).zip(keys) {
            for run in self.dangling.after(BlockKey(*key)) {
                self.link(run, Some((stretch.run, offset as usize + 1)));
            }
        }
    }

    fn create(&mut self, keys: &[u64], labels: impl Iterator<Item = u64>) -> Option<RunId> {
        let run = self.runs.take()?;
        let blocks = self.alloc_blocks(run, keys.len());
        self.write_blocks(blocks, 0, keys, labels);
        let shape = Shape {
            len: keys.len() as u16,
            ..Shape::default()
        };
        let record = self.runs.record(run);
        record.set_usual_child(0);
        record.put(&Fields {
            first: keys[0],
            last: keys[keys.len() - 1],
            shape,
            blocks,
            ..Fields::default()
        });
        record.end();
        self.first_keys.insert(keys[0], u64::from(run));
        Some(run)
    }

    fn append(&mut self, run: RunId, keys: &[u64], labels: impl Iterator<Item = u64>) {
        let mut fields = self.runs.record(run).fields();
        let (old, new) = (fields.shape.len as usize, fields.shape.len as usize + keys.len());
        let room = room_of(self.heap.header(fields.blocks).words);
        let old_blocks = fields.blocks;
        if new > room {
            // Decoding adds block after block: some room ahead, so that not every one moves the run.
            let wanted = (new + new / 8 + 1).min(MAX_RUN);
            fields.blocks = self.alloc_blocks(run, wanted);
            self.copy_blocks(old_blocks, fields.blocks, old);
        }
        self.write_blocks(fields.blocks, old, keys, labels);
        fields.last = keys[keys.len() - 1];
        fields.shape.len = new as u16;
        self.lengthen(run, fields);
        if fields.blocks != old_blocks {
            self.free_blocks(old_blocks);
        }
        self.runs.meta_mut(run).recent = true;
    }

    fn write_blocks(&mut self, addr: Addr, start: usize, keys: &[u64], labels: impl Iterator<Item = u64>) {
        let (to_keys, to_labels) = self.blocks_at(addr);
        for (to, key) in to_keys[start..].iter().zip(keys) {
            to.store(*key, Ordering::Relaxed);
        }
        for (to, label) in to_labels[start..start + keys.len()].iter().zip(labels) {
            to.store(label, Ordering::Relaxed);
        }
    }

    pub(crate) fn copy_blocks(&mut self, from: Addr, to: Addr, count: usize) {
        let (from_keys, from_labels) = self.blocks_at(from);
        let (to_keys, to_labels) = self.blocks_at(to);
        for (from, to) in [(from_keys, to_keys), (from_labels, to_labels)] {
            for (from, to) in from[..count].iter().zip(to) {
                to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn alloc_blocks(&mut self, run: RunId, room: usize) -> Addr {
        self.block_slots += room as u64;
        self.heap.alloc(Kind::Blocks, 1 + 2 * room as u32, run)
    }

    pub(crate) fn free_blocks(&mut self, addr: Addr) {
        self.block_slots -= room_of(self.heap.header(addr).words) as u64;
        self.heap.free(addr);
    }

    /// Makes the run a child of the block before `at`.
    pub(crate) fn link(&mut self, run: RunId, at: Option<(RunId, usize)>) {
        if self.runs.meta(run).dangling {
            self.dangling.remove(run);
        }
        let Some((parent, end)) = at else {
            let meta = self.runs.meta_mut(run);
            (meta.parent, meta.depth, meta.dangling) = (0, 0, false);
            return;
        };
        let (parent_depth, next) = (self.runs.meta(parent).depth, self.runs.meta(parent).first_kid);
        let meta = self.runs.meta_mut(run);
        meta.dangling = false;
        (meta.parent, meta.parent_offset, meta.depth) = (parent, end as u16 - 1, parent_depth + end as u32);
        (meta.next, meta.prev) = (next, 0);
        if next != 0 {
            self.runs.meta_mut(next).prev = run;
        }
        let meta = self.runs.meta_mut(parent);
        meta.first_kid = run;
        meta.kid_reach = meta.kid_reach.max(end as u16);
        self.mark_parent(parent, end as u16, run);
    }

    /// Lets readers know that something follows this run.
    fn mark_parent(&mut self, run: RunId, departure: u16, child: RunId) {
        let record = self.runs.record(run);
        let mut fields = record.fields();
        if fields.shape.flags & HAS_CHILDREN == 0 {
            fields.shape.flags |= HAS_CHILDREN;
            fields.shape.departure = departure;
            record.begin();
            record.set_usual_child(child);
            record.put(&fields);
            record.end();
        }
    }

    /// The run follows nothing any more.
    pub(crate) fn unlink(&mut self, run: RunId) {
        let meta = *self.runs.meta(run);
        if meta.parent == 0 {
            return;
        }
        if meta.prev == 0 {
            self.runs.meta_mut(meta.parent).first_kid = meta.next;
        } else {
            self.runs.meta_mut(meta.prev).next = meta.next;
        }
        if meta.next != 0 {
            self.runs.meta_mut(meta.next).prev = meta.prev;
        }
        let only = self.runs.meta(meta.parent).first_kid;
        if only == 0 {
            self.runs.meta_mut(meta.parent).kid_reach = 0;
        } else if self.runs.meta(only).next == 0 {
            self.housekeeping.merge_requested(meta.parent);
        }
        let meta = self.runs.meta_mut(run);
        (meta.parent, meta.next, meta.prev) = (0, 0, 0);
    }

    /// Cuts the links of children that follow blocks from `start` on: those blocks are about to go.
    pub(crate) fn cut_kids(&mut self, run: RunId, start: usize) {
        if self.runs.meta(run).kid_reach as usize <= start {
            return;
        }
        let mut kid = self.runs.meta(run).first_kid;
        let mut reach = 0;
        while kid != 0 {
            let meta = *self.runs.meta(kid);
            if meta.parent_offset as usize >= start {
                let parent_key = self.key_at(Place {
                    run,
                    offset: meta.parent_offset,
                });
                self.unlink(kid);
                self.runs.meta_mut(kid).dangling = true;
                self.dangling.insert(kid, parent_key);
            } else {
                reach = reach.max(meta.parent_offset + 1);
            }
            kid = meta.next;
        }
        self.runs.meta_mut(run).kid_reach = reach;
    }

    /// Enters the labels of new blocks; the buckets of those to come are asked for meanwhile.
    fn index_labels(&mut self, stretch: Stretch, blocks: &[StoredBlock]) {
        let blocks = &blocks[..(stretch.to - stretch.from) as usize];
        let mut hashes = [0; AHEAD];
        for (hash, block) in hashes.iter_mut().zip(blocks) {
            *hash = label_hash(block.label);
            self.labels.prefetch(*hash);
        }
        for (index, block) in blocks.iter().enumerate() {
            let hash = hashes[index % AHEAD];
            if let Some(later) = blocks.get(index + AHEAD) {
                hashes[index % AHEAD] = label_hash(later.label);
                self.labels.prefetch(hashes[index % AHEAD]);
            }
            let place = Place {
                run: stretch.run,
                offset: stretch.from + index as u16,
            };
            let (runs, heap) = (&self.runs, &self.heap);
            let is_same = |other| run_label(runs, heap, Place::decode(other)) == block.label;
            if self.labels.insert_noting(hash, place.encode(), is_same) {
                self.ambiguous.insert(block.label);
            }
        }
    }
}

/// The run's own label of a block.
fn run_label(runs: &Runs, heap: &Heap, place: Place) -> Label {
    let words = heap.words(runs.record(place.run).blocks());
    let room = room_of(Header::decode(words[0].load(Ordering::Relaxed)).words);
    Label::new(words[1 + room + place.offset as usize].load(Ordering::Relaxed))
}

/// Blocks that an extent has room for.
pub(crate) fn room_of(words: u32) -> usize {
    (words as usize - 1) / 2
}
