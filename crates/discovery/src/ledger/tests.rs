//! Who exists, by the rules?

use std::collections::BTreeMap;

use homing_config::Config;
use proptest::prelude::*;

use super::*;
use crate::source::SourceKind;

const LINGER: f64 = 10.0;
const WINDOW: f64 = 60.0;

fn config() -> RosterConfig {
    RosterConfig {
        linger: Duration::from_secs(10),
        flap_window: Duration::from_mins(1),
        flap_wait: Duration::from_secs(1),
    }
}

fn ledger(sources: usize) -> Ledger {
    let origins = (0..sources).map(|place| Origin::new(SourceKind::Dns, &format!("source {place}")));
    Ledger::new(config(), origins.collect())
}

fn at(seconds: f64) -> Time {
    Time::from_millis(seconds * 1e3)
}

fn spec(text: &str) -> Arc<WorkerSpec> {
    let defaults = homing_config::WorkerDefaults {
        cache_view: homing_config::CacheView::Approximate,
        ..Config::default().worker_defaults()
    };
    Arc::new(WorkerSpec::parse(text, &defaults).unwrap_or_else(|problems| panic!("{text}: {problems:?}")))
}

fn set(workers: &[&str], absence: Absence) -> Told {
    Told::Set {
        workers: workers.iter().map(|text| spec(text)).collect(),
        absence,
    }
}

fn meant(workers: &[&str]) -> Told {
    set(workers, Absence::Meant)
}

fn failed(why: &str) -> Told {
    Told::Failed { why: why.to_owned() }
}

/// The changes in a few words each.
fn words(changes: &[Change]) -> Vec<String> {
    let word = |change: &Change| match change {
        Change::Came(worker) => format!("+{} {}", worker.id.0, worker.spec.url),
        Change::Changed(worker) => format!("~{} {} {}", worker.id.0, worker.spec.url, worker.origin),
        Change::Left(id) => format!("-{}", id.0),
    };
    changes.iter().map(word).collect()
}

#[test]
fn workers_come_change_and_leave() {
    let mut ledger = ledger(1);
    let first = ledger.take(at(0.0), 0, meant(&["http://a", "http://b"]));
    assert_eq!(words(&first), ["+0 http://a", "+1 http://b"]);
    assert!(ledger.take(at(1.0), 0, meant(&["http://b", "http://a"])).is_empty());
    let second = ledger.take(at(2.0), 0, meant(&["http://a,label=zone=x", "http://c"]));
    assert_eq!(words(&second), ["-1", "~0 http://a source 0", "+2 http://c"]);
    assert_eq!(ledger.workers().len(), 2);
}

#[test]
fn another_model_is_another_worker() {
    let mut ledger = ledger(1);
    ledger.take(at(0.0), 0, meant(&["http://a,model=x"]));
    let changes = ledger.take(at(1.0), 0, meant(&["http://a,model=y"]));
    assert_eq!(words(&changes), ["-0", "+1 http://a"]);
}

#[test]
fn a_source_that_fails_takes_nobody_away() {
    let mut ledger = ledger(1);
    ledger.take(at(0.0), 0, meant(&["http://a"]));
    assert!(ledger.take(at(1.0), 0, failed("no answer")).is_empty());
    assert!(ledger.tick(at(10_000.0)).is_empty());
    assert_eq!(ledger.standing()[0].trouble.as_deref(), Some("no answer"));
    assert_eq!(
        ledger.remarks(),
        ["source 0: no answer; the 1 workers it told of are kept"]
    );
    ledger.take(at(1.5), 0, failed("no answer"));
    assert!(ledger.remarks().is_empty(), "it is said once");
    ledger.take(at(2.0), 0, meant(&["http://a"]));
    assert_eq!(ledger.standing()[0].trouble, None);
    assert_eq!(ledger.remarks(), ["source 0: well again"]);
}

