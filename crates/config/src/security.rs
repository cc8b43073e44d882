//! Who may ask HTTP servers (`homing serve`, `index` and `agent`), in what way, and how much of it at once?

use std::path::PathBuf;
use std::time::Duration;

use crate::choices::Switch;
use crate::secret::Secret;
use crate::table::KnobId;
use crate::values::Values;

/// Who may ask, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Security {
    /// The file of API keys; `None`: nobody is asked for one.
    pub keys: Option<PathBuf>,
    /// Whether clients without keys may come from other machines.
    pub open: Switch,
    /// What operators must know.
    pub admin_token: Secret,
    /// What workers must know that tell of themselves.
    pub register_token: Secret,
    /// The file of further such tokens, with what each allows.
    pub register_tokens: Option<PathBuf>,
    /// The certificate of the listeners.
    pub tls: TlsFiles,
    /// How workers are spoken to.
    pub outward: Outward,
    /// Where the keys of ids of stored responses are.
    pub responses: ResponseKeyFiles,
    /// What connections of clients may do.
    pub door: DoorLimits,
    /// What connections of operators may do, and how many there may be.
    pub admin: AdminLimits,
}

/// Limits of the operators' listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminLimits {
    /// Connections at once.
    pub connections: u32,
    /// Connections beyond a limit that may only ask for health and metrics.
    pub reserved: u32,
    /// What each may do.
    pub door: DoorLimits,
}

/// The HTTP server of `homing index` or of `homing agent`.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpServer {
    /// Connections at once.
    pub connections: u32,
    /// What each may do.
    pub door: DoorLimits,
    /// How long a client may take nothing of its answer.
    pub write_timeout: Duration,
    /// The certificates, as PEM, and their key.
    pub cert: Option<PathBuf>,
    /// The key of the first certificate, as PEM.
    pub key: Option<PathBuf>,
    /// What clients must send.
    pub token: Secret,
}

/// Which settings an [`HttpServer`] has of its own.
pub(crate) struct HttpServerKnobs {
    pub connections: KnobId,
    pub per_client: KnobId,
    pub cert: KnobId,
    pub key: KnobId,
    pub token: KnobId,
}

impl HttpServer {
    pub(crate) fn build(of: &Values<'_>, knobs: &HttpServerKnobs) -> Self {
        Self {
            connections: of.small(knobs.connections),
            door: DoorLimits {
                per_client: of.small(knobs.per_client),
                ..DoorLimits::build(of)
            },
            write_timeout: of.time(KnobId::ServeClientStall),
            cert: of.file(knobs.cert),
            key: of.file(knobs.key),
            token: of.secret(knobs.token),
        }
    }
}

impl DoorLimits {
    /// Those of clients.
    fn build(of: &Values<'_>) -> Self {
        Self {
            per_client: of.small(KnobId::ServeMaxPerClient),
            header_bytes: of.size(KnobId::ServeMaxHeaderBytes),
            headers: of.small(KnobId::ServeMaxHeaders),
            header_time: of.time(KnobId::ServeHeaderTimeout),
            idle: of.time(KnobId::ServeClientIdle),
            handshake: of.time(KnobId::ServeHandshakeTimeout),
        }
    }
}

/// The certificate of the listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain, as PEM.
    pub cert: Option<PathBuf>,
    /// Its key, as PEM.
    pub key: Option<PathBuf>,
    /// Whether operators are spoken to with it as well.
    pub admin: Switch,
}

/// How workers are spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outward {
    /// What is sent to them as their API key.
    pub key: Secret,
    /// Who vouches for workers with TLS; `None`: whom the system trusts.
    pub ca: Option<PathBuf>,
}

/// Where the keys are that sign ids of stored responses. Without either they end with the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseKeyFiles {
    /// The file that several gateways share.
    pub key_file: Option<PathBuf>,
    /// The directory in which one gateway keeps a key of its own.
    pub state_dir: Option<PathBuf>,
}

/// What connections may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorLimits {
    /// Connections from one address.
    pub per_client: u32,
    /// Bytes of the head of a request.
    pub header_bytes: u64,
    /// Lines of it.
    pub headers: u32,
    /// The time in which a head must be complete.
    pub header_time: Duration,
    /// The time for which a connection may be idle between two requests.
    pub idle: Duration,
    /// The time in which TLS must be agreed upon.
    pub handshake: Duration,
}

impl Security {
    pub(crate) fn build(of: &Values<'_>) -> Self {
        Self {
            keys: of.file(KnobId::ServeKeys),
            open: of.switch(KnobId::ServeOpen),
            admin_token: of.secret(KnobId::ServeAdminToken),
            register_token: of.secret(KnobId::ServeRegisterToken),
            register_tokens: of.file(KnobId::ServeRegisterTokens),
            tls: TlsFiles {
                cert: of.file(KnobId::ServeTlsCert),
                key: of.file(KnobId::ServeTlsKey),
                admin: of.switch(KnobId::ServeAdminTls),
            },
            outward: Outward {
                key: of.secret(KnobId::ServeWorkerKey),
                ca: of.file(KnobId::ServeWorkerCa),
            },
            responses: ResponseKeyFiles {
                key_file: of.file(KnobId::ResponsesKeyFile),
                state_dir: of.file(KnobId::ServeStateDir),
            },
            door: DoorLimits::build(of),
            admin: AdminLimits {
                connections: of.small(KnobId::ServeAdminMaxConnections),
                reserved: of.small(KnobId::ServeAdminReserved),
                door: DoorLimits {
                    per_client: of.small(KnobId::ServeAdminMaxPerClient),
                    header_time: of.time(KnobId::ServeAdminHeaderTimeout),
                    idle: of.time(KnobId::ServeAdminIdle),
                    ..DoorLimits::build(of)
                },
            },
        }
    }
}
