//! How long do prompts take, all in all? A policy that treats unusually long ones in another way asks this.

use std::collections::VecDeque;

use homing_profile::Millis;

/// So many of the last prompts count.
const MEMORY: usize = 1_024;
/// Fewer prompts than these say nothing: with two, one of them is long.
const FEW: usize = 32;

/// The last prompts: as they came, and in order of how long they take.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Usual {
    came: VecDeque<f32>,
    sorted: Vec<f32>,
}

impl Usual {
    /// A prompt that takes so long by its profile.
    pub(crate) fn saw(&mut self, prefill: Millis) {
        let below = |sorted: &[f32], than: f32| sorted.partition_point(|of| of.total_cmp(&than).is_lt());
        let prefill = prefill.0 as f32;
        if self.came.len() == MEMORY
            && let Some(oldest) = self.came.pop_front()
        {
            self.sorted.remove(below(&self.sorted, oldest));
        }
        self.came.push_back(prefill);
        self.sorted.insert(below(&self.sorted, prefill), prefill);
    }

    /// What only this share of the prompts exceeds.
    pub(crate) fn exceeded_by(&self, share: f64) -> Option<Millis> {
        let seen = self.sorted.len();
        if seen < FEW {
            return None;
        }
        let longer = (share.clamp(0.0, 1.0) * seen as f64) as usize;
        self.sorted
            .get(seen.saturating_sub(longer + 1))
            .map(|at| Millis(f64::from(*at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_prompts_say_nothing() {
        let mut usual = Usual::default();
        for place in 0..31 {
            usual.saw(Millis(f64::from(place)));
        }
        assert_eq!(usual.exceeded_by(0.5), None);
        usual.saw(Millis(31.0));
        assert_eq!(usual.exceeded_by(0.5), Some(Millis(15.0)));
        assert_eq!(usual.exceeded_by(0.0), Some(Millis(31.0)), "nobody exceeds the longest");
        assert_eq!(usual.exceeded_by(1.0), Some(Millis(0.0)));
    }

    #[test]
    fn what_is_long_past_is_forgotten() {
        let mut usual = Usual::default();
        // In no order, each number once.
        let mixed = (0..3_000_u32).map(|at| f64::from(at * 1_237 % 3_000));
        for prefill in mixed.clone() {
            usual.saw(Millis(prefill));
        }
        let mut last: Vec<f64> = mixed.skip(3_000 - MEMORY).collect();
        last.sort_by(f64::total_cmp);
        for longer in [0, 1, 10, 100, 1_023] {
            let share = longer as f64 / MEMORY as f64;
            assert_eq!(usual.exceeded_by(share), Some(Millis(last[MEMORY - 1 - longer])));
        }
        for _ in 0..MEMORY {
            usual.saw(Millis(7.0));
        }
        assert_eq!(usual.exceeded_by(0.0), Some(Millis(7.0)));
    }
}
