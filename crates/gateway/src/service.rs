//! From what the operator asked for to a gateway that answers, and its end.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use axum::middleware::from_fn_with_state;
use homing_config::{AdapterMode, Config, HttpUrl, Reader, Resolved, Scheme, SecretText, Switch};
use homing_discovery::dns::DnsConfig;
use homing_discovery::{
    Dns, FileSource, Outward as Spoken, ProgressProbe, Registrations, Roster, Source, Static, Watchers,
};
use homing_domain::KeyHasher;
use homing_telemetry::Metrics;
use homing_tls::Trust;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::adapters::{Catalogue, Entries, Order};
use crate::asking::Asking;
use crate::bodies::{self, body_budget};
use crate::budget::Budget;
use crate::clock::Clock;
use crate::error::StartError;
use crate::exporter::{Exporter, ExporterConfig};
use crate::gateway::Gateway;
use crate::listeners::{Advising, Doors, guarded, listen, scheme};
use crate::log::{LogPlace, RequestLog};
use crate::operators::{self, Operators};
use crate::outward::Outward;
use crate::progress::monitor::StallMonitor;
use crate::record::Records;
use crate::renew::Renewal;
use crate::settings;
use crate::shard::{Ending, Shards};
use crate::steward::{Begin, Steward};
use crate::tokens::Prompters;
use crate::{adapters, admin};

/// Notices of watchers that wait.
const NOTICES: usize = 1024;

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
    stalls: JoinHandle<()>,
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
        let renewal = Renewal::begin(&serve.security, config.discovery.registrations_per_minute)?;
        let outward = &serve.security.outward;
        let trust = Trust::read(outward.ca.as_deref())?;
        let worker_key = worker_key(outward)?;
        settings::policies(&config)?;
        config.disagg.topology()?;
        let timing = settings::timing(&serve.profile)?;
        let prompters = Arc::new(Prompters::new(serve.tokenizer.as_deref())?);
        let catalogue = catalogue(&config)?;
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
            response_ids: renewal.response_ids(),
            records: Records::new(serve.records.decisions as usize),
            drift: crate::truth::Drift::default(),
            log,
            exporter: exporter(&config, &metrics)?,
            budget: Budget::new(serve.retries.budget),
            bodies: body_budget(&serve.bodies, &metrics),
            ending: AtomicBool::new(false),
            ring: renewal.ring(),
            outward: Outward::new(worker_key.as_ref()),
            config: ArcSwap::new(config.clone()),
        });
        let mut own_listeners = vec![address, admin_address];
        own_listeners.extend(route.as_ref().map(|(_, route)| *route));
        let registrations = settings::registrations(&config, own_listeners);
        let rules = registrations.rules.clone();
        let registrations = Registrations::new(registrations, &metrics);
        let (sources, settings) = sources(resolved, reader, &registrations);
        let (roster, changes) = Roster::start(sources, settings::roster(&config), &metrics);
        let (notify, notices) = mpsc::channel(NOTICES);
        let spoken = Spoken {
            trust: Some(trust.clone()),
            key: worker_key,
            rules,
        };
        let watchers = Watchers::speaking(&spoken, settings::watch(&config, clock), notify, &metrics);
        let probe = ProgressProbe::new(spoken.client());
        let stalls = tokio::spawn(StallMonitor::new(gateway.clone(), probe).run());
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
            catalogue,
        })?;
        let steward = tokio::spawn(steward.run(changes, notices));
        let reload = settings.map(|settings| tokio::spawn(reload(gateway.clone(), settings)));
        let (ending, ends) = watch::channel(Ending::No);
        let shards = Shards::start(&gateway, &doors.clients, &listener, threads(serve.threads), &ends)?;
        let routes = operator_routes(&gateway, order, &registrations);
        let operators = Operators {
            door: doors.operators,
            tokens: renewal.tokens(),
            routes,
            metrics,
            write_timeout: serve.times.client_stall,
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
            stalls,
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
        self.stalls.abort();
        self.renewing.abort();
        self.reload.iter().for_each(JoinHandle::abort);
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
        let dns = Dns::new(place, config.worker_defaults(), DnsConfig::of(config));
        sources.push(Box::new(dns));
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
                (serve.times.idle, serve.bodies.budget_bytes),
            );
            let chosen = (
                serve.policy.clone(),
                serve.profile.clone(),
                serve.tokenizer.clone(),
                serve.queue.clone(),
            );
            let disagg = &config.disagg;
            let halves = (
                settings::apart(disagg),
                disagg.prefill_policy.clone(),
                disagg.decode_policy.clone(),
                disagg.link,
            );
            (
                built,
                (chosen, halves),
                serve.records.clone(),
                (config.index.clone(), config.adapters.clone()),
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

/// The adapters that operators told of before, where they are kept and can be managed.
fn catalogue(config: &Config) -> Result<Option<(Catalogue, Entries)>, StartError> {
    let path = config.adapters.catalogue.as_deref();
    let Some(path) = path.filter(|_| config.serve.adapters == AdapterMode::Manage) else {
        return Ok(None);
    };
    let opened = Catalogue::open(path).map_err(|problem| StartError::Catalogue {
        path: path.to_path_buf(),
        problem,
    })?;
    Ok(Some(opened))
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

/// The API key that engines are sent.
fn worker_key(outward: &homing_config::security::Outward) -> Result<Option<SecretText>, StartError> {
    outward.key.read().map_err(|problem| StartError::Secret {
        knob: "serve.worker-key",
        problem,
    })
}

/// All that operators and registering workers can ask for.
fn operator_routes(gateway: &Arc<Gateway>, order: mpsc::Sender<Order>, registrations: &Registrations) -> Router {
    admin::routes(gateway.clone())
        .merge(adapters::routes(gateway.clone(), order))
        .merge(registrations.router())
        .layer(from_fn_with_state(gateway.clone(), bodies::read_for_operators))
        .fallback(operators::unknown_path)
        .method_not_allowed_fallback(operators::unknown_method)
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
    Ok(Some(Exporter::start(exporter, metrics.clone())))
}

/// Threads that carry requests: so many, or as many as there are cores.
fn threads(asked: u32) -> usize {
    match asked {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        threads => threads as usize,
    }
}
