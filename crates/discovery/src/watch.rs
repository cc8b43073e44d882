//! Who keeps asking a worker what it is, how it is and how busy it is?

use std::sync::Arc;
use std::time::{Duration, Instant};

use homing_config::HttpUrl;
use homing_domain::WorkerId;
use homing_profile::Time;
use homing_telemetry::Metrics;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::health::Ping;
use crate::load::RankLoad;
use crate::probe::{Facts, ProbeConfig};

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
    /// What it says it is: the first time, and whenever that changed.
    Facts(Arc<Facts>),
    /// How it was when it was asked; goes to [`crate::Health::ping`].
    Ping(Ping),
    /// How busy its ranks are.
    Load(Vec<RankLoad>),
}

/// Makes watchers that share connections, limits and the channel they tell on.
#[derive(Clone, Debug)]
pub struct Watchers {}

/// Watches one worker until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    task: AbortHandle,
}

impl Watchers {
    /// What is learnt goes to `to`. While nobody takes it, questions wait.
    pub fn new(config: WatchConfig, to: mpsc::Sender<Notice>, metrics: &Arc<Metrics>) -> Result<Self, reqwest::Error> {
        let _ = (config, to, metrics);
        todo!()
    }

    /// Begins to watch. The first questions are asked at once, later ones at times that differ between workers.
    pub fn watch(&self, worker: WorkerId, url: &HttpUrl) -> Watcher {
        let _ = (worker, url);
        todo!()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}
