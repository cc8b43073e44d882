//! What is this worker?

use std::time::Duration;

use homing_config::{EventSource, HttpUrl, Switch, WorkerDefaults, WorkerSpec};
use homing_domain::{BlockSize, Blocks, Tokens};
use homing_wire::Dialect;

/// How workers are asked.
#[derive(Clone, Debug)]
pub struct ProbeConfig {
    /// How long one answer may take.
    pub timeout: Duration,
}

/// What a worker says of itself. What it did not say is `None`, and `unlearnt` says why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Which engine it is.
    pub dialect: Option<Dialect>,
    /// Which version.
    pub version: Option<String>,
    /// What it serves: models, then adapters.
    pub models: Option<Vec<Model>>,
    /// Tokens of its blocks.
    pub block_size: Option<BlockSize>,
    /// Blocks of the cache of each rank.
    pub blocks: Option<Blocks>,
    /// Data-parallel ranks.
    pub ranks: Option<u16>,
    /// Whether it caches prefixes.
    pub prefix_caching: Option<Switch>,
    /// Whether its answers say how many tokens came from the cache.
    pub reports_cached: Option<Switch>,
    /// Where its events are to be had, as of rank 0; [`EventSource::Nobody`] if it says that it publishes none.
    pub events: Option<EventSource>,
    /// What could not be learnt, and why.
    pub unlearnt: Vec<Unlearnt>,
}

/// A model that a worker serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// What clients call it.
    pub name: String,
    /// The model that it adapts; `None` if it is no adapter.
    pub parent: Option<String>,
    /// How many tokens prompt and answer may have together.
    pub max_len: Option<Tokens>,
}

/// One thing that could not be learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlearnt {
    /// What, as in the fields of [`Facts`].
    pub fact: &'static str,
    /// Why, in words.
    pub why: String,
}

/// What was said of a worker, with what it says itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    /// The worker.
    pub spec: WorkerSpec,
    /// What was taken from the worker in place of a default, in words.
    pub learnt: Vec<String>,
    /// What it says that is not what was said of it, in words.
    pub mismatches: Vec<String>,
}

/// Why a worker could not be asked at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url} does not say what it is: {why}")]
pub struct NotReached {
    /// Whom.
    pub url: String,
    /// Why, in words.
    pub why: String,
}

/// Asks workers what they are.
#[derive(Clone, Debug)]
pub struct Probe {}

impl Probe {
    /// Connections are made by `client` and kept with it.
    pub fn new(client: reqwest::Client, config: ProbeConfig) -> Self {
        let _ = (client, config);
        todo!()
    }

    /// Asks. An error means that it answers nothing that helps; try again.
    #[expect(clippy::unused_async, reason = "to be written")]
    pub async fn ask(&self, url: &HttpUrl) -> Result<Facts, NotReached> {
        let _ = url;
        todo!()
    }
}

impl Facts {
    /// What was said of a worker together with what it says: a value that is the default counts as not said.
    pub fn fill(&self, spec: &WorkerSpec, defaults: &WorkerDefaults) -> Filled {
        let _ = (spec, defaults);
        todo!()
    }
}
