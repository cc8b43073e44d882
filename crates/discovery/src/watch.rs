//! Who keeps asking a worker what it is, how it is and how busy it is?
//!
//! A [`Watcher`] does, one for each worker, until it is dropped. It asks three kinds of questions, each at its own interval, each
//! kind one at a time; what it learns goes to one channel for all workers.
//!
//! **Invariant:** questions do not pile up: one that is slow delays the next of its kind and nothing else, and a load question for
//! which there is no room is left out and counted.
//!
//! **Invariant:** workers that came together are not asked together: pauses are varied at random, the first of them over their
//! whole length.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use homing_config::{AddressScope, Config, HttpUrl};
use homing_domain::WorkerId;
use homing_platform::HttpClient;
use homing_profile::Time;
use homing_telemetry::{Asked, Metrics};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::ask::{AskError, Outward, Question, ScopedClients};
use crate::health::Ping;
use crate::load::{Asking, RankLoad, Scale, Way};
use crate::probe::{EngineProof, Facts, Probe, ProbeConfig};

/// Where a worker is asked how it is. What it says is not read.
const HEALTH: &str = "/health";
/// Bytes of that answer that are read.
const MAX_HEALTH: usize = 64 << 10;
/// Workers that are asked what they are at once; others wait.
const PROBES: usize = 16;
/// The pause before a worker is asked again that did not say what it is; it doubles, up to [`PROBE_AGAIN_MOST`].
const PROBE_AGAIN: Duration = Duration::from_millis(250);
/// The longest such pause.
const PROBE_AGAIN_MOST: Duration = Duration::from_secs(5);

/// How often is asked, and how long is waited.
#[derive(Clone, Debug)]
pub struct WatchConfig {
    /// What [`Notice::at`] counts from.
    pub origin: Instant,
    /// How a worker is asked what it is.
    pub probe: ProbeConfig,
    /// How often that is asked again. It is asked anew as well when a worker answers after it did not.
    pub probe_interval: Duration,
    /// How often a worker is asked how it is.
    pub ping_interval: Duration,
    /// How long that answer may take.
    pub ping_timeout: Duration,
    /// How often a worker is asked how busy it is.
    pub load_interval: Duration,
    /// How long that answer may take.
    pub load_timeout: Duration,
    /// How many workers may be asked how busy they are at once; others are left out this time.
    pub at_once: usize,
}

/// Something that was learnt of a worker.
#[derive(Clone, Debug)]
pub struct Notice {
    /// Of whom.
    pub worker: WorkerId,
    /// When the question was asked, counted from [`WatchConfig::origin`].
    pub at: Time,
    /// What.
    pub news: News,
}

/// What can be learnt of a worker.
#[derive(Clone, Debug)]
pub enum News {
    /// What it says it is, whenever it is asked: also that nothing changed is news where somebody acted meanwhile.
    Facts(Arc<Facts>),
    /// It does not say what it is, and why: the first time, and whenever the reason changed.
    NoFacts(String),
    /// How it was when it was asked; goes to [`crate::Health::ping`].
    Ping(Ping),
    /// How busy its ranks are.
    Load(Vec<RankLoad>),
    /// The adapters of which requests are under way there, whoever sent them.
    Active(BTreeSet<String>),
}

/// Makes watchers that share connections, limits and the channel they tell on.
#[derive(Clone, Debug)]
pub struct Watchers {
    shared: Arc<Shared>,
    to: mpsc::Sender<Notice>,
}

#[derive(Debug)]
struct Shared {
    config: WatchConfig,
    clients: ScopedClients,
    probes: Semaphore,
    loads: Semaphore,
    metrics: Arc<Metrics>,
}

/// Watches one worker until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    task: JoinHandle<()>,
}

impl WatchConfig {
    /// As the operator asked for it.
    pub fn of(config: &Config, origin: Instant) -> Self {
        Self {
            origin,
            probe: ProbeConfig::of(config),
            probe_interval: config.probe.interval,
            ping_interval: config.health.interval,
            ping_timeout: config.health.timeout,
            load_interval: config.load.interval,
            load_timeout: config.load.timeout,
            at_once: config.load.at_once as usize,
        }
    }
}

