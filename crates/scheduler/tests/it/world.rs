//! A small fleet to decide about.

use std::sync::Arc;

use homing_domain::{
    AdapterName, BlockKey, BlockSize, HashSeed, KeyHasher, ModelName, Prompt, RankId, RequestId, Tokens,
};
use homing_load::{Booking, End, Load, LoadConfig, Place, PromptWork, RankSpec, Ticket};
use homing_profile::{Polynomial, Time, Timing};
use homing_scheduler::policy::by_name;
use homing_scheduler::{
    Ask, Decision, Depths, Draw, Fleet, Knowledge, Overlap, Overrides, Phase, RankFacts, Refusal, Room, Scheduler,
    View, Wanted,
};

/// Ranks 0/0, 1/0 and so on, and one request.
#[derive(Debug)]
pub struct World {
    pub now: Time,
    pub fleet: Fleet,
    pub load: Load,
    pub overlap: Overlap,
    pub model: ModelName,
    pub keys: Vec<BlockKey>,
    pub prompt: u32,
    pub adapter: Option<AdapterName>,
    pub session: Option<String>,
    pub wanted: Wanted,
    pub overrides: Overrides,
    pub tickets: Vec<Ticket>,
}

/// So many blocks on the device.
pub fn held(blocks: u32) -> Depths {
    Depths {
        tiers: [blocks; 4],
        booked: 0,
    }
}

impl World {
    pub fn new(ranks: u32, prompt: u32) -> Self {
        Self::with(ranks, prompt, |_| ())
    }

    pub fn with(ranks: u32, prompt: u32, change: impl Fn(&mut RankSpec)) -> Self {
        let size = BlockSize::new(16).expect("not zero");
        let mut load = Load::new(LoadConfig::new(size));
        let mut fleet = Fleet::default();
        let model = ModelName::from("m");
        for worker in 0..ranks {
            let mut spec = RankSpec::new(RankId::new(worker, 0), Timing::Polynomial(Polynomial::default()));
            change(&mut spec);
            let place = load.add_rank(spec, Time::ZERO).expect("there is room");
            let mut facts = RankFacts::new(RankId::new(worker, 0), model.clone());
            facts.knowledge = Knowledge::Exact;
            fleet.set(place, facts);
        }
        let tokens: Vec<u32> = (0..prompt).collect();
        let mut keys = Vec::new();
        KeyHasher::new(HashSeed::PUBLIC).keys(&Prompt::text(&tokens, size), &mut keys);
        Self {
            now: Time::from_millis(1_000.0),
            fleet,
            load,
            overlap: Overlap::default(),
            model,
            keys,
            prompt,
            adapter: None,
            session: None,
            wanted: Wanted::default(),
            overrides: Overrides::default(),
            tickets: Vec::new(),
        }
    }

    pub fn change(&mut self, worker: u32, change: impl Fn(&mut RankFacts)) {
        let mut facts = self.fleet.facts(Place(worker)).expect("it is there").clone();
        change(&mut facts);
        self.fleet.set(Place(worker), facts);
    }

    /// Some other request, of which nothing is cached or shared.
    pub fn book(&mut self, worker: u32, prompt: u32) {
        self.book_with(worker, prompt, Arc::from([]));
    }

    /// A request like ours.
    pub fn book_same(&mut self, worker: u32) {
        self.book_with(worker, self.prompt, Arc::from(self.keys.as_slice()));
        self.overlap.take_booked(&self.load, &self.keys);
    }

    pub fn book_with(&mut self, worker: u32, prompt: u32, keys: Arc<[BlockKey]>) {
        let booking = Booking {
            id: RequestId::new(format!("{}", self.tickets.len())),
            place: Place(worker),
            prompt: Tokens(prompt),
            cached: Tokens(0),
            keys,
            expected_output: Tokens(100),
            adapter: None,
            work: PromptWork::Counts,
        };
        self.tickets
            .push(self.load.book(booking, self.now).expect("there is room"));
    }

    pub fn first_tokens(&mut self) {
        for ticket in &self.tickets {
            self.load.prefill_done(*ticket, self.now);
        }
    }

    pub fn end_all(&mut self) {
        for ticket in &self.tickets {
            self.load.end(*ticket, End::Finished, self.now);
        }
    }

    pub fn ask(&self) -> Ask<'_> {
        Ask {
            model: &self.model,
            phase: Phase::Whole,
            prompt: Tokens(self.prompt),
            keys: &self.keys,
            expected_output: Tokens(100),
            adapter: self.adapter.as_ref(),
            session: self.session.as_deref(),
            wanted: &self.wanted,
            overrides: self.overrides,
        }
    }

    pub fn decide(&self, policy: &str, draw: Draw) -> Result<Decision, Refusal> {
        self.decide_with(&Scheduler::new(by_name(policy).expect("it exists")), draw)
    }

    pub fn decide_with(&self, scheduler: &Scheduler, draw: Draw) -> Result<Decision, Refusal> {
        let view = View {
            now: self.now,
            fleet: &self.fleet,
            load: &self.load,
            overlap: &self.overlap,
        };
        scheduler.decide(&view, &self.ask(), draw, &mut Room::default())
    }

    pub fn commit(&self, scheduler: &mut Scheduler, chosen: Place) {
        scheduler.commit(&self.ask(), chosen, self.now);
    }
}