#[test]
fn of_two_sources_the_first_wins_and_the_second_stands_in() {
    let mut ledger = ledger(2);
    ledger.take(at(0.0), 1, meant(&["http://a,role=decode"]));
    let changes = ledger.take(at(1.0), 0, meant(&["http://a,role=prefill"]));
    assert_eq!(words(&changes), ["~0 http://a source 0"]);
    assert_eq!(
        ledger.remarks(),
        ["worker http://a is named by source 0 and by source 1: what the first says holds"]
    );
    assert!(ledger.take(at(2.0), 1, meant(&["http://a,role=decode"])).is_empty());
    assert!(ledger.remarks().is_empty(), "it is said once");
    let changes = ledger.take(at(3.0), 0, meant(&[]));
    assert_eq!(words(&changes), ["~0 http://a source 1"]);
    assert_eq!(words(&ledger.take(at(4.0), 1, meant(&[]))), ["-0"]);
}

#[test]
fn who_is_missing_by_doubt_stays_for_a_while() {
    let mut ledger = ledger(1);
    ledger.take(at(0.0), 0, set(&["http://a", "http://b"], Absence::Doubtful));
    assert!(
        ledger
            .take(at(1.0), 0, set(&["http://a"], Absence::Doubtful))
            .is_empty()
    );
    assert!(
        ledger
            .take(at(5.0), 0, set(&["http://a"], Absence::Doubtful))
            .is_empty()
    );
    assert_eq!(ledger.wake(), Some(at(1.0 + LINGER)));
    assert!(ledger.tick(at(10.9)).is_empty());
    assert_eq!(words(&ledger.tick(at(11.0))), ["-1"]);
    assert_eq!(ledger.wake(), None);
    // Back in time, and nothing happened.
    ledger.take(at(12.0), 0, set(&[], Absence::Doubtful));
    assert!(
        ledger
            .take(at(13.0), 0, set(&["http://a"], Absence::Doubtful))
            .is_empty()
    );
    assert!(ledger.tick(at(1_000.0)).is_empty());
}

#[test]
fn who_comes_and_goes_waits_longer_each_time() {
    let mut ledger = ledger(1);
    let mut now = 0.0;
    let mut waits = Vec::new();
    ledger.take(at(now), 0, meant(&["http://a"]));
    for _ in 0..8 {
        assert_eq!(ledger.take(at(now), 0, meant(&[])).len(), 1);
        let mut changes = ledger.take(at(now), 0, meant(&["http://a"]));
        if changes.is_empty() {
            let wake = ledger.wake().unwrap();
            waits.push(wake.since(at(now)).0 / 1e3);
            now = wake.millis() / 1e3;
            changes = ledger.tick(wake);
        }
        assert!(matches!(changes[..], [Change::Came(_)]), "{changes:?}");
    }
    assert_eq!(waits, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, WINDOW]);
    // A quiet time makes it forgotten.
    now += 2.0 * WINDOW;
    ledger.tick(at(now));
    ledger.take(at(now), 0, meant(&[]));
    assert_eq!(ledger.take(at(now), 0, meant(&["http://a"])).len(), 1);
}

#[test]
fn two_streams_are_not_one() {
    let mut ledger = ledger(1);
    let same = "events=tcp://h:5557,cache-view=events";
    let workers = [
        format!("http://a,{same},ranks=2"),
        "http://b,events=tcp://h:5558,cache-view=events".to_owned(),
    ];
    let workers: Vec<&str> = workers.iter().map(String::as_str).collect();
    let changes = ledger.take(at(0.0), 0, meant(&workers));
    assert_eq!(words(&changes), ["+0 http://a"]);
    let why = "tcp://h:5558 is an endpoint of worker http://a as well";
    assert_eq!(ledger.refused()[0].why, why);
    assert_eq!(ledger.wake(), None, "time does not help it");
    assert_eq!(
        words(&ledger.take(at(1.0), 0, meant(&workers[1..]))),
        ["-0", "+1 http://b"]
    );
    assert!(ledger.refused().is_empty());
}

