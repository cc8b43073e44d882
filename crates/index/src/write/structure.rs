//! Where does a block live? Blocks that follow each other are kept in runs; a run grows at its end and is never split by
//! a store: a sequence that departs from it in the middle continues in another run, found by the key of its first block.
//!
//! **Invariant:** a key is at one place at most. Before a block is given a place it is looked for after its parent, in
//! the same run; among the first blocks of runs; and, while there are runs whose parent block is missing, again for each
//! block that follows.

use homing_domain::{BlockKey, Label, StoredBlock};

use super::ahead::Ahead;
use super::{Place, Stretch};
use crate::blocks::{Blocks, regroup, room_of, words_of};
use crate::bugs::planted;
use crate::heap::{Addr, Header, Heap, Kind};
use crate::index::Index;
use crate::record::{Fields, HAS_CHILDREN, MAX_RUN, RunId, Shape};
use crate::runs::Runs;
use crate::samples::sampled;
use crate::slots::label_hash;
use crate::sync::Ordering;

impl Index {
    pub(crate) fn len_of(&self, run: RunId) -> usize {
        self.runs.record(run).shape().len as usize
    }

    /// Keys and labels of a run.
    #[inline]
    pub(crate) fn blocks_of(&self, run: RunId) -> Blocks<'_> {
        self.blocks_at(self.runs.record(run).blocks())
    }

    #[inline]
    fn blocks_at(&self, addr: Addr) -> Blocks<'_> {
        blocks_in(&self.heap, addr)
    }

    fn room_at(&self, addr: Addr) -> usize {
        room_of(self.heap.header(addr).words)
    }

    pub(crate) fn key_at(&self, place: Place) -> BlockKey {
        BlockKey(self.blocks_of(place.run).key(place.offset as usize))
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
        self.work.known = 0;
        self.work.pinned.extend(parent.map(|place| place.run));
        let mut at = parent.map(|place| (place.run, place.offset as usize + 1));
        let (mut done, mut new) = (0, 0);
        while done < keys.len() {
            let found = self.find_next(at, keys[done]);
            let stretch = if let Some((run, offset)) = found {
                let count = self.count_matching(run, offset, &keys[done..]);
                self.work.known = stretches.len() + 1;
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
        if offset < shape.len as usize && self.blocks_of(run).key(offset) == key {
            return Some((run, offset));
        }
        if shape.flags & HAS_CHILDREN == 0 {
            return None;
        }
        self.run_starting_with(key).map(|run| (run, 0))
    }

    /// How many keys go along with the run from `offset` on. The first does.
    fn count_matching(&self, run: RunId, offset: usize, keys: &[u64]) -> usize {
        let stored = self.blocks_of(run);
        let reach = (self.len_of(run) - offset).min(keys.len());
        let same = |index: usize| stored.key(offset + index) == keys[index];
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

    /// How many keys from `start` on are new. While forks dangle, a run of one may begin with any of the keys.
    fn new_blocks_from(&self, keys: &[u64], start: usize) -> usize {
        if self.forks.dangling == 0 || planted!(self.config, DanglingForgotten) {
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
                let only = at
                    .map(|(parent, _)| parent)
                    .filter(|parent| self.runs.meta(*parent).first_fork == 0);
                let run = self.create(&keys[..count], labels(count), only.unwrap_or(0))?;
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

    /// A number for a run. One that labels still lead to is not given again.
    pub(crate) fn take_run(&mut self, first: u64, after: RunId) -> Option<RunId> {
        let run = self.runs.take(first, after)?;
        if self.renumbered.old == run {
            self.renumber_labels(u32::MAX);
        }
        Some(run)
    }

    /// A run of its own, near the run `after` if that is not 0.
    fn create(&mut self, keys: &[u64], labels: impl Iterator<Item = u64>, after: RunId) -> Option<RunId> {
        let run = self.take_run(keys[0], after)?;
        let blocks = self.alloc_blocks(run, keys.len());
        self.write_blocks(blocks, 0, keys, labels);
        let shape = Shape {
            len: keys.len() as u16,
            ..Shape::default()
        };
        self.note_samples(run, blocks, 0, keys.len());
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
        let old_blocks = fields.blocks;
        if new > self.room_at(old_blocks) && !self.extend_blocks(old_blocks, old, new) {
            // Decoding adds block after block: some room ahead, so that not every one moves the run.
            let wanted = (new + new / 8 + 1).min(MAX_RUN);
            fields.blocks = self.alloc_blocks(run, wanted);
            self.copy_blocks(old_blocks, fields.blocks, old);
        }
        self.write_blocks(fields.blocks, old, keys, labels);
        self.note_samples(run, fields.blocks, old, new);
        fields.last = keys[keys.len() - 1];
        fields.shape.len = new as u16;
        self.lengthen(run, fields);
        if fields.blocks != old_blocks {
            self.free_blocks(old_blocks);
        }
        self.runs.meta_mut(run).recent = true;
    }

    fn write_blocks(&mut self, addr: Addr, start: usize, keys: &[u64], labels: impl Iterator<Item = u64>) {
        self.blocks_at(addr).put(start, keys.iter().copied().zip(labels));
    }

    /// Takes samples of the blocks in an extent that will be a run's, from `start` on.
    pub(crate) fn note_samples(&self, run: RunId, addr: Addr, start: usize, end: usize) {
        let (samples, blocks) = (self.runs.samples(run), self.blocks_at(addr));
        sampled(start, end).for_each(|offset| samples.note(offset, blocks.key(offset)));
    }

    pub(crate) fn copy_blocks(&mut self, from: Addr, to: Addr, count: usize) {
        self.blocks_at(from).copy_to(self.blocks_at(to), count);
    }

    /// Puts the first `count` blocks of one extent behind the first `start` of another.
    pub(crate) fn append_blocks(&mut self, from: Addr, to: Addr, start: usize, count: usize) {
        let from = self.blocks_at(from);
        self.blocks_at(to)
            .put(start, (0..count).map(|offset| (from.key(offset), from.label(offset))));
    }

    pub(crate) fn alloc_blocks(&mut self, run: RunId, room: usize) -> Addr {
        self.block_slots += room as u64;
        self.heap.alloc(Kind::Blocks, words_of(room), run)
    }

    pub(crate) fn free_blocks(&mut self, addr: Addr) {
        self.block_slots -= self.room_at(addr) as u64;
        self.heap.free(addr);
    }

    /// Makes room for `room` blocks behind the first `count` without moving them, if what lies behind is free.
    fn extend_blocks(&mut self, addr: Addr, count: usize, room: usize) -> bool {
        let before = self.room_at(addr);
        if !self.heap.extend(addr, words_of(room)) {
            return false;
        }
        regroup(self.heap.words(addr), count, before, room);
        self.block_slots += (room - before) as u64;
        true
    }

    /// Gives room back that the first `count` blocks do not need.
    pub(crate) fn tighten_blocks(&mut self, addr: Addr, count: usize) {
        let before = self.room_at(addr);
        regroup(self.heap.words(addr), count, before, count);
        self.heap.shrink(addr, words_of(count));
        self.block_slots -= (before - count) as u64;
    }

    /// Enters the labels of new blocks; the buckets of those to come are asked for meanwhile.
    fn index_labels(&mut self, stretch: Stretch, blocks: &[StoredBlock]) {
        let blocks = &blocks[..(stretch.to - stretch.from) as usize];
        let hash_of = |index: usize| blocks.get(index).map(|block| label_hash(block.label));
        let mut ahead = Ahead::new(&self.labels, hash_of);
        for (index, block) in blocks.iter().enumerate() {
            let hash = ahead.turn(&self.labels, index, hash_of);
            let place = Place {
                run: stretch.run,
                offset: stretch.from + index as u16,
            };
            let (runs, heap, renumbered) = (&self.runs, &self.heap, self.renumbered);
            let is_same = |other| run_label(runs, heap, renumbered.place(other)) == block.label;
            if self.labels.insert_noting(hash, place.encode(), is_same) {
                self.ambiguous.insert(block.label);
            }
        }
    }
}

/// The run's own label of a block.
#[inline]
fn run_label(runs: &Runs, heap: &Heap, place: Place) -> Label {
    Label::new(blocks_in(heap, runs.record(place.run).blocks()).label(place.offset as usize))
}

/// Keys and labels in the extent at `addr`.
#[inline]
pub(crate) fn blocks_in(heap: &Heap, addr: Addr) -> Blocks<'_> {
    let words = heap.words(addr);
    Blocks::new(words, Header::decode(words[0].load(Ordering::Relaxed)).words)
}
