//! Do predictions become right where the profile is wrong? Engines in virtual time, and a router that decides by the policy `time`
//! and knows of them only what a gateway would: their cache events, first tokens, further tokens and ends.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use homing_domain::{BlockKey, BlockSize, Blocks, HashSeed, KeyHasher, ModelName, Prompt, RankId, RequestId, Tokens};
use homing_engine::{Engine, EngineConfig, Outcome, Request};
use homing_index::{Answer, Applied, Copies, Index, IndexConfig, Slot};
use homing_load::{Booking, End, Load, LoadConfig, Place, PromptWork, RankSpec, Ticket};
use homing_profile::{Millis, Polynomial, Time, Timing};
use homing_scheduler::calibration::{Calibration, Outcome as Came, Record};
use homing_scheduler::policy::by_name;
use homing_scheduler::{Ask, Draw, Fleet, Overlap, Overrides, Phase, RankFacts, Room, Scheduler, View, Wanted};

const RANKS: u32 = 8;
/// The rank that is slowed down to half its speed.
const SLOW: usize = 3;
const BLOCK: BlockSize = BlockSize::new(16).expect("not zero");
/// Requests that are learnt from before errors count.
const LEARNT: u32 = 500;
const REQUESTS: u32 = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Vllm,
    Sglang,
}

/// What a world is made of.
#[derive(Clone, Copy, Debug)]
struct World {
    style: Style,
    policy: &'static str,
    seed: u64,
    /// Requests in a second, of the whole fleet.
    rate: f64,
    /// How many times as long as in truth everything takes by the router's profile.
    profile: f64,
}

/// How a fleet went.
struct Went {
    /// Relative errors of predicted times to first tokens, with the rank.
    errors: Vec<(usize, f64)>,
    /// Those of what the profile says without any learning of a rank that has nothing else to do.
    unlearnt: Vec<f64>,
    calibration: Calibration,
}

fn median(mut errors: Vec<f64>) -> f64 {
    errors.sort_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied().unwrap_or(f64::NAN)
}

struct Live {
    ticket: Ticket,
    place: Place,
    asked: Time,
    predicted: Millis,
    cached: Tokens,
    unlearnt: Millis,
    generated: u32,
    number: u32,
}

/// What stands in for the router: index, load and scheduler, driven as a router drives them.
struct Router {
    profile: Timing,
    load: Load,
    fleet: Fleet,
    index: Index,
    slots: Vec<Slot>,
    scheduler: Scheduler,
    room: Room,
    answer: Answer,
    overlap: Overlap,
    model: ModelName,
    live: HashMap<u64, Live>,
    went: Went,
}