impl Watchers {
    /// What is learnt goes to `to`. While nobody takes it, questions wait.
    pub fn new(config: WatchConfig, to: mpsc::Sender<Notice>, metrics: &Arc<Metrics>) -> Self {
        Self::speaking(&Outward::default(), config, to, metrics)
    }

    /// The same, for workers with TLS or an API key.
    pub fn speaking(outward: &Outward, config: WatchConfig, to: mpsc::Sender<Notice>, metrics: &Arc<Metrics>) -> Self {
        let shared = Shared {
            clients: outward.clients(),
            probes: Semaphore::new(PROBES),
            loads: Semaphore::new(config.at_once.min(Semaphore::MAX_PERMITS)),
            metrics: metrics.clone(),
            config,
        };
        Self {
            shared: Arc::new(shared),
            to,
        }
    }

    /// Begins to watch: first what it is and how it is, then how busy it is. Must be called within a runtime.
    pub fn watch(&self, worker: WorkerId, url: &HttpUrl) -> Watcher {
        self.watch_scoped(worker, url, AddressScope::Any)
    }

    /// The same for a worker whose addresses have this scope. One that registered itself must show that it is an engine.
    pub fn watch_scoped(&self, worker: WorkerId, url: &HttpUrl, scope: AddressScope) -> Watcher {
        let client = self.shared.clients.of(scope).clone();
        let watching = Watching {
            probe: Probe::with_client(client.clone(), self.shared.config.probe.clone()),
            client,
            proof: match scope.loopback_use() {
                None => EngineProof::None,
                Some(_) => EngineProof::Required,
            },
            shared: self.shared.clone(),
            to: self.to.clone(),
            worker,
            url: url.clone(),
            known: Mutex::new(None),
            is_back: Notify::new(),
            is_known: Notify::new(),
        };
        Watcher {
            task: tokio::spawn(watching.run()),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Nobody takes what is learnt.
struct Over;

struct Watching {
    shared: Arc<Shared>,
    client: HttpClient,
    probe: Probe,
    /// What it must show before it is taken for an engine.
    proof: EngineProof,
    to: mpsc::Sender<Notice>,
    worker: WorkerId,
    url: HttpUrl,
    /// What it said last that it is. Written by the one who probes, read by the one who asks for loads.
    known: Mutex<Option<Arc<Facts>>>,
    /// Told when a worker answers after it did not.
    is_back: Notify,
    /// Told when it is known for the first time what it is.
    is_known: Notify,
}

impl Watching {
    async fn run(self) {
        // Whichever ends first does so because nobody listens.
        tokio::select! {
            _ = self.probes() => {}
            _ = self.pings() => {}
            _ = self.loads() => {}
        }
    }

    async fn probes(&self) -> Result<(), Over> {
        let config = &self.shared.config;
        let (mut again, mut trouble) = (PROBE_AGAIN, String::new());
        loop {
            let (at, asked) = {
                let Ok(_permit) = self.shared.probes.acquire().await else {
                    return Err(Over);
                };
                (self.now(), self.probe.ask_with(&self.url, self.proof).await)
            };
            let outcome = asked.as_ref().map_or_else(|error| error.outcome, |_| Asked::Answered);
            self.shared.metrics.discovery.asked_probes.of(outcome).add(1);
            let pause = match asked {
                Ok(facts) => {
                    again = PROBE_AGAIN;
                    trouble.clear();
                    self.learn(at, facts).await?;
                    varied(config.probe_interval)
                }
                Err(error) => {
                    if trouble != error.why {
                        trouble.clone_from(&error.why);
                        self.tell(at, News::NoFacts(error.why)).await?;
                    }
                    again = (again * 2).min(PROBE_AGAIN_MOST);
                    varied(again.min(config.probe_interval))
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.is_back.notified() => {}
            }
        }
    }

    async fn learn(&self, at: Time, facts: Facts) -> Result<(), Over> {
        let before = self.known().filter(|before| **before == facts);
        if let Some(same) = before {
            return self.tell(at, News::Facts(same)).await;
        }
        let facts = Arc::new(facts);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(facts.clone());
        self.is_known.notify_one();
        self.tell(at, News::Facts(facts)).await
    }

    async fn pings(&self) -> Result<(), Over> {
        let config = &self.shared.config;
        let mut before = None;
        let mut pause = first_pause(config.ping_interval);
        loop {
            let at = self.now();
            let question = Question {
                client: &self.client,
                url: &self.url,
                path: HEALTH,
                timeout: config.ping_timeout,
                limit: MAX_HEALTH,
            };
            let (ping, outcome) = match question.stream(|_| ()).await {
                Ok(()) => (Ping::Answered, Asked::Answered),
                // It is there and has no such page: that is an answer of what an operator calls an engine.
                Err(error) if error.is_unknown() && self.proof == EngineProof::None => {
                    (Ping::Answered, Asked::Answered)
                }
                Err(AskError::TimedOut(_)) => (Ping::TimedOut, Asked::TimedOut),
                Err(_) => (Ping::Failed, Asked::Failed),
            };
            self.shared.metrics.discovery.asked_pings.of(outcome).add(1);
            self.tell(at, News::Ping(ping)).await?;
            if ping == Ping::Answered && before.is_some_and(|before| before != Ping::Answered) {
                self.is_back.notify_one();
            }
            before = Some(ping);
            tokio::time::sleep(pause).await;
            pause = varied(config.ping_interval);
        }
    }

    async fn loads(&self) -> Result<(), Over> {
        let config = &self.shared.config;
        let metrics = &self.shared.metrics.discovery;
        // What to ask for depends on what it is.
        self.is_known.notified().await;
        let mut way: Option<Way> = None;
        let mut pause = first_pause(config.load_interval);
        loop {
            tokio::time::sleep(pause).await;
            pause = varied(config.load_interval);
            let Ok(_permit) = self.shared.loads.try_acquire() else {
                metrics.asked_polls.of(Asked::Skipped).add(1);
                continue;
            };
            let facts = self.known();
            let ways = match way {
                Some(way) => vec![way],
                None => Way::of(facts.as_ref().and_then(|facts| facts.dialect)).to_vec(),
            };
            let asked = Instant::now();
            let asking = Asking {
                client: &self.client,
                url: &self.url,
                timeout: config.load_timeout,
                at: self.now(),
                scale: facts.map(|facts| scale(&facts)).unwrap_or_default(),
            };
            let mut outcome = None;
            for candidate in ways {
                match candidate.ask(&asking).await {
                    Ok(polled) => {
                        way = Some(candidate);
                        outcome = Some(Asked::Answered);
                        metrics.poll_duration.observe(asked.elapsed());
                        self.tell(asking.at, News::Load(polled.loads)).await?;
                        if let Some(active) = polled.active {
                            self.tell(asking.at, News::Active(active)).await?;
                        }
                        break;
                    }
                    Err(error) => {
                        outcome = Some(error.outcome());
                        // Another engine may be there by now, which is asked in another way.
                        way = None;
                        if !error.is_answer() {
                            break;
                        }
                    }
                }
            }
            if let Some(outcome) = outcome {
                metrics.asked_polls.of(outcome).add(1);
            }
        }
    }

    fn known(&self) -> Option<Arc<Facts>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn now(&self) -> Time {
        let passed = self.shared.config.origin.elapsed();
        Time(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
    }

    async fn tell(&self, at: Time, news: News) -> Result<(), Over> {
        let worker = self.worker;
        self.to.send(Notice { worker, at, news }).await.map_err(|_| Over)
    }
}

fn scale(facts: &Facts) -> Scale {
    Scale {
        block_size: facts.block_size,
        blocks: facts.blocks,
    }
}

/// A pause of about this length.
fn varied(pause: Duration) -> Duration {
    pause.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// A pause of at most this length: workers that came together part here.
fn first_pause(pause: Duration) -> Duration {
    pause.mul_f64(fastrand::f64())
}
