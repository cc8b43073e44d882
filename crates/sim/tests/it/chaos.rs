//! Is the whole router right in hundreds of fleets with faults, and are mistakes that are made on purpose found in them?

use homing_sim::chaos::{Bug, Campaign, Order, Run, hunt, repeat};
use homing_sim::fleet::SplitCounts;
use homing_sim::fleet::faults::{NAMES, UnknownFault, named};

/// Seeds of each of the first tests: together 500, in parts that run in parallel.
const SEEDS: u64 = 100;

fn order(first: u64, seeds: u64) -> Order {
    Order {
        first,
        seeds,
        faults: NAMES.to_vec(),
    }
}

fn all_is_well(first: u64) {
    let campaign = Campaign::run(&order(first, SEEDS));
    let wrong: Vec<String> = campaign.found.iter().map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n\n"));
    let happened = &campaign.happened;
    assert!(happened.compared > 10_000, "{} views were compared", happened.compared);
    assert!(
        happened.waited > 1_000 && happened.retried > 500 && happened.preemptions > 10,
        "{happened:?}"
    );
    let [answered, failed, given_up] = happened.ended_as;
    assert_eq!(answered + failed + given_up, happened.requests);
    assert!(
        failed > 0 && given_up > 0 && answered > happened.requests / 2,
        "{happened:?}"
    );
}

#[test]
fn all_is_well_in_worlds_from_0() {
    all_is_well(0);
}

#[test]
fn all_is_well_in_worlds_from_100() {
    all_is_well(100);
}

#[test]
fn all_is_well_in_worlds_from_200() {
    all_is_well(200);
}

#[test]
fn all_is_well_in_worlds_from_300() {
    all_is_well(300);
}

#[test]
fn all_is_well_in_worlds_from_400() {
    all_is_well(400);
}

fn check_seed(seed: u64) {
    let run = Run {
        seed,
        faults: NAMES.to_vec(),
        bug: None,
        log: false,
    };
    let violations = repeat(&run).violations;
    assert!(violations.is_empty(), "seed {seed}: {}", violations[0]);
}

/// A waiting request's charge changed with what was cached of it, past a bound that was not looked at again.
#[test]
fn waiting_tokens_stay_within_their_bound() {
    check_seed(1084);
}

/// An effect about a question came before the simulator had noted that the question waits.
#[test]
fn a_question_that_just_began_to_wait_can_be_answered() {
    check_seed(1360);
}

/// A request was let go to a worker that was told to have left before the simulator carried that out.
#[test]
fn effects_are_carried_out_before_a_worker_leaves() {
    check_seed(4925);
}

/// Suspects are asked about after each failure: such questions are no tries.
#[test]
fn questions_that_are_answered_with_nothing_are_no_tries() {
    check_seed(780);
}

/// The worlds above with two kinds of workers, and more of them: here they are looked at by themselves.
#[test]
fn all_is_well_where_two_workers_serve_a_request() {
    let mut sum = SplitCounts::default();
    let (mut worlds, mut answered, mut requests) = (0, 0, 0);
    for seed in 0..250 {
        let run = Run {
            seed,
            faults: NAMES.to_vec(),
            bug: None,
            log: false,
        };
        if run.draw().setup.split.is_none() {
            continue;
        }
        let (outcome, again) = (repeat(&run), repeat(&run));
        assert!(
            outcome.violations.is_empty(),
            "seed {seed}: {}\nhoming sim run --seed {seed} --trace",
            outcome.violations[0]
        );
        assert_eq!((outcome.hash, outcome.ended), (again.hash, again.ended), "seed {seed}");
        assert_eq!(outcome.staged_blocks_left, 0);
        worlds += 1;
        (answered, requests) = (answered + outcome.ended_as[0], requests + outcome.requests);
        let more = outcome.split;
        sum = SplitCounts {
            pairs: sum.pairs + more.pairs,
            whole: sum.whole + more.whole,
            moved: sum.moved + more.moved,
            bytes: sum.bytes + more.bytes,
            lapsed: sum.lapsed + more.lapsed,
            failed: sum.failed + more.failed,
            drained: sum.drained + more.drained,
        };
    }
    assert!(
        worlds > 25 && answered * 3 > requests,
        "{worlds} worlds, {answered} of {requests}"
    );
    let least = [sum.pairs, sum.whole, sum.moved, sum.lapsed, sum.failed, sum.drained];
    assert!(least.iter().all(|count| *count > 50), "{sum:?}");
}

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::all() {
        let hunt = hunt(bug, &order(0, 200));
        let report = hunt.found.map(|found| found.to_string()).unwrap_or_default();
        let repeat = format!("--bug {bug}");
        assert!(
            report.contains("expected: ") && report.contains("found: ") && report.contains(&repeat),
            "{bug} in {} seeds: {report}",
            hunt.seeds
        );
    }
}

#[test]
fn faults_happen_only_where_they_are_allowed() {
    let with = |faults: &[&'static str]| {
        let happened = (0..12).map(|seed| {
            repeat(&Run {
                seed,
                faults: faults.to_vec(),
                bug: None,
                log: false,
            })
            .faults
        });
        let names: std::collections::BTreeSet<&str> =
            happened.flat_map(std::collections::BTreeMap::into_keys).collect();
        names.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(with(&[]), Vec::<&str>::new());
    assert_eq!(with(&["hang"]), ["hang"]);
    assert_eq!(with(&["rolling-restart"]), ["crash", "drain"]);
    let unknown = UnknownFault {
        name: "storm".to_owned(),
    };
    assert_eq!(named("storm"), Err(unknown));
}
