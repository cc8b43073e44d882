//! Small words between the settings, the handoff and the metrics.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use homing_disagg::{Fate, HandoffSettings, PrefillFailure, Reach};
use homing_profile::Millis;
use homing_telemetry::{HandoffFate, TryFailure};

use crate::sending::Failed;

pub(super) fn settings(disagg: &homing_config::Disagg, until: Instant) -> HandoffSettings {
    let left = until.saturating_duration_since(Instant::now());
    let millis = |time: Duration| Millis(time.min(left).as_secs_f64() * 1e3);
    HandoffSettings {
        require: require(disagg),
        prefill_within: millis(disagg.prefill_timeout),
        begin_within: millis(disagg.begin_timeout),
        drain_within: Millis(disagg.begin_timeout.as_secs_f64() * 1e3),
        lease: Millis(disagg.lease.as_secs_f64() * 1e3),
        ..HandoffSettings::default()
    }
}

/// Whether there must be two.
pub(crate) fn require(disagg: &homing_config::Disagg) -> homing_disagg::Require {
    if disagg.require.is_on() {
        homing_disagg::Require::Yes
    } else {
        homing_disagg::Require::No
    }
}

/// How far a try got that failed so.
pub(super) fn reach_of(kind: TryFailure) -> Reach {
    match kind {
        TryFailure::Connect | TryFailure::Closed | TryFailure::NoAdapter => Reach::Refused,
        TryFailure::Status => Reach::Said,
        TryFailure::Silent | TryFailure::Stalled => Reach::Silent,
        TryFailure::Broken | TryFailure::Down => Reach::Unknown,
    }
}

pub(super) fn gone() -> PrefillFailure {
    PrefillFailure::Other {
        reach: Reach::Refused,
        words: "left".to_owned(),
    }
}

pub(super) fn broken(why: &str) -> Failed {
    Failed {
        why: why.to_owned(),
        kind: TryFailure::Broken,
        said: None,
    }
}

/// Seconds since 1970 as an instant.
pub(super) fn when(seconds: f64) -> Instant {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ahead = Duration::try_from_secs_f64(seconds - since.as_secs_f64()).unwrap_or_default();
    Instant::now() + ahead
}

pub(super) fn label(fate: Fate) -> HandoffFate {
    match fate {
        Fate::NotStaged => HandoffFate::NotStaged,
        Fate::HandedOver => HandoffFate::HandedOver,
        Fate::Drained => HandoffFate::Fetched,
        Fate::Lapses(_) => HandoffFate::Lapsed,
        Fate::Gone => HandoffFate::Gone,
    }
}
