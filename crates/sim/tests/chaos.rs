//! Is the whole router right in some dozens of fleets with faults, and are mistakes that are made on purpose found in them?

use homing_sim::chaos::{Bug, Campaign, Order, Run, hunt, repeat};
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
