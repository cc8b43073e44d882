//! Is there room for what must be possible when as many ranks are there as may be?

use homing_domain::{
    Blocks, ClearScope, ContentHash, HashSeed, KeyHasher, Label, RankId, Removed, Stored, StoredBlock, Tier,
};
use homing_index::{Answer, Copies, Index, IndexConfig, IndexError, Slot};

#[test]
fn a_draft_can_be_cleared_when_every_rank_has_one() -> Result<(), IndexError> {
    let mut index = Index::new(IndexConfig {
        max_ranks: 1,
        ..IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC))
    });
    let rank = RankId::new(0, 0);
    let live = index.add_rank(rank, Copies::Counted)?;
    let draft = index.draft(rank, Copies::Counted)?;
    let cleared = index.clear(draft, ClearScope::AllTiers)?;
    assert_eq!(index.clear(draft, ClearScope::AllTiers), Err(IndexError::NoSuchSlot));
    assert!(index.rank_stats(live).is_ok());
    index.publish(cleared)?;
    assert_eq!(index.rank_stats(live), Err(IndexError::NoSuchSlot));
    Ok(())
}

/// Engines that number their blocks all have a block 0. So many entries with one hash fit no part of a table.
#[test]
fn thousands_of_ranks_may_call_different_blocks_the_same() -> Result<(), IndexError> {
    let hasher = KeyHasher::new(HashSeed::PUBLIC);
    let mut index = Index::new(IndexConfig {
        max_ranks: 2000,
        ..IndexConfig::new(hasher)
    });
    let label = Label::new(0);
    let content = |rank: u32| ContentHash(u64::from(rank + 1) * 0x9e37_79b9);
    let mut slots: Vec<Slot> = Vec::new();
    for rank in 0..2000 {
        let slot = index.add_rank(RankId::new(rank, 0), Copies::Counted)?;
        let content = content(rank);
        index.store(slot, &Stored::plain(None, vec![StoredBlock { label, content }]))?;
        slots.push(slot);
    }
    let (reader, mut answer) = (index.reader(), Answer::default());
    let mut check = |index: &Index, held: Blocks| {
        assert_eq!(index.stats().entries, slots.len() as u64 * u64::from(held.0));
        for (rank, slot) in (0..).zip(&slots) {
            reader.lookup(&[hasher.child(hasher.root(), content(rank))], &mut answer);
            assert_eq!(answer.depth(*slot, Tier::Device), held, "rank {rank}");
        }
    };
    check(&index, Blocks(1));
    for slot in &slots {
        let removed = index.remove(*slot, &Removed::plain(vec![label]))?;
        assert_eq!(removed.unknown, 0);
    }
    check(&index, Blocks(0));
    Ok(())
}
