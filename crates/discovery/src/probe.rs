//! What is this worker?
//!
//! A worker is asked what it serves, which engine it is and how that was set up. What it cannot or will not say is listed with the
//! reason ([`Facts::unlearnt`]), and [`Facts::fill`] puts what was learnt in place of defaults.
//!
//! | fact | vLLM | SGLang |
//! |---|---|---|
//! | models, adapters, lengths, which engine | `/v1/models` | `/v1/models` |
//! | version | `/version` | `/server_info` |
//! | block size, blocks, prefix caching | `/metrics`: `vllm:cache_config_info` | `/server_info` |
//! | ranks | the engines of `/metrics`, the sources of `/kv_event_sources` | `/server_info` |
//! | whether cached tokens are reported | not told | `/server_info` |
//! | role, where it can be met | not told | `/server_info`: `disaggregation_mode` |
//! | slots for adapters | `/metrics`: `vllm:lora_requests_info` | `/server_info` |
//! | where events are | `/kv_event_sources` | `/server_info`: `kv_events` |
//!
//! **Invariant:** no prompt is sent, and nothing is changed.
//!
//! **Invariant:** each answer has a time limit and is read up to a limit, and what it says is believed only within bounds.

mod fill;
mod sglang;
mod vllm;

use std::time::Duration;

use homing_config::{Config, EventSource, HttpUrl, Switch};
use homing_domain::{BlockSize, Blocks, Role, Tokens};
use homing_platform::HttpClient;
use homing_wire::Dialect;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::ask::{AskError, Outward, Question};

pub use fill::Filled;

/// The longest answer that is read, in bytes.
const MAX_ANSWER: usize = 4 << 20;
/// Models and adapters that are kept; those beyond are left out, and that is said.
pub const MAX_MODELS: usize = 4096;
/// The longest name that is kept, in bytes.
pub(crate) const MAX_NAME: usize = 256;
/// The longest path of an adapter that is kept, in bytes.
const MAX_ROOT: usize = 4096;
/// Ranks that are believed.
const MAX_RANKS: u16 = 1024;
/// Slots for adapters that are believed.
const MAX_SLOTS: u32 = 65_536;

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
    /// Which part of requests it serves, where it says so.
    pub role: Option<Role>,
    /// The port where a prefill worker can be met by others.
    pub bootstrap: Option<u16>,
    /// Adapters that each rank takes at once, where it says so.
    pub adapter_slots: Option<u32>,
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
    /// From where an adapter was loaded, where that is said.
    pub root: Option<String>,
}

/// One thing that could not be learnt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlearnt {
    /// What, as the fields of [`Facts`] are called.
    pub fact: &'static str,
    /// Why, in words.
    pub why: String,
}

/// Why a worker could not be asked at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url} does not say what it is: {why}")]
pub struct NotReached {
    /// Whom.
    pub url: String,
    /// Why, in words.
    pub why: String,
    /// Whether nothing came in time.
    pub(crate) outcome: homing_telemetry::Asked,
}

/// What a worker must show before it is taken for an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineProof {
    /// Nothing more than an answer: an operator says that it is one.
    None,
    /// That it serves a model, and which version it is.
    Required,
}

/// Asks workers what they are.
#[derive(Clone, Debug)]
pub struct Probe {
    client: HttpClient,
    config: ProbeConfig,
}

/// `/v1/models`.
#[derive(Debug, Deserialize)]
struct Cards {
    data: Vec<Card>,
}

#[derive(Debug, Deserialize)]
struct Card {
    id: String,
    parent: Option<String>,
    root: Option<String>,
    max_model_len: Option<u64>,
    owned_by: Option<String>,
}

impl ProbeConfig {
    /// As the operator asked for it.
    pub fn of(config: &Config) -> Self {
        Self {
            timeout: config.probe.timeout,
        }
    }
}

impl Probe {
    /// A probe with connections of its own.
    pub fn new(config: ProbeConfig) -> Self {
        Self::speaking(config, &Outward::default())
    }

    /// The same, for workers with TLS or an API key.
    pub fn speaking(config: ProbeConfig, outward: &Outward) -> Self {
        Self::with_client(outward.client(), config)
    }

    /// Connections are made by `client` and kept with it.
    pub(crate) fn with_client(client: HttpClient, config: ProbeConfig) -> Self {
        Self { client, config }
    }

    /// Asks. An error means that nobody answers, or that whoever answers is not ready: try again.
    pub async fn ask(&self, url: &HttpUrl) -> Result<Facts, NotReached> {
        self.ask_with(url, EngineProof::None).await
    }

    /// The same; one that does not show what it must is not reached.
    pub async fn ask_with(&self, url: &HttpUrl, proof: EngineProof) -> Result<Facts, NotReached> {
        let facts = self.learn(url).await?;
        let unproved = match proof {
            EngineProof::None => None,
            EngineProof::Required => Asked { probe: self, url }.unproved(&facts).await,
        };
        match unproved {
            None => Ok(facts),
            Some(why) => Err(NotReached {
                url: url.to_string(),
                outcome: homing_telemetry::Asked::Failed,
                why: why.to_owned(),
            }),
        }
    }

