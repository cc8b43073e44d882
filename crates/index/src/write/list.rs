//! What does a rank hold, in an order in which it can be stored again? For snapshots: listing a rank and restoring the
//! list into another index gives the same answers there, now and after further events.

use homing_domain::{BlockKey, Listed, ListedParent, StoredBlock};

use super::{Kind, Place};
use crate::detail::{Detail, Holding};
use crate::index::{Index, IndexError, StoreOutcome};
use crate::orphans::Awaited;
use crate::record::RunId;
use crate::slots::Slot;

/// A list may come from elsewhere: no more copies than this are believed.
const MAX_COPIES: u32 = 1 << 16;

/// What a rank holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Parents before children.
    pub items: Vec<Listed>,
    /// Whether something was forgotten, so that the list is a lower bound.
    pub truncated: bool,
}

impl Index {
    /// Lists what a rank or a draft holds. Takes as long as the content is large.
    pub fn list(&self, slot: Slot) -> Result<Listing, IndexError> {
        let index = self.slots.check(slot)?;
        let mut runs = self.runs_of(index);
        runs.sort_unstable_by_key(|run| (self.runs.meta(*run).depth, *run));
        let mut items = Vec::new();
        // A block that is held in several ways is listed once for each; the first ways of all blocks come first.
        let mut layer = 0;
        loop {
            let before = items.len();
            for run in &runs {
                self.list_run(index, *run, layer, &mut items);
            }
            if items.len() == before {
                break;
            }
            layer += 1;
        }
        self.list_orphans(index, &mut items);
        Ok(Listing {
            items,
            truncated: self.slots.info(index).truncated,
        })
    }

    /// Stores one item of a list. The items must come in the order of the list.
    pub fn restore(&mut self, slot: Slot, listed: &Listed) -> Result<StoreOutcome, IndexError> {
        let index = self.slots.check(slot)?;
        self.settle_clears(index);
        let kind = Kind {
            tier: listed.tier,
            group: listed.group,
            copies: listed.copies.clamp(1, MAX_COPIES),
        };
        let mut outcome = StoreOutcome::default();
        let mut parent = listed.parent;
        for blocks in listed.blocks.chunks(Self::STEP) {
            match parent {
                ListedParent::Root => self.store_step(index, None, blocks, kind, &mut outcome),
                ListedParent::Label(label) => self.store_step(index, Some(label), blocks, kind, &mut outcome),
                ListedParent::Key(key) => {
                    self.work.pinned.clear();
                    self.store_without_parent(index, Awaited::Key(key), blocks, kind, &mut outcome);
                }
            }
            if let Some(last) = blocks.last() {
                parent = ListedParent::Label(last.label);
            }
            self.finish();
        }
        Ok(outcome)
    }

    /// A listing was truncated where it was made: what is restored from it is a lower bound.
    pub fn mark_truncated(&mut self, slot: Slot) -> Result<(), IndexError> {
        let index = self.slots.check(slot)?;
        self.slots.info_mut(index).truncated = true;
        Ok(())
    }

    fn list_run(&self, slot: usize, run: RunId, layer: usize, items: &mut Vec<Listed>) {
        let plain;
        let detail: &Detail = match self.slots.info(slot).details.get(run) {
            Some(detail) => detail,
            None if layer > 0 => return,
            None => {
                plain = Detail::prefix(self.cut(run, slot) as usize);
                &plain
            }
        };
        let mut open: Option<(usize, Kind)> = None;
        for offset in detail.offsets() {
            let place = Place {
                run,
                offset: offset as u16,
            };
            let holdings = self.holdings(slot, place);
            let Some((Holding { label, tier, group }, copies)) = holdings.get(layer).copied() else {
                continue;
            };
            let kind = Kind { tier, group, copies };
            let parent_key = self.parent_key(place);
            let content = self.config.hasher.content_of(parent_key, self.key_at(place));
            let block = StoredBlock { label, content };
            match (open, items.last_mut()) {
                (Some(last), Some(item)) if last == (offset - 1, kind) => item.blocks.push(block),
                _ => items.push(Listed {
                    parent: self.listed_parent(slot, place, parent_key),
                    tier,
                    group,
                    copies,
                    blocks: vec![block],
                }),
            }
            open = Some((offset, kind));
        }
    }

    /// The key of the block before this one.
    fn parent_key(&self, place: Place) -> BlockKey {
        match place.offset {
            0 => self.key_before(place.run),
            offset => self.key_at(Place {
                offset: offset - 1,
                ..place
            }),
        }
    }

    fn listed_parent(&self, slot: usize, place: Place, key: BlockKey) -> ListedParent {
        let parent = match place.offset {
            0 if self.runs.meta(place.run).begins => return ListedParent::Root,
            0 => match self.parent_of(place.run) {
                Some(parent) => parent,
                None => return ListedParent::Key(key),
            },
            offset => Place {
                offset: offset - 1,
                ..place
            },
        };
        let label = self.holdings(slot, parent).first().map(|(holding, _)| holding.label);
        label.map_or(ListedParent::Key(key), ListedParent::Label)
    }

    fn list_orphans(&self, slot: usize, items: &mut Vec<Listed>) {
        for (label, orphan) in self.slots.info(slot).orphans.iter() {
            let parent = match orphan.parent {
                Awaited::Label(label) => ListedParent::Label(label),
                Awaited::Key(key) => ListedParent::Key(key),
            };
            let blocks = vec![StoredBlock {
                label,
                content: orphan.content,
            }];
            items.extend(orphan.holdings.iter().map(|(holding, copies)| Listed {
                parent,
                tier: holding.tier,
                group: holding.group,
                copies: *copies,
                blocks: blocks.clone(),
            }));
        }
    }
}
