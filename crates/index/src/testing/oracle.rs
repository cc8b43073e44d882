//! Which answer is right? The naive model that every answer of the index is compared with.

use std::collections::{BTreeMap, BTreeSet};

use homing_domain::{BlockKey, CacheGroup, ClearScope, ContentHash, KeyHasher, Label, RankId, Removed, Stored, Tier};
use rustc_hash::FxHashMap;

use crate::Copies;

/// Where the block that a rank calls by some label is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Its ancestors are known, so it has a key.
    At(BlockKey),
    /// Its parent, called by this label, is not known on the rank. If the label is its own, the parent has none any more.
    Waiting { parent: Label, content: ContentHash },
}

/// What one rank holds: each label names one block, and has so many copies per tier and cache group.
#[derive(Clone, Debug, Default)]
struct Held {
    places: FxHashMap<Label, Place>,
    copies: BTreeMap<(Label, Tier, CacheGroup), u32>,
    /// Labels in `Waiting`, in the order in which they came.
    waiting: Vec<Label>,
    set: bool,
    truncated: bool,
}

/// The naive model of an index.
#[derive(Clone, Debug)]
pub struct Oracle {
    hasher: KeyHasher,
    orphans_per_rank: usize,
    ranks: BTreeMap<RankId, Held>,
    parents: Parents,
}

/// The parent of every block that was ever placed on some rank.
type Parents = BTreeMap<BlockKey, BlockKey>;

/// What every rank holds at some moment: blocks, with the nearest tier of each.
#[derive(Clone, Debug)]
pub struct Truth(BTreeMap<RankId, FxHashMap<BlockKey, Tier>>);

impl Truth {
    /// The number of leading blocks that a rank holds on tiers up to each tier, if there is such a rank.
    pub fn depths(&self, rank: RankId, keys: &[BlockKey]) -> Option<[u32; Tier::COUNT]> {
        let held = self.0.get(&rank)?;
        if keys.first().is_none_or(|key| !held.contains_key(key)) {
            return Some([0; Tier::COUNT]);
        }
        let reaches = |key: &BlockKey, deepest: Tier| held.get(key).is_some_and(|tier| *tier <= deepest);
        Some(Tier::ALL.map(|deepest| keys.iter().take_while(|key| reaches(key, deepest)).count() as u32))
    }

    /// For each rank the number of leading blocks it holds on tiers up to each tier.
    pub fn lookup(&self, keys: &[BlockKey]) -> BTreeMap<RankId, [u32; Tier::COUNT]> {
        let depths = |rank: &RankId| Some((*rank, self.depths(*rank, keys)?));
        self.0.keys().filter_map(depths).collect()
    }
}

impl Oracle {
    /// An empty one that forgets orphans beyond the given number per rank.
    pub fn new(hasher: KeyHasher, orphans_per_rank: usize) -> Self {
        Self {
            hasher,
            orphans_per_rank,
            ranks: BTreeMap::new(),
            parents: Parents::new(),
        }
    }

    /// A rank joins, or is replaced by an empty one.
    pub fn add_rank(&mut self, rank: RankId, copies: Copies) {
        self.ranks.insert(
            rank,
            Held {
                set: copies == Copies::Set,
                ..Held::default()
            },
        );
    }

    /// A rank leaves.
    pub fn drop_rank(&mut self, rank: RankId) {
        self.ranks.remove(&rank);
    }

    /// Blocks came, each stored in turn.
    pub fn store(&mut self, rank: RankId, stored: &Stored) {
        self.store_except(rank, stored, &[]);
    }

    /// Blocks came, each stored in turn, and the index says that it had no room for those that are `refused`. They must be
    /// all that follow the first of them, unless they were held already, and all that wait for one of them.
    pub fn store_except(&mut self, rank: RankId, stored: &Stored, refused: &[(Label, BlockKey)]) {
        let (hasher, limit) = (self.hasher, self.orphans_per_rank);
        let Some(held) = self.ranks.get_mut(&rank) else { return };
        let mut room = Room::new(hasher, &mut self.parents, refused);
        let mut parent = match stored.parent {
            None => Some(hasher.root()),
            Some(label) => held.key_of(label),
        };
        let mut parent_label = stored.parent;
        for block in &stored.blocks {
            let copy = (block.label, stored.tier, stored.group);
            let (before, lost) = (held.key_of(block.label), room.lost.len());
            let follows_a_lost_one = parent.is_some_and(|parent| room.lost.iter().any(|(_, key)| *key == parent));
            parent = match (parent, held.key_of(block.label)) {
                (Some(parent), _) => {
                    let key = hasher.child(parent, block.content);
                    room.parents.insert(key, parent);
                    Some(held.place(&mut room, key, copy))
                }
                // The parent is unknown, but the label is not: it is another copy of that block.
                (None, Some(key)) => Some(held.place(&mut room, key, copy)),
                (None, None) => {
                    let waited_for = parent_label.expect("a block without a parent label has the root as parent");
                    held.wait(waited_for, block.content, copy, limit);
                    None
                }
            };
            assert!(
                !follows_a_lost_one || room.lost.len() > lost || before == parent,
                "{parent:?} was kept although there was no room for the block before it"
            );
            parent_label = Some(block.label);
        }
        room.check();
    }

