//! Which prompts are long? Those that together are only a certain share of all that is computed, the longest first. A policy that treats
//! them in another way asks from how long on.
//!
//! Times are told apart in steps of 2%, 32 to a doubling, and each step knows how much the last prompts took that are in it: neither a prompt that
//! comes nor a question sorts anything.

use std::collections::VecDeque;

use homing_profile::Millis;

/// So many of the last prompts count.
const MEMORY: usize = 1_024;
/// Fewer prompts than these say nothing: with two, one of them is long.
const FEW: usize = 32;
/// Steps to a doubling. A number's fraction begins with the step it is in.
const STEPS: usize = 32;
const LEFT_OUT: u32 = f32::MANTISSA_DIGITS - 1 - STEPS.ilog2();
/// From a microsecond to a quarter of an hour; below and beyond, times are not told apart.
const DOUBLINGS: usize = 30;

/// The last prompts, each by how many microseconds it takes: as they came, and summed up by steps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Usual {
    came: VecDeque<u32>,
    steps: [[u64; STEPS]; DOUBLINGS],
    /// The same for each doubling, and for all.
    doublings: [u64; DOUBLINGS],
    all: u64,
}

impl Default for Usual {
    fn default() -> Self {
        Self {
            came: VecDeque::new(),
            steps: [[0; STEPS]; DOUBLINGS],
            doublings: [0; DOUBLINGS],
            all: 0,
        }
    }
}

impl Usual {
    /// A prompt that takes so long by its profile.
    pub(crate) fn saw(&mut self, prefill: Millis) {
        if self.came.len() == MEMORY
            && let Some(oldest) = self.came.pop_front()
        {
            let (doubling, step) = place_of(oldest);
            self.steps[doubling][step] -= u64::from(oldest);
            self.doublings[doubling] -= u64::from(oldest);
            self.all -= u64::from(oldest);
        }
        let micros = (prefill.0 * 1e3).clamp(1.0, LONGEST) as u32;
        let (doubling, step) = place_of(micros);
        self.steps[doubling][step] += u64::from(micros);
        self.doublings[doubling] += u64::from(micros);
        self.all += u64::from(micros);
        self.came.push_back(micros);
    }

    /// The time beyond which prompts take at most this share of all the time together.
    pub(crate) fn beyond(&self, share: f64) -> Option<Millis> {
        if self.came.len() < FEW {
            return None;
        }
        let left = (share.clamp(0.0, 1.0) * self.all as f64) as u64;
        let Some((doubling, left)) = last_beyond(&self.doublings, left) else {
            return Some(Millis(0.0));
        };
        let (step, _) = last_beyond(&self.steps[doubling], left)?;
        Some(end_of(doubling, step))
    }
}

/// The most microseconds that are told from more.
const LONGEST: f64 = ((1_u64 << DOUBLINGS) - 1) as f64;

/// The last place that has more than `left` with all behind it, and how much of that is left for the place itself.
fn last_beyond(sums: &[u64], mut left: u64) -> Option<(usize, u64)> {
    for (at, sum) in sums.iter().enumerate().rev() {
        match left.checked_sub(*sum) {
            Some(less) => left = less,
            None => return Some((at, left)),
        }
    }
    None
}

/// Which doubling and which step of it a time is in.
fn place_of(micros: u32) -> (usize, usize) {
    let steps = (micros.max(1) as f32).to_bits() >> LEFT_OUT;
    // One microsecond is the first step of all.
    let steps = (steps - (1.0_f32.to_bits() >> LEFT_OUT)) as usize;
    ((steps / STEPS).min(DOUBLINGS - 1), steps % STEPS)
}

/// The least time beyond a step.
fn end_of(doubling: usize, step: usize) -> Millis {
    let part = (step + 1) as f64 / STEPS as f64;
    Millis((1_u64 << doubling) as f64 * (1.0 + part) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether this is the end of the step that `time` is in.
    fn is_end(found: Option<Millis>, time: f64) -> bool {
        found.is_some_and(|end| end.0 > time && end.0 <= time * (1.0 + 1.0 / STEPS as f64))
    }

    #[test]
    fn few_prompts_say_nothing() {
        let mut usual = Usual::default();
        for place in 1..32 {
            usual.saw(Millis(f64::from(place)));
        }
        assert_eq!(usual.beyond(0.5), None);
        usual.saw(Millis(32.0));
        // All take 528 together, the six longest 177 and the seven longest 203.
        assert!(is_end(usual.beyond(0.34), 26.0), "{:?}", usual.beyond(0.34));
        assert!(is_end(usual.beyond(0.0), 32.0), "nobody exceeds the longest");
        assert_eq!(usual.beyond(1.0), Some(Millis(0.0)));
    }

    #[test]
    fn what_is_long_past_is_forgotten() {
        let mut usual = Usual::default();
        // In no order, each number once.
        let mixed = (0..3_000_u32).map(|at| f64::from(1 + at * 1_237 % 3_000));
        for prefill in mixed.clone() {
            usual.saw(Millis(prefill));
        }
        let mut last: Vec<f64> = mixed.skip(3_000 - MEMORY).collect();
        last.sort_by(f64::total_cmp);
        let all: f64 = last.iter().sum();
        for share in [0.0, 0.01, 0.1, 0.5, 0.9] {
            let beyond = usual.beyond(share).expect("there were many").0;
            let taken = |from: f64| last.iter().filter(|time| **time >= from).sum::<f64>() / all;
            assert!(taken(beyond) <= share, "{share}");
            assert!(taken(beyond * 0.96) >= share, "{share}: a step less would be too much");
        }
        for _ in 0..MEMORY {
            usual.saw(Millis(7.0));
        }
        assert!(is_end(usual.beyond(0.0), 7.0));
        assert!(is_end(usual.beyond(0.9), 7.0), "where all are alike none is long");
    }

    #[test]
    fn times_that_are_no_times_are_in_the_first_or_the_last_step() {
        let mut usual = Usual::default();
        for time in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e30] {
            usual.saw(Millis(time));
        }
        for _ in 0..MEMORY {
            usual.saw(Millis(7.0));
        }
        assert_eq!(usual.all, 7_000 * MEMORY as u64);
        assert_eq!(usual.doublings.iter().sum::<u64>(), usual.all, "what came went");
    }
}
