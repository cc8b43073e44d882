//! Counts within slots, places within room, and who moves when somebody comes or goes.

use std::collections::BTreeSet;

use homing_adapters::Plan;
use homing_adapters::placement::replicas::{Fleet, Steady, Wish, counts};
use homing_adapters::placement::{Method, Site, Wanted, order, place};
use homing_domain::{AdapterName, WorkerId};
use proptest::prelude::*;

fn site(number: u32, slots: u32) -> Site {
    Site {
        worker: WorkerId(number),
        name: format!("http://worker-{number}:8000").into(),
        slots,
    }
}

fn wanted(number: usize, replicas: u32, plan: &Plan) -> Wanted {
    let adapter = AdapterName::new(format!("adapter-{number}"));
    Wanted {
        replicas,
        has: plan.get(&adapter).cloned().unwrap_or_default(),
        not: BTreeSet::new(),
        adapter,
    }
}

fn all_wanted(replicas: &[u32], plan: &Plan) -> Vec<Wanted> {
    let all = replicas.iter().enumerate();
    all.map(|(number, replicas)| wanted(number, *replicas, plan)).collect()
}

fn taken(plan: &Plan, worker: WorkerId) -> usize {
    plan.values().filter(|places| places.contains(&worker)).count()
}

fn placed(plan: &Plan) -> usize {
    plan.values().map(BTreeSet::len).sum()
}

fn moves(from: &Plan, to: &Plan) -> Vec<(AdapterName, WorkerId)> {
    let new = to.iter().flat_map(|(adapter, places)| {
        let before = from.get(adapter);
        let fresh = places
            .iter()
            .filter(move |worker| !before.is_some_and(|before| before.contains(worker)));
        fresh.map(|worker| (adapter.clone(), *worker))
    });
    new.collect()
}

fn methods() -> impl Strategy<Value = Method> {
    prop_oneof![Just(Method::Rendezvous), Just(Method::MinCost)]
}

