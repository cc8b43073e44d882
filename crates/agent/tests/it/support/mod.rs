//! What tests of the agent need: an engine, what is true of it, an agent, a router.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "tests panic when something goes wrong")]

mod engine;
mod proxy;
mod truth;

use homing_platform::{HttpClient, HttpResponse};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
pub use engine::{Engine, EngineSpec, Start};
use homing_agent::Agent;
use homing_config::{Config, Inputs};
use homing_domain::{DpRank, HashSeed, KeyHasher, RankId};
use homing_feed::{FeedConfig, State};
use homing_index::{Copies, IndexConfig};
use homing_keeper::{AgentConfig, AgentSource, Hooks, Keeper, KeeperConfig, Lanes, LanesConfig};
use homing_telemetry::Metrics;
use homing_wire::frame::{Frame, FrameReader, Heartbeat, MAX_FRAME};
pub use proxy::Proxy;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
pub use truth::{Held, Truth, held};

/// A test that hangs is to fail and not to be waited for.
pub const GUARD: Duration = Duration::from_mins(1);
/// Tokens of a block in all tests.
pub const BLOCK_SIZE: u32 = 16;
/// The one rank of most tests, as an agent and a router number it.
pub const RANK: RankId = RankId::new(0, 0);

pub fn hasher() -> KeyHasher {
    KeyHasher::new(HashSeed::PUBLIC)
}

/// Waits until something holds.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        tokio::time::timeout(GUARD, wait).await.is_ok(),
        "waited in vain until {what}"
    );
}

/// The settings of an agent for these workers, on any port.
pub fn settings(workers: &[String]) -> Config {
    let resolved = homing_config::resolve(&Inputs {
        worker_flags: workers.to_vec(),
        ..Inputs::default()
    });
    let mut config = resolved.unwrap().config;
    config.agent.listen = "127.0.0.1:0".parse().unwrap();
    config.agent.heartbeat = Duration::from_millis(100);
    config.feed.backoff_base = Duration::from_millis(10);
    config
}

/// An agent that runs.
pub struct Running {
    pub address: SocketAddr,
    pub metrics: Arc<Metrics>,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
    pub client: HttpClient,
}

impl Running {
    pub async fn start(config: &Config) -> Self {
        let metrics = Arc::new(Metrics::default());
        let agent = Agent::start(config, metrics.clone()).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        Self {
            address: agent.address().unwrap(),
            metrics,
            stop,
            ended: tokio::spawn(async move {
                let stop = async move { drop(stopped.await) };
                agent.serve(stop).await;
            }),
            client: HttpClient::default(),
        }
    }

    /// Ends it and waits until it has.
    pub async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(GUARD, self.ended).await.unwrap().unwrap();
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub async fn get(&self, path: &str) -> HttpResponse {
        self.client.get(self.url(path)).send().await.unwrap()
    }

    /// What `/v1/ranks` says of a rank of worker 0.
    pub async fn rank(&self, dp: usize) -> serde_json::Value {
        let all: serde_json::Value = self.get("/v1/ranks").await.json().await.unwrap();
        all["ranks"][dp].clone()
    }

    /// Waits until rank 0 can be listed and watched and has read so many batches.
    pub async fn has_read(&self, batches: u64) {
        until("the agent serves all batches", || async {
            let rank = self.rank(0).await;
            rank["served"] == true && rank["position"].as_u64() == batches.checked_sub(1)
        })
        .await;
    }

    /// All frames of a finite answer.
    pub async fn frames(&self, path: &str) -> Vec<Frame> {
        let response = self.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        read_frames(&response.bytes().await.unwrap())
    }
}

pub fn read_frames(bytes: &Bytes) -> Vec<Frame> {
    let mut reader = FrameReader::new(&hasher(), MAX_FRAME);
    reader.push(bytes);
    let frames = std::iter::from_fn(|| reader.next_frame().unwrap()).collect();
    assert_eq!(reader.pending(), 0, "nothing is cut off");
    frames
}

/// A watch that goes on.
pub struct Watching {
    response: HttpResponse,
    reader: FrameReader,
}

impl Watching {
    pub async fn begin(agent: &Running, path: &str) -> Self {
        let response = agent.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        Self {
            response,
            reader: FrameReader::new(&hasher(), MAX_FRAME),
        }
    }

    /// The next frame; `None` when the watch was ended.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.reader.next_frame().unwrap() {
                return Some(frame);
            }
            let piece = tokio::time::timeout(GUARD, self.response.chunk()).await.unwrap();
            self.reader.push(&piece.unwrap()?);
        }
    }

    /// The next heartbeat, and the numbers of the batches before it.
    pub async fn beat(&mut self) -> (Vec<u64>, Heartbeat) {
        let mut numbers = Vec::new();
        let until = Instant::now() + GUARD;
        loop {
            assert!(Instant::now() < until, "no heartbeat");
            match self.next().await.expect("the watch goes on") {
                Frame::Batch(batch) => numbers.push(batch.sequence.0),
                Frame::Heartbeat(beat) => return (numbers, beat),
                _ => {}
            }
        }
    }
}

/// Failed tries are not waited after for long.
pub fn quick() -> FeedConfig {
    FeedConfig {
        backoff_base_ms: 10,
        ..FeedConfig::default()
    }
}

/// A router, as far as its index goes: a keeper that listens to an agent.
pub struct Router {
    pub keeper: Keeper,
    pub metrics: Arc<Metrics>,
}

impl Router {
    pub async fn start(agent: SocketAddr, worker: &str) -> Self {
        Self::with(agent, worker, hasher(), quick()).await
    }

    pub async fn with(agent: SocketAddr, worker: &str, hasher: KeyHasher, feed: FeedConfig) -> Self {
        let metrics = Arc::new(Metrics::default());
        let lanes = LanesConfig {
            threads: 1,
            bound: 4096,
            bytes: 64 << 20,
        };
        let lanes = Lanes::start(lanes, &metrics).unwrap();
        let config = KeeperConfig {
            feed,
            index: IndexConfig::new(hasher),
            hooks: Hooks::default(),
        };
        let keeper = Keeper::start(config, &lanes, Handle::current(), metrics.clone()).unwrap();
        let source = AgentConfig {
            agent: format!("http://{agent}"),
            worker: worker.to_owned(),
            dp: DpRank(0),
            hasher,
            copies: Copies::Counted,
            silence: Duration::from_secs(2),
            backoff: Duration::from_millis(20),
        };
        let source = AgentSource::new(source, HttpClient::default(), metrics.clone());
        keeper.join(RANK, Arc::new(source)).await.unwrap();
        Self { keeper, metrics }
    }

    pub async fn held(&self) -> Held {
        held(&self.keeper.list(RANK).await.unwrap().unwrap().listing)
    }

    pub async fn viewed(&self) -> homing_keeper::ViewedRank {
        self.keeper.view().await.unwrap().ranks.remove(0)
    }

    /// Waits until the view is verified and has exactly this.
    pub async fn converges(&self, truth: &Truth, state: State) {
        let expected = truth.held();
        until("the router's index is what the engine holds", || async {
            let viewed = self.viewed().await;
            // A glance first: lists of a million blocks are not compared in vain.
            let is_as_large = viewed.stats.blocks + viewed.stats.orphans == expected.len() as u64;
            viewed.status.state == state && is_as_large && self.held().await == expected
        })
        .await;
    }
}
