//! Is everything found when there are more runs than fit one part of the records? Most are then not where their keys say, and
//! when most go, the others get lower numbers.
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

/// A rank, and what its labels differ by from those of others.
#[derive(Clone, Copy)]
struct Rank {
    slot: Slot,
    labels: u64,
}

/// The blocks of a branch: 0 is the sequence itself, others follow its second block.
fn branch(sequence: u64, branch: u64, labels: u64) -> Vec<StoredBlock> {
    let ids = (0..LENGTH).map(|block| (sequence * 4 + branch) * LENGTH + block + 1);
    ids.map(|id| StoredBlock {
        label: Label::new(id + labels),
        content: ContentHash(id.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    })
    .collect()
}

fn branches(sequence: u64) -> u64 {
    if sequence.is_multiple_of(3) { 2 } else { 0 }
}

fn store(index: &mut Index, Rank { slot, labels }: Rank, sequence: u64) {
    let trunk = branch(sequence, 0, labels);
    let parent = trunk[1].label;
    index.store(slot, &Stored::plain(None, trunk)).unwrap();
    for number in 1..=branches(sequence) {
        index
            .store(slot, &Stored::plain(Some(parent), branch(sequence, number, labels)))
            .unwrap();
    }
}

fn remove(index: &mut Index, Rank { slot, labels }: Rank, sequence: u64) {
    for number in (0..=branches(sequence)).rev() {
        let blocks = branch(sequence, number, labels);
        let labels = blocks.iter().rev().map(|block| block.label).collect();
        let outcome = index.remove(slot, &Removed::plain(labels)).unwrap();
        assert_eq!(outcome.unknown, 0, "{sequence}, branch {number}");
    }
}

/// The keys of a path into a branch.
fn keys(sequence: u64, number: u64) -> Vec<BlockKey> {
    let mut path = branch(sequence, 0, 0);
    if number > 0 {
        path.truncate(2);
        path.extend(branch(sequence, number, 0));
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
fn check(index: &Index, ranks: [Rank; 2], is_held: impl Fn(u64) -> bool) {
    let (reader, mut answer) = (index.reader(), Answer::default());
    for sequence in 0..SEQUENCES {
        for number in 0..=branches(sequence) {
            let keys = keys(sequence, number);
            reader.lookup(&keys, &mut answer);
            let expected = if is_held(sequence) { keys.len() as u32 } else { 0 };
            for Rank { slot, .. } in ranks {
                let depth = answer.depth(slot, Tier::Device);
                assert_eq!(depth, Blocks(expected), "{slot:?}: {sequence}, branch {number}");
            }
        }
    }
}

#[test]
fn runs_of_many_parts_are_found_and_become_few_again() {
    let mut index = Index::new(IndexConfig::new(hasher()));
    // The second calls all blocks otherwise than the first, who names the runs.
    let ranks = [1, 2].map(|worker| {
        let slot = index.add_rank(RankId::new(worker, 0), Copies::Counted).unwrap();
        let labels = u64::from(worker) << 40;
        Rank { slot, labels }
    });
    let empty = index.stats();
    // Once more when nothing is left to do: what was made ready for the next writes is given up then.
    let settle = |index: &mut Index| {
        while index.maintain(1000).is_pending() {}
        assert!(!index.maintain(1000).is_pending());
    };
    let both = |index: &mut Index, apply: fn(&mut Index, Rank, u64), which: &dyn Fn(u64) -> bool| {
        for rank in ranks {
            (0..SEQUENCES)
                .filter(|sequence| which(*sequence))
                .for_each(|sequence| apply(index, rank, sequence));
        }
    };
    both(&mut index, store, &|_| true);
    let full = index.stats();
    assert!(full.runs > 3 * 32_768, "{full:?}");
    check(&index, ranks, |_| true);
    let stays = |sequence: u64| sequence.is_multiple_of(5);
    both(&mut index, remove, &|sequence| !stays(sequence));
    settle(&mut index);
    check(&index, ranks, stays);
    let few = index.stats();
    assert!(few.bytes * 2 < full.bytes, "{few:?} after {full:?}");
    // What comes again finds its place among those that moved, and their labels lead to where they are.
    both(&mut index, store, &|sequence| !stays(sequence));
    settle(&mut index);
    check(&index, ranks, |_| true);
    both(&mut index, remove, &|_| true);
    settle(&mut index);
    check(&index, ranks, |_| false);
    let none = index.stats();
    assert!(
        none.blocks == 0 && none.bytes < 2 * empty.bytes,
        "{none:?} after {empty:?}"
    );
}