/// The true times, or so many times as much.
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
        let mut load = Load::new(LoadConfig::new(BLOCK));
        let mut fleet = Fleet::default();
        let mut index = Index::new(IndexConfig::new(KeyHasher::new(HashSeed::PUBLIC)));
        let model = ModelName::from("m");
        let mut slots = Vec::new();
        for worker in 0..RANKS {
            let rank = RankId::new(worker, 0);
            let mut spec = RankSpec::new(rank, timing(world.profile));
            (spec.capacity, spec.max_sequences) = (Some(20_000), Some(256));
            let place = load.add_rank(spec, Time::ZERO).expect("there is room");
            fleet.set(place, RankFacts::new(rank, model.clone()));
            slots.push(index.add_rank(rank, Copies::Counted).expect("there is room"));
        }
        Self {
            profile: timing(world.profile),
            load,
            fleet,
            index,
            slots,
            scheduler: Scheduler::new(by_name(world.policy).expect("it exists")),
            room: Room::default(),
            answer: Answer::default(),
            overlap: Overlap::default(),
            model,
            live: HashMap::new(),
            went: Went {
                errors: Vec::new(),
                unlearnt: Vec::new(),
                calibration: Calibration::default(),
            },
        }
    }

    fn look_up(&mut self, keys: &[BlockKey]) {
        self.index.reader().lookup(keys, &mut self.answer);
        self.overlap.clear();
        let slots = &self.slots;
        let place_of = |slot| slots.iter().position(|known| known.index() == slot);
        self.overlap
            .take_answer(&self.answer, |slot| place_of(slot).map(|at| Place(at as u32)));
        self.overlap.take_booked(&self.load, keys);
    }

    fn ask(&mut self, number: u32, tokens: &[u32], output: u32, now: Time, draw: u64) -> Place {
        let mut keys = Vec::new();
        KeyHasher::new(HashSeed::PUBLIC).keys(&Prompt::text(tokens, BLOCK), &mut keys);
        self.look_up(&keys);
        let prompt = Tokens(tokens.len() as u32);
        let ask = Ask {
            model: &self.model,
            phase: Phase::Whole,
            prompt,
            keys: &keys,
            expected_output: Tokens(output),
            adapter: None,
            session: None,
            wanted: &Wanted::default(),
            overrides: Overrides::default(),
        };
        let view = View {
            now,
            fleet: &self.fleet,
            load: &self.load,
            overlap: &self.overlap,
        };
        let decision = self
            .scheduler
            .decide(&view, &ask, Draw(draw), &mut self.room)
            .expect("all are eligible");
        let place = decision.chosen.place;
        let spared = decision.chosen.depths.spared() * BLOCK.get();
        let cached = Tokens(spared.min(prompt.0 - 1));
        let booking = Booking {
            id: RequestId::new(number.to_string()),
            place,
            prompt,
            cached,
            keys: Arc::from(keys.as_slice()),
            expected_output: Tokens(output),
            adapter: None,
            work: PromptWork::Counts,
        };
        self.scheduler.commit(&ask, place, now);
        let live = Live {
            ticket: self.load.book(booking, now).expect("there is room"),
            place,
            asked: now,
            predicted: decision.chosen.first_token,
            cached,
            unlearnt: self.profile.prefill(Tokens(prompt.0 - cached.0), cached),
            generated: 0,
            number,
        };
        self.live.insert(u64::from(number), live);
        place
    }

    fn hear(&mut self, at: usize, outcome: &Outcome) {
        for change in outcome.events.iter().flat_map(|events| &events.batch.changes) {
            if let Applied::Cleared(slot) = self.index.apply(self.slots[at], change).expect("the slot lives") {
                self.slots[at] = slot;
            }
        }
        for output in &outcome.tokens {
            let Some(live) = self.live.get_mut(&output.request.0) else {
                continue;
            };
            live.generated += 1;
            self.load.output(live.ticket, Tokens(live.generated), outcome.at);
            if live.generated > 1 {
                continue;
            }
            let came = Came {
                predicted_first_token: live.predicted,
                first_token: outcome.at.since(live.asked),
                predicted_cached: live.cached,
                cached: None,
            };
            self.went.calibration.saw(live.place, &came);
            if live.number >= LEARNT {
                let error = |predicted: Millis| (predicted.0 - came.first_token.0).abs() / came.first_token.0;
                self.went.errors.push((live.place.index(), error(live.predicted)));
                self.went.unlearnt.push(error(live.unlearnt));
            }
        }
        for finished in &outcome.finished {
            if let Some(live) = self.live.remove(&finished.request.0) {
                self.load.end(live.ticket, End::Finished, outcome.at);
            }
        }
    }
}

/// Draws of a seed.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Draw(self.0).number(0)
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `least` to `most`, small ones more often than large ones.
    fn size(&mut self, least: f64, most: f64) -> u32 {
        (least * (most / least).powf(self.share())) as u32
    }

    /// Every second prompt begins with one of ten texts of 1,000 tokens.
    fn prompt(&mut self) -> Vec<u32> {
        let shared = match self.next() % 20 {
            system if system < 10 => (0..1_000).map(|at| (system * 1_000 + at) as u32).collect(),
            _ => Vec::new(),
        };
        let mut prompt: Vec<u32> = shared;
        let own = self.size(100.0, 8_000.0);
        prompt.extend((0..own).map(|_| 20_000 + (self.next() % 100_000) as u32));
        prompt
    }
}

