//! Does memory come back?

use homing_domain::{ContentHash, HashSeed, KeyHasher, Label, RankId, Removed, Stored, StoredBlock};
use homing_index::{Copies, Index, IndexConfig, Slot};

/// Housekeeping until nothing is left, which must not take for ever.
fn settle(index: &mut Index) {
    let mut slices = 0;
    while index.maintain(1000).is_pending() {
        slices += 1;
        assert!(slices < 1_000_000, "housekeeping does not end: {:?}", index.stats());
    }
    // Once more: what was made ready for the next writes is given up when there are none.
    assert!(!index.maintain(1000).is_pending());
}

fn sequence(number: u64, length: u64) -> Stored {
    let blocks = (0..length).map(|block| {
        let id = number * 10_000 + block;
        StoredBlock {
            label: Label::new(id),
            content: ContentHash(id.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        }
    });
    Stored::plain(None, blocks.collect())
}

fn fill(ranks: u32, sequences: u64) -> (Index, Vec<Slot>) {
    let mut index = Index::new(IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC)));
    let slots: Vec<Slot> = (0..ranks)
        .map(|rank| {
            index
                .add_rank(RankId::new(rank, 0), Copies::Counted)
                .expect("the slot is live")
        })
        .collect();
    for number in 0..sequences {
        for copy in 0..3 {
            let slot = slots[((number * 7 + copy * 5) % u64::from(ranks)) as usize];
            index
                .store(slot, &sequence(number, 20 + number % 200))
                .expect("the slot is live");
        }
    }
    settle(&mut index);
    (index, slots)
}

#[test]
fn nothing_is_left_of_ranks_that_left() {
    let (mut index, slots) = fill(64, 12_000);
    let empty = Index::new(IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC)))
        .stats()
        .bytes;
    let full = index.stats();
    assert!(full.bytes > 5 * empty, "{} of {empty}", full.bytes);
    for slot in slots {
        index.drop_rank(slot).expect("the slot is live");
    }
    settle(&mut index);
    let stats = index.stats();
    assert_eq!(
        (stats.blocks, stats.block_slots, stats.runs, stats.entries),
        (0, 0, 0, 0)
    );
    assert!(
        stats.bytes <= 2 * empty,
        "{} bytes are left, an empty index has {empty}",
        stats.bytes
    );
    index.verify().expect("the slot is live");
}

/// What an index with only these sequences and ranks takes.
fn fresh_bytes(ranks: u32, sequences: u64, keep: impl Fn(u64) -> bool) -> u64 {
    let (mut index, slots) = fill(ranks, 0);
    for number in 0..sequences {
        for copy in 0..3 {
            let rank = (number * 7 + copy * 5) % u64::from(ranks);
            if keep(rank) {
                index
                    .store(slots[rank as usize], &sequence(number, 20 + number % 200))
                    .expect("the slot is live");
            }
        }
    }
    settle(&mut index);
    index.stats().bytes
}

#[test]
fn memory_follows_the_content_when_most_ranks_leave() {
    let (ranks, sequences) = (64, 12_000);
    let (mut index, slots) = fill(ranks, sequences);
    for slot in &slots[8..] {
        index.drop_rank(*slot).expect("the slot is live");
    }
    settle(&mut index);
    index.verify().expect("the index is sound");
    let (bytes, needed) = (index.stats().bytes, fresh_bytes(ranks, sequences, |rank| rank < 8));
    assert!(2 * bytes <= 3 * needed, "{bytes} bytes where {needed} would do");
}

/// A cache of conversations: each turn lengthens one, and the least recently used lose their ends.
struct Engine {
    slot: Slot,
    /// Number, blocks of the conversation stored, and whether its beginning is: most recently used last.
    conversations: Vec<(u64, u64)>,
    blocks: u64,
}

const CAPACITY: u64 = 2000;
const SHARED: u64 = 20;

impl Engine {
    /// Blocks 0 to 19 are one of five beginnings that conversations share.
    fn label(conversation: u64, block: u64) -> u64 {
        if block < SHARED {
            1_000_000_000 + conversation % 5 * 100 + block
        } else {
            conversation * 1000 + block
        }
    }

