//! Is an answer ever too high, or too low without saying so? Here the truth is what engines hold that keep the rules: a
//! block comes after one that is held, and a label names one block at a time. They know nothing of bounds and orphans; the
//! index forgets, and is filled from lists while it is written to.
#![expect(clippy::unwrap_used, reason = "a test may fail anywhere, helpers included")]

use std::collections::{BTreeMap, BTreeSet};

use homing_domain::{
    BlockKey, CacheGroup, ClearScope, ContentHash, HashSeed, KeyHasher, Label, Listed, ListedParent, RankId, Removed,
    Stored, StoredBlock, Tier,
};
use homing_index::{Answer, Bug, Copies, Index, IndexConfig, Listing, Reader, Slot};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Blocks of a sequence at most, and contents that a block may have.
const DEPTH: usize = 6;
const CONTENTS: u8 = 2;

/// How an engine calls its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Labels {
    /// By what they are, as engines do that hash.
    Hashed,
    /// By the lowest number that is free.
    Numbered,
}

/// Which blocks an engine lets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Any,
    LeavesFirst,
}

/// Where a list comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// From the index itself.
    Index,
    /// From somebody who knows all that the engine holds.
    Engine,
}

/// What happens. Numbers are taken modulo what exists.
#[derive(Clone, Debug)]
enum Act {
    /// Blocks come after a block that is held, or at the beginning.
    Store {
        rank: u8,
        after: Option<u8>,
        contents: Vec<u8>,
        tier: Tier,
    },
    /// Copies go, one for each number.
    Remove {
        rank: u8,
        which: Vec<u8>,
    },
    Clear {
        rank: u8,
        scope: ClearScope,
    },
    /// What a rank holds is filled in anew from a list, while another rank stores a block after each item.
    Refill {
        rank: u8,
        source: Source,
        meanwhile: Vec<(u8, u8, u8)>,
    },
    Maintain,
}

#[derive(Clone, Debug)]
struct Script {
    engines: Vec<(Labels, Order)>,
    copies: Copies,
    capacity: u64,
    orphans: usize,
    acts: Vec<Act>,
}

/// A block that an engine holds.
struct Block {
    label: Label,
    parent: Option<BlockKey>,
    copies: BTreeMap<Tier, u32>,
}

struct Engine {
    labels: Labels,
    order: Order,
    slot: Slot,
    held: BTreeMap<BlockKey, Block>,
}

impl Engine {
    fn fresh_label(&self, key: BlockKey) -> Label {
        let used: BTreeSet<u64> = self.held.values().map(|block| block.label.get()).collect();
        let lowest = (0..=used.len() as u64).find(|number| !used.contains(number)).unwrap();
        Label::new(match self.labels {
            Labels::Hashed => key.0,
            Labels::Numbered => lowest,
        })
    }

    fn nth(&self, number: u8) -> Option<BlockKey> {
        self.held
            .keys()
            .nth(usize::from(number) % self.held.len().max(1))
            .copied()
    }

    /// Copies that may go now.
    fn evictable(&self) -> Vec<(BlockKey, Tier)> {
        let parents: BTreeSet<BlockKey> = self.held.values().filter_map(|block| block.parent).collect();
        let blocks = self
            .held
            .iter()
            .filter(|(key, _)| self.order == Order::Any || !parents.contains(key));
        blocks
            .flat_map(|(key, block)| block.copies.keys().map(|tier| (*key, *tier)))
            .collect()
    }

    fn depth(&self, keys: &[BlockKey], deepest: Tier) -> u32 {
        let reaches = |block: &Block| block.copies.keys().any(|tier| *tier <= deepest);
        keys.iter()
            .take_while(|key| self.held.get(key).is_some_and(reaches))
            .count() as u32
    }
}

struct Fleet {
    hasher: KeyHasher,
    copies: Copies,
    index: Index,
    reader: Reader,
    engines: Vec<Engine>,
    sequences: Vec<Vec<BlockKey>>,
    /// Every block that there may be, and the one before it.
    parents: BTreeMap<BlockKey, Option<BlockKey>>,
}

impl Fleet {
    fn new(script: &Script, bug: Option<Bug>) -> Self {
        let hasher = KeyHasher::new(HashSeed::PUBLIC);
        let mut index = Index::new(IndexConfig {
            capacity: script.capacity,
            orphans_per_rank: script.orphans,
            bug,
            ..IndexConfig::new(hasher)
        });
        let engines = script.engines.iter().zip(0..).map(|((labels, order), number)| Engine {
            labels: *labels,
            order: *order,
            slot: index.add_rank(RankId::new(number, 0), script.copies).unwrap(),
            held: BTreeMap::new(),
        });
        let engines = engines.collect();
        let mut parents = BTreeMap::new();
        let mut sequences = Vec::new();
        for code in 0..u64::from(CONTENTS).pow(DEPTH as u32) {
            let (mut parent, mut keys) = (None, Vec::new());
            for block in 0..DEPTH as u32 {
                let content = ContentHash(code / u64::from(CONTENTS).pow(block) % u64::from(CONTENTS));
                let key = hasher.child(parent.unwrap_or(hasher.root()), content);
                parents.insert(key, parent);
                keys.push(key);
                parent = Some(key);
            }
            sequences.push(keys);
        }
        Self {
            hasher,
            copies: script.copies,
            reader: index.reader(),
            index,
            engines,
            sequences,
            parents,
        }
    }

