//! The rules, one by one.

use homing_domain::{DpRank, RequestId, Tokens};
use homing_load::{End, Heard, Report};
use homing_profile::{Millis, Time};
use homing_router::{CacheView, Effect, Elsewhere, Ended, RouterConfig, Turned, Verdict};
use homing_scheduler::queue::{ClassSpec, Limits, Order, Refused};
use homing_scheduler::{Duty, Health, Keep, Knowledge, Pin, RankFacts, Reason, Refusal};

use crate::world::{World, config, finished, keys, new_rank, question, rank};

/// A router that lets one request at a time onto each rank.
fn one_each() -> RouterConfig {
    RouterConfig {
        start_within: Millis::ZERO,
        ..config()
    }
}

fn narrow(ranks: u32) -> World {
    World::with(ranks, "time", &one_each(), |new| new.spec.max_sequences = Some(1))
}

#[test]
fn a_request_goes_where_its_prefix_is_and_leaves_nothing_behind() {
    let mut world = World::new(4, "time");
    world.store(2, &keys(7, 100));
    let routed = world.go(question("a", 7, 120));
    assert_eq!(routed.decision.chosen.rank, rank(2));
    assert_eq!(
        (routed.cached, routed.decision.chosen.depths.device()),
        (Tokens(1_600), 100)
    );
    let ticket = routed.ticket.unwrap();
    world.pass(50.0);
    assert_eq!(world.router.prefill_done(world.now, ticket), Heard::News);
    assert_eq!(world.router.output(world.now, ticket, Tokens(20)), Heard::News);
    let state = world.router.state(world.now);
    assert_eq!(
        (state.booked, state.ranks[2].load.decoding(), state.at_rest),
        (1, 1, false)
    );
    assert_eq!(world.router.done(world.now, ticket, &finished()), Heard::News);
    assert_eq!(
        world.router.done(world.now, ticket, &finished()),
        Heard::Stranger,
        "it ended before"
    );
    assert!(world.router.state(world.now).at_rest);
    assert_eq!(world.effects(), []);
}

#[test]
fn what_is_booked_counts_as_cache_for_a_sibling() {
    let world = World::new(4, "time");
    let first = world.go(question("a", 7, 400)).decision.chosen.rank;
    let depths = world.router.overlap(&keys(7, 400), first).unwrap();
    assert_eq!((depths.device(), depths.booked), (0, 400));
    let potential = world.router.potential_loads(world.now, &keys(7, 400), Tokens(6_401));
    for (of, potential) in potential {
        let tokens = if of == first { 6_401 + 1 } else { 6_401 };
        assert_eq!(potential.prefill_tokens, tokens, "{of}");
    }
}

#[test]
fn a_question_changes_nothing() {
    let asked = |considered: usize, policy| {
        let world = World::new(5, policy);
        let mut chosen = Vec::new();
        for turn in 0..20 {
            let ask = question(&format!("{turn}"), turn, 3);
            for _ in 0..considered {
                world.router.consider(world.now, &ask).unwrap();
            }
            let mut pinned = question(&format!("p{turn}"), turn, 3);
            pinned.wanted.pinned = Some(Pin {
                worker: rank(3).worker,
                dp: None,
            });
            pinned.overrides.keep = Keep::Unbooked;
            if considered > 0 {
                world.go(pinned);
            }
            let routed = world.go(ask);
            chosen.push(routed.decision.chosen.rank);
            world.done(routed.ticket.unwrap());
        }
        chosen
    };
    for policy in ["round-robin", "random", "p2c", "time", "blocks", "sticky"] {
        assert_eq!(asked(0, policy), asked(3, policy), "{policy}");
    }
}

#[test]
fn a_request_that_is_not_to_be_booked_is_not() {
    let world = World::new(2, "time");
    let mut ask = question("a", 1, 10);
    ask.overrides.keep = Keep::Unbooked;
    assert_eq!(world.go(ask).ticket, None);
    assert!(world.router.state(world.now).at_rest);
}

