//! Which blocks wait for a parent that is not known? They are kept by content hash until the parent comes, and count for
//! nothing until then. An engine names the parent by its label; a listing of what lies behind a hole names it by key, and
//! what follows such a block waits for its key, too.
//!
//! **Invariant:** an orphan that waits for a label waits for the block that the engine called so when the orphan came. A
//! label that the engine gives up may name another block next, so nothing waits for it then ([`Orphans::give_up`]).

use homing_domain::{BlockKey, ContentHash, KeyHasher, Label};
use rustc_hash::FxHashMap;

use crate::Copies;
use crate::detail::Holding;

/// What an orphan waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Awaited {
    /// The block that the rank calls so. Its own label if that block has lost its name: then it waits for ever.
    Label(Label),
    /// The block with this key.
    Key(BlockKey),
}

impl Awaited {
    /// Whether both may be names of one block, the parent of one that is called `child`: one that a list named by key or
    /// that lost its name, an engine names by label. A label stands for one block of its rank, so a child with the same
    /// label and content settles it.
    fn may_be(self, other: Self, child: Label) -> bool {
        match (self, other) {
            (Self::Label(_), Self::Key(_)) | (Self::Key(_), Self::Label(_)) => true,
            _ => self == other || self == Self::Label(child),
        }
    }
}

/// A block whose parent is unknown on its rank.
#[derive(Clone, Debug)]
pub(crate) struct Orphan {
    pub(crate) parent: Awaited,
    pub(crate) content: ContentHash,
    pub(crate) holdings: Vec<(Holding, u32)>,
}

impl Orphan {
    /// Whether a list told that it, or one before it, follows a hole. Only lists name a parent by key, and only where the
    /// rank does not hold it.
    fn is_behind_hole(&self) -> bool {
        matches!(self.parent, Awaited::Key(_))
    }
}

/// One rank's orphans.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    by_label: FxHashMap<Label, Orphan>,
    /// Orphans by what they wait for, in the order in which they came.
    by_parent: FxHashMap<Awaited, Vec<Label>>,
    /// How many lie behind a hole that a list told of. They do not count against the limit.
    behind_holes: usize,
}

/// The most orphans that are kept behind holes.
const MAX_BEHIND_HOLES: usize = 1 << 20;

/// What became of an orphan that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Yes,
    /// There were as many as may be.
    No,
}

impl Orphans {
    pub(crate) fn len(&self) -> usize {
        self.by_label.len()
    }

    /// How many lie behind a hole that a list told of.
    pub(crate) fn behind_holes(&self) -> usize {
        self.behind_holes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_label.is_empty()
    }

    pub(crate) fn contains(&self, label: Label) -> bool {
        self.by_label.contains_key(&label)
    }

    /// What is to be waited for by a block that follows the one called `label`, which the rank does not hold in its place.
    pub(crate) fn awaited_after(&self, label: Label, hasher: &KeyHasher) -> Awaited {
        match self.by_label.get(&label) {
            Some(Orphan {
                parent: Awaited::Key(parent),
                content,
                ..
            }) => Awaited::Key(hasher.child(*parent, *content)),
            _ => Awaited::Label(label),
        }
    }

    /// Keeps a copy of a block that waits for `parent`, unless that would be one orphan more than `limit`,
    /// those behind holes not counted.
    pub(crate) fn add(
        &mut self,
        parent: Awaited,
        content: ContentHash,
        (holding, added): (Holding, u32),
        copies: Copies,
        limit: usize,
    ) -> Kept {
        let is_full = if matches!(parent, Awaited::Key(_)) {
            self.behind_holes >= MAX_BEHIND_HOLES
        } else {
            self.by_label.len() - self.behind_holes >= limit
        };
        match self.by_label.get_mut(&holding.label) {
            Some(orphan) if orphan.content == content && orphan.parent.may_be(parent, holding.label) => {
                match orphan.holdings.iter_mut().find(|(held, _)| *held == holding) {
                    Some((_, count)) if copies == Copies::Counted => *count = count.saturating_add(added),
                    Some(_) => {}
                    None => orphan.holdings.push((holding, added)),
                }
                return Kept::Yes;
            }
            // It waits for something else than before: what it was is gone.
            Some(_) => {
                self.take(holding.label);
            }
            None if is_full => return Kept::No,
            None => {}
        }
        self.insert(
            holding.label,
            Orphan {
                parent,
                content,
                holdings: vec![(holding, added)],
            },
        );
        Kept::Yes
    }