    fn act(&mut self, act: &Act) -> Result<(), String> {
        match act {
            Act::Store {
                rank,
                after,
                contents,
                tier,
            } => self.store(self.rank(*rank), *after, contents, *tier),
            Act::Remove { rank, which } => return self.remove(self.rank(*rank), which),
            Act::Clear { rank, scope } => {
                let engine = self.rank(*rank);
                let engine = &mut self.engines[engine];
                engine.held.values_mut().for_each(|block| match scope {
                    ClearScope::AllTiers => block.copies.clear(),
                    ClearScope::Only(tier) => drop(block.copies.remove(tier)),
                });
                engine.held.retain(|_, block| !block.copies.is_empty());
                engine.slot = self.index.clear(engine.slot, *scope).unwrap();
            }
            Act::Refill {
                rank,
                source,
                meanwhile,
            } => self.refill(self.rank(*rank), *source, meanwhile),
            Act::Maintain => while self.index.maintain(50).is_pending() {},
        }
        Ok(())
    }

    fn rank(&self, number: u8) -> usize {
        usize::from(number) % self.engines.len()
    }

    fn store(&mut self, rank: usize, after: Option<u8>, contents: &[u8], tier: Tier) {
        let engine = &mut self.engines[rank];
        let mut parent = after.and_then(|number| engine.nth(number));
        let parent_label = parent.map(|key| engine.held[&key].label);
        let mut blocks = Vec::new();
        for content in contents {
            let content = ContentHash(u64::from(content % CONTENTS));
            let key = self.hasher.child(parent.unwrap_or(self.hasher.root()), content);
            if !self.parents.contains_key(&key) {
                break;
            }
            let label = engine.held.get(&key).map(|block| block.label);
            let label = label.unwrap_or_else(|| engine.fresh_label(key));
            let block = engine.held.entry(key).or_insert(Block {
                label,
                parent,
                copies: BTreeMap::new(),
            });
            let count = block.copies.entry(tier).or_insert(0);
            *count = if self.copies == Copies::Set { 1 } else { *count + 1 };
            blocks.push(StoredBlock { label, content });
            parent = Some(key);
        }
        let stored = Stored {
            tier,
            ..Stored::plain(parent_label, blocks)
        };
        self.index.store(engine.slot, &stored).unwrap();
    }

    fn remove(&mut self, rank: usize, which: &[u8]) -> Result<(), String> {
        let engine = &mut self.engines[rank];
        for number in which {
            let evictable = engine.evictable();
            let Some((key, tier)) = evictable.get(usize::from(*number) % evictable.len().max(1)).copied() else {
                break;
            };
            let block = engine.held.get_mut(&key).unwrap();
            let label = block.label;
            block.copies.entry(tier).and_modify(|count| *count -= 1);
            block.copies.retain(|_, count| *count > 0);
            if block.copies.is_empty() {
                engine.held.remove(&key);
            }
            let removed = Removed {
                labels: vec![label],
                tier,
                group: CacheGroup(0),
            };
            let outcome = self.index.remove(engine.slot, &removed).unwrap();
            if outcome.unknown > 0 {
                return Err(format!("{label:?} is called unknown, and rank {rank} is not truncated"));
            }
        }
        Ok(())
    }

    fn refill(&mut self, rank: usize, source: Source, meanwhile: &[(u8, u8, u8)]) {
        let listing = match source {
            Source::Index => self.index.list(self.engines[rank].slot).unwrap(),
            Source::Engine => self.listing(rank),
        };
        let draft = self.index.draft(RankId::new(rank as u32, 0), self.copies).unwrap();
        let mut meanwhile = meanwhile.iter();
        for item in &listing.items {
            self.index.restore(draft, item).unwrap();
            if let Some((other, after, content)) = meanwhile.next()
                && self.rank(*other) != rank
            {
                self.store(self.rank(*other), Some(*after), &[*content], Tier::Device);
            }
        }
        if listing.truncated {
            self.index.mark_truncated(draft).unwrap();
        }
        self.index.publish(draft).unwrap();
        self.engines[rank].slot = draft;
    }

