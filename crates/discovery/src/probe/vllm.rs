//! What does vLLM say of itself?

use std::collections::BTreeMap;

use homing_config::worker::Endpoint;
use homing_config::{EventSource, EventsEndpoint, EventsMode, HttpUrl, Switch};
use homing_domain::{BlockSize, Blocks};
use serde::Deserialize;

use super::{Asked, Facts, MAX_RANKS, MAX_SLOTS, kept};
use crate::activity::ADAPTERS;
use crate::ask::AskError;
use crate::lines::{Lines, Sample};

const CACHE: &str = "vllm:cache_config_info";
const RUNNING: &str = "vllm:num_requests_running";
const NO_CACHE: &str = "its metrics do not have vllm:cache_config_info";
const NOT_TOLD: &str =
    "vLLM does not say whether it runs with --enable-prompt-tokens-details; its first answer shows it";

#[derive(Debug, Deserialize)]
struct Version {
    version: String,
}

/// An entry of `/kv_event_sources`.
#[derive(Debug, Deserialize)]
struct Events {
    #[serde(rename = "enable_kv_cache_events")]
    is_on: Option<bool>,
    publisher: Option<String>,
    endpoint: Option<String>,
    replay_endpoint: Option<String>,
    topic: Option<String>,
}

/// What its metrics say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    is_vllm: bool,
    cache: Option<Cache>,
    /// Adapters that fit at once.
    slots: Option<u32>,
    /// One more than the highest number of an engine.
    engines: u16,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Cache {
    block_size: Option<u32>,
    blocks: Option<u32>,
    prefix_caching: Option<Switch>,
}

/// Whether it is vLLM, by its metrics.
pub(super) async fn recognise(worker: Asked<'_>) -> bool {
    page(worker).await.is_ok_and(|page| page.is_vllm)
}

pub(super) async fn learn(facts: &mut Facts, worker: Asked<'_>) {
    let (version, page, sources) = tokio::join!(
        worker.json::<Version>("/version"),
        page(worker),
        worker.json::<BTreeMap<u16, Events>>("/kv_event_sources"),
    );
    match version {
        Ok(version) => facts.version = Some(kept(&version.version)),
        Err(error) => facts.miss("version", &error),
    }
    let engines = match page {
        Ok(page) => {
            facts.adapter_slots = page.slots;
            facts.take_cache(&page.cache.unwrap_or_default());
            page.engines
        }
        Err(error) => {
            for fact in ["block_size", "blocks", "prefix_caching"] {
                facts.miss(fact, &error);
            }
            0
        }
    };
    facts.miss_because("reports_cached", NOT_TOLD);
    let told = facts.take_sources(sources, worker.url);
    // Both count from what they happened to see; neither sees more than there are.
    match engines.max(told) {
        0 => facts.miss_because("ranks", "neither its metrics nor its event sources name any"),
        ranks => facts.ranks = Some(ranks.min(MAX_RANKS)),
    }
}

async fn page(worker: Asked<'_>) -> Result<Page, AskError> {
    let (mut lines, mut page) = (Lines::default(), Page::default());
    let question = worker.question("/metrics");
    question
        .stream(|piece| lines.take(piece, |line| page.see(line)))
        .await?;
    lines.end(|line| page.see(line));
    Ok(page)
}

impl Page {
    fn see(&mut self, line: &[u8]) {
        if !line.starts_with(b"vllm:") {
            return;
        }
        self.is_vllm = true;
        let Some(sample) = Sample::of(line, &[CACHE, RUNNING, ADAPTERS]) else {
            return;
        };
        if sample.name == ADAPTERS.as_bytes() {
            self.slots = sample
                .number("max_lora")
                .filter(|slots| *slots <= MAX_SLOTS)
                .or(self.slots);
            return;
        }
        let engine: u16 = sample.number("engine").unwrap_or(0);
        self.engines = self.engines.max(engine.saturating_add(1));
        // All engines of a worker are set up alike; one that is still starting says `None`.
        if sample.name == CACHE.as_bytes() && self.cache.as_ref().is_none_or(|cache| cache.blocks.is_none()) {
            self.cache = Some(Cache {
                block_size: sample.number("block_size"),
                blocks: sample.number("num_gpu_blocks"),
                prefix_caching: match sample.label("enable_prefix_caching") {
                    Some("True") => Some(Switch::On),
                    Some("False") => Some(Switch::Off),
                    _ => None,
                },
            });
        }
    }
}

impl Facts {
    fn take_cache(&mut self, cache: &Cache) {
        self.block_size = cache.block_size.and_then(BlockSize::new);
        self.blocks = cache.blocks.filter(|blocks| *blocks > 0).map(Blocks);
        self.prefix_caching = cache.prefix_caching;
        let missing = [
            ("block_size", self.block_size.is_none()),
            ("blocks", self.blocks.is_none()),
            ("prefix_caching", self.prefix_caching.is_none()),
        ];
        for (fact, _) in missing.into_iter().filter(|(_, is_missing)| *is_missing) {
            self.miss_because(fact, NO_CACHE);
        }
    }