    pub(crate) fn insert(&mut self, label: Label, orphan: Orphan) {
        self.by_parent.entry(orphan.parent).or_default().push(label);
        self.behind_holes += usize::from(orphan.is_behind_hole());
        self.by_label.insert(label, orphan);
    }

    /// Takes an orphan out.
    pub(crate) fn take(&mut self, label: Label) -> Option<Orphan> {
        let orphan = self.by_label.remove(&label)?;
        self.behind_holes -= usize::from(orphan.is_behind_hole());
        if let Some(siblings) = self.by_parent.get_mut(&orphan.parent) {
            siblings.retain(|sibling| *sibling != label);
            if siblings.is_empty() {
                self.by_parent.remove(&orphan.parent);
            }
        }
        Some(orphan)
    }

    /// Takes out all that waited for this.
    pub(crate) fn take_children(&mut self, parent: Awaited) -> Vec<(Label, Orphan)> {
        // Out of the way first: each would else be looked for among all.
        let labels = self.by_parent.remove(&parent).unwrap_or_default();
        labels
            .into_iter()
            .filter_map(|label| self.take(label).map(|orphan| (label, orphan)))
            .collect()
    }

    /// If the rank calls no orphan by this label any more, what waits for it waits for a block without a name: for itself.
    /// It must not be the label of a block in its place.
    pub(crate) fn give_up(&mut self, label: Label) {
        if self.by_label.contains_key(&label) {
            return;
        }
        for (child, orphan) in self.take_children(Awaited::Label(label)) {
            let parent = Awaited::Label(child);
            self.insert(child, Orphan { parent, ..orphan });
        }
    }

    /// Takes one copy away. Says whether there was one.
    pub(crate) fn remove(&mut self, holding: Holding) -> bool {
        let Some(orphan) = self.by_label.get_mut(&holding.label) else {
            return false;
        };
        let Some(index) = orphan.holdings.iter().position(|(held, _)| *held == holding) else {
            return false;
        };
        orphan.holdings[index].1 -= 1;
        if orphan.holdings[index].1 == 0 {
            orphan.holdings.swap_remove(index);
        }
        if orphan.holdings.is_empty() {
            self.take(holding.label);
        }
        true
    }

    /// Keeps only the copies that `keep` accepts. Blocks that are waited for may be among those that went.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Holding) -> bool) {
        for orphan in self.by_label.values_mut() {
            orphan.holdings.retain(|(holding, _)| keep(holding));
        }
        let gone: Vec<Label> = self
            .by_label
            .iter()
            .filter(|(_, orphan)| orphan.holdings.is_empty())
            .map(|(label, _)| *label)
            .collect();
        for label in gone {
            self.take(label);
        }
        let awaited: Vec<Awaited> = self.by_parent.keys().copied().collect();
        for awaited in awaited {
            if let Awaited::Label(label) = awaited {
                self.give_up(label);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Label, &Orphan)> {
        self.by_label.iter().map(|(label, orphan)| (*label, orphan))
    }
}

#[cfg(test)]
mod tests {
    use homing_domain::{CacheGroup, Tier};

    use super::*;

    #[test]
    fn an_orphan_from_a_list_keeps_its_copies_when_the_engine_stores_it_again() {
        let label = Label::new(1);
        let holding = Holding {
            label,
            tier: Tier::Device,
            group: CacheGroup(0),
        };
        let mut orphans = Orphans::default();
        let mut add = |parent, content| orphans.add(parent, ContentHash(content), (holding, 1), Copies::Counted, 8);
        assert_eq!(add(Awaited::Key(BlockKey(7)), 5), Kept::Yes);
        assert_eq!(add(Awaited::Label(Label::new(2)), 5), Kept::Yes);
        assert_eq!(orphans.take(label).map(|orphan| orphan.holdings[0].1), Some(2));
    }
}
