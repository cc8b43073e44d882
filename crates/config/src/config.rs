//! What is true, once all that was typed is read?
//!
//! Small structs of domain types. A value of [`Config`] comes from [`crate::resolve()`] only, so whoever holds one knows
//! that every field is in its range and that all checks across fields hold.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use homing_domain::{BlockSize, Blocks, HashSeed, ModelName};
use homing_feed::FeedConfig;
use homing_index::Copies;

use crate::adapters::AdapterLimits;
use crate::choices::{COPIES, CacheView, LogFormat, LogLevel};
use crate::disagg::Disagg;
use crate::discover::Discover;
use crate::discovery::{Discovery, HealthLimits, Polling, Probing};
use crate::mock::Mock;
use crate::security::{HttpServer, HttpServerKnobs};
use crate::serve::Serve;
use crate::table::KnobId;
use crate::values::{NONE, Values};
use crate::worker::{AddressScope, WithoutSource, WorkerDefaults, WorkerSpec};

/// All settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Tokens per block.
    pub block_size: BlockSize,
    /// The model of workers and requests that do not name one.
    pub model: ModelName,
    /// The seed of the block hash.
    pub hash_seed: HashSeed,
    /// What an index may keep.
    pub index: IndexLimits,
    /// `homing index`.
    pub indexer: Indexer,
    /// What keeps views right.
    pub feed: FeedLimits,
    /// How events come in.
    pub events: Events,
    /// `homing agent`.
    pub agent: Agent,
    /// The view of engines that report nothing.
    pub approximate: Approximate,
    /// How workers are looked for.
    pub discovery: Discovery,
    /// How workers are asked what they are.
    pub probe: Probing,
    /// How workers are asked how busy they are.
    pub load: Polling,
    /// When a worker is taken for ill.
    pub health: HealthLimits,
    /// Logs.
    pub log: Log,
    /// Traces of requests.
    pub traces: Traces,
    /// `homing serve`.
    pub serve: Serve,
    /// Requests that two workers serve.
    pub disagg: Disagg,
    /// Where adapters are put.
    pub adapters: AdapterLimits,
    /// `homing demo`.
    pub demo: Demo,
    /// `homing mock`.
    pub mock: Mock,
    /// The workers, in the order in which they were written.
    pub workers: Vec<WorkerSpec>,
    /// Where else workers are looked for, in the order in which it was written.
    pub discover: Vec<Discover>,
}

/// What an index may keep, and how it reads its events.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexLimits {
    /// Where knowledge of caches comes from.
    pub cache_view: CacheView,
    /// Distinct blocks.
    pub capacity: Blocks,
    /// Ranks at once.
    pub max_ranks: u32,
    /// Blocks without a known parent, per rank.
    pub orphans_per_rank: Blocks,
    /// How a repeated announcement is understood.
    pub copies: Copies,
    /// The time over which uses are counted.
    pub heat_window: Duration,
}

/// `homing index`.
#[derive(Clone, Debug, PartialEq)]
pub struct Indexer {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The longest request, in bytes.
    pub max_request_bytes: u64,
    /// Where it records what it hears, if it does.
    pub record: Option<PathBuf>,
    /// The recording that it rebuilds its index from, if it does not listen.
    pub from: Option<PathBuf>,
    /// Who may ask, and how.
    pub http: HttpServer,
}

/// Logs.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// How much is logged.
    pub level: LogLevel,
    /// How a line is written.
    pub format: LogFormat,
}

/// Traces of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Traces {
    /// The collector, as it was written; `None` where nothing is traced.
    pub endpoint: Option<String>,
    /// The share of requests whose client says nothing.
    pub share: f64,
    /// What we are called.
    pub service: String,
    /// Requests whose spans wait.
    pub queue: u32,
}

/// What keeps views right: limits and times of the feed.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedLimits {
    /// The time within which a live view was verified.
    pub verify_within: Duration,
    /// Batches kept per rank during a repair.
    pub buffer_batches: u32,
    /// Blocks in them.
    pub buffer_blocks: Blocks,
    /// Repairs under way at once.
    pub max_repairs: u32,
    /// When a repair that brings nothing is tried again.
    pub repair_timeout: Duration,
    /// The longest that one try may take.
    pub repair_limit: Duration,
    /// The pause after the first failed try.
    pub backoff_base: Duration,
    /// Tries before a repair has failed for good.
    pub repair_tries: u32,
    /// Repairs in a row that count as a failure.
    pub repairs_in_a_row: u32,
    /// When a failed repair is begun again.
    pub retry_after: Duration,
    /// Unknown removals within `drift_window` that are evidence of drift.
    pub drift_unknown_removals: u32,
    /// The time over which they are counted.
    pub drift_window: Duration,
    /// The least time between repairs because of drift.
    pub drift_cooldown: Duration,
}