#[test]
fn there_is_a_bound() {
    let mut ledger = ledger(2);
    let many = |source: usize| -> Vec<String> { (0..MAX_WORKERS).map(|n| format!("http://s{source}w{n}")).collect() };
    for source in 0..2 {
        let many = many(source);
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        ledger.take(at(0.0), source, meant(&many));
    }
    assert_eq!(ledger.workers().len(), MAX_WORKERS);
    assert_eq!(ledger.refused().len(), MAX_WORKERS);
    ledger.take(at(1.0), 0, meant(&[]));
    assert_eq!((ledger.workers().len(), ledger.refused().len()), (MAX_WORKERS, 0));
    assert!(ledger.past.len() <= MAX_WORKERS);
}

#[derive(Clone, Debug)]
enum Op {
    Tell(usize, Vec<(u8, bool)>, Absence),
    Fail(usize),
    Wait(u32),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let absence = prop::sample::select(vec![Absence::Meant, Absence::Doubtful]);
    let op = prop_oneof![
        (
            0..3_usize,
            prop::collection::vec((0..5_u8, any::<bool>()), 0..5),
            absence
        )
            .prop_map(|(place, workers, absence)| Op::Tell(place, workers, absence)),
        (0..3_usize).prop_map(Op::Fail),
        (0..40_000_u32).prop_map(Op::Wait),
    ];
    prop::collection::vec(op, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Whoever follows the changes has the workers, numbers are never given twice, and in the end exactly those are there whom
    /// a source told of last.
    #[test]
    fn changes_add_up(ops in ops()) {
        let mut ledger = ledger(3);
        let mut now = at(0.0);
        let mut followed: BTreeMap<u32, Worker> = BTreeMap::new();
        let mut given = BTreeSet::new();
        let mut told: [BTreeSet<u8>; 3] = Default::default();
        let mut follow = |changes: Vec<Change>, followed: &mut BTreeMap<u32, Worker>| {
            for change in changes {
                match change {
                    Change::Came(worker) => {
                        assert!(given.insert(worker.id.0), "a number is given twice");
                        assert!(followed.values().all(|other| other.spec.url != worker.spec.url));
                        followed.insert(worker.id.0, worker);
                    }
                    Change::Changed(worker) => {
                        let was = followed.insert(worker.id.0, worker.clone()).expect("it was there");
                        assert_ne!(&was, &worker);
                        assert!(is_same_worker(&was.spec, &worker.spec));
                    }
                    Change::Left(id) => assert!(followed.remove(&id.0).is_some(), "it was there"),
                }
            }
        };
        for op in ops {
            let changes = match op {
                Op::Wait(millis) => {
                    now = now + Millis(f64::from(millis));
                    ledger.tick(now)
                }
                Op::Fail(place) => {
                    let changes = ledger.take(now, place, failed("why"));
                    prop_assert!(changes.is_empty());
                    changes
                }
                Op::Tell(place, workers, absence) => {
                    told[place] = workers.iter().map(|(number, _)| *number).collect();
                    let text = |(number, label): &(u8, bool)| format!("http://w{number},label=x={label}");
                    let texts: Vec<String> = workers.iter().map(text).collect();
                    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                    ledger.take(now, place, set(&texts, absence))
                }
            };
            follow(changes, &mut followed);
            prop_assert_eq!(followed.values().cloned().collect::<Vec<_>>(), ledger.workers());
            // Who is told of now is there, or waits for a time that is known.
            for number in told.iter().flatten() {
                let url = HttpUrl::parse(&format!("http://w{number}")).unwrap();
                let is_there = ledger.workers.contains_key(&url);
                prop_assert!(is_there || ledger.wake().is_some_and(|wake| wake > now));
            }
        }
        for _ in 0..4 {
            if let Some(wake) = ledger.wake() {
                now = now.max(wake);
            }
            now = now + Millis(WINDOW * 1e3);
            follow(ledger.tick(now), &mut followed);
        }
        let expected: BTreeSet<String> = told.iter().flatten().map(|number| format!("http://w{number}")).collect();
        let there: BTreeSet<String> = followed.values().map(|worker| worker.spec.url.to_string()).collect();
        prop_assert_eq!(there, expected);
    }
}
