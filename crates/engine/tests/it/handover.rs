//! How does KV go from one engine to another? One test for each behaviour that docs/engine-model.md claims of it.

use crate::support::{Driver, prompt, undisturbed};
use homing_domain::{BlockSize, Blocks, Tokens};
use homing_engine::{
    ClearError, Engine, EngineConfig, Handover, OnFailure, Outcome, Request, RequestNo, Running, SubmitError,
};
use homing_profile::{Constant, Millis, Timing};

/// A step that prefills takes 10 ms, one that decodes 1 ms.
fn timing() -> Timing {
    Timing::Constant(Constant {
        prefill: Millis(10.0),
        decode: Millis(1.0),
        kv_bytes_per_token: 1_000,
    })
}

/// Both kinds of engine with so many blocks of 4 tokens.
fn engines(blocks: u32) -> [EngineConfig; 2] {
    [EngineConfig::vllm, EngineConfig::sglang].map(|make| EngineConfig {
        blocks: Blocks(blocks),
        block_size: BlockSize::new(4).expect("it is not 0"),
        max_model_len: Tokens(blocks * 4),
        ..make(Blocks(blocks), timing())
    })
}

fn staged(id: u64, prompt: Vec<u32>, lease: f64) -> Request {
    Request {
        handover: Handover::Stage { lease: Millis(lease) },
        ..Request::plain(id, prompt, 1)
    }
}

fn taken(id: u64, prompt: Vec<u32>, tokens: u32) -> Request {
    Request {
        handover: Handover::Take,
        ..Request::plain(id, prompt, tokens)
    }
}

/// All that is due now, and what came of it.
fn polled(driver: &mut Driver) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let mut outcome = Outcome::default();
    while driver.engine.poll(driver.now, &mut outcome) {
        for output in &outcome.tokens {
            driver.answers.entry(output.request).or_default().push(output.token);
        }
        outcomes.push(outcome.clone());
    }
    outcomes
}

/// Until the present step has ended.
fn step(driver: &mut Driver) -> Vec<Outcome> {
    polled(driver);
    driver.now = driver.engine.wake_at().expect("there is a step");
    polled(driver)
}

#[test]
fn staged_blocks_stay_until_they_are_released() {
    for config in engines(8) {
        let mut driver = Driver::new(config);
        driver.submit(staged(1, prompt(1, 14), 1_000.0));
        let outcomes = step(&mut driver);
        let told: Vec<_> = outcomes.iter().flat_map(|outcome| &outcome.staged).collect();
        assert_eq!((told[0].blocks, told[0].tokens), (Blocks(4), Tokens(14)));
        assert_eq!(told[0].until, driver.now + Millis(1_000.0));
        // Another one of five blocks does not fit beside it, and takes nothing from it.
        driver.submit(Request::plain(2, prompt(2, 18), 1));
        polled(&mut driver);
        assert_eq!(driver.counts().active, 4);
        assert_eq!(
            driver.engine.wake_at(),
            Some(told[0].until),
            "nothing else is to be done"
        );
        assert!(driver.engine.release(RequestNo(1)) && !driver.engine.release(RequestNo(1)));
        driver.run();
        assert!(driver.answers.contains_key(&RequestNo(2)));
        assert_eq!(driver.counts().active, 0);
    }
}

#[test]
fn a_lease_ends_when_it_was_to_end_also_for_a_driver_who_comes_late() {
    for config in engines(8) {
        let mut driver = Driver::new(config);
        driver.submit(staged(1, prompt(1, 8), 50.0));
        step(&mut driver);
        let staged = driver.now;
        assert!(driver.engine.renew(RequestNo(1), staged + Millis(70.0)));
        driver.now = staged + Millis(500.0);
        let outcomes = polled(&mut driver);
        assert_eq!(outcomes[0].lapsed, [RequestNo(1)]);
        assert_eq!(outcomes[0].at, staged + Millis(70.0));
        assert_eq!((driver.counts().active, driver.counts().inactive), (0, 2));
        assert!(!driver.engine.release(RequestNo(1)));
    }
}

#[test]
fn one_that_stops_by_itself_leaves_nothing_to_hand_over() {
    for config in engines(8) {
        let mut driver = Driver::new(config);
        let first = undisturbed(&prompt(1, 8), 1)[0];
        driver.submit(Request {
            stop: vec![first],
            ..staged(1, prompt(1, 8), 50.0)
        });
        let outcomes = driver.run();
        assert!(outcomes.iter().all(|outcome| outcome.staged.is_empty()));
        assert_eq!(driver.counts().active, 0);
    }
}

#[test]
fn what_was_taken_over_is_not_computed_and_the_text_is_the_same() {
    for config in engines(100) {
        let mut driver = Driver::new(config);
        driver.submit(taken(1, prompt(1, 41), 5));
        let outcomes = polled(&mut driver);
        let reserved = outcomes.iter().flat_map(|outcome| &outcome.reserved).next();
        let reserved = reserved.expect("it is told at once");
        assert_eq!((reserved.missing, reserved.blocks), (Tokens(41), Blocks(11)));
        assert_eq!((driver.engine.wake_at(), driver.counts().active), (None, 11));
        driver.now = driver.now + Millis(7.0);
        assert!(driver.engine.received(RequestNo(1)) && !driver.engine.received(RequestNo(1)));
        let steps = driver.run();
        assert!(steps.iter().all(|step| step.prefilled == 0));
        let admitted = steps.iter().flat_map(|step| &step.admitted).next().expect("it ran");
        assert_eq!((admitted.cached, admitted.taken), (Tokens(40), Tokens(40)));
        let wanted = homing_engine::Time::ZERO + Millis(12.0);
        assert_eq!(driver.now, wanted, "five steps of decoding after its KV had come");
        assert_eq!(driver.answers[&RequestNo(1)], undisturbed(&prompt(1, 41), 5));
        let load = driver.engine.load(homing_domain::DpRank(0)).expect("there is a rank");
        assert_eq!((load.external_queries, load.external_hits), (41, 41));
    }
}

