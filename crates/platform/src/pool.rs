//! Keeps idle connections for the next request to the same destination.
//!
//! Engines close idle connections after a few seconds, and a request that is sent at that moment is lost without an answer. So the
//! pool gives up idle connections before the engine does, hands out the youngest first, and a connection says whether it was
//! used before: when such a one dies before any answer, that says nothing about the server.
//!
//! **Invariant:** a connection is in the pool or in use, never both. A connection whose answer was not read to its end is closed, which
//! is how an engine learns that the client left.
//!
//! Idle connections are bounded by [`MAX_IDLE`] per destination.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::connect::{Address, ConnectError, connect};
use crate::connection::HttpConnection;

/// Idle connections to one destination, at most.
const MAX_IDLE: usize = 1024;

#[derive(Debug)]
struct IdleConnection {
    connection: HttpConnection,
    since: Instant,
}

/// Idle connections, by destination.
#[derive(Debug)]
pub struct ConnectionPool<K> {
    idle: Mutex<HashMap<K, Vec<IdleConnection>>>,
    idle_timeout: Duration,
    connect_timeout: Duration,
}

impl<K: Eq + Hash> ConnectionPool<K> {
    /// A pool without connections. An `idle_timeout` of zero keeps none.
    pub fn new(idle_timeout: Duration, connect_timeout: Duration) -> Self {
        Self {
            idle: Mutex::default(),
            idle_timeout,
            connect_timeout,
        }
    }

    /// Takes the youngest idle connection that is still usable.
    pub fn take(&self, destination: &K) -> Option<HttpConnection> {
        let mut idle = self.idle();
        let connections = idle.get_mut(destination)?;
        while let Some(IdleConnection { connection, since }) = connections.pop() {
            if since.elapsed() < self.idle_timeout && connection.is_free() {
                return Some(connection);
            }
        }
        None
    }

    /// Opens a new connection.
    pub async fn connect(&self, address: &Address) -> Result<HttpConnection, ConnectError> {
        let stream = connect(address, self.connect_timeout).await?;
        Ok(HttpConnection::new(stream))
    }

    /// Keeps a connection whose answer was read to its end. Closes any other.
    pub fn put_back(&self, destination: K, connection: HttpConnection) {
        if self.idle_timeout.is_zero() || !connection.is_free() {
            return;
        }
        let mut idle = self.idle();
        let connections = idle.entry(destination).or_default();
        if connections.len() < MAX_IDLE {
            connections.push(IdleConnection {
                connection,
                since: Instant::now(),
            });
        }
    }

    /// Closes connections that were idle for too long. Call it a few times per idle timeout.
    pub fn sweep(&self) {
        let mut idle = self.idle();
        for connections in idle.values_mut() {
            connections.retain(|idle| idle.since.elapsed() < self.idle_timeout && idle.connection.is_free());
        }
        idle.retain(|_, connections| !connections.is_empty());
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<K, Vec<IdleConnection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
