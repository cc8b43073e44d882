//! A small fleet with a router before it.

use std::sync::Arc;

use homing_domain::{
    BlockKey, BlockSize, ContentHash, HashSeed, KeyHasher, Label, ModelName, RankId, RequestId, Stored, StoredBlock,
    Tokens,
};
use homing_index::{Copies, Index, IndexConfig, Slot};
use homing_load::{End, RankSpec, Ticket};
use homing_profile::{Millis, Polynomial, Time, Timing};
use homing_router::{CacheView, Effect, Ended, NewRank, Question, Routed, Router, RouterConfig, Verdict};
use homing_scheduler::RankFacts;
use homing_scheduler::policy::by_name;

pub const BLOCK: u32 = 16;

pub struct World {
    pub router: Router,
    pub index: Index,
    pub slots: Vec<Slot>,
    pub now: Time,
}

pub fn hasher() -> KeyHasher {
    KeyHasher::new(HashSeed::PUBLIC)
}

pub fn config() -> RouterConfig {
    RouterConfig::new(BlockSize::new(BLOCK).expect("not zero"), hasher())
}

/// Keys of a prompt of so many blocks, all of whose blocks are its own.
pub fn keys(prompt: u64, blocks: u64) -> Arc<[BlockKey]> {
    let mut key = hasher().root();
    let next = |block| {
        key = hasher().child(key, ContentHash(prompt * 100_000 + block));
        key
    };
    (0..blocks).map(next).collect()
}

pub fn question(id: &str, prompt: u64, blocks: u64) -> Question {
    let tokens = Tokens(blocks as u32 * BLOCK + 1);
    Question::new(id.into(), ModelName::from("m"), tokens, keys(prompt, blocks))
}

pub fn rank(worker: u32) -> RankId {
    RankId::new(worker, 0)
}

pub fn new_rank(worker: u32, view: CacheView) -> NewRank {
    NewRank {
        spec: RankSpec::new(rank(worker), Timing::Polynomial(Polynomial::default())),
        facts: RankFacts::new(rank(worker), ModelName::from("m")),
        view,
    }
}

pub fn finished() -> Ended {
    Ended {
        end: End::Finished,
        generated: None,
        cached: None,
    }
}

impl World {
    pub fn new(ranks: u32, policy: &str) -> Self {
        Self::with(ranks, policy, &config(), |_| ())
    }

    pub fn with(ranks: u32, policy: &str, config: &RouterConfig, change: impl Fn(&mut NewRank)) -> Self {
        let mut index = Index::new(IndexConfig::new(hasher()));
        let router = Router::new(config, by_name(policy).expect("there is one"), index.reader());
        let mut slots = Vec::new();
        for worker in 0..ranks {
            slots.push(index.add_rank(rank(worker), Copies::Counted).expect("there is room"));
            let mut new = new_rank(worker, CacheView::Events);
            change(&mut new);
            router.rank_up(Time::ZERO, new).expect("there is room");
        }
        Self {
            router,
            index,
            slots,
            now: Time::from_millis(1_000.0),
        }
    }

    /// The engine of a rank says that it holds these blocks.
    pub fn store(&mut self, worker: usize, keys: &[BlockKey]) {
        let mut parent = hasher().root();
        let block = |key: &BlockKey| {
            let content = hasher().content_of(parent, *key);
            parent = *key;
            StoredBlock {
                label: Label::new(key.0),
                content,
            }
        };
        let stored = Stored::plain(None, keys.iter().map(block).collect());
        self.index
            .store(self.slots[worker], &stored)
            .expect("the rank is there");
    }

    pub fn pass(&mut self, millis: f64) {
        self.now = self.now + Millis(millis);
    }

    pub fn ask(&self, question: Question) -> Verdict {
        self.router.ask(self.now, question)
    }

    /// Asks for something that goes at once.
    pub fn go(&self, question: Question) -> Routed {
        match self.ask(question) {
            Verdict::Go(routed) => *routed,
            other => panic!("it does not go: {other:?}"),
        }
    }

    pub fn done(&self, ticket: Ticket) {
        self.router.done(self.now, ticket, &finished());
    }

    pub fn effects(&self) -> Vec<Effect> {
        std::iter::from_fn(|| self.router.next_effect()).collect()
    }

    /// The requests that go by these effects.
    pub fn gone(&self) -> Vec<RequestId> {
        let id = |effect| match effect {
            Effect::Go { id, .. } => Some(id),
            _ => None,
        };
        self.effects().into_iter().filter_map(id).collect()
    }
}
