//! What is said to a router, and what does it say?

use std::sync::Arc;

use homing_domain::{AdapterName, BlockKey, ModelName, RankId, RequestId, Tokens};
use homing_load::{End, RankSpec, Ticket};
use homing_profile::{Millis, Time};
use homing_scheduler::queue::{Refused, Tenant};
use homing_scheduler::{Decision, Overrides, Phase, RankFacts, Refusal, Wanted};

use crate::apart::{Apart, Halves};
use crate::guess::CacheView;

/// A request that wants to go somewhere.
#[derive(Clone, Debug)]
pub struct Question {
    /// Which. While one of this id waits or runs, another is refused.
    pub id: RequestId,
    /// The model.
    pub model: ModelName,
    /// The part of the request.
    pub phase: Phase,
    /// Tokens of the prompt.
    pub prompt: Tokens,
    /// Keys of its full blocks; none if they are not known.
    pub keys: Arc<[BlockKey]>,
    /// The adapter that it needs.
    pub adapter: Option<AdapterName>,
    /// What ties requests together that should stay together.
    pub session: Option<Arc<str>>,
    /// Whose it is.
    pub tenant: Tenant,
    /// Its class, as a place in the classes of the configuration.
    pub class: usize,
    /// Greater goes first among the requests of its tenant that wait.
    pub priority: i32,
    /// If it waits, it must have begun by then.
    pub deadline: Option<Time>,
    /// If it waits, it is treated as if it had come so much earlier.
    pub jump: Millis,
    /// Who may serve it.
    pub wanted: Wanted,
    /// What holds for it only.
    pub overrides: Overrides,
    /// Tokens that it may generate at most.
    pub most_output: Tokens,
    /// That two workers may serve it; none if one does, whose part is [`Question::phase`].
    pub apart: Option<Box<Apart>>,
}

impl Question {
    /// A request of nobody in particular, without any wishes.
    pub fn new(id: RequestId, model: ModelName, prompt: Tokens, keys: Arc<[BlockKey]>) -> Self {
        Self {
            id,
            model,
            phase: Phase::Whole,
            prompt,
            keys,
            adapter: None,
            session: None,
            tenant: Tenant::default(),
            class: 0,
            priority: 0,
            deadline: None,
            jump: Millis::ZERO,
            wanted: Wanted::default(),
            overrides: Overrides::default(),
            most_output: Tokens(u32::MAX),
            apart: None,
        }
    }
}

/// A request that goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Routed {
    /// Where, and why.
    pub decision: Decision,
    /// Tokens of the prompt that are predicted to come from the rank's cache.
    pub cached: Tokens,
    /// Under what it is booked; none if it was not to be.
    pub ticket: Option<Ticket>,
    /// Where two could serve it: why one or two, and the other half.
    pub halves: Option<Box<Halves>>,
}

/// What becomes of a request that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It goes, now.
    Go(Box<Routed>),
    /// It waits; an effect says when it goes, or that it does not.
    Wait,
    /// It goes nowhere.
    Turned(Turned),
}

/// Why a request goes nowhere.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Turned {
    /// Nobody can serve it.
    #[error(transparent)]
    Nowhere(#[from] Refusal),
    /// Two workers were to serve it, and they cannot.
    #[error(transparent)]
    Apart(#[from] homing_disagg::Refused),
    /// There is no room to wait in.
    #[error(transparent)]
    Full(#[from] Refused),
    /// It cannot be booked.
    #[error(transparent)]
    Unbookable(#[from] homing_load::LoadError),
    /// There is no such rank.
    #[error("there is no rank {0}")]
    NoSuchRank(RankId),
    /// Its adapter has to be loaded first: it is to be asked for again when that is done, or has failed.
    #[error("its adapter {adapter} is being loaded on rank {rank}")]
    Loads {
        /// Which.
        adapter: AdapterName,
        /// Where.
        rank: RankId,
        /// How long that is expected to take.
        wait: Millis,
    },
    /// It waited until its deadline.
    #[error("it waited {} ms, until its deadline", .0.0.round())]
    Expired(Millis),
}

/// A choice that was made elsewhere, to be booked.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// The request, as far as it is known. Who may serve it does not matter any more.
    pub question: Question,
    /// The rank.
    pub rank: RankId,
    /// Tokens of the prompt that are in its cache.
    pub cached: Tokens,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Why.
    pub end: End,
    /// Tokens that it generated, if that is known better than from what was said before.
    pub generated: Option<Tokens>,
    /// Tokens of the prompt that came from the cache, where the engine says so.
    pub cached: Option<Tokens>,
}

/// A rank that came.
#[derive(Clone, Debug)]
pub struct NewRank {
    /// How fast and how large it is.
    pub spec: RankSpec,
    /// What else is known of it.
    pub facts: RankFacts,
    /// From where its cache is known.
    pub view: CacheView,
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A request that waited goes.
    Go {
        /// Which.
        id: RequestId,
        /// Where.
        routed: Box<Routed>,
    },
    /// A request that waited goes nowhere.
    Turned {
        /// Which.
        id: RequestId,
        /// Why.
        why: Turned,
    },
    /// Nothing was heard of a request for the length of a lease: it is not booked any more.
    Lapsed {
        /// Which.
        id: RequestId,
        /// Where it was.
        rank: RankId,
    },
    /// A rank keeps having less in its cache than its view says: the view is to be made anew.
    Doubted(RankId),
}
