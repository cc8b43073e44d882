//! Our side: a fleet at work, and requests to place.

use std::sync::Arc;
use std::sync::Mutex;

use homing_domain::{
    BlockKey, BlockSize, ContentHash, Extras, HashSeed, KeyHasher, Label, ModelName, Prompt, RankId, RequestId, Stored,
    StoredBlock, Tokens,
};
use homing_index::{Answer, Copies, Index, IndexConfig, Reader};
use homing_load::{Booking, End, Load, LoadConfig, Place, PromptWork, RankSpec};
use homing_profile::{Polynomial, Time, Timing};
use homing_scheduler::policy::by_name;
use homing_scheduler::{
    Ask, Draw, Fleet, Knowledge, Overlap, Overrides, Phase, RankFacts, Room, Scheduler, View, Wanted,
};

use super::traffic::{BLOCK_TOKENS, Traffic};

/// What one decision changes and reads, behind one lock in a router.
pub struct State {
    load: Load,
    fleet: Fleet,
    scheduler: Scheduler,
    room: Room,
    overlap: Overlap,
    now: u64,
    model: ModelName,
    wanted: Wanted,
}

/// One request.
pub struct Request {
    id: RequestId,
    tokens: u32,
    keys: Arc<[BlockKey]>,
    overlap: Overlap,
}

/// A fleet at work.
pub struct Ours {
    /// Behind the lock.
    pub state: Mutex<State>,
    _index: Index,
    reader: Reader,
    hasher: KeyHasher,
    places: Vec<Option<Place>>,
}

/// What a thread keeps to itself.
pub struct Side {
    reader: Reader,
    answer: Answer,
    keys: Vec<BlockKey>,
}

impl Ours {
    /// Everything that the traffic says of the fleet, booked and stored.
    pub fn new(traffic: &Traffic, policy: &str) -> Self {
        let size = BlockSize::new(BLOCK_TOKENS as u32).expect("not zero");
        let hasher = KeyHasher::new(HashSeed::PUBLIC);
        let model = ModelName::from("model");
        let mut load = Load::new(LoadConfig::new(size));
        let mut fleet = Fleet::default();
        let mut index = Index::new(IndexConfig {
            max_ranks: 8_192,
            ..IndexConfig::new(hasher)
        });
        let mut slots = Vec::new();
        for worker in 0..traffic.ranks as u32 {
            let mut spec = RankSpec::new(RankId::new(worker, 0), Timing::Polynomial(Polynomial::default()));
            (spec.capacity, spec.max_sequences) = (Some(32_768), Some(256));
            let place = load.add_rank(spec, Time::ZERO).expect("there is room");
            let mut facts = RankFacts::new(RankId::new(worker, 0), model.clone());
            facts.knowledge = Knowledge::Exact;
            fleet.set(place, facts);
            slots.push(index.add_rank(RankId::new(worker, 0), Copies::Counted).expect("there is room"));
        }
        for (rank, prompt) in &traffic.stored {
            let contents = traffic.prompts[*prompt].chunks_exact(BLOCK_TOKENS);
            let mut chain = Vec::new();
            hasher.keys(&Prompt::text(&traffic.prompts[*prompt], size), &mut chain);
            let blocks = contents.zip(&chain).map(|(tokens, key)| StoredBlock {
                label: Label::new(key.0),
                content: ContentHash(hasher.content(tokens, &Extras::default()).0),
            });
            let stored = Stored::plain(None, blocks.collect());
            assert!(index.store(slots[*rank], &stored).is_ok(), "a live slot stores");
        }
        while index.maintain(1_000).is_pending() {}
        let mut places = vec![None; slots.iter().map(|slot| slot.index() + 1).max().unwrap_or(0)];
        for (rank, slot) in slots.iter().enumerate() {
            places[slot.index()] = Some(Place(rank as u32));
        }
        let state = State {
            load,
            fleet,
            scheduler: Scheduler::new(by_name(policy).expect("it exists")),
            room: Room::default(),
            overlap: Overlap::default(),
            now: 1_000_000_000,
            model,
            wanted: Wanted::default(),
        };
        let ours = Self {
            state: Mutex::new(state),
            reader: index.reader(),
            _index: index,
            hasher,
            places,
        };
        ours.fill(traffic);
        ours
    }

