//! Which rules does health keep?

use proptest::prelude::*;

use super::*;

fn config() -> HealthConfig {
    HealthConfig {
        failures: 3,
        failure_rate: 0.5,
        window: Duration::from_secs(30),
        least_requests: 10,
        backoff: Duration::from_secs(1),
        backoff_most: Duration::from_mins(1),
        trials: 2,
        trial_limit: Duration::from_secs(10),
    }
}

fn at(seconds: f64) -> Time {
    Time::from_millis(seconds * 1e3)
}

/// Sends a request that ends so, if it may be sent.
fn send(health: &mut Health, now: Time, outcome: Outcome) -> Option<Turn> {
    match health.admit(now) {
        Admission::Yes(pass) => health.request(now, pass, outcome, Room::Left),
        Admission::No => panic!("not admitted at {now}: {:?}", health.state()),
    }
}

fn until(health: &Health) -> Time {
    match health.state() {
        State::Down { until, .. } => until,
        other => panic!("{other:?}"),
    }
}

fn is_down(health: &Health, by: FoundBy) -> bool {
    matches!(health.state(), State::Down { found_by, .. } if found_by == by)
}

#[test]
fn failures_in_a_row_take_it_out_and_trials_bring_it_back() {
    let mut health = Health::new(config(), 1);
    let first = send(&mut health, at(1.0), Outcome::Connect).unwrap();
    assert_eq!((first.from, first.to), (State::Up, State::Suspect));
    assert_eq!(send(&mut health, at(1.1), Outcome::Reset), None);
    let out = send(&mut health, at(1.2), Outcome::FirstByteTimeout).unwrap();
    assert_eq!(out.why, "it takes requests and does not answer in time");
    assert!(is_down(&health, FoundBy::Requests));
    assert_eq!(health.admit(at(1.3)), Admission::No);

    let back = until(&health);
    assert!((at(2.0)..=at(2.4)).contains(&back), "{back}");
    let Admission::Yes(trial) = health.admit(back) else {
        panic!("the pause is over");
    };
    assert_eq!(health.admit(back), Admission::No, "one trial at a time");
    assert_eq!(health.request(back, trial, Outcome::Served, Room::Left), None);
    let up = send(&mut health, back, Outcome::Served).unwrap();
    assert_eq!((up.to, up.why), (State::Up, "trials went well"));
}

#[test]
fn a_failed_trial_doubles_the_pause_up_to_its_most() {
    let mut health = Health::new(config(), 2);
    let mut now = at(1.0);
    for _ in 0..3 {
        send(&mut health, now, Outcome::ServerError);
    }
    let mut pauses = Vec::new();
    for _ in 0..9 {
        pauses.push(until(&health).since(now).0 / 1e3);
        now = until(&health);
        send(&mut health, now, Outcome::ServerError);
    }
    for (pause, plain) in pauses.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]) {
        assert!((0.8 * plain..=1.2 * plain).contains(pause), "{pauses:?}");
    }
    let varied: Vec<f64> = pauses[6..].to_vec();
    assert!(
        varied.windows(2).any(|pair| (pair[0] - pair[1]).abs() > 1e-3),
        "{varied:?}"
    );
}

#[test]
fn a_share_of_failures_takes_it_out_though_none_are_in_a_row() {
    let mut health = Health::new(config(), 3);
    for number in 0..9 {
        let outcome = if number % 2 == 0 {
            Outcome::Reset
        } else {
            Outcome::Served
        };
        send(&mut health, at(1.0), outcome);
        assert!(!is_down(&health, FoundBy::Requests), "too few requests to tell");
    }
    send(&mut health, at(1.0), Outcome::Served);
    assert_eq!(
        health.state(),
        State::Suspect,
        "half of ten failed, though the last was served"
    );
    send(&mut health, at(1.0), Outcome::Reset);
    assert!(is_down(&health, FoundBy::Requests));
}

#[test]
fn requests_take_nobody_out_without_room_and_pings_do() {
    let mut health = Health::new(config(), 4);
    for _ in 0..50 {
        assert_eq!(health.admit(at(1.0)), Admission::Yes(Pass::Ordinary));
        health.request(at(1.0), Pass::Ordinary, Outcome::Connect, Room::None);
    }
    assert_eq!(health.state(), State::Suspect);
    for _ in 0..3 {
        health.ping(at(1.0), Ping::TimedOut);
    }
    assert!(is_down(&health, FoundBy::Pings));
}

