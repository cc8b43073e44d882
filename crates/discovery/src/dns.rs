//! Which workers does a name lead to?
//!
//! A name is resolved again when its answer is no longer valid, within bounds. An answer that lacks a worker is not believed at
//! once ([`Absence::Doubtful`]): name servers give incomplete answers while they start or when there are many records.
//!
//! **Invariant:** an answer that names nobody takes nobody away. A name server that has just started says that a name does not
//! exist which it does not know yet; whether the workers are really gone their health will tell.
//!
//! AAAA records are looked at only where there are no A records: an engine with both kinds of addresses would be two.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use homing_config::worker::MAX_WORKERS;
use homing_config::{Config, Discover, Lookup, WorkerDefaults, WorkerSpec};
use thiserror::Error;

use crate::source::{Absence, NobodyListens, Origin, Source, SourceKind, Tell, Telling, Told};

/// Targets of a service that are looked at; those beyond are left out, and that is said.
const TARGETS: usize = 1024;
/// Targets that are resolved at once.
const AT_ONCE: usize = 16;
/// Tries of one question before it has failed, all of which share its time.
const TRIES: u32 = 2;

/// How names are resolved.
#[derive(Clone, Debug)]
pub struct DnsConfig {
    /// Whom to ask; `None` for whom the system asks.
    pub server: Option<SocketAddr>,
    /// A name is resolved again when its answer is no longer valid, but not sooner than this.
    pub least: Duration,
    /// And not later than this.
    pub most: Duration,
    /// How long the answer for one name may take.
    pub timeout: Duration,
}

/// Workers behind a name, resolved again and again.
#[derive(Debug)]
pub struct Dns {
    what: Discover,
    defaults: WorkerDefaults,
    config: DnsConfig,
    origin: Origin,
}

/// Why a name leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DnsError {
    /// There is nobody to ask.
    #[error("cannot ask name servers: {0}")]
    Resolver(String),
    /// The server did not answer, or not with an answer.
    #[error("{name} cannot be resolved: {why}")]
    Failed {
        /// Which name.
        name: String,
        /// Why, in words.
        why: String,
    },
    /// There is no such name, or it has no addresses.
    #[error("{0} has no addresses")]
    Nobody(String),
}

/// What a name leads to.
struct Found {
    places: BTreeSet<(IpAddr, u16)>,
    valid_until: Instant,
}

impl DnsConfig {
    /// As the operator asked for it.
    pub fn of(config: &Config) -> Self {
        let discovery = &config.discovery;
        Self {
            server: discovery.dns_server,
            least: discovery.dns_least,
            most: discovery.dns_most,
            timeout: discovery.dns_timeout,
        }
    }
}

impl Dns {
    /// `what` is what the operator wrote; `defaults` hold for what it does not say.
    pub fn new(what: &Discover, defaults: WorkerDefaults, config: DnsConfig) -> Self {
        Self {
            origin: Origin::new(SourceKind::Dns, &what.lookup().to_string()),
            what: what.clone(),
            defaults,
            config,
        }
    }

    async fn watch(self, tell: Tell) -> Result<(), NobodyListens> {
        let mut resolver = None;
        // After a failure it is asked again soon, and then ever more seldom, however long the last answer was valid.
        let mut again = self.config.least;
        loop {
            let pause = match self.look(&mut resolver).await {
                Ok(found) => {
                    let valid = found.valid_until.saturating_duration_since(Instant::now());
                    tell.tell(self.set(&found)).await?;
                    again = self.config.least;
                    valid.clamp(self.config.least, self.config.most)
                }
                Err(error) => {
                    // The system's servers may be others by now.
                    resolver = None;
                    let why = error.to_string();
                    tell.tell(Told::Failed { why }).await?;
                    let pause = again;
                    again = (again * 2).clamp(self.config.least, self.config.most);
                    pause
                }
            };
            // Several gateways that started together are not to ask together for ever.
            tokio::time::sleep(pause.mul_f64(0.9 + 0.1 * fastrand::f64())).await;
        }
    }

    async fn look(&self, kept: &mut Option<TokioResolver>) -> Result<Found, DnsError> {
        let resolver = match kept {
            Some(resolver) => resolver,
            None => kept.insert(self.resolver()?),
        };
        let resolver = Resolver {
            resolver,
            timeout: self.config.timeout,
        };
        let found = match self.what.lookup() {
            Lookup::Addresses { host, port } => {
                let (addresses, valid_until) = resolver.addresses(host).await?;
                Found {
                    places: addresses.into_iter().map(|address| (address, *port)).collect(),
                    valid_until,
                }
            }
            Lookup::Services { name } => resolver.services(name).await?,
        };
        if found.places.is_empty() {
            return Err(DnsError::Nobody(self.origin.to_string()));
        }
        Ok(found)
    }

