//! From what the operator asked for to engines that answer, and their end.

use std::future::{Future, IntoFuture, pending};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use homing_config::Config;
use homing_engine::Engine;
use homing_transport::http::Bounded;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::app::{self, App};
use crate::clock::Clock;
use crate::core::{Core, Telling};
use crate::feed::Feed;
use crate::kv::{self, Kv};
use crate::refusal::Refusal;
use crate::settings::{Settings, StartError};
use crate::trace::{Trace, Writing};

/// After it was told to stop, how long answers that are under way may take.
const GRACE: Duration = Duration::from_secs(2);
/// Connections of a worker at once.
const CONNECTIONS: usize = 16_384;

/// Engines without a GPU: bound to their addresses.
#[derive(Debug)]
pub struct Service {
    workers: Vec<Worker>,
    /// Last, so that it ends after those who tell it something.
    writing: Option<Writing>,
}

/// One engine.
#[derive(Debug)]
struct Worker {
    listener: std::net::TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    /// Where others fetch KV.
    kv: Option<std::net::TcpListener>,
}

/// Where a worker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its HTTP server.
    pub address: SocketAddr,
    /// For each rank where its events are published and where they can be asked for again, if they are and can.
    pub ranks: Vec<(Option<String>, Option<String>)>,
    /// Where others fetch KV, if they can.
    pub kv: Option<SocketAddr>,
}

impl Service {
    /// Binds all sockets. Answers are given by [`Service::run`].
    pub async fn start(config: &Config) -> Result<Self, StartError> {
        let settings = Arc::new(Settings::new(config)?);
        let (trace, writing) = match &settings.mock.kv_trace {
            None => (None, None),
            Some(file) => {
                let opened = Trace::open(file).map_err(|error| StartError::Trace {
                    file: file.clone(),
                    error,
                })?;
                (Some(opened.0), Some(opened.1))
            }
        };
        let mut workers = Vec::new();
        for worker in 0..settings.mock.workers {
            workers.push(start(&settings, worker, trace.clone()).await?);
        }
        Ok(Self { workers, writing })
    }

    /// Where the workers are, in order.
    pub fn places(&self) -> Vec<Place> {
        let place = |worker: &Worker| {
            let text = |endpoint: homing_transport::zmq::Endpoint| endpoint.to_string();
            let ranks = worker.app.core.feeds().iter();
            let ranks = ranks.map(|feed| (feed.events().map(text), feed.replay().map(text)));
            Place {
                address: worker.address,
                ranks: ranks.collect(),
                kv: worker.app.core.kv.as_ref().map(|kv| kv.at),
            }
        };
        self.workers.iter().map(place).collect()
    }

    /// Answers until `stop` is done, and a little longer those who were being answered. When this is dropped before, all is gone at once,
    /// as when a process is killed: connections break in the middle of answers.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        let Self { workers, writing } = self;
        let (tell, told) = watch::channel(false);
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let mut teams: Vec<Vec<Worker>> = (0..threads.min(workers.len())).map(|_| Vec::new()).collect();
        for (number, worker) in workers.into_iter().enumerate() {
            teams[number % threads].push(worker);
        }
        let mut serving = JoinSet::new();
        for team in teams {
            let (over, ended) = oneshot::channel();
            let told = told.clone();
            thread::Builder::new().name("mock".to_owned()).spawn(move || {
                // Nobody waits for it any more if whoever runs the service was dropped.
                let _ = over.send(serve(team, &told));
            })?;
            // A thread that ends without a word has panicked.
            serving.spawn(async move {
                ended
                    .await
                    .unwrap_or_else(|_| Err(io::Error::other("a server panicked")))
            });
        }
        tokio::select! {
            () = stop => {}
            // A server ends by itself only when it cannot go on.
            ended = serving.join_next() => {
                if let Some(Ok(Err(error))) = ended {
                    return Err(error);
                }
            }
        }
        let _ = tell.send(true);
        while serving.join_next().await.is_some() {}
        drop(writing);
        Ok(())
    }
}

/// Serves some workers on one thread until they are told to stop. All of a worker is on one thread, so that those who wait for it are
/// told in the order in which the engine has something for them, as by an engine whose server has one thread.
fn serve(workers: Vec<Worker>, told: &watch::Receiver<bool>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut serving = JoinSet::new();
        let mut driving = JoinSet::new();
        let mut ends = told.clone();
        for worker in workers {
            let core = worker.app.core.clone();
            driving.spawn(core.clone().drive());
            if let Some(listener) = worker.kv {
                let listener = TcpListener::from_std(listener)?;
                driving.spawn(kv::serve(core.clone(), listener));
            }
            let mut told = told.clone();
            let stop = async move {
                // An error means that whoever tells is gone: then nobody is served to the end.
                if told.wait_for(|stop| *stop).await.is_err() {
                    pending::<()>().await;
                }
            };
            let refusal = Refusal { core, is_admin: false };
            let listener = TcpListener::from_std(worker.listener)?;
            let listener = Bounded::with_gate(listener, CONNECTIONS, refusal);
            let served = axum::serve(listener, app::routes(worker.app));
            serving.spawn(served.with_graceful_shutdown(stop).into_future());
        }
        tokio::select! {
            told = ends.wait_for(|stop| *stop) => {
                if told.is_err() {
                    return Ok(());
                }
            }
            ended = serving.join_next() => {
                if let Some(Ok(Err(error))) = ended {
                    return Err(error);
                }
            }
        }
        let ended = tokio::time::timeout(GRACE, async { while serving.join_next().await.is_some() {} }).await;
        if ended.is_err() {
            tracing::warn!("answers that took longer than {GRACE:?} were cut off");
        }
        driving.shutdown().await;
        Ok(())
    })
}

async fn start(settings: &Arc<Settings>, worker: u16, trace: Option<Trace>) -> Result<Worker, StartError> {
    let address = settings.address(worker);
    let failed = |error| StartError::Listen { address, error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let mut feeds = Vec::new();
    for rank in 0..settings.mock.dp_size {
        let opened = Feed::open(settings.places(worker, rank)?).await;
        let mut feed = opened.map_err(|error| StartError::Events { worker, rank, error })?;
        feed.settle();
        feeds.push(feed);
    }
    let engine = Engine::new(settings.engine.clone())?;
    let clock = Clock::new(settings.mock.speedup);
    let telling = Telling {
        worker,
        form: settings.form,
        feeds,
        trace,
        ahead: settings.mock.clock_ahead,
    };
    let (side, kv) = match bind_kv(settings, worker).await? {
        None => (None, None),
        Some((listener, at)) => {
            let kv = Kv::new(settings.mock.kv, at, &settings.engine.timing, settings.mock.speedup);
            (Some(listener), Some(kv))
        }
    };
    let core = Core::new(engine, clock, settings.faults, telling, kv);
    let app = Arc::new(App::new(Arc::new(core), settings.clone()));
    // It is served by another runtime than the one that bound it.
    let listener = listener.into_std().map_err(failed)?;
    Ok(Worker {
        listener,
        address,
        app,
        kv: side,
    })
}

/// The socket at which others fetch KV, where it is handed over.
async fn bind_kv(settings: &Settings, worker: u16) -> Result<Option<(std::net::TcpListener, SocketAddr)>, StartError> {
    let Some(address) = settings.kv_address(worker) else {
        return Ok(None);
    };
    let failed = |error| StartError::KvListen { address, error };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    Ok(Some((listener.into_std().map_err(failed)?, at)))
}