fn engine(style: Style) -> Engine {
    let config = match style {
        Style::Vllm => EngineConfig::vllm(Blocks(20_000), timing(1.0)),
        Style::Sglang => EngineConfig {
            block_size: BLOCK,
            blocks: Blocks(20_000),
            ..EngineConfig::sglang(Blocks(320_000), timing(1.0))
        },
    };
    Engine::new(config).expect("the configuration is right")
}

fn run(world: World) -> Went {
    let mut rng = Rng(world.seed);
    let mut engines: Vec<Engine> = (0..RANKS).map(|_| engine(world.style)).collect();
    engines[SLOW].set_slowdown(2.0);
    let mut router = Router::new(world);
    let mut outcome = Outcome::default();
    let (mut arrival, mut number, mut ticked) = (Time::ZERO, 0, Time::ZERO);
    let mut wakes: BTreeSet<(Time, usize)> = BTreeSet::new();
    while number < REQUESTS {
        let wake = wakes.first().copied().filter(|(at, _)| *at < arrival);
        let (now, at) = if let Some(wake) = wake {
            wakes.remove(&wake);
            wake
        } else {
            if arrival.since(ticked).0 >= 1_000.0 {
                router.load.tick(arrival);
                ticked = arrival;
            }
            let now = arrival;
            let (tokens, output) = (rng.prompt(), rng.size(20.0, 500.0));
            let place = router.ask(number, &tokens, output, now, rng.next());
            let request = Request::plain(u64::from(number), tokens, output);
            engines[place.index()].submit(request).expect("the request is right");
            number += 1;
            arrival = arrival + Millis(-(1.0 - rng.share()).ln() * 1_000.0 / world.rate);
            (now, place.index())
        };
        while engines[at].poll(now, &mut outcome) {
            router.hear(at, &outcome);
        }
        wakes.extend(engines[at].wake_at().map(|next| (next, at)));
    }
    router.went
}

/// The median error of all ranks, and that of the slow one, or why it would be no feat.
fn errors(world: World) -> (f64, f64) {
    let went = run(world);
    let error = median(went.errors.iter().map(|(_, error)| *error).collect());
    let slow = went.errors.iter().filter(|(rank, _)| *rank == SLOW);
    let slow: Vec<f64> = slow.map(|(_, error)| *error).collect();
    let (count, slow) = (slow.len(), median(slow));
    let unlearnt = median(went.unlearnt);
    println!("{world:?}: {error:.3}, unlearnt {unlearnt:.3}, slow rank {slow:.3} of {count}");
    let record = went.calibration.of(Place(0)).and_then(Record::median_error);
    assert!(record.is_some_and(|error| error < 0.2), "{world:?}: {record:?}");
    assert!(unlearnt > 0.3, "it would be no feat: {world:?}");
    (error, slow)
}

const PROFILES_AND_SEEDS: [(f64, u64); 6] = [(0.5, 1), (2.0, 1), (0.5, 2), (2.0, 2), (0.5, 3), (2.0, 3)];

#[test]
fn with_a_wrong_profile_and_a_slow_rank_predictions_are_right_after_500_requests() {
    let mut wrong = Vec::new();
    for style in [Style::Vllm, Style::Sglang] {
        // From a fleet that is mostly idle to one whose ranks compute prompts two thirds of the time and always decode.
        for rate in [0.5, 20.0, 60.0, 90.0] {
            for (profile, seed) in PROFILES_AND_SEEDS {
                let policy = "time";
                let world = World {
                    style,
                    policy,
                    seed,
                    rate,
                    profile,
                };
                let (error, _) = errors(world);
                if error > 0.15 {
                    wrong.push((world, error));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The policy `time` leaves a slow rank alone where it can. Others do not, and predictions are made for them too.
#[test]
fn a_slow_rank_that_gets_its_share_is_predicted_as_well() {
    let mut wrong = Vec::new();
    for style in [Style::Vllm, Style::Sglang] {
        for rate in [0.5, 20.0, 50.0] {
            for (profile, seed) in PROFILES_AND_SEEDS {
                let policy = "round-robin";
                let world = World {
                    style,
                    policy,
                    seed,
                    rate,
                    profile,
                };
                let (error, slow) = errors(world);
                if error > 0.15 || slow > 0.15 {
                    wrong.push((world, error, slow));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
