//! The process that registers a worker: its token, and where it is.

use std::net::IpAddr;
use std::sync::Arc;

use homing_config::AddressScope;
use homing_config::register_tokens::{OPERATOR, RegisterToken};

/// The process that registers a worker.
#[derive(Clone, Debug)]
pub struct Registrar {
    /// Its token, with what that allows.
    pub token: Arc<RegisterToken>,
    /// Whose token it is.
    pub kind: RegistrarKind,
    /// Where it is.
    pub peer: IpAddr,
}

/// Whose token a registration came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistrarKind {
    /// The operators': every name may be replaced and removed.
    Operator,
    /// A worker's: only names that belong to the token may be.
    Worker,
}

impl Registrar {
    /// An operator at this address.
    pub fn operator(peer: IpAddr) -> Self {
        Self {
            token: Arc::new(RegisterToken::unrestricted(OPERATOR, [0; 32])),
            kind: RegistrarKind::Operator,
            peer,
        }
    }

    /// What addresses of its workers may be.
    pub(crate) fn scope(&self) -> AddressScope {
        if self.peer.to_canonical().is_loopback() {
            AddressScope::RegisteredLocally
        } else {
            AddressScope::Registered
        }
    }
}
