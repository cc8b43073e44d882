//! Which runs follow which block? All that follow one block are a *fork*: a list of runs, the first of which, its head, knows for all
//! of them where the block is. So a beginning that a hundred thousand sequences share is moved, cut off or stored again as fast as one
//! that two share.
//!
//! A fork *dangles* while its block is not in the index: what its runs hold lies behind a hole that every rank has. It is put behind
//! the block when that comes.
//!
//! **Invariant:** every run that does not begin a sequence is in the one fork that the key of the block before it leads to.
//!
//! Cost: constant for a run that comes or goes; one step for each fork of a run that is moved or cut, of which there is at most one for
//! each of its blocks.

use homing_domain::BlockKey;

use super::{Place, Stretch};
use crate::bugs::planted;
use crate::index::Index;
use crate::record::{HAS_CHILDREN, Record, RunId};
use crate::runs::RunMeta;
use crate::table::Table;

/// Of so many runs that follow one, readers try the first that came before they look where its key says.
const FEW_KIDS: usize = 2;

/// All forks.
#[derive(Debug)]
pub(crate) struct Forks {
    /// From the key of a block to the head of the fork after it.
    pub(crate) heads: Table,
    /// Forks that dangle. While there are any, new blocks may be those that they miss.
    pub(crate) dangling: u64,
}

impl Default for Forks {
    fn default() -> Self {
        Self {
            // No reader looks, but most indexes have few forks, and a table of the writer begins with a whole chunk.
            heads: Table::of_readers(),
            dangling: 0,
        }
    }
}

impl Index {
    /// The head of the fork after the block with this key.
    fn fork_after(&self, key: u64) -> Option<RunId> {
        let is_it = |head: u64| self.runs.meta(head as RunId).before == key;
        self.forks.heads.find(key, is_it).map(|head| head as RunId)
    }

    /// The block that this run follows, if it is in the index.
    pub(crate) fn parent_of(&self, run: RunId) -> Option<Place> {
        let meta = self.runs.meta(run);
        if meta.begins {
            return None;
        }
        let head = self.runs.meta(self.fork_after(meta.before)?);
        (head.parent != 0).then_some(Place {
            run: head.parent,
            offset: head.parent_offset,
        })
    }

    /// Makes a new run follow the block before `at`, or begin a sequence.
    pub(crate) fn link(&mut self, run: RunId, at: Option<(RunId, usize)>) {
        let Some((parent, end)) = at else {
            self.runs.meta_mut(run).begins = true;
            return;
        };
        let place = Place {
            run: parent,
            offset: end as u16 - 1,
        };
        let before = self.key_at(place).0;
        let depth = self.runs.meta(parent).depth + end as u32;
        let head = self.fork_after(before);
        let meta = self.runs.meta_mut(run);
        (meta.begins, meta.before, meta.depth) = (false, before, depth);
        if let Some(head) = head {
            self.join_fork(run, head);
        } else {
            self.forks.heads.insert(before, u64::from(run));
            self.attach(run, place);
        }
        self.mark_parent(parent, end as u16, run);
    }

    fn join_fork(&mut self, run: RunId, head: RunId) {
        let next = std::mem::replace(&mut self.runs.meta_mut(head).next, run);
        let meta = self.runs.meta_mut(run);
        (meta.prev, meta.next) = (head, next);
        if next != 0 {
            self.runs.meta_mut(next).prev = run;
        }
    }

    /// Puts a fork behind a block.
    fn attach(&mut self, head: RunId, place: Place) {
        let next = std::mem::replace(&mut self.runs.meta_mut(place.run).first_fork, head);
        let meta = self.runs.meta_mut(head);
        (meta.parent, meta.parent_offset) = (place.run, place.offset);
        (meta.next_fork, meta.prev_fork) = (next, 0);
        if next != 0 {
            self.runs.meta_mut(next).prev_fork = head;
        }
        let parent = self.runs.meta_mut(place.run);
        parent.kid_reach = parent.kid_reach.max(place.offset + 1);
    }

