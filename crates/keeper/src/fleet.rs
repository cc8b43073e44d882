//! From what the operator asked for to keepers that listen: one for each model and block size.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use homing_config::config::{Agent, Events as EventsConfig};
use homing_config::{AddressRules, Config, EventSource, EventsEndpoint, EventsMode, LoopbackUse, WorkerSpec};
use homing_domain::{BlockSize, DpRank, KeyHasher, ModelName, RankId, WorkerId};
use homing_feed::FeedConfig;
use homing_index::IndexConfig;
use homing_platform::{HttpClient, HttpClientConfig};
use homing_telemetry::Metrics;
use homing_transport::zmq::{
    AddressFilter, Backoff, Endpoint, EndpointError, Exposure, Heartbeat, Limits, Patience, ReplayConfig,
    SubscribeConfig,
};
use homing_wire::DecoderConfig;
use thiserror::Error;
use tokio::runtime::Handle;

use crate::agent::{AgentConfig, AgentSource};
use crate::client::{self, ClientError};
use crate::engine::{EngineConfig, EngineSource, Events};
use crate::keeper::{Keeper, KeeperConfig, KeeperGone};
use crate::lane::{Lanes, LanesConfig};
use crate::poll::{PollConfig, PollSource};
use crate::source::Source;
use crate::writer::Hooks;

/// After so many of its heartbeats without a byte, an agent is taken to be gone.
const AGENT_BEATS: u32 = 4;
/// The longest wait before an engine's event socket is tried again: an engine that starts is to be heard from its first batch
/// on, and what it keeps for a replay may be short.
const CONNECT_AGAIN: Duration = Duration::from_millis(500);
/// How long to wait before an agent is connected to again.
const AGENT_BACKOFF: Duration = Duration::from_millis(200);

/// What an index is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// The model.
    pub model: ModelName,
    /// How many tokens make a block.
    pub block_size: BlockSize,
}

impl Subject {
    /// What the index that a worker is in is of.
    pub fn of(spec: &WorkerSpec) -> Self {
        Self {
            model: spec.model.clone(),
            block_size: spec.block_size,
        }
    }
}

/// A worker of the fleet.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its number: its place in the configuration.
    pub id: WorkerId,
    /// What was said about it.
    pub spec: WorkerSpec,
}

/// All workers, and the keepers of their indexes.
#[derive(Debug)]
pub struct Fleet {
    members: Vec<Member>,
    keepers: BTreeMap<Subject, Keeper>,
    hasher: KeyHasher,
}

/// Why a fleet cannot be listened to.
#[derive(Debug, Error)]
pub enum FleetError {
    /// Threads cannot be started.
    #[error("cannot start a thread: {0}")]
    Threads(#[from] std::io::Error),
    /// The HTTP client for agents cannot be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An address is not one that our sockets take.
    #[error("worker {worker}: {reason}")]
    Endpoint {
        /// Whose.
        worker: String,
        /// What is wrong.
        reason: EndpointError,
    },
    /// An index refused a rank.
    #[error("worker {worker}: {reason}")]
    Keeper {
        /// Whose.
        worker: String,
        /// Why.
        reason: KeeperGone,
    },
}

impl Fleet {
    /// Starts keepers for the workers of a configuration, and listens to all of them. `hooks` is asked once for each
    /// index what else its writer is to do.
    pub async fn start(
        config: &Config,
        metrics: &Arc<Metrics>,
        mut hooks: impl FnMut(&Subject) -> Hooks,
    ) -> Result<Self, FleetError> {
        let lanes = Lanes::start(lanes_config(config), metrics)?;
        let hasher = KeyHasher::new(config.hash_seed);
        let sources = Sources::new(config, metrics)?;
        let mut fleet = Self {
            members: Vec::new(),
            keepers: BTreeMap::new(),
            hasher,
        };
        for (number, spec) in (0..).zip(&config.workers) {
            let subject = Subject::of(spec);
            if !fleet.keepers.contains_key(&subject) {
                let keeper = KeeperConfig {
                    feed: feed_config(config, WorkerId(number)),
                    index: index_config(config, hasher),
                    hooks: hooks(&subject),
                };
                let keeper = Keeper::start(keeper, &lanes, Handle::current(), metrics.clone())?;
                fleet.keepers.insert(subject.clone(), keeper);
            }
            let keeper = &fleet.keepers[&subject];
            for (dp, source) in spec.rank_sources() {
                let source = sources.of(spec, dp, &source).map_err(|reason| FleetError::Endpoint {
                    worker: spec.url.to_string(),
                    reason,
                })?;
                let Some(source) = source else { continue };
                let rank = RankId::new(number, dp.0);
                keeper.join(rank, source).await.map_err(|reason| FleetError::Keeper {
                    worker: spec.url.to_string(),
                    reason,
                })?;
            }
            fleet.members.push(Member {
                id: WorkerId(number),
                spec: spec.clone(),
            });
        }
        Ok(fleet)
    }

