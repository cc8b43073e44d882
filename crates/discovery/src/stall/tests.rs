//! Scenarios for one rank, and modelled engines in virtual time.

use std::collections::HashMap;

use homing_domain::{Blocks, Tokens};
use homing_engine::{Engine, EngineConfig, Outcome, Request};
use homing_profile::{Polynomial, Timing};

use super::*;

const TICK: Millis = Millis(25.0);

fn config() -> StallConfig {
    StallConfig {
        step_multiple: 5.0,
        suspect_after: Millis(150.0),
        eject_after: Millis(800.0),
    }
}

fn at(millis: f64) -> Time {
    Time::from_millis(millis)
}

fn streaming() -> ExpectedWork {
    ExpectedWork {
        streams: 3,
        step: Millis(10.0),
        calibration: Calibration::Done,
        ..ExpectedWork::default()
    }
}

/// A detector that saw tokens until `until`, with ticks as a gateway makes them.
fn running(until: f64, work: &ExpectedWork) -> StallDetector {
    let mut detector = StallDetector::new(config());
    let mut now = 0.0;
    while now <= until {
        detector.record_progress(at(now));
        assert_eq!(detector.tick(at(now), work, EjectionRoom::Free), None);
        now += TICK.0;
    }
    detector
}

/// Ticks until `until` and returns the changes with their times in milliseconds. `before` is called before each tick.
fn ticks(
    detector: &mut StallDetector,
    (from, until): (f64, f64),
    (work, room): (&ExpectedWork, EjectionRoom),
    mut before: impl FnMut(&mut StallDetector, f64),
) -> Vec<(f64, StallChange)> {
    let mut changes = Vec::new();
    let mut now = from;
    while now <= until {
        before(detector, now);
        let change = detector.tick(at(now), work, room);
        changes.extend(change.map(|change| (now, change)));
        now += TICK.0;
    }
    changes
}

#[test]
fn a_silent_process_is_suspected_at_once_and_ejected_within_a_second() {
    let work = streaming();
    let mut detector = running(1_000.0, &work);
    let mut asked = None;
    let changes = ticks(
        &mut detector,
        (1_050.0, 3_000.0),
        (&work, EjectionRoom::Free),
        |detector, now| {
            if detector.examination(at(now), &work) > Examination::None {
                detector.record_api_silence(at(*asked.get_or_insert(now)));
            }
        },
    );
    let [
        (suspected, StallChange::Suspected),
        (ejected, StallChange::Ejected(StallSignal::ApiSilent)),
    ] = changes[..]
    else {
        panic!("{changes:?}");
    };
    assert!(suspected <= 1_350.0 && ejected <= 1_850.0, "{suspected} {ejected}");
}

#[test]
fn counters_that_stand_still_confirm_a_stall_and_counters_that_move_refute_it() {
    for (moves, expected) in [(0, true), (1, false)] {
        let work = streaming();
        let mut detector = running(1_000.0, &work);
        let mut value = 7;
        let changes = ticks(
            &mut detector,
            (1_050.0, 3_000.0),
            (&work, EjectionRoom::Free),
            |detector, now| {
                if detector.examination(at(now), &work) == Examination::Counters {
                    value += moves;
                    detector.record_api_answer();
                    detector.record_counters(at(now), value);
                }
            },
        );
        let ejected = changes
            .iter()
            .find(|(_, change)| matches!(change, StallChange::Ejected(_)));
        assert_eq!(ejected.is_some(), expected, "{changes:?}");
        if let Some((when, change)) = ejected {
            assert!(*when <= 1_900.0, "{when}");
            assert_eq!(*change, StallChange::Ejected(StallSignal::CountersStill));
        }
    }
}

#[test]
fn a_slow_health_check_alone_proves_nothing() {
    let work = streaming();
    let mut detector = running(1_000.0, &work);
    let changes = ticks(
        &mut detector,
        (1_050.0, 60_000.0),
        (&work, EjectionRoom::Free),
        |detector, now| {
            detector.record_api_silence(at(1_000.0));
            detector.record_progress(at(now));
        },
    );
    assert_eq!(changes, []);
}

