//! How are times and lengths drawn? With arithmetic that is the same on every machine: the logarithm and the exponential of the
//! standard library are the platform's, and may differ in their last digit.

use crate::rng::Rng;

/// Drawn with this mean: short waits often, long ones seldom.
pub(super) fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -ln(1.0 - rng.share()) * mean
}

/// Drawn with mean 0 and deviation 1: the sum of twelve shares, which never is beyond 6.
pub(super) fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.share()).sum::<f64>() - 6.0
}

/// Drawn with this mean, never negative, with a deviation of `spread` times the mean: few are much longer than most.
pub(super) fn log_normal(rng: &mut Rng, mean: f64, spread: f64) -> f64 {
    let variance = ln(1.0 + spread * spread);
    exp(ln(mean) - variance / 2.0 + variance.sqrt() * normal(rng))
}

/// Drawn with mean 1 and a deviation of `1 / sqrt(shape)`, by the method of Marsaglia and Tsang.
pub(super) fn gamma(rng: &mut Rng, shape: f64) -> f64 {
    if shape < 1.0 {
        let more = gamma(rng, shape + 1.0) * (shape + 1.0);
        return more * exp(ln(1.0 - rng.share()) / shape) / shape;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    // Nineteen of twenty tries succeed.
    for _ in 0..64 {
        let x = normal(rng);
        let v = 1.0 + c * x;
        let v = v * v * v;
        if v > 0.0 && ln(1.0 - rng.share()) < 0.5 * x * x + d - d * v + d * ln(v) {
            return d * v / shape;
        }
    }
    1.0
}

/// The natural logarithm of a normal number above 0.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = f64::from((bits >> 52) as u32 & 0x7ff) - 1023.0;
    let mut fraction = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    if fraction > std::f64::consts::SQRT_2 {
        fraction /= 2.0;
        exponent += 1.0;
    }
    // With z = (m - 1) / (m + 1), ln m = 2 (z + z^3 / 3 + z^5 / 5 + ...), and z is below 0.172.
    let z = (fraction - 1.0) / (fraction + 1.0);
    let square = z * z;
    let series = (0..=10)
        .rev()
        .fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    exponent * std::f64::consts::LN_2 + 2.0 * z * series
}

/// The exponential, within what a number can hold.
fn exp(x: f64) -> f64 {
    let x = x.clamp(-700.0, 700.0);
    let twos = (x / std::f64::consts::LN_2).round();
    let rest = x - twos * std::f64::consts::LN_2;
    let series = (1..=14).rev().fold(1.0, |sum, term| 1.0 + sum * rest / f64::from(term));
    // Between 2^-1011 and 2^1011: the exponent is in range.
    series * f64::from_bits(((twos as i64 + 1023).cast_unsigned()) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn logarithm_and_exponential_are_right(x in -600.0..600.0_f64) {
            let e = exp(x);
            prop_assert!((e / x.exp() - 1.0).abs() < 1e-12, "{} {}", e, x.exp());
            prop_assert!((ln(e) - x).abs() < 1e-12 * x.abs().max(1.0));
        }
    }

    fn mean_and_deviation(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let drawn: Vec<f64> = (0..100_000).map(|_| draw()).collect();
        let mean = drawn.iter().sum::<f64>() / 1e5;
        let variance = drawn.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 1e5;
        (mean, variance.sqrt())
    }

    #[test]
    fn means_and_deviations_are_as_asked() {
        let mut rng = Rng::new(1);
        let near = |(mean, deviation): (f64, f64), expected: (f64, f64)| {
            assert!(
                (mean - expected.0).abs() < 0.03 * expected.1,
                "mean {mean}, not {}",
                expected.0
            );
            assert!(
                (deviation / expected.1 - 1.0).abs() < 0.05,
                "deviation {deviation}, not {}",
                expected.1
            );
        };
        near(mean_and_deviation(|| exponential(&mut rng, 3.0)), (3.0, 3.0));
        near(mean_and_deviation(|| log_normal(&mut rng, 200.0, 0.8)), (200.0, 160.0));
        for shape in [0.25, 0.8, 1.0, 4.0] {
            near(
                mean_and_deviation(|| gamma(&mut rng, shape)),
                (1.0, 1.0 / f64::sqrt(shape)),
            );
        }
    }
}
