//! Who exists, all sources taken together?
//!
//! [`Roster::start`] runs all sources and gives one stream of [`Change`]s. What is decided is decided by the ledger; here are the
//! tasks and the clock around it.
//!
//! **Invariant:** nothing waits without a bound: [`TOLD`] words of sources and [`CHANGES`] changes wait; beyond that sources wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use homing_config::{Config, HttpUrl, WorkerSpec};
use homing_domain::WorkerId;
use homing_profile::Time;
use homing_telemetry::Metrics;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::ledger::Ledger;
use crate::source::{Origin, Source, Tell, Told};

/// Words of sources that wait to be taken.
pub const TOLD: usize = 64;
/// Changes that wait to be taken.
pub const CHANGES: usize = 1024;

/// A worker that somebody told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its number: given here, never given again.
    pub id: WorkerId,
    /// What was said of it.
    pub spec: Arc<WorkerSpec>,
    /// Who said it. Where several did, the first of them in the order of the sources.
    pub origin: Origin,
}

/// What happened to the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A worker is there.
    Came(Worker),
    /// Labels, role or origin of a worker are others now. Whatever else changes makes it another worker: it leaves, and comes with
    /// a new number.
    Changed(Worker),
    /// A worker is gone.
    Left(WorkerId),
}

/// How sources are taken together.
#[derive(Clone, Debug)]
pub struct RosterConfig {
    /// How long a worker is kept that is missing without being meant to be.
    pub linger: Duration,
    /// For how long it is remembered that a worker left. One that left more than once in that time flaps, and waits before it is
    /// taken again.
    pub flap_window: Duration,
    /// How long it waits after it left for the second time; twice as long with every further time, up to `flap_window`.
    pub flap_wait: Duration,
}

impl RosterConfig {
    /// As the operator asked for it.
    pub fn of(config: &Config) -> Self {
        Self {
            linger: config.discovery.linger,
            flap_window: config.discovery.flap_window,
            flap_wait: config.discovery.flap_wait,
        }
    }
}

/// How a source does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStanding {
    /// Which.
    pub origin: Origin,
    /// How many workers it told of last; `None` if it has not told of any set yet.
    pub workers: Option<usize>,
    /// Why it cannot say what is there now, if it cannot.
    pub trouble: Option<String>,
}

/// A worker that is told of and is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which.
    pub url: HttpUrl,
    /// Why, in words.
    pub why: String,
}

/// What holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Who exists, in the order of their numbers.
    pub workers: Vec<Worker>,
    /// How the sources do, in their order.
    pub sources: Vec<SourceStanding>,
    /// Who is told of and is not taken.
    pub refused: Vec<Refused>,
}

/// All sources, at work. They end when it is dropped.
#[derive(Debug)]
pub struct Roster {
    standing: watch::Receiver<Arc<Standing>>,
    /// Aborted when they are dropped.
    _tasks: JoinSet<()>,
}

impl Roster {
    /// Starts all sources. The first of them wins where two tell of one worker. Must be called within a runtime.
    ///
    /// Changes come in the order in which they happened; while nobody takes them, sources wait.
    pub fn start(
        sources: Vec<Box<dyn Source>>,
        config: RosterConfig,
        metrics: &Arc<Metrics>,
    ) -> (Self, mpsc::Receiver<Change>) {
        let (to, told) = mpsc::channel(TOLD);
        let (out, changes) = mpsc::channel(CHANGES);
        let ledger = Ledger::new(config, sources.iter().map(|source| source.origin()).collect());
        let standing = Standing {
            sources: ledger.standing(),
            ..Standing::default()
        };
        let (show, standing) = watch::channel(Arc::new(standing));
        let mut tasks = JoinSet::new();
        for (place, source) in sources.into_iter().enumerate() {
            tasks.spawn(source.run(Tell { place, to: to.clone() }));
        }
        let merging = Merging {
            ledger,
            told,
            // Kept, so that the channel stays open when all sources have told what there is to tell.
            _open: to,
            out,
            show,
            metrics: metrics.clone(),
            began: Instant::now(),
        };
        tasks.spawn(merging.run());
        let roster = Self {
            standing,
            _tasks: tasks,
        };
        (roster, changes)
    }

    /// What holds now. It may be ahead of the changes that were taken.
    pub fn standing(&self) -> Arc<Standing> {
        self.standing.borrow().clone()
    }
}

struct Merging {
    ledger: Ledger,
    told: mpsc::Receiver<(usize, Told)>,
    _open: mpsc::Sender<(usize, Told)>,
    out: mpsc::Sender<Change>,
    show: watch::Sender<Arc<Standing>>,
    metrics: Arc<Metrics>,
    began: Instant,
}

impl Merging {
    async fn run(mut self) {
        loop {
            let wake = self.ledger.wake().map(|time| self.began + Duration::from_nanos(time.0));
            let waited = async {
                match wake {
                    Some(wake) => tokio::time::sleep_until(wake.into()).await,
                    None => std::future::pending().await,
                }
            };
            let changes = tokio::select! {
                told = self.told.recv() => match told {
                    Some((place, told)) => {
                        self.count(place, &told);
                        let now = self.now();
                        self.ledger.take(now, place, told)
                    }
                    None => return,
                },
                () = waited => {
                    let now = self.now();
                    self.ledger.tick(now)
                }
            };
            self.publish();
            for change in changes {
                self.note(&change);
                if self.out.send(change).await.is_err() {
                    return;
                }
            }
        }
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn publish(&mut self) {
        for remark in self.ledger.remarks() {
            tracing::warn!("{remark}");
        }
        let standing = Standing {
            workers: self.ledger.workers(),
            sources: self.ledger.standing(),
            refused: self.ledger.refused(),
        };
        let metrics = &self.metrics.discovery;
        metrics.known_workers.set(standing.workers.len() as u64);
        metrics.refused_workers.set(standing.refused.len() as u64);
        // Nobody who looks is nobody who minds.
        let _ = self.show.send(Arc::new(standing));
    }

    fn count(&self, place: usize, told: &Told) {
        if let (Told::Failed { .. }, Some(source)) = (told, self.ledger.standing().get(place)) {
            self.metrics.discovery.source_failures.of(source.origin.kind).add(1);
        }
    }

    fn note(&self, change: &Change) {
        let metrics = &self.metrics.discovery;
        match change {
            Change::Came(worker) => {
                metrics.came_workers.add(1);
                tracing::info!("worker {} came, {}: {}", worker.id.0, worker.origin, worker.spec);
            }
            Change::Changed(worker) => {
                tracing::info!("worker {} changed, {}: {}", worker.id.0, worker.origin, worker.spec);
            }
            Change::Left(id) => {
                metrics.left_workers.add(1);
                tracing::info!("worker {} left", id.0);
            }
        }
    }
}
