//! Does memory come back?

use homing_domain::{ContentHash, HashSeed, KeyHasher, Label, RankId, Stored, StoredBlock};
use homing_index::{Copies, Index, IndexConfig, Slot};

/// Housekeeping until nothing is left, which must not take for ever.
fn settle(index: &mut Index) {
    let mut slices = 0;
    while index.maintain(1000).is_pending() {
        slices += 1;
        assert!(slices < 1_000_000, "housekeeping does not end: {:?}", index.stats());
    }
}

fn sequence(number: u64, length: u64) -> Stored {
    let blocks = (0..length).map(|block| {
        let id = number * 10_000 + block;
        StoredBlock { label: Label::new(id), content: ContentHash(id.wrapping_mul(0x9e37_79b9_7f4a_7c15)) }
    });
    Stored::plain(None, blocks.collect())
}

fn fill(ranks: u32, sequences: u64) -> (Index, Vec<Slot>) {
    let mut index = Index::new(IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC)));
    let slots: Vec<Slot> =
        (0..ranks).map(|rank| index.add_rank(RankId::new(rank, 0), Copies::Counted).unwrap()).collect();
    for number in 0..sequences {
        for copy in 0..3 {
            let slot = slots[((number * 7 + copy * 5) % u64::from(ranks)) as usize];
            index.store(slot, &sequence(number, 20 + number % 200)).unwrap();
        }
    }
    settle(&mut index);
    (index, slots)
}

#[test]
fn nothing_is_left_of_ranks_that_left() {
    let (mut index, slots) = fill(64, 12_000);
    let empty = Index::new(IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC))).stats().bytes;
    let full = index.stats();
    assert!(full.bytes > 5 * empty, "{} of {empty}", full.bytes);
    for slot in slots {
        index.drop_rank(slot).unwrap();
    }
    settle(&mut index);
    let stats = index.stats();
    assert_eq!((stats.blocks, stats.block_slots, stats.runs, stats.entries), (0, 0, 0, 0));
    assert!(stats.bytes <= 2 * empty, "{} bytes are left, an empty index has {empty}", stats.bytes);
    index.verify().unwrap();
}
