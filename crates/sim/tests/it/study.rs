//! Does a simulated fleet obey what is known without simulating it?

use std::sync::Arc;

use homing_domain::{BlockSize, Blocks, HashSeed, KeyHasher, Tokens};
use homing_engine::EngineConfig;
use homing_feed::FeedConfig;

use homing_profile::{Constant, Millis, Time, Timing};
use homing_router::{CacheView, RouterConfig};
use homing_sim::fleet::{Care, Disparity, Fault, FaultKind, FleetSetup, Links, RouterSetup, WorkerSetup, World};
use homing_sim::study::local::{Found, Search, Worth};
use homing_sim::study::{Counted, Mix, Reuse, Slo, Survey, Tally, Work};
use homing_trace::generate::{Documents, Kind, Length, Sessions};
use homing_trace::{Arrivals, ContentId, Prompt, Request, Segment, Spelling, TraceError, Workload};

const SIZE: BlockSize = BlockSize::new(16).expect("not zero");
const SLO: Slo = Slo {
    ttft: Millis(500.0),
    itl: Millis(50.0),
};

fn constant(prefill: f64) -> Timing {
    Timing::Constant(Constant {
        prefill: Millis(prefill),
        decode: Millis(1.0),
        kv_bytes_per_token: 1,
    })
}

/// Engines that are just as routers believe, with messages that take no time.
fn fleet(workers: u32, blocks: u32, timing: &Timing, policy: &str) -> FleetSetup {
    let mut config = RouterConfig::new(SIZE, KeyHasher::new(HashSeed::PUBLIC));
    config.start_within = Millis(1e9);
    FleetSetup {
        seed: 1,
        workers: WorkerSetup {
            count: workers,
            engine: EngineConfig::vllm(Blocks(blocks), timing.clone()),
            disparity: Disparity::NONE,
            ring: 64,
        },
        routers: RouterSetup {
            count: 1,
            config,
            policy: policy.to_owned(),
            timing: timing.clone(),
            view: CacheView::Events,
            feed: FeedConfig::default(),
            attempts: 3,
        },
        links: Links {
            hop: Millis::ZERO,
            event_lag: Millis::ZERO,
            poll: Millis(1_000.0),
        },
        split: None,
        faults: Vec::new(),
        spelling: Spelling::default(),
    }
}

fn work(setup: &FleetSetup) -> Work {
    Work {
        timing: setup.workers.engine.timing.clone(),
        overhead: Millis::ZERO,
        cache: Tokens(setup.cache_tokens() as u32),
        sequences: setup.workers.engine.max_running,
    }
}

type Requests = std::vec::IntoIter<Result<Request, TraceError>>;

fn generated(seed: u64, arrivals: Arrivals, kind: Kind, count: usize) -> Vec<Request> {
    let all = Workload::new(seed, arrivals, kind).requests().expect("it is possible");
    all.take(count).collect::<Result<_, _>>().expect("nothing is read")
}

fn traffic(requests: &[Request]) -> Requests {
    requests.iter().cloned().map(Ok).collect::<Vec<_>>().into_iter()
}

#[test]
fn one_worker_with_constant_prefills_waits_as_long_as_an_m_d_1_queue() {
    // One prompt at a time, one token each: the service takes 100 ms, and 60% of the time somebody is served.
    let (service, share) = (100.0, 0.6);
    let mut setup = fleet(1, 4_096, &constant(service), "round-robin");
    setup.workers.engine.max_running = 1;
    let arrivals = Arrivals::Poisson {
        per_second: share * 1e3 / service,
    };
    let kind = Kind::Unrelated {
        prompt: Length::always(24),
        answer: Length::always(1),
    };
    let requests = generated(7, arrivals, kind, 120_000);
    let mut tally = Tally::new(1, SLO, Counted::default());
    let world = World::new(setup, traffic(&requests)).expect("the fleet is possible");
    let outcome = world.run(&mut |record, _| tally.add(record)).expect("it runs");
    assert_eq!(outcome.violations, []);
    assert_eq!(tally.counts.completed, 120_000);
    let (waited, theory) = (tally.ttft.mean() - service, share * service / (2.0 * (1.0 - share)));
    assert!(
        (waited / theory - 1.0).abs() < 0.03,
        "{waited} ms, expected {theory} ms"
    );
}

