//! Which parts does the demo have, and how long is each?

use std::time::Duration;

/// A part of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Requests are dealt out in turn.
    RoundRobin,
    /// They go where the policy sends them.
    Homing,
    /// The same, with a worker less.
    Killed,
    /// The same, with a new one.
    Added,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::RoundRobin, Self::Homing, Self::Killed, Self::Added];

    /// What scripts know it by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Homing => "homing",
            Self::Killed => "worker-killed",
            Self::Added => "worker-added",
        }
    }

    /// What people know it by.
    pub const fn title(self) -> &'static str {
        match self {
            Self::RoundRobin => "round robin",
            Self::Homing => "homing",
            Self::Killed => "one killed",
            Self::Added => "one added",
        }
    }

    /// How long it is, of all.
    pub fn length(self, all: Duration) -> Duration {
        // Two are compared with each other, and have to fill caches first.
        let share = match self {
            Self::RoundRobin | Self::Homing => 0.3,
            Self::Killed | Self::Added => 0.2,
        };
        all.mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_are_as_long_as_all() {
        let all = Duration::from_secs(100);
        let sum: Duration = Phase::ALL.into_iter().map(|phase| phase.length(all)).sum();
        assert_eq!(sum, all);
    }
}
