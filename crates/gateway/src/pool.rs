//! Which connection to a worker carries this request? One that is idle, or a new one.
//!
//! Engines close idle connections after a few seconds, and a request that is sent at that moment is lost without an answer. So idle
//! connections are given up before the engine does, the youngest is used first, and whoever gets one that was used before is
//! told so: if it dies before any answer, that says nothing about the worker.
//!
//! **Invariant:** a connection is in the pool or in use, never both. One whose answer was not read to its end is closed: that is
//! how an engine learns that nobody waits.
//!
//! Each thread that carries requests has a pool of its own. Idle connections are bounded by what was in use at once.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use homing_domain::WorkerId;
use http_body_util::Full;
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::http::Response;
use hyper_util::rt::TokioIo;
use thiserror::Error;

use crate::dial::{self, Address};

/// Idle connections to one worker that are kept at most.
const MOST_IDLE: usize = 1024;
/// What is read from a worker at once, at most: what a slow client holds of an answer.
const READ_BUFFER: usize = 32 << 10;

type Sender = SendRequest<Full<Bytes>>;

/// Why there is no connection.
#[derive(Debug, Error)]
pub(crate) enum DialError {
    #[error("cannot connect: {0}")]
    Refused(#[from] io::Error),
    #[error("cannot speak TLS: {0}")]
    Tls(#[from] homing_tls::HandshakeError),
    #[error("no connection within {0:?}")]
    Late(Duration),
    #[error("cannot speak HTTP: {0}")]
    Http(#[from] hyper::Error),
}

/// A connection that is in use.
#[derive(Debug)]
pub(crate) struct Line {
    sender: Sender,
    /// Whether it carried a request before.
    pub(crate) used: bool,
}

#[derive(Debug)]
struct Idle {
    sender: Sender,
    since: Instant,
}

/// Idle connections, by worker.
#[derive(Debug)]
pub(crate) struct Pool {
    idle: Mutex<HashMap<WorkerId, Vec<Idle>>>,
    keep: Duration,
    patience: Duration,
}

impl Pool {
    /// Connections are kept for `keep`, and made within `patience`.
    pub(crate) fn new(keep: Duration, patience: Duration) -> Self {
        Self {
            idle: Mutex::default(),
            keep,
            patience,
        }
    }

    /// The youngest idle connection to a worker that is still good.
    pub(crate) fn take(&self, worker: WorkerId) -> Option<Line> {
        let mut idle = self.idle();
        let lines = idle.get_mut(&worker)?;
        while let Some(Idle { sender, since }) = lines.pop() {
            if since.elapsed() < self.keep && !sender.is_closed() {
                return Some(Line { sender, used: true });
            }
        }
        None
    }

    /// A new connection.
    pub(crate) async fn dial(&self, address: &Address) -> Result<Line, DialError> {
        let stream = dial::connect(address, self.patience).await?;
        let mut http = http1::Builder::new();
        http.max_buf_size(READ_BUFFER).preserve_header_case(false);
        let (sender, connection) = http.handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // Whoever waits for an answer is told of it.
            if let Err(error) = connection.await {
                tracing::trace!(%error, "a connection to a worker ended");
            }
        });
        Ok(Line { sender, used: false })
    }

    /// A connection is idle: all of its answer was read.
    pub(crate) fn put_back(&self, worker: WorkerId, line: Line) {
        if self.keep.is_zero() || line.sender.is_closed() {
            return;
        }
        let mut idle = self.idle();
        let lines = idle.entry(worker).or_default();
        if lines.len() < MOST_IDLE {
            lines.push(Idle {
                sender: line.sender,
                since: Instant::now(),
            });
        }
    }

    /// Closes what was idle for too long. To be called a few times in the time that connections are kept.
    pub(crate) fn sweep(&self) {
        let mut idle = self.idle();
        for lines in idle.values_mut() {
            lines.retain(|line| line.since.elapsed() < self.keep && !line.sender.is_closed());
        }
        idle.retain(|_, lines| !lines.is_empty());
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<WorkerId, Vec<Idle>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Sends a request, and waits for the head of its answer.
    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, hyper::Error> {
        // The end of an answer can be read before the connection knows that it is free again.
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }
}