/// How events come in.
#[derive(Clone, Debug, PartialEq)]
pub struct Events {
    /// Threads that decode and hash.
    pub threads: u32,
    /// Batches that may wait in a lane.
    pub lane_batches: u32,
    /// Bytes of batches between the sockets of a lane and the index.
    pub lane_bytes: u64,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How often a quiet connection is tested.
    pub heartbeat: Duration,
    /// The longest message that is read, in bytes.
    pub max_message_bytes: u64,
    /// The directory in which local sockets must be, if there is one.
    pub socket_dir: Option<PathBuf>,
}

/// `homing agent`.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Batches kept per rank for those who watch.
    pub ring_batches: u32,
    /// Bytes that they may take.
    pub ring_bytes: u64,
    /// How often those who watch are told how far it is.
    pub heartbeat: Duration,
    /// How often engines that are polled are polled.
    pub poll_interval: Duration,
    /// Who may ask, and how. Its token is also what is sent to other agents.
    pub http: HttpServer,
    /// The certificates that vouch for other agents; `None`: those that the system trusts.
    pub ca: Option<PathBuf>,
}

/// The view of engines that report nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Approximate {
    /// How long a routed block is taken to be there.
    pub ttl: Duration,
    /// Blocks before pruning.
    pub max_blocks: Blocks,
    /// The share of `max_blocks` that pruning leaves.
    pub prune_target_ratio: f64,
}

/// `homing demo`. How its workers pretend is in [`Mock`].
#[derive(Clone, Debug, PartialEq)]
pub struct Demo {
    /// How long it runs.
    pub duration: Duration,
    /// Workers that it begins with.
    pub workers: u32,
    /// People who talk to it.
    pub users: u32,
    /// Blocks that each worker can cache.
    pub cache: Blocks,
    /// One of so many messages of events is lost; 0: none.
    pub drop_every: u32,
    /// What is said is generated from it.
    pub seed: u64,
}

impl Config {
    /// What holds for workers that do not say it themselves; who can do without events asks for [`WorkerDefaults::learning`].
    pub fn worker_defaults(&self) -> WorkerDefaults {
        WorkerDefaults {
            model: self.model.clone(),
            block_size: self.block_size,
            cache_view: self.index.cache_view,
            without_source: WithoutSource::Refuse,
            copies: self.index.copies,
            scope: AddressScope::Any,
            socket_dir: self.events.socket_dir.clone(),
        }
    }

    /// The configuration that these values describe, without workers.
    pub(crate) fn build(of: &Values<'_>) -> Self {
        Self {
            block_size: BlockSize::new(of.small(KnobId::BlockSize)).expect("the range of block sizes begins above 0"),
            model: ModelName::new(of.name(KnobId::Model)),
            hash_seed: of.seed(KnobId::HashSeed),
            index: IndexLimits {
                cache_view: of.choice(CacheView::ALL, KnobId::CacheView),
                capacity: Blocks(of.small(KnobId::Capacity)),
                max_ranks: of.small(KnobId::MaxRanks),
                orphans_per_rank: Blocks(of.small(KnobId::OrphansPerRank)),
                copies: of.choice(COPIES, KnobId::Copies),
                heat_window: of.time(KnobId::HeatWindow),
            },
            indexer: Indexer {
                listen: of.address(KnobId::IndexListen),
                max_request_bytes: of.size(KnobId::IndexMaxRequest),
                record: of.file(KnobId::IndexRecord),
                from: of.file(KnobId::IndexFrom),
                http: HttpServer::build(
                    of,
                    &HttpServerKnobs {
                        connections: KnobId::IndexMaxConnections,
                        per_client: KnobId::IndexMaxPerClient,
                        cert: KnobId::IndexTlsCert,
                        key: KnobId::IndexTlsKey,
                        token: KnobId::IndexToken,
                    },
                ),
            },
            feed: FeedLimits::build(of),
            events: Events {
                threads: of.small(KnobId::EventsThreads),
                lane_batches: of.small(KnobId::EventsLaneBatches),
                lane_bytes: of.size(KnobId::EventsLaneBytes),
                connect_timeout: of.time(KnobId::EventsConnectTimeout),
                heartbeat: of.time(KnobId::EventsHeartbeat),
                max_message_bytes: of.size(KnobId::EventsMaxMessage),
                socket_dir: of.file(KnobId::EventsSocketDir),
            },
            agent: Agent {
                listen: of.address(KnobId::AgentListen),
                ring_batches: of.small(KnobId::AgentRingBatches),
                ring_bytes: of.size(KnobId::AgentRingBytes),
                heartbeat: of.time(KnobId::AgentHeartbeat),
                poll_interval: of.time(KnobId::AgentPollInterval),
                http: HttpServer::build(
                    of,
                    &HttpServerKnobs {
                        connections: KnobId::AgentMaxConnections,
                        per_client: KnobId::AgentMaxPerClient,
                        cert: KnobId::AgentTlsCert,
                        key: KnobId::AgentTlsKey,
                        token: KnobId::AgentToken,
                    },
                ),
                ca: of.file(KnobId::AgentCa),
            },
            approximate: Approximate {
                ttl: of.time(KnobId::ApproximateTtl),
                max_blocks: Blocks(of.small(KnobId::ApproximateMaxBlocks)),
                prune_target_ratio: of.ratio(KnobId::ApproximatePruneTargetRatio),
            },
            discovery: Discovery::build(of),
            probe: Probing::build(of),
            load: Polling::build(of),
            health: HealthLimits::build(of),
            log: Log {
                level: of.choice(LogLevel::ALL, KnobId::LogLevel),
                format: of.choice(LogFormat::ALL, KnobId::LogFormat),
            },
            traces: Traces::build(of),
            serve: Serve::build(of),
            disagg: Disagg::build(of),
            adapters: AdapterLimits::build(of),
            demo: Demo::build(of),
            mock: Mock::build(of),
            workers: Vec::new(),
            discover: Vec::new(),
        }
    }
}

