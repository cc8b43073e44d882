//! Is there room for what must be possible when as many ranks are there as may be?

use homing_domain::{ClearScope, HashSeed, KeyHasher, RankId};
use homing_index::{Copies, Index, IndexConfig, IndexError};

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
