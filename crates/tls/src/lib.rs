//! Who is at the other end of a connection, and who else can read it?
//!
//! - [`Identity`]: as whom we answer: a certificate that can be exchanged while connections stand;
//! - [`Trust`]: whom we believe when we ask: the system's roots, or those of a file;
//! - [`Io`]: a connection, with or without TLS, for who does not care.
//!
//! TLS 1.3 and 1.2 by rustls, with the arithmetic of ring. HTTP/1.1 is the only protocol that is offered.
//!
//! **Invariant:** a certificate that cannot be used never takes the place of one that can.
//!
//! **Invariant:** no error repeats anything of a key.
//!
//! Clients are not asked for certificates, and nobody asks whether a certificate was revoked.

#![cfg_attr(not(test), forbid(clippy::disallowed_methods))]

mod identity;
mod io;
mod trust;

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

pub use identity::{Identity, Renewed};
pub use io::Io;
pub use trust::Trust;

/// The one protocol that is spoken within TLS.
const ALPN: &[u8] = b"http/1.1";

/// Why certificates cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] homing_config::Rejected),
    /// A file has no certificate.
    #[error("{}: holds no certificate as PEM", .0.display())]
    NoCertificate(PathBuf),
    /// A file has no key.
    #[error("{}: holds no private key as PEM", .0.display())]
    NoKey(PathBuf),
    /// The two do not go together, or are of a kind that is not known.
    #[error("{} and {} cannot be used together: {why}", cert.display(), key.display())]
    Unfit {
        /// The certificates.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why.
        why: rustls::Error,
    },
    /// What rustls is set up with does not go together.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// Why a connection has no TLS.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// It took too long.
    #[error("TLS was not agreed upon within {0:?}")]
    Late(Duration),
    /// The two did not agree.
    #[error("TLS was not agreed upon: {0}")]
    Failed(#[from] std::io::Error),
    /// The name is none that a certificate could have.
    #[error("no certificate can be for this host")]
    Name,
}