#[test]
fn a_single_large_cache_gives_what_an_infinite_one_would() {
    // Documents that others ask about, far enough apart that nothing is computed twice at once.
    let arrivals = Arrivals::Constant { per_second: 2.0 };
    let kind = Kind::Documents(Documents {
        documents: 20,
        document: Length::about(300),
        ..Documents::default()
    });
    let requests = generated(3, arrivals, kind, 300);
    let setup = fleet(1, 60_000, &constant(5.0), "time");
    let work = work(&setup);
    let survey = Survey::of(|| Ok(traffic(&requests)), SIZE, &work).expect("it is read");
    let mix = Mix::copies(&survey, 1, 1);
    let open = || Ok(traffic(&requests));
    let reuse = Reuse::of((&survey, &work), mix, Counted::default(), open).expect("it is read");
    let yardstick = reuse.yardstick(&setup, &work);
    let mut tally = Tally::new(1, SLO, Counted::default());
    let world = World::new(setup, traffic(&requests)).expect("the fleet is possible");
    world.run(&mut |record, _| tally.add(record)).expect("it runs");
    let ladder = yardstick.ladder;
    assert!(ladder.infinite_cache > 0.3, "{ladder:?}");
    assert!(
        (ladder.infinite_cache - ladder.pooled_capacity).abs() < 1e-9,
        "{ladder:?}"
    );
    // A prompt that is there as a whole computes its last block again, where the analysis says its last token.
    assert!(
        (tally.cached_share() - ladder.infinite_cache).abs() < 0.01,
        "{} {ladder:?}",
        tally.cached_share()
    );
    assert!(reuse.working_set() <= survey.distinct_blocks);
}

#[test]
fn sessions_are_judged_by_when_their_turns_come() {
    // Four sessions begin at once, and each takes half a minute between its turns: all of them are worth keeping meanwhile.
    let sessions = Sessions {
        opening: Length::always(800),
        turns: Length::always(4),
        ..Sessions::agents()
    };
    let kind = Kind::Sessions(Sessions {
        pause: Millis(30_000.0),
        ..sessions
    });
    let requests = generated(2, Arrivals::Constant { per_second: 100.0 }, kind, 16);
    let setup = fleet(1, 60_000, &constant(40.0), "time");
    let work = work(&setup);
    let open = || Ok(traffic(&requests));
    let survey = Survey::of(open, SIZE, &work).expect("it is read");
    let mix = Mix::copies(&survey, 1, 1);
    let reuse = Reuse::of((&survey, &work), mix, Counted::default(), open).expect("it is read");
    assert!(
        reuse.working_set() > survey.distinct_blocks / 2,
        "{} of {} blocks",
        reuse.working_set(),
        survey.distinct_blocks
    );
    // As one after the other stands in the trace, they would all wait for each other.
    let yardstick = reuse.yardstick(&setup, &work);
    let mut tally = Tally::new(1, SLO, Counted::default());
    let world = World::new(setup, traffic(&requests)).expect("the fleet is possible");
    world.run(&mut |record, _| tally.add(record)).expect("it runs");
    let bound = yardstick.mean_ttft().expect("there are requests");
    assert_eq!(yardstick.shortest_first, None);
    assert!(bound.0 <= tally.ttft.mean(), "{bound} {}", tally.ttft.mean());
}

#[test]
fn copies_make_the_load_that_is_asked_for() {
    let arrivals = Arrivals::Poisson { per_second: 1.0 };
    let requests = generated(5, arrivals, Kind::Sessions(Sessions::chat()), 2_000);
    let setup = fleet(
        8,
        50_000,
        &Timing::Polynomial(homing_profile::Polynomial::default()),
        "time",
    );
    let work = work(&setup);
    let survey = Survey::of(|| Ok(traffic(&requests)), SIZE, &work).expect("it is read");
    for load in [0.3, 0.6, 0.85, 2.5] {
        let mix = Mix::load(&survey, 8, load).expect("there is such a load");
        assert!((mix.load / load - 1.0).abs() <= 0.021, "{load}: {mix:?}");
        let mixed: Vec<Request> = mix
            .traffic(|| Ok(traffic(&requests)))
            .and_then(Iterator::collect)
            .expect("it is read");
        assert_eq!(mixed.len() as u64, mix.requests);
        assert!(
            mixed
                .windows(2)
                .all(|pair| pair[0].arrival.earliest() <= pair[1].arrival.earliest())
        );
        let again = Survey::of(|| Ok(traffic(&mixed)), SIZE, &work).expect("it is read");
        let reached = again.work().0 / survey.period().0 / 8.0;
        assert!((reached / mix.load - 1.0).abs() < 0.01, "{reached} {mix:?}");
        // Thinned by whole sessions, it shares as much as before.
        let shares = (again.summary.cached_share(), survey.summary.cached_share());
        assert!((shares.0 - shares.1).abs() < 0.02, "{shares:?}");
    }
    assert!(Mix::load(&survey, 4_096, 1e6).is_err());
}

/// Prompts of one of two beginnings, close together.
fn tiny(seed: u64) -> Vec<Request> {
    let mut rng = homing_sim::Rng::new(seed);
    let mut at = 0.0;
    let request = |number: u64| {
        at += rng.below(60) as f64;
        let segments = [(rng.below(2), 320), (100 + number, 40)].map(|(content, length)| Segment {
            content: ContentId(content),
            length: Tokens(length),
        });
        Request::at(Time::from_millis(at), Prompt::fresh(segments), Tokens(2))
    };
    (0..6).map(request).collect()
}