    /// Takes where events are, and says how many ranks were named.
    fn take_sources(&mut self, sources: Result<BTreeMap<u16, Events>, AskError>, url: &HttpUrl) -> u16 {
        let sources = match sources {
            Ok(sources) => sources,
            Err(error) if error.is_unknown() => {
                self.miss_because("events", "it has no /kv_event_sources, which vLLM has from 0.27 on");
                return 0;
            }
            Err(error) => {
                self.miss("events", &error);
                return 0;
            }
        };
        let ranks = sources.keys().max().map_or(0, |last| last.saturating_add(1));
        match sources.get(&0) {
            None => self.events = Some(EventSource::Nobody),
            Some(events) => match events.source(url) {
                Ok(source) => self.events = Some(source),
                Err(why) => self.miss_because("events", why),
            },
        }
        ranks
    }
}

impl Events {
    fn source(&self, url: &HttpUrl) -> Result<EventSource, String> {
        let is_on = self.is_on != Some(false);
        let (Some(endpoint), true, Some("zmq")) = (&self.endpoint, is_on, self.publisher.as_deref()) else {
            return Ok(EventSource::Nobody);
        };
        let events = near(endpoint, url)?;
        // vLLM binds what stands for all interfaces, and local sockets, and connects to everything else; but where it was left
        // to choose a port it tells its own address. So an address that is not known to be its own may be ours or anybody's.
        let is_bound = match &events {
            Endpoint::Tcp { host, .. } => host == url.host(),
            Endpoint::Ipc { .. } => true,
        };
        if !is_bound {
            return Err(format!(
                "its publisher is at {events} or connects there, and does not say which: say events={events} or \
                 events=bind:{events}"
            ));
        }
        let replay = self.replay_endpoint.as_deref().map(|endpoint| near(endpoint, url));
        Ok(EventSource::Stream {
            events: EventsEndpoint {
                mode: EventsMode::Connect,
                endpoint: events,
            },
            replay: replay.transpose()?,
            topic: self.topic.as_deref().map(kept).unwrap_or_default(),
        })
    }
}

/// An endpoint as it is connected to: all interfaces of the worker are its host, for us.
pub(super) fn near(endpoint: &str, url: &HttpUrl) -> Result<Endpoint, String> {
    let host = match url.host() {
        host if host.contains(':') => format!("[{host}]"),
        host => host.to_owned(),
    };
    let text = ["*", "0.0.0.0", "[::]", "::"].iter().find_map(|all| {
        let port = endpoint.strip_prefix("tcp://")?.strip_prefix(all)?.strip_prefix(':')?;
        Some(format!("tcp://{host}:{port}"))
    });
    let text = text.unwrap_or_else(|| endpoint.to_owned());
    Endpoint::parse(&text).map_err(|fault| format!("it publishes at {}, which {fault}", kept(endpoint)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> HttpUrl {
        HttpUrl::parse(text).unwrap()
    }

    #[test]
    fn all_interfaces_are_its_host() {
        let near = |endpoint: &str, worker: &str| match near(endpoint, &url(worker)) {
            Ok(endpoint) => endpoint.to_string(),
            Err(why) => why,
        };
        assert_eq!(near("tcp://*:5557", "http://10.0.0.1:8000"), "tcp://10.0.0.1:5557");
        assert_eq!(
            near("tcp://0.0.0.0:5557", "http://[fd00::1]:8000"),
            "tcp://[fd00::1]:5557"
        );
        assert_eq!(near("tcp://:::5557", "http://a"), "tcp://a:5557");
        assert_eq!(near("tcp://127.0.0.1:5557", "http://a"), "tcp://127.0.0.1:5557");
        assert_eq!(
            near("inproc://x", "http://a"),
            "it publishes at inproc://x, which must begin with tcp:// or ipc://"
        );
    }

    #[test]
    fn a_publisher_that_may_connect_is_said() {
        let events = |endpoint: &str| Events {
            is_on: Some(true),
            publisher: Some("zmq".to_owned()),
            endpoint: Some(endpoint.to_owned()),
            replay_endpoint: None,
            topic: None,
        };
        let why = events("tcp://router:5557").source(&url("http://a")).unwrap_err();
        assert!(
            why.starts_with("its publisher is at tcp://router:5557 or connects there"),
            "{why}"
        );
        for bound in ["tcp://*:5557", "tcp://0.0.0.0:5557", "tcp://a:5557", "ipc:///run/x"] {
            assert!(events(bound).source(&url("http://a")).is_ok(), "{bound}");
        }
        let off = Events {
            publisher: Some("null".to_owned()),
            ..events("tcp://*:5557")
        };
        assert_eq!(off.source(&url("http://a")), Ok(EventSource::Nobody));
    }

    #[test]
    fn the_page_is_read_by_its_names() {
        let mut page = Page::default();
        for line in [
            "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} 1e9",
            "vllm:num_requests_running{engine=\"0\",model_name=\"x\"} 0.0",
            "vllm:num_requests_running{engine=\"3\",model_name=\"x\"} 0.0",
            "vllm:cache_config_info{block_size=\"16\",enable_prefix_caching=\"False\",engine=\"0\",num_gpu_blocks=\"None\"} 1.0",
            "vllm:cache_config_info{block_size=\"16\",enable_prefix_caching=\"False\",engine=\"1\",num_gpu_blocks=\"77\"} 1.0",
        ] {
            page.see(line.as_bytes());
        }
        let cache = Cache {
            block_size: Some(16),
            blocks: Some(77),
            prefix_caching: Some(Switch::Off),
        };
        assert_eq!(
            page,
            Page {
                is_vllm: true,
                cache: Some(cache),
                slots: Some(4),
                engines: 4
            }
        );
    }
}
