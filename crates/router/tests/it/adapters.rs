//! Requests whose adapter few have.

use homing_domain::{AdapterName, WorkerId};
use homing_profile::Millis;
use homing_router::{Question, Turned, Verdict};
use homing_scheduler::{Adapters, Ready};

use crate::world::{World, finished, question, rank};

fn poet() -> AdapterName {
    AdapterName::from("poet")
}

fn with_adapter(id: &str, tag: u64, blocks: u64) -> Question {
    Question {
        adapter: Some(poet()),
        ..question(id, tag, blocks)
    }
}

/// Rank 2 would load it in a second.
fn world() -> World {
    let world = World::new(4, "time");
    let opening = [(WorkerId(2), Ready::After(Millis(1_000.0)))];
    world.router.set_openings(world.now, &poet(), &opening);
    world
}

fn loads(verdict: &Verdict) -> (u32, f64) {
    match verdict {
        Verdict::Turned(Turned::Loads { rank, wait, .. }) => (rank.worker.0, wait.0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_burst_waits_for_one_rank_and_books_nothing_there() {
    let mut world = world();
    assert_eq!(loads(&world.ask(with_adapter("a", 1, 10))), (2, 1_000.0));
    world.pass(400.0);
    for number in 0..50 {
        let id = format!("b{number}");
        assert_eq!(
            loads(&world.ask(with_adapter(&id, 2, 10))),
            (2, 600.0),
            "it is being loaded"
        );
    }
    let state = world.router.state(world.now);
    assert!(
        state.at_rest,
        "nobody waits here, and no rank is busy: the model's own requests go on"
    );
    assert_eq!(world.effects(), []);
    // The load is done: the requests are asked for again.
    world.pass(600.0);
    world.router.worker_changed(world.now, WorkerId(2), |facts| {
        facts.adapters = Adapters::Only(vec![poet()]);
    });
    world.router.set_openings(world.now, &poet(), &[]);
    let routed = world.go(with_adapter("a", 1, 10));
    assert_eq!(routed.decision.chosen.rank, rank(2));
    world.router.done(world.now, routed.ticket.unwrap(), &finished());
    assert!(world.router.state(world.now).at_rest);
}

#[test]
fn a_question_changes_nothing() {
    let world = world();
    for _ in 0..3 {
        let decision = world.router.consider(world.now, &with_adapter("a", 1, 10)).unwrap();
        let load = decision.chosen.terms.get("load");
        assert!(
            (load - 1_000.0).abs() < 1e-9,
            "nobody began to load, and it takes {load} ms"
        );
    }
}

#[test]
fn without_an_opening_nobody_can_serve_it() {
    let world = world();
    world.router.set_openings(world.now, &poet(), &[]);
    let verdict = world.ask(with_adapter("a", 1, 10));
    assert!(matches!(verdict, Verdict::Turned(Turned::Nowhere(_))), "{verdict:?}");
}
