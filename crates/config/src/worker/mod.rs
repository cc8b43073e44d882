//! Which workers are there, and where are their events to be had?
//!
//! A worker is written in the same way everywhere: as a flag given again for each (`--worker`), in a variable that takes
//! several, separated by white space (`HOMING_WORKER`), and as tables of the file (`[[worker]]`), whose keys are the same.
//!
//! ```text
//! http://10.0.0.1:8000,events=tcp://10.0.0.1:5557,replay=tcp://10.0.0.1:5567,model=qwen,label=zone=a
//! ```
//!
//! **Invariant:** the workers of a flag replace those of the variable, and they those of the file: lists are not mixed.
//!
//! **Invariant:** a [`WorkerSpec`] written as text reads back as the same, one whose view was assumed where it is assumed as well.
//!
//! - [`keys`]: what can be said about a worker;
//! - [`address`]: where things listen;
//! - `written`: text and tables to items; `draft`: items to values; `across`: what must hold between workers.

pub(crate) mod across;
pub mod address;
pub(crate) mod draft;
pub mod keys;
pub(crate) mod problem;
pub(crate) mod written;

use std::fmt;
use std::path::{Component, Path, PathBuf};

use homing_domain::{BlockSize, DpRank, ModelName, Role};
use homing_index::Copies;
use homing_wire::Dialect;

pub use address::{AddressFault, Endpoint, EventsEndpoint, EventsMode, HttpUrl, Scheme};
pub use keys::{Form, KeyFacts, WorkerKey};
pub use problem::{Span, WorkerName, WorkerProblem};

use crate::address_rules::LoopbackUse;
use crate::choices::{self, COPIES, COPIES_CHOICES, CacheView};
use crate::resolve::Source;
use crate::worker::written::Written;

/// The flag that names a worker.
pub const FLAG: &str = "worker";
/// The variable that names workers.
pub const VARIABLE: &str = "HOMING_WORKER";
/// The key of the file whose tables name workers.
pub const FILE_KEY: &str = "worker";
/// How a worker is written as one text.
pub const SYNTAX: &str = "URL[,KEY=VALUE]...";
/// How many workers can be named.
pub const MAX_WORKERS: usize = 4096;
/// How many labels a worker can have.
pub const MAX_LABELS: usize = 64;
/// Where TensorRT-LLM answers with its events, below its own address.
pub const POLL_PATH: &str = "/kv_cache_events";

/// One worker, with everything that was said about it or holds by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSpec {
    /// Where it takes requests. No two workers of a configuration have the same.
    pub url: HttpUrl,
    /// Where knowledge of its cache comes from.
    pub cache_view: CacheView,
    /// Who chose `cache_view`.
    pub view_by: ViewBy,
    /// Where its events are to be had; [`EventSource::Nobody`] exactly if `cache_view` is not [`CacheView::Events`].
    pub source: EventSource,
    /// Which part of a request it serves.
    pub role: Role,
    /// The model that it serves.
    pub model: ModelName,
    /// The block size of the index that it is in. There is one index per model and block size.
    pub block_size: BlockSize,
    /// What the operator chooses workers by: sorted by key, each key once.
    pub labels: Vec<WorkerLabel>,
    /// How its engine writes events.
    pub dialect: Dialect,
    /// How many data-parallel ranks it has, at least 1. Every one of them has a place in `source`.
    pub ranks: u16,
    /// How a repeated announcement is understood.
    pub copies: Copies,
    /// What its addresses may be.
    pub scope: AddressScope,
}

/// What the addresses of a worker may be, by where the worker was named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressScope {
    /// Flags, variables or the settings file named it: anything.
    #[default]
    Any,
    /// It was found in a directory such as DNS: nothing that is opened on this machine, neither ports nor local sockets.
    Remote,
    /// It registered itself from another machine: the same, and the rules for registered addresses hold.
    Registered,
    /// It registered itself from this machine: the same, and its loopback addresses are allowed.
    RegisteredLocally,
}

/// A key and a value of the operator's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerLabel {
    /// The key, without an equals sign.
    pub key: String,
    /// The value.
    pub value: String,
}

/// Who tells what a worker caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// Nobody is listened to.
    Nobody,
    /// An agent beside the engine.
    Agent(HttpUrl),
    /// The engine itself.
    Stream {
        /// Where rank 0 publishes.
        events: EventsEndpoint,
        /// Where rank 0 sends again what was lost, if it does.
        replay: Option<Endpoint>,
        /// How the topics of events begin; empty for all.
        topic: String,
    },
    /// The engine, when it is asked.
    Poll(HttpUrl),
}

/// Who chose where knowledge of a worker's cache comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewBy {
    /// The operator, for this worker or for all.
    Choice,
    /// Nobody: it shall be known by events, and no source of them was named. One may be learnt from the worker itself.
    Assumption,
}