    /// All that an engine holds, parents first.
    fn listing(&self, rank: usize) -> Listing {
        let held = &self.engines[rank].held;
        let mut listing = Listing::default();
        let mut listed = BTreeSet::new();
        for key in self.sequences.iter().flatten().filter(|key| listed.insert(**key)) {
            let Some(block) = held.get(key) else { continue };
            let parent = match self.parents[key] {
                None => ListedParent::Root,
                Some(parent) => held
                    .get(&parent)
                    .map_or(ListedParent::Key(parent), |block| ListedParent::Label(block.label)),
            };
            let before = self.parents[key].unwrap_or(self.hasher.root());
            let stored = StoredBlock {
                label: block.label,
                content: self.hasher.content_of(before, *key),
            };
            listing.items.extend(block.copies.iter().map(|(tier, copies)| Listed {
                parent,
                tier: *tier,
                group: CacheGroup(0),
                copies: *copies,
                blocks: vec![stored],
            }));
        }
        listing
    }

    fn check(&self, answer: &mut Answer) -> Result<(), String> {
        self.index.verify()?;
        let is_truncated = |engine: &Engine| self.index.rank_stats(engine.slot).unwrap().truncated;
        let truncated: Vec<bool> = self.engines.iter().map(is_truncated).collect();
        for keys in &self.sequences {
            self.reader.lookup(keys, answer);
            for (rank, engine) in self.engines.iter().enumerate() {
                for tier in [Tier::Device, Tier::Host] {
                    let (found, truth) = (answer.depth(engine.slot, tier).0, engine.depth(keys, tier));
                    if found > truth || found < truth && !truncated[rank] {
                        let mark = if truncated[rank] { "" } else { ", not truncated" };
                        return Err(format!(
                            "rank {rank}{mark}: {found} instead of {truth} down to {tier:?}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

fn run(script: &Script, bug: Option<Bug>) -> Result<(), String> {
    let mut fleet = Fleet::new(script, bug);
    let mut answer = Answer::default();
    for (number, act) in script.acts.iter().enumerate() {
        let done = fleet.act(act).and_then(|()| fleet.check(&mut answer));
        done.map_err(|what| format!("after act {number}, {act:?}: {what}"))?;
    }
    Ok(())
}

fn act() -> impl Strategy<Value = Act> {
    let tier = || prop_oneof![3 => Just(Tier::Device), 1 => Just(Tier::Host)];
    let scope = prop_oneof![Just(ClearScope::AllTiers), tier().prop_map(ClearScope::Only),];
    let source = prop_oneof![Just(Source::Index), Just(Source::Engine)];
    let contents = prop::collection::vec(any::<u8>(), 1..6);
    let after = prop::option::weighted(0.7, any::<u8>());
    let meanwhile = prop::collection::vec(any::<(u8, u8, u8)>(), 0..8);
    prop_oneof![
        9 => (any::<u8>(), after, contents, tier())
            .prop_map(|(rank, after, contents, tier)| Act::Store { rank, after, contents, tier }),
        6 => (any::<u8>(), prop::collection::vec(any::<u8>(), 1..5)).prop_map(|(rank, which)| Act::Remove { rank, which }),
        1 => (any::<u8>(), scope).prop_map(|(rank, scope)| Act::Clear { rank, scope }),
        3 => (any::<u8>(), source, meanwhile)
            .prop_map(|(rank, source, meanwhile)| Act::Refill { rank, source, meanwhile }),
        1 => Just(Act::Maintain),
    ]
}

fn script() -> impl Strategy<Value = Script> {
    let labels = prop_oneof![Just(Labels::Hashed), Just(Labels::Numbered)];
    let order = prop_oneof![Just(Order::Any), Just(Order::LeavesFirst)];
    let engines = prop::collection::vec((labels, order), 1..4);
    let copies = prop_oneof![3 => Just(Copies::Counted), 1 => Just(Copies::Set)];
    let capacity = prop_oneof![1 => Just(1000_u64), 2 => 3_u64..30];
    let orphans = prop_oneof![Just(1000_usize), 0_usize..6];
    let acts = prop::collection::vec(act(), 1..60);
    (engines, copies, capacity, orphans, acts).prop_map(|(engines, copies, capacity, orphans, acts)| Script {
        engines,
        copies,
        capacity,
        orphans,
        acts,
    })
}

proptest! {
    #![proptest_config(Config { cases: 3000, max_shrink_iters: 20_000, ..Config::default() })]

    #[test]
    fn an_answer_is_never_too_high_and_too_low_only_if_it_says_so(script in script()) {
        run(&script, None).map_err(TestCaseError::fail)?;
    }
}

/// The mistakes that such engines can tell from a right index.
#[test]
fn labels_that_are_used_again_would_be_noticed() {
    for bug in [Bug::LabelOutlivesBlock, Bug::EvictionUnmarked, Bug::OrphanAtRoot] {
        let config = Config {
            cases: 60_000,
            max_shrink_iters: 0,
            failure_persistence: None,
            ..Config::default()
        };
        let found = TestRunner::new(config).run(&script(), |script| {
            run(&script, Some(bug)).map_err(|_| TestCaseError::fail("found"))
        });
        assert!(found.is_err(), "not found: {bug:?}");
    }
}
