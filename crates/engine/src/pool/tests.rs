//! Does a pool do what its documentation says, whatever is asked of it?

use std::collections::HashMap;

use homing_domain::{ContentHash, HashSeed, KeyHasher, KvChange, RankId};
use homing_index::Copies;
use homing_index::testing::Oracle;
use homing_profile::GigabytesPerSecond;
use proptest::prelude::*;

use super::*;

const RANK: RankId = RankId::new(0, 0);

fn config(capacity: u32, copies: CopyRule) -> PoolConfig {
    PoolConfig {
        capacity: Blocks(capacity),
        copies,
        hasher: KeyHasher::new(HashSeed::PUBLIC),
        label_mask: 0x5555,
        removals: match copies {
            CopyRule::Physical => Removals::OneByOne,
            CopyRule::Shared => Removals::Joined,
        },
        events: Events::On,
        tracing: Tracing::On,
        tiers: Vec::new(),
        bug: None,
    }
}

/// A pool and the sequences that use it, in the words of the worked example: blocks are small numbers.
struct Example(Pool);

impl Example {
    fn wanted(blocks: &[u64]) -> Vec<BlockKey> {
        blocks.iter().map(|block| BlockKey(*block)).collect()
    }

    fn use_all(&mut self, blocks: &[u64]) -> Result<(), PoolError> {
        let keys = Self::wanted(blocks);
        let wanted = Wanted {
            parent: self.0.config.hasher.root(),
            keys: &keys,
            partial: 0,
        };
        self.0.use_blocks(wanted, Origin::default(), &mut Vec::new())
    }

    fn id(&self, block: u64) -> BlockId {
        self.0.find(BlockKey(block)).expect("it is there")
    }

    /// Tail first, as whoever releases a sequence does.
    fn release(&mut self, blocks: &[u64]) {
        for block in blocks.iter().rev() {
            self.0.release(self.id(*block)).expect("it is in use");
        }
    }

    fn of(&self, wanted: Use) -> Vec<u64> {
        let found = self.0.contents().filter(|(_, used)| *used == wanted);
        let mut blocks: Vec<u64> = found.map(|(key, _)| key.0).collect();
        blocks.sort_unstable();
        blocks
    }
}

#[test]
fn the_worked_example() {
    for copies in [CopyRule::Physical, CopyRule::Shared] {
        let mut pool = Example(Pool::new(config(10, copies)));
        pool.use_all(&[0, 1, 2, 3, 4]).expect("there is room");
        pool.use_all(&[0, 1, 5, 6]).expect("there is room");
        for (block, references) in [(0, 2), (1, 2), (2, 1), (5, 1)] {
            assert_eq!(pool.0.references(pool.id(block)), Ok(references));
        }
        pool.0.destroy(pool.id(4)).expect("it is in use");
        pool.release(&[0, 1, 2, 3]);
        assert_eq!(pool.of(Use::Inactive), [2, 3]);
        pool.0.destroy(pool.id(6)).expect("it is in use");
        pool.release(&[0, 1, 5]);
        assert_eq!(pool.of(Use::Inactive), [0, 1, 2, 3, 5]);
        assert_eq!(pool.of(Use::Active), [0; 0]);
        pool.use_all(&[0, 1, 2, 7, 8, 9]).expect("there is room");
        assert_eq!(pool.of(Use::Inactive), [3, 5]);
        assert_eq!(pool.0.missing(&Example::wanted(&[0, 1, 2, 3, 4])), Blocks(1));
        pool.use_all(&[10, 11, 12]).expect("there is room");
        assert_eq!(pool.of(Use::Inactive), [5]);
        assert_eq!(pool.of(Use::Active), [0, 1, 2, 7, 8, 9, 10, 11, 12]);
    }
}

#[test]
fn ten_active_blocks_refuse_an_eleventh_without_a_trace() {
    let mut pool = Example(Pool::new(config(10, CopyRule::Physical)));
    pool.use_all(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).expect("there is room");
    pool.release(&[8, 9]);
    let (before, inactive) = (pool.0.counts(), pool.of(Use::Inactive));
    let (told, _) = (pool.0.take_changes(), pool.0.take_trace().count());
    assert!(!told.is_empty());
    // Two can be had by eviction, but one of those is wanted itself.
    let refused = pool.use_all(&[0, 8, 20, 21]);
    assert_eq!(
        refused,
        Err(PoolError::Full {
            needed: 2,
            available: 1
        })
    );
    assert_eq!((pool.0.counts(), pool.of(Use::Inactive)), (before, inactive));
    assert_eq!(pool.0.references(pool.id(0)), Ok(1));
    assert!(!pool.0.has_changes() && pool.0.take_trace().next().is_none());
    pool.use_all(&[8, 20]).expect("there is room");
    assert_eq!(
        pool.use_all(&[21]),
        Err(PoolError::Full {
            needed: 1,
            available: 0
        })
    );
}

