//! Who exists, all sources taken together?

use std::sync::Arc;
use std::time::Duration;

use homing_config::WorkerSpec;
use homing_domain::WorkerId;
use homing_telemetry::Metrics;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::source::{Origin, Source};

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
    /// For how long it is remembered that a worker left: one that comes back sooner flaps, and waits.
    pub flap_window: Duration,
    /// How long it waits the first time; twice as long with every further time, up to `flap_window`.
    pub flap_wait: Duration,
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

/// All sources, at work. They end when it is dropped.
#[derive(Debug)]
pub struct Roster {
    _tasks: JoinSet<()>,
}

impl Roster {
    /// Starts all sources. The first of them wins where two tell of one worker.
    ///
    /// Changes come in order; while nobody takes them, sources wait.
    pub fn start(
        sources: Vec<Box<dyn Source>>,
        config: RosterConfig,
        metrics: &Arc<Metrics>,
    ) -> (Self, mpsc::Receiver<Change>) {
        let _ = (sources, config, metrics);
        todo!()
    }

    /// Who exists now, in the order of their numbers.
    pub fn workers(&self) -> Arc<Vec<Worker>> {
        todo!()
    }

    /// How the sources do, in their order.
    pub fn standing(&self) -> Arc<Vec<SourceStanding>> {
        todo!()
    }
}