    /// Takes a fork away from its block.
    fn detach(&mut self, head: RunId) {
        let meta = *self.runs.meta(head);
        if meta.next_fork != 0 {
            self.runs.meta_mut(meta.next_fork).prev_fork = meta.prev_fork;
        }
        if meta.prev_fork != 0 {
            self.runs.meta_mut(meta.prev_fork).next_fork = meta.next_fork;
        } else {
            self.runs.meta_mut(meta.parent).first_fork = meta.next_fork;
        }
        let meta = self.runs.meta_mut(head);
        (meta.parent, meta.next_fork, meta.prev_fork) = (0, 0, 0);
    }

    /// Forks that missed one of these blocks follow it now.
    pub(crate) fn link_after(&mut self, stretch: Stretch, keys: &[u64]) {
        if self.forks.dangling == 0 || planted!(self.config, DanglingForgotten) {
            return;
        }
        for (offset, key) in (stretch.from..stretch.to).zip(keys) {
            let fork = self.fork_after(*key);
            if let Some(head) = fork.filter(|head| self.runs.meta(*head).parent == 0) {
                let run = stretch.run;
                self.attach(head, Place { run, offset });
                self.forks.dangling -= 1;
                self.mark_parent(run, offset + 1, head);
            }
        }
    }

    /// Lets readers know that something follows this run, and what it is while few do: where many do, it is any of them.
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
        } else if Record::usual_child(record.version()) != 0 && self.kids(run).nth(FEW_KIDS).is_some() {
            self.set_usual_child(run, 0);
        }
    }

    /// The runs that follow this one.
    fn kids(&self, run: RunId) -> impl Iterator<Item = RunId> {
        self.forks_of(run)
            .flat_map(move |head| self.chain(head, |meta| meta.next))
    }

    /// The heads of the forks of a run.
    pub(crate) fn forks_of(&self, run: RunId) -> impl Iterator<Item = RunId> {
        self.chain(self.runs.meta(run).first_fork, |meta| meta.next_fork)
    }

    /// The runs of a list.
    pub(crate) fn chain(&self, first: RunId, next: impl Fn(&RunMeta) -> RunId) -> impl Iterator<Item = RunId> {
        let some = |run: RunId| Some(run).filter(|run| *run != 0);
        std::iter::successors(some(first), move |run| some(next(self.runs.meta(*run))))
    }

    /// The one run that follows this one, and nothing else does.
    pub(crate) fn only_kid(&self, run: RunId) -> Option<RunId> {
        let mut kids = self.kids(run);
        kids.next().filter(|_| kids.next().is_none())
    }

    /// Changes which run readers try first where the path leaves this one.
    pub(crate) fn set_usual_child(&mut self, run: RunId, child: RunId) {
        let record = self.runs.record(run);
        record.begin();
        record.set_usual_child(child);
        record.end();
    }

    /// The run leaves its fork, for good.
    pub(crate) fn unlink(&mut self, run: RunId) {
        let meta = *self.runs.meta(run);
        if meta.begins {
            return;
        }
        if meta.next != 0 {
            self.runs.meta_mut(meta.next).prev = meta.prev;
        }
        if meta.prev != 0 {
            self.runs.meta_mut(meta.prev).next = meta.next;
            self.merge_if_only(meta.prev);
        } else if meta.next != 0 {
            self.succeed(run, meta.next);
            self.merge_if_only(meta.next);
        } else {
            self.end_fork(run, &meta);
        }
    }

    /// Another run of the fork, or another number of the same run, is its head.
    fn succeed(&mut self, old: RunId, new: RunId) {
        let meta = *self.runs.meta(old);
        let head = self.runs.meta_mut(new);
        (head.parent, head.parent_offset) = (meta.parent, meta.parent_offset);
        (head.next_fork, head.prev_fork) = (meta.next_fork, meta.prev_fork);
        if meta.next_fork != 0 {
            self.runs.meta_mut(meta.next_fork).prev_fork = new;
        }
        if meta.prev_fork != 0 {
            self.runs.meta_mut(meta.prev_fork).next_fork = new;
        } else if meta.parent != 0 {
            self.runs.meta_mut(meta.parent).first_fork = new;
        }
        if planted!(self.config, HeirForgotten) {
            self.forks.heads.remove(meta.before, u64::from(old));
        } else {
            self.forks.heads.replace(meta.before, u64::from(old), u64::from(new));
        }
    }

    /// The last run of a fork goes.
    fn end_fork(&mut self, run: RunId, meta: &RunMeta) {
        self.forks.heads.remove(meta.before, u64::from(run));
        if meta.parent == 0 {
            self.forks.dangling -= 1;
            return;
        }
        self.detach(run);
        match self.runs.meta(meta.parent).first_fork {
            0 => self.runs.meta_mut(meta.parent).kid_reach = 0,
            head => self.merge_if_only(head),
        }
    }

    /// What has one run left that follows it can perhaps be one with it.
    fn merge_if_only(&mut self, kid: RunId) {
        let meta = self.runs.meta(kid);
        let is_only = meta.next == 0 && meta.prev == 0 && meta.next_fork == 0 && meta.prev_fork == 0;
        if is_only && meta.parent != 0 {
            self.housekeeping.merge_requested(meta.parent);
        }
    }

    /// Lets the forks dangle that follow blocks from `start` on: those blocks are about to go.
    pub(crate) fn cut_forks(&mut self, run: RunId, start: usize) {
        if self.runs.meta(run).kid_reach as usize <= start {
            return;
        }
        let mut head = self.runs.meta(run).first_fork;
        let mut reach = 0;
        while head != 0 {
            let meta = *self.runs.meta(head);
            if meta.parent_offset as usize >= start {
                self.detach(head);
                self.forks.dangling += 1;
            } else {
                reach = reach.max(meta.parent_offset + 1);
            }
            head = meta.next_fork;
        }
        self.runs.meta_mut(run).kid_reach = reach;
    }

    /// Whatever led to a run, and everything that follows it, knows it by its new number. What is known of it is there already.
    pub(crate) fn relink(&mut self, old: RunId, new: RunId) {
        let meta = *self.runs.meta(new);
        let parent = self.parent_of(old).map_or(0, |parent| parent.run);
        self.move_forks(meta.first_fork, new, 0);
        if meta.begins {
            return;
        }
        if meta.next != 0 {
            self.runs.meta_mut(meta.next).prev = new;
        }
        if meta.prev != 0 {
            self.runs.meta_mut(meta.prev).next = new;
        } else {
            self.succeed(old, new);
        }
        if parent != 0 && Record::usual_child(self.runs.record(parent).version()) == old {
            self.set_usual_child(parent, new);
        }
    }

    /// The forks of a list are those of another run now, so many blocks further on.
    fn move_forks(&mut self, first: RunId, run: RunId, shift: u16) {
        let mut head = first;
        while head != 0 {
            let meta = self.runs.meta_mut(head);
            meta.parent = run;
            meta.parent_offset += shift;
            head = meta.next_fork;
        }
    }

    /// A run becomes the end of the one that it alone follows: its forks are forks of that one.
    pub(crate) fn adopt_forks(&mut self, run: RunId, child: RunId, shift: u16) {
        let meta = *self.runs.meta(child);
        self.forks.heads.remove(meta.before, u64::from(child));
        self.move_forks(meta.first_fork, run, shift);
        let parent = self.runs.meta_mut(run);
        parent.first_fork = meta.first_fork;
        parent.kid_reach = match meta.first_fork {
            0 => 0,
            _ => meta.kid_reach + shift,
        };
    }

    /// The key of the block before a run.
    pub(crate) fn key_before(&self, run: RunId) -> BlockKey {
        let meta = self.runs.meta(run);
        if meta.begins {
            self.config.hasher.root()
        } else {
            BlockKey(meta.before)
        }
    }
}