#[test]
fn errors_are_told_apart_and_change_nothing() {
    let mut pool = Example(Pool::new(config(4, CopyRule::Shared)));
    let root = pool.0.config.hasher.root();
    let mut held = Vec::new();
    let partial = Wanted {
        parent: root,
        keys: &[],
        partial: 2,
    };
    pool.0
        .use_blocks(partial, Origin::default(), &mut held)
        .expect("there is room");
    pool.use_all(&[7]).expect("there is room");
    let full = pool.id(7);
    pool.0.take_changes();
    let before = pool.0.counts();

    assert_eq!(
        pool.0.promote(full, root, BlockKey(8), Origin::default()),
        Err(PoolError::NotPartial(full))
    );
    pool.0.share(held[0]).expect("it is in use");
    let shared = pool.0.promote(held[0], root, BlockKey(8), Origin::default());
    assert_eq!(shared, Err(PoolError::SharedPartial(held[0])));
    assert_eq!(pool.0.clear(), Err(PoolError::InUse(3)));
    assert_eq!(pool.0.counts(), before);
    assert!(!pool.0.has_changes());

    pool.0.release(full).expect("it is in use");
    assert_eq!(pool.0.release(full), Err(PoolError::NotActive(full)));
    assert_eq!(pool.0.destroy(full), Err(PoolError::NotActive(full)));
    pool.0.release(held[1]).expect("it is in use");
    for result in [
        pool.0.release(held[1]),
        pool.0.destroy(held[1]),
        pool.0.share(held[1]),
        pool.0.promote(held[1], root, BlockKey(8), Origin::default()).map(drop),
    ] {
        assert_eq!(result, Err(PoolError::Unknown(held[1])));
    }
    // The place lives on under another name.
    pool.0
        .use_blocks(partial, Origin::default(), &mut held)
        .expect("there is room");
    assert_eq!(pool.0.release(held[1]), Err(PoolError::Unknown(held[1])));
}

#[test]
fn equal_blocks_are_copies_or_one() {
    for (copies, told, blocks) in [(CopyRule::Physical, 2, 2), (CopyRule::Shared, 1, 1)] {
        let mut pool = Pool::new(config(4, copies));
        let root = pool.config.hasher.root();
        let mut held = Vec::new();
        let wanted = Wanted {
            parent: root,
            keys: &[],
            partial: 2,
        };
        pool.use_blocks(wanted, Origin::default(), &mut held)
            .expect("there is room");
        for id in &mut held {
            *id = pool
                .promote(*id, root, BlockKey(9), Origin::default())
                .expect("it is partial");
        }
        assert_eq!(pool.take_changes().len(), told);
        assert_eq!(pool.counts().active, blocks);
        for id in held.into_iter().rev() {
            pool.release(id).expect("it is in use");
        }
        let wanted = Wanted {
            parent: root,
            keys: &[],
            partial: 4,
        };
        pool.use_blocks(wanted, Origin::default(), &mut Vec::new())
            .expect("there is room");
        let gone = pool.take_changes();
        assert_eq!(gone.len(), told, "{gone:?}");
    }
}

#[test]
fn of_copies_the_one_that_came_first_is_found() {
    let gone_and_then_found = |gone: &[usize]| {
        let mut pool = Pool::new(config(8, CopyRule::Physical));
        let root = pool.config.hasher.root();
        let mut held = Vec::new();
        let mut copy = |pool: &mut Pool| {
            let wanted = Wanted {
                parent: root,
                keys: &[],
                partial: 1,
            };
            pool.use_blocks(wanted, Origin::default(), &mut held)
                .expect("there is room");
            let id = held[held.len() - 1];
            pool.promote(id, root, BlockKey(9), Origin::default())
                .expect("it is partial")
        };
        let mut ids: Vec<BlockId> = (0..4).map(|_| copy(&mut pool)).collect();
        for place in gone {
            pool.destroy(ids[*place]).expect("it is in use");
        }
        // One that comes later stands behind those that are left.
        ids.push(copy(&mut pool));
        let mut order = Vec::new();
        while let Some(found) = pool.find(BlockKey(9)) {
            order.push(ids.iter().position(|id| *id == found).expect("it is one of them"));
            pool.destroy(found).expect("it is in use");
        }
        order
    };
    assert_eq!(gone_and_then_found(&[]), [0, 1, 2, 3, 4]);
    assert_eq!(gone_and_then_found(&[0]), [1, 2, 3, 4]);
    assert_eq!(gone_and_then_found(&[3]), [0, 1, 2, 4]);
    assert_eq!(gone_and_then_found(&[1, 2]), [0, 3, 4]);
    assert_eq!(gone_and_then_found(&[3, 0, 2]), [1, 4]);
    assert_eq!(gone_and_then_found(&[0, 1, 2, 3]), [4]);
}

