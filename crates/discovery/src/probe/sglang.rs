//! What does SGLang say of itself?

use homing_config::{EventSource, EventsEndpoint, EventsMode, HttpUrl, Switch};
use homing_domain::{BlockSize, Blocks, Role};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::vllm::near;
use super::{Asked, Facts, MAX_RANKS, MAX_SLOTS, kept};
use crate::ask::AskError;

const NOT_SAID: &str = "its /server_info does not say it";

const NO_EVENTS: &str = "its /server_info has no `kv_events`, which SGLang has from 0.5.13 on";

/// `/server_info`. Whatever is of another kind than it was counts as not said.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Info {
    #[serde(deserialize_with = "lenient")]
    version: Option<String>,
    #[serde(deserialize_with = "lenient")]
    page_size: Option<u32>,
    #[serde(deserialize_with = "lenient")]
    dp_size: Option<u16>,
    #[serde(deserialize_with = "lenient")]
    max_total_num_tokens: Option<u64>,
    #[serde(deserialize_with = "lenient")]
    disable_radix_cache: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    enable_cache_report: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    disaggregation_mode: Option<String>,
    #[serde(deserialize_with = "lenient")]
    disaggregation_bootstrap_port: Option<u16>,
    /// Adapters in memory, where there is a limit, and in one batch.
    #[serde(deserialize_with = "lenient")]
    max_loaded_loras: Option<u32>,
    #[serde(deserialize_with = "lenient")]
    max_loras_per_batch: Option<u32>,
    #[serde(deserialize_with = "lenient")]
    enable_lora: Option<bool>,
    /// Absent before 0.5.13; null where nothing is published.
    #[serde(deserialize_with = "present")]
    kv_events: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Events {
    publisher: Option<String>,
    endpoint_host: Option<String>,
    endpoint_port_base: Option<u16>,
    replay_endpoint_port_base: Option<u16>,
    topic: Option<String>,
    block_size: Option<u32>,
    dp_size: Option<u16>,
}

/// Whether it is SGLang, by its own page about itself.
pub(super) async fn recognise(worker: Asked<'_>) -> bool {
    let info = info(worker).await;
    info.is_ok_and(|info| info.version.is_some() && info.page_size.is_some())
}

pub(super) async fn learn(facts: &mut Facts, worker: Asked<'_>) {
    match info(worker).await {
        Ok(info) => facts.take_info(info, worker.url),
        Err(error) => {
            for fact in Facts::OF_ENGINE.into_iter().filter(|fact| *fact != "dialect") {
                facts.miss(fact, &error);
            }
        }
    }
}

async fn info(worker: Asked<'_>) -> Result<Info, AskError> {
    match worker.json("/server_info").await {
        // As it was called before 0.5.
        Err(error) if error.is_unknown() => worker.json("/get_server_info").await,
        answer => answer,
    }
}

impl Facts {
    fn take_info(&mut self, info: Info, url: &HttpUrl) {
        let events: Option<Events> = serde_json::from_value(info.kv_events.clone().unwrap_or_default()).ok();
        self.version = info.version.as_deref().map(kept);
        let told = events.as_ref();
        // Blocks of events are what is hashed, where they differ from pages.
        let size = told.and_then(|events| events.block_size).or(info.page_size);
        self.block_size = size.and_then(BlockSize::new);
        let blocks = info.max_total_num_tokens.zip(self.block_size);
        let blocks = blocks.map(|(tokens, size)| tokens / u64::from(size.get()));
        self.blocks = blocks.and_then(|blocks| u32::try_from(blocks).ok()).map(Blocks);
        let ranks = info.dp_size.or(told.and_then(|events| events.dp_size));
        self.ranks = ranks.filter(|ranks| (1..=MAX_RANKS).contains(ranks));
        let switch = |is_on: bool| if is_on { Switch::On } else { Switch::Off };
        self.prefix_caching = info.disable_radix_cache.map(|is_off| switch(!is_off));
        self.reports_cached = info.enable_cache_report.map(switch);
        self.role = match info.disaggregation_mode.as_deref() {
            Some("prefill") => Some(Role::Prefill),
            Some("decode") => Some(Role::Decode),
            _ => None,
        };
        let meets = self.role == Some(Role::Prefill);
        self.bootstrap = info.disaggregation_bootstrap_port.filter(|port| meets && *port > 0);
        let slots = info
            .max_loaded_loras
            .or(info.max_loras_per_batch)
            .filter(|slots| *slots <= MAX_SLOTS);
        self.adapter_slots = match info.enable_lora {
            Some(false) => Some(0),
            _ => slots,
        };
        let missing = [
            ("version", self.version.is_none()),
            ("block_size", self.block_size.is_none()),
            ("blocks", self.blocks.is_none()),
            ("ranks", self.ranks.is_none()),
            ("prefix_caching", self.prefix_caching.is_none()),
            ("reports_cached", self.reports_cached.is_none()),
        ];
        for (fact, _) in missing.into_iter().filter(|(_, is_missing)| *is_missing) {
            self.miss_because(fact, NOT_SAID);
        }
        match (events, info.kv_events) {
            (None, None) => self.miss_because("events", NO_EVENTS),
            (None, Some(_)) => self.events = Some(EventSource::Nobody),
            (Some(events), _) => match events.source(url) {
                Ok(source) => self.events = Some(source),
                Err(why) => self.miss_because("events", why),
            },
        }
    }
}

impl Events {
    fn source(&self, url: &HttpUrl) -> Result<EventSource, String> {
        let host = self.endpoint_host.as_deref().unwrap_or("*");
        let (Some("zmq"), Some(port)) = (self.publisher.as_deref(), self.endpoint_port_base) else {
            return Ok(EventSource::Nobody);
        };
        let at = |port: u16| near(&format!("tcp://{host}:{port}"), url);
        Ok(EventSource::Stream {
            events: EventsEndpoint {
                mode: EventsMode::Connect,
                endpoint: at(port)?,
            },
            replay: self.replay_endpoint_port_base.map(at).transpose()?,
            topic: self.topic.as_deref().map(kept).unwrap_or_default(),
        })
    }
}

/// A value, or nothing if it is of another kind.
fn lenient<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(serde_json::from_value(value).ok())
}

/// A value that is there, be it null.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}
