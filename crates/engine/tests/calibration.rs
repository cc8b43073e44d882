//! Do predictions become right where the profile is wrong? Engines in virtual time, a router that decides by the policy `time`
//! and knows of them only what a gateway would see: first tokens, further tokens and ends.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use homing_domain::{BlockSize, Blocks, HashSeed, KeyHasher, ModelName, Prompt, RankId, RequestId, Tokens};
use homing_engine::{Engine, EngineConfig, Outcome, Request};
use homing_load::{Booking, End, Load, LoadConfig, Place, PromptWork, RankSpec, Ticket};
use homing_profile::{Millis, Polynomial, Time, Timing};
use homing_scheduler::calibration::{Calibration, Outcome as Came};
use homing_scheduler::policy::by_name;
use homing_scheduler::{Ask, Draw, Fleet, Overlap, Overrides, Phase, RankFacts, Room, Scheduler, View, Wanted};

const RANKS: u32 = 8;
const SLOW: usize = 3;
const BLOCK: u32 = 16;

/// What a world is made of.
#[derive(Clone, Copy, Debug)]
struct World {
    seed: u64,
    /// Requests in a second, of the whole fleet.
    rate: f64,
    /// How many times as long as in truth the router's profile says that everything takes.
    profile: f64,
    requests: u32,
}

/// What came of it.
#[derive(Debug)]
struct Came500 {
    /// Relative errors of predicted times to first tokens after 500 requests, with the rank.
    errors: Vec<(usize, f64)>,
    /// The same without any correction: what the profile alone would have said of an idle rank.
    requests: [u32; RANKS as usize],
    busy: f64,
}

impl Came500 {
    fn median(&self, of: impl Fn(usize) -> bool) -> f64 {
        let mut errors: Vec<f64> = self.errors.iter().filter(|(rank, _)| of(*rank)).map(|(_, error)| *error).collect();
        errors.sort_by(f64::total_cmp);
        errors.get(errors.len() / 2).copied().unwrap_or(0.0)
    }
}

struct Live {
    ticket: Ticket,
    place: Place,
    asked: Time,
    predicted: Millis,
    generated: u32,
    number: u32,
}

struct Router {
    load: Load,
    fleet: Fleet,
    scheduler: Scheduler,
    room: Room,
    model: ModelName,
    live: HashMap<u64, Live>,
    calibration: Calibration,
    came: Came500,
}

fn timing(times: f64) -> Timing {
    let truth = Polynomial::default();
    Timing::Polynomial(Polynomial {
        base: truth.base * times,
        per_prefill_token: truth.per_prefill_token * times,
        per_prefill_pair: truth.per_prefill_pair * times,
        per_sequence: truth.per_sequence * times,
        per_context_token: truth.per_context_token * times,
        ..truth
    })
}

impl Router {
    fn new(world: World) -> Self {
        let mut load = Load::new(LoadConfig::new(BlockSize::new(BLOCK).unwrap()));
        let mut fleet = Fleet::default();
        let model = ModelName::from("m");
        for worker in 0..RANKS {
            let mut spec = RankSpec::new(RankId::new(worker, 0), timing(world.profile));
            spec.capacity = Some(20_000);
            spec.max_sequences = Some(256);
            let place = load.add_rank(spec, Time::ZERO).unwrap();
            fleet.set(place, RankFacts::new(RankId::new(worker, 0), model.clone()));
        }
        Self {
            load,
            fleet,
            scheduler: Scheduler::new(by_name("time").unwrap()),
            room: Room::default(),
            model,
            live: HashMap::new(),
            calibration: Calibration::default(),
            came: Came500 {
                errors: Vec::new(),
                requests: [0; RANKS as usize],
                busy: 0.0,
            },
        }
    }

    fn ask(&mut self, number: u32, tokens: &[u32], output: u32, now: Time, draw: u64) -> Place {
        let mut keys = Vec::new();
        KeyHasher::new(HashSeed::PUBLIC).keys(&Prompt::text(tokens, BlockSize::new(BLOCK).unwrap()), &mut keys);
        let overlap = Overlap::default();
        let wanted = Wanted::default();
        let ask = Ask {
            model: &self.model,
            phase: Phase::Whole,
            prompt: Tokens(tokens.len() as u32),
            keys: &keys,
            expected_output: Tokens(output),
            adapter: None,
            session: None,
            wanted: &wanted,
            overrides: Overrides::default(),
        };
        let view = View {
            now,
            fleet: &self.fleet,
            load: &self.load,
            overlap: &overlap,
        };
        let decision = self.scheduler.decide(&view, &ask, Draw(draw), &mut self.room).unwrap();
        let place = decision.chosen.place;
        let booking = Booking {
            id: RequestId::new(number.to_string()),
            place,
            prompt: Tokens(tokens.len() as u32),
            cached: Tokens(0),
            keys: Arc::from(keys.as_slice()),
            expected_output: Tokens(output),
            adapter: None,
            work: PromptWork::Counts,
        };
        let ticket = self.load.book(booking, now).unwrap();
        self.came.requests[place.index()] += 1;
        self.came.busy += self.load.utilisation(now);
        let live = Live {
            ticket,
            place,
            asked: now,
            predicted: decision.chosen.first_token,
            generated: 0,
            number,
        };
        self.live.insert(u64::from(number), live);
        place
    }

