//! Two views that never disagree, whatever is said in whatever order, and by however many at once.

use std::collections::{BTreeMap, BTreeSet};

use homing_adapters::{Residency, SharedResidency, SlotsHeard};
use homing_domain::{AdapterName, RankId, WorkerId};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Word {
    Up(u32, u16, u32),
    Gone(u32),
    Add(u32, u16, u8),
    Remove(u32, u16, u8),
    Active(u32, u16, Vec<u8>),
}

fn word() -> impl Strategy<Value = Word> {
    let (worker, dp, adapter) = (0..5_u32, 0..3_u16, 0..8_u8);
    prop_oneof![
        1 => (worker.clone(), 1..4_u16, 0..6_u32).prop_map(|(worker, ranks, slots)| Word::Up(worker, ranks, slots)),
        1 => worker.clone().prop_map(Word::Gone),
        4 => (worker.clone(), dp.clone(), adapter.clone()).prop_map(|(worker, dp, adapter)| Word::Add(worker, dp, adapter)),
        2 => (worker.clone(), dp.clone(), adapter.clone()).prop_map(|(worker, dp, adapter)| Word::Remove(worker, dp, adapter)),
        1 => (worker, dp, prop::collection::vec(adapter, 0..4)).prop_map(|(worker, dp, active)| Word::Active(worker, dp, active)),
    ]
}

fn name(adapter: u8) -> AdapterName {
    AdapterName::new(format!("a{adapter}"))
}

/// What must hold, in the plainest words: pairs, and who is there.
#[derive(Default)]
struct Naive {
    ranks: BTreeSet<RankId>,
    slots: BTreeMap<u32, u32>,
    pairs: BTreeSet<(RankId, AdapterName)>,
    active: BTreeSet<(RankId, AdapterName)>,
}

impl Naive {
    fn say(&mut self, word: &Word) {
        match word {
            Word::Up(worker, ranks, slots) => {
                self.slots.insert(*worker, *slots);
                self.ranks.extend((0..*ranks).map(|dp| RankId::new(*worker, dp)));
            }
            Word::Gone(worker) => {
                self.slots.remove(worker);
                self.ranks.retain(|rank| rank.worker.0 != *worker);
                self.pairs.retain(|(rank, _)| rank.worker.0 != *worker);
                self.active.retain(|(rank, _)| rank.worker.0 != *worker);
            }
            Word::Add(worker, dp, adapter) => {
                let rank = RankId::new(*worker, *dp);
                if self.ranks.contains(&rank) {
                    self.pairs.insert((rank, name(*adapter)));
                }
            }
            Word::Remove(worker, dp, adapter) => {
                self.pairs.remove(&(RankId::new(*worker, *dp), name(*adapter)));
            }
            Word::Active(worker, dp, active) => {
                let rank = RankId::new(*worker, *dp);
                if self.ranks.contains(&rank) {
                    self.active.retain(|(of, _)| *of != rank);
                    self.active.extend(active.iter().map(|adapter| (rank, name(*adapter))));
                }
            }
        }
    }
}

fn say(residency: &mut Residency, word: &Word) {
    match word {
        Word::Up(worker, ranks, slots) => {
            residency.worker_up(WorkerId(*worker), *ranks, *slots);
        }
        Word::Gone(worker) => {
            residency.worker_gone(WorkerId(*worker));
        }
        Word::Add(worker, dp, adapter) => {
            residency.add(RankId::new(*worker, *dp), &name(*adapter));
        }
        Word::Remove(worker, dp, adapter) => {
            residency.remove(RankId::new(*worker, *dp), &name(*adapter));
        }
        Word::Active(worker, dp, active) => {
            residency.set_active(RankId::new(*worker, *dp), active.iter().map(|of| name(*of)).collect());
        }
    }
}

