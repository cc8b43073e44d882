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

use homing_domain::WorkerId;
use thiserror::Error;

use crate::dial::{self, Address};
use crate::line::Line;

/// Idle connections to one worker that are kept at most.
const MOST_IDLE: usize = 1024;

/// Why there is no connection.
#[derive(Debug, Error)]
pub(crate) enum DialError {
    #[error("cannot connect: {0}")]
    Refused(#[from] io::Error),
    #[error("cannot speak TLS: {0}")]
    Tls(#[from] homing_tls::HandshakeError),
    #[error("no connection within {0:?}")]
    Late(Duration),
}

#[derive(Debug)]
struct Idle {
    line: Line,
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
        while let Some(Idle { line, since }) = lines.pop() {
            if since.elapsed() < self.keep && line.is_free() {
                return Some(line);
            }
        }
        None
    }

    /// A new connection.
    pub(crate) async fn dial(&self, address: &Address) -> Result<Line, DialError> {
        let stream = dial::connect(address, self.patience).await?;
        Ok(Line::new(stream))
    }

    /// A connection is idle: all of its answer was read.
    pub(crate) fn put_back(&self, worker: WorkerId, line: Line) {
        if self.keep.is_zero() || !line.is_free() {
            return;
        }
        let mut idle = self.idle();
        let lines = idle.entry(worker).or_default();
        if lines.len() < MOST_IDLE {
            lines.push(Idle {
                line,
                since: Instant::now(),
            });
        }
    }

    /// Closes what was idle for too long. To be called a few times in the time that connections are kept.
    pub(crate) fn sweep(&self) {
        let mut idle = self.idle();
        for lines in idle.values_mut() {
            lines.retain(|idle| idle.since.elapsed() < self.keep && idle.line.is_free());
        }
        idle.retain(|_, lines| !lines.is_empty());
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<WorkerId, Vec<Idle>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
