//! How fast is a rank really? What its profile says, times what was observed.
//!
//! A *factor* is learnt only from requests that met an idle rank, where nothing else explains the time. It is shrunk towards the
//! median of the fleet while samples are few, and samples are forgotten, so that a rank that was slow once is tried again. All
//! else that was observed while the rank was busy goes into a *residual*, which decays towards 1.
//!
//! **Invariant:** a factor is in [`FACTOR`], a residual in [`RESIDUAL`], whatever was observed.

use std::ops::RangeInclusive;

use homing_profile::Millis;

/// The bounds of a factor.
pub const FACTOR: RangeInclusive<f64> = 0.5..=2.0;
/// The bounds of a residual.
pub const RESIDUAL: RangeInclusive<f64> = 0.25..=4.0;
/// The median of the fleet weighs as much as so many samples.
const PRIOR_SAMPLES: f64 = 2.0;
/// A sample moves a factor by at least one part of so many.
const MEMORY: f64 = 16.0;
/// In so long half of what was learnt is forgotten.
const HALF_LIFE: Millis = Millis(60_000.0);
/// A busy time predicted to be shorter than this is gathered with the next.
const WINDOW: Millis = Millis(20.0);

/// What was learnt of one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    learnt: f64,
    samples: f64,
    residual: f64,
    gathered: (f64, f64),
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            learnt: 1.0,
            samples: 0.0,
            residual: 1.0,
            gathered: (0.0, 0.0),
        }
    }
}

impl Pace {
    /// A request met an idle rank: what was predicted without any factor, and what it took.
    pub(crate) fn saw_idle(&mut self, predicted: Millis, took: Millis) {
        if predicted.0 <= 0.0 {
            return;
        }
        let ratio = within(took.0 / predicted.0, &FACTOR);
        self.samples = (self.samples + 1.0).min(MEMORY);
        self.learnt = within(self.learnt + (ratio - self.learnt) / self.samples, &FACTOR);
    }

    /// A rank was busy for `took` with what was predicted to take `predicted`, the factor included but no residual.
    pub(crate) fn saw_busy(&mut self, predicted: Millis, took: Millis) {
        self.gathered.0 += predicted.0;
        self.gathered.1 += took.0;
        if self.gathered.0 >= WINDOW.0 {
            let ratio = within(self.gathered.1 / self.gathered.0, &RESIDUAL);
            self.residual = within(self.residual + (ratio - self.residual) / 8.0, &RESIDUAL);
            self.gathered = (0.0, 0.0);
        }
    }

    /// Time passed.
    pub(crate) fn forget(&mut self, passed: Millis) {
        let kept = (-passed.0 / HALF_LIFE.0).exp2();
        self.samples *= kept;
        self.residual = 1.0 + (self.residual - 1.0) * kept;
    }

    /// The factor, given the fleet's median.
    pub(crate) fn factor(&self, median: f64) -> f64 {
        let known = self.samples * self.learnt + PRIOR_SAMPLES * median;
        within(known / (self.samples + PRIOR_SAMPLES), &FACTOR)
    }

    pub(crate) fn residual(&self) -> f64 {
        self.residual
    }

    /// What was learnt, if anything was.
    pub(crate) fn learnt(&self) -> Option<f64> {
        (self.samples >= 1.0).then_some(self.learnt)
    }
}

fn within(value: f64, bounds: &RangeInclusive<f64>) -> f64 {
    if value.is_nan() {
        return 1.0;
    }
    value.clamp(*bounds.start(), *bounds.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_rank_is_learnt_and_forgotten() {
        let mut pace = Pace::default();
        assert_eq!(pace.learnt(), None);
        for _ in 0..30 {
            pace.saw_idle(Millis(10.0), Millis(18.0));
        }
        assert!((pace.factor(1.0) - 1.8).abs() < 0.1, "{pace:?}");
        pace.forget(Millis(600_000.0));
        assert!((pace.factor(1.0) - 1.0).abs() < 0.05, "{pace:?}");
    }

    #[test]
    fn nothing_leaves_its_bounds() {
        let mut pace = Pace::default();
        for took in [1e9, f64::NAN, f64::INFINITY, 0.0] {
            for predicted in [0.0, 1e-9, 1e9] {
                pace.saw_idle(Millis(predicted), Millis(took));
                pace.saw_busy(Millis(predicted), Millis(took));
                assert!(
                    FACTOR.contains(&pace.factor(1.0)) && RESIDUAL.contains(&pace.residual()),
                    "{pace:?}"
                );
            }
        }
    }
}
