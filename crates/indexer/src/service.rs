//! From what the operator asked for to a service that answers, and its end.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use homing_config::{Config, Resolved};
use homing_domain::KeyHasher;
use homing_keeper::{Fleet, FleetError, Hooks};
use homing_platform::{BodyBudget, BodyLimits, CredentialsError, HttpServer};
use homing_telemetry::Metrics;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::http::{self, App, Bodies};
use crate::record::{self, Ending, RecordError, Recording};
use crate::shelf::{Kept, Shelves};

/// After it was told to stop, how long answers that are under way may take.
const GRACE: Duration = Duration::from_secs(5);
/// How long the body of a question may take to come.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Why the service cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// There is nobody to listen to.
    #[error("no worker is named: give at least one with --worker, or a recording with --from")]
    NoWorkers,
    /// The address cannot be listened on.
    #[error("cannot listen on {address} (`index.listen`): {error}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The certificate or the token cannot be used.
    #[error("`index.tls-cert`, `index.tls-key` or `index.token`: {0}")]
    Credentials(#[from] CredentialsError),
    /// The recording cannot be begun.
    #[error("cannot record to {path} (`index.record`): {error}")]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        error: RecordError,
    },
    /// The recording cannot be read.
    #[error("cannot rebuild the index from {path} (`index.from`): {error}")]
    From {
        /// The file.
        path: PathBuf,
        /// Why.
        error: RecordError,
    },
    /// The workers cannot be listened to.
    #[error(transparent)]
    Fleet(#[from] FleetError),
}

/// The index as a service: bound to its address, and listening to its workers.
#[derive(Debug)]
pub struct Service {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    server: HttpServer,
    /// Ends with this.
    recording: Option<Recording>,
}

impl Service {
    /// Starts to listen to the workers of a configuration. Answers are given by [`Service::run`].
    pub async fn start(resolved: &Resolved, metrics: Arc<Metrics>) -> Result<Self, StartError> {
        let config = &resolved.config;
        // First the address: whoever cannot have it should disturb nobody.
        let (listener, address) = listen(config).await?;
        let hasher = KeyHasher::new(config.hash_seed);
        let (shelves, recording) = match &config.indexer.from {
            Some(path) => (still(path.clone(), config, &metrics).await?, None),
            None => live(resolved, &metrics).await?,
        };
        let app = App {
            recording: recording.as_ref().map(Recording::progress),
            ..App::new(shelves, hasher, metrics.clone(), bodies(config, &metrics))
        };
        let app = Arc::new(app);
        let (settings, renew) = (&config.indexer.http, config.discovery.file_interval);
        let server = HttpServer::new(settings, http::routes(app.clone()), renew, &metrics)?;
        if !address.ip().is_loopback() && !server.asks_for_token() {
            tracing::warn!(%address, "other machines can read what is cached where: set `index.token`");
        }
        Ok(Self {
            listener,
            address,
            app,
            server,
            recording,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same, with how it is spoken to.
    pub fn url(&self) -> String {
        format!("{}://{}", self.server.scheme(), self.address)
    }

    /// One line for each worker: who it is, and where what it caches is heard.
    pub fn workers(&self) -> Vec<String> {
        let mut seats: Vec<_> = self.app.shelves.seats().map(|(_, seat)| seat).collect();
        seats.sort_by_key(|seat| seat.rank);
        seats.dedup_by_key(|seat| seat.rank.worker);
        seats.iter().map(|seat| format!("worker {}", seat.spec)).collect()
    }

    /// Answers until `stop` is done, and what was asked before that within a few seconds.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) {
        let (told, tell) = oneshot::channel();
        let stop = async move {
            stop.await;
            let _ = told.send(());
        };
        let late = async move {
            // An error means that it ended by itself.
            if tell.await.is_ok() {
                tokio::time::sleep(GRACE).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.server.run(self.listener, stop) => {}
            () = late => tracing::warn!("answers that took longer than {GRACE:?} were cut off"),
        }
        // It ends while its ranks are still there: that they leave, because we do, is no part of it.
        drop(self.recording);
        drop(self.app);
    }
}

/// Listens to all workers, and records what it hears if that was asked for.
async fn live(resolved: &Resolved, metrics: &Arc<Metrics>) -> Result<(Shelves, Option<Recording>), StartError> {
    let config = &resolved.config;
    if config.workers.is_empty() {
        return Err(StartError::NoWorkers);
    }
    let begin = |path: &PathBuf| {
        Recording::begin(path, resolved, metrics.clone()).map_err(|error| StartError::Record {
            path: path.clone(),
            error,
        })
    };
    let mut recording = config.indexer.record.as_ref().map(begin).transpose()?;
    let hooks = |_: &_| match &mut recording {
        None => Hooks::default(),
        Some(recording) => {
            let mut recorder = recording.recorder();
            Hooks {
                record: Some(Box::new(move |now_ms, told| recorder.record(now_ms, told))),
                ..Hooks::default()
            }
        }
    };
    let fleet = Fleet::start(config, metrics, hooks).await?;
    let (members, keepers) = fleet.into_parts();
    let kept = keepers
        .into_iter()
        .map(|(subject, keeper)| (subject, Kept::Live(keeper)));
    Ok((Shelves::new(members, kept.collect()), recording))
}

/// Does again what was recorded.
async fn still(path: PathBuf, config: &Config, metrics: &Metrics) -> Result<Shelves, StartError> {
    let seed = config.hash_seed;
    let reading = path.clone();
    // A long recording is read for a while.
    let rebuilt = tokio::task::spawn_blocking(move || record::rebuild(&reading, seed)).await;
    let rebuilt = rebuilt.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    let rebuilt = rebuilt.map_err(|error| StartError::From {
        path: path.clone(),
        error,
    })?;
    let (path, entries) = (path.display(), rebuilt.entries);
    match rebuilt.ending {
        Ending::Whole => tracing::info!(%path, entries, "the index is rebuilt"),
        Ending::CutOff { bytes_left } => tracing::warn!(
            %path, entries, bytes_left,
            "the recording was not ended properly: the index is rebuilt up to where it is cut off"
        ),
    }
    let kept = rebuilt.indexes.into_iter().map(|(subject, still)| {
        still.tell(metrics);
        (subject, Kept::still(still))
    });
    Ok(Shelves::new(rebuilt.members, kept.collect()))
}

/// How bodies of questions are read.
fn bodies(config: &Config, metrics: &Arc<Metrics>) -> Bodies {
    let bodies = &config.serve.bodies;
    Bodies {
        budget: BodyBudget::new(bodies.budget_bytes, metrics),
        limits: BodyLimits {
            max_bytes: config.indexer.max_request_bytes,
            timeout: BODY_TIMEOUT,
            min_bytes_per_second: bodies.min_upload_bytes_per_second,
            window: bodies.upload_window,
        },
    }
}

async fn listen(config: &Config) -> Result<(TcpListener, SocketAddr), StartError> {
    let wanted = config.indexer.listen;
    let failed = |error| StartError::Listen { address: wanted, error };
    let listener = TcpListener::bind(wanted).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}