#[test]
fn an_idle_rank_is_never_suspected() {
    let idle = ExpectedWork::default();
    let mut detector = running(1_000.0, &streaming());
    let changes = ticks(
        &mut detector,
        (1_050.0, 600_000.0),
        (&idle, EjectionRoom::Free),
        |detector, _| {
            detector.record_api_silence(at(1_000.0));
        },
    );
    assert_eq!(changes, []);
}

#[test]
fn a_long_prompt_has_the_time_that_it_needs() {
    let work = ExpectedWork {
        waiting: 1,
        prefill: Millis(6_000.0),
        chunk: Millis(800.0),
        step: Millis(10.0),
        calibration: Calibration::Done,
        ..ExpectedWork::default()
    };
    let mut detector = StallDetector::new(config());
    let changes = ticks(
        &mut detector,
        (0.0, 11_000.0),
        (&work, EjectionRoom::Free),
        |detector, now| {
            detector.record_counters(at(now), 1);
        },
    );
    assert_eq!(changes, [], "not even twice its time");
    let changes = ticks(
        &mut detector,
        (11_050.0, 20_000.0),
        (&work, EjectionRoom::Free),
        |detector, now| {
            detector.record_counters(at(now), 1);
        },
    );
    assert!(
        matches!(changes[..], [(_, StallChange::Suspected), (_, StallChange::Ejected(_))]),
        "{changes:?}"
    );
    assert!(changes[1].0 >= 3.0 * 6_000.0, "{changes:?}");
}

#[test]
fn panic_withholds_an_ejection_until_others_are_well() {
    let work = streaming();
    let mut detector = running(1_000.0, &work);
    let still = |detector: &mut StallDetector, now: f64| detector.record_counters(at(now), 1);
    let changes = ticks(&mut detector, (1_050.0, 5_000.0), (&work, EjectionRoom::Panic), still);
    assert_eq!(changes[0].1, StallChange::Suspected);
    assert!(
        changes[1..]
            .iter()
            .all(|(_, change)| matches!(change, StallChange::Withheld(_)))
    );
    assert!(changes.len() > 10, "it is said again and again: {changes:?}");
    let changes = ticks(&mut detector, (5_050.0, 5_050.0), (&work, EjectionRoom::Free), still);
    assert!(matches!(changes[..], [(_, StallChange::Ejected(_))]), "{changes:?}");
}

#[test]
fn progress_takes_an_ejected_rank_back() {
    type Proof = fn(&mut StallDetector, f64);
    let token: Proof = |detector, now| detector.record_progress(at(now));
    let counters: Proof = |detector, now| detector.record_counters(at(now), 2);
    for proof in [token, counters] {
        let work = streaming();
        let mut detector = running(1_000.0, &work);
        ticks(
            &mut detector,
            (1_050.0, 5_000.0),
            (&work, EjectionRoom::Free),
            |detector, now| {
                detector.record_counters(at(now), 1);
            },
        );
        assert!(matches!(detector.state(), StallState::Ejected { .. }));
        // It keeps nothing that could show progress, and stays out.
        let idle = ExpectedWork::default();
        let room = EjectionRoom::Free;
        assert_eq!(ticks(&mut detector, (5_050.0, 60_000.0), (&idle, room), |_, _| ()), []);
        let changes = ticks(&mut detector, (60_050.0, 60_050.0), (&idle, room), proof);
        assert!(
            matches!(
                changes[..],
                [(
                    _,
                    StallChange::Recovered {
                        from: StallState::Ejected { .. }
                    }
                )]
            ),
            "{changes:?}"
        );
    }
}

#[test]
fn a_caller_that_was_stopped_itself_blames_no_engine() {
    let work = streaming();
    let mut detector = running(1_000.0, &work);
    assert_eq!(detector.tick(at(11_000.0), &work, EjectionRoom::Free), None);
    assert_eq!(detector.silence(at(11_000.0)), Millis::ZERO);
}