#[test]
fn who_answers_pings_and_no_requests_stays_out() {
    let mut health = Health::new(config(), 5);
    for _ in 0..3 {
        send(&mut health, at(1.0), Outcome::FirstByteTimeout);
    }
    for _ in 0..20 {
        assert_eq!(health.ping(at(1.1), Ping::Answered), None);
    }
    assert!(is_down(&health, FoundBy::Requests));
    assert_eq!(health.admit(at(1.2)), Admission::No);
}

#[test]
fn whom_pings_found_is_back_as_soon_as_they_answer() {
    let mut health = Health::new(config(), 6);
    for second in 0..3 {
        health.ping(at(f64::from(second)), Ping::Failed);
    }
    assert!(is_down(&health, FoundBy::Pings));
    for second in 3..100 {
        assert_eq!(health.ping(at(f64::from(second)), Ping::Failed), None);
        assert_eq!(health.admit(at(f64::from(second))), Admission::No);
    }
    let half = health.ping(at(100.0), Ping::Answered).unwrap();
    assert_eq!(
        half.to,
        State::HalfOpen {
            found_by: FoundBy::Pings
        }
    );
    let up = health.ping(at(101.0), Ping::Answered).unwrap();
    assert_eq!(up.to, State::Up);
}

#[test]
fn a_worker_that_hung_and_then_died_is_back_as_soon_as_it_lives() {
    let mut health = Health::new(config(), 7);
    for _ in 0..3 {
        send(&mut health, at(1.0), Outcome::FirstByteTimeout);
    }
    for _ in 0..3 {
        health.ping(at(1.1), Ping::Failed);
    }
    assert!(is_down(&health, FoundBy::Pings));
    health.ping(at(1.2), Ping::Answered);
    assert!(health.would_admit(at(1.2)));
}

#[test]
fn a_trial_of_which_nothing_is_heard_is_given_up_and_its_late_word_means_nothing() {
    let mut health = Health::new(config(), 8);
    for _ in 0..3 {
        send(&mut health, at(1.0), Outcome::Connect);
    }
    let now = until(&health);
    let Admission::Yes(lost) = health.admit(now) else {
        panic!("the pause is over");
    };
    assert_eq!(health.admit(now + Millis(9_999.0)), Admission::No);
    let later = now + Millis(10_000.0);
    let Admission::Yes(second) = health.admit(later) else {
        panic!("the first was given up");
    };
    assert_ne!(lost, second);
    assert_eq!(health.request(later, lost, Outcome::Reset, Room::Left), None);
    assert_eq!(health.admit(later), Admission::No, "the second is still under way");
    // A client that went away says nothing, and makes room for the next trial.
    assert_eq!(health.request(later, second, Outcome::Unknown, Room::Left), None);
    assert!(health.would_admit(later));
}

#[test]
fn who_was_well_for_long_begins_with_a_short_pause() {
    let mut health = Health::new(config(), 9);
    let mut now = at(1.0);
    for _ in 0..6 {
        while !matches!(health.state(), State::Down { .. }) {
            send(&mut health, now, Outcome::Connect);
        }
        now = until(&health);
    }
    send(&mut health, now, Outcome::Served);
    send(&mut health, now, Outcome::Served);
    assert_eq!(health.state(), State::Up);
    let later = now + Millis(61_000.0);
    for _ in 0..3 {
        send(&mut health, later, Outcome::Connect);
    }
    assert!(until(&health).since(later).0 <= 1_200.0);
}

#[test]
fn suspicion_ends_with_time_where_no_request_comes() {
    let mut health = Health::new(config(), 10);
    send(&mut health, at(1.0), Outcome::Reset);
    health.ping(at(5.0), Ping::Answered);
    assert_eq!(health.state(), State::Suspect);
    let well = health.ping(at(40.0), Ping::Answered).unwrap();
    assert_eq!((well.to, well.why), (State::Up, "all is well again"));
}