    /// Blocks went, one copy for each label. Returns how many were not there.
    pub fn remove(&mut self, rank: RankId, removed: &Removed) -> usize {
        let Some(held) = self.ranks.get_mut(&rank) else {
            return removed.labels.len();
        };
        removed
            .labels
            .iter()
            .filter(|label| !held.remove((**label, removed.tier, removed.group)))
            .count()
    }

    /// Everything in a scope went.
    pub fn clear(&mut self, rank: RankId, scope: ClearScope) {
        let Some(held) = self.ranks.get_mut(&rank) else { return };
        match scope {
            ClearScope::AllTiers => {
                *held = Held {
                    set: held.set,
                    ..Held::default()
                }
            }
            ClearScope::Only(tier) => {
                held.copies.retain(|(_, t, _), _| *t != tier);
                held.forget_labels_without_copies();
                // What is waited for may have been on that tier only.
                for label in held.awaited() {
                    held.give_up(label);
                }
            }
        }
    }

    /// The index forgot a block of these ranks to make room for others. It must have been a leaf.
    pub fn forget(&mut self, key: BlockKey, ranks: &[RankId]) {
        for (_, held) in self.ranks.iter_mut().filter(|(rank, _)| ranks.contains(rank)) {
            let is_parent = held.keys().any(|child| self.parents.get(&child) == Some(&key));
            assert!(!is_parent, "{key:?} was forgotten while a child of it is held");
            let mut labels: Vec<Label> = held.places.keys().copied().collect();
            labels.retain(|label| held.key_of(*label) == Some(key));
            held.truncated |= !labels.is_empty();
            held.copies.retain(|(label, _, _), _| !labels.contains(label));
            held.forget_labels_without_copies();
        }
    }

    /// For each rank the number of leading blocks it holds on tiers up to each tier.
    pub fn lookup(&self, keys: &[BlockKey]) -> BTreeMap<RankId, [u32; Tier::COUNT]> {
        self.truth().lookup(keys)
    }

    /// What every rank holds now, for many lookups.
    pub fn truth(&self) -> Truth {
        Truth(self.ranks.iter().map(|(rank, held)| (*rank, held.nearest())).collect())
    }

    /// All keys that some rank holds.
    pub fn held_keys(&self) -> BTreeSet<BlockKey> {
        self.ranks.values().flat_map(Held::keys).collect()
    }

    /// How many blocks were ever placed on some rank.
    pub fn placed(&self) -> usize {
        self.parents.len()
    }

    /// Every sequence of blocks that were ever placed, as far as it goes.
    pub fn sequences(&self) -> Vec<Vec<BlockKey>> {
        let followed: BTreeSet<&BlockKey> = self.parents.values().collect();
        let last = self.parents.keys().filter(|key| !followed.contains(key));
        last.map(|last| {
            let mut keys: Vec<BlockKey> =
                std::iter::successors(Some(*last), |key| self.parents.get(key).copied()).collect();
            // The root is no block.
            keys.pop();
            keys.reverse();
            keys
        })
        .collect()
    }

    /// How many orphans a rank has.
    pub fn orphans(&self, rank: RankId) -> usize {
        self.ranks.get(&rank).map_or(0, |held| held.waiting.len())
    }

    /// Whether a bound made the view of a rank a lower bound.
    pub fn is_truncated(&self, rank: RankId) -> bool {
        self.ranks.get(&rank).is_some_and(|held| held.truncated)
    }
}

type Copy = (Label, Tier, CacheGroup);

/// For which blocks of an event there is no room.
struct Room<'a> {
    hasher: KeyHasher,
    parents: &'a mut Parents,
    /// What the index says.
    refused: &'a [(Label, BlockKey)],
    /// What went because it says so.
    lost: Vec<(Label, BlockKey)>,
}

impl<'a> Room<'a> {
    fn new(hasher: KeyHasher, parents: &'a mut Parents, refused: &'a [(Label, BlockKey)]) -> Self {
        Self {
            hasher,
            parents,
            refused,
            lost: Vec::new(),
        }
    }

    fn is_refused(&self, label: Label, key: BlockKey) -> bool {
        self.refused.contains(&(label, key))
    }

    /// What the index says must be all that went.
    fn check(mut self) {
        let mut refused = self.refused.to_vec();
        refused.sort_unstable();
        self.lost.sort_unstable();
        assert_eq!(refused, self.lost, "refused, and what should have been");
    }
}

