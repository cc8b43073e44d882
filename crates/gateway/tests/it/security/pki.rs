//! Certificates for tests: good ones, and one of each kind that must not be believed.

use homing_platform::{HttpClient, HttpClientConfig};
use homing_tls::Trust;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd};

use crate::harness::file;

/// Two who sign have two names.
static MADE: AtomicU32 = AtomicU32::new(0);

/// Who signs certificates.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// When a certificate holds.
#[derive(Clone, Copy)]
pub enum Holds {
    Now,
    /// It did.
    NoMore,
}

/// A certificate and its key.
pub struct Leaf {
    pub cert: String,
    pub key: String,
}

impl Ca {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, format!("tests {}", MADE.fetch_add(1, Relaxed)));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate for a name or an address.
    pub fn leaf(&self, name: &str, holds: Holds) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = match holds {
            Holds::Now => date_time_ymd(2200, 1, 1),
            Holds::NoMore => date_time_ymd(2021, 1, 1),
        };
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        Leaf {
            cert,
            key: key.serialize_pem(),
        }
    }

    /// Its certificate as a file.
    pub fn file(&self, name: &str) -> String {
        written(&format!("{name}-ca.pem"), &self.pem)
    }

    /// A client that believes it, and nobody else.
    pub fn client(&self) -> HttpClient {
        // Each authority has a file of its own: tests run at the same time.
        let digest = self
            .pem
            .bytes()
            .fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let file = written(&format!("client-{digest:x}-ca.pem"), &self.pem);
        HttpClient::new(HttpClientConfig {
            trust: Some(Trust::read(Some(file.as_ref())).unwrap()),
            ..HttpClientConfig::default()
        })
    }
}

impl Leaf {
    /// Both as files; those that were there are replaced at once.
    pub fn files(&self, name: &str) -> (String, String) {
        let (cert, key) = (format!("{name}-cert.pem"), format!("{name}-key.pem"));
        (written(&cert, &self.cert), written(&key, &self.key))
    }
}

/// A file of this test run. Who reads it sees all of it or what was there before.
pub fn written(name: &str, text: &str) -> String {
    let path = file(name);
    let beside: PathBuf = file(&format!("{name}.new"));
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(&beside, &path).unwrap();
    path.to_str().unwrap().to_owned()
}