    fn stored(conversation: u64, from: u64, to: u64) -> Stored {
        let parent = from
            .checked_sub(1)
            .map(|block| Label::new(Self::label(conversation, block)));
        let blocks = (from..to).map(|block| {
            let label = Self::label(conversation, block);
            StoredBlock {
                label: Label::new(label),
                content: ContentHash(label.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            }
        });
        Stored::plain(parent, blocks.collect())
    }

    fn turn(&mut self, index: &mut Index, conversation: u64, more: u64) {
        let known = self
            .conversations
            .iter()
            .position(|(number, _)| *number == conversation);
        let (_, held) = known.map_or((conversation, 0), |at| self.conversations.remove(at));
        let sibling = self
            .conversations
            .iter()
            .any(|(number, held)| number % 5 == conversation % 5 && *held >= SHARED);
        let from = if held == 0 && sibling { SHARED } else { held };
        let to = from.max(SHARED) + more;
        // It is the most recently used from now on, and what it relies on stays.
        self.conversations.push((conversation, from));
        while self.blocks + (to - from) > CAPACITY {
            self.evict(index);
        }
        index
            .store(self.slot, &Self::stored(conversation, from, to))
            .expect("the slot is live");
        self.blocks += to - from;
        self.conversations.last_mut().expect("pushed above").1 = to;
    }

    /// The least recently used conversation loses a few blocks; a beginning goes with the last that has it.
    fn evict(&mut self, index: &mut Index) {
        let (number, held) = self.conversations[0];
        let shared = self.conversations[1..]
            .iter()
            .any(|(other, held)| other % 5 == number % 5 && *held >= SHARED);
        let floor = if shared { SHARED } else { 0 };
        let to = held.saturating_sub(7).max(floor);
        let to = if to < SHARED { 0 } else { to };
        let labels: Vec<Label> = (to..held)
            .rev()
            .map(|block| Label::new(Self::label(number, block)))
            .collect();
        self.blocks -= labels.len() as u64;
        index
            .remove(self.slot, &Removed::plain(labels))
            .expect("the slot is live");
        self.conversations[0].1 = to;
        if to == floor {
            self.conversations.remove(0);
        }
    }
}

#[test]
fn a_week_of_churn_leaves_no_gaps() {
    let mut index = Index::new(IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC)));
    let mut engines: Vec<Engine> = (0..16)
        .map(|rank| Engine {
            slot: index
                .add_rank(RankId::new(rank, 0), Copies::Counted)
                .expect("there are slots"),
            conversations: Vec::new(),
            blocks: 0,
        })
        .collect();
    let mut seed = 1_u64;
    let mut draw = |bound: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    for turn in 0..120_000_u64 {
        // New conversations all the time; most turns go on with one of the last few hundred, sometimes elsewhere.
        let conversation = turn / 6 + draw(300);
        let engine = if draw(8) == 0 { draw(16) } else { conversation % 16 };
        engines[engine as usize].turn(&mut index, conversation, 1 + draw(40));
    }
    settle(&mut index);
    index.verify().expect("the index is sound");
    let stats = index.stats();
    assert_eq!(stats.entries, engines.iter().map(|engine| engine.blocks).sum::<u64>());
    assert_eq!((stats.unknown_removals, stats.orphans, stats.rebound), (0, 0, 0));
    assert!(
        stats.block_slots * 4 <= stats.blocks * 5,
        "{} places for {} blocks",
        stats.block_slots,
        stats.blocks
    );
}

#[test]
fn an_engine_that_names_one_block_without_end_takes_no_memory_without_end() {
    let mut index = Index::new(IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC)));
    let slot = index
        .add_rank(RankId::new(0, 0), Copies::Counted)
        .expect("there are slots");
    for label in 0..100_000 {
        let block = StoredBlock {
            label: Label::new(label),
            content: ContentHash(7),
        };
        index
            .store(slot, &Stored::plain(None, vec![block]))
            .expect("the slot is live");
    }
    index.verify().expect("the index is sound");
    let (stats, rank) = (index.stats(), index.rank_stats(slot).expect("the slot is live"));
    assert_eq!((stats.blocks, rank.blocks, rank.truncated), (1, 1, true));
    // A label that was not kept is not taken for drift when it goes.
    let outcome = index
        .remove(slot, &Removed::plain(vec![Label::new(99_999)]))
        .expect("the slot is live");
    assert_eq!((outcome.unknown, outcome.unknown_tolerated), (0, 1));
}

#[test]
fn a_list_with_many_holes_is_restored_whole() {
    let (mut index, slots) = fill(1, 200);
    let hole = |number: u64| Label::new(number * 10_000 + 3);
    for number in 0..200 {
        let copies = vec![hole(number); 3];
        index
            .remove(slots[0], &Removed::plain(copies))
            .expect("the slot is live");
    }
    let listing = index.list(slots[0]).expect("the slot is live");
    let behind: usize = listing.items.iter().map(|item| item.blocks.len()).sum();
    let mut other = Index::new(IndexConfig {
        orphans_per_rank: 8,
        ..IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC))
    });
    let slot = other
        .add_rank(RankId::new(0, 0), Copies::Counted)
        .expect("there is room");
    for item in &listing.items {
        other.restore(slot, item).expect("the slot is live");
    }
    let stats = other.rank_stats(slot).expect("the slot is live");
    assert!(!stats.truncated && stats.orphans == stats.behind_holes, "{stats:?}");
    // The holes are filled, and everything counts again.
    for number in 0..200 {
        let whole = sequence(number, 4);
        let block = whole.blocks[3];
        let stored = Stored::plain(Some(whole.blocks[2].label), vec![block]);
        other.store(slot, &stored).expect("the slot is live");
    }
    let stats = other.rank_stats(slot).expect("the slot is live");
    assert_eq!((stats.blocks as usize, stats.orphans), (behind + 200, 0));
    assert_eq!(other.stats().entries, index.stats().entries + 200);
}
