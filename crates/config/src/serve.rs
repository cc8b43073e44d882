//! How is `homing serve` to behave?

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use homing_domain::Tokens;

use crate::choices::{AdapterMode, CheckWorkers, Switch};
use crate::knob::Value;
use crate::security::Security;
use crate::table::KnobId;

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
    /// Who may ask, and how.
    pub security: Security,
}

/// Bounds of bodies.
#[derive(Clone, Debug, PartialEq)]
pub struct Bodies {
    /// The longest request, in bytes.
    pub request: u64,
    /// The longest answer that is kept whole until it is complete, in bytes. A longer one is passed on as it comes.
    pub answer: u64,
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
    pub(crate) fn build(value: &impl Fn(KnobId) -> Value) -> Self {
        let count = |id| match value(id) {
            Value::Count(count) => u32::try_from(count).expect("ranges of 32-bit knobs end below 2^32"),
            other => unreachable!("{id:?} is {other:?}, not a count"),
        };
        let time = |id| match value(id) {
            Value::Time(time) => time,
            other => unreachable!("{id:?} is {other:?}, not a time"),
        };
        let size = |id| match value(id) {
            Value::Size(size) => size,
            other => unreachable!("{id:?} is {other:?}, not a size"),
        };
        let ratio = |id| match value(id) {
            Value::Ratio(ratio) => ratio,
            other => unreachable!("{id:?} is {other:?}, not a ratio"),
        };
        let address = |id| match value(id) {
            Value::Address(address) => address,
            other => unreachable!("{id:?} is {other:?}, not an address"),
        };
        let name = |id| match value(id) {
            Value::Name(name) => name,
            other => unreachable!("{id:?} is {other:?}, not a name"),
        };
        let file = |id| match value(id) {
            Value::File(path) => path,
            other => unreachable!("{id:?} is {other:?}, not a file"),
        };
        Self {
            listen: address(KnobId::ServeListen),
            admin: address(KnobId::ServeAdmin),
            route: match value(KnobId::ServeRoute) {
                Value::AddressOr(route) => route,
                other => unreachable!("{other:?} is not an address or none"),
            },
            route_lease: time(KnobId::ServeRouteLease),
            threads: count(KnobId::ServeThreads),
            max_connections: count(KnobId::ServeMaxConnections),
            policy: name(KnobId::ServePolicy),
            profile: name(KnobId::ServeProfile),
            tokenizer: file(KnobId::ServeTokenizer),
            tokenize_timeout: time(KnobId::ServeTokenizeTimeout),
            check_workers: match value(KnobId::ServeCheckWorkers) {
                Value::Choice(place) => CheckWorkers::ALL[place],
                other => unreachable!("what is done with new workers is {other:?}"),
            },
            adapters: match value(KnobId::ServeAdapters) {
                Value::Choice(place) => AdapterMode::ALL[place],
                other => unreachable!("what is done with adapters is {other:?}"),
            },
            bodies: Bodies {
                request: size(KnobId::ServeMaxRequest),
                answer: size(KnobId::ServeMaxAnswer),
            },
            times: Times {
                connect: time(KnobId::ServeConnectTimeout),
                first_token: time(KnobId::ServeFirstTokenTimeout),
                silence: time(KnobId::ServeSilenceTimeout),
                total: time(KnobId::ServeTotalTimeout),
                client_stall: time(KnobId::ServeClientStall),
                request: time(KnobId::ServeRequestTimeout),
                idle: time(KnobId::ServeIdle),
                drain: time(KnobId::ServeDrain),
            },
            retries: Retries {
                tries: count(KnobId::ServeTries),
                budget: ratio(KnobId::ServeRetryBudget),
                migrations: count(KnobId::ServeMigrations),
                migration_tokens: Tokens(count(KnobId::ServeMigrationTokens)),
            },
            queue: ServeQueue {
                start_within: time(KnobId::ServeStartWithin),
                most_wait: time(KnobId::ServeMostWait),
                requests: count(KnobId::ServeQueueRequests),
            },
            records: Records {
                decisions: count(KnobId::ServeDecisions),
                log: file(KnobId::ServeLog),
                log_bytes: size(KnobId::ServeLogBytes),
                log_files: count(KnobId::ServeLogFiles),
                engine_words: match value(KnobId::ServeEngineWords) {
                    Value::Choice(place) => Switch::ALL[place],
                    other => unreachable!("a switch is {other:?}"),
                },
            },
            security: Security::build(value),
        }
    }
}