    fn fill(&self, traffic: &Traffic) {
        let state = &mut *self.state.lock().expect("nobody panicked");
        for (at, live) in traffic.live.iter().enumerate() {
            let mut keys = Vec::new();
            let size = BlockSize::new(BLOCK_TOKENS as u32).expect("not zero");
            self.hasher.keys(&Prompt::text(&traffic.prompts[live.prompt], size), &mut keys);
            let tokens = traffic.prompts[live.prompt].len() as u32;
            let booking = Booking {
                id: RequestId::new(format!("live {at}")),
                place: Place(live.rank as u32),
                prompt: Tokens(tokens),
                cached: Tokens(tokens - live.uncached as u32),
                keys: keys.into(),
                expected_output: Tokens(300),
                adapter: None,
                work: PromptWork::Counts,
            };
            let ticket = state.load.book(booking, Time(state.now - 1_000_000)).expect("there is room");
            if live.decoding {
                state.load.prefill_done(ticket, Time(state.now - 500_000));
            }
        }
    }

    /// The requests of the traffic, with what is known of them before the decision.
    pub fn requests(&self, traffic: &Traffic) -> Vec<Request> {
        let state = self.state.lock().expect("nobody panicked");
        let mut side = self.side();
        let one = |(at, prompt): (usize, &usize)| {
            let tokens = &traffic.prompts[*prompt];
            let mut overlap = Overlap::default();
            self.look(&mut side, tokens);
            overlap.take_answer(&side.answer, |slot| self.places[slot]);
            overlap.take_booked(&state.load, &side.keys);
            Request {
                id: RequestId::new(format!("asked {at}")),
                tokens: tokens.len() as u32,
                keys: side.keys.as_slice().into(),
                overlap,
            }
        };
        traffic.asked.iter().enumerate().map(one).collect()
    }

    /// Room for one thread.
    pub fn side(&self) -> Side {
        Side {
            reader: self.reader.clone(),
            answer: Answer::default(),
            keys: Vec::new(),
        }
    }

    /// Hash and lookup: no lock is needed.
    pub fn look(&self, side: &mut Side, tokens: &[u32]) {
        let size = BlockSize::new(BLOCK_TOKENS as u32).expect("not zero");
        side.keys.clear();
        self.hasher.keys(&Prompt::text(tokens, size), &mut side.keys);
        side.reader.lookup(&side.keys, &mut side.answer);
    }

    /// The whole path from tokens.
    pub fn whole(&self, side: &mut Side, request: &Request, tokens: &[u32]) -> u64 {
        self.look(side, tokens);
        let keys: Arc<[BlockKey]> = side.keys.as_slice().into();
        let state = &mut *self.state.lock().expect("nobody panicked");
        let mut overlap = std::mem::take(&mut state.overlap);
        overlap.clear();
        overlap.take_answer(&side.answer, |slot| self.places[slot]);
        overlap.take_booked(&state.load, &side.keys);
        let place = state.place(&request.id, &keys, tokens.len() as u32, &overlap);
        state.overlap = overlap;
        place
    }
}

impl State {
    /// The decision alone.
    pub fn decide(&mut self, request: &Request) -> u64 {
        let (chosen, _) = self.choose(&request.keys, request.tokens, &request.overlap);
        u64::from(chosen.0)
    }

    /// The decision, the booking and its end.
    pub fn decide_book_free(&mut self, request: &Request) -> u64 {
        self.place(&request.id, &request.keys, request.tokens, &request.overlap)
    }

    fn choose(&mut self, keys: &[BlockKey], tokens: u32, overlap: &Overlap) -> (Place, u32) {
        self.now += 1_000;
        let view = View {
            now: Time(self.now),
            fleet: &self.fleet,
            load: &self.load,
            overlap,
        };
        let ask = Ask {
            model: &self.model,
            phase: Phase::Whole,
            prompt: Tokens(tokens),
            keys,
            expected_output: Tokens(300),
            adapter: None,
            session: None,
            wanted: &self.wanted,
            overrides: Overrides::default(),
        };
        let decision = self.scheduler.decide(&view, &ask, Draw(self.now), &mut self.room);
        let chosen = decision.expect("everyone is eligible").chosen;
        self.scheduler.commit(&ask, chosen.place, Time(self.now));
        (chosen.place, chosen.depths.spared())
    }

    fn place(&mut self, id: &RequestId, keys: &Arc<[BlockKey]>, tokens: u32, overlap: &Overlap) -> u64 {
        let (place, spared) = self.choose(keys, tokens, overlap);
        let booking = Booking {
            id: id.clone(),
            place,
            prompt: Tokens(tokens),
            cached: Tokens((spared * BLOCK_TOKENS as u32).min(tokens - 1)),
            keys: keys.clone(),
            expected_output: Tokens(300),
            adapter: None,
            work: PromptWork::Counts,
        };
        let ticket = self.load.book(booking, Time(self.now)).expect("there is room");
        self.load.end(ticket, End::Finished, Time(self.now));
        u64::from(place.0)
    }
}