    async fn learn(&self, url: &HttpUrl) -> Result<Facts, NotReached> {
        let mut facts = Facts::default();
        let worker = Asked { probe: self, url };
        let owner = match worker.json::<Cards>("/v1/models").await {
            Ok(cards) => facts.take_models(cards),
            Err(error) if error.is_unknown() => {
                facts.miss("models", &error);
                None
            }
            Err(error) => {
                return Err(NotReached {
                    url: url.to_string(),
                    outcome: error.outcome(),
                    why: error.to_string(),
                });
            }
        };
        facts.dialect = match owner.as_deref() {
            Some("vllm") => Some(Dialect::Vllm),
            Some("sglang") => Some(Dialect::Sglang),
            _ => None,
        };
        // One that does not say it by its models is known by what else it answers.
        match facts.dialect {
            Some(Dialect::Vllm) => vllm::learn(&mut facts, worker).await,
            Some(Dialect::Sglang) => sglang::learn(&mut facts, worker).await,
            _ => {
                if vllm::recognise(worker).await {
                    facts.dialect = Some(Dialect::Vllm);
                    vllm::learn(&mut facts, worker).await;
                } else if sglang::recognise(worker).await {
                    facts.dialect = Some(Dialect::Sglang);
                    sglang::learn(&mut facts, worker).await;
                } else {
                    facts.miss_all("it answers neither like vLLM nor like SGLang");
                }
            }
        }
        Ok(facts)
    }
}

/// A worker that is being asked.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    probe: &'a Probe,
    url: &'a HttpUrl,
}

impl<'a> Asked<'a> {
    async fn json<T: DeserializeOwned>(self, path: &str) -> Result<T, AskError> {
        self.question(path).json().await
    }

    /// What is missing until it counts as an engine.
    async fn unproved(self, facts: &Facts) -> Option<&'static str> {
        if facts.base_models().next().is_none() {
            return Some("it is not taken for an engine, because /v1/models lists no model");
        }
        if facts.version.is_some() {
            return None;
        }
        for path in ["/version", "/server_info", "/get_server_info"] {
            if self
                .json::<serde_json::Map<String, serde_json::Value>>(path)
                .await
                .is_ok()
            {
                return None;
            }
        }
        Some("it is not taken for an engine, because neither /version nor /server_info answers with a JSON object")
    }

    fn question<'b>(self, path: &'b str) -> Question<'b>
    where
        'a: 'b,
    {
        Question {
            client: &self.probe.client,
            url: self.url,
            path,
            timeout: self.probe.config.timeout,
            limit: MAX_ANSWER,
        }
    }
}

impl Facts {
    /// The facts that depend on the engine, as they are called here.
    const OF_ENGINE: [&'static str; 8] = [
        "dialect",
        "version",
        "block_size",
        "blocks",
        "ranks",
        "prefix_caching",
        "reports_cached",
        "events",
    ];

    /// The models that are no adapters.
    pub fn base_models(&self) -> impl Iterator<Item = &Model> {
        self.models.iter().flatten().filter(|model| model.parent.is_none())
    }

    /// The adapters.
    pub fn adapters(&self) -> impl Iterator<Item = &Model> {
        self.models.iter().flatten().filter(|model| model.parent.is_some())
    }

    /// The same but for adapters: they come and go while a worker stays what it is.
    pub fn is_same_worker(&self, other: &Self) -> bool {
        let without = |facts: &Self| {
            let mut facts = facts.clone();
            facts
                .models
                .iter_mut()
                .for_each(|models| models.retain(|model| model.parent.is_none()));
            facts
        };
        self == other || without(self) == without(other)
    }

    /// Takes what is served, and says who calls it its own.
    fn take_models(&mut self, cards: Cards) -> Option<String> {
        let owner = cards.data.iter().find_map(|card| card.owned_by.clone());
        let count = cards.data.len();
        let is_kept = |card: &Card| card.id.len() <= MAX_NAME;
        let cards = cards.data.into_iter().filter(is_kept).take(MAX_MODELS);
        let mut models: Vec<Model> = cards
            .map(|card| Model {
                root: card
                    .root
                    .filter(|root| card.parent.is_some() && *root != card.id && root.len() <= MAX_ROOT),
                name: card.id,
                parent: card.parent,
                max_len: card.max_model_len.and_then(|len| u32::try_from(len).ok()).map(Tokens),
            })
            .collect();
        models.sort_by_key(|model| model.parent.is_some());
        if models.len() < count {
            let left_out = count - models.len();
            self.miss_because("models", format!("{left_out} of {count} are left out"));
        }
        self.models = Some(models);
        owner
    }

    fn miss(&mut self, fact: &'static str, error: &AskError) {
        self.miss_because(fact, error.to_string());
    }

    fn miss_because(&mut self, fact: &'static str, why: impl Into<String>) {
        self.unlearnt.push(Unlearnt { fact, why: why.into() });
    }

    fn miss_all(&mut self, why: &str) {
        for fact in Self::OF_ENGINE {
            self.miss_because(fact, why);
        }
    }
}

/// A text of another's as it is kept.
fn kept(text: &str) -> String {
    text.chars()
        .filter(|letter| !letter.is_control())
        .take(MAX_NAME)
        .collect()
}