#[test]
fn requests_in_one_piece_need_more_than_silence() {
    let work = ExpectedWork {
        unary: 2,
        step: Millis(10.0),
        ..ExpectedWork::default()
    };
    let mut detector = StallDetector::new(config());
    let room = EjectionRoom::Free;
    let mut value = 0;
    let changes = ticks(&mut detector, (0.0, 60_000.0), (&work, room), |detector, now| {
        value += 1;
        detector.record_counters(at(now), value);
    });
    assert_eq!(changes, [], "it computes");
    let changes = ticks(&mut detector, (60_050.0, 66_000.0), (&work, room), |detector, _| {
        detector.record_api_silence(at(60_050.0));
    });
    assert!(
        matches!(changes[..], [(_, StallChange::Suspected), (_, StallChange::Ejected(_))]),
        "{changes:?}"
    );
}

/// An engine in virtual time, and what a gateway sees of it.
struct Simulated {
    engine: Engine,
    estimator: WorkEstimator,
    detector: StallDetector,
    steps: ObservedSteps,
    waiting: HashMap<u64, WaitingId>,
    /// When each stream got its last token.
    streams: HashMap<u64, Time>,
    tokens: u64,
    counters_read: Time,
    now: Time,
    /// From when the engine core stops, if it does.
    stops: Option<Time>,
    changes: Vec<(Time, StallChange)>,
    next: u64,
}

impl Simulated {
    fn new(config_of_engine: EngineConfig, timing: Timing, mixing: StepMixing) -> Self {
        Self {
            engine: Engine::new(config_of_engine).unwrap(),
            estimator: WorkEstimator::new(timing, mixing),
            detector: StallDetector::new(config()),
            steps: ObservedSteps::default(),
            waiting: HashMap::new(),
            streams: HashMap::new(),
            tokens: 0,
            counters_read: Time::ZERO,
            now: Time::ZERO,
            stops: None,
            changes: Vec::new(),
            next: 0,
        }
    }

    fn send(&mut self, prompt: u32, output: u32) {
        self.next += 1;
        let id = self.next;
        let tokens: Vec<u32> = (0..prompt)
            .map(|place| place.wrapping_mul(31).wrapping_add(id as u32) % 30_000)
            .collect();
        self.engine.submit(Request::plain(id, tokens, output)).unwrap();
        let waiting = self.estimator.begin_request(self.now, Tokens(prompt), Tokens(0));
        self.waiting.insert(id, waiting);
    }

    /// Lets time pass until the next tick of the gateway.
    fn tick(&mut self) {
        let until = self.now + TICK;
        let mut outcome = Outcome::default();
        let is_stopped = self.stops.is_some_and(|stops| self.now >= stops);
        while !is_stopped && self.engine.poll(until, &mut outcome) {
            for output in &outcome.tokens {
                let id = output.request.0;
                self.tokens += 1;
                self.detector.record_progress(outcome.at);
                if let Some(waiting) = self.waiting.remove(&id) {
                    self.estimator.record_first_token(outcome.at, waiting);
                } else {
                    let gap = outcome.at.since(self.streams[&id]);
                    self.steps = self.steps.with(gap);
                }
                self.streams.insert(id, outcome.at);
            }
            for finished in &outcome.finished {
                self.streams.remove(&finished.request.0);
            }
        }
        self.now = until;
        let streams = self.streams.len() as u32;
        let work = self.estimator.work(self.steps, streams, 0);
        if self.detector.examination(self.now, &work) == Examination::Counters
            && self.now.since(self.counters_read) >= Millis(150.0)
        {
            self.counters_read = self.now;
            // Counters of tokens move with tokens only, as those of vLLM do; the use of the cache moves with each chunk.
            let used = self.engine.load(homing_domain::DpRank(0)).unwrap().blocks.active;
            self.detector.record_api_answer();
            self.detector
                .record_counters(self.now, self.tokens << 32 | u64::from(used));
        }
        let change = self.detector.tick(self.now, &work, EjectionRoom::Free);
        self.changes.extend(change.map(|change| (self.now, change)));
    }

    fn ejections(&self) -> Vec<Time> {
        let ejected = self
            .changes
            .iter()
            .filter(|(_, change)| matches!(change, StallChange::Ejected(_)));
        ejected.map(|(at, _)| *at).collect()
    }
}

