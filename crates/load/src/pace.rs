//! How fast is a rank really? What its profile says, times what was observed.
//!
//! A *factor* is learnt only from requests that met an idle rank, where nothing else explains the time. It is shrunk towards the
//! median of the ranks of its kind while samples are few, and samples are forgotten, so that a rank that was slow once is tried
//! again. A profile that is wrong is wrong for all ranks of a kind: the median takes that up, and a rank differs from it within
//! bounds. All else that was observed while the rank was busy goes into a *residual*, which decays towards 1.
//!
//! **Invariant:** a median is in [`PROFILE`], a factor over its median in [`FACTOR`], a residual in [`RESIDUAL`], whatever was
//! observed.

use std::ops::RangeInclusive;

use homing_profile::Millis;

/// The bounds of a median: how wrong a profile may be.
pub const PROFILE: RangeInclusive<f64> = 0.25..=4.0;
/// The bounds of a factor over its median.
pub const FACTOR: RangeInclusive<f64> = 0.5..=2.0;
/// The bounds of a residual.
pub const RESIDUAL: RangeInclusive<f64> = 0.25..=4.0;
/// What is assumed weighs as much as so many samples.
const PRIOR_SAMPLES: f64 = 1.0;
/// A sample moves a factor by at least one part of so many.
const MEMORY: f64 = 16.0;
/// A sample moves a residual by at least one part of so many.
const BUSY_MEMORY: f64 = 16.0;
/// Errors of residuals, as logarithms, beyond which greater ones weigh no more.
const FAR_OFF: f64 = 0.25;
/// In so long half of what was learnt is forgotten.
const HALF_LIFE: Millis = Millis(60_000.0);

/// What was learnt of one rank. Ratios are averaged as logarithms: twice as long and half as long cancel out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pace {
    learnt: f64,
    samples: f64,
    residual: f64,
    busy_samples: f64,
}

impl Pace {
    /// A request met an idle rank: what was predicted without any factor, and what it took.
    pub(crate) fn saw_idle(&mut self, predicted: Millis, took: Millis) {
        let bounds = PROFILE.start() * FACTOR.start()..=PROFILE.end() * FACTOR.end();
        if let Some(ratio) = ratio(predicted, took, &bounds) {
            self.samples = (self.samples + 1.0).min(MEMORY);
            self.learnt += (ratio.ln() - self.learnt) / self.samples;
        }
    }

    /// A request met a busy rank: what was predicted with the factor but without the residual, and what it took.
    pub(crate) fn saw_busy(&mut self, predicted: Millis, took: Millis) {
        if let Some(ratio) = ratio(predicted, took, &RESIDUAL) {
            self.busy_samples = (self.busy_samples + 1.0).min(BUSY_MEMORY);
            let error = ratio.ln() - self.residual;
            // Times have a long tail, for those who come later join the step one waits for: once something is known, what is
            // far off moves it no more than what is a little off, and it finds the middle rather than the mean.
            let error = if self.busy_samples < BUSY_MEMORY {
                error
            } else {
                error.clamp(-FAR_OFF, FAR_OFF)
            };
            self.residual += error / (self.busy_samples + PRIOR_SAMPLES);
        }
    }

    /// Time passed.
    pub(crate) fn forget(&mut self, passed: Millis) {
        let kept = (-passed.0 / HALF_LIFE.0).exp2();
        self.samples *= kept;
        self.busy_samples *= kept;
        self.residual *= kept;
    }

    /// The factor, given the median of its kind.
    pub(crate) fn factor(&self, median: f64) -> f64 {
        let median = within(median, &PROFILE);
        let known = self.samples * self.learnt + PRIOR_SAMPLES * median.ln();
        median * within((known / (self.samples + PRIOR_SAMPLES)).exp() / median, &FACTOR)
    }

    pub(crate) fn residual(&self) -> f64 {
        within(self.residual.exp(), &RESIDUAL)
    }

    /// What it says about the profile of its kind, given what is held of that so far: what was learnt while it was idle, or else
    /// while it was busy.
    pub(crate) fn evidence(&self, median: f64) -> Option<f64> {
        if self.samples >= 1.0 {
            return Some(self.learnt.exp());
        }
        (self.busy_samples >= 1.0).then(|| self.factor(median) * self.residual())
    }
}

/// How many times as long it took; none if that means nothing.
fn ratio(predicted: Millis, took: Millis, bounds: &RangeInclusive<f64>) -> Option<f64> {
    let ratio = took.0 / predicted.0;
    (predicted.0 > 0.0 && ratio.is_finite()).then(|| within(ratio, bounds))
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
        assert_eq!(pace.evidence(1.0), None);
        for _ in 0..30 {
            pace.saw_idle(Millis(10.0), Millis(18.0));
        }
        assert!((pace.factor(1.0) - 1.7).abs() < 0.1, "{pace:?}");
        pace.forget(Millis(600_000.0));
        assert!((pace.factor(1.0) - 1.0).abs() < 0.05, "{pace:?}");
    }

    #[test]
    fn what_is_wrong_with_the_profile_leaves_room_for_what_is_wrong_with_the_rank() {
        let mut pace = Pace::default();
        for _ in 0..40 {
            pace.saw_idle(Millis(10.0), Millis(40.0));
        }
        assert!((pace.factor(2.0) - 3.7).abs() < 0.3, "{pace:?}");
        assert!((pace.factor(1.0) - 2.0).abs() < 1e-9, "{pace:?}");
    }

    #[test]
    fn a_busy_rank_has_a_residual_that_fades() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            pace.saw_busy(Millis(10.0), Millis(20.0));
        }
        assert!((pace.residual() - 2.0).abs() < 0.05, "{pace:?}");
        pace.forget(Millis(600_000.0));
        assert!((pace.residual() - 1.0).abs() < 0.01, "{pace:?}");
    }

    #[test]
    fn nothing_leaves_its_bounds() {
        let mut pace = Pace::default();
        for took in [1e9, f64::NAN, f64::INFINITY, 0.0] {
            for predicted in [0.0, 1e-9, 1e9] {
                pace.saw_idle(Millis(predicted), Millis(took));
                pace.saw_busy(Millis(predicted), Millis(took));
                assert!(
                    FACTOR.contains(&pace.factor(1.0))
                        && (0.125..=8.0).contains(&pace.factor(f64::NAN))
                        && RESIDUAL.contains(&pace.residual()),
                    "{pace:?}"
                );
            }
        }
    }
}
