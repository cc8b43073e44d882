//! From what the operator asked for to a gateway that answers, and its end.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use homing_config::keys::KeysProblem;
use homing_config::{Config, HttpUrl, Reader, Rejected, Resolved, Scheme, Switch};
use homing_discovery::dns::DnsConfig;
use homing_discovery::registrations::RegistrationsConfig;
use homing_discovery::{Dns, FileSource, Outward as Spoken, Registrations, Roster, Source, Static, Watchers};
use homing_domain::KeyHasher;
use homing_profile::ProfileError;
use homing_scheduler::policy::PolicyError;
use homing_telemetry::Metrics;
use homing_tls::{TlsError, Trust};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::advice::{self, Advice};
use crate::asking::Asking;
use crate::budget::Budget;
use crate::clock::Clock;
use crate::door::Door;
use crate::exporter::{Exporter, ExporterConfig};
use crate::gateway::Gateway;
use crate::kept::Kept;
use crate::log::{LogPlace, RequestLog};
use crate::operators::Operators;
use crate::outward::Outward;
use crate::pool::Pool;
use crate::record::Records;
use crate::renew::Renewal;
use crate::settings;
use crate::shard::{Ending, Shards};
use crate::steward::{Begin, Steward, StewardError};
use crate::tokens::{Prompters, TokenizerError};
use crate::{adapters, admin};

