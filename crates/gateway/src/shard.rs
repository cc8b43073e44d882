//! Threads that carry requests.
//!
//! Each has a runtime and a pool of connections of its own and accepts from the same socket, so that a piece of an answer goes from
//! the worker's socket to the client's without a word to another thread.
//!
//! **Invariant:** a connection stays on its thread.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener as StdListener;
use std::pin::pin;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, body::Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::gateway::Gateway;
use crate::pool::Pool;
use homing_platform::door::Door;
use homing_platform::door::Entered;
use homing_platform::guard::{Ticketed, is_last};
use homing_platform::server::accept;
use homing_platform::stall::Stall;

/// What is read of a request at once, and kept of an answer that a client does not take.
const BUFFER: usize = 64 << 10;
/// Headers that the library takes unless it is told otherwise.
const LIBRARY_HEADERS: usize = 100;
/// How often idle connections to workers are looked at.
const SWEEP: Duration = Duration::from_millis(500);

/// The threads. They end when they are told to, or when this is dropped.
#[derive(Debug)]
pub(crate) struct Shards {
    threads: Vec<JoinHandle<()>>,
}

/// When to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Not yet.
    No,
    /// When everything that was asked is answered; take nothing new.
    WhenDone,
    /// Now.
    Now,
}

impl Shards {
    /// Starts `count` threads that accept from `listener`.
    pub(crate) fn start(
        gateway: &Arc<Gateway>,
        door: &Arc<Door>,
        listener: &StdListener,
        count: usize,
        ending: &watch::Receiver<Ending>,
    ) -> io::Result<Self> {
        let mut threads = Vec::with_capacity(count);
        for number in 0..count {
            let shard = Shard {
                gateway: gateway.clone(),
                door: door.clone(),
                ending: ending.clone(),
            };
            let listener = listener.try_clone()?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let thread = thread::Builder::new().name(format!("gateway-{number}"));
            threads.push(thread.spawn(move || runtime.block_on(shard.run(listener)))?);
        }
        Ok(Self { threads })
    }

    /// Waits until all have ended.
    pub(crate) fn join(self) {
        for thread in self.threads {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

#[derive(Clone)]
struct Shard {
    gateway: Arc<Gateway>,
    door: Arc<Door>,
    ending: watch::Receiver<Ending>,
}

impl Shard {
    async fn run(self, listener: StdListener) {
        let times = self.gateway.config.load().serve.times.clone();
        let pool = Arc::new(Pool::new(times.idle, times.connect));
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "a thread cannot accept");
                return;
            }
        };
        let mut ending = self.ending.clone();
        let (open, mut none_open) = tokio::sync::mpsc::channel::<Infallible>(1);
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                accepted = accept(&listener) => {
                    let (stream, from) = accepted;
                    if let Some((entered, stream)) = self.door.enter(stream, from) {
                        let (shard, pool, open) = (self.clone(), pool.clone(), open.clone());
                        tokio::spawn(async move {
                            shard.connection(stream, &entered, pool).await;
                            drop((entered, open));
                        });
                    }
                }
                _ = sweep.tick() => pool.sweep(),
                changed = ending.changed() => {
                    if changed.is_err() || *ending.borrow() != Ending::No {
                        break;
                    }
                }
            }
        }
        drop((open, listener));
        let now = async {
            // An error means that whoever tells us is gone.
            while ending.changed().await.is_ok() && *ending.borrow() != Ending::Now {}
        };
        tokio::select! {
            _ = none_open.recv() => {}
            () = now => {}
        }
    }

    async fn connection(self, stream: TcpStream, entered: &Entered, pool: Arc<Pool>) {
        let times = self.gateway.config.load().serve.times.clone();
        let wrap = |io| Stall::new(io, times.client_stall);
        let Some(guard) = self.door.open(stream, entered, wrap).await else {
            return;
        };
        let (gateway, watch, client) = (self.gateway.clone(), entered.watch().clone(), entered.client());
        let service = service_fn(move |request: Request<Incoming>| {
            let (gateway, pool, watch) = (gateway.clone(), pool.clone(), watch.clone());
            async move {
                let last = is_last(request.headers());
                let mut answered = match watch.fault(request.method()) {
                    None => gateway.answer(&pool, request, client).await,
                    Some(fault) => gateway.refuse_head(fault),
                };
                if last {
                    let close = HeaderValue::from_static("close");
                    answered.headers_mut().insert(header::CONNECTION, close);
                }
                Ok::<_, Infallible>(answered.map(|body| Ticketed::new(body, watch)))
            }
        });
        let mut http = http1::Builder::new();
        // What is longer, or takes longer, the guard refuses.
        http.max_buf_size(self.door.most_header_bytes().max(BUFFER))
            // Pieces of an answer are small: to copy one costs less than to hand three parts of it to the system.
            .writev(false)
            .pipeline_flush(false);
        // Beyond its own number the library takes memory for each request.
        if self.door.most_headers() > LIBRARY_HEADERS {
            http.max_headers(self.door.most_headers());
        }
        let mut connection = pin!(http.serve_connection(TokioIo::new(guard), service));
        let mut ending = self.ending.clone();
        loop {
            tokio::select! {
                // Nearly always it is the connection, for each piece of an answer.
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::trace!(%error, "a client's connection ended");
                    }
                    return;
                }
                changed = ending.changed() => {
                    if changed.is_err() || *ending.borrow() == Ending::Now {
                        return;
                    }
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
