//! How are workers looked for, asked and judged?

use std::net::SocketAddr;
use std::time::Duration;

use crate::knob::Value;
use crate::table::KnobId;

/// How workers are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// The name server that is asked; `None` for those of the system.
    pub dns_server: Option<SocketAddr>,
    /// The least time between two looks at a name.
    pub dns_least: Duration,
    /// The most.
    pub dns_most: Duration,
    /// How long an answer may take.
    pub dns_timeout: Duration,
    /// How often the settings file is looked at.
    pub file_interval: Duration,
    /// How long a worker is kept that is missing in an answer.
    pub linger: Duration,
    /// How long a worker waits that came and went.
    pub flap_wait: Duration,
    /// For how long it is remembered that it went.
    pub flap_window: Duration,
    /// How long a registration holds that does not say it.
    pub lease: Duration,
    /// The longest that one may hold.
    pub lease_most: Duration,
}

/// How workers are asked what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probing {
    /// How often.
    pub interval: Duration,
    /// How long one answer may take.
    pub timeout: Duration,
}

/// How workers are asked how busy they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polling {
    /// How often.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How many are asked at once.
    pub at_once: u32,
}

/// When a worker is taken for ill.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthLimits {
    /// How often it is asked how it is.
    pub interval: Duration,
    /// How long that answer may take.
    pub timeout: Duration,
    /// Failures in a row.
    pub failures: u32,
    /// The share of requests that fail.
    pub failure_rate: f64,
    /// Over which time that share is taken.
    pub window: Duration,
    /// Of how many requests at least.
    pub least_requests: u32,
    /// How long it is left out the first time.
    pub backoff: Duration,
    /// And at most.
    pub backoff_most: Duration,
    /// Trials that bring it back.
    pub trials: u32,
    /// When a trial is given up.
    pub trial_limit: Duration,
    /// The largest share of the fleet that is left out because of what became of requests.
    pub most_out: f64,
}

impl Discovery {
    pub(crate) fn build(value: &impl Fn(KnobId) -> Value) -> Self {
        let time = |id| time(value, id);
        Self {
            dns_server: match value(KnobId::DnsServer) {
                Value::AddressOr(server) => server,
                other => unreachable!("the name server is {other:?}"),
            },
            dns_least: time(KnobId::DnsLeast),
            dns_most: time(KnobId::DnsMost),
            dns_timeout: time(KnobId::DnsTimeout),
            file_interval: time(KnobId::FileInterval),
            linger: time(KnobId::Linger),
            flap_wait: time(KnobId::FlapWait),
            flap_window: time(KnobId::FlapWindow),
            lease: time(KnobId::Lease),
            lease_most: time(KnobId::LeaseMost),
        }
    }
}

impl Probing {
    pub(crate) fn build(value: &impl Fn(KnobId) -> Value) -> Self {
        Self {
            interval: time(value, KnobId::ProbeInterval),
            timeout: time(value, KnobId::ProbeTimeout),
        }
    }
}

impl Polling {
    pub(crate) fn build(value: &impl Fn(KnobId) -> Value) -> Self {
        Self {
            interval: time(value, KnobId::LoadInterval),
            timeout: time(value, KnobId::LoadTimeout),
            at_once: small(value, KnobId::LoadAtOnce),
        }
    }
}

impl HealthLimits {
    pub(crate) fn build(value: &impl Fn(KnobId) -> Value) -> Self {
        Self {
            interval: time(value, KnobId::HealthInterval),
            timeout: time(value, KnobId::HealthTimeout),
            failures: small(value, KnobId::HealthFailures),
            failure_rate: ratio(value, KnobId::HealthFailureRate),
            window: time(value, KnobId::HealthWindow),
            least_requests: small(value, KnobId::HealthLeastRequests),
            backoff: time(value, KnobId::HealthBackoff),
            backoff_most: time(value, KnobId::HealthBackoffMost),
            trials: small(value, KnobId::HealthTrials),
            trial_limit: time(value, KnobId::HealthTrialLimit),
            most_out: ratio(value, KnobId::HealthMostOut),
        }
    }
}

fn time(value: &impl Fn(KnobId) -> Value, id: KnobId) -> Duration {
    match value(id) {
        Value::Time(time) => time,
        other => unreachable!("{id:?} is {other:?}, not a time"),
    }
}

fn small(value: &impl Fn(KnobId) -> Value, id: KnobId) -> u32 {
    match value(id) {
        Value::Count(count) => u32::try_from(count).expect("ranges of 32-bit knobs end below 2^32"),
        other => unreachable!("{id:?} is {other:?}, not a count"),
    }
}

fn ratio(value: &impl Fn(KnobId) -> Value, id: KnobId) -> f64 {
    match value(id) {
        Value::Ratio(ratio) => ratio,
        other => unreachable!("{id:?} is {other:?}, not a ratio"),
    }
}
