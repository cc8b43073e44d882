//! Does the index always answer as the oracle does, and would we notice if it did not?

use homing_domain::Tier;
use homing_index::Bug;
use homing_index::testing::{Pair, Script, Step};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

fn tier() -> impl Strategy<Value = Tier> {
    prop_oneof![6 => Just(Tier::Device), 2 => Just(Tier::Host), 1 => Just(Tier::Disk), 1 => Just(Tier::External)]
}

fn group() -> impl Strategy<Value = u8> {
    prop_oneof![5 => Just(0_u8), 1 => Just(1)]
}

fn step() -> impl Strategy<Value = Step> {
    let place = (any::<u8>(), 0_u8..6, 0_u8..24, 0_u8..24);
    let store = (place.clone(), tier(), group()).prop_map(|((rank, sequence, from, count), tier, group)| Step::Store {
        rank,
        sequence,
        from,
        count,
        tier,
        group,
    });
    let from_start = (any::<u8>(), 0_u8..6, 1_u8..24).prop_map(|(rank, sequence, count)| Step::Store {
        rank,
        sequence,
        from: 0,
        count,
        tier: Tier::Device,
        group: 0,
    });
    let strange = (
        any::<u8>(),
        prop::option::of(0_u8..12),
        prop::collection::vec((0_u8..12, 0_u8..4), 1..4),
    )
        .prop_map(|(rank, parent, blocks)| Step::StoreStrange { rank, parent, blocks });
    let remove =
        (place, tier(), group(), any::<bool>()).prop_map(|((rank, sequence, from, count), tier, group, tail_first)| {
            Step::Remove {
                rank,
                sequence,
                from,
                count,
                tier,
                group,
                tail_first,
            }
        });
    prop_oneof![
        6 => from_start,
        6 => store,
        3 => strange,
        8 => remove,
        1 => (any::<u8>(), prop::option::of(tier())).prop_map(|(rank, tier)| Step::Clear { rank, tier }),
        1 => any::<u8>().prop_map(|rank| Step::Rejoin { rank }),
        1 => any::<u8>().prop_map(|rank| Step::Reinstall { rank }),
        1 => (any::<u8>(), 0_u8..6, 0_u8..24)
            .prop_map(|(rank, sequence, count)| Step::Replace { rank, sequence, count }),
        2 => any::<u8>().prop_map(|run| Step::Renumber { run }),
        2 => Just(Step::Maintain),
    ]
}

fn script(capacity: impl Strategy<Value = u64>) -> impl Strategy<Value = Script> {
    let ranks = prop::collection::vec((prop::bool::weighted(0.3), prop::bool::weighted(0.2)), 1..8);
    let orphans = prop_oneof![3 => Just(1000_usize), 1 => 0_usize..6];
    let padding = prop_oneof![2 => Just(0_u8), 1 => Just(60), 1 => Just(130)];
    (ranks, capacity, orphans, padding, prop::collection::vec(step(), 1..40)).prop_map(
        |(ranks, capacity, orphans, padding, steps)| Script {
            ranks,
            capacity,
            orphans,
            padding,
            steps,
        },
    )
}

fn check(script: &Script) -> Result<(), TestCaseError> {
    Pair::run(script, None)
        .map_err(|mismatch| TestCaseError::fail(format!("after {} steps, {}", mismatch.after, mismatch.what)))
}

proptest! {
    #![proptest_config(Config { cases: 6000, max_shrink_iters: 20_000, ..Config::default() })]

    #[test]
    fn an_unbounded_index_answers_as_the_oracle(script in script(Just(0))) {
        check(&script)?;
    }
}

proptest! {
    #![proptest_config(Config { cases: 3000, max_shrink_iters: 20_000, ..Config::default() })]

    #[test]
    fn a_bounded_index_forgets_leaves_only_and_says_so(script in script(4_u64..60)) {
        check(&script)?;
    }
}

/// A rank of which 7 blocks fill the index. Blocks 0 and 5 wait for one called 3, the second for the first; then 3 comes,
/// for which there is no room, and 0 is another block after it. What waited for the old 0 goes with the old 0.
#[test]
fn what_waits_for_a_refused_block_goes_before_its_label_is_used_again() {
    let script = Script {
        ranks: vec![(false, false)],
        capacity: 7,
        orphans: 1000,
        padding: 0,
        steps: vec![
            Step::Replace {
                rank: 0,
                sequence: 0,
                count: 8,
            },
            strange(Some(3), &[(0, 3), (5, 1)]),
            strange(Some(9), &[(3, 1), (0, 0)]),
        ],
    };
    assert_eq!(broken(&script, None), None);
    assert!(broken(&script, Some(Bug::RefusedOutOfTurn)).is_some());
}

fn strange(parent: Option<u8>, blocks: &[(u8, u8)]) -> Step {
    Step::StoreStrange {
        rank: 0,
        parent,
        blocks: blocks.to_vec(),
    }
}

fn broken(script: &Script, bug: Option<Bug>) -> Option<String> {
    Pair::run(script, bug).err().map(|mismatch| mismatch.what)
}

/// Runs random scripts against an index with a mistake until one finds it.
fn finds(bug: Bug, scripts: &impl Strategy<Value = Script>) -> bool {
    let config = Config {
        cases: 60_000,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..Config::default()
    };
    let found = TestRunner::new(config).run(scripts, |script| match Pair::run(&script, Some(bug)) {
        Ok(()) => Ok(()),
        Err(_) => Err(TestCaseError::fail("found")),
    });
    found.is_err()
}

#[test]
fn every_planted_bug_is_found() {
    let hook = std::panic::take_hook();
    // The panics that a mistake causes are expected: do not print them.
    std::panic::set_hook(Box::new(|_| {}));
    let roomy = script(Just(0));
    let full = script(4_u64..60);
    let mut missed: Vec<Bug> = Bug::ALL.into_iter().filter(|bug| !finds(*bug, &roomy)).collect();
    missed.extend(Bug::FULL.into_iter().filter(|bug| !finds(*bug, &full)));
    std::panic::set_hook(hook);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