impl Demo {
    fn build(of: &Values<'_>) -> Self {
        Self {
            duration: of.time(KnobId::DemoDuration),
            workers: of.small(KnobId::DemoWorkers),
            users: of.small(KnobId::DemoUsers),
            cache: Blocks(of.small(KnobId::DemoCache)),
            drop_every: of.small(KnobId::DemoDropEvery),
            seed: of.count(KnobId::DemoSeed),
        }
    }
}

impl Traces {
    fn build(of: &Values<'_>) -> Self {
        Self {
            endpoint: of.name_unless(NONE, KnobId::TraceEndpoint),
            share: of.ratio(KnobId::TraceShare),
            service: of.name(KnobId::TraceService),
            queue: of.small(KnobId::TraceQueue),
        }
    }
}

impl FeedLimits {
    fn build(of: &Values<'_>) -> Self {
        Self {
            verify_within: of.time(KnobId::FeedVerifyWithin),
            buffer_batches: of.small(KnobId::FeedBufferBatches),
            buffer_blocks: Blocks(of.small(KnobId::FeedBufferBlocks)),
            max_repairs: of.small(KnobId::FeedMaxRepairs),
            repair_timeout: of.time(KnobId::FeedRepairTimeout),
            repair_limit: of.time(KnobId::FeedRepairLimit),
            backoff_base: of.time(KnobId::FeedBackoffBase),
            repair_tries: of.small(KnobId::FeedRepairTries),
            repairs_in_a_row: of.small(KnobId::FeedRepairsInARow),
            retry_after: of.time(KnobId::FeedRetryAfter),
            drift_unknown_removals: of.small(KnobId::FeedDriftUnknownRemovals),
            drift_window: of.time(KnobId::FeedDriftWindow),
            drift_cooldown: of.time(KnobId::FeedDriftCooldown),
        }
    }

    /// The same for the feed itself, which draws its jitter from `seed`.
    pub fn to_feed(&self, seed: u64) -> FeedConfig {
        let millis = |time: Duration| u64::try_from(time.as_millis()).expect("ranges of times end far below");
        let feed = FeedConfig {
            verify_within_ms: millis(self.verify_within),
            buffer_batches: self.buffer_batches as usize,
            buffer_blocks: self.buffer_blocks.0 as usize,
            max_repairs: self.max_repairs as usize,
            repair_timeout_ms: millis(self.repair_timeout),
            repair_limit_ms: millis(self.repair_limit),
            backoff_base_ms: millis(self.backoff_base),
            repair_tries: self.repair_tries,
            repairs_in_a_row: self.repairs_in_a_row,
            retry_after_ms: millis(self.retry_after),
            drift_unknown_removals: self.drift_unknown_removals,
            drift_window_ms: millis(self.drift_window),
            drift_cooldown_ms: millis(self.drift_cooldown),
            ..FeedConfig::default()
        };
        FeedConfig { seed, ..feed }
    }
}

impl Default for Config {
    /// Every knob at its default.
    fn default() -> Self {
        Self::build(&Values::new(&|id: KnobId| {
            let knob = id.knob();
            knob.parse(knob.default).expect("a test parses every default")
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_feed_are_its_own() {
        let own = FeedConfig::default();
        let ours = Config::default().feed.to_feed(own.seed);
        assert_eq!(format!("{ours:?}"), format!("{own:?}"));
    }
}