/// What becomes of a worker that shall be known by events while no source of them is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutSource {
    /// It is refused: who asks can do nothing without events.
    Refuse,
    /// Until one is learnt, its view is approximate ([`ViewBy::Assumption`]). Only a worker that asks for `events` itself is refused.
    #[default]
    Approximate,
}

/// What holds for workers that do not say it themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerDefaults {
    /// The model.
    pub model: ModelName,
    /// The block size.
    pub block_size: BlockSize,
    /// Where knowledge of the cache comes from.
    pub cache_view: CacheView,
    /// What becomes of one without a source of events.
    pub without_source: WithoutSource,
    /// How a repeated announcement is understood.
    pub copies: Copies,
    /// What addresses may be.
    pub scope: AddressScope,
    /// The directory in which local sockets must be, if there is one.
    pub socket_dir: Option<PathBuf>,
}

impl WorkerDefaults {
    /// The same for workers that nobody named one by one: what is not said of them may be learnt.
    #[must_use]
    pub fn learning(&self) -> Self {
        Self {
            without_source: WithoutSource::Approximate,
            ..self.clone()
        }
    }

    /// The same for workers that were named elsewhere than in flags, variables or the settings file.
    #[must_use]
    pub fn scoped(&self, scope: AddressScope) -> Self {
        Self {
            scope,
            ..self.learning()
        }
    }

    /// Whether a local socket that flags, variables or the settings file name may be there.
    pub fn allows_socket(&self, path: &str) -> bool {
        self.socket_dir
            .as_deref()
            .is_none_or(|dir| is_inside(Path::new(path), dir))
    }

    /// Whether a local socket is used that only the engine itself names.
    pub fn allows_learned_socket(&self, path: &str) -> bool {
        self.socket_dir.is_some() && self.allows_socket(path)
    }
}

impl AddressScope {
    /// Whether the rules for registered addresses hold, and what they say about loopback addresses.
    pub fn loopback_use(self) -> Option<LoopbackUse> {
        match self {
            Self::Any | Self::Remote => None,
            Self::Registered => Some(LoopbackUse::Listed),
            Self::RegisteredLocally => Some(LoopbackUse::Allowed),
        }
    }
}

/// Whether a path is below a directory as it is written, without steps upwards.
fn is_inside(path: &Path, directory: &Path) -> bool {
    let mut rest = path
        .strip_prefix(directory)
        .into_iter()
        .flat_map(Path::components)
        .peekable();
    rest.peek().is_some() && rest.all(|part| matches!(part, Component::Normal(_)))
}

impl WorkerSpec {
    /// Reads one worker from text, for those who learn of workers later than settings are read. What must hold between
    /// workers is not looked at.
    pub fn parse(text: &str, defaults: &WorkerDefaults) -> Result<Self, Vec<WorkerProblem>> {
        let written = Written::from_text(text, 1, Source::Default);
        let draft = written.read()?;
        draft.finish(defaults).map_err(|problem| vec![problem])
    }

    /// Its ranks, each with where its own events are to be had.
    pub fn rank_sources(&self) -> impl Iterator<Item = (DpRank, EventSource)> + '_ {
        // A worker whose endpoints have no room for its ranks is refused when it is read.
        (0..self.ranks).filter_map(|dp| Some((DpRank(dp), self.source.of_rank(DpRank(dp))?)))
    }
}

impl EventSource {
    /// That of the rank `dp` if this is that of rank 0; `None` where there is no such port.
    #[must_use]
    pub fn of_rank(&self, dp: DpRank) -> Option<Self> {
        match self {
            Self::Nobody | Self::Agent(_) | Self::Poll(_) => Some(self.clone()),
            Self::Stream { events, replay, topic } => Some(Self::Stream {
                events: events.of_rank(dp)?,
                replay: match replay {
                    Some(replay) => Some(replay.of_rank(dp)?),
                    None => None,
                },
                topic: topic.clone(),
            }),
        }
    }
}

impl fmt::Display for WorkerSpec {
    /// As one text that says everything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.url)?;
        match &self.source {
            EventSource::Nobody => {}
            EventSource::Agent(agent) => write!(f, ",agent={agent}")?,
            EventSource::Poll(url) => write!(f, ",events={url}")?,
            EventSource::Stream { events, replay, topic } => {
                write!(f, ",events={events}")?;
                if let Some(replay) = replay {
                    write!(f, ",replay={replay}")?;
                }
                if !topic.is_empty() {
                    write!(f, ",topic={topic}")?;
                }
            }
        }
        let role = choices::role_name(self.role);
        write!(
            f,
            ",role={role},model={},block-size={}",
            self.model,
            self.block_size.get()
        )?;
        for WorkerLabel { key, value } in &self.labels {
            write!(f, ",label={key}={value}")?;
        }
        write!(f, ",dialect={},ranks={}", self.dialect.name(), self.ranks)?;
        if self.view_by == ViewBy::Choice {
            write!(f, ",cache-view={}", self.cache_view.name())?;
        }
        write!(f, ",copies={}", choices::name_of(COPIES, COPIES_CHOICES, self.copies))
    }
}
