//! What time is it in the engine? Real time, scaled.

use std::time::Duration;

use homing_engine::Time;
use tokio::time::Instant;

/// Counts from when it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    speedup: f64,
}

impl Clock {
    /// One that runs so many times as fast as real time.
    pub fn new(speedup: f64) -> Self {
        Self {
            started: Instant::now(),
            speedup,
        }
    }

    /// Now, in the engine's time.
    pub fn now(&self) -> Time {
        Time((self.started.elapsed().as_nanos() as f64 * self.speedup) as u64)
    }

    /// When a moment of the engine's time is.
    pub fn instant(&self, at: Time) -> Instant {
        self.started + self.real(at.0)
    }

    /// How long something takes in seconds of real time.
    pub fn seconds(&self, from: Time, to: Time) -> f64 {
        self.real(to.0.saturating_sub(from.0)).as_secs_f64()
    }

    fn real(&self, nanos: u64) -> Duration {
        Duration::from_nanos((nanos as f64 / self.speedup) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_faster_engine_needs_less_real_time() {
        let clock = Clock::new(10.0);
        let second = Time(1_000_000_000);
        assert!((clock.seconds(Time::ZERO, second) - 0.1).abs() < 1e-9);
        assert_eq!(
            clock.instant(second) - clock.instant(Time::ZERO),
            Duration::from_millis(100)
        );
        assert!(clock.seconds(second, Time::ZERO).abs() < 1e-9);
    }
}
