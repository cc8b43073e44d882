//! Whom do we believe when we ask?

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::identity::certificates;
use crate::io::Io;
use crate::{ALPN, HandshakeError, TlsError};

/// Whom we believe. Copies are the same one.
#[derive(Clone, Debug)]
pub struct Trust {
    config: Arc<ClientConfig>,
    roots: usize,
}

impl Trust {
    /// Those whose certificates are in `ca`, and nobody else; without one, whom the system trusts.
    pub fn read(ca: Option<&Path>) -> Result<Self, TlsError> {
        let found = match ca {
            Some(path) => certificates(path)?,
            // What of the system's store cannot be read cannot be trusted, and nothing more follows from it.
            None => rustls_native_certs::load_native_certs().certs,
        };
        let mut store = RootCertStore::empty();
        let (roots, unfit) = store.add_parsable_certificates(found);
        if let Some(path) = ca.filter(|_| roots == 0 || unfit > 0) {
            return Err(TlsError::NoCertificate(path.to_path_buf()));
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            roots,
        })
    }

    /// How many they are.
    pub fn roots(&self) -> usize {
        self.roots
    }

    /// The same, for clients that agree upon TLS themselves.
    pub fn config(&self) -> ClientConfig {
        (*self.config).clone()
    }

    /// Agrees with a server upon TLS. It must prove to be `host`.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> Result<Io, HandshakeError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| HandshakeError::Name)?;
        let stream = TlsConnector::from(self.config.clone()).connect(name, stream).await?;
        Ok(Io::Tls(Box::new(stream.into())))
    }
}
