//! What holds for every policy, whatever the fleet and the request?

use crate::world::World;
use homing_domain::{
    BlockSize, HashSeed, KeyHasher, Label as EngineLabel, Prompt, RankId, Role, Stored, StoredBlock, Tier, WorkerId,
};
use homing_index::{Answer, Copies, Index, IndexConfig};
use homing_load::Place;
use homing_profile::{Millis, Polynomial, Timing};
use homing_scheduler::policy::{NAMES, by_name};
use homing_scheduler::{Depths, Draw, Duty, Health, Label, Overlap, Pin, Scheduler};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Rank {
    down: bool,
    draining: bool,
    role: u8,
    zone: u8,
    depths: (u32, u32, u32),
    prompts: Vec<u32>,
    decoding: bool,
}

fn rank() -> impl Strategy<Value = Rank> {
    let prompts = prop::collection::vec(0..5_000_u32, 0..4);
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.1), any::<bool>());
    (flags, 0..6_u8, 0..2_u8, (0..60_u32, 0..20_u32, 0..20_u32), prompts).prop_map(
        |(flags, role, zone, depths, prompts)| Rank {
            down: flags.0,
            draining: flags.1,
            decoding: flags.2,
            role,
            zone,
            depths,
            prompts,
        },
    )
}

fn build(ranks: &[Rank], wait: u32) -> World {
    build_with(ranks, wait, false)
}

