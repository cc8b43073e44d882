//! Opens connections, with or without TLS.

use std::io;
use std::time::Duration;

use homing_tls::{Io, Trust};
use thiserror::Error;
use tokio::net::TcpStream;

/// Where a server listens.
#[derive(Clone, Debug)]
pub struct Address {
    /// A name or an IP address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The certificates to trust. `None`: the connection has no TLS.
    pub trust: Option<Trust>,
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The server refuses, or cannot be reached.
    #[error("cannot connect: {0}")]
    Refused(#[from] io::Error),
    /// The TLS handshake failed.
    #[error("cannot speak TLS: {0}")]
    Tls(#[from] homing_tls::HandshakeError),
    /// Nothing happened in time.
    #[error("no connection within {0:?}")]
    TimedOut(Duration),
}

/// Connects within `timeout`, TLS handshake included.
pub(crate) async fn connect(address: &Address, timeout: Duration) -> Result<Io, ConnectError> {
    let connecting = async {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        // Without it requests are only a little later.
        let _ = stream.set_nodelay(true);
        match &address.trust {
            None => Ok(Io::Plain(stream)),
            Some(trust) => Ok(trust.connect(&address.host, stream).await?),
        }
    };
    let connected = tokio::time::timeout(timeout, connecting).await;
    connected.unwrap_or(Err(ConnectError::TimedOut(timeout)))
}