fn found(setup: &FleetSetup, requests: &[Request], assigned: Option<&[u32]>) -> Found {
    let mut tally = Tally::new(setup.workers.count, SLO, Counted::default());
    let (mut workers, mut ttft) = (vec![0; requests.len()], vec![f32::INFINITY; requests.len()]);
    let mut world = World::new(setup.clone(), traffic(requests)).expect("the fleet is possible");
    if let Some(assigned) = assigned {
        world = world.with_assignment(Arc::from(assigned));
    }
    let outcome = world.run(&mut |record, _| {
        tally.add(record);
        workers[record.number as usize] = record.rank.expect("it went somewhere").worker.0;
        ttft[record.number as usize] = record.first_token.expect("it was answered").0 as f32;
    });
    assert_eq!(outcome.expect("it runs").violations, []);
    Found {
        workers,
        worth: Worth {
            good: 0,
            ttft_p99: 0.0,
            ttft_mean: tally.ttft.mean(),
        },
        ttft,
    }
}

#[test]
fn of_all_assignments_of_tiny_cases_none_beats_the_bound_no_policy_beats_the_best_and_the_search_finds_it() {
    let timing = Timing::Polynomial(homing_profile::Polynomial {
        base: 4.0,
        per_prefill_token: 0.3,
        ..homing_profile::Polynomial::default()
    });
    for seed in 0..6 {
        let requests = tiny(seed);
        let direct = fleet(2, 1_000, &timing, "direct");
        let all = (0..1_u32 << 6).map(|bits| {
            let workers: Vec<u32> = (0..6).map(|place| bits >> place & 1).collect();
            let found = found(&direct, &requests, Some(&workers));
            assert_eq!(found.workers, workers);
            found
        });
        let best = all
            .min_by(|one, other| one.worth.compare(&other.worth))
            .expect("there are some");
        let work = work(&direct);
        let survey = Survey::of(|| Ok(traffic(&requests)), SIZE, &work).expect("it is read");
        let (mix, open) = (Mix::copies(&survey, 2, 1), || Ok(traffic(&requests)));
        let reuse = Reuse::of((&survey, &work), mix, Counted::default(), open).expect("it is read");
        let bound = reuse.yardstick(&direct, &work).mean_ttft().expect("there are requests");
        assert!(bound.0 <= best.worth.ttft_mean + 1e-6, "{bound} {best:?}");
        assert!(bound.0 * 3.0 > best.worth.ttft_mean, "{bound} says nothing of {best:?}");
        for policy in [
            "time",
            "blocks",
            "round-robin",
            "least-loaded",
            "random",
            "p2c",
            "weighted",
        ] {
            let chosen = found(&fleet(2, 1_000, &timing, policy), &requests, None);
            assert!(
                chosen.worth.ttft_mean >= best.worth.ttft_mean - 1e-6,
                "{policy} {chosen:?} {best:?}"
            );
        }
        let mut search = Search::new(seed, 2, found(&direct, &requests, Some(&[0; 6])));
        for _ in 0..300 {
            let workers = search.next_try();
            search.tell(found(&direct, &requests, Some(&workers)));
        }
        assert!((search.best().worth.ttft_mean - best.worth.ttft_mean).abs() < 1e-9);
    }
}

#[test]
fn a_view_that_is_wrong_without_a_sign_is_repaired_because_it_promised_too_much() {
    // Documents that are asked about again and again, in a cache that holds half of them: what was evicted comes back.
    let kind = Kind::Documents(Documents {
        documents: 20,
        document: Length::always(300),
        in_prompt: Length::always(1),
        ..Documents::default()
    });
    let requests = generated(3, Arrivals::Constant { per_second: 4.0 }, kind, 800);
    let run = |misread: Millis, requests: &[Request]| {
        let mut setup = fleet(1, 250, &constant(5.0), "time");
        setup.workers.ring = 1 << 20;
        setup.faults.push(Fault {
            at: Time::ZERO,
            lasts: misread,
            kind: FaultKind::Misread {
                worker: 0,
                per_mille: 1_000,
            },
        });
        let mut overpromised = Vec::new();
        let world = World::new(setup, traffic(requests))
            .expect("it can be")
            .with_care(Care::Close);
        let outcome = world.run(&mut |record, _| {
            if record.cached < record.predicted_cached {
                overpromised.push(record.number);
            }
        });
        let outcome = outcome.expect("it goes on");
        assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
        assert!(outcome.compared > 0);
        (outcome.doubted, outcome.misled, overpromised)
    };
    let (doubted, misled, overpromised) = run(Millis::ZERO, &requests);
    assert_eq!((doubted, misled), (0, 0), "nothing is misread");
    assert!(
        overpromised.len() < 8,
        "few were evicted on their way: {overpromised:?}"
    );
    // Removals are overlooked for a while. Nothing that is heard later contradicts that.
    let (_, misled, _) = run(Millis(10_000.0), &requests[..45]);
    assert_eq!(misled, 1, "it is wrong by then");
    let (doubted, misled, overpromised) = run(Millis(10_000.0), &requests);
    assert_eq!((doubted, misled), (1, 0), "it was doubted, and then it was right");
    assert!(
        overpromised.len() >= 8 && overpromised.iter().all(|number| *number < 150),
        "{overpromised:?}"
    );
}
