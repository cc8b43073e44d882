//! What does the engine hold? An index that is told every batch directly, without sockets, agents or feeds.

use homing_domain::{BlockSize, ListedParent, RankId, Sequence};
use homing_index::{Applied, Copies, Index, IndexConfig, Listing, Slot};
use homing_wire::{Decoder, DecoderConfig, Dialect};

use super::{BLOCK_SIZE, hasher};

/// What is held, in a form in which two lists can be compared: by name, tier and group, what is in the block, what is
/// before it, and how many copies there are.
pub type Held = Vec<((u64, u8, u8), (u64, Parent, u32))>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parent {
    Root,
    Label(u64),
    Key(u64),
}

pub fn held(listing: &Listing) -> Held {
    let mut held = Held::new();
    for item in &listing.items {
        let mut parent = match item.parent {
            ListedParent::Root => Parent::Root,
            ListedParent::Label(label) => Parent::Label(label.get()),
            ListedParent::Key(key) => Parent::Key(key.0),
        };
        for block in &item.blocks {
            let name = (block.label.get(), item.tier as u8, item.group.0);
            held.push((name, (block.content.0, parent, item.copies)));
            parent = Parent::Label(block.label.get());
        }
    }
    held.sort_unstable();
    held
}

pub struct Truth {
    index: Index,
    slot: Slot,
    decoder: Decoder,
}

impl Truth {
    pub fn new() -> Self {
        let mut index = Index::new(IndexConfig::new(hasher()));
        let slot = index.add_rank(RankId::new(0, 0), Copies::Counted).unwrap();
        let decoder = Decoder::new(DecoderConfig {
            dialect: Dialect::Vllm,
            hasher: hasher(),
            block_size: BlockSize::new(BLOCK_SIZE).unwrap(),
        });
        Self { index, slot, decoder }
    }

    pub fn apply(&mut self, sequence: u64, payload: &[u8]) {
        let decoded = self.decoder.decode(Sequence(sequence), payload).unwrap();
        for change in &decoded.batch.changes {
            if let Applied::Cleared(slot) = self.index.apply(self.slot, change).unwrap() {
                self.slot = slot;
            }
        }
    }

    pub fn held(&self) -> Held {
        held(&self.index.list(self.slot).unwrap())
    }
}
