//! Who can tell of workers?
//!
//! A [`Source`] tells whole sets, never differences: a set that is told twice changes nothing, one that was missed is made good by
//! the next, and a source which can tell nothing says so and leaves what it told before as it was.
//!
//! What is to come (etcd, NATS) is another implementation of the same trait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use homing_config::{Reader, Resolved, WorkerSpec};
pub use homing_telemetry::SourceKind;
use tokio::sync::{mpsc, watch};

use crate::dns::{Dns, DnsConfig};
use crate::file::FileSource;
use crate::registrations::Registrations;

/// The work of a source.
pub type Telling = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Who tells of workers.
pub trait Source: Send {
    /// What it is, for logs and for [`crate::Worker::origin`].
    fn origin(&self) -> Origin;

    /// Tells until it is dropped, or until there is nothing more to tell: what it told last then holds for good. It may wait and
    /// may fail; it must not block a thread.
    fn run(self: Box<Self>, tell: Tell) -> Telling;
}

/// Which source, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Of which kind it is.
    pub kind: SourceKind,
    /// What an operator would call it: `from flag --worker`, `dns:vllm.svc:8000`.
    pub words: Arc<str>,
}

/// What a source says.
#[derive(Clone, Debug)]
pub enum Told {
    /// These workers exist, and no others.
    Set {
        /// All of them. No two have the same address; of those that have, the first counts.
        workers: Vec<Arc<WorkerSpec>>,
        /// How sure it is that those who are missing are gone.
        absence: Absence,
    },
    /// It cannot say. What it told before holds.
    Failed {
        /// Why, in words.
        why: String,
    },
}

/// What it means that a worker is missing in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It is gone: somebody said so.
    Meant,
    /// It may come back in the next answer; it is gone when it was missing for a while.
    Doubtful,
}

/// Where a source tells what it knows. Waits while the roster is behind.
#[derive(Clone, Debug)]
pub struct Tell {
    pub(crate) place: usize,
    pub(crate) to: mpsc::Sender<(usize, Told)>,
}

impl Tell {
    /// Tells. `Err` means that nobody listens any more, and that the source may end.
    pub async fn tell(&self, told: Told) -> Result<(), NobodyListens> {
        self.to.send((self.place, told)).await.map_err(|_| NobodyListens)
    }
}

/// The roster is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody listens to this source any more")]
pub struct NobodyListens;

/// Sources, and what else their file says.
pub struct Sources {
    /// Strongest first, for [`crate::Roster::start`].
    pub sources: Vec<Box<dyn Source>>,
    /// Told of other settings when the file changes; `None` where there is no file.
    pub settings: Option<watch::Receiver<Arc<Resolved>>>,
}

/// All sources that the settings ask for, strongest first: the workers that were named, then those who registered, then those who
/// were found.
///
/// Which places are looked at is settled at the start: `discover` in a file that changes is not read again.
pub fn all(reader: &Reader, resolved: &Resolved, registrations: &Registrations) -> Sources {
    let config = &resolved.config;
    let (named, settings): (Box<dyn Source>, _) = if reader.file().is_some() {
        let interval = config.discovery.file_interval;
        let (source, settings) = FileSource::new(reader.clone(), resolved.clone(), interval);
        (Box::new(source), Some(settings))
    } else {
        let named = Static::new(config.workers.clone(), &resolved.workers_source);
        (Box::new(named), None)
    };
    let mut sources = vec![named, registrations.source()];
    for place in &config.discover {
        let dns = Dns::new(place, config.worker_defaults(), DnsConfig::of(config));
        sources.push(Box::new(dns));
    }
    Sources { sources, settings }
}

/// Workers that were named once and for all.
#[derive(Debug)]
pub struct Static {
    workers: Vec<Arc<WorkerSpec>>,
    origin: Origin,
}

impl Static {
    /// `place` says where they were named.
    pub fn new(workers: Vec<WorkerSpec>, place: &homing_config::Source) -> Self {
        Self {
            workers: workers.into_iter().map(Arc::new).collect(),
            origin: Origin::new(SourceKind::Static, &place.to_string()),
        }
    }
}

impl Source for Static {
    fn origin(&self) -> Origin {
        self.origin.clone()
    }

    fn run(self: Box<Self>, tell: Tell) -> Telling {
        Box::pin(async move {
            let told = Told::Set {
                workers: self.workers,
                absence: Absence::Meant,
            };
            // Nobody who listens is nobody who needs it.
            let _ = tell.tell(told).await;
        })
    }
}

impl Origin {
    /// An origin of this kind, called so.
    pub fn new(kind: SourceKind, words: &str) -> Self {
        Self {
            kind,
            words: words.into(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}
