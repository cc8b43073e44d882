//! Engines and a gateway before them, in this process, with real sockets between them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use homing_config::security::Security;
use homing_config::{Config, Resolved, Secret, SecretText};
use homing_gateway::Service;
use homing_platform::HttpClient;
use homing_telemetry::{Change, Metrics, Prediction, RepairKind, TryFailure};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::board::Board;
use super::engine::Engine;

/// How long all may take to know of each other.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// Threads of a gateway of which nobody says how many it has. More would be idle.
const THREADS: u32 = 2;

/// Engines and their gateway.
#[derive(Debug)]
pub struct Fleet {
    engines: Vec<Engine>,
    config: Config,
    /// Where requests go.
    pub url: String,
    admin: String,
    metrics: Arc<Metrics>,
    client: HttpClient,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

/// What the gateway counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events that reached the index.
    pub events: u64,
    /// Repairs of views begun.
    pub repairs: u64,
    /// Tries that failed before anything of an answer was passed on.
    pub retried: u64,
    /// Answers that went on at another worker.
    pub migrated: u64,
    /// Predictions of cached tokens that were right.
    pub right: u64,
    /// All of them.
    pub predicted: u64,
}

impl Fleet {
    /// Starts engines with empty caches and a gateway that knows nothing yet but where they are. Done when it takes requests.
    pub async fn start(resolved: &Resolved, policy: &str, board: &Board) -> anyhow::Result<Self> {
        let mut resolved = resolved.clone();
        // Nobody else is let in, whatever holds for other gateways of this machine; whoever comes later proves that it is of the demo.
        let token = SecretText::new(&format!("demo-{:032x}", fastrand::u128(..)));
        let token = token.map_or(Secret::None, Secret::Given);
        resolved.config.serve.security = Security {
            register_token: token.clone(),
            ..Config::default().serve.security
        };
        resolved.config.mock.register_token = token;
        resolved.config.serve.route = None;
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut engines = Vec::new();
        for _ in 0..resolved.config.demo.workers {
            let engine = Engine::start(&resolved.config).await?;
            board.came(&engine.url);
            engines.push(engine);
        }
        let config = &mut resolved.config;
        config.workers = engines.iter().map(|engine| engine.spec.clone()).collect();
        config.discover = Vec::new();
        config.serve.listen = anywhere;
        config.serve.admin = anywhere;
        policy.clone_into(&mut config.serve.policy);
        if config.serve.threads == 0 {
            config.serve.threads = THREADS;
        }
        let metrics = Arc::new(Metrics::default());
        let service = Service::start(&resolved, None, metrics.clone()).await?;
        let (url, admin) = (
            format!("http://{}", service.address()),
            format!("http://{}", service.admin_address()),
        );
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(service.run(async move { drop(stopped.await) }));
        let fleet = Self {
            engines,
            config: resolved.config,
            url,
            admin,
            metrics,
            client: HttpClient::default(),
            stop,
            ended,
        };
        fleet.wait(fleet.engines.len()).await?;
        Ok(fleet)
    }

    /// What the gateway counted so far.
    pub fn counters(&self) -> Counters {
        let Metrics {
            index, feed, gateway, ..
        } = &*self.metrics;
        let judged = |was: Prediction| gateway.judged_predictions.of(was).get();
        Counters {
            events: Change::ALL
                .iter()
                .map(|change| index.applied_events.of(*change).get())
                .sum(),
            repairs: RepairKind::ALL
                .iter()
                .map(|kind| feed.begun_repairs.of(*kind).get())
                .sum(),
            retried: TryFailure::ALL
                .iter()
                .map(|why| gateway.failed_tries.of(*why).get())
                .sum(),
            migrated: gateway.migrated_answers.get(),
            right: judged(Prediction::Equal),
            predicted: [Prediction::Equal, Prediction::Less, Prediction::More]
                .map(judged)
                .iter()
                .sum(),
        }
    }

    /// An engine is gone, in the middle of whatever it does.
    pub fn kill(&mut self, number: usize) {
        if let Some(engine) = self.engines.get_mut(number) {
            engine.kill();
        }
    }

    /// One more engine comes, with an empty cache, and tells the gateway of itself. Done when it takes requests.
    pub async fn add(&mut self, board: &Board) -> anyhow::Result<Duration> {
        let engine = Engine::start(&self.config).await?;
        board.came(&engine.url);
        let began = Instant::now();
        engine.register(&self.admin)?;
        let url = engine.url.clone();
        self.engines.push(engine);
        self.until(|workers| {
            workers
                .iter()
                .any(|worker| worker["url"] == *url && takes_requests(worker))
        })
        .await?;
        Ok(began.elapsed())
    }

    /// Ends the gateway, then the engines.
    pub async fn end(self) -> anyhow::Result<()> {
        drop(self.stop);
        self.ended.await.context("the gateway did not end well")
    }

    async fn wait(&self, count: usize) -> anyhow::Result<()> {
        self.until(|workers| workers.iter().filter(|worker| takes_requests(worker)).count() == count)
            .await
    }

    /// Asks the gateway until it says this of its workers.
    async fn until(&self, is_so: impl Fn(&[Value]) -> bool) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let fleet = self.client.get(format!("{}/admin/fleet", self.admin)).send().await?;
            let fleet: Value = serde_json::from_slice(&fleet.bytes().await?)?;
            if fleet["workers"].as_array().is_some_and(|workers| is_so(workers)) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "the gateway does not find its workers: {fleet}");
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Whether a worker is well and its cache is known, or is not looked at.
fn takes_requests(worker: &Value) -> bool {
    let is_well = worker["health"] == "up" || worker["health"] == "suspect";
    let view = worker["ranks"][0]["view"].as_str().unwrap_or_default();
    is_well && matches!(view, "live" | "warming" | "guess" | "none")
}

impl Counters {
    /// What was counted since.
    pub fn since(self, before: Self) -> Self {
        Self {
            events: self.events - before.events,
            repairs: self.repairs - before.repairs,
            retried: self.retried - before.retried,
            migrated: self.migrated - before.migrated,
            right: self.right - before.right,
            predicted: self.predicted - before.predicted,
        }
    }
}