#[test]
fn a_choice_made_elsewhere_is_booked() {
    let world = World::new(2, "time");
    let choice = |id, worker| Elsewhere {
        question: question(id, 1, 10),
        rank: rank(worker),
        cached: Tokens(32),
    };
    let ticket = world.router.book(world.now, &choice("a", 1)).unwrap();
    let state = world.router.state(world.now);
    assert_eq!(state.ranks[1].load.pending_tokens(), 161 - 32);
    let again = world.router.book(world.now, &choice("a", 0)).unwrap_err();
    assert!(matches!(again, Turned::Unbookable(_)), "{again}");
    let nowhere = world.router.book(world.now, &choice("b", 9)).unwrap_err();
    assert_eq!(nowhere, Turned::NoSuchRank(rank(9)));
    world.done(ticket);
    assert!(world.router.state(world.now).at_rest);
}

#[test]
fn a_cache_without_events_is_guessed_from_what_was_booked() {
    let world = World::with(4, "time", &config(), |new| new.view = CacheView::Guess);
    let asked = question("a", 7, 100);
    world.router.consider(world.now, &asked).unwrap();
    let held = |worker| world.router.overlap(&keys(7, 100), rank(worker)).unwrap().device();
    assert_eq!((0..4).map(held).sum::<u32>(), 0, "a question leaves nothing");
    let routed = world.go(asked);
    let first = routed.decision.chosen.rank;
    assert_eq!(routed.decision.chosen.knowledge, Knowledge::Guess);
    world.done(routed.ticket.unwrap());
    assert_eq!(held(first.worker.0), 100);
    assert_eq!(world.go(question("b", 7, 100)).decision.chosen.rank, first);
    world.router.rank_emptied(first).unwrap();
    let depths = world.router.overlap(&keys(7, 100), first).unwrap();
    assert_eq!((depths.device(), depths.booked), (0, 100), "the engine lives anew");
}

#[test]
fn a_policy_without_overlap_looks_nothing_up_and_stores_nothing() {
    let mut world = World::with(3, "round-robin", &config(), |new| new.view = CacheView::Guess);
    world.store(0, &keys(7, 10));
    assert!(!world.router.uses_overlap());
    let routed = world.go(question("a", 7, 10));
    world.done(routed.ticket.unwrap());
    for worker in 0..3 {
        assert_eq!(world.router.overlap(&keys(7, 10), rank(worker)).unwrap().anywhere(), 0);
    }
}

#[test]
fn who_finds_no_place_waits_and_goes_when_there_is_one() {
    let mut world = narrow(1);
    let first = world.go(question("a", 1, 10));
    assert_eq!(world.ask(question("b", 2, 10)), Verdict::Wait);
    assert_eq!(world.ask(question("c", 3, 10)), Verdict::Wait);
    assert_eq!(world.router.waiting(), 2);
    world.pass(10.0);
    world.router.tick(world.now);
    assert_eq!(world.effects(), [], "nothing changed");
    world.done(first.ticket.unwrap());
    assert_eq!(world.gone(), [RequestId::from("b")], "and c still waits");
    assert_eq!(world.router.waiting(), 1);
    assert_eq!(world.ask(question("d", 4, 10)), Verdict::Wait);
}

#[test]
fn who_is_pinned_to_a_busy_rank_keeps_nobody_else_waiting() {
    let world = narrow(2);
    let pinned = |id: &str, worker: u32| {
        let mut ask = question(id, 1, 10);
        ask.wanted.pinned = Some(Pin {
            worker: rank(worker).worker,
            dp: None,
        });
        ask
    };
    world.go(pinned("a", 0));
    assert_eq!(world.ask(pinned("b", 0)), Verdict::Wait);
    assert_eq!(world.go(question("c", 2, 10)).decision.chosen.rank, rank(1));
}

#[test]
fn order_is_by_priority_and_a_new_one_does_not_overtake() {
    let world = narrow(1);
    let first = world.go(question("a", 1, 10));
    for (id, priority) in [("b", 0), ("c", 5), ("d", 0)] {
        let mut ask = question(id, 2, 10);
        ask.priority = priority;
        assert_eq!(world.ask(ask), Verdict::Wait);
    }
    world.done(first.ticket.unwrap());
    let mut order = Vec::new();
    for _ in 0..3 {
        for effect in world.effects() {
            let Effect::Go { id, routed } = effect else { continue };
            order.push(id.to_string());
            world.done(routed.ticket.unwrap());
        }
    }
    assert_eq!(order, ["c", "b", "d"]);
}

