//! Is every settled answer the state at one instant, on real threads? The schedules (`schedules.rs`) try orders that
//! seldom happen; this tries the machine's own memory, at full size and speed, also under AddressSanitizer:
//! `RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address cargo test -p homing-index --test threads --target x86_64-unknown-linux-gnu`.
#![expect(clippy::unwrap_used, reason = "a test may fail anywhere, helpers included")]

use std::sync::atomic::{AtomicUsize, Ordering};

use homing_domain::{
    BlockKey, ClearScope, ContentHash, HashSeed, KeyHasher, Label, RankId, Removed, Stored, StoredBlock, Tier,
};
use homing_index::{Answer, Copies, Index, IndexConfig, Reader, Slot};

/// How often the writer goes through its events.
const CYCLES: usize = 4000;
/// Events in a cycle, after which everything is as before.
const EVENTS: usize = 8;
/// For each event of a cycle how many blocks of each query the rank holds before it.
const TRUTHS: [[u32; 2]; EVENTS] = [
    [0, 0],
    [60, 60],
    [100, 60],
    [100, 200],
    [50, 50],
    [0, 0],
    [80, 60],
    [0, 0],
];

const RANK: RankId = RankId::new(1, 0);

#[derive(Default)]
struct Progress {
    begun: AtomicUsize,
    done: AtomicUsize,
}

/// Blocks `from` to `to` of a sequence. The two sequences have their first 60 blocks in common.
fn blocks(sequence: u64, from: u64, to: u64) -> Stored {
    let id = |block: u64| block + if block < 60 { 0 } else { 1000 * (1 + sequence) };
    let block = |block: u64| StoredBlock {
        label: Label::new(id(block)),
        content: ContentHash(id(block).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    };
    let parent = from.checked_sub(1).map(|block| Label::new(id(block)));
    Stored::plain(parent, (from..to).map(block).collect())
}

fn query(hasher: &KeyHasher, sequence: u64) -> Vec<BlockKey> {
    let mut key = hasher.root();
    let follow = |block: &StoredBlock| {
        key = hasher.child(key, block.content);
        key
    };
    blocks(sequence, 0, 200).blocks.iter().map(follow).collect()
}

fn labels(stored: &Stored) -> Removed {
    Removed::plain(stored.blocks.iter().map(|block| block.label).collect())
}

fn apply(index: &mut Index, slot: Slot, event: usize) -> Slot {
    match event {
        0 => {
            index.store(slot, &blocks(0, 0, 60)).unwrap();
        }
        1 => {
            index.store(slot, &blocks(0, 60, 100)).unwrap();
        }
        2 => {
            index.store(slot, &blocks(1, 60, 200)).unwrap();
        }
        3 => {
            let mut removed = labels(&blocks(0, 50, 100));
            removed.labels.extend(labels(&blocks(1, 60, 200)).labels);
            index.remove(slot, &removed).unwrap();
        }
        4 | 7 => return index.clear(slot, ClearScope::AllTiers).unwrap(),
        5 => {
            let draft = index.draft(RANK, Copies::Counted).unwrap();
            index.store(draft, &blocks(0, 0, 80)).unwrap();
            index.publish(draft).unwrap();
            return draft;
        }
        6 => {
            index.remove(slot, &labels(&blocks(0, 0, 80))).unwrap();
        }
        _ => unreachable!("a cycle has {EVENTS} events"),
    }
    slot
}

/// Looks up until the writer is done. Returns how many answers were checked.
fn look(reader: &Reader, progress: &Progress) -> usize {
    let hasher = KeyHasher::new(HashSeed::PUBLIC);
    let queries = [0, 1].map(|sequence| query(&hasher, sequence));
    let mut answer = Answer::default();
    let mut checked = 0;
    loop {
        for (number, keys) in queries.iter().enumerate() {
            let from = progress.done.load(Ordering::Acquire);
            reader.lookup(keys, &mut answer);
            let to = progress.begun.load(Ordering::Acquire);
            if from == CYCLES * EVENTS {
                return checked;
            }
            if answer.is_settled() {
                let (_, slot) = answer
                    .ranks()
                    .find(|(rank, _)| *rank == RANK)
                    .expect("the rank never leaves");
                let found = answer.depth(slot, Tier::Device).0;
                let possible: Vec<u32> = (from..=to).map(|done| TRUTHS[done % EVENTS][number]).collect();
                assert!(
                    possible.contains(&found),
                    "{found}, but only {possible:?} were ever true"
                );
                checked += 1;
            }
        }
    }
}

#[test]
fn settled_answers_are_of_one_instant() {
    let mut index = Index::new(IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC)));
    let mut slot = index.add_rank(RANK, Copies::Counted).unwrap();
    // Another rank holds the beginning of both sequences all the time, so that there are runs to follow and to leave.
    let other = index.add_rank(RankId::new(2, 0), Copies::Counted).unwrap();
    index.store(other, &blocks(0, 0, 70)).unwrap();
    index.store(other, &blocks(1, 60, 90)).unwrap();
    let progress = Progress::default();
    let checked: usize = std::thread::scope(|scope| {
        let readers = [(); 2].map(|()| {
            let (reader, progress) = (index.reader(), &progress);
            scope.spawn(move || look(&reader, progress))
        });
        for number in 0..CYCLES * EVENTS {
            progress.begun.store(number + 1, Ordering::Release);
            slot = apply(&mut index, slot, number % EVENTS);
            progress.done.store(number + 1, Ordering::Release);
            index.maintain(50);
        }
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    index.verify().unwrap();
    assert!(checked > 0);
}
