//! What does a feed believe of a rank? Its list, as blocks on tiers.

use std::collections::BTreeMap;

use homing_domain::{BlockKey, Label, Listed, ListedParent, RankId};

use super::blocks::Blocks;
use super::cache::Entry;
use super::router::Router;

/// What a view holds.
#[derive(Debug, Default)]
pub struct View {
    /// Copies of blocks on tiers.
    pub entries: BTreeMap<Entry, u32>,
    /// Whether a bound made it forget something.
    pub is_truncated: bool,
}

impl View {
    /// The view of a rank, without blocks whose ancestors are unknown: they count for nothing.
    pub fn of(router: &Router, rank: RankId, blocks: &Blocks) -> Option<Self> {
        let listing = router.feed.list(rank)?;
        let mut view = Self {
            is_truncated: listing.truncated,
            ..Self::default()
        };
        // Blocks that wait for their parent are listed in any order.
        let mut names: BTreeMap<Label, BlockKey> = BTreeMap::new();
        let mut waiting: Vec<&Listed> = listing.items.iter().collect();
        loop {
            let before = waiting.len();
            waiting.retain(|item| !view.place(item, &mut names, blocks));
            if waiting.len() == before {
                break;
            }
        }
        Some(view)
    }

    /// Adds an item if its parent is known by now, and says whether it was.
    fn place(&mut self, item: &Listed, names: &mut BTreeMap<Label, BlockKey>, blocks: &Blocks) -> bool {
        let mut parent = match item.parent {
            ListedParent::Root => blocks.root(),
            ListedParent::Key(key) => key,
            ListedParent::Label(label) => match names.get(&label) {
                Some(key) => *key,
                None => return false,
            },
        };
        for block in &item.blocks {
            parent = blocks.hasher.child(parent, block.content);
            names.insert(block.label, parent);
            *self.entries.entry((parent, item.tier)).or_insert(0) += item.copies;
        }
        true
    }
}