#[test]
fn only_what_is_missing_is_asked_for() {
    for config in engines(100) {
        let mut driver = Driver::new(config);
        driver.submit(Request::plain(1, prompt(1, 20), 1));
        driver.run();
        driver.submit(taken(2, prompt(1, 41), 2));
        let outcomes = polled(&mut driver);
        let missing: Vec<u32> = outcomes.iter().flat_map(|o| &o.reserved).map(|r| r.missing.0).collect();
        assert_eq!(missing, [21]);
        driver.engine.received(RequestNo(2));
        let steps = driver.run();
        let admitted = steps.iter().flat_map(|step| &step.admitted).next().expect("it ran");
        assert_eq!((admitted.cached, admitted.taken), (Tokens(40), Tokens(20)));
        driver.submit(Request::plain(3, prompt(1, 41), 1));
        let steps = driver.run();
        let admitted = steps.iter().flat_map(|step| &step.admitted).next().expect("it ran");
        assert_eq!(admitted.cached, Tokens(40), "what was taken over is in the cache");
    }
}

#[test]
fn kv_that_does_not_come_is_computed_here_or_ends_the_request() {
    for config in engines(100) {
        let mut driver = Driver::new(config);
        driver.submit(taken(1, prompt(1, 41), 3));
        driver.submit(taken(2, prompt(2, 41), 3));
        polled(&mut driver);
        assert!(driver.engine.transfer_failed(RequestNo(1), OnFailure::Recompute));
        assert!(driver.engine.transfer_failed(RequestNo(2), OnFailure::End));
        let steps = driver.run();
        assert_eq!(steps.iter().map(|step| step.prefilled).sum::<u64>(), 41);
        assert_eq!(driver.answers[&RequestNo(1)], undisturbed(&prompt(1, 41), 3));
        assert!(!driver.answers.contains_key(&RequestNo(2)));
        assert_eq!((driver.engine.live(), driver.counts().active), (0, 0));
    }
}

#[test]
fn who_is_cancelled_while_kv_is_on_its_way_keeps_its_blocks_until_it_has_come() {
    for config in engines(100) {
        let mut driver = Driver::new(config);
        driver.submit(taken(1, prompt(1, 41), 3));
        polled(&mut driver);
        assert!(driver.engine.cancel(RequestNo(1)));
        assert_eq!((driver.engine.live(), driver.counts().active), (0, 11));
        assert_eq!(
            driver.engine.submit(Request::plain(1, prompt(1, 4), 1)),
            Err(SubmitError::Repeated(RequestNo(1)))
        );
        assert!(driver.engine.received(RequestNo(1)));
        assert_eq!((driver.engine.wake_at(), driver.counts().active), (None, 0));
    }
}

#[test]
fn the_cache_is_not_emptied_under_a_transfer() {
    for config in engines(100) {
        let mut driver = Driver::new(config);
        driver.submit(staged(1, prompt(1, 8), 50.0));
        step(&mut driver);
        assert_eq!(driver.engine.clear(Running::Preempt), Err(ClearError::Busy(1)));
        driver.engine.release(RequestNo(1));
        assert_eq!(driver.engine.clear(Running::Preempt), Ok(()));
        // One that is staged by the very step that the emptying waits for keeps it from happening.
        driver.submit(staged(2, prompt(2, 8), 50.0));
        polled(&mut driver);
        let waits = driver.engine.clear(Running::Preempt);
        driver.now = driver.engine.wake_at().expect("there is a step");
        polled(&mut driver);
        assert_eq!(driver.counts().active, 2, "{waits:?}");
    }
}

#[test]
fn a_restart_forgets_what_was_in_transit() {
    for config in engines(100) {
        let mut driver = Driver::new(config);
        driver.submit(staged(1, prompt(1, 8), 50.0));
        step(&mut driver);
        driver.submit(taken(2, prompt(2, 8), 3));
        polled(&mut driver);
        assert_eq!(driver.engine.restart(), [RequestNo(2)]);
        assert!(!driver.engine.release(RequestNo(1)) && !driver.engine.received(RequestNo(2)));
        assert_eq!(driver.engine.staged().count(), 0);
        assert_eq!(driver.counts().active, 0);
    }
}

/// One that runs alone and cannot grow, because blocks are held by one that cannot run beside it, gives way. (SGLang does not
/// reserve so much: it leaves room for answers.)
#[test]
fn those_who_hold_blocks_without_running_do_not_hold_up_the_rest_for_ever() {
    let [config, _] = engines(6);
    let mut driver = Driver::new(EngineConfig {
        max_running: 1,
        ..config
    });
    driver.submit(taken(1, prompt(1, 7), 17));
    driver.submit(taken(2, prompt(2, 15), 9));
    polled(&mut driver);
    assert!(driver.engine.received(RequestNo(1)) && driver.engine.received(RequestNo(2)));
    driver.run();
    assert_eq!(driver.answers[&RequestNo(1)], undisturbed(&prompt(1, 7), 17));
    assert_eq!(driver.answers[&RequestNo(2)], undisturbed(&prompt(2, 15), 9));
}

#[test]
fn an_engine_without_transfers_says_nothing_of_them() {
    let [config, _] = engines(100);
    let mut engine = Engine::new(config).expect("the configuration is right");
    assert!(!engine.received(RequestNo(1)) && !engine.release(RequestNo(1)));
    assert!(!engine.transfer_failed(RequestNo(1), OnFailure::End));
}
