//! What is known of a rank?

use std::sync::Arc;

use homing_domain::{AdapterName, ModelName, RankId, Role};

/// A name and a value that an operator gave to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Label {
    /// The name.
    pub name: Arc<str>,
    /// The value.
    pub value: Arc<str>,
}

impl Label {
    /// `name=value`.
    pub fn new(name: &str, value: &str) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }
}

/// Whether a worker answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It does.
    #[default]
    Up,
    /// It looks stalled: it is chosen where no other rank can serve.
    Suspected,
    /// It does not.
    Down,
}

/// Whether a worker takes new requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duty {
    /// It does.
    #[default]
    Serving,
    /// It finishes what it has.
    Draining,
}

/// What is known of a rank's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Knowledge {
    /// Everything: overlaps are exact.
    Exact,
    /// Not what was cached before we listened: overlaps are lower bounds.
    Warming,
    /// Something is missing and is being fetched.
    Repairing,
    /// What was known is old.
    Stale,
    /// A guess from what was routed.
    Guess,
    /// Nothing.
    #[default]
    Nothing,
}

impl Knowledge {
    /// As reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Warming => "warming",
            Self::Repairing => "repairing",
            Self::Stale => "stale",
            Self::Guess => "guess",
            Self::Nothing => "nothing",
        }
    }
}

/// Which adapters a rank can serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Adapters {
    /// Any: it loads what it lacks.
    Any,
    /// These.
    Only(Vec<AdapterName>),
    /// None.
    #[default]
    None,
}

/// What is known of a rank.
#[derive(Clone, Debug)]
pub struct RankFacts {
    /// Which.
    pub rank: RankId,
    /// The model that it serves.
    pub model: ModelName,
    /// What it is for.
    pub role: Role,
    /// The adapters that it can serve.
    pub adapters: Adapters,
    /// What its operator says of it.
    pub labels: Vec<Label>,
    /// Whether it answers.
    pub health: Health,
    /// Whether it takes new requests.
    pub duty: Duty,
    /// What is known of its cache.
    pub knowledge: Knowledge,
}

impl RankFacts {
    /// A rank that does everything for one model.
    pub fn new(rank: RankId, model: ModelName) -> Self {
        Self {
            rank,
            model,
            role: Role::Both,
            adapters: Adapters::None,
            labels: Vec::new(),
            health: Health::Up,
            duty: Duty::Serving,
            knowledge: Knowledge::Nothing,
        }
    }
}
