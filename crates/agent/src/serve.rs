//! How does an agent start, and how does it end?

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use homing_config::{Config, EventSource};
use homing_domain::{KeyHasher, RankId};
use homing_keeper::{Fleet, FleetError, Subject};
use homing_platform::{CredentialsError, HttpClient, HttpClientConfig, HttpServer};
use homing_telemetry::Metrics;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::hooks::{Shelves, hooks};
use crate::http::{self, Service};
use crate::lists::Lists;
use crate::ring::RingLimits;
use crate::shelf::{Owner, Shelf};
use crate::witness::{self, Witness};

/// How long those who are being sent something have to take it when the agent ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// Why an agent cannot start, or ended.
#[derive(Debug, Error)]
pub enum AgentError {
    /// There is nobody to listen to.
    #[error("an agent needs at least one worker: --worker URL,events=ENDPOINT[,replay=ENDPOINT]")]
    NoWorkers,
    /// A worker says nothing about its events.
    #[error("worker {0}: its `cache-view` is not `events`, so there is nothing to list or watch")]
    NoEvents(String),
    /// A worker is to be heard through an agent.
    #[error("worker {0}: an agent listens to the engine itself: give `events` (and `replay`) in place of `agent`")]
    AnotherAgent(String),
    /// Nobody can be listened to.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The port cannot be had.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The certificate or the token cannot be used.
    #[error("`agent.tls-cert`, `agent.tls-key` or `agent.token`: {0}")]
    Credentials(#[from] CredentialsError),
}

/// An agent that listens to its engines, and whose port is open.
#[derive(Debug)]
pub struct Agent {
    service: Service,
    listener: TcpListener,
    server: HttpServer,
    /// The witnesses; they end with the agent.
    witnesses: JoinSet<()>,
}

impl Agent {
    /// Opens the port, and begins to listen to every worker of the configuration.
    pub async fn start(config: &Config, metrics: Arc<Metrics>) -> Result<Self, AgentError> {
        check(config)?;
        let address = config.agent.listen;
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| AgentError::Listen { address, error })?;
        let shelves = shelves(config, &metrics);
        let of_subject = |subject: &Subject| -> Shelves {
            let of_it = shelves.iter().filter(|shelf| shelf.owner().subject == *subject);
            of_it.map(|shelf| (shelf.owner().rank, shelf.clone())).collect()
        };
        let fleet = Fleet::start(config, &metrics, |subject| hooks(of_subject(subject))).await?;
        let fleet = Arc::new(fleet);
        let client = HttpClient::new(HttpClientConfig {
            connect_timeout: config.events.connect_timeout,
            ..HttpClientConfig::default()
        });
        let mut witnesses = JoinSet::new();
        for shelf in &shelves {
            let member = fleet.member(shelf.owner().rank.worker);
            let witness = Witness {
                shelf: shelf.clone(),
                client: client.clone(),
                url: member.and_then(|member| witness::place(&member.spec.url, member.spec.dialect)),
            };
            witnesses.spawn(witness.run(fleet.clone()));
        }
        let service = Service {
            lists: Lists::new(fleet.clone(), metrics.clone()),
            fleet,
            shelves: shelves.into(),
            seats: Arc::default(),
            metrics: metrics.clone(),
            heartbeat: config.agent.heartbeat,
        };
        let (settings, renew) = (&config.agent.http, config.discovery.file_interval);
        let server = HttpServer::new(settings, http::router(service.clone()), renew, &metrics)?;
        if !address.ip().is_loopback() && !server.asks_for_token() {
            tracing::warn!(%address, "other machines can read what is cached: set `agent.token`");
        }
        Ok(Self {
            service,
            listener,
            server,
            witnesses,
        })
    }

    /// Where it is to be reached.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The same, with how it is spoken to.
    pub fn url(&self) -> io::Result<String> {
        Ok(format!("{}://{}", self.server.scheme(), self.address()?))
    }

    /// Serves until it is asked to stop. Watches are ended then, and lists that are being sent are given a few seconds.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) {
        let Self {
            service,
            listener,
            server,
            witnesses,
        } = self;
        let (stopped, stopping) = tokio::sync::oneshot::channel();
        let shelves = service.shelves.clone();
        let farewell = async move {
            stop.await;
            for shelf in shelves.iter() {
                shelf.close();
            }
            let _ = stopped.send(());
        };
        let too_long = async {
            match stopping.await {
                Ok(()) => tokio::time::sleep(FAREWELL).await,
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = server.run(listener, farewell) => {}
            () = too_long => {}
        }
        drop(witnesses);
    }
}

fn check(config: &Config) -> Result<(), AgentError> {
    for worker in &config.workers {
        match worker.source {
            EventSource::Nobody => return Err(AgentError::NoEvents(worker.url.to_string())),
            EventSource::Agent(_) => return Err(AgentError::AnotherAgent(worker.url.to_string())),
            EventSource::Stream { .. } | EventSource::Poll(_) => {}
        }
    }
    if config.workers.is_empty() {
        return Err(AgentError::NoWorkers);
    }
    Ok(())
}

/// One for each rank, in the order of workers and ranks; numbers are places in the configuration, as in a fleet.
fn shelves(config: &Config, metrics: &Arc<Metrics>) -> Vec<Arc<Shelf>> {
    let hasher = KeyHasher::new(config.hash_seed);
    let limits = RingLimits {
        batches: config.agent.ring_batches as usize,
        bytes: config.agent.ring_bytes,
    };
    let mut shelves = Vec::new();
    for (number, worker) in (0..).zip(&config.workers) {
        for (dp, _) in worker.rank_sources() {
            let owner = Owner {
                rank: RankId::new(number, dp.0),
                worker: worker.url.clone(),
                subject: Subject {
                    model: worker.model.clone(),
                    block_size: worker.block_size,
                },
            };
            shelves.push(Arc::new(Shelf::new(owner, &hasher, limits, metrics.clone())));
        }
    }
    shelves
}