    fn hear(&mut self, outcome: &Outcome) {
        for output in &outcome.tokens {
            let Some(live) = self.live.get_mut(&output.request.0) else { continue };
            live.generated += 1;
            self.load.output(live.ticket, Tokens(live.generated), outcome.at);
            if live.generated > 1 {
                continue;
            }
            let came = Came {
                predicted_first_token: live.predicted,
                first_token: outcome.at.since(live.asked),
                predicted_cached: Tokens(0),
                cached: None,
            };
            self.calibration.saw(live.place, &came);
            if live.number >= 500 {
                let error = (came.predicted_first_token.0 - came.first_token.0).abs() / came.first_token.0;
                if std::env::var("DUMP").is_ok() { let r=self.load.rank(live.place).unwrap(); println!("D {} {:.1} {:.1} f {:.2} r {:.2} pend {} dec {}", live.place.0, live.predicted.0, came.first_token.0, r.factor(), r.present_factor()/r.factor(), r.pending(), r.decoding()); }
                self.came.errors.push((live.place.index(), error));
            }
        }
        for finished in &outcome.finished {
            if let Some(live) = self.live.remove(&finished.request.0) {
                self.load.end(live.ticket, End::Finished, outcome.at);
            }
        }
    }
}

fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Draws of a seed.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `least` to `most`, small ones more often than large ones.
    fn size(&mut self, least: f64, most: f64) -> u32 {
        (least * (most / least).powf(self.share())) as u32
    }
}

fn run(world: World) -> Came500 {
    let mut rng = Rng(world.seed);
    let mut engines: Vec<Engine> = (0..RANKS)
        .map(|_| Engine::new(EngineConfig::vllm(Blocks(20_000), timing(1.0))).unwrap())
        .collect();
    engines[SLOW].set_slowdown(2.0);
    let mut router = Router::new(world);
    let mut outcome = Outcome::default();
    let (mut arrival, mut number, mut ticked) = (Time::ZERO, 0, Time::ZERO);
    // When each engine is to be looked at, the earliest first.
    let mut wakes: BTreeMap<(Time, usize), ()> = BTreeMap::new();
    while number < world.requests {
        let engine = wakes.first_key_value().map(|(key, ())| *key);
        match engine.filter(|(at, _)| *at < arrival) {
            Some((now, at)) => {
                wakes.pop_first();
                while engines[at].poll(now, &mut outcome) {
                    router.hear(&outcome);
                }
                if let Some(next) = engines[at].wake_at() {
                    wakes.insert((next, at), ());
                }
            }
            None => {
                let now = arrival;
                if now.since(ticked).0 >= 1_000.0 {
                    router.load.tick(now);
                    ticked = now;
                }
                let tokens: Vec<u32> = (0..rng.size(100.0, 8_000.0)).map(|at| mix(rng.0 ^ u64::from(at)) as u32 % 50_000).collect();
                let output = rng.size(20.0, 500.0);
                let place = router.ask(number, &tokens, output, now, rng.next());
                let engine = &mut engines[place.index()];
                engine.submit(Request::plain(u64::from(number), tokens, output)).unwrap();
                while engine.poll(now, &mut outcome) {
                    router.hear(&outcome);
                }
                if let Some(next) = engine.wake_at() {
                    wakes.insert((next, place.index()), ());
                }
                number += 1;
                arrival = arrival + Millis(-(1.0 - rng.share()).ln() * 1_000.0 / world.rate);
            }
        }
    }
    router.came.busy /= f64::from(world.requests);
    router.came
}

#[test]
fn with_a_wrong_profile_and_a_slow_rank_predictions_are_right_after_500_requests() {
    let mut wrong = Vec::new();
    for rate in [std::env::var("RATE").map_or(120.0,|r| r.parse().unwrap())] {
        for profile in [0.5,1.0, 2.0] {
            for seed in 1..=3 {
                let world = World {
                    seed,
                    rate,
                    profile,
                    requests: 2_500,
                };
                let came = run(world);
                let (all, slow) = (came.median(|_| true), came.median(|rank| rank == SLOW));
                println!("{world:?}: {all:.3}, slow {slow:.3} ({} requests) busy {:.2}", came.requests[SLOW], came.busy);
                if all > 0.15 {
                    wrong.push((world, all));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