proptest! {
    #[test]
    fn room_is_respected_and_used(
        method in methods(),
        slots in prop::collection::vec(0..5_u32, 1..8),
        replicas in prop::collection::vec(0..6_u32, 0..24),
        banned in prop::collection::vec((0..24_usize, 0..8_u32), 0..8),
    ) {
        let sites: Vec<Site> = slots.iter().enumerate().map(|(number, slots)| site(number as u32, *slots)).collect();
        let mut asked = all_wanted(&replicas, &Plan::new());
        for (adapter, worker) in banned {
            if let Some(one) = asked.get_mut(adapter) {
                one.not.insert(WorkerId(worker));
            }
        }
        let plan = place(method, &asked, &sites);
        for site in &sites {
            prop_assert!(taken(&plan, site.worker) <= site.slots as usize);
        }
        for one in &asked {
            let places = plan.get(&one.adapter).cloned().unwrap_or_default();
            prop_assert!(places.len() <= one.replicas as usize);
            prop_assert!(places.is_disjoint(&one.not));
            // Whoever lacks a place has no place left that he could have.
            if places.len() < one.replicas as usize {
                for site in &sites {
                    let could = !places.contains(&site.worker) && !one.not.contains(&site.worker);
                    prop_assert!(!could || taken(&plan, site.worker) == site.slots as usize, "{} could be on {}", one.adapter, site.name);
                }
            }
        }
        // The same again from there moves nothing.
        let again: Vec<Wanted> = asked.iter().map(|one| Wanted {
            has: plan.get(&one.adapter).cloned().unwrap_or_default(),
            ..one.clone()
        }).collect();
        prop_assert_eq!(place(method, &again, &sites), plan);
    }

    #[test]
    fn a_worker_that_is_lost_moves_what_it_had_and_no_more(
        method in methods(),
        replicas in prop::collection::vec(1..3_u32, 1..40),
        lost in 0..8_u32,
        spare in 2..6_u32,
    ) {
        let total: u32 = replicas.iter().sum();
        let sites: Vec<Site> = (0..8).map(|number| site(number, total / 8 + spare)).collect();
        let before = place(method, &all_wanted(&replicas, &Plan::new()), &sites);
        let without: Vec<Site> = sites.iter().filter(|site| site.worker.0 != lost).cloned().collect();
        let mut left = before.clone();
        for places in left.values_mut() {
            places.remove(&WorkerId(lost));
        }
        let after = place(method, &all_wanted(&replicas, &left), &without);
        let moved = moves(&left, &after);
        let had = taken(&before, WorkerId(lost));
        prop_assert!(moved.len() <= had, "{} moved, it had {had}", moved.len());
        for (adapter, _) in &moved {
            prop_assert!(before[adapter].contains(&WorkerId(lost)));
        }
        if method == Method::Rendezvous && placed(&before) == replicas.iter().map(|count| *count as usize).sum::<usize>() {
            // It comes back under another number and the same name: what it had goes home.
            let back = place(method, &all_wanted(&replicas, &after), &sites);
            let at_home = |adapter: &AdapterName| {
                let count = before[adapter].len();
                order(adapter, &sites).into_iter().take(count).map(|at| sites[at].worker).collect::<BTreeSet<_>>()
            };
            for (adapter, places) in &before {
                if places.contains(&WorkerId(lost)) && at_home(adapter).contains(&WorkerId(lost)) {
                    prop_assert!(back[adapter].contains(&WorkerId(lost)), "{adapter} did not return");
                }
            }
        }
    }

    #[test]
    fn counts_fit_and_follow_demand(
        tokens in prop::collection::vec(0.0..1_000.0_f64, 0..40),
        workers in 0..20_u32,
        each in 0..8_u32,
        busy in 0.0..1.0_f64,
    ) {
        let wishes = wishes(&tokens);
        let fleet = Fleet { workers, slots: workers * each, busy, base: 0.0, headroom: 1.5 };
        let counts = counts(&wishes, &fleet);
        prop_assert!(counts.iter().sum::<u32>() <= fleet.slots);
        prop_assert!(counts.iter().all(|count| *count <= workers));
        if fleet.slots as usize >= wishes.len() && workers > 0 && each > 0 {
            // With slots for everybody, everybody has at least one, if whole shares leave it.
            let shares: f64 = f64::from(workers) * busy * 1.5;
            if shares + wishes.len() as f64 <= f64::from(fleet.slots) {
                prop_assert!(counts.iter().all(|count| *count >= 1));
            }
        }
        for (one, a) in wishes.iter().zip(&counts) {
            for (other, b) in wishes.iter().zip(&counts) {
                prop_assert!(one.tokens <= other.tokens || a + 1 >= *b, "{one:?} has {a}, {other:?} has {b}");
            }
        }
    }

    #[test]
    fn what_is_held_never_takes_more_than_there_is(
        rounds in prop::collection::vec((prop::collection::vec(0.0..100.0_f64, 12), 1..6_u32), 1..20),
    ) {
        let mut steady = Steady::default();
        for (tokens, workers) in rounds {
            let fleet = Fleet { workers, slots: workers * 4, busy: 0.9, base: 10.0, headroom: 1.5 };
            let counts = steady.round(&wishes(&tokens), &fleet, 3);
            prop_assert!(counts.iter().sum::<u32>() <= fleet.slots);
            prop_assert!(counts.iter().all(|count| *count <= workers));
        }
    }
}

fn wishes(tokens: &[f64]) -> Vec<Wish> {
    let all = tokens.iter().enumerate();
    all.map(|(number, tokens)| Wish {
        adapter: AdapterName::new(format!("adapter-{number:02}")),
        tokens: *tokens,
        pinned: false,
        resident: false,
    })
    .collect()
}

#[test]
fn counts_fall_after_rounds_and_rise_at_once() {
    let fleet = Fleet {
        workers: 8,
        slots: 32,
        busy: 1.0,
        base: 0.0,
        headroom: 1.0,
    };
    let (hot, cold) = (wishes(&[90.0, 10.0]), wishes(&[10.0, 90.0]));
    let mut steady = Steady::default();
    assert_eq!(steady.round(&hot, &fleet, 3), [8, 1]);
    assert_eq!(steady.round(&cold, &fleet, 3), [8, 8], "one rises at once");
    assert_eq!(steady.round(&cold, &fleet, 3), [8, 8]);
    assert_eq!(
        steady.round(&cold, &fleet, 3),
        [1, 8],
        "the other falls after three rounds"
    );
    assert_eq!(steady.round(&hot, &fleet, 3), [8, 8]);
    assert_eq!(steady.round(&cold, &fleet, 3), [8, 8], "falling begins anew");
}

