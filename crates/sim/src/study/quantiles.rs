//! How are so many values distributed, in memory that does not grow with their number?
//!
//! A value is counted in a bucket by its exponent and the first bits of its mantissa, so that a quantile is off by at most one part
//! in 1,024. Sum, least and greatest are exact.
//!
//! **Invariant:** the order of values does not matter, except to the last bits of the sum.

/// Buckets for each power of two.
const STEPS: u64 = 512;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Values below this count as this.
const LEAST: f64 = 1.0 / 1_024.0;
/// Values above this count as this.
const MOST: f64 = (1_u64 << 40) as f64;

/// A distribution of values that are not negative.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quantiles {
    buckets: Vec<u32>,
    count: u64,
    sum: f64,
    least: f64,
    most: f64,
}

impl Quantiles {
    /// One value more. What is no number counts as 0.
    pub fn add(&mut self, value: f64) {
        let value = if value.is_finite() { value.max(0.0) } else { 0.0 };
        let bucket = bucket(value);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] = self.buckets[bucket].saturating_add(1);
        self.least = if self.count == 0 { value } else { self.least.min(value) };
        self.most = self.most.max(value);
        self.count += 1;
        self.sum += value;
    }

    /// All values of another distribution.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.saturating_add(*theirs);
        }
        self.least = if self.count == 0 {
            other.least
        } else {
            self.least.min(other.least)
        };
        self.most = self.most.max(other.most);
        self.count += other.count;
        self.sum += other.sum;
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 if there are none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum / self.count as f64
        }
    }

    /// The greatest; 0 if there are none.
    pub fn most(&self) -> f64 {
        self.most
    }

    /// The least value that at least this share of all values does not exceed; 0 if there are none.
    pub fn at(&self, share: f64) -> f64 {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut before = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            before += u64::from(*count);
            if before >= rank {
                return middle(bucket).clamp(self.least, self.most);
            }
        }
        self.most
    }

    /// Which share of the values is at most so much; what falls into the same bucket counts.
    pub fn share_within(&self, limit: f64) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let within: u64 = self
            .buckets
            .iter()
            .take(bucket(limit) + 1)
            .map(|count| u64::from(*count))
            .sum();
        within as f64 / self.count as f64
    }

    /// Values at so many equal steps from the least share to the greatest, for plots.
    pub fn curve(&self, steps: u32) -> Vec<(f64, f64)> {
        let steps = steps.max(1);
        let share = |step: u32| f64::from(step) / f64::from(steps);
        (0..=steps).map(|step| (share(step), self.at(share(step)))).collect()
    }
}

fn bucket(value: f64) -> usize {
    let value = value.clamp(LEAST, MOST);
    // The exponent and the first bits of the mantissa, counted from those of the least.
    let steps = value.to_bits() >> (f64::MANTISSA_DIGITS - 1 - STEP_BITS);
    (steps - (LEAST.to_bits() >> (f64::MANTISSA_DIGITS - 1 - STEP_BITS))) as usize
}

fn middle(bucket: usize) -> f64 {
    let shift = f64::MANTISSA_DIGITS - 1 - STEP_BITS;
    let steps = bucket as u64 + (LEAST.to_bits() >> shift);
    let low = f64::from_bits(steps << shift);
    if low <= LEAST {
        return 0.0;
    }
    f64::midpoint(low, f64::from_bits((steps + 1) << shift))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_near_those_of_the_sorted_values(values in prop::collection::vec(0.01..1e7_f64, 1..400), share in 0.0..=1.0_f64) {
            let mut quantiles = Quantiles::default();
            for value in &values {
                quantiles.add(*value);
            }
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let rank = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len());
            let (found, right) = (quantiles.at(share), sorted[rank - 1]);
            prop_assert!((found - right).abs() <= right / 1_000.0, "{} {}", found, right);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            prop_assert!((quantiles.mean() - mean).abs() <= mean * 1e-9);
        }

        #[test]
        fn parts_together_are_the_whole(one in prop::collection::vec(0.0..1e4_f64, 0..50), other in prop::collection::vec(0.0..1e4_f64, 0..50)) {
            let of = |values: &[f64]| {
                let mut quantiles = Quantiles::default();
                for value in values {
                    quantiles.add(*value);
                }
                quantiles
            };
            let mut merged = of(&one);
            merged.merge(&of(&other));
            let whole = of(&[one, other].concat());
            prop_assert_eq!(merged.count(), whole.count());
            for share in [0.0, 0.5, 0.9, 1.0] {
                prop_assert_eq!(merged.at(share).to_bits(), whole.at(share).to_bits());
            }
        }
    }

    #[test]
    fn nothing_and_nonsense_are_zero() {
        let mut quantiles = Quantiles::default();
        assert_eq!(
            (quantiles.mean(), quantiles.at(0.5), quantiles.share_within(1.0)),
            (0.0, 0.0, 0.0)
        );
        quantiles.add(f64::NAN);
        quantiles.add(-3.0);
        assert_eq!((quantiles.mean(), quantiles.at(0.99), quantiles.count()), (0.0, 0.0, 2));
        quantiles.add(1e300);
        assert!(quantiles.most() >= 1e300);
        assert!(quantiles.share_within(5.0) > 0.6);
    }
}