/// Connections of operators at once.
const ADMIN_CONNECTIONS: usize = 256;
/// Notices of watchers that wait.
const NOTICES: usize = 1024;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// Why the gateway cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address} (`{knob}`): {error}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Who asked for it.
        knob: &'static str,
        /// Why.
        error: io::Error,
    },
    /// The policy is none.
    #[error("{0} (`serve.policy`)")]
    Policy(#[from] PolicyError),
    /// The rules of where KV may travel are none.
    #[error(transparent)]
    Topology(#[from] homing_config::BadTopology),
    /// The profile cannot be used.
    #[error("the profile cannot be used (`serve.profile`): {0}")]
    Profile(#[from] ProfileError),
    /// The file of the profile cannot be read.
    #[error("the profile cannot be read (`serve.profile`): {0}")]
    ProfileFile(String),
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The log cannot be written.
    #[error("cannot log to {path} (`serve.log`): {error}")]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The collector of traces is none.
    #[error("{endpoint} (`trace.endpoint`) {why}")]
    Collector {
        /// As it was written.
        endpoint: String,
        /// What is wrong with it.
        why: String,
    },
    /// Workers cannot be watched.
    #[error(transparent)]
    Steward(#[from] StewardError),
    /// Threads cannot be started.
    #[error("cannot start a thread: {0}")]
    Threads(#[from] io::Error),
    /// Anybody could ask from anywhere.
    #[error(
        "`serve.listen` is {address}, which other machines can reach, and nobody is asked for a key: name a file of keys with \
         `serve.keys` (`homing keys new --tenant NAME` makes a key), listen on 127.0.0.1, or say `--open` if something in front \
         asks for keys"
    )]
    Open {
        /// Where it would listen.
        address: SocketAddr,
    },
    /// Anybody could give orders from anywhere.
    #[error(
        "`serve.admin` is {address}, which other machines can reach, and operators are not asked for a token: set \
         `serve.admin-token` (`file:PATH`, or the variable HOMING_SERVE_ADMIN_TOKEN), or listen on 127.0.0.1"
    )]
    AdminOpen {
        /// Where it would listen.
        address: SocketAddr,
    },
    /// Anybody could book requests from anywhere.
    #[error(
        "`serve.route` is {address}, which other machines can reach, and proxies are not asked for a token: set \
         `serve.admin-token` (`file:PATH`, or the variable HOMING_SERVE_ADMIN_TOKEN), or listen on 127.0.0.1"
    )]
    RouteOpen {
        /// Where it would listen.
        address: SocketAddr,
    },
    /// The keys cannot be used.
    #[error("{0} (`serve.keys`)")]
    Keys(#[from] KeysProblem),
    /// A secret cannot be read.
    #[error("{problem} (`{knob}`)")]
    Secret {
        /// Who asked for it.
        knob: &'static str,
        /// Why.
        problem: Rejected,
    },
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The HTTP client cannot be made.
    #[error("cannot make an HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// The gateway: bound to its addresses, and at work.
#[derive(Debug)]
pub struct Service {
    gateway: Arc<Gateway>,
    address: SocketAddr,
    admin_address: SocketAddr,
    /// Whether TLS is spoken to clients, and to operators.
    with_tls: (Switch, Switch),
    shards: Shards,
    ending: watch::Sender<Ending>,
    admin: JoinHandle<()>,
    advice: Option<Advising>,
    steward: JoinHandle<()>,
    reload: Option<JoinHandle<()>>,
    renewing: JoinHandle<()>,
    _roster: Roster,
}

impl Service {
    /// Starts to take requests. With a reader, the settings file is read again when it changes.
    #[expect(
        clippy::unused_async,
        reason = "it starts tasks, so it must be called where there is a runtime"
    )]
    pub async fn start(resolved: &Resolved, reader: Option<Reader>, metrics: Arc<Metrics>) -> Result<Self, StartError> {
        let config = Arc::new(resolved.config.clone());
        let serve = &config.serve;
        // First what can be wrong without disturbing anybody.
        guarded(&config)?;
        let renewal = Renewal::begin(&serve.security)?;
        let outward = &serve.security.outward;
        let trust = Trust::read(outward.ca.as_deref())?;
        let worker_key = outward.key.read().map_err(|problem| StartError::Secret {
            knob: "serve.worker-key",
            problem,
        })?;
        settings::policies(&config)?;
        config.disagg.topology()?;
        let timing = settings::timing(&serve.profile)?;
        let prompters = Arc::new(Prompters::new(serve.tokenizer.as_deref())?);
        let log = log(&config, &metrics)?;
        let (listener, address) = listen(serve.listen, "serve.listen")?;
        let (admin_listener, admin_address) = listen(serve.admin, "serve.admin")?;
        let route = serve.route.map(|route| listen(route, "serve.route")).transpose()?;
        let clock = Clock::start();
        let table = Arc::new(ArcSwap::default());
        let gateway = Arc::new(Gateway {
            hasher: KeyHasher::new(config.hash_seed),
            clock,
            metrics: metrics.clone(),
            table: table.clone(),
            prompters: prompters.clone(),
            asking: Asking::new(serve.tokenize_timeout),
            kept: Kept::default(),
            records: Records::new(serve.records.decisions as usize),
            drift: crate::truth::Drift::default(),
            log,
            exporter: exporter(&config, &metrics)?,
            budget: Budget::new(serve.retries.budget),
            ending: AtomicBool::new(false),
            ring: renewal.ring(),
            outward: Outward::new(worker_key.as_ref()),
            config: ArcSwap::new(config.clone()),
        });
        let registrations = RegistrationsConfig {
            lease: config.discovery.lease,
            longest: config.discovery.lease_most,
            defaults: config.worker_defaults(),
        };
        let registrations = Registrations::new(registrations, &metrics);
        let (sources, settings) = sources(resolved, reader, &registrations);
        let (roster, changes) = Roster::start(sources, settings::roster(&config), &metrics);
        let (notify, notices) = mpsc::channel(NOTICES);
        let spoken = Spoken {
            trust: Some(trust.clone()),
            key: worker_key,
        };
        let watchers = Watchers::speaking(&spoken, settings::watch(&config, clock), notify, &metrics)?;
        let doors = Doors::new(&config, &renewal, &metrics);
        let (order, orders) = mpsc::channel(adapters::ORDERS);
        let steward = Steward::new(Begin {
            config: config.clone(),
            timing,
            clock,
            table,
            metrics: metrics.clone(),
            prompters,
            watchers,
            trust,
            spoken,
            orders,
        })?;
        let steward = tokio::spawn(steward.run(changes, notices));
        let reload = settings.map(|settings| tokio::spawn(reload(gateway.clone(), settings)));
        let (ending, ends) = watch::channel(Ending::No);
        let shards = Shards::start(&gateway, &doors.clients, &listener, threads(serve.threads), &ends)?;
        let of_adapters = adapters::routes(gateway.clone(), order);
        let routes = admin::routes(gateway.clone())
            .merge(of_adapters)
            .merge(registrations.router());
        let operators = Operators {
            door: doors.operators,
            tokens: renewal.tokens(),
            routes,
            metrics,
        };
        let advice = route.map(|route| Advising::start(&gateway, &operators, doors.proxies, route));
        let admin = tokio::spawn(operators.run(admin_listener));
        let renewing = tokio::spawn(renewal.run(config.discovery.file_interval));
        Ok(Self {
            gateway,
            address,
            admin_address,
            with_tls: doors.with_tls,
            shards,
            ending,
            admin,
            advice,
            steward,
            reload,
            renewing,
            _roster: roster,
        })
    }

    /// Where it takes requests.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where operators ask it.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// Where proxies ask it, with how it is spoken to.
    pub fn route_url(&self) -> Option<String> {
        let advice = self.advice.as_ref()?;
        Some(format!("{}://{}/homing/v1", scheme(self.with_tls.1), advice.address))
    }

    /// The same, with how it is spoken to.
    pub fn url(&self) -> String {
        format!("{}://{}", scheme(self.with_tls.0), self.address)
    }

    /// Where operators ask it, with how it is spoken to.
    pub fn admin_url(&self) -> String {
        format!("{}://{}", scheme(self.with_tls.1), self.admin_address)
    }

    /// Whether it takes requests.
    pub fn is_ready(&self) -> bool {
        self.gateway.is_ready()
    }

    /// Works until `stop` is done, then ends: nothing new is taken, and what is under way may end within the time for it.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        stop.await;
        self.end().await;
    }

    async fn end(self) {
        let limit = self.gateway.config.load().serve.times.drain;
        self.gateway.ending.store(true, Relaxed);
        self.ending.send_replace(Ending::WhenDone);
        let ending = self.ending;
        let shards = self.shards;
        let mut joined = tokio::task::spawn_blocking(move || shards.join());
        if tokio::time::timeout(limit, &mut joined).await.is_err() {
            tracing::warn!("requests that took longer than {limit:?} were cut off");
            ending.send_replace(Ending::Now);
            let _ = tokio::time::timeout(Duration::from_secs(5), joined).await;
        }
        let gateway = self.gateway;
        if let Some(exporter) = &gateway.exporter {
            exporter.flush().await;
        }
        let flushed = tokio::task::spawn_blocking(move || gateway.log.as_ref().map(RequestLog::flush));
        let _ = flushed.await;
        self.admin.abort();
        self.advice
            .iter()
            .flat_map(|advice| &advice.tasks)
            .for_each(JoinHandle::abort);
        self.steward.abort();
        self.renewing.abort();
        self.reload.iter().for_each(JoinHandle::abort);
    }
}

