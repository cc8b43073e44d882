//! Adapters that are put where they are wanted, against those that are not.

use homing_adapters::Method;
use homing_profile::Millis;
use homing_sim::adapters::{Lose, Placement, Setup, run};

fn setup(placement: Placement) -> Setup {
    Setup {
        seed: 7,
        workers: 8,
        slots: 6,
        adapters: 40,
        placement,
        rate: 40.0,
        seconds: 60.0,
        shift: Some(20.0),
        load: Millis(400.0),
        failing: 30,
        lose: None,
    }
}

const ALL: [Placement; 3] = [
    Placement::None,
    Placement::Managed(Method::Rendezvous),
    Placement::Managed(Method::MinCost),
];

#[test]
fn everybody_is_answered_whatever_fails_and_nobody_meets_an_engine_without_his_adapter() {
    for placement in ALL {
        let lost = Setup {
            failing: 200,
            lose: Some(Lose {
                worker: 3,
                at: 20.0,
                back: 40.0,
            }),
            ..setup(placement)
        };
        let outcome = run(&lost);
        assert_eq!((outcome.strays, outcome.failed), (0, 0), "{placement:?}");
        assert_eq!(outcome.served, outcome.requests, "{placement:?}");
        assert!(outcome.failed_loads > 0, "{placement:?}");
    }
}

#[test]
fn the_same_world_happens_twice() {
    for placement in ALL {
        assert_eq!(run(&setup(placement)), run(&setup(placement)), "{placement:?}");
    }
}

#[test]
fn placement_takes_fewer_loads_and_less_time() {
    let [none, ours @ ..] = ALL.map(|placement| run(&setup(placement)));
    for of in ours {
        assert!(
            of.loads.len() * 10 < none.loads.len() * 7,
            "{} loads against {}",
            of.loads.len(),
            none.loads.len()
        );
        let (ours, theirs) = (of.first_token.at(0.99), none.first_token.at(0.99));
        assert!(ours < 0.7 * theirs, "{ours} ms against {theirs} ms");
    }
}

#[test]
fn a_fleet_that_has_settled_stays_loses_little_and_gets_it_back() {
    let lose = Lose {
        worker: 3,
        at: 150.0,
        back: 190.0,
    };
    let outcome = run(&Setup {
        slots: 10,
        rate: 15.0,
        seconds: 230.0,
        shift: None,
        failing: 0,
        lose: Some(lose),
        ..setup(Placement::Managed(Method::Rendezvous))
    });
    assert_eq!(
        outcome.loads_in(110.0, lose.at),
        0,
        "nothing moves while nothing changes"
    );
    let had = outcome.lost.len();
    assert!(had > 0 && outcome.loads_of_lost(lose.at, lose.back) <= had);
    assert!(
        outcome.lost.is_subset(&outcome.back),
        "{:?} are not back",
        outcome.lost.difference(&outcome.back)
    );
}
