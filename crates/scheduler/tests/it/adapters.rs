//! Who is chosen for an adapter that few have?

use expect_test::{Expect, expect};
use homing_domain::{AdapterName, RankId, WorkerId};
use homing_load::Place;
use homing_profile::{Millis, Time};
use homing_scheduler::policy::NAMES;
use homing_scheduler::{Adapters, Draw, Pin, Ready};

use crate::world::World;

fn poet() -> AdapterName {
    AdapterName::from("poet")
}

/// Rank 0 has the adapter; rank 1 loads it in half a second if it is asked; nobody else may.
fn world() -> World {
    let mut world = World::new(4, 4_000);
    world.adapter = Some(poet());
    world.change(0, |facts| facts.adapters = Adapters::Only(vec![poet()]));
    world
        .fleet
        .set_openings(&poet(), vec![(Place(1), Ready::After(Millis(500.0)))]);
    world
}

fn check(world: &World, policy: &str, expected: &Expect) {
    let said = match world.decide(policy, Draw(1)) {
        Ok(decision) => decision.to_string(),
        Err(refusal) => format!("{refusal}\n"),
    };
    expected.assert_eq(&said);
}

#[test]
fn who_has_it_is_chosen_until_waiting_there_takes_longer_than_to_load_it() {
    let mut world = world();
    check(
        &world,
        "time",
        &expect![[r#"
            0/0 by time, of 2 eligible
            > 0/0          151.96 ms = queue 0.00, space 0.00, sibling 0.00, prefill 104.08, others 0.00, onboard 0.00, decode 47.88; holds 0 blocks (exact)
              1/0          651.96 ms = queue 0.00, space 0.00, sibling 0.00, load 500.00, prefill 104.08, others 0.00, onboard 0.00, decode 47.88; holds 0 blocks (exact)
              excluded: 2 no such adapter
        "#]],
    );
    for _ in 0..8 {
        world.book(0, 4_000);
    }
    check(
        &world,
        "time",
        &expect![[r#"
            1/0 by time, of 2 eligible
            > 1/0          651.96 ms = queue 0.00, space 0.00, sibling 0.00, load 500.00, prefill 104.08, others 0.00, onboard 0.00, decode 47.88; holds 0 blocks (exact)
              0/0          961.28 ms = queue 809.32, space 0.00, sibling 0.00, prefill 104.08, others 0.00, onboard 0.00, decode 47.88; holds 0 blocks (exact)
              excluded: 2 no such adapter
        "#]],
    );
}

#[test]
fn what_is_left_of_a_load_is_the_wait() {
    let mut world = world();
    world.change(0, |facts| facts.adapters = Adapters::None);
    world.fleet.begin_load(&poet(), WorkerId(1), world.now);
    world.now = world.now + Millis(400.0);
    let decision = world.decide("time", Draw(1)).unwrap();
    assert_eq!(decision.chosen.rank, RankId::new(1, 0));
    let load = decision.chosen.terms.get("load");
    assert!((load - 100.0).abs() < 1e-6, "{load} ms are left");
    assert_eq!(
        (decision.eligible, decision.others.len()),
        (1, 0),
        "nobody else may load it"
    );
    // When it is there, or late, nothing is left to wait for.
    world.now = world.now + Millis(4_000.0);
    let load = world.decide("time", Draw(1)).unwrap().chosen.terms.get("load");
    assert!(load.abs() < 1e-9, "{load} ms are left");
}

#[test]
fn other_policies_prefer_who_has_it_and_take_who_would_load_it_otherwise() {
    for policy in NAMES {
        let mut world = world();
        if policy == "direct" {
            let pin = |worker| {
                Some(Pin {
                    worker: WorkerId(worker),
                    dp: None,
                })
            };
            world.wanted.pinned = pin(1);
            assert_eq!(world.decide(policy, Draw(1)).unwrap().chosen.rank, RankId::new(1, 0));
            world.wanted.pinned = pin(2);
            assert!(world.decide(policy, Draw(1)).is_err());
            continue;
        }
        for draw in 0..20 {
            let chosen = world.decide(policy, Draw(draw)).unwrap().chosen;
            assert_eq!(chosen.rank, RankId::new(0, 0), "{policy}");
        }
        world.change(0, |facts| facts.adapters = Adapters::None);
        assert_eq!(
            world.decide(policy, Draw(1)).unwrap().chosen.rank,
            RankId::new(1, 0),
            "{policy}"
        );
    }
}

#[test]
fn openings_survive_what_is_said_of_a_rank_and_go_with_it() {
    let mut world = world();
    world.change(1, |facts| facts.health = homing_scheduler::Health::Down);
    world.change(1, |facts| facts.health = homing_scheduler::Health::Up);
    assert!(world.fleet.opening(Some(&poet()), Place(1)).is_some());
    assert!(world.fleet.why_not(Place(1), &world.ask()).is_none());
    assert!(world.fleet.why_not(Place(2), &world.ask()).is_some());
    world.change(1, |facts| facts.adapters = Adapters::Only(vec![poet()]));
    assert!(world.fleet.opening(Some(&poet()), Place(1)).is_none(), "it has it");
    world.change(1, |facts| facts.adapters = Adapters::None);
    world.fleet.remove(Place(1));
    assert!(world.fleet.opening(Some(&poet()), Place(1)).is_none());
    assert_eq!(world.fleet.opening(None, Place(1)), None);
    assert_eq!(Ready::At(Time::ZERO).wait(Time::from_millis(1.0)), Millis(0.0));
}
