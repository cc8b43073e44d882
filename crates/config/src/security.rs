//! Who may ask `homing serve`, in what way, and how much of it at once?

use std::path::PathBuf;
use std::time::Duration;

use crate::choices::Switch;
use crate::knob::Value;
use crate::secret::Secret;
use crate::table::KnobId;

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
    /// The certificate of the listeners.
    pub tls: TlsFiles,
    /// How workers are spoken to.
    pub outward: Outward,
    /// What connections may do.
    pub door: DoorLimits,
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
    pub(crate) fn build(value: &impl Fn(KnobId) -> Value) -> Self {
        let file = |id| match value(id) {
            Value::File(path) => path,
            other => unreachable!("{id:?} is {other:?}, not a file"),
        };
        let switch = |id| match value(id) {
            Value::Choice(place) => Switch::ALL[place],
            other => unreachable!("{id:?} is {other:?}, not a choice"),
        };
        let time = |id| match value(id) {
            Value::Time(time) => time,
            other => unreachable!("{id:?} is {other:?}, not a time"),
        };
        let count = |id| match value(id) {
            Value::Count(count) => u32::try_from(count).expect("ranges of 32-bit knobs end below 2^32"),
            other => unreachable!("{id:?} is {other:?}, not a count"),
        };
        Self {
            keys: file(KnobId::ServeKeys),
            open: switch(KnobId::ServeOpen),
            admin_token: secret(value, KnobId::ServeAdminToken),
            register_token: secret(value, KnobId::ServeRegisterToken),
            tls: TlsFiles {
                cert: file(KnobId::ServeTlsCert),
                key: file(KnobId::ServeTlsKey),
                admin: switch(KnobId::ServeAdminTls),
            },
            outward: Outward {
                key: secret(value, KnobId::ServeWorkerKey),
                ca: file(KnobId::ServeWorkerCa),
            },
            door: DoorLimits {
                per_client: count(KnobId::ServeMaxPerClient),
                header_bytes: match value(KnobId::ServeMaxHeaderBytes) {
                    Value::Size(size) => size,
                    other => unreachable!("the size of heads is {other:?}"),
                },
                headers: count(KnobId::ServeMaxHeaders),
                header_time: time(KnobId::ServeHeaderTimeout),
                idle: time(KnobId::ServeClientIdle),
                handshake: time(KnobId::ServeHandshakeTimeout),
            },
        }
    }
}

pub(crate) fn secret(value: &impl Fn(KnobId) -> Value, id: KnobId) -> Secret {
    match value(id) {
        Value::Secret(secret) => secret,
        other => unreachable!("{id:?} is {other:?}, not a secret"),
    }
}
