//! How long does a lookup take, and how do two of them compare on a machine that is not quiet?
//!
//! Contenders take turns in rounds: in each round all get the same requests, in an order of contenders drawn anew, so
//! that noise hits all alike. A ratio is the median over rounds of the ratios within a round.

use std::ops::Range;
use std::time::Instant;

use crate::contender::{Form, Probe};
use crate::rng::Rng;

/// How many lookups a measurement makes.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds, after one that is thrown away.
    pub rounds: usize,
    /// Lookups of each contender in a round, once timed together and once one by one.
    pub batch: usize,
}

/// What one contender took.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Median and 99th percentile of single lookups, in ns.
    pub p50: f64,
    /// See `p50`.
    pub p99: f64,
    /// Nanoseconds per lookup in each round, timed as a whole.
    pub rounds: Vec<f64>,
}

/// Measures lookups of all probes on the requests at these places.
pub fn paired(
    probes: &mut [Box<dyn Probe>],
    form: Form,
    places: &Range<usize>,
    effort: Effort,
    rng: &mut Rng,
) -> Vec<Taken> {
    let clock = clock_ns();
    let mut samples = vec![Vec::new(); probes.len()];
    let mut taken = vec![Taken::default(); probes.len()];
    let mut turns: Vec<_> = (0..probes.len()).collect();
    for round in 0..=effort.rounds {
        let together = draw(places, effort.batch, rng);
        let single = draw(places, effort.batch, rng);
        rng.shuffle(&mut turns);
        for turn in &turns {
            let ns = probes[*turn].batch(form, &together);
            if round == 0 {
                continue;
            }
            taken[*turn].rounds.push(ns);
            probes[*turn].each(form, &single, &mut samples[*turn]);
        }
    }
    for (taken, samples) in taken.iter_mut().zip(&mut samples) {
        (taken.p50, taken.p99) = p50_p99(samples, clock);
    }
    taken
}

/// Places drawn at random.
pub fn draw(places: &Range<usize>, count: usize, rng: &mut Rng) -> Vec<u32> {
    (0..count)
        .map(|_| (places.start + rng.below(places.len())) as u32)
        .collect()
}

/// Median and 99th percentile, less what reading the clock takes.
pub fn p50_p99(samples: &mut [u64], clock: f64) -> (f64, f64) {
    samples.sort_unstable();
    let of = |share| (percentile(samples, share) - clock).max(1.0);
    (of(0.5), of(0.99))
}

/// The value below which this share of the sorted samples lies.
pub fn percentile(sorted: &[u64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share) as usize;
    sorted
        .get(place.min(sorted.len().saturating_sub(1)))
        .map_or(f64::NAN, |ns| *ns as f64)
}

/// The middle of some values; not a number where there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What reading the clock twice takes.
pub fn clock_ns() -> f64 {
    let mut samples: Vec<u64> = (0..1001)
        .map(|_| {
            let start = Instant::now();
            start.elapsed().as_nanos() as u64
        })
        .collect();
    samples.sort_unstable();
    percentile(&samples, 0.5)
}