#[test]
fn a_prefill_costs_what_comes_after_the_leading_run() {
    let mut pool = Example(Pool::new(config(10, CopyRule::Physical)));
    pool.use_all(&[0, 1, 3]).expect("there is room");
    let size = BlockSize::new(4).expect("it is not 0");
    let keys = Example::wanted(&[0, 1, 2, 3]);
    for (blocks, length, new_blocks, new_tokens) in [(4, 18, 3, 10), (2, 8, 1, 4), (2, 9, 1, 1), (0, 3, 1, 3)] {
        let cost = pool.0.prefill_cost(&keys[..blocks], Tokens(length), size);
        let expected = PrefillCost {
            new_blocks: Blocks(new_blocks),
            new_tokens: Tokens(new_tokens),
        };
        assert_eq!(cost, expected, "{length} tokens");
    }
}

#[test]
fn what_leaves_the_device_is_told_to_be_below_first() {
    let mut with_tiers = config(1, CopyRule::Physical);
    let tier = |tier, capacity| TierConfig {
        tier,
        capacity: Blocks(capacity),
        onboard: GigabytesPerSecond(50.0),
    };
    with_tiers.tiers = vec![tier(Tier::Host, 1), tier(Tier::Disk, 1)];
    let mut pool = Example(Pool::new(with_tiers));
    for block in 0..4 {
        pool.use_all(&[block]).expect("there is room");
        pool.release(&[block]);
    }
    let mut lower: Vec<_> = pool.0.offloaded().collect();
    lower.sort_unstable();
    assert_eq!(lower, [(BlockKey(1), Tier::Disk), (BlockKey(2), Tier::Host)]);
    let changes = pool.0.take_changes();
    let steps: Vec<String> = changes.iter().map(|change| describe(&change.change)).collect();
    let last = "+Host[2] -Disk[0] +Disk[1] -Host[1] -Device[2] +Device[3]";
    assert!(steps.join(" ").ends_with(last), "{steps:?}");
    // What comes back stays below too, and is not written again when it goes.
    pool.use_all(&[2]).expect("there is room");
    pool.release(&[2]);
    pool.0.take_changes();
    pool.use_all(&[9]).expect("there is room");
    let changes = pool.0.take_changes();
    let steps: Vec<String> = changes.iter().map(|change| describe(&change.change)).collect();
    assert_eq!(steps.join(" "), "-Device[2] +Device[9]");
}

fn describe(change: &KvChange) -> String {
    let number = |label: u64| label ^ 0x5555;
    match change {
        KvChange::Stored(stored) => {
            let labels: Vec<u64> = stored.blocks.iter().map(|block| number(block.label.get())).collect();
            format!("+{:?}{labels:?}", stored.tier)
        }
        KvChange::Removed(removed) => {
            let labels: Vec<u64> = removed.labels.iter().map(|label| number(label.get())).collect();
            format!("-{:?}{labels:?}", removed.tier)
        }
        KvChange::Cleared(_) => "cleared".to_owned(),
    }
}

/// Something that is asked of a pool. Numbers choose among what there is.
#[derive(Clone, Debug)]
enum Op {
    /// A new holder uses the first blocks of a chain, and some partial ones.
    Use {
        chain: usize,
        full: usize,
        partial: u32,
    },
    /// A holder's first partial block becomes the next of its chain.
    Promote {
        holder: usize,
    },
    Share {
        holder: usize,
        block: usize,
    },
    Release {
        holder: usize,
    },
    Destroy {
        holder: usize,
        block: usize,
    },
    /// An id of long ago.
    Stale {
        which: usize,
    },
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..CHAINS, 0..=DEPTH, 0..3_u32).prop_map(|(chain, full, partial)| Op::Use { chain, full, partial }),
        4 => any::<usize>().prop_map(|holder| Op::Promote { holder }),
        1 => any::<(usize, usize)>().prop_map(|(holder, block)| Op::Share { holder, block }),
        3 => any::<usize>().prop_map(|holder| Op::Release { holder }),
        1 => any::<(usize, usize)>().prop_map(|(holder, block)| Op::Destroy { holder, block }),
        1 => any::<usize>().prop_map(|which| Op::Stale { which }),
        1 => Just(Op::Clear),
    ]
}