#[test]
fn room_is_a_share_of_the_fleet() {
    let table = [
        (0, 1, 0.5, Room::None),
        (0, 2, 0.5, Room::Left),
        (1, 2, 0.5, Room::None),
        (4, 10, 0.5, Room::Left),
    ];
    for (out, all, most, room) in table {
        assert_eq!(Room::of(out, all, most), room, "{out} of {all}");
    }
    assert_eq!(Room::of(0, 0, 1.0), Room::None);
    assert_eq!(Room::of(2, 3, 1.0), Room::Left);
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Wait(u32),
    Admit,
    /// The outcome of one of the open passes.
    End(usize, Outcome, Room),
    Ping(Ping),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    use Outcome::{Connect, FirstByteTimeout, Reset, Served, ServerError, Unknown};
    let outcome = prop::sample::select(vec![
        Served,
        Served,
        Connect,
        ServerError,
        FirstByteTimeout,
        Reset,
        Unknown,
    ]);
    let room = prop::sample::select(vec![Room::Left, Room::None]);
    let op = prop_oneof![
        (0_u32..20_000).prop_map(Op::Wait),
        Just(Op::Admit),
        Just(Op::Admit),
        (any::<usize>(), outcome, room).prop_map(|(which, outcome, room)| Op::End(which, outcome, room)),
        prop::sample::select(vec![Ping::Answered, Ping::Failed, Ping::TimedOut]).prop_map(Op::Ping),
    ];
    prop::collection::vec(op, 0..120)
}

fn configs() -> impl Strategy<Value = HealthConfig> {
    (1_u32..5, 0.1_f64..1.0, 1_u32..20, 1_u32..4, 1_u64..5_000, 1_u64..30_000).prop_map(
        |(failures, failure_rate, least_requests, trials, backoff, limit)| HealthConfig {
            failures,
            failure_rate,
            least_requests,
            trials,
            backoff: Duration::from_millis(backoff),
            trial_limit: Duration::from_millis(limit),
            ..config()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 2_000 } else { 10_000 }))]

    #[test]
    fn one_trial_at_a_time_bounded_pauses_and_never_stuck(config in configs(), seed: u64, ops in ops()) {
        let mut health = Health::new(config.clone(), seed);
        let mut now = at(1.0);
        let mut open: Vec<Pass> = Vec::new();
        let mut trial: Option<(Pass, Time)> = None;
        let limit = millis(config.trial_limit);
        for op in ops {
            let before = health.state();
            match op {
                Op::Wait(millis) => now = now + Millis(f64::from(millis)),
                Op::Admit => {
                    let would = health.would_admit(now);
                    let admission = health.admit(now);
                    prop_assert_eq!(would, admission != Admission::No);
                    if let Admission::Yes(pass) = admission {
                        open.push(pass);
                        if pass != Pass::Ordinary {
                            let free = trial.is_none_or(|(_, since)| now >= since + limit);
                            prop_assert!(free, "two trials at once");
                            trial = Some((pass, now));
                        }
                    }
                }
                Op::End(which, outcome, room) if !open.is_empty() => {
                    let pass = open.swap_remove(which % open.len());
                    if trial.is_some_and(|(open, _)| open == pass) {
                        trial = None;
                    }
                    let turn = health.request(now, pass, outcome, room);
                    prop_assert_eq!(turn.is_some(), before != health.state());
                    let is_up = matches!(before, State::Up | State::Suspect);
                    if is_up && room == Room::None {
                        prop_assert!(matches!(health.state(), State::Up | State::Suspect));
                    }
                }
                Op::End(..) => {}
                Op::Ping(ping) => {
                    health.ping(now, ping);
                    // Pings alone can end a phase of trials.
                    if !matches!(health.state(), State::HalfOpen { .. }) {
                        trial = None;
                    }
                }
            }
            if !matches!(health.state(), State::HalfOpen { .. }) {
                trial = None;
            }
            if let State::Down { until, .. } = health.state() {
                prop_assert!(until.since(now).0 <= millis(config.backoff_most).0 * 1.2 + 1.0);
            }
        }
        // From here on it answers everything: it is up after a bounded number of words.
        now = now + Millis(millis(config.backoff_most).0 * 1.2 + limit.0 + 1.0);
        for _ in 0..=config.trials {
            health.ping(now, Ping::Answered);
            let Admission::Yes(pass) = health.admit(now) else {
                return Err(TestCaseError::fail(format!("stuck in {:?}", health.state())));
            };
            health.request(now, pass, Outcome::Served, Room::None);
        }
        for _ in 0..200 {
            // A bad share lasts as long as its window.
            now = now + Millis(1_000.0);
            health.request(now, Pass::Ordinary, Outcome::Served, Room::None);
        }
        prop_assert_eq!(health.state(), State::Up);
    }
}