#[test]
fn pinned_ones_are_not_crowded_out() {
    let mut asked = wishes(&[50.0, 40.0, 30.0, 0.0]);
    asked[3].pinned = true;
    let fleet = Fleet {
        workers: 1,
        slots: 2,
        busy: 0.1,
        base: 0.0,
        headroom: 1.0,
    };
    assert_eq!(counts(&asked, &fleet), [1, 0, 0, 1]);
}

#[test]
fn who_is_there_is_not_thrown_out_for_a_little_more() {
    let fleet = Fleet {
        workers: 1,
        slots: 1,
        busy: 0.1,
        base: 0.0,
        headroom: 1.0,
    };
    let mut asked = wishes(&[10.0, 14.0]);
    asked[0].resident = true;
    assert_eq!(counts(&asked, &fleet), [1, 0]);
    asked[1].tokens = 16.0;
    assert_eq!(counts(&asked, &fleet), [0, 1]);
}

#[test]
fn a_restart_under_another_number_moves_nothing() {
    for method in [Method::Rendezvous, Method::MinCost] {
        let sites: Vec<Site> = (0..6).map(|number| site(number, 4)).collect();
        let renumbered: Vec<Site> = sites
            .iter()
            .map(|site| Site {
                worker: WorkerId(site.worker.0 + 100),
                ..site.clone()
            })
            .collect();
        let asked = all_wanted(&[2; 10], &Plan::new());
        let (before, after) = (place(method, &asked, &sites), place(method, &asked, &renumbered));
        let by_name = |plan: &Plan, add: u32| -> Vec<Vec<u32>> {
            let of = |places: &BTreeSet<WorkerId>| places.iter().map(|worker| worker.0 + add).collect();
            plan.values().map(of).collect()
        };
        assert_eq!(by_name(&before, 100), by_name(&after, 0), "{method:?}");
    }
}

/// All ways to place these, for the least that must move.
fn least_moves(asked: &[Wanted], sites: &[Site], room: &mut Vec<u32>) -> Option<(usize, usize)> {
    let Some((first, rest)) = asked.split_first() else {
        return Some((0, 0));
    };
    let mut best: Option<(usize, usize)> = None;
    for chosen in 0..1_u32 << sites.len() {
        let of: Vec<usize> = (0..sites.len()).filter(|at| chosen >> at & 1 == 1).collect();
        if of.len() > first.replicas as usize || of.iter().any(|at| room[*at] == 0) {
            continue;
        }
        for at in &of {
            room[*at] -= 1;
        }
        let found = least_moves(rest, sites, room);
        for at in &of {
            room[*at] += 1;
        }
        let moved = of.iter().filter(|at| !first.has.contains(&sites[**at].worker)).count();
        let missing = first.replicas as usize - of.len();
        if let Some((lacks, moves)) = found {
            let total = (lacks + missing, moves + moved);
            best = Some(best.map_or(total, |best| best.min(total)));
        }
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn min_cost_moves_as_little_as_can_be(
        replicas in prop::collection::vec(1..3_u32, 1..5),
        has in prop::collection::vec(0..8_u32, 5),
        slots in prop::collection::vec(1..4_u32, 3),
    ) {
        let sites: Vec<Site> = slots.iter().enumerate().map(|(number, slots)| site(number as u32, *slots)).collect();
        let mut free = slots.clone();
        let mut asked = all_wanted(&replicas, &Plan::new());
        // What is there fits into the slots, as it does on engines.
        for (one, has) in asked.iter_mut().zip(&has) {
            for (at, free) in free.iter_mut().enumerate() {
                if has >> at & 1 == 1 && *free > 0 {
                    *free -= 1;
                    one.has.insert(WorkerId(at as u32));
                }
            }
        }
        let plan = place(Method::MinCost, &asked, &sites);
        let moved: usize = asked.iter().map(|one| {
            let places = plan.get(&one.adapter).cloned().unwrap_or_default();
            places.difference(&one.has).count()
        }).sum();
        let lacks = replicas.iter().sum::<u32>() as usize - placed(&plan);
        let best = least_moves(&asked, &sites, &mut slots.clone()).unwrap();
        // What stays where it is can stand in the way of a place for another: then fewer are placed, never more are moved.
        prop_assert!(lacks > best.0 || (lacks, moved) == best, "lacks {lacks}, moves {moved}; best {best:?}");
        if best.0 == lacks {
            prop_assert_eq!(moved, best.1);
        }
    }
}
