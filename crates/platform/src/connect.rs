//! Opens connections, with or without TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use homing_config::{AddressRules, LoopbackUse};
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
    /// Which addresses its name may lead to. `None`: any.
    pub rules: Option<ConnectRules>,
}

/// Which addresses may be connected to.
#[derive(Clone, Debug)]
pub struct ConnectRules {
    /// The networks that are allowed and denied.
    pub rules: Arc<AddressRules>,
    /// Whether addresses of this machine are allowed.
    pub loopback: LoopbackUse,
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
        let stream = open(address).await?;
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

/// Opens a connection. Where rules hold, all addresses that a name leads to must be allowed now.
async fn open(address: &Address) -> io::Result<TcpStream> {
    let target = (address.host.as_str(), address.port);
    let Some(ConnectRules { rules, loopback }) = &address.rules else {
        return TcpStream::connect(target).await;
    };
    let found: Vec<SocketAddr> = tokio::net::lookup_host(target).await?.collect();
    for one in &found {
        let judged = rules.check(*one, *loopback);
        judged.map_err(|denied| io::Error::new(io::ErrorKind::PermissionDenied, denied))?;
    }
    TcpStream::connect(&found[..]).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_leads_to_a_denied_address_is_not_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = |loopback| Address {
            host: "localhost".to_owned(),
            port: listener.local_addr().unwrap().port(),
            trust: None,
            rules: Some(ConnectRules {
                rules: Arc::default(),
                loopback,
            }),
        };
        let timeout = Duration::from_mins(1);
        let refused = connect(&at(LoopbackUse::Listed), timeout).await.unwrap_err();
        assert!(refused.to_string().contains("loopback address"), "{refused}");
        connect(&at(LoopbackUse::Allowed), timeout).await.unwrap();
    }
}
