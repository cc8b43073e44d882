//! When do clients come?

use homing_profile::{Millis, Time};

use super::WorkloadError;
use super::chance::{exponential, gamma};
use crate::rng::Rng;

/// How arrivals lie in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// At equal distances.
    Constant {
        /// So many.
        per_second: f64,
    },
    /// Independent of each other.
    Poisson {
        /// So many on average.
        per_second: f64,
    },
    /// Distances with a gamma distribution: more even than Poisson, or less.
    Gamma {
        /// So many on average.
        per_second: f64,
        /// The deviation of distances over their mean: 1 is Poisson, 0 constant, above 1 in bursts.
        variation: f64,
    },
    /// Poisson for a while, then nothing for a while, by turns; both last an exponential time.
    OnOff {
        /// So many while they come.
        per_second: f64,
        /// How long they come, on average.
        on: Millis,
        /// How long they do not, on average.
        off: Millis,
    },
    /// Several at the same moment, at equal distances.
    Bursts {
        /// From one to the next.
        every: Millis,
        /// How many.
        size: u32,
    },
}

impl Arrivals {
    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        let positive = |name, value: f64| {
            let right = (1e-6..=1e9).contains(&value);
            right.then_some(()).ok_or(WorkloadError { name, value })
        };
        match *self {
            Self::Constant { per_second } | Self::Poisson { per_second } => positive("per_second", per_second),
            Self::Gamma { per_second, variation } => {
                positive("per_second", per_second)?;
                positive("variation", variation)
            }
            Self::OnOff { per_second, on, off } => {
                positive("per_second", per_second)?;
                positive("on", on.0)?;
                positive("off", off.0)
            }
            Self::Bursts { every, size } => {
                positive("every", every.0)?;
                positive("size", f64::from(size))
            }
        }
    }
}

/// Moments of arrival, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    arrivals: Arrivals,
    rng: Rng,
    now: Time,
    /// Arrivals so far.
    count: u64,
    /// What is left of the time in which they come.
    on: f64,
}

/// The most pauses between two arrivals.
const MAX_PAUSES: u32 = 1_000;

impl Clock {
    pub(super) fn new(arrivals: Arrivals, rng: Rng) -> Self {
        Self {
            arrivals,
            rng,
            now: Time::ZERO,
            count: 0,
            on: 0.0,
        }
    }

    /// The next moment.
    pub(super) fn next(&mut self) -> Time {
        let rng = &mut self.rng;
        let gap = match self.arrivals {
            Arrivals::Constant { per_second } if self.count > 0 => 1e3 / per_second,
            Arrivals::Bursts { every, size } if self.count > 0 && self.count.is_multiple_of(u64::from(size)) => every.0,
            Arrivals::Constant { .. } | Arrivals::Bursts { .. } => 0.0,
            Arrivals::Poisson { per_second } => exponential(rng, 1e3 / per_second),
            Arrivals::Gamma { per_second, variation } => gamma(rng, 1.0 / (variation * variation)) * 1e3 / per_second,
            Arrivals::OnOff { per_second, on, off } => {
                let (mut wait, mut paused) = (exponential(rng, 1e3 / per_second), 0.0);
                let mut gap = wait;
                for _ in 0..MAX_PAUSES {
                    if wait <= self.on {
                        break;
                    }
                    wait -= self.on;
                    paused += exponential(rng, off.0);
                    self.on = exponential(rng, on.0);
                }
                self.on = (self.on - wait).max(0.0);
                gap += paused;
                gap
            }
        };
        self.count += 1;
        self.now = self.now + Millis(gap);
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(arrivals: Arrivals) -> Vec<f64> {
        arrivals.check().unwrap();
        let mut clock = Clock::new(arrivals, Rng::new(3));
        (0..20_000).map(|_| clock.next().millis()).collect()
    }

    /// Arrivals in a second, on average; and how far their number in a second deviates from that, over its root.
    fn rate_and_dispersion(moments: &[f64]) -> (f64, f64) {
        let last = moments.last().unwrap() / 1e3;
        let mut counts = vec![0.0_f64; last as usize];
        for moment in moments {
            if let Some(count) = counts.get_mut((moment / 1e3) as usize) {
                *count += 1.0;
            }
        }
        let rate = moments.len() as f64 / last;
        let variance = counts.iter().map(|count| (count - rate).powi(2)).sum::<f64>() / counts.len() as f64;
        (rate, variance / rate)
    }

    #[test]
    fn rates_and_unevenness_are_as_asked() {
        let on_off = Arrivals::OnOff {
            per_second: 20.0,
            on: Millis(2_000.0),
            off: Millis(2_000.0),
        };
        for (arrivals, dispersion) in [
            (Arrivals::Constant { per_second: 10.0 }, 0.0..0.2),
            (Arrivals::Poisson { per_second: 10.0 }, 0.9..1.1),
            (
                Arrivals::Gamma {
                    per_second: 10.0,
                    variation: 0.5,
                },
                0.2..0.4,
            ),
            (
                Arrivals::Gamma {
                    per_second: 10.0,
                    variation: 2.0,
                },
                2.5..4.5,
            ),
            (on_off, 5.0..20.0),
            (
                Arrivals::Bursts {
                    every: Millis(500.0),
                    size: 5,
                },
                0.0..0.2,
            ),
        ] {
            let moments = moments(arrivals);
            assert!(moments.is_sorted());
            let (rate, found) = rate_and_dispersion(&moments);
            assert!((9.0..11.0).contains(&rate), "{arrivals:?}: {rate}");
            assert!(dispersion.contains(&found), "{arrivals:?}: {found}");
        }
    }

    #[test]
    fn bursts_come_at_one_moment() {
        let moments = moments(Arrivals::Bursts {
            every: Millis(500.0),
            size: 3,
        });
        assert_eq!(moments[..7], [0.0, 0.0, 0.0, 500.0, 500.0, 500.0, 1_000.0]);
    }
}