/// With every third rank of another kind, if `kinds` says so.
fn build_with(ranks: &[Rank], wait: u32, kinds: bool) -> World {
    let mut world = World::with(ranks.len() as u32, 900, |spec| {
        spec.capacity = Some(600);
        spec.max_sequences = Some(3);
        if kinds && spec.rank.worker.0 % 3 == 0 {
            spec.timing = Timing::Polynomial(Polynomial {
                per_prefill_token: 0.1,
                ..Polynomial::default()
            });
        }
    });
    for (at, rank) in ranks.iter().enumerate() {
        let worker = at as u32;
        for prompt in &rank.prompts {
            world.book(worker, *prompt);
        }
        if rank.decoding {
            world.first_tokens();
        }
        world.change(worker, |facts| {
            facts.health = if rank.down { Health::Down } else { Health::Up };
            facts.duty = if rank.draining { Duty::Draining } else { Duty::Serving };
            facts.role = match rank.role {
                0 => Role::Prefill,
                1 => Role::Decode,
                _ => Role::Both,
            };
            facts.labels = vec![Label::new("zone", if rank.zone == 0 { "a" } else { "b" })];
        });
        let (device, host, disk) = rank.depths;
        let tiers = [device, device + host, device + host + disk, device + host + disk];
        world.overlap.set(Place(worker), Depths { tiers, booked: 0 });
    }
    world.now = world.now + Millis(f64::from(wait));
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_decision_names_an_excluded_rank_and_equal_inputs_decide_equally(
        ranks in prop::collection::vec(rank(), 0..80),
        wait in 0..2_000_u32,
        draw in any::<u64>(),
        pinned in prop::option::of(0..80_u32),
        zone in any::<bool>(),
        preferred in -2.0..2.0_f64,
        temperature in prop::option::of(0.0..2.0_f64),
        tried in prop::collection::vec(0..80_u32, 0..3),
    ) {
        let mut world = build(&ranks, wait);
        world.wanted.pinned = pinned.map(|worker| Pin { worker: WorkerId(worker), dp: None });
        world.wanted.required = zone.then(|| Label::new("zone", "a")).into_iter().collect();
        world.wanted.preferred = vec![(Label::new("zone", "b"), preferred)];
        world.wanted.tried = tried.into_iter().map(WorkerId).collect();
        world.overrides.temperature = temperature;
        world.session = Some("s".to_owned());
        for name in NAMES {
            let scheduler = Scheduler::new(by_name(name).unwrap());
            let decided = world.decide_with(&scheduler, Draw(draw));
            prop_assert_eq!(&decided, &world.decide_with(&scheduler, Draw(draw)));
            let able = (0..ranks.len() as u32).filter(|worker| {
                world.fleet.why_not(Place(*worker), &world.ask()).is_none()
            });
            let able: Vec<u32> = able.collect();
            match decided {
                Err(_) => prop_assert!(able.is_empty() || name == "direct" && pinned.is_none(), "{} {:?}", name, able),
                Ok(decision) => {
                    for candidate in std::iter::once(&decision.chosen).chain(&decision.others) {
                        prop_assert!(able.contains(&candidate.place.0), "{}: {:?}", name, candidate);
                        prop_assert!(candidate.cost.is_finite() && candidate.cost >= 0.0, "{}: {:?}", name, candidate);
                        prop_assert!(candidate.first_token.0 >= 0.0);
                    }
                    let others: Vec<_> = decision.others.iter().map(|other| other.place).collect();
                    prop_assert!(!others.contains(&decision.chosen.place));
                    let excluded: u32 = decision.excluded.reasons().map(|(_, count)| count).sum();
                    prop_assert_eq!(decision.eligible + excluded, ranks.len() as u32);
                    prop_assert!(decision.to_json().ends_with("}}"));
                }
            }
        }
    }

    /// The policy `time` works on many ranks at once; the parts of a rank's cost are worked out one by one, from its row.
    #[test]
    fn the_cost_of_all_at_once_is_the_sum_of_each_ones_parts(
        ranks in prop::collection::vec(rank(), 1..150),
        wait in 0..2_000_u32,
        tick in any::<bool>(),
        siblings in prop::collection::vec(0..150_u32, 0..3),
        slow in any::<bool>(),
    ) {
        let mut world = build_with(&ranks, wait, slow);
        if tick {
            world.load.tick(world.now);
        }
        for sibling in siblings {
            if (sibling as usize) < ranks.len() {
                world.book_same(sibling);
            }
        }
        let mut scheduler = Scheduler::new(by_name("time").unwrap());
        scheduler.name_others = ranks.len();
        let Ok(decision) = world.decide_with(&scheduler, Draw(1)) else { return Ok(()) };
        let mut last = 0.0;
        for candidate in std::iter::once(&decision.chosen).chain(&decision.others) {
            let part = |name| candidate.terms.get(name);
            let waits = part("queue").max(part("space")).max(part("sibling"));
            let sum = waits + part("prefill") + part("others") + part("onboard") + part("decode");
            prop_assert!((candidate.cost - sum).abs() <= 1e-4 * sum + 1e-3, "{candidate:?}: {sum}");
            let rank = world.load.rank(candidate.place).unwrap();
            prop_assert!((part("queue") - rank.backlog(world.now).0).abs() < 1e-9);
            if candidate.place != decision.chosen.place {
                prop_assert!(candidate.cost >= last, "they are in order");
                last = candidate.cost;
            }
        }
        prop_assert_eq!(decision.others.len() + 1, decision.eligible as usize);
    }

    /// What the scheduler reads of an answer is what the index says of each rank.
    #[test]
    fn overlaps_are_those_of_the_index(holds in prop::collection::vec((0..9_usize, 0..9_usize), 1..70)) {
        let size = BlockSize::new(4).unwrap();
        let hasher = KeyHasher::new(HashSeed::PUBLIC);
        let mut index = Index::new(IndexConfig::new(hasher));
        let tokens: Vec<u32> = (0..32).collect();
        let blocks: Vec<StoredBlock> = tokens.chunks(4).enumerate().map(|(at, tokens)| StoredBlock {
            label: EngineLabel::new(at as u64),
            content: hasher.content(tokens, &homing_domain::Extras::default()),
        }).collect();
        let mut slots = Vec::new();
        for (at, (device, host)) in holds.iter().enumerate() {
            let slot = index.add_rank(RankId::new(at as u32, 0), Copies::Counted).unwrap();
            slots.push(slot);
            for (tier, count) in [(Tier::Device, *device), (Tier::Host, *host)] {
                let mut stored = Stored::plain(None, blocks[..count.min(8)].to_vec());
                stored.tier = tier;
                if count > 0 {
                    index.store(slot, &stored).unwrap();
                }
            }
        }
        let mut keys = Vec::new();
        hasher.keys(&Prompt::text(&tokens, size), &mut keys);
        let mut answer = Answer::default();
        index.reader().lookup(&keys, &mut answer);
        let mut overlap = Overlap::default();
        for _ in 0..2 {
            overlap.clear();
            overlap.take_answer(&answer, |slot| answer.rank_in(slot).map(|(rank, _)| Place(rank.worker.0)));
            for (at, slot) in slots.iter().enumerate() {
                let told = Tier::ALL.map(|tier| answer.depth(*slot, tier).0);
                prop_assert_eq!(overlap.depths(Place(at as u32)).tiers, told);
            }
        }
    }
}
