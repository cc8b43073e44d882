//! A connection to a worker, with or without TLS.

use std::time::Duration;

use homing_tls::{Io, Trust};
use tokio::net::TcpStream;

use crate::pool::DialError;

/// Where a worker is, as sockets want it.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Who must vouch for it, if it is spoken to with TLS.
    pub(crate) trust: Option<Trust>,
}

/// Connects, and agrees upon TLS if that is spoken, within `patience`.
pub(crate) async fn connect(address: &Address, patience: Duration) -> Result<Io, DialError> {
    let connecting = async {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        // If that cannot be set, requests go a little later.
        let _ = stream.set_nodelay(true);
        match &address.trust {
            None => Ok(Io::Plain(stream)),
            Some(trust) => Ok(trust.connect(&address.host, stream).await?),
        }
    };
    let connected = tokio::time::timeout(patience, connecting).await;
    connected.unwrap_or(Err(DialError::Late(patience)))
}
