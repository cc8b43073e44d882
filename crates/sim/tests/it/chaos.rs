//! Is the whole router right in some dozens of fleets with faults, and are mistakes that are made on purpose found in them?

use homing_sim::chaos::{Bug, Campaign, Order, Run, hunt, repeat};
use homing_sim::fleet::SplitCounts;
use homing_sim::fleet::faults::{NAMES, UnknownFault, named};

fn order(seeds: u64) -> Order {
    Order {
        first: 0,
        seeds,
        faults: NAMES.to_vec(),
    }
}

#[test]
fn all_is_well_in_every_world() {
    let campaign = Campaign::run(&order(60));
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
        let hunt = hunt(bug, &order(200));
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
