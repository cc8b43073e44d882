//! Which prompts are active, and where? A tree of the prompts of all bookings, with the ranks that have each part.
//!
//! A key stands for a whole prefix, so that two prompts which have a key in common have everything before it in common too:
//! the first key of a node finds it, and where two prompts part is found by halving.
//!
//! **Invariant:** the ranks of a node are among those of its parent; a node without ranks does not exist.

use std::sync::Arc;

use homing_domain::BlockKey;
use homing_profile::Time;
use rustc_hash::FxHashMap;

const NONE: u32 = u32::MAX;

/// The last node of a booked prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail(u32);

#[derive(Clone, Copy, Debug)]
struct Owner {
    place: u32,
    bookings: u32,
    /// When the first of them is predicted to have been computed.
    ready: Time,
}

#[derive(Debug)]
struct Node {
    /// The prompt that it was made for; `start..end` of it is this node's.
    keys: Arc<[BlockKey]>,
    start: usize,
    end: usize,
    parent: u32,
    /// Ordered by place.
    owners: Vec<Owner>,
}

impl Node {
    /// How many keys of the node, from its first on, are those of `keys`.
    fn common(&self, keys: &[BlockKey]) -> usize {
        let mine = &self.keys[self.start..self.end];
        let theirs = &keys[self.start.min(keys.len())..];
        let shorter = mine.len().min(theirs.len());
        if shorter > 0 && mine[shorter - 1] == theirs[shorter - 1] {
            return shorter;
        }
        let (mut same, mut other) = (0, shorter);
        while same < other {
            let middle = usize::midpoint(same, other);
            if mine[middle] == theirs[middle] {
                same = middle + 1;
            } else {
                other = middle;
            }
        }
        same
    }
}

/// What a new prompt meant for its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) tail: Option<Tail>,
    /// Blocks that no other booking of the rank has.
    pub(crate) new_blocks: u32,
    /// Blocks that are not in the tree, because their key stands elsewhere in it: keys collided.
    pub(crate) left_out: u32,
}

/// All active prompts.
#[derive(Debug, Default)]
pub(crate) struct Prompts {
    nodes: Vec<Node>,
    free: Vec<u32>,
    first: FxHashMap<BlockKey, u32>,
}

impl Prompts {
    pub(crate) fn join(&mut self, keys: &Arc<[BlockKey]>, place: u32, ready: Time) -> Joined {
        let (mut at, mut parent, mut new_blocks) = (0, NONE, 0);
        while at < keys.len() {
            let node = match self.first.get(&keys[at]) {
                None => self.create(keys, at, parent),
                Some(&found) if self.nodes[found as usize].start != at => break,
                Some(&found) => {
                    let common = self.nodes[found as usize].common(keys);
                    self.split(found, common)
                }
            };
            if self.own(node, place, ready) {
                new_blocks += self.length(node);
            }
            at = self.nodes[node as usize].end;
            parent = node;
        }
        Joined {
            tail: (parent != NONE).then_some(Tail(parent)),
            new_blocks,
            left_out: (keys.len() - at) as u32,
        }
    }

    /// One booking less. Returns the blocks that its rank no longer has in use.
    pub(crate) fn leave(&mut self, tail: Tail, place: u32) -> u32 {
        let (mut node, mut freed) = (tail.0, 0);
        while node != NONE {
            let parent = self.nodes[node as usize].parent;
            if self.disown(node, place) {
                freed += self.length(node);
            }
            if self.nodes[node as usize].owners.is_empty() {
                self.forget(node);
            }
            node = parent;
        }
        freed
    }

    /// The booked prompt has been computed.
    pub(crate) fn computed(&mut self, tail: Tail, place: u32, now: Time) {
        let mut node = tail.0;
        while node != NONE {
            let this = &mut self.nodes[node as usize];
            if let Ok(at) = this.owners.binary_search_by_key(&place, |owner| owner.place) {
                this.owners[at].ready = this.owners[at].ready.min(now);
            }
            node = this.parent;
        }
    }

    /// Tells for each rank how many leading blocks of `keys` are active there, and when they are computed; of several words
    /// about one rank the last is right.
    pub(crate) fn visit(&self, keys: &[BlockKey], mut tell: impl FnMut(u32, u32, Time)) {
        let mut at = 0;
        while let Some(&found) = keys.get(at).and_then(|key| self.first.get(key)) {
            let node = &self.nodes[found as usize];
            if node.start != at {
                return;
            }
            at += node.common(keys);
            for owner in &node.owners {
                tell(owner.place, at as u32, owner.ready);
            }
            if at < node.end {
                return;
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn length(&self, node: u32) -> u32 {
        (self.nodes[node as usize].end - self.nodes[node as usize].start) as u32
    }

    fn create(&mut self, keys: &Arc<[BlockKey]>, start: usize, parent: u32) -> u32 {
        let node = Node {
            keys: keys.clone(),
            start,
            end: keys.len(),
            parent,
            owners: Vec::new(),
        };
        let id = self.place(node);
        self.first.insert(keys[start], id);
        id
    }

    /// Parts a node after its first `common` blocks and returns the part before. The part behind keeps the number, because
    /// the bookings that end there know it.
    fn split(&mut self, node: u32, common: usize) -> u32 {
        let behind = &mut self.nodes[node as usize];
        if common >= behind.end - behind.start {
            return node;
        }
        let middle = behind.start + common;
        let before = Node {
            keys: behind.keys.clone(),
            start: behind.start,
            end: middle,
            parent: behind.parent,
            owners: behind.owners.clone(),
        };
        let (first_before, first_behind) = (behind.keys[behind.start], behind.keys[middle]);
        behind.start = middle;
        let id = self.place(before);
        self.nodes[node as usize].parent = id;
        self.first.insert(first_before, id);
        self.first.insert(first_behind, node);
        id
    }

    fn place(&mut self, node: Node) -> u32 {
        if let Some(id) = self.free.pop() {
            self.nodes[id as usize] = node;
            return id;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    fn forget(&mut self, node: u32) {
        let this = &mut self.nodes[node as usize];
        self.first.remove(&this.keys[this.start]);
        this.keys = Arc::from([]);
        (this.start, this.end) = (0, 0);
        self.free.push(node);
    }

    /// Whether the rank had no booking here before.
    fn own(&mut self, node: u32, place: u32, ready: Time) -> bool {
        let owners = &mut self.nodes[node as usize].owners;
        match owners.binary_search_by_key(&place, |owner| owner.place) {
            Ok(at) => {
                owners[at].bookings += 1;
                owners[at].ready = owners[at].ready.min(ready);
                false
            }
            Err(at) => {
                let bookings = 1;
                owners.insert(at, Owner { place, bookings, ready });
                true
            }
        }
    }

    /// Whether the rank has no booking here any more.
    fn disown(&mut self, node: u32, place: u32) -> bool {
        let owners = &mut self.nodes[node as usize].owners;
        let Ok(at) = owners.binary_search_by_key(&place, |owner| owner.place) else {
            return false;
        };
        owners[at].bookings -= 1;
        if owners[at].bookings == 0 {
            owners.remove(at);
            return true;
        }
        false
    }
}
