//! How are workers looked for, asked and judged?

use std::net::SocketAddr;
use std::time::Duration;

use crate::choices::Switch;
use crate::networks::Networks;
use crate::table::KnobId;
use crate::values::Values;

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
    /// Networks that registered workers may be in; all if there are none.
    pub register_allow: Networks,
    /// Networks that they may not be in.
    pub register_deny: Networks,
    /// Registrations and removals per minute, token and address.
    pub registrations_per_minute: u64,
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
    /// How workers that hang are found.
    pub stall: StallLimits,
}

/// When a worker is taken for stalled.
#[derive(Clone, Debug, PartialEq)]
pub struct StallLimits {
    /// Whether stalls are looked for.
    pub detection: Switch,
    /// The expected steps without a token before a suspicion.
    pub step_multiple: f64,
    /// The shortest silence before a suspicion.
    pub suspect_after: Duration,
    /// The shortest silence before an ejection.
    pub eject_after: Duration,
    /// The share of stalled workers above which none is ejected.
    pub panic_threshold: f64,
    /// Whether running streams leave an ejected worker.
    pub migrate_streams: Switch,
}

impl Discovery {
    pub(crate) fn build(of: &Values<'_>) -> Self {
        Self {
            dns_server: of.address_or(KnobId::DnsServer),
            dns_least: of.time(KnobId::DnsLeast),
            dns_most: of.time(KnobId::DnsMost),
            dns_timeout: of.time(KnobId::DnsTimeout),
            file_interval: of.time(KnobId::FileInterval),
            linger: of.time(KnobId::Linger),
            flap_wait: of.time(KnobId::FlapWait),
            flap_window: of.time(KnobId::FlapWindow),
            lease: of.time(KnobId::Lease),
            lease_most: of.time(KnobId::LeaseMost),
            register_allow: of.networks(KnobId::RegisterAllow),
            register_deny: of.networks(KnobId::RegisterDeny),
            registrations_per_minute: of.count(KnobId::RegistrationsPerMinute),
        }
    }
}

impl Probing {
    pub(crate) fn build(of: &Values<'_>) -> Self {
        Self {
            interval: of.time(KnobId::ProbeInterval),
            timeout: of.time(KnobId::ProbeTimeout),
        }
    }
}

impl Polling {
    pub(crate) fn build(of: &Values<'_>) -> Self {
        Self {
            interval: of.time(KnobId::LoadInterval),
            timeout: of.time(KnobId::LoadTimeout),
            at_once: of.small(KnobId::LoadAtOnce),
        }
    }
}

impl HealthLimits {
    pub(crate) fn build(of: &Values<'_>) -> Self {
        Self {
            interval: of.time(KnobId::HealthInterval),
            timeout: of.time(KnobId::HealthTimeout),
            failures: of.small(KnobId::HealthFailures),
            failure_rate: of.ratio(KnobId::HealthFailureRate),
            window: of.time(KnobId::HealthWindow),
            least_requests: of.small(KnobId::HealthLeastRequests),
            backoff: of.time(KnobId::HealthBackoff),
            backoff_most: of.time(KnobId::HealthBackoffMost),
            trials: of.small(KnobId::HealthTrials),
            trial_limit: of.time(KnobId::HealthTrialLimit),
            most_out: of.ratio(KnobId::HealthMostOut),
            stall: StallLimits {
                detection: of.switch(KnobId::HealthStallDetection),
                step_multiple: of.ratio(KnobId::HealthStallStepMultiple),
                suspect_after: of.time(KnobId::HealthStallSuspectAfter),
                eject_after: of.time(KnobId::HealthStallEjectAfter),
                panic_threshold: of.ratio(KnobId::HealthStallPanicThreshold),
                migrate_streams: of.switch(KnobId::HealthStallMigrateStreams),
            },
        }
    }
}
