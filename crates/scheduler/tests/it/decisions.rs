//! Where do requests go, and which reasons are given?

use std::sync::Arc;

use crate::world::{World, held};
use expect_test::{Expect, expect};
use homing_domain::{AdapterName, DpRank, RankId, Role, Tokens, WorkerId};
use homing_load::{End, Place, PromptWork};
use homing_profile::Millis;
use homing_scheduler::policy::{BlockCost, by_name, by_spec};
use homing_scheduler::{
    Adapters, CacheUse, Decision, Depths, Draw, Duty, Fleet, Health, Label, Pin, Refusal, Room, Scheduler,
};

fn check(world: &World, policy: &str, expected: &Expect) {
    let said = match world.decide(policy, Draw(1)) {
        Ok(decision) => decision.to_string(),
        Err(refusal) => format!("{refusal}\n"),
    };
    expected.assert_eq(&said);
}

#[test]
fn a_cached_prefix_is_worth_a_short_queue_but_not_a_long_one() {
    let mut world = World::new(3, 4_000);
    world.overlap.set(Place(0), held(200));
    world.book(0, 1_000);
    check(
        &world,
        "time",
        &expect![[r#"
            0/0 by time, of 3 eligible
            > 0/0           98.60 ms = queue 24.13, space 0.00, sibling 0.00, prefill 26.59, others 0.00, onboard 0.00, decode 47.88; holds 200 blocks (exact)
              1/0          151.96 ms = queue 0.00, space 0.00, sibling 0.00, prefill 104.08, others 0.00, onboard 0.00, decode 47.88; holds 0 blocks (exact)
              2/0          151.96 ms = queue 0.00, space 0.00, sibling 0.00, prefill 104.08, others 0.00, onboard 0.00, decode 47.88; holds 0 blocks (exact)
        "#]],
    );
    for _ in 0..8 {
        world.book(0, 4_000);
    }
    check(
        &world,
        "time",
        &expect![[r#"
            2/0 by time, of 3 eligible
            > 2/0          151.96 ms = queue 0.00, space 0.00, sibling 0.00, prefill 104.08, others 0.00, onboard 0.00, decode 47.88; holds 0 blocks (exact)
              1/0          151.96 ms = queue 0.00, space 0.00, sibling 0.00, prefill 104.08, others 0.00, onboard 0.00, decode 47.88; holds 0 blocks (exact)
              0/0          907.93 ms = queue 833.46, space 0.00, sibling 0.00, prefill 26.59, others 0.00, onboard 0.00, decode 47.88; holds 200 blocks (exact)
        "#]],
    );
}

#[test]
fn a_sibling_that_is_booked_counts_as_cache_when_it_will_have_been_computed() {
    let mut world = World::new(3, 4_000);
    world.book_same(1);
    check(
        &world,
        "time",
        &expect![[r#"
            2/0 by time, of 3 eligible
            > 2/0          151.96 ms = queue 0.00, space 0.00, sibling 0.00, prefill 104.08, others 0.00, onboard 0.00, decode 47.88; holds 0 blocks (exact)
              0/0          151.96 ms = queue 0.00, space 0.00, sibling 0.00, prefill 104.08, others 0.00, onboard 0.00, decode 47.88; holds 0 blocks (exact)
              1/0          158.38 ms = queue 101.17, space 0.00, sibling 104.08, prefill 6.42, others 0.00, onboard 0.00, decode 47.88; holds 0 blocks, 250 booked (exact)
        "#]],
    );
    world.now = world.now + Millis(80.0);
    check(
        &world,
        "time",
        &expect![[r#"
            1/0 by time, of 3 eligible
            > 1/0           78.41 ms = queue 21.17, space 0.00, sibling 24.08, prefill 6.42, others 0.03, onboard 0.00, decode 47.88; holds 0 blocks, 250 booked (exact)
              0/0          152.51 ms = queue 0.00, space 0.00, sibling 0.00, prefill 104.08, others 0.55, onboard 0.00, decode 47.88; holds 0 blocks (exact)
              2/0          152.51 ms = queue 0.00, space 0.00, sibling 0.00, prefill 104.08, others 0.55, onboard 0.00, decode 47.88; holds 0 blocks (exact)
        "#]],
    );
}

/// A fleet whose first rank takes 0.7 times as long as the others.
fn with_a_fast_rank() -> World {
    let mut world = World::new(3, 4_000);
    for _ in 0..60 {
        for (worker, share) in [(0, 0.7), (1, 1.0), (2, 1.0)] {
            world.book(worker, 4_000);
            world.now = world.now + Millis(104.08 * share);
            let ticket = *world.tickets.last().expect("it was booked");
            world.load.prefill_done(ticket, world.now);
            world.load.end(ticket, End::Finished, world.now);
        }
    }
    world.load.tick(world.now);
    world
}

/// By how much the fast rank is better.
fn advantage(world: &World, spec: &str) -> f64 {
    let scheduler = Scheduler::new(by_spec(spec).expect("there is such a policy"));
    let decision = world.decide_with(&scheduler, Draw(1)).expect("there are candidates");
    assert_eq!(decision.chosen.place, Place(0), "{spec}: {decision}");
    decision.others[0].cost - decision.chosen.cost
}

#[test]
fn that_a_rank_is_fast_counts_as_far_as_the_fleet_is_free() {
    let world = with_a_fast_rank();
    let all = advantage(&world, "time:decode=0:error=0:fair=0");
    let fair = advantage(&world, "time:decode=0:error=0:fair=1.6");
    let busy = world.load.utilisation(world.now);
    let counts = all * (1.0 - 1.6 * busy);
    assert!(
        busy > 0.1 && counts > 1.0 && (fair - counts).abs() < 0.01 * all,
        "it is worth {all} ms, of which {fair} ms count while {busy} are busy"
    );
}

#[test]
fn that_a_rank_is_fast_counts_for_what_a_long_prompt_takes_beyond_others() {
    // All prompts were as long as this one but one.
    let mut world = with_a_fast_rank();
    world.book(1, 1_000);
    let ticket = *world.tickets.last().expect("it was booked");
    world.load.end(ticket, End::Cancelled, world.now);
    // It is more than a thousandth of all that they take, so that all the others are long.
    let shortest = world.load.long_from(0.999).expect("there were prompts");
    let beyond = 1.0 - shortest.0 / 104.08;
    assert!((0.6..0.9).contains(&beyond), "{beyond}");
    let all = advantage(&world, "time:decode=0:error=0:fair=0");
    let long = advantage(&world, "time:decode=0:error=0:fair=1000:long=0.999");
    assert!(
        (long - beyond * all).abs() < 0.01 * all,
        "it is worth {all} ms, of which {long} ms count"
    );
    // Both weights leave something out; what either of them counts does count.
    let both = advantage(&world, "time:decode=0:error=0:fair=1.6:long=0.999");
    assert!((both - long).abs() < 0.01 * all, "{both} ms instead of {long} ms");
    let fair = advantage(&world, "time:decode=0:error=0:fair=1.6:long=0");
    assert!(
        fair < 0.7 * long,
        "{fair} ms, though no prompt is longer than the longest"
    );
}

#[test]
fn a_full_cache_is_left_alone_where_prompts_come_again() {
    // By how much the first rank is worse.
    let worse = |world: &World, spec: &str| {
        let scheduler = Scheduler::new(by_spec(spec).expect("there is such a policy"));
        let decision = world.decide_with(&scheduler, Draw(1)).expect("there are candidates");
        let gap = decision.others[0].cost - decision.chosen.cost;
        if decision.chosen.place == Place(0) { -gap } else { gap }
    };
    let mut world = World::with(2, 64_000, |spec| spec.capacity = Some(100_000));
    // Somebody on the first rank generates, and has a fifth of its cache.
    world.book(0, 320_000);
    world.first_tokens();
    let (with, without) = ("time:others=0:long=0", "time:others=0:long=0:room=0");
    let before = worse(&world, with);
    assert!(
        (before - worse(&world, without)).abs() < 1e-9,
        "prompts do not come again"
    );
    for _ in 0..20 {
        world.book_with(1, 64_000, Arc::from(world.keys.as_slice()));
        let ticket = *world.tickets.last().expect("it was booked");
        world.load.end(ticket, End::Cancelled, world.now);
    }
    let again = world.load.computed_again();
    let timing = &world.load.timings()[0];
    let all = timing.prefill(Tokens(64_000), Tokens(0)).0 * world.load.typical_factor(0);
    let more = (worse(&world, with) - worse(&world, without)) / all;
    let expected = 2.0 * 0.2 * again * again;
    assert!(
        again > 0.9 && (more - expected).abs() < 0.01,
        "{more}, expected {expected}, of what the prompt takes"
    );
}

#[test]
fn lower_tiers_cost_what_loading_costs() {
    let mut world = World::new(3, 4_000);
    let on = |tiers| Depths { tiers, booked: 0 };
    world.overlap.set(Place(0), on([0, 200, 200, 200]));
    world.overlap.set(Place(1), on([0, 0, 200, 200]));
    check(
        &world,
        "time",
        &expect![[r#"
            0/0 by time, of 3 eligible
            > 0/0           91.25 ms = queue 0.00, space 0.00, sibling 0.00, prefill 26.59, others 0.00, onboard 16.78, decode 47.88; holds 200 blocks (exact)
              2/0          151.96 ms = queue 0.00, space 0.00, sibling 0.00, prefill 104.08, others 0.00, onboard 0.00, decode 47.88; holds 0 blocks (exact)
              1/0          158.36 ms = queue 0.00, space 0.00, sibling 0.00, prefill 26.59, others 0.00, onboard 83.89, decode 47.88; holds 200 blocks (exact)
        "#]],
    );
    check(
        &world,
        "blocks",
        &expect![[r#"
        0/0 by blocks, of 3 eligible
        > 0/0          350.00 blocks = prefill 100.00, decode 250.00, requests 0.00; holds 200 blocks (exact)
          1/0          450.00 blocks = prefill 200.00, decode 250.00, requests 0.00; holds 200 blocks (exact)
          2/0          500.00 blocks = prefill 250.00, decode 250.00, requests 0.00; holds 0 blocks (exact)
    "#]],
    );
}

#[test]
fn a_full_cache_is_waited_for() {
    let mut world = World::with(2, 4_000, |spec| spec.capacity = Some(300));
    world.overlap.set(Place(0), held(10));
    world.book(0, 3_200);
    world.first_tokens();
    check(
        &world,
        "time",
        &expect![[r#"
            1/0 by time, of 2 eligible
            > 1/0          151.96 ms = queue 0.00, space 0.00, sibling 0.00, prefill 104.08, others 0.00, onboard 0.00, decode 47.88; holds 0 blocks (exact)
              0/0         8276.62 ms = queue 1.58, space 8200.00, sibling 0.00, prefill 50.20, others 0.00, onboard 0.00, decode 26.43; holds 10 blocks (exact)
        "#]],
    );
}

#[test]
fn each_exclusion_has_its_reason() {
    let mut world = World::new(9, 1_000);
    world.change(0, |facts| facts.health = Health::Down);
    world.change(1, |facts| facts.duty = Duty::Draining);
    world.change(2, |facts| facts.role = Role::Prefill);
    world.change(3, |facts| facts.model = "other".into());
    world.change(4, |facts| facts.labels = vec![Label::new("zone", "b")]);
    for worker in 5..9 {
        world.change(worker, |facts| {
            facts.labels = vec![Label::new("zone", "a")];
            facts.adapters = Adapters::Only(vec![AdapterName::from("poet")]);
        });
    }
    world.change(4, |facts| facts.adapters = Adapters::Any);
    world.change(5, |facts| facts.adapters = Adapters::None);
    world.adapter = Some(AdapterName::from("poet"));
    world.wanted.required = vec![Label::new("zone", "a")];
    world.wanted.tried = vec![WorkerId(6)];
    world.wanted.allowed = (0..8).map(WorkerId).collect();
    check(
        &world,
        "least-loaded",
        &expect![[r#"
        7/0 by least-loaded, of 1 eligible
        > 7/0            0.00 requests = requests 0.00; holds 0 blocks (exact)
          excluded: 1 other model
          excluded: 1 other role
          excluded: 1 unhealthy
          excluded: 1 draining
          excluded: 1 no such adapter
          excluded: 1 not allowed by the caller
          excluded: 1 tried before
          excluded: 1 lacks a required label
    "#]],
    );
    world.wanted.tried.push(WorkerId(7));
    check(
        &world,
        "least-loaded",
        &expect![[r#"
        no worker can serve this request: 1 other model, 1 other role, 1 unhealthy, 1 draining, 1 no such adapter, 1 not allowed by the caller, 2 tried before, 1 lacks a required label
    "#]],
    );
}

#[test]
fn a_pin_is_kept_or_refused_in_words() {
    let mut world = World::new(3, 1_000);
    check(
        &world,
        "direct",
        &expect![[r#"
        the policy `direct` needs the request to name its worker
    "#]],
    );
    world.wanted.pinned = Some(Pin {
        worker: WorkerId(2),
        dp: None,
    });
    check(
        &world,
        "direct",
        &expect![[r#"
        2/0 by direct, of 1 eligible
        > 2/0            0.00 requests = requests 0.00; holds 0 blocks (exact)
          excluded: 2 pinned elsewhere
    "#]],
    );
    world.wanted.pinned = Some(Pin {
        worker: WorkerId(2),
        dp: Some(DpRank(1)),
    });
    check(
        &world,
        "direct",
        &expect![[r#"
        worker 2 cannot serve this request: 2 pinned elsewhere, 1 pinned to another rank
    "#]],
    );
    world.wanted.pinned = None;
    world.wanted.dp = Some(DpRank(1));
    check(
        &world,
        "time",
        &expect![[r#"
        no worker can serve this request: 3 pinned to another rank
    "#]],
    );
}

#[test]
fn labels_that_are_preferred_weigh_and_those_that_repel_do() {
    let mut world = World::new(3, 1_000);
    world.change(0, |facts| facts.labels = vec![Label::new("disk", "old")]);
    world.change(1, |facts| facts.labels = vec![Label::new("zone", "a")]);
    world.wanted.preferred = vec![(Label::new("zone", "a"), 0.3), (Label::new("disk", "old"), -0.3)];
    check(
        &world,
        "time",
        &expect![[r#"
            1/0 by time, of 3 eligible
            > 1/0           30.90 ms = queue 0.00, space 0.00, sibling 0.00, prefill 29.38, others 0.00, onboard 0.00, decode 11.97; holds 0 blocks (exact)
              2/0           41.35 ms = queue 0.00, space 0.00, sibling 0.00, prefill 29.38, others 0.00, onboard 0.00, decode 11.97; holds 0 blocks (exact)
              0/0           55.33 ms = queue 0.00, space 0.00, sibling 0.00, prefill 29.38, others 0.00, onboard 0.00, decode 11.97; holds 0 blocks (exact)
        "#]],
    );
}

#[test]
fn a_rank_that_is_stuck_gets_nothing_while_others_can() {
    let mut world = World::new(2, 1_000);
    world.overlap.set(Place(0), held(62));
    world.book(0, 10);
    world.now = world.now + Millis(1_000.0);
    check(
        &world,
        "time",
        &expect![[r#"
            1/0 by time, of 1 eligible
            > 1/0           44.28 ms = queue 0.00, space 0.00, sibling 0.00, prefill 29.38, others 2.93, onboard 0.00, decode 11.97; holds 0 blocks (exact)
              excluded: 1 suspect
        "#]],
    );
    world.change(1, |facts| facts.health = Health::Down);
    check(
        &world,
        "time",
        &expect![[r#"
            0/0 by time, of 1 eligible
            > 0/0           18.99 ms = queue 0.21, space 0.00, sibling 0.00, prefill 6.19, others 0.62, onboard 0.00, decode 11.97; holds 62 blocks (exact)
              excluded: 1 unhealthy
        "#]],
    );
}

#[test]
fn a_new_rank_gets_a_few_requests_and_then_has_to_show_what_it_can() {
    let mut world = World::new(2, 1_000);
    world.book(1, 20_000);
    world.book(1, 20_000);
    world.first_tokens();
    for _ in 0..8 {
        world.book(0, 1);
    }
    world.book(1, 20_000);
    let decision = world.decide("time", Draw(1)).unwrap();
    expect!["1/0"].assert_eq(&decision.chosen.rank.to_string());
    assert_eq!(
        decision
            .excluded
            .reasons()
            .map(|(reason, _)| reason.name())
            .collect::<Vec<_>>(),
        ["unverified"]
    );
}

#[test]
fn peers_policies_weigh_what_they_weigh() {
    let mut world = World::new(3, 4_000);
    world.overlap.set(Place(0), held(200));
    world.book(0, 2_000);
    world.book(1, 400);
    check(
        &world,
        "blocks",
        &expect![[r#"
        2/0 by blocks, of 3 eligible
        > 2/0          500.00 blocks = prefill 250.00, decode 250.00, requests 0.00; holds 0 blocks (exact)
          0/0          550.00 blocks = prefill 175.00, decode 375.00, requests 0.00; holds 200 blocks (exact)
          1/0          550.00 blocks = prefill 275.00, decode 275.00, requests 0.00; holds 0 blocks (exact)
    "#]],
    );
    check(
        &world,
        "weighted",
        &expect![[r#"
        0/0 by weighted, of 3 eligible
        > 0/0            2.60 points = prefix 0.60, queue 2.00, usage 0.00; holds 200 blocks (exact)
          2/0            3.00 points = prefix 3.00, queue 0.00, usage 0.00; holds 0 blocks (exact)
          1/0            5.00 points = prefix 3.00, queue 2.00, usage 0.00; holds 0 blocks (exact)
    "#]],
    );
    check(
        &world,
        "cache-threshold",
        &expect![[r#"
        0/0 by cache-threshold, of 3 eligible
        > 0/0           50.50 points = missing blocks 50.00, load 0.50; holds 200 blocks (exact)
          2/0          250.00 points = missing blocks 250.00, load 0.00; holds 0 blocks (exact)
          1/0          250.50 points = missing blocks 250.00, load 0.50; holds 0 blocks (exact)
    "#]],
    );
    check(
        &world,
        "least-loaded",
        &expect![[r#"
        2/0 by least-loaded, of 3 eligible
        > 2/0            0.00 requests = requests 0.00; holds 0 blocks (exact)
          0/0            1.00 requests = requests 1.00; holds 200 blocks (exact)
          1/0            1.00 requests = requests 1.00; holds 0 blocks (exact)
    "#]],
    );
}

/// The documented formula, written down once more from its description.
#[test]
fn blocks_costs_what_its_description_says() {
    let mut world = World::new(4, 1_610);
    world.overlap.set(
        Place(0),
        Depths {
            tiers: [40, 60, 80, 80],
            booked: 0,
        },
    );
    world.book(0, 999);
    world.book(1, 3_201);
    world.book(2, 17);
    world.first_tokens();
    world.book(0, 160);
    world.book(3, 320);
    let policy = BlockCost {
        credit_decay: 0.5,
        request_weight: 2.0,
        prefill_scale: 1.5,
        ..BlockCost::default()
    };
    let scheduler = Scheduler::new(Box::new(policy));
    let decision = world.decide_with(&scheduler, Draw(1)).unwrap();
    let size = 16.0;
    let all = std::iter::once(&decision.chosen).chain(&decision.others);
    let mut seen = 0;
    for candidate in all {
        let rank = world.load.rank(candidate.place).unwrap();
        let (device, host, disk) = if candidate.rank == RankId::new(0, 0) {
            (40.0, 20.0, 20.0)
        } else {
            (0.0, 0.0, 0.0)
        };
        let pending = [160.0, 0.0, 0.0, 320.0][candidate.place.index()];
        let ahead: f64 = pending / size / 101.0;
        let credit = device / (1.0 + 0.5 * ahead) + 0.75 * host + 0.25 * disk;
        let cached: f64 = (device + 0.75 * host + 0.25 * disk) * size;
        let raw = (pending + (1_610.0 - cached) + cached) / size;
        let expected = 1.5 * (raw - credit) + rank.prompt_blocks() as f64 + 100.0 + 2.0 * f64::from(rank.requests());
        assert!((candidate.cost - expected).abs() < 1e-9, "{candidate:?} {expected}");
        seen += 1;
    }
    assert_eq!(seen, 4);
}

#[test]
fn overrides_hold_for_one_request() {
    let mut world = World::new(3, 4_000);
    world.overlap.set(Place(0), held(200));
    world.book(0, 100);
    let rank = |world: &World, policy: &str| world.decide(policy, Draw(1)).unwrap().chosen.rank.worker.0;
    assert_eq!((rank(&world, "time"), rank(&world, "blocks")), (0, 0));
    world.overrides.cache = CacheUse::Ignored;
    assert_ne!(rank(&world, "time"), 0);
    assert_ne!(rank(&world, "blocks"), 0);
    world.overrides.cache = CacheUse::Counts;
    world.overrides.overlap_credit = Some(0.0);
    assert_ne!(rank(&world, "blocks"), 0);
    world.overrides.work = PromptWork::None;
    assert_ne!(
        rank(&world, "time"),
        0,
        "nothing is computed there, so nothing is spared"
    );
    world.overrides.expected_output = Some(Tokens(1));
    assert!(world.decide("time", Draw(1)).is_ok());
}

#[test]
fn a_session_stays_until_its_rank_is_overloaded_or_gone() {
    let mut world = World::new(4, 1_000);
    world.session = Some("s".to_owned());
    let mut scheduler = Scheduler::new(by_name("sticky").unwrap());
    let first = world.decide_with(&scheduler, Draw(9)).unwrap().chosen;
    world.commit(&mut scheduler, first.place);
    for draw in 0..20 {
        assert_eq!(
            world.decide_with(&scheduler, Draw(draw)).unwrap().chosen.rank,
            first.rank
        );
    }
    world.book(first.place.0, 100_000);
    let other = world.decide_with(&scheduler, Draw(3)).unwrap().chosen;
    assert_ne!(other.rank, first.rank);
    world.commit(&mut scheduler, other.place);
    world.end_all();
    assert_eq!(
        world.decide_with(&scheduler, Draw(4)).unwrap().chosen.rank,
        other.rank,
        "it moved with the session"
    );
    world.change(other.rank.worker.0, |facts| facts.duty = Duty::Draining);
    assert_ne!(world.decide_with(&scheduler, Draw(5)).unwrap().chosen.rank, other.rank);
}

#[test]
fn questions_advance_nothing_and_choices_advance_once() {
    let world = World::new(3, 1_000);
    let mut scheduler = Scheduler::new(by_name("round-robin").unwrap());
    let mut order = Vec::new();
    for draw in 0..6 {
        for _ in 0..3 {
            let _ = world.decide_with(&scheduler, Draw(draw));
        }
        let chosen = world.decide_with(&scheduler, Draw(draw)).unwrap().chosen;
        world.commit(&mut scheduler, chosen.place);
        order.push(chosen.rank.worker.0);
    }
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn affinity_sends_equal_beginnings_to_one_rank_until_it_has_its_share() {
    let mut world = World::new(8, 4_000);
    let rank = |world: &World| world.decide("prefix-affinity", Draw(1)).unwrap().chosen.place;
    let home = rank(&world);
    assert_eq!(rank(&world), home);
    world.book(home.0, 10);
    world.book(home.0, 10);
    let next = rank(&world);
    assert_ne!(next, home);
    world.change(next.0, |facts| facts.duty = Duty::Draining);
    world.end_all();
    assert_eq!(rank(&world), home, "that another rank went moves nobody");
}

#[test]
fn equal_ranks_are_chosen_equally_often_and_cold_ones_are_not_starved() {
    let world = World::new(4, 1_000);
    for policy in [
        "time",
        "blocks",
        "random",
        "p2c",
        "least-loaded",
        "weighted",
        "cache-threshold",
    ] {
        let mut chosen = [0; 4];
        for draw in 0..4_000 {
            chosen[world.decide(policy, Draw(draw)).unwrap().chosen.place.index()] += 1;
        }
        assert!(
            chosen.iter().all(|count| (850..1_150).contains(count)),
            "{policy}: {chosen:?}"
        );
    }
}

#[test]
fn a_temperature_spreads_by_cost() {
    let mut world = World::new(3, 1_600);
    world.overlap.set(Place(0), held(100));
    world.overlap.set(Place(1), held(50));
    world.overrides.temperature = Some(0.5);
    let mut chosen = [0.0; 3];
    for draw in 0..20_000 {
        chosen[world.decide("blocks", Draw(draw)).unwrap().chosen.place.index()] += 1.0 / 20_000.0;
    }
    // Costs are 100, 150 and 200 blocks: weights e^0, e^-1 and e^-2.
    let total = 1.0 + (-1.0_f64).exp() + (-2.0_f64).exp();
    for (share, weight) in chosen.iter().zip([1.0, (-1.0_f64).exp(), (-2.0_f64).exp()]) {
        assert!((share - weight / total).abs() < 0.02, "{chosen:?}");
    }
}

#[test]
fn the_unknown_is_refused_in_words() {
    expect!["there is no policy `best`; there are time, blocks, prefix-affinity, cache-threshold, weighted, least-loaded, p2c, round-robin, random, sticky, direct"]
        .assert_eq(&by_name("best").unwrap_err().to_string());
    let scheduler = Scheduler::new(by_name("time").unwrap());
    let world = World::new(0, 10);
    let refused = world.decide_with(&scheduler, Draw(0)).unwrap_err();
    expect!["no worker can serve this request: there is none"].assert_eq(&refused.to_string());
    assert!(matches!(refused, Refusal::NobodyEligible(_)));
    let _ = (Room::default(), Fleet::default());
}

#[test]
fn as_json() {
    let mut world = World::new(2, 1_000);
    world.change(1, |facts| facts.health = Health::Down);
    let decision: Decision = world.decide("time", Draw(1)).unwrap();
    expect![[r#"{"policy":"time","unit":"ms","eligible":1,"settled":true,"chosen":{"worker":0,"rank":0,"cost":41.3503,"first_token_ms":29.3800,"blocks":[0, 0, 0, 0],"booked_blocks":0,"cache":"exact","terms":{"queue":0.0000,"space":0.0000,"sibling":0.0000,"prefill":29.3800,"others":0.0000,"onboard":0.0000,"decode":11.9703}},"others":[],"excluded":{"unhealthy":1}}"#]].assert_eq(&decision.to_json());
}
