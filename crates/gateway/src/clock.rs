//! What time is it, for the router? Nanoseconds since the gateway began.

use std::time::Instant;

use homing_profile::Time;

/// Counts from its own beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now() }
    }

    /// When it began.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    pub(crate) fn now(&self) -> Time {
        self.at(Instant::now())
    }

    pub(crate) fn at(&self, moment: Instant) -> Time {
        let since = moment.saturating_duration_since(self.began);
        Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}