/// Whether nobody can ask or order anything from elsewhere unless the operator said so.
fn guarded(config: &Config) -> Result<(), StartError> {
    let (serve, security) = (&config.serve, &config.serve.security);
    if !serve.listen.ip().is_loopback() && security.keys.is_none() && !security.open.is_on() {
        return Err(StartError::Open { address: serve.listen });
    }
    if !serve.admin.ip().is_loopback() && !security.admin_token.is_some() {
        return Err(StartError::AdminOpen { address: serve.admin });
    }
    let route = serve.route.filter(|route| !route.ip().is_loopback());
    if let (Some(address), false) = (route, security.admin_token.is_some()) {
        return Err(StartError::RouteOpen { address });
    }
    Ok(())
}

fn scheme(tls: Switch) -> &'static str {
    if tls.is_on() { "https" } else { "http" }
}

/// What proxies are answered by.
#[derive(Debug)]
struct Advising {
    address: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl Advising {
    fn start(gateway: &Arc<Gateway>, operators: &Operators, door: Arc<Door>, route: (StdListener, SocketAddr)) -> Self {
        let (listener, address) = route;
        let times = &gateway.config.load().serve.times;
        let pool = Arc::new(Pool::new(times.idle, times.connect));
        let advice = Arc::new(Advice::new(gateway.clone(), pool));
        let proxies = Operators {
            door,
            routes: advice::routes(advice.clone()),
            ..operators.clone()
        };
        Self {
            address,
            tasks: [tokio::spawn(proxies.run(listener)), tokio::spawn(advice.sweep())],
        }
    }
}

/// The doors of all listeners.
struct Doors {
    with_tls: (Switch, Switch),
    clients: Arc<Door>,
    operators: Arc<Door>,
    proxies: Arc<Door>,
}

impl Doors {
    fn new(config: &Config, renewal: &Renewal, metrics: &Arc<Metrics>) -> Self {
        let (serve, security) = (&config.serve, &config.serve.security);
        let identity = renewal.identity();
        let of_operators = identity.clone().filter(|_| security.tls.admin.is_on());
        let switch = |is: bool| if is { Switch::On } else { Switch::Off };
        Self {
            with_tls: (switch(identity.is_some()), switch(of_operators.is_some())),
            clients: Door::new(serve.max_connections as usize, security.door.clone(), identity, metrics),
            operators: Door::new(ADMIN_CONNECTIONS, security.door.clone(), of_operators.clone(), metrics),
            proxies: Door::new(
                serve.max_connections as usize,
                security.door.clone(),
                of_operators,
                metrics,
            ),
        }
    }
}

type Settings = watch::Receiver<Arc<Resolved>>;

/// Who tells of workers. With a file, what it says is told as well.
fn sources(
    resolved: &Resolved,
    reader: Option<Reader>,
    registrations: &Registrations,
) -> (Vec<Box<dyn Source>>, Option<Settings>) {
    let config = &resolved.config;
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    let mut settings = None;
    if let Some(reader) = reader.filter(|reader| reader.file().is_some()) {
        let (file, told) = FileSource::new(reader, resolved.clone(), config.discovery.file_interval);
        sources.push(Box::new(file));
        settings = Some(told);
    } else {
        sources.push(Box::new(Static::new(config.workers.clone(), &resolved.workers_source)));
    }
    for place in &config.discover {
        let dns = DnsConfig {
            server: config.discovery.dns_server,
            least: config.discovery.dns_least,
            most: config.discovery.dns_most,
            timeout: config.discovery.dns_timeout,
        };
        sources.push(Box::new(Dns::new(place, config.worker_defaults(), dns)));
    }
    sources.push(registrations.source());
    (sources, settings)
}

/// Uses settings that change. What was built from them at the start needs a restart, and that is said.
async fn reload(gateway: Arc<Gateway>, mut settings: Settings) {
    while settings.changed().await.is_ok() {
        let new = settings.borrow_and_update().config.clone();
        let old = gateway.config.load_full();
        let fixed = |config: &Config| {
            let serve = &config.serve;
            let built = (
                serve.listen,
                (serve.admin, serve.route),
                serve.threads,
                serve.max_connections,
                serve.times.idle,
            );
            let chosen = (
                serve.policy.clone(),
                serve.profile.clone(),
                serve.tokenizer.clone(),
                serve.queue.clone(),
            );
            (
                built,
                chosen,
                serve.records.clone(),
                config.index.clone(),
                config.hash_seed,
                serve.security.clone(),
            )
        };
        if fixed(&new) != fixed(&old) {
            tracing::warn!("the settings file changes something that is used at the start only: restart to have it");
        }
        gateway.config.store(Arc::new(new));
        tracing::info!("the settings were read again");
    }
}

fn log(config: &Config, metrics: &Arc<Metrics>) -> Result<Option<RequestLog>, StartError> {
    let records = &config.serve.records;
    let Some(path) = &records.log else { return Ok(None) };
    let place = LogPlace {
        path: path.clone(),
        bytes: records.log_bytes,
        files: records.log_files,
    };
    let log = RequestLog::open(place, metrics.clone()).map_err(|error| StartError::Log {
        path: path.clone(),
        error,
    })?;
    Ok(Some(log))
}

/// Where spans go, if somebody wants them.
fn exporter(config: &Config, metrics: &Arc<Metrics>) -> Result<Option<Exporter>, StartError> {
    let traces = &config.traces;
    let Some(endpoint) = &traces.endpoint else {
        return Ok(None);
    };
    let wrong = |why: String| StartError::Collector {
        endpoint: endpoint.clone(),
        why,
    };
    let url = HttpUrl::parse(endpoint).map_err(|fault| wrong(fault.to_string()))?;
    if url.scheme() == Scheme::Https {
        return Err(wrong(
            "is spoken to without TLS only: put a collector on this machine".to_owned(),
        ));
    }
    let exporter = ExporterConfig {
        endpoint: url,
        service: traces.service.clone(),
        queue: traces.queue as usize,
    };
    Ok(Some(Exporter::start(exporter, metrics.clone())?))
}

fn listen(address: SocketAddr, knob: &'static str) -> Result<(StdListener, SocketAddr), StartError> {
    let failed = |error| StartError::Listen { address, knob, error };
    let domain = if address.is_ipv4() {
        socket2::Domain::IPV4
    } else {
        socket2::Domain::IPV6
    };
    let bind = || -> io::Result<StdListener> {
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    let listener = bind().map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Threads that carry requests: so many, or as many as there are cores.
fn threads(asked: u32) -> usize {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        threads => threads as usize,
    }
}