#[test]
fn who_waits_leaves_by_its_deadline_or_when_nobody_wants_it() {
    let mut world = narrow(1);
    let first = world.go(question("a", 1, 10));
    let mut soon = question("soon", 2, 10);
    soon.deadline = Some(world.now + Millis(500.0));
    assert_eq!(world.ask(soon), Verdict::Wait);
    assert_eq!(world.ask(question("late", 3, 10)), Verdict::Wait);
    assert_eq!(world.ask(question("unwanted", 4, 10)), Verdict::Wait);
    assert!(world.router.cancel(&"unwanted".into()));
    assert!(!world.router.cancel(&"unwanted".into()));
    world.pass(600.0);
    world.router.tick(world.now);
    let turned = |id: &str, waited| Effect::Turned {
        id: id.into(),
        why: Turned::Expired(Millis(waited)),
    };
    assert_eq!(world.effects(), [turned("soon", 600.0)]);
    world.pass(60_000.0);
    world.router.touch(world.now, first.ticket.unwrap());
    world.router.tick(world.now);
    assert_eq!(world.effects(), [turned("late", 60_600.0)], "nobody waits for ever");
    world.done(first.ticket.unwrap());
    assert!(world.router.state(world.now).at_rest);
}

#[test]
fn there_is_a_limit_to_those_who_wait_and_it_is_named() {
    let limits = Limits {
        requests: 1,
        ..Limits::default()
    };
    let config = RouterConfig {
        classes: vec![ClassSpec {
            name: "batch".to_owned(),
            quantum: 1,
            order: Order::FirstCome,
            limits,
        }],
        ..one_each()
    };
    let world = World::with(1, "time", &config, |new| new.spec.max_sequences = Some(1));
    world.go(question("a", 1, 10));
    assert_eq!(world.ask(question("b", 1, 10)), Verdict::Wait);
    let Verdict::Turned(Turned::Full(refused)) = world.ask(question("c", 1, 10)) else {
        panic!("there is no room");
    };
    let Refused::Exceeded {
        scope,
        value,
        limit,
        retry_after,
        ..
    } = refused
    else {
        panic!("{refused}");
    };
    assert_eq!((scope.as_str(), value, limit), ("batch", 2, 1));
    assert!(retry_after.0 > 0.0);
    let twice = world.ask(question("b", 1, 10));
    assert!(matches!(twice, Verdict::Turned(Turned::Full(_))), "{twice:?}");
    let live = world.ask(question("a", 1, 10));
    assert!(matches!(live, Verdict::Turned(_)), "{live:?}");
}

#[test]
fn a_rank_that_goes_takes_its_bookings_along_and_one_that_comes_gets_those_who_wait() {
    let world = narrow(1);
    let first = world.go(question("a", 1, 10));
    assert_eq!(world.ask(question("b", 2, 10)), Verdict::Wait);
    assert_eq!(world.router.rank_gone(world.now, rank(0)), 1);
    assert_eq!(
        world.router.done(world.now, first.ticket.unwrap(), &finished()),
        Heard::Stranger
    );
    let nobody = world.ask(question("c", 3, 10));
    assert!(
        matches!(nobody, Verdict::Turned(Turned::Nowhere(Refusal::NobodyEligible(_)))),
        "{nobody:?}"
    );
    assert_eq!(world.effects(), [], "who waits goes on waiting");
    world
        .router
        .rank_up(world.now, new_rank(9, CacheView::Nothing))
        .unwrap();
    assert_eq!(world.gone(), [RequestId::from("b")]);
}

#[test]
fn a_rank_that_drains_or_is_down_gets_nothing() {
    let world = World::new(2, "time");
    world
        .router
        .rank_changed(world.now, rank(0), |facts| facts.duty = Duty::Draining)
        .unwrap();
    let decision = world.go(question("a", 1, 10)).decision;
    assert_eq!(
        (decision.chosen.rank, decision.excluded.by(Reason::Draining)),
        (rank(1), 1)
    );
    world
        .router
        .rank_changed(world.now, rank(1), |facts| facts.health = Health::Down)
        .unwrap();
    let nobody = world.ask(question("b", 1, 10));
    let Verdict::Turned(why) = nobody else {
        panic!("{nobody:?}")
    };
    assert_eq!(
        why.to_string(),
        "no worker can serve this request: 1 unhealthy, 1 draining"
    );
}

