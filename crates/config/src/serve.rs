//! How is `homing serve` to behave?

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use homing_domain::Tokens;

use crate::choices::{AdapterMode, CacheIsolation, CheckWorkers, EngineFields, Switch};
use crate::security::Security;
use crate::table::KnobId;
use crate::values::Values;

/// `homing serve`.
#[derive(Clone, Debug, PartialEq)]
pub struct Serve {
    /// Where it takes requests.
    pub listen: SocketAddr,
    /// Where operators ask it.
    pub admin: SocketAddr,
    /// Where it advises proxies.
    pub route: Option<SocketAddr>,
    /// For how long a proxy's booking stands of which nothing is heard.
    pub route_lease: Duration,
    /// Threads that carry requests; 0: as many as there are cores.
    pub threads: u32,
    /// Client connections at once.
    pub max_connections: u32,
    /// The policy, with weights if it has some.
    pub policy: String,
    /// The profile of the workers: a name, or a file that ends in `.json`.
    pub profile: String,
    /// A folder with a tokenizer, or with a folder for each model.
    pub tokenizer: Option<PathBuf>,
    /// How long a worker may take to say which tokens a prompt has.
    pub tokenize_timeout: Duration,
    /// What is done to find out whether a worker is set up well.
    pub check_workers: CheckWorkers,
    /// What is done with adapters.
    pub adapters: AdapterMode,
    /// Bounds of bodies.
    pub bodies: Bodies,
    /// Bounds of times.
    pub times: Times,
    /// What is done when a worker fails.
    pub retries: Retries,
    /// What waits here.
    pub queue: ServeQueue,
    /// What is kept and written of requests.
    pub records: Records,
    /// What of a client reaches engines.
    pub isolation: Isolation,
    /// Who may ask, and how.
    pub security: Security,
}

/// What of a client reaches engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// What is done with fields that belong to engines.
    pub engine_fields: EngineFields,
    /// Whose cached prefixes a request can use.
    pub cache: CacheIsolation,
}

/// Bounds of bodies.
#[derive(Clone, Debug, PartialEq)]
pub struct Bodies {
    /// The longest request, in bytes.
    pub request: u64,
    /// The longest answer that is kept whole until it is complete, in bytes. A longer one is passed on as it comes.
    pub answer: u64,
    /// What all requests that are held may take, in bytes; `None`: a quarter of the memory.
    pub budget_bytes: Option<u64>,
    /// How fast a request must come, at least; 0: no limit.
    pub min_upload_bytes_per_second: u64,
    /// The time over which that rate is measured.
    pub upload_window: Duration,
}

/// Bounds of times.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// To connect to a worker.
    pub connect: Duration,
    /// From a request to the first token of its answer.
    pub first_token: Duration,
    /// Between two pieces of an answer.
    pub silence: Duration,
    /// Of a whole request.
    pub total: Duration,
    /// For which a client may take nothing of its answer.
    pub client_stall: Duration,
    /// In which a client must have sent its request.
    pub request: Duration,
    /// For which an idle connection to a worker is kept.
    pub idle: Duration,
    /// For which requests may go on after we were told to end.
    pub drain: Duration,
}

/// What is done when a worker fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Retries {
    /// How often a request is tried before anything of its answer was passed on.
    pub tries: u32,
    /// Retries for each request, over all of them.
    pub budget: f64,
    /// How often an answer that has begun may go on at another worker.
    pub migrations: u32,
    /// The longest answer that may, in tokens.
    pub migration_tokens: Tokens,
}

/// What waits here.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeQueue {
    /// A request is let go while some worker is predicted to begin with it within this time.
    pub start_within: Duration,
    /// The longest wait.
    pub most_wait: Duration,
    /// Requests that may wait.
    pub requests: u32,
}

/// What is kept and written of requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Records {
    /// Decisions that are kept for operators.
    pub decisions: u32,
    /// The request log.
    pub log: Option<PathBuf>,
    /// When it is begun anew, in bytes.
    pub log_bytes: u64,
    /// Files of it that are kept besides.
    pub log_files: u32,
    /// Whether what engines say when they fail is kept and logged.
    pub engine_words: Switch,
}

impl Serve {
    pub(crate) fn build(of: &Values<'_>) -> Self {
        Self {
            listen: of.address(KnobId::ServeListen),
            admin: of.address(KnobId::ServeAdmin),
            route: of.address_or(KnobId::ServeRoute),
            route_lease: of.time(KnobId::ServeRouteLease),
            threads: of.small(KnobId::ServeThreads),
            max_connections: of.small(KnobId::ServeMaxConnections),
            policy: of.name(KnobId::ServePolicy),
            profile: of.name(KnobId::ServeProfile),
            tokenizer: of.file(KnobId::ServeTokenizer),
            tokenize_timeout: of.time(KnobId::ServeTokenizeTimeout),
            check_workers: of.choice(CheckWorkers::ALL, KnobId::ServeCheckWorkers),
            adapters: of.choice(AdapterMode::ALL, KnobId::ServeAdapters),
            bodies: Bodies {
                request: of.size(KnobId::ServeMaxRequest),
                answer: of.size(KnobId::ServeMaxAnswer),
                budget_bytes: Some(of.size(KnobId::ServeBodyBudget)).filter(|bytes| *bytes > 0),
                min_upload_bytes_per_second: of.size(KnobId::ServeMinUploadRate),
                upload_window: of.time(KnobId::ServeUploadWindow),
            },
            times: Times {
                connect: of.time(KnobId::ServeConnectTimeout),
                first_token: of.time(KnobId::ServeFirstTokenTimeout),
                silence: of.time(KnobId::ServeSilenceTimeout),
                total: of.time(KnobId::ServeTotalTimeout),
                client_stall: of.time(KnobId::ServeClientStall),
                request: of.time(KnobId::ServeRequestTimeout),
                idle: of.time(KnobId::ServeIdle),
                drain: of.time(KnobId::ServeDrain),
            },
            retries: Retries {
                tries: of.small(KnobId::ServeTries),
                budget: of.ratio(KnobId::ServeRetryBudget),
                migrations: of.small(KnobId::ServeMigrations),
                migration_tokens: Tokens(of.small(KnobId::ServeMigrationTokens)),
            },
            queue: ServeQueue {
                start_within: of.time(KnobId::ServeStartWithin),
                most_wait: of.time(KnobId::ServeMostWait),
                requests: of.small(KnobId::ServeQueueRequests),
            },
            records: Records {
                decisions: of.small(KnobId::ServeDecisions),
                log: of.file(KnobId::ServeLog),
                log_bytes: of.size(KnobId::ServeLogBytes),
                log_files: of.small(KnobId::ServeLogFiles),
                engine_words: of.choice(Switch::ALL, KnobId::ServeEngineWords),
            },
            isolation: Isolation {
                engine_fields: of.choice(EngineFields::ALL, KnobId::ServeEngineFields),
                cache: of.choice(CacheIsolation::ALL, KnobId::ServeCacheIsolation),
            },
            security: Security::build(of),
        }
    }
}