/// Whether both views say the same, and nobody who is not there has anything.
fn agrees(residency: &Residency) {
    let by_adapter: BTreeSet<(RankId, AdapterName)> = residency
        .adapters()
        .flat_map(|adapter| residency.holders(adapter).map(|rank| (rank, adapter.clone())))
        .collect();
    let by_rank: BTreeSet<(RankId, AdapterName)> = residency
        .ranks()
        .flat_map(|rank| residency.on(rank).map(move |adapter| (rank, adapter.clone())))
        .collect();
    assert_eq!(by_adapter, by_rank);
    assert_eq!(residency.all_loaded(), by_rank.len() as u64);
    assert_eq!(residency.is_empty(), by_rank.is_empty());
}

proptest! {
    #[test]
    fn it_says_what_the_plain_model_says(words in prop::collection::vec(word(), 0..120)) {
        let (mut residency, mut naive) = (Residency::default(), Naive::default());
        for word in &words {
            say(&mut residency, word);
            naive.say(word);
            agrees(&residency);
            prop_assert_eq!(residency.ranks().collect::<BTreeSet<_>>(), naive.ranks.clone());
            let mut slots = 0;
            for worker in 0..6 {
                for dp in 0..4 {
                    let rank = RankId::new(worker, dp);
                    let loaded = naive.pairs.iter().filter(|(of, _)| *of == rank).count() as u32;
                    let has = if naive.ranks.contains(&rank) { naive.slots[&worker] } else { 0 };
                    slots += u64::from(has);
                    prop_assert_eq!(residency.loaded(rank), loaded);
                    prop_assert_eq!(residency.free(rank), has.saturating_sub(loaded));
                    prop_assert_eq!(residency.with_room().any(|with| with == rank), has > loaded);
                    prop_assert!((0.0..=1.0).contains(&residency.usage(rank)));
                    for adapter in 0..8 {
                        let pair = (rank, name(adapter));
                        prop_assert_eq!(residency.has(rank, &pair.1), naive.pairs.contains(&pair));
                        prop_assert_eq!(residency.is_active(rank, &pair.1), naive.active.contains(&pair));
                    }
                }
            }
            prop_assert_eq!(residency.all_slots(), slots);
        }
    }

    #[test]
    fn saying_it_again_changes_nothing(words in prop::collection::vec(word(), 1..40)) {
        let mut residency = Residency::default();
        for word in &words {
            say(&mut residency, word);
            let once = residency.clone();
            say(&mut residency, word);
            prop_assert_eq!(&residency, &once);
        }
    }
}

#[test]
fn slots_that_are_said_otherwise_hold_and_are_told_of() {
    let mut residency = Residency::default();
    let worker = WorkerId(1);
    assert_eq!(residency.worker_up(worker, 2, 4), SlotsHeard::New);
    assert_eq!(residency.worker_up(worker, 2, 4), SlotsHeard::Same);
    assert_eq!(
        residency.worker_up(worker, 2, 8),
        SlotsHeard::Changed { from: 4, to: 8 }
    );
    assert_eq!(residency.free(RankId::new(1, 1)), 8);
    assert!(residency.add(RankId::new(1, 0), &name(0)));
    assert_eq!(residency.worker_gone(worker), BTreeSet::from([name(0)]));
    assert!(!residency.add(RankId::new(1, 0), &name(0)), "it is gone");
    assert_eq!(residency.free(RankId::new(1, 0)), 0);
}

#[test]
fn many_at_once_leave_views_that_agree() {
    let shared = SharedResidency::default();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let shared = &shared;
            scope.spawn(move || {
                let mut chance = thread + 1;
                let mut draw = |most: u64| {
                    chance = chance
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (chance >> 33) % most
                };
                for _ in 0..2_000 {
                    let (worker, dp, adapter) = (draw(4) as u32, draw(2) as u16, draw(8) as u8);
                    let word = match draw(8) {
                        0 => Word::Up(worker, 2, 4),
                        1 => Word::Gone(worker),
                        2 | 3 => Word::Remove(worker, dp, adapter),
                        _ => Word::Add(worker, dp, adapter),
                    };
                    shared.change(|residency| say(residency, &word));
                    agrees(&shared.snapshot());
                }
            });
        }
    });
    for worker in 0..4 {
        shared.change(|residency| residency.worker_gone(WorkerId(worker)));
    }
    let left = shared.snapshot();
    assert!(left.is_empty() && left.all_slots() == 0 && left.with_room().next().is_none());
}