#[test]
fn a_view_that_keeps_promising_too_much_is_doubted_once() {
    let mut world = World::new(1, "time");
    world.store(0, &keys(7, 100));
    let index = homing_index::Index::new(homing_index::IndexConfig::new(crate::world::hasher()));
    let mut feed = homing_feed::Feed::new(homing_feed::FeedConfig::default(), index);
    let source = homing_feed::Source {
        identity: homing_feed::Identity::default(),
        recovery: homing_feed::Recovery::Replay,
        clear_reach: homing_feed::ClearReach::Rank,
        copies: homing_index::Copies::Counted,
    };
    let discovered = homing_feed::Input::Discovered { rank: rank(0), source };
    feed.step(0, discovered).unwrap();
    let mut status = feed.status(0, rank(0)).unwrap();
    status.state = homing_feed::State::Live;
    world.router.views([&status]);
    let mut doubted = Vec::new();
    for turn in 0..20 {
        let routed = world.go(question(&format!("{turn}"), 7, 100));
        assert_eq!(routed.decision.chosen.knowledge, Knowledge::Exact);
        world.pass(100.0);
        world.router.prefill_done(world.now, routed.ticket.unwrap());
        let ended = Ended {
            end: End::Finished,
            generated: Some(Tokens(10)),
            cached: Some(Tokens(160)),
        };
        world.router.done(world.now, routed.ticket.unwrap(), &ended);
        doubted.extend(world.effects());
    }
    assert_eq!(doubted, [Effect::Doubted(rank(0))]);
    let record = &world.router.state(world.now).ranks[0].record;
    assert_eq!((record.told, record.less_cached), (20, 20));
}

#[test]
fn a_booking_of_which_nothing_is_heard_lapses() {
    let mut world = World::new(1, "time");
    let routed = world.go(question("a", 1, 10));
    world.pass(299_000.0);
    world.router.tick(world.now);
    assert_eq!(world.effects(), []);
    world.pass(2_000.0);
    world.router.tick(world.now);
    let lapsed = Effect::Lapsed {
        id: "a".into(),
        rank: rank(0),
    };
    assert_eq!(world.effects(), [lapsed]);
    assert!(world.router.state(world.now).at_rest);
    assert_eq!(
        world.router.done(world.now, routed.ticket.unwrap(), &finished()),
        Heard::Stranger
    );
}

#[test]
fn output_lengths_are_learnt_for_each_tenant() {
    let world = World::new(1, "time");
    for turn in 0..40 {
        let routed = world.go(question(&format!("{turn}"), turn, 4));
        let ended = Ended {
            end: End::Finished,
            generated: Some(Tokens(2_000)),
            cached: None,
        };
        world.router.done(world.now, routed.ticket.unwrap(), &ended);
    }
    let routed = world.go(question("long", 99, 4));
    world.router.output(world.now, routed.ticket.unwrap(), Tokens(100));
    let fading = world.router.state(world.now).ranks[0].load.fading_output_blocks();
    assert!(fading > 5.0, "100 tokens are far from the end: {fading}");
}

#[test]
fn what_an_engine_reports_counts() {
    let world = World::new(2, "least-loaded");
    let report = Report {
        at: world.now,
        running: 50,
        waiting: 10,
        used_blocks: 1_000,
    };
    world.router.report(world.now, rank(0), report).unwrap();
    assert_eq!(world.go(question("a", 1, 10)).decision.chosen.rank, rank(1));
    assert!(world.router.report(Time::ZERO, rank(7), report).is_err());
}

