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

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertifiedKey as Made, generate_simple_self_signed};
    use std::path::PathBuf;

    fn made() -> (String, String) {
        let Made { cert, signing_key } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        (cert.pem(), signing_key.serialize_pem())
    }

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("homing-tls-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn what_cannot_be_used_is_said_and_never_takes_the_place_of_what_can() {
        let ((cert, key), (other, _)) = (made(), made());
        let (at, of) = (file("cert", &cert), file("key", &key));
        let identity = Identity::read(&at, &of).unwrap();
        assert_eq!(identity.renew(&at, &of).unwrap(), Renewed::No);
        for (name, text) in [
            ("mismatch", other.as_str()),
            ("garbage", "x"),
            ("empty", ""),
            ("a-key", &key),
        ] {
            let bad = file(name, text);
            let said = identity.renew(&bad, &of).unwrap_err().to_string();
            assert!(said.contains(name), "{said}");
            assert!(!said.contains(key.lines().nth(1).unwrap()), "{said}");
            std::fs::remove_file(bad).unwrap();
        }
        assert!(
            identity
                .renew(&at, &at)
                .unwrap_err()
                .to_string()
                .contains("no private key")
        );
        assert_eq!(identity.renew(&at, &of).unwrap(), Renewed::No);
        let (cert, key) = made();
        let (at, of) = (file("cert", &cert), file("key", &key));
        assert_eq!(identity.renew(&at, &of).unwrap(), Renewed::Yes);
        std::fs::remove_file(&at).unwrap();
        assert!(Identity::read(&at, &of).is_err());
        std::fs::remove_file(&of).unwrap();
    }
}
