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

    /// The moment of a time that it told or will tell.
    pub(crate) fn instant(&self, time: Time) -> Instant {
        let after = std::time::Duration::from_nanos(time.0);
        // What is too far away to be told never comes.
        self.began
            .checked_add(after)
            .unwrap_or(self.began + std::time::Duration::from_hours(24 * 365))
    }

    pub(crate) fn now(&self) -> Time {
        self.at(Instant::now())
    }

    pub(crate) fn at(&self, moment: Instant) -> Time {
        let since = moment.saturating_duration_since(self.began);
        Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}