#[test]
fn who_comes_anew_does_not_go_before_who_waits_though_only_time_has_passed() {
    let mut world = World::with(1, "time", &one_each(), |_| ());
    let first = world.go(question("a", 1, 400));
    assert_eq!(world.ask(question("b", 2, 10)), Verdict::Wait);
    // The prompt of the first runs down while nobody says anything.
    let backlog = world.router.state(world.now).ranks[0].backlog;
    world.pass(backlog.0 + 1.0);
    assert_eq!(world.ask(question("c", 3, 10)), Verdict::Wait);
    assert_eq!(world.gone(), [RequestId::from("b")]);
    world.done(first.ticket.unwrap());
}

#[test]
fn those_who_can_go_nowhere_keep_nobody_from_going() {
    let world = narrow(2);
    let first = world.go(question("a", 1, 10));
    let second = world.go(question("b", 2, 10));
    let on = |routed: &homing_router::Routed| routed.decision.chosen.rank;
    for turn in 0..20 {
        // These failed on the rank that will be free.
        let mut blocked = question(&format!("blocked {turn}"), 100 + turn, 10);
        blocked.wanted.tried.push(on(&first).worker);
        blocked.priority = 1;
        assert_eq!(world.ask(blocked), Verdict::Wait);
    }
    assert_eq!(world.ask(question("c", 3, 10)), Verdict::Wait);
    world.done(first.ticket.unwrap());
    assert_eq!(world.gone(), [RequestId::from("c")]);
    world.done(second.ticket.unwrap());
}

#[test]
fn a_request_that_is_expected_to_need_more_than_there_is_does_not_wait_beside_an_idle_rank() {
    let mut config = RouterConfig {
        first_output: Tokens(300),
        ..one_each()
    };
    config.classes[0].limits.first_token = Millis(1e9);
    config.total.first_token = Millis(1e9);
    let world = World::with(1, "time", &config, |new| new.spec.capacity = Some(20));
    let first = world.go(question("a", 1, 10));
    assert_eq!(world.ask(question("b", 2, 10)), Verdict::Wait);
    world.done(first.ticket.unwrap());
    assert_eq!(world.gone(), [RequestId::from("b")]);
}

#[test]
fn when_a_worker_is_down_nobody_goes_to_its_other_ranks_either() {
    let mut world = World::with(0, "time", &one_each(), |_| ());
    for dp in [0, 1] {
        let mut new = new_rank(0, CacheView::Nothing);
        (new.spec.rank.dp, new.facts.rank.dp) = (DpRank(dp), DpRank(dp));
        world.router.rank_up(world.now, new).unwrap();
    }
    let booked = [world.go(question("a", 1, 400)), world.go(question("b", 2, 400))];
    assert_eq!(world.ask(question("c", 3, 10)), Verdict::Wait);
    // Both could begin with it by now, but nobody has looked yet.
    world.pass(world.router.state(world.now).ranks[1].backlog.0 + 1.0);
    let down = |facts: &mut RankFacts| facts.health = Health::Down;
    world.router.worker_changed(world.now, rank(0).worker, down);
    assert_eq!(world.effects(), []);
    for routed in booked {
        world.done(routed.ticket.unwrap());
    }
    assert_eq!((world.effects(), world.router.waiting()), (Vec::new(), 1));
    world
        .router
        .worker_changed(world.now, rank(0).worker, |facts| facts.health = Health::Up);
    assert_eq!(world.gone(), [RequestId::from("c")]);
}

#[test]
fn small_requests_do_not_take_the_room_of_a_large_one_for_ever() {
    let mut world = World::with(1, "time", &config(), |new| new.spec.capacity = Some(100));
    let first = world.go(question("a", 1, 60));
    world.router.prefill_done(world.now, first.ticket.unwrap());
    assert_eq!(world.ask(question("large", 2, 80)), Verdict::Wait, "there is no room");
    let mut overtook = 0;
    for turn in 0..30 {
        let small = world.ask(question(&format!("small {turn}"), 100 + turn, 1));
        overtook += u32::from(matches!(small, Verdict::Go(_)));
        world.pass(1_000.0);
        world.router.touch(world.now, first.ticket.unwrap());
        world.router.tick(world.now);
        if world.gone().contains(&"large".into()) {
            assert!((19..=21).contains(&turn), "after {turn} s");
            assert!(overtook > 0, "until then it kept nobody waiting");
            return;
        }
    }
    panic!("it waits for ever");
}