impl Held {
    fn key_of(&self, label: Label) -> Option<BlockKey> {
        match self.places.get(&label)? {
            Place::At(key) => Some(*key),
            Place::Waiting { .. } => None,
        }
    }

    fn keys(&self) -> impl Iterator<Item = BlockKey> {
        self.places.keys().filter_map(|label| self.key_of(*label))
    }

    /// The nearest tier on which each block is held.
    fn nearest(&self) -> FxHashMap<BlockKey, Tier> {
        let mut nearest = FxHashMap::default();
        for (label, tier, _) in self.copies.keys() {
            if let Some(key) = self.key_of(*label) {
                let held = nearest.entry(key).or_insert(*tier);
                *held = (*held).min(*tier);
            }
        }
        nearest
    }

    /// Puts one copy at `key`, and what waited for its label after it. A label names one block at a time: if it named
    /// another before, that one is gone.
    fn place(&mut self, room: &mut Room<'_>, key: BlockKey, copy: Copy) -> BlockKey {
        let label = copy.0;
        if room.is_refused(label, key) {
            self.refuse(room, label, key);
            return key;
        }
        let before = self.places.insert(label, Place::At(key));
        if before.is_some_and(|before| before != Place::At(key)) {
            self.waiting.retain(|waiting| *waiting != label);
            self.drop_copies(label);
        }
        self.add_copy(copy);
        self.join(room, label, key);
        key
    }

    /// There is no room for a block: what its label named before is gone, and what waits for it goes with it.
    fn refuse(&mut self, room: &mut Room<'_>, label: Label, key: BlockKey) {
        assert_ne!(self.key_of(label), Some(key), "refused, although it was held already");
        room.lost.push((label, key));
        self.truncated = true;
        self.drop_copies(label);
        self.forget_labels_without_copies();
        for (child, content) in self.waiting_for(label) {
            self.refuse(room, child, room.hasher.child(key, content));
        }
    }

    /// An orphan's parent has come: the orphan keeps its copies, and what waited for it follows.
    fn join(&mut self, room: &mut Room<'_>, label: Label, key: BlockKey) {
        self.places.insert(label, Place::At(key));
        for (child, content) in self.waiting_for(label) {
            let child_key = room.hasher.child(key, content);
            if room.is_refused(child, child_key) {
                self.refuse(room, child, child_key);
                continue;
            }
            self.waiting.retain(|waiting| *waiting != child);
            room.parents.insert(child_key, key);
            self.join(room, child, child_key);
        }
    }

    fn waiting_for(&self, label: Label) -> Vec<(Label, ContentHash)> {
        let children = self.waiting.iter().filter_map(|child| match self.places[child] {
            Place::Waiting { parent, content } if parent == label => Some((*child, content)),
            _ => None,
        });
        children.collect()
    }

    fn wait(&mut self, parent: Label, content: ContentHash, copy: Copy, limit: usize) {
        let place = Place::Waiting { parent, content };
        let nameless = Place::Waiting {
            parent: copy.0,
            content,
        };
        match self.places.get(&copy.0) {
            Some(before) if [place, nameless].contains(before) => self.add_copy(copy),
            Some(_) => {
                // The label waits for something else than before: what it was is gone.
                self.drop_copies(copy.0);
                self.places.insert(copy.0, place);
                self.add_copy(copy);
            }
            None if self.waiting.len() < limit => {
                self.waiting.push(copy.0);
                self.places.insert(copy.0, place);
                self.add_copy(copy);
            }
            None => self.truncated = true,
        }
    }

    fn add_copy(&mut self, copy: Copy) {
        let count = self.copies.entry(copy).or_insert(0);
        *count = if self.set { 1 } else { *count + 1 };
    }

    fn drop_copies(&mut self, label: Label) {
        self.copies.retain(|(l, _, _), _| *l != label);
    }

    fn remove(&mut self, copy: Copy) -> bool {
        let Some(count) = self.copies.get_mut(&copy) else {
            self.give_up(copy.0);
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.copies.remove(&copy);
            self.forget_labels_without_copies();
            self.give_up(copy.0);
        }
        true
    }

    /// If the label names nothing any more, the next block that it names is another one: nothing waits for that.
    fn give_up(&mut self, label: Label) {
        if self.places.contains_key(&label) {
            return;
        }
        for (child, content) in self.waiting_for(label) {
            self.places.insert(child, Place::Waiting { parent: child, content });
        }
    }

    fn awaited(&self) -> Vec<Label> {
        let parents = self.waiting.iter().filter_map(|child| match self.places[child] {
            Place::Waiting { parent, .. } => Some(parent),
            Place::At(_) => None,
        });
        parents.collect()
    }

    fn forget_labels_without_copies(&mut self) {
        let live: BTreeSet<Label> = self.copies.keys().map(|(label, _, _)| *label).collect();
        self.places.retain(|label, _| live.contains(label));
        self.waiting.retain(|label| live.contains(label));
    }
}