const CHAINS: usize = 8;
const DEPTH: usize = 6;

/// Chains that share prefixes: chain n branches off where the bits of n say so.
fn chain(hasher: &KeyHasher, number: usize) -> Vec<BlockKey> {
    let mut parent = hasher.root();
    let keys = (0..DEPTH).map(|depth| {
        let content = ContentHash((number >> (DEPTH - 1 - depth)) as u64 + 100 * depth as u64);
        parent = hasher.child(parent, content);
        parent
    });
    keys.collect()
}

struct Holder {
    chain: usize,
    /// How many of `blocks`, from the first on, are full.
    full: usize,
    blocks: Vec<BlockId>,
}

struct World {
    pool: Pool,
    chains: Vec<Vec<BlockKey>>,
    holders: Vec<Holder>,
    seen: Vec<BlockId>,
    oracle: Oracle,
}

impl World {
    fn new(config: PoolConfig) -> Self {
        let mut oracle = Oracle::new(config.hasher, 1_000);
        oracle.add_rank(RANK, Copies::Counted);
        Self {
            chains: (0..CHAINS).map(|number| chain(&config.hasher, number)).collect(),
            pool: Pool::new(config),
            holders: Vec::new(),
            seen: Vec::new(),
            oracle,
        }
    }

    fn apply(&mut self, op: &Op) {
        let holders = self.holders.len().max(1);
        match *op {
            Op::Use { chain, full, partial } => {
                let before = self.pool.counts();
                let wanted = Wanted {
                    parent: self.pool.config.hasher.root(),
                    keys: &self.chains[chain][..full],
                    partial,
                };
                let mut blocks = Vec::new();
                match self.pool.use_blocks(wanted, Origin::default(), &mut blocks) {
                    Ok(()) => self.holders.push(Holder { chain, full, blocks }),
                    Err(_) => assert!(blocks.is_empty() && self.pool.counts() == before),
                }
            }
            Op::Promote { holder } => {
                let Some(holder) = self.holders.get_mut(holder % holders) else {
                    return;
                };
                let (chain, next) = (&self.chains[holder.chain], holder.full);
                let (Some(id), Some(key)) = (holder.blocks.get_mut(next), chain.get(next)) else {
                    return;
                };
                let parent = next
                    .checked_sub(1)
                    .map_or(self.pool.config.hasher.root(), |before| chain[before]);
                if let Ok(kept) = self.pool.promote(*id, parent, *key, Origin::default()) {
                    *id = kept;
                    holder.full += 1;
                }
            }
            Op::Share { holder, block } => {
                let Some(holder) = self.holders.get(holder % holders) else {
                    return;
                };
                let Some(id) = holder.blocks.get(block % holder.blocks.len().max(1)) else {
                    return;
                };
                let (id, chain) = (*id, holder.chain);
                if self.pool.share(id).is_ok() {
                    self.holders.push(Holder {
                        chain,
                        full: usize::MAX,
                        blocks: vec![id],
                    });
                }
            }
            Op::Release { holder } => {
                if !self.holders.is_empty() {
                    let holder = self.holders.swap_remove(holder % holders);
                    for id in holder.blocks.iter().rev() {
                        // What was destroyed meanwhile is unknown.
                        let _ = self.pool.release(*id);
                    }
                    self.seen.extend(holder.blocks);
                }
            }
            Op::Destroy { holder, block } => {
                let Some(holder) = self.holders.get(holder % holders) else {
                    return;
                };
                let Some(id) = holder.blocks.get(block % holder.blocks.len().max(1)) else {
                    return;
                };
                let _ = self.pool.destroy(*id);
            }
            Op::Stale { which } => self.disturb(which),
            Op::Clear => {
                let cleared = self.pool.clear();
                assert_eq!(cleared.is_ok(), self.pool.counts().active == 0);
            }
        }
    }

    /// Ids of long ago that nobody holds are refused, or revive nothing.
    fn disturb(&mut self, which: usize) {
        let Some(&id) = self.seen.get(which % self.seen.len().max(1)) else {
            return;
        };
        if self.holders.iter().any(|holder| holder.blocks.contains(&id)) {
            return;
        }
        let before = self.pool.counts();
        assert!(self.pool.release(id).is_err() && self.pool.destroy(id).is_err() && self.pool.share(id).is_err());
        assert_eq!(self.pool.counts(), before);
    }

