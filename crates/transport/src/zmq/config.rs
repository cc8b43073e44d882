//! What do our sockets allow themselves and their peers?

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::error::ConnectionError;

/// Bounds on what a peer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all frames of a message together. One that announces more ends the connection before any of it is
    /// kept.
    pub message_bytes: u32,
    /// Frames of a message. One with more ends the connection.
    pub message_frames: u32,
    /// Publishers that may be connected at once to a subscriber that binds. One more is hung up on.
    pub peers: usize,
}

impl Default for Limits {
    /// 16 MiB, 16 frames, 4 peers: a batch about a million tokens has some 5 MB, in three frames.
    fn default() -> Self {
        Self {
            message_bytes: 16 << 20,
            message_frames: 16,
            peers: 4,
        }
    }
}

/// How a connection over which nothing comes is told from one that is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// After so long without a byte the peer is asked for a sign of life.
    pub interval: Duration,
    /// After so long without a byte in answer, the connection is over.
    pub timeout: Duration,
}

impl Default for Heartbeat {
    /// 2 s and 3 s: a dead connection is known within 5 s.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(3),
        }
    }
}

/// How long each step towards a connection may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Looking up the name and connecting.
    pub dial: Duration,
    /// From there until the handshake is over and the subscription confirmed.
    pub handshake: Duration,
    /// Between the publisher's answer behind our subscription and the moment we believe in it. A libzmq publisher
    /// answers from its IO thread; the socket itself looks for subscriptions when it next sends, but not more often
    /// than every 3 ms. A message that arrives sooner ends the wait: there is no better proof.
    pub settle: Duration,
}

impl Default for Patience {
    /// 5 s, 5 s, 10 ms.
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(5),
            handshake: Duration::from_secs(5),
            settle: Duration::from_millis(10),
        }
    }
}

/// How long to wait before the next attempt: twice as long each time, half of it by chance, so that subscribers that
/// lost the same publisher do not all come back at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Upper end of the first wait.
    pub first: Duration,
    /// Upper end of any wait.
    pub most: Duration,
}

impl Default for Backoff {
    /// 100 ms, 5 s.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(100),
            most: Duration::from_secs(5),
        }
    }
}

impl Backoff {
    /// The wait after so many failures in a row, where `chance` is between 0 and 1.
    pub(crate) fn wait(&self, failures: u32, chance: f64) -> Duration {
        let doubled = self
            .first
            .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
        let most = doubled.min(self.most);
        most.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }
}

/// Who can reach a socket that binds?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// Processes of this machine. `tcp://*:port` then means its loopback address, and another address is refused.
    #[default]
    Loopback,
    /// Whoever reaches the address. There is no authentication.
    Network,
}

/// Decides which addresses are connected to, for endpoints that others chose. A name is looked up first, so that it cannot lead
/// elsewhere than it did when it was checked before.
#[derive(Clone)]
pub struct AddressFilter(Arc<Judge>);

type Judge = dyn Fn(SocketAddr) -> Result<(), String> + Send + Sync;

impl AddressFilter {
    /// `check` says why an address is not connected to.
    pub fn new(check: impl Fn(SocketAddr) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    pub(crate) fn check(&self, address: SocketAddr) -> Result<(), ConnectionError> {
        (self.0)(address).map_err(ConnectionError::NotAllowed)
    }
}

impl fmt::Debug for AddressFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AddressFilter")
    }
}

/// What a subscriber wants.
#[derive(Clone, Debug, Default)]
pub struct SubscribeConfig {
    /// Messages whose first frame begins so; empty for all. At most [`TOPIC_BYTES`](super::protocol::TOPIC_BYTES).
    pub topic: Bytes,
    /// Bounds on what a publisher may send.
    pub limits: Limits,
    /// How a dead connection is noticed.
    pub heartbeat: Heartbeat,
    /// How long each step towards a connection may take.
    pub patience: Patience,
    /// How long to wait before connecting again.
    pub backoff: Backoff,
    /// Which addresses are connected to; all if there is none. Local sockets are not connected to if there is one.
    pub filter: Option<AddressFilter>,
}

/// How a replay is asked for.
#[derive(Clone, Debug)]
pub struct ReplayConfig {
    /// Bounds on what the engine may send.
    pub limits: Limits,
    /// How long each step towards a connection may take; there is nothing to settle.
    pub patience: Patience,
    /// How long the engine may be silent before its first message and between two.
    pub silence: Duration,
    /// Which addresses are connected to; all if there is none. Local sockets are not connected to if there is one.
    pub filter: Option<AddressFilter>,
}

impl Default for ReplayConfig {
    /// 10 s of silence.
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            patience: Patience::default(),
            silence: Duration::from_secs(10),
            filter: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_half_of_each_is_chance() {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            most: Duration::from_secs(1),
        };
        let most: Vec<_> = [1, 2, 3, 4, 5, 60].map(|n| backoff.wait(n, 1.0).as_millis()).into();
        assert_eq!(most, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(backoff.wait(1, 0.0), Duration::from_millis(50));
        assert_eq!(backoff.wait(u32::MAX, 0.0), Duration::from_millis(500));
    }
}
