//! From what the operator asked for to engines that can be made.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use homing_config::{Config, KvConnector, Mock, MockDialect, MockTier};
use homing_domain::{BlockSize, Blocks, ModelName, Role, Tier, Tokens};
use homing_engine::config::{AdapterConfig, Barrier, ConfigError, Order, PrefixCaching, Style};
use homing_engine::pool::TierConfig;
use homing_engine::{EngineConfig, Events, Tracing};
use homing_profile::{GigabytesPerSecond, Millis, Polynomial, Profile, ProfileError, Timing, builtin};
use homing_tokenize::{Clock, Dialect, LoadError, PromptOptions, Prompter, Tokenizer};
use homing_transport::zmq::{Endpoint, EndpointError, SetupError};
use thiserror::Error;

use crate::faults::Faults;
use crate::feed::Places;
use crate::tokenizer::Codec;
use crate::told::Form;

/// The profile that is none, but a few coefficients.
const POLYNOMIAL: &str = "polynomial";

/// Why there is no engine.
#[derive(Debug, Error)]
pub enum StartError {
    /// The address is none.
    #[error("`{0}` is no IP address (`mock.host`)")]
    Host(String),
    /// The ports of all workers do not fit.
    #[error("{workers} workers from port {port} on are more than there are ports")]
    Ports {
        /// The first.
        port: u16,
        /// How many.
        workers: u16,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address} (`mock.port`): {error}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The address at which KV is fetched cannot be listened on.
    #[error("cannot listen on {address} (`mock.kv-port`): {error}")]
    KvListen {
        /// Which.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// An engine of one kind does not hand KV over as one of the other.
    #[error("{dialect} does not hand KV over by `{connector}` (`mock.kv-connector`)")]
    Connector {
        /// Which engine.
        dialect: &'static str,
        /// How it was to do it.
        connector: &'static str,
    },
    /// The profile cannot be used.
    #[error("the profile cannot be used: {0}")]
    Profile(#[from] ProfileError),
    /// The file of the profile cannot be read.
    #[error("the profile cannot be read: {0}")]
    ProfileFile(String),
    /// The folder gives no tokenizer.
    #[error("`mock.tokenizer`: {0}")]
    Tokenizer(#[from] LoadError),
    /// The settings make no engine.
    #[error("the settings make no engine: {0}")]
    Engine(#[from] ConfigError),
    /// An address of events is none.
    #[error("`{setting}`: {error}")]
    Endpoint {
        /// Which.
        setting: &'static str,
        /// Why.
        error: EndpointError,
    },
    /// The ports of ranks do not fit, or meet.
    #[error("`{setting}`: {ranks} ranks need as many ports, and there are not so many from {endpoint} on")]
    EventPorts {
        /// Which.
        setting: &'static str,
        /// The first.
        endpoint: Endpoint,
        /// How many.
        ranks: usize,
    },
    /// Two sockets want one port.
    #[error(
        "{first} and {second} both want port {port}; put `mock.port`, `mock.events` and `mock.replay` further apart"
    )]
    SamePort {
        /// Which.
        port: u16,
        /// Who wants it.
        first: String,
        /// Who else.
        second: String,
    },
    /// A socket of events cannot be made.
    #[error("the events of worker {worker} rank {rank} cannot be told: {error}")]
    Events {
        /// Whose.
        worker: u16,
        /// Which of its ranks.
        rank: u16,
        /// Why.
        error: SetupError,
    },
    /// The trace of blocks cannot be written.
    #[error("`{file}` cannot be written (`mock.kv-trace`): {error}")]
    Trace {
        /// Which.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// What all workers have in common.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) engine: EngineConfig,
    pub(crate) codec: Codec,
    pub(crate) form: Form,
    pub(crate) faults: Faults,
    pub(crate) model: ModelName,
    pub(crate) mock: Mock,
    host: IpAddr,
}

impl Settings {
    pub(crate) fn new(config: &Config) -> Result<Self, StartError> {
        let mock = &config.mock;
        let host = mock.host.parse().map_err(|_| StartError::Host(mock.host.clone()))?;
        let (port, workers) = (mock.port, mock.workers);
        if port != 0 && port.checked_add(workers - 1).is_none() {
            return Err(StartError::Ports { port, workers });
        }
        let kv = mock.kv.port;
        if kv != 0 && kv.checked_add(workers - 1).is_none() {
            return Err(StartError::Ports { port: kv, workers });
        }
        match (mock.dialect, mock.kv.connector) {
            (MockDialect::Vllm, KvConnector::Sglang) | (MockDialect::Sglang, KvConnector::Nixl) => {
                return Err(StartError::Connector {
                    dialect: mock.dialect.name(),
                    connector: mock.kv.connector.name(),
                });
            }
            _ => (),
        }
        let codec = match &mock.tokenizer {
            None => Codec::Bytes,
            Some(folder) if mock.chat_template.is_on() => {
                let dialect = match mock.dialect {
                    MockDialect::Vllm => Dialect::Vllm,
                    MockDialect::Sglang => Dialect::Sglang,
                };
                let clock = Clock::new(|| crate::core::unix_seconds() as i64);
                Codec::Templated(Arc::new(Prompter::load(folder, PromptOptions::new(dialect, clock))?))
            }
            Some(folder) => Codec::Model(Arc::new(Tokenizer::load(folder)?)),
        };
        let settings = Self {
            engine: engine(mock, config.block_size, &codec)?,
            codec,
            form: Form {
                dialect: mock.dialect,
                format: mock.events.format,
                fields: mock.events.fields,
                block_size: config.block_size.get(),
            },
            faults: Faults::new(&mock.faults),
            model: config.model.clone(),
            mock: mock.clone(),
            host,
        };
        settings.check_ports()?;
        Ok(settings)
    }

    /// Whether every socket has a port of its own. Addresses are not looked at: ports that meet on two of them are a mistake, too.
    fn check_ports(&self) -> Result<(), StartError> {
        let mut wanted = BTreeMap::new();
        let mut want = |port: u16, who: String| match wanted.insert(port, who.clone()) {
            Some(first) if port != 0 => Err(StartError::SamePort {
                port,
                first,
                second: who,
            }),
            _ => Ok(()),
        };
        for worker in 0..self.mock.workers {
            want(self.address(worker).port(), format!("worker {worker}"))?;
            if let Some(address) = self.kv_address(worker) {
                want(address.port(), format!("the KV of worker {worker}"))?;
            }
            for rank in 0..self.mock.dp_size {
                let places = self.places(worker, rank)?;
                let bound = places.publish.filter(|_| !places.connects);
                for (what, endpoint) in [("events", bound), ("replay", places.replay)] {
                    if let Some(Endpoint::Tcp { port, .. }) = endpoint {
                        want(port, format!("the {what} of worker {worker} rank {rank}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Where a worker listens.
    pub(crate) fn address(&self, worker: u16) -> SocketAddr {
        let port = match self.mock.port {
            0 => 0,
            port => port + worker,
        };
        SocketAddr::new(self.host, port)
    }

    /// Where others fetch the KV of a worker, where it is handed over.
    pub(crate) fn kv_address(&self, worker: u16) -> Option<SocketAddr> {
        let kv = &self.mock.kv;
        let port = match kv.port {
            0 => 0,
            port => port.saturating_add(worker),
        };
        (kv.connector != KvConnector::None).then_some(SocketAddr::new(self.host, port))
    }

    /// Where a rank tells of its cache.
    pub(crate) fn places(&self, worker: u16, rank: u16) -> Result<Places, StartError> {
        let events = &self.mock.events;
        let ranks = usize::from(self.mock.workers) * usize::from(self.mock.dp_size);
        let place = usize::from(worker) * usize::from(self.mock.dp_size) + usize::from(rank);
        let at = |setting: &'static str, text: &Option<String>| match text {
            None => Ok::<_, StartError>(None),
            Some(text) => {
                let endpoint: Endpoint = text.parse().map_err(|error| StartError::Endpoint { setting, error })?;
                let moved = moved(&endpoint, place).ok_or(StartError::EventPorts {
                    setting,
                    endpoint,
                    ranks,
                })?;
                Ok(Some(moved))
            }
        };
        Ok(Places {
            publish: at("mock.events", &events.publish)?,
            connects: events.connects.is_on(),
            replay: at("mock.replay", &events.replay)?,
            topic: Bytes::from(events.topic.clone()),
            high_water: events.high_water as usize,
            ring_batches: events.ring_batches as usize,
            ring_bytes: events.ring_bytes,
            format: events.format,
        })
    }
}

/// The endpoint so many places after this one.
fn moved(endpoint: &Endpoint, by: usize) -> Option<Endpoint> {
    match endpoint {
        Endpoint::Tcp { host, port: 0 } => Some(Endpoint::Tcp {
            host: host.clone(),
            port: 0,
        }),
        Endpoint::Tcp { host, port } => Some(Endpoint::Tcp {
            host: host.clone(),
            port: port.checked_add(u16::try_from(by).ok()?)?,
        }),
        Endpoint::Ipc(_) if by == 0 => Some(endpoint.clone()),
        Endpoint::Ipc(path) => Some(Endpoint::Ipc(format!("{}_dp{by}", path.display()).into())),
    }
}

fn engine(mock: &Mock, block_size: BlockSize, codec: &Codec) -> Result<EngineConfig, StartError> {
    let timing = timing(mock)?;
    let mut engine = match mock.dialect {
        MockDialect::Vllm => EngineConfig::vllm(mock.blocks, timing),
        MockDialect::Sglang => EngineConfig::sglang(mock.blocks, timing),
    };
    if let Style::Vllm(vllm) = &mut engine.style {
        vllm.max_batched_tokens = mock.max_batched_tokens;
        // Requests without a priority are served as they came.
        vllm.order = Order::Priority;
    }
    let capacity = u64::from(mock.blocks.0) * u64::from(block_size.get());
    let told = mock.events.publish.is_some() || mock.events.replay.is_some();
    Ok(EngineConfig {
        block_size,
        max_model_len: Tokens(mock.max_model_len.0.min(u32::try_from(capacity).unwrap_or(u32::MAX))),
        max_running: mock.max_running,
        max_waiting: mock.max_waiting,
        ranks: mock.dp_size,
        adapters: AdapterConfig {
            slots: mock.max_loras,
            load: Millis(mock.lora_load.as_secs_f64() * 1e3),
        },
        prefix_caching: if mock.prefix_caching.is_on() && !forgets(mock) {
            PrefixCaching::On
        } else {
            PrefixCaching::Off
        },
        vocabulary: codec.vocabulary(),
        barrier: if mock.dp_barrier.is_on() {
            Barrier::EachStep
        } else {
            Barrier::Off
        },
        tiers: tiers(mock),
        tracing: if mock.kv_trace.is_some() {
            Tracing::On
        } else {
            Tracing::Off
        },
        events: if told { Events::WithTokens } else { Events::Off },
        ..engine
    })
}

/// Whether it is a decode worker of SGLang, which keeps nothing for later unless it is told to.
fn forgets(mock: &Mock) -> bool {
    let decodes = mock.kv.connector == KvConnector::Sglang && mock.kv.role == Role::Decode;
    decodes && !mock.kv.decode_radix_cache.is_on()
}

/// Where blocks go that leave the device.
fn tiers(mock: &Mock) -> Vec<TierConfig> {
    let tier = |tier, kept: MockTier| {
        (kept.blocks > Blocks(0)).then_some(TierConfig {
            tier,
            capacity: kept.blocks,
            onboard: GigabytesPerSecond(kept.speed),
        })
    };
    let all = [tier(Tier::Host, mock.host_tier), tier(Tier::Disk, mock.disk_tier)];
    all.into_iter().flatten().collect()
}

fn timing(mock: &Mock) -> Result<Timing, StartError> {
    let profile = match &mock.profile_file {
        Some(path) => {
            let text = homing_config::read_text(path).map_err(|error| StartError::ProfileFile(error.to_string()))?;
            Profile::from_json(&text.text)?
        }
        None if mock.profile == POLYNOMIAL => return Ok(Timing::Polynomial(Polynomial::default())),
        None => builtin::load(&mock.profile)?,
    };
    Ok(Timing::Measured {
        profile: Arc::new(profile),
        overhead: homing_profile::DEFAULT_OVERHEAD,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_the_next_port() {
        let at = |text: &str, by| moved(&text.parse().unwrap(), by).map(|endpoint| endpoint.to_string());
        assert_eq!(at("tcp://*:5557", 2).as_deref(), Some("tcp://*:5559"));
        assert_eq!(at("tcp://*:0", 2).as_deref(), Some("tcp://*:0"));
        assert_eq!(at("tcp://*:65535", 1), None);
        assert_eq!(at("ipc:///run/x", 0).as_deref(), Some("ipc:///run/x"));
        assert_eq!(at("ipc:///run/x", 3).as_deref(), Some("ipc:///run/x_dp3"));
    }

    #[test]
    fn what_cannot_be_is_said() {
        let said = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            match Settings::new(&config).and_then(|settings| settings.places(0, 0)) {
                Ok(_) => "nothing".to_owned(),
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(said(|_| ()), "nothing");
        assert!(said(|config| config.mock.host = "x".into()).contains("mock.host"));
        assert!(said(|config| config.mock.profile = "x".into()).contains("h200-llama-3.1-8b"));
        assert!(said(|config| config.mock.events.publish = Some("x".into())).contains("mock.events"));
        assert!(said(|config| (config.mock.port, config.mock.workers) = (65_535, 2)).contains("65535"));
        assert!(
            said(|config| config.mock.tokenizer = Some("/nowhere".into())).contains("`mock.tokenizer`: `/nowhere`")
        );
        let near = said(|config| {
            config.mock.dp_size = 2;
            config.mock.events.publish = Some("tcp://*:5557".into());
            config.mock.events.replay = Some("tcp://*:5558".into());
        });
        assert!(
            near.starts_with("the replay of worker 0 rank 0 and the events of worker 0 rank 1 both want port 5558"),
            "{near}"
        );
        let web = said(|config| {
            config.mock.events.publish = Some("tcp://*:8000".into());
        });
        assert!(
            web.starts_with("worker 0 and the events of worker 0 rank 0 both want port 8000"),
            "{web}"
        );
    }
}