    /// All workers, in the order of their numbers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The worker with this number.
    pub fn member(&self, worker: WorkerId) -> Option<&Member> {
        self.members.get(worker.0 as usize)
    }

    /// All indexes.
    pub fn keepers(&self) -> impl Iterator<Item = (&Subject, &Keeper)> {
        self.keepers.iter()
    }

    /// The indexes of a model: one for each of its block sizes.
    pub fn of_model<'a>(&'a self, model: &'a ModelName) -> impl Iterator<Item = (&'a Subject, &'a Keeper)> {
        self.keepers.iter().filter(move |(subject, _)| subject.model == *model)
    }

    /// What makes keys here.
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// The workers and the keepers, for who has a place of his own for them.
    pub fn into_parts(self) -> (Vec<Member>, BTreeMap<Subject, Keeper>) {
        (self.members, self.keepers)
    }
}

/// How batches are decoded, as the operator asked for it.
pub fn lanes_config(config: &Config) -> LanesConfig {
    LanesConfig {
        threads: config.events.threads as usize,
        bound: config.events.lane_batches as usize,
        bytes: config.events.lane_bytes,
    }
}

/// The limits of the feed of an index, as the operator asked for them. `first` is the first worker in it.
pub fn feed_config(config: &Config, first: WorkerId) -> FeedConfig {
    config.feed.to_feed(u64::from(first.0) + 1)
}

/// The bounds of an index, as the operator asked for them.
pub fn index_config(config: &Config, hasher: KeyHasher) -> IndexConfig {
    IndexConfig {
        capacity: u64::from(config.index.capacity.0),
        orphans_per_rank: config.index.orphans_per_rank.0 as usize,
        max_ranks: config.index.max_ranks as usize,
        ..IndexConfig::new(hasher)
    }
}

/// Makes sources, as the operator asked for them.
#[derive(Debug)]
pub struct Sources {
    agent: Agent,
    events: EventsConfig,
    hasher: KeyHasher,
    /// For engines.
    client: HttpClient,
    /// For agents.
    agent_client: HttpClient,
    registered: Option<RegisteredAccess>,
    metrics: Arc<Metrics>,
}

/// How the sources of workers are reached that registered themselves: at addresses that the rules allow, judged whenever they are used.
#[derive(Clone, Debug)]
pub struct RegisteredAccess {
    /// The rules.
    pub rules: Arc<AddressRules>,
    /// Resolves names by the rules, for workers on other machines.
    pub remote_client: HttpClient,
    /// The same for workers on this machine.
    pub local_client: HttpClient,
}

impl Sources {
    /// All sources share their connections and what they count.
    pub fn new(config: &Config, metrics: &Arc<Metrics>) -> Result<Self, ClientError> {
        let client = HttpClientConfig {
            connect_timeout: config.events.connect_timeout,
            ..HttpClientConfig::default()
        };
        Ok(Self {
            agent: config.agent.clone(),
            events: config.events.clone(),
            hasher: KeyHasher::new(config.hash_seed),
            client: HttpClient::new(client),
            agent_client: client::agent_client(config)?,
            registered: None,
            metrics: metrics.clone(),
        })
    }

    /// The same, where workers can register themselves.
    #[must_use]
    pub fn with_registered(self, access: RegisteredAccess) -> Self {
        Self {
            registered: Some(access),
            ..self
        }
    }

