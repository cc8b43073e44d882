//! Is everything found when there are more runs than fit one part of the records? Most are then not where their keys say, and
//! when most go, the others get lower numbers.
#![cfg(not(any(shuttle, loom)))]
#![expect(clippy::unwrap_used, reason = "a test may fail anywhere, helpers included")]

use homing_domain::{
    BlockKey, Blocks, ContentHash, HashSeed, KeyHasher, Label, RankId, Removed, Stored, StoredBlock, Tier,
};
use homing_index::{Answer, Copies, Index, IndexConfig, Slot};

/// Sequences, each of them a run and, for every third, two that follow it.
const SEQUENCES: u64 = 60_000;
const LENGTH: u64 = 3;

fn hasher() -> KeyHasher {
    KeyHasher::new(HashSeed::PUBLIC)
}

/// The blocks of a branch: 0 is the sequence itself, others follow its second block.
fn branch(sequence: u64, branch: u64) -> Vec<StoredBlock> {
    let ids = (0..LENGTH).map(|block| (sequence * 4 + branch) * LENGTH + block + 1);
    ids.map(|id| StoredBlock {
        label: Label::new(id),
        content: ContentHash(id.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    })
    .collect()
}

fn branches(sequence: u64) -> u64 {
    if sequence.is_multiple_of(3) { 2 } else { 0 }
}

fn store(index: &mut Index, slot: Slot, sequence: u64) {
    let trunk = branch(sequence, 0);
    let parent = trunk[1].label;
    index.store(slot, &Stored::plain(None, trunk)).unwrap();
    for number in 1..=branches(sequence) {
        index
            .store(slot, &Stored::plain(Some(parent), branch(sequence, number)))
            .unwrap();
    }
}

fn remove(index: &mut Index, slot: Slot, sequence: u64) {
    for number in (0..=branches(sequence)).rev() {
        let labels = branch(sequence, number).iter().rev().map(|block| block.label).collect();
        index.remove(slot, &Removed::plain(labels)).unwrap();
    }
}

/// The keys of a path into a branch.
fn keys(sequence: u64, number: u64) -> Vec<BlockKey> {
    let mut path = branch(sequence, 0);
    if number > 0 {
        path.truncate(2);
        path.extend(branch(sequence, number));
    }
    let mut key = hasher().root();
    path.iter()
        .map(|block| {
            key = hasher().child(key, block.content);
            key
        })
        .collect()
}

/// Every path is found whole if its sequence is held, and not at all if it is not.
fn check(index: &Index, slot: Slot, is_held: impl Fn(u64) -> bool) {
    let (reader, mut answer) = (index.reader(), Answer::default());
    for sequence in 0..SEQUENCES {
        for number in 0..=branches(sequence) {
            let keys = keys(sequence, number);
            reader.lookup(&keys, &mut answer);
            let expected = if is_held(sequence) { keys.len() as u32 } else { 0 };
            assert_eq!(
                answer.depth(slot, Tier::Device),
                Blocks(expected),
                "{sequence}, branch {number}"
            );
        }
    }
}

#[test]
fn runs_of_many_parts_are_found_and_become_few_again() {
    let mut index = Index::new(IndexConfig::new(hasher()));
    let slot = index.add_rank(RankId::new(1, 0), Copies::Counted).unwrap();
    // Once more when nothing is left to do: what was made ready for the next writes is given up then.
    let settle = |index: &mut Index| {
        while index.maintain(1000).is_pending() {}
        assert!(!index.maintain(1000).is_pending());
    };
    (0..SEQUENCES).for_each(|sequence| store(&mut index, slot, sequence));
    let full = index.stats();
    assert!(full.runs > 3 * 32_768, "{full:?}");
    check(&index, slot, |_| true);
    let stays = |sequence: u64| sequence.is_multiple_of(5);
    (0..SEQUENCES)
        .filter(|sequence| !stays(*sequence))
        .for_each(|sequence| remove(&mut index, slot, sequence));
    settle(&mut index);
    check(&index, slot, stays);
    let few = index.stats();
    assert!(few.bytes * 2 < full.bytes, "{few:?} after {full:?}");
    // What comes again finds its place among those that moved.
    (0..SEQUENCES)
        .filter(|sequence| !stays(*sequence))
        .for_each(|sequence| store(&mut index, slot, sequence));
    settle(&mut index);
    check(&index, slot, |_| true);
}