    fn resolver(&self) -> Result<TokioResolver, DnsError> {
        let failed = |error: NetError| DnsError::Resolver(error.to_string());
        let mut builder = match self.config.server {
            None => TokioResolver::builder_tokio().map_err(failed)?,
            Some(server) => {
                let connection = |mut connection: ConnectionConfig| {
                    connection.port = server.port();
                    connection
                };
                let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
                let connections = connections.map(connection).to_vec();
                let server = NameServerConfig::new(server.ip(), true, connections);
                let config = ResolverConfig::from_name_servers(vec![server]);
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            }
        };
        let options = builder.options_mut();
        options.timeout = self.config.timeout / TRIES;
        options.attempts = TRIES as usize;
        options.cache_size = 0;
        options.ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
        builder.build().map_err(failed)
    }

    fn set(&self, found: &Found) -> Told {
        let worker = |(address, port): &(IpAddr, u16)| -> Option<Arc<WorkerSpec>> {
            let worker = self.what.worker(*address, *port, &self.defaults);
            match worker {
                Ok(worker) => Some(Arc::new(worker)),
                // A place that makes no workers is refused at the start, so that this is one with a port that is none.
                Err(problems) => {
                    tracing::warn!("{}: no worker at {address}:{port}: {problems:?}", self.origin);
                    None
                }
            }
        };
        Told::Set {
            workers: found.places.iter().take(MAX_WORKERS).filter_map(worker).collect(),
            absence: Absence::Doubtful,
        }
    }
}

/// Asks name servers, within a time limit for each name.
#[derive(Clone, Copy)]
struct Resolver<'a> {
    resolver: &'a TokioResolver,
    timeout: Duration,
}

impl Resolver<'_> {
    async fn addresses(self, host: &str) -> Result<(Vec<IpAddr>, Instant), DnsError> {
        let found = self.within(host, self.resolver.lookup_ip(host)).await?;
        Ok((found.iter().take(MAX_WORKERS).collect(), found.valid_until()))
    }

    /// The addresses of all targets. A target that does not exist is nobody; one that cannot be resolved fails the whole, so that
    /// its workers are not taken for gone.
    async fn services(self, name: &str) -> Result<Found, DnsError> {
        let records = self.within(name, self.resolver.srv_lookup(name)).await?;
        let mut targets: Vec<(String, u16)> = Vec::new();
        for record in records.answers() {
            if let RData::SRV(service) = &record.data {
                targets.push((service.target.to_utf8(), service.port));
            }
        }
        if targets.len() > TARGETS {
            tracing::warn!("{name} has {} targets, of which {TARGETS} are looked at", targets.len());
            targets.truncate(TARGETS);
        }
        let look = |(target, port): (String, u16)| async move {
            let found = self.addresses(&target).await;
            found.map(|(addresses, valid_until)| (addresses, port, valid_until))
        };
        let mut found = Found {
            places: BTreeSet::new(),
            valid_until: records.valid_until(),
        };
        let mut looked = stream::iter(targets).map(look).buffer_unordered(AT_ONCE);
        while let Some(target) = looked.next().await {
            match target {
                Ok((addresses, port, valid_until)) => {
                    found
                        .places
                        .extend(addresses.into_iter().map(|address| (address, port)));
                    found.valid_until = found.valid_until.min(valid_until);
                }
                Err(DnsError::Nobody(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    async fn within<T>(self, name: &str, asked: impl Future<Output = Result<T, NetError>>) -> Result<T, DnsError> {
        match tokio::time::timeout(self.timeout, asked).await {
            Ok(answer) => answer.map_err(|error| failed(name, &error)),
            Err(_) => Err(DnsError::Failed {
                name: name.to_owned(),
                why: format!("no answer within {:?}", self.timeout),
            }),
        }
    }
}

fn failed(name: &str, error: &NetError) -> DnsError {
    if error.is_no_records_found() || error.is_nx_domain() {
        return DnsError::Nobody(name.to_owned());
    }
    DnsError::Failed {
        name: name.to_owned(),
        why: error.to_string(),
    }
}

impl Source for Dns {
    fn origin(&self) -> Origin {
        self.origin.clone()
    }

    fn run(self: Box<Self>, tell: Tell) -> Telling {
        Box::pin(async move {
            // It ends when nobody listens.
            let _ = self.watch(tell).await;
        })
    }
}
