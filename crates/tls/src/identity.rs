//! As whom do we answer?

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::io::Io;
use crate::{ALPN, HandshakeError, TlsError};

/// A certificate and its key, which can be exchanged. Copies are the same one.
#[derive(Clone, Debug)]
pub struct Identity {
    config: Arc<ServerConfig>,
    current: Arc<Current>,
}

/// Written when the files change, read by every handshake.
#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// What became of a look at the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// There is another certificate; connections from now on get it.
    Yes,
    /// It is the same.
    No,
}

impl Identity {
    /// Reads a chain of certificates and the key of its first.
    pub fn read(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let current = Arc::new(Current(ArcSwap::from_pointee(certified(cert, key)?)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            current,
        })
    }

    /// Reads both files again. If they cannot be used, what was there before stays.
    pub fn renew(&self, cert: &Path, key: &Path) -> Result<Renewed, TlsError> {
        let new = certified(cert, key)?;
        if self.current.0.load().cert == new.cert {
            return Ok(Renewed::No);
        }
        self.current.0.store(Arc::new(new));
        Ok(Renewed::Yes)
    }

    /// Agrees with a client upon TLS, within `patience`.
    pub async fn accept(&self, stream: TcpStream, patience: Duration) -> Result<Io, HandshakeError> {
        let handshake = TlsAcceptor::from(self.config.clone()).accept(stream);
        match tokio::time::timeout(patience, handshake).await {
            Ok(stream) => Ok(Io::Tls(Box::new(stream?.into()))),
            Err(_) => Err(HandshakeError::Late(patience)),
        }
    }
}

fn certified(cert: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(cert)?;
    let text = homing_config::read_bounded(key)?.text;
    let private = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| TlsError::NoKey(key.to_path_buf()))?;
    CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|why| TlsError::Unfit {
        cert: cert.to_path_buf(),
        key: key.to_path_buf(),
        why,
    })
}

/// The certificates of a file, of which there is at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = homing_config::read_bounded(path)?.text;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| TlsError::NoCertificate(path.to_path_buf()))
}