    fn check(&mut self) {
        let counts = self.pool.counts();
        assert_eq!(counts.free + counts.active + counts.inactive, counts.total);
        let mut references: HashMap<BlockId, u32> = HashMap::new();
        for id in self.holders.iter().flat_map(|holder| &holder.blocks) {
            if self.pool.references(*id).is_ok() {
                *references.entry(*id).or_default() += 1;
            }
        }
        assert_eq!(counts.active as usize, references.len());
        for (id, expected) in references {
            assert_eq!(self.pool.references(id), Ok(expected));
        }
        for change in self.pool.take_changes() {
            match change.change {
                KvChange::Stored(stored) => self.oracle.store(RANK, &stored),
                KvChange::Removed(removed) => assert_eq!(self.oracle.remove(RANK, &removed), 0, "{removed:?}"),
                KvChange::Cleared(scope) => self.oracle.clear(RANK, scope),
            }
        }
        let on_device = |key: &&BlockKey| self.pool.find(**key).is_some();
        let anywhere = |key: &&BlockKey| on_device(key) || self.pool.offloaded_at(**key).is_some();
        for keys in &self.chains {
            let told = self.oracle.lookup(keys)[&RANK];
            assert_eq!(
                told[Tier::Device.index()],
                keys.iter().take_while(on_device).count() as u32
            );
            assert_eq!(
                told[Tier::External.index()],
                keys.iter().take_while(anywhere).count() as u32
            );
        }
        let copies: Vec<BlockKey> = self.pool.contents().map(|(key, _)| key).collect();
        for key in &copies {
            let equal = copies.iter().filter(|other| *other == key).count();
            assert!(equal == 1 || self.pool.config.copies == CopyRule::Physical);
        }
    }

    /// When all is released and evicted, nothing is left that was told to be there.
    fn end(&mut self) {
        while !self.holders.is_empty() {
            self.apply(&Op::Release { holder: 0 });
        }
        let all = Wanted {
            parent: self.pool.config.hasher.root(),
            keys: &[],
            partial: self.pool.config.capacity.0,
        };
        self.pool
            .use_blocks(all, Origin::default(), &mut Vec::new())
            .expect("nothing is held");
        self.check_device_is_empty();
    }

    fn check_device_is_empty(&mut self) {
        for change in self.pool.take_changes() {
            match change.change {
                KvChange::Stored(stored) => self.oracle.store(RANK, &stored),
                KvChange::Removed(removed) => assert_eq!(self.oracle.remove(RANK, &removed), 0, "{removed:?}"),
                KvChange::Cleared(scope) => self.oracle.clear(RANK, scope),
            }
        }
        for keys in &self.chains {
            assert_eq!(self.oracle.lookup(keys)[&RANK][Tier::Device.index()], 0);
        }
    }
}

fn tiers() -> impl Strategy<Value = Vec<TierConfig>> {
    let one = |tier, capacity| TierConfig {
        tier,
        capacity: Blocks(capacity),
        onboard: GigabytesPerSecond(50.0),
    };
    prop_oneof![
        Just(Vec::new()),
        (1..6_u32).prop_map(move |host| vec![one(Tier::Host, host)]),
        (1..6_u32, 1..6_u32).prop_map(move |(host, disk)| vec![one(Tier::Host, host), one(Tier::Disk, disk)]),
    ]
}

fn run(config: PoolConfig, ops: &[Op]) {
    let mut world = World::new(config);
    for op in ops {
        world.apply(op);
        world.check();
    }
    world.end();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_is_asked_the_events_tell_the_content(
        capacity in 1..14_u32,
        copies in prop_oneof![Just(CopyRule::Physical), Just(CopyRule::Shared)],
        tiers in tiers(),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        run(PoolConfig { tiers, ..config(capacity, copies) }, &ops);
    }
}

/// Each planted bug of a pool is found by the property above within a bounded number of cases.
#[test]
fn planted_bugs_are_found() {
    for bug in [crate::Bug::CopyNotTold, crate::Bug::EvictionNotTold] {
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            cases: 2_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let found = runner.run(&prop::collection::vec(op(), 1..80), |ops| {
            let buggy = PoolConfig {
                bug: Some(bug),
                ..config(7, CopyRule::Physical)
            };
            let result = std::panic::catch_unwind(|| run(buggy, &ops));
            result.map_err(|_| TestCaseError::fail("found"))
        });
        assert!(found.is_err(), "{bug:?} was not found");
    }
}
