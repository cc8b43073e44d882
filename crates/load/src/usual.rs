//! How long do prompts take, all in all? A policy that treats unusually long ones in another way asks this.

use homing_profile::Millis;

/// Each prompt moves the mean by at least one part of so many.
const MEMORY: f64 = 1_024.0;
/// Fewer prompts than these have no mean: with two, one of them is long.
const FEW: f64 = 32.0;

/// The mean over the last prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usual {
    mean: f64,
    seen: f64,
}

impl Usual {
    /// A prompt that takes so long by its profile.
    pub(crate) fn saw(&mut self, prefill: Millis) {
        self.seen = (self.seen + 1.0).min(MEMORY);
        self.mean += (prefill.0 - self.mean) / self.seen;
    }

    pub(crate) fn mean(&self) -> Option<Millis> {
        (self.seen >= FEW).then_some(Millis(self.mean))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_the_last_prompts() {
        let mut usual = Usual::default();
        for place in 0..31 {
            usual.saw(Millis(f64::from(place)));
        }
        assert_eq!(usual.mean(), None);
        usual.saw(Millis(31.0));
        assert!((usual.mean().unwrap().0 - 15.5).abs() < 1e-9);
        for _ in 0..10_000 {
            usual.saw(Millis(400.0));
        }
        assert!(
            (usual.mean().unwrap().0 - 400.0).abs() < 1.0,
            "what is long past is forgotten"
        );
    }
}
