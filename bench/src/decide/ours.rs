//! Our side: index, load and scheduler, put together as a router does. Hash and lookup need no lock; the decision, the booking
//! and its end are one critical section behind a mutex.

use std::sync::{Arc, Mutex};

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

use crate::lineup::OURS;

use super::traffic::{BLOCK_TOKENS, Traffic};
use super::{Contender, Seat, Work};

const SIZE: BlockSize = BlockSize::new(BLOCK_TOKENS as u32).expect("not zero");

/// What one decision changes and reads, behind one lock in a router.
struct State {
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
struct Request {
    id: RequestId,
    tokens: u32,
    keys: Arc<[BlockKey]>,
    overlap: Overlap,
}

/// A fleet at work.
pub struct Ours<'a> {
    traffic: &'a Traffic,
    state: Mutex<State>,
    index: Index,
    hasher: KeyHasher,
    places: Vec<Option<Place>>,
}

/// What a thread keeps to itself.
struct Side<'a> {
    ours: &'a Ours<'a>,
    reader: Reader,
    answer: Answer,
    keys: Vec<BlockKey>,
    requests: Vec<Request>,
}

impl<'a> Ours<'a> {
    /// Everything that the traffic says of the fleet, booked and stored.
    pub fn new(traffic: &'a Traffic, policy: &str) -> Self {
        let hasher = KeyHasher::new(HashSeed::PUBLIC);
        let model = ModelName::from("model");
        let mut load = Load::new(LoadConfig::new(SIZE));
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
            slots.push(
                index
                    .add_rank(RankId::new(worker, 0), Copies::Counted)
                    .expect("there is room"),
            );
        }
        for (rank, prompt) in &traffic.stored {
            let contents = traffic.prompts[*prompt].chunks_exact(BLOCK_TOKENS);
            let mut chain = Vec::new();
            hasher.keys(&Prompt::text(&traffic.prompts[*prompt], SIZE), &mut chain);
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
            traffic,
            state: Mutex::new(state),
            index,
            hasher,
            places,
        };
        ours.fill();
        ours
    }

    fn fill(&self) {
        let traffic = self.traffic;
        let state = &mut *self.state.lock().expect("nobody panicked");
        for (at, live) in traffic.live.iter().enumerate() {
            let mut keys = Vec::new();
            self.hasher
                .keys(&Prompt::text(&traffic.prompts[live.prompt], SIZE), &mut keys);
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
            let ticket = state
                .load
                .book(booking, Time(state.now - 1_000_000))
                .expect("there is room");
            if live.decoding {
                state.load.prefill_done(ticket, Time(state.now - 500_000));
            }
        }
    }
}

impl Contender for Ours<'_> {
    fn name(&self) -> &'static str {
        OURS
    }

    fn seat(&self, thread: usize) -> Box<dyn Seat + '_> {
        let mut side = Side {
            ours: self,
            reader: self.index.reader(),
            answer: Answer::default(),
            keys: Vec::new(),
            requests: Vec::new(),
        };
        let state = self.state.lock().expect("nobody panicked");
        for (at, prompt) in self.traffic.asked.iter().enumerate() {
            let tokens = &self.traffic.prompts[*prompt];
            let mut overlap = Overlap::default();
            side.look(tokens);
            overlap.take_answer(&side.answer, |slot| self.places[slot]);
            overlap.take_booked(&state.load, &side.keys);
            side.requests.push(Request {
                id: RequestId::new(format!("asked {at} of {thread}")),
                tokens: tokens.len() as u32,
                keys: side.keys.as_slice().into(),
                overlap,
            });
        }
        Box::new(side)
    }
}

impl Seat for Side<'_> {
    fn run(&mut self, work: Work, at: usize) -> u64 {
        if work == Work::Whole {
            return self.whole(at);
        }
        let request = &self.requests[at];
        let state = &mut *self.ours.state.lock().expect("nobody panicked");
        if work == Work::Decide {
            let (chosen, _) = state.choose(&request.keys, request.tokens, &request.overlap);
            u64::from(chosen.0)
        } else {
            state.place(&request.id, &request.keys, request.tokens, &request.overlap)
        }
    }
}

impl Side<'_> {
    /// Hash and lookup.
    fn look(&mut self, tokens: &[u32]) {
        self.keys.clear();
        self.ours.hasher.keys(&Prompt::text(tokens, SIZE), &mut self.keys);
        self.reader.lookup(&self.keys, &mut self.answer);
    }

    /// The whole path from tokens.
    fn whole(&mut self, at: usize) -> u64 {
        let ours = self.ours;
        let tokens = &ours.traffic.prompts[ours.traffic.asked[at]];
        self.look(tokens);
        let keys: Arc<[BlockKey]> = self.keys.as_slice().into();
        let state = &mut *ours.state.lock().expect("nobody panicked");
        let mut overlap = std::mem::take(&mut state.overlap);
        overlap.clear();
        overlap.take_answer(&self.answer, |slot| ours.places[slot]);
        overlap.take_booked(&state.load, &self.keys);
        let place = state.place(&self.requests[at].id, &keys, tokens.len() as u32, &overlap);
        state.overlap = overlap;
        place
    }
}

impl State {
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
