//! What time is it? Unix time in milliseconds that never goes back, whatever is done to the system's clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A clock. Copies agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    started_unix_ms: u64,
}

impl Clock {
    /// Takes the time of day once; from then on time passes as the system's monotonic clock says.
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_unix_ms: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Milliseconds of Unix time.
    pub fn now_ms(&self) -> u64 {
        let passed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.started_unix_ms.saturating_add(passed)
    }
}
