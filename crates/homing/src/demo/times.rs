//! How long did it take, mostly?

use std::time::Duration;

/// Times in a few numbers, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
}

impl Times {
    /// Of at least one.
    pub fn of(times: &[Duration]) -> Option<Self> {
        let mut sorted: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        // The least time that so many of a hundred do not exceed.
        let at = |share: f64| {
            sorted[((sorted.len() as f64 * share).ceil() as usize)
                .saturating_sub(1)
                .min(last)]
        };
        Some(Self {
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_seen() {
        let millis = |times: &[u64]| {
            times
                .iter()
                .map(|time| Duration::from_millis(*time))
                .collect::<Vec<_>>()
        };
        assert_eq!(Times::of(&[]), None);
        let one = Times::of(&millis(&[7])).unwrap();
        assert_eq!((one.mean, one.p50, one.p99), (7.0, 7.0, 7.0));
        let hundred: Vec<u64> = (1..=100).rev().collect();
        let hundred = Times::of(&millis(&hundred)).unwrap();
        assert_eq!((hundred.p50, hundred.p90, hundred.p99), (50.0, 90.0, 99.0));
        assert!((hundred.mean - 50.5).abs() < 1e-9);
    }
}
