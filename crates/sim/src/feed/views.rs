//! What does a feed believe of a rank? Its list, as blocks on tiers.

use std::collections::BTreeMap;

use homing_domain::{BlockKey, Label, ListedParent, RankId};

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
    /// The view of a rank, orphans left out: they count for nothing.
    pub fn of(router: &Router, rank: RankId, blocks: &Blocks) -> Option<Self> {
        let listing = router.feed.list(rank)?;
        let mut view = Self {
            is_truncated: listing.truncated,
            ..Self::default()
        };
        let mut names: BTreeMap<Label, BlockKey> = BTreeMap::new();
        for item in &listing.items {
            let mut parent = match item.parent {
                ListedParent::Root => Some(blocks.root()),
                ListedParent::Label(label) => names.get(&label).copied(),
                ListedParent::Key(key) => Some(key),
            };
            for block in &item.blocks {
                parent = parent.map(|parent| blocks.hasher.child(parent, block.content));
                if let Some(key) = parent {
                    names.insert(block.label, key);
                    *view.entries.entry((key, item.tier)).or_insert(0) += item.copies;
                }
            }
        }
        Some(view)
    }
}
