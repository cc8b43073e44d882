//! A connection to a worker, with or without TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use homing_config::{AddressRules, LoopbackUse};
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
    /// Which addresses its name may lead to, if it registered itself.
    pub(crate) rules: Option<(Arc<AddressRules>, LoopbackUse)>,
}

/// Connects, and agrees upon TLS if that is spoken, within `patience`.
pub(crate) async fn connect(address: &Address, patience: Duration) -> Result<Io, DialError> {
    let connecting = async {
        let stream = open(address).await?;
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

/// Opens a connection. Where rules hold, all addresses that a name leads to must be allowed now.
async fn open(address: &Address) -> io::Result<TcpStream> {
    let target = (address.host.as_str(), address.port);
    let Some((rules, loopback)) = &address.rules else {
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
    async fn a_name_that_leads_elsewhere_than_when_it_registered_is_not_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = |loopback| Address {
            host: "localhost".to_owned(),
            port: listener.local_addr().unwrap().port(),
            trust: None,
            rules: Some((Arc::default(), loopback)),
        };
        let patience = Duration::from_mins(1);
        let refused = connect(&at(LoopbackUse::Listed), patience).await.unwrap_err();
        assert!(refused.to_string().contains("loopback address"), "{refused}");
        connect(&at(LoopbackUse::Allowed), patience).await.unwrap();
    }
}