    /// The client for the sources of a worker.
    fn client(&self, spec: &WorkerSpec) -> HttpClient {
        let client = match (spec.scope.loopback_use(), &self.registered) {
            (Some(LoopbackUse::Listed), Some(access)) => &access.remote_client,
            (Some(LoopbackUse::Allowed), Some(access)) => &access.local_client,
            (None, _) | (_, None) => &self.client,
        };
        client.clone()
    }

    /// The client for a worker's agent. The token of agents is not sent to an agent that a registration names.
    fn client_of_agent(&self, spec: &WorkerSpec) -> HttpClient {
        match spec.scope.loopback_use() {
            None => self.agent_client.clone(),
            Some(_) => self.client(spec),
        }
    }

    /// Which addresses the sockets of a worker's events may lead to.
    fn filter(&self, spec: &WorkerSpec) -> Option<AddressFilter> {
        let (loopback, access) = spec.scope.loopback_use().zip(self.registered.as_ref())?;
        let rules = access.rules.clone();
        Some(AddressFilter::new(move |address| {
            rules.check(address, loopback).map_err(|denied| denied.to_string())
        }))
    }

    /// Where the events of one rank of a worker come from, if anybody is listened to.
    pub fn of(
        &self,
        spec: &WorkerSpec,
        dp: DpRank,
        source: &EventSource,
    ) -> Result<Option<Arc<dyn Source>>, EndpointError> {
        let decoder = DecoderConfig {
            dialect: spec.dialect,
            hasher: self.hasher,
            block_size: spec.block_size,
        };
        Ok(match source {
            EventSource::Nobody => None,
            EventSource::Agent(agent) => Some(Arc::new(AgentSource::new(
                AgentConfig {
                    agent: agent.to_string(),
                    worker: spec.url.to_string(),
                    dp,
                    hasher: self.hasher,
                    copies: spec.copies,
                    silence: self.agent.heartbeat * AGENT_BEATS,
                    backoff: AGENT_BACKOFF,
                },
                self.client_of_agent(spec),
                self.metrics.clone(),
            ))),
            EventSource::Stream { events, replay, topic } => {
                let replay = replay.as_ref().map(|endpoint| endpoint.to_string().parse());
                let engine = EngineConfig {
                    events: events_of(events)?,
                    replay: replay.transpose()?,
                    decoder,
                    copies: spec.copies,
                    subscribe: SubscribeConfig {
                        filter: self.filter(spec),
                        ..self.subscribe(topic)
                    },
                    ask: ReplayConfig {
                        limits: self.limits(),
                        patience: self.patience(),
                        filter: self.filter(spec),
                        ..ReplayConfig::default()
                    },
                };
                Some(Arc::new(EngineSource::new(engine, self.metrics.clone())))
            }
            EventSource::Poll(url) => Some(Arc::new(PollSource::new(
                PollConfig {
                    url: url.to_string(),
                    decoder,
                    copies: spec.copies,
                    interval: self.agent.poll_interval,
                    timeout: self.events.connect_timeout,
                    max_bytes: self.events.max_message_bytes,
                },
                self.client(spec),
                self.metrics.clone(),
            ))),
        })
    }

    fn subscribe(&self, topic: &str) -> SubscribeConfig {
        let interval = self.events.heartbeat;
        SubscribeConfig {
            topic: topic.as_bytes().to_vec().into(),
            limits: self.limits(),
            heartbeat: Heartbeat {
                interval,
                timeout: interval.mul_f64(1.5),
            },
            patience: self.patience(),
            backoff: Backoff {
                most: CONNECT_AGAIN,
                ..Backoff::default()
            },
            filter: None,
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            message_bytes: u32::try_from(self.events.max_message_bytes).unwrap_or(u32::MAX),
            ..Limits::default()
        }
    }

    fn patience(&self) -> Patience {
        Patience {
            dial: self.events.connect_timeout,
            handshake: self.events.connect_timeout,
            ..Patience::default()
        }
    }
}

fn events_of(events: &EventsEndpoint) -> Result<Events, EndpointError> {
    let endpoint: Endpoint = events.endpoint.to_string().parse()?;
    Ok(match events.mode {
        EventsMode::Connect => Events::Connect(endpoint),
        // A port without a host is the loopback's; another host was asked for in so many words.
        EventsMode::Bind => Events::Bind(endpoint, Exposure::Network),
    })
}