/// Requests come at random times, in virtual time, at this share of what the engine can do.
fn load(simulated: &mut Simulated, share: f64, requests: &[(u32, u32, f64)], until: Time, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mean: f64 = requests.iter().map(|(_, _, service)| service).sum::<f64>() / requests.len() as f64;
    let mut next = simulated.now;
    while simulated.now < until {
        while next <= simulated.now {
            let (prompt, output, _) = requests[random.usize(..requests.len())];
            simulated.send(prompt, output);
            next = next + Millis(-(1.0 - random.f64()).ln() * mean / share);
        }
        simulated.tick();
    }
}

fn engines() -> [(&'static str, EngineConfig, StepMixing, Timing); 2] {
    let timing = Timing::Polynomial(Polynomial::default());
    [
        (
            "vllm",
            EngineConfig::vllm(Blocks(60_000), timing.clone()),
            StepMixing::ChunkWithStreams,
            timing.clone(),
        ),
        (
            "sglang",
            EngineConfig::sglang(Blocks(960_000), timing.clone()),
            StepMixing::PromptsFirst,
            timing,
        ),
    ]
}

/// How long requests of these sizes keep an engine busy, in milliseconds.
fn service(timing: &Timing, prompt: u32, output: u32) -> f64 {
    // Several decode together: a token costs each of them a part of a step.
    timing.prefill(Tokens(prompt), Tokens(0)).0 + f64::from(output) * 2.0
}

#[test]
fn no_healthy_engine_is_ejected_at_95_percent_load_with_prompts_of_100_000_tokens() {
    for (name, engine, mixing, timing) in engines() {
        let sized = |prompt, output| (prompt, output, service(&timing, prompt, output));
        let requests = [sized(100_000, 100), sized(100_000, 20), sized(500, 200)];
        let mut simulated = Simulated::new(engine, timing.clone(), mixing);
        load(&mut simulated, 0.95, &requests, at(600_000.0), 1);
        assert_eq!(simulated.ejections(), [], "{name}: {:?}", simulated.changes);
        assert!(simulated.next > 50, "{name}: {}", simulated.next);
    }
}

#[test]
fn a_profile_that_is_ten_times_too_fast_ejects_no_healthy_engine() {
    for (name, engine, mixing, _) in engines() {
        let fast = Polynomial {
            base: 0.6,
            per_prefill_token: 0.0023,
            per_prefill_pair: 7.6e-8,
            ..Polynomial::default()
        };
        let fast = Timing::Polynomial(fast);
        let requests = [(8_000, 100, 600.0), (500, 200, 400.0), (30_000, 50, 1_600.0)];
        let mut simulated = Simulated::new(engine, fast, mixing);
        load(&mut simulated, 0.9, &requests, at(600_000.0), 11);
        assert_eq!(simulated.ejections(), [], "{name}: {:?}", simulated.changes);
    }
}

#[test]
fn an_engine_core_that_stops_at_half_load_is_ejected_within_a_second() {
    for (name, engine, mixing, timing) in engines() {
        for seed in 0..20 {
            let sized = |prompt, output| (prompt, output, service(&timing, prompt, output));
            let requests = [sized(2_000, 150), sized(500, 100), sized(1_000, 300)];
            let mut simulated = Simulated::new(engine.clone(), timing.clone(), mixing);
            load(&mut simulated, 0.5, &requests, at(30_000.0), seed);
            while simulated.streams.is_empty() {
                let until = simulated.now + Millis(100.0);
                load(&mut simulated, 0.5, &requests, until, seed + 1_000);
            }
            assert_eq!(simulated.ejections(), [], "{name}, seed {seed}");
            let stops = simulated.now;
            simulated.stops = Some(stops);
            while simulated.ejections().is_empty() && simulated.now < stops + Millis(10_000.0) {
                simulated.tick();
            }
            let after: Vec<f64> = simulated.ejections().iter().map(|at| at.since(stops).0).collect();
            assert!(
                after.len() == 1 && after[0] <= 1_000.0,
                "{name}, seed {seed}: {after:?}"
            );
        }
    }
}
