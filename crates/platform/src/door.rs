//! Who is let in? Connections are counted, in all and by address, and TLS is agreed upon.
//!
//! Who is turned away is told so where that can be said without TLS, and only to so many at once: the others are just closed.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use homing_config::security::DoorLimits;
use homing_telemetry::{Metrics, TurnedAway};
use homing_tls::{Identity, Io};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::connections::{Access, ConnectionLimits, Connections, Displaced, WhenFull};
use crate::guard::{Guard, Watch};

/// Those who are told at once that there is no room for them.
const FAREWELLS: usize = 64;
/// How long telling one may take.
const FAREWELL: Duration = Duration::from_millis(500);
/// How long a connection above a limit may take to agree upon TLS, and to send a head.
const RESERVED_TIMEOUT: Duration = Duration::from_secs(2);
/// What they are told.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n\
    content-length: 112\r\n\r\n\
    {\"error\":{\"message\":\"there are too many connections\",\"type\":\"ServiceUnavailableError\",\"param\":null,\"code\":503}}\n";

/// The door of one listener.
#[derive(Debug)]
pub struct Door {
    /// Held for as long as one is counted.
    connections: Mutex<Connections>,
    counted: ConnectionLimits,
    limits: DoorLimits,
    identity: Option<Identity>,
    farewells: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

/// A connection that was let in; it counts until this is dropped.
#[derive(Debug)]
pub struct Entered {
    door: Arc<Door>,
    id: u64,
    client: IpAddr,
    access: Access,
    watch: Arc<Watch>,
}

impl Entered {
    /// The address that it is counted for: see [`client_of`].
    pub fn client(&self) -> IpAddr {
        self.client
    }

    /// What it may be used for.
    pub fn access(&self) -> Access {
        self.access
    }

    /// What it and its requests know of each other.
    pub fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }
}

impl Door {
    /// A door for `connections` at once. With an identity, TLS is spoken.
    pub fn new(
        connections: usize,
        when_full: WhenFull,
        limits: DoorLimits,
        identity: Option<Identity>,
        metrics: &Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            connections: Mutex::default(),
            counted: ConnectionLimits {
                total: connections,
                per_client: limits.per_client,
                when_full,
            },
            limits,
            identity,
            farewells: Arc::new(Semaphore::new(FAREWELLS)),
            metrics: metrics.clone(),
        })
    }

    /// The longest head that comes through, in bytes.
    pub fn most_header_bytes(&self) -> usize {
        usize::try_from(self.limits.header_bytes).unwrap_or(usize::MAX)
    }

    /// The most headers that come through.
    pub fn most_headers(&self) -> usize {
        self.limits.headers as usize
    }

    /// Lets a connection in, or turns it away.
    pub fn enter(self: &Arc<Self>, stream: TcpStream, from: SocketAddr) -> Option<(Entered, TcpStream)> {
        let client = client_of(from.ip());
        let watch = Watch::new(&self.metrics);
        // The lock is given back before anything is dropped that wants it.
        let accepted = self.connections().accept(client, &watch, &self.counted);
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(limit) => {
                self.turn_away(stream, limit);
                return None;
            }
        };
        let pass = Entered {
            door: self.clone(),
            id: accepted.id,
            client,
            access: accepted.access,
            watch,
        };
        self.metrics.gateway.open_connections.raise();
        if accepted.displaced == Displaced::One {
            self.metrics.http.displaced_connections.add(1);
        }
        if accepted.access == Access::HealthOnly {
            self.metrics.http.reserved_connections.add(1);
        }
        // If that cannot be set, answers come a little later.
        let _ = stream.set_nodelay(true);
        Some((pass, stream))
    }

    /// Agrees upon TLS, if it is spoken, and guards what comes.
    pub async fn open<W>(&self, stream: TcpStream, entered: &Entered, wrap: impl FnOnce(Io) -> W) -> Option<Guard<W>>
    where
        W: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let mut limits = self.limits.clone();
        if entered.access == Access::HealthOnly {
            limits.handshake = limits.handshake.min(RESERVED_TIMEOUT);
            limits.header_time = limits.header_time.min(RESERVED_TIMEOUT);
        }
        let io = match &self.identity {
            None => Io::Plain(stream),
            Some(identity) => match identity.accept(stream, limits.handshake).await {
                Ok(io) => io,
                Err(error) => {
                    tracing::debug!(%error, "a connection is not taken");
                    self.metrics
                        .gateway
                        .refused_connections
                        .of(TurnedAway::Handshake)
                        .add(1);
                    return None;
                }
            },
        };
        Some(Guard::new(wrap(io), entered.watch.clone(), limits))
    }

    fn turn_away(&self, mut stream: TcpStream, why: TurnedAway) {
        self.metrics.gateway.refused_connections.of(why).add(1);
        if self.identity.is_some() {
            return;
        }
        let Ok(permit) = self.farewells.clone().try_acquire_owned() else {
            return;
        };
        tokio::spawn(async move {
            let telling = async {
                stream.write_all(FULL).await?;
                stream.shutdown().await?;
                // Closing while something is unread would take the answer from who sent it.
                let mut rest = [0; 1024];
                while stream.read(&mut rest).await? > 0 {}
                Ok::<_, std::io::Error>(())
            };
            let _ = tokio::time::timeout(FAREWELL, telling).await;
            drop(permit);
        });
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.door.metrics.gateway.open_connections.lower();
        self.door.connections().remove(self.id);
    }
}

/// Whom an address stands for: of IPv6 everybody has a network of 64 bits at least.
pub fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let of = |text: &str| client_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[test]
    fn what_is_said_at_the_door_is_as_long_as_it_says() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{}",
            body.len()
        );
        let said: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(said["error"]["code"], 503);
    }
}
